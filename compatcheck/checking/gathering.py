"""Gather the subjects of a command: an installed environment, files or a container image, once per run and machine."""

from __future__ import annotations

import os

from compatcheck.checking.environments import with_variables
from compatcheck.checking.request import Gathered
from compatcheck.checking.shared import declared_hardware, declared_settings, read_shared
from compatcheck.checking.subjects import build_subject
from compatcheck.core.errors import InputError, NothingToCheckError, UsageError
from compatcheck.core.programs import distrust, show
from compatcheck.core.selection import DEFAULT, Choice
from compatcheck.core.source import Skipped, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import NoReturn

    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.checking.shared import Shared
    from compatcheck.collectors.python.interpreter import Layout
    from compatcheck.core.environment import Environment
    from compatcheck.core.errors import CompatcheckError
    from compatcheck.core.hardware import Hardware
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


def gather_all(inspection: Inspection, rules: RuleSet, environ: Mapping[str, str]) -> Gathered:
    """Read the inputs of every run, once for all its targets; one that cannot be read does not lose the others.

    Raises:
        CompatcheckError: an option or policy makes no sense, or there is but one request and nothing in it.
    """
    if len(inspection.requests) == 1 and inspection.requests[0].run is None and inspection.requests[0].target is None:
        alone = gather(inspection.requests[0], rules, environ)
        require_offered(inspection.requests, alone.subjects, alone.skipped)
        return alone
    from compatcheck.checking.commit import Commit  # noqa: PLC0415 (only for the runs and targets of a policy)

    gathered: list[Gathered] = []
    files = inspection.requests[0].files
    done: list[tuple[Request, Gathered]] = []
    skipped: list[Skipped] = []
    commit = Commit(inspection)
    asked: list[Request] = []
    for request in map(commit.narrow, inspection.requests):
        if request is None:
            continue
        log = commit.watch(files)
        try:
            inputs = request._replace(gpu=None, nodes=None, driver=None, target=None, sources={})
            measures = request.gpu is None and request.here and not request.paths and request.image is None
            read = None if measures else next((part for known, part in done if known == inputs), None)
            if read is None:
                part = gather(request._replace(files=log or files), rules, environ)
            else:
                part = resolve_on_machine(read, request, rules)
            if log is None:
                files = part.files  # standard input can be read only once
            done.append((inputs, part))
        except (InputError, NothingToCheckError) as error:
            if len(inspection.requests) == 1 or (commit.beside_runs and request.run is None and request.target is None):
                raise
            if commit.concerns(request, log):
                skipped.append(_skipped_run(error, request, inspection))
            continue
        if not commit.concerns(request, log):
            continue
        asked.append(request)
        renamed = tuple(
            subject._replace(id=_name_subject(request, subject.id), target=request.target) for subject in part.subjects
        )
        aside = frozenset(_name_subject(request, name) for name in part.aside)
        reasons = {_name_subject(request, name): reason for name, reason in part.reasons.items()}
        gathered.append(part._replace(subjects=renamed, aside=aside, reasons=reasons))
    unread = dict.fromkeys(entry for part in gathered for entry in part.skipped)
    everything = Gathered(
        tuple(subject for part in gathered for subject in part.subjects),
        (*skipped, *unread),
        next((part.chosen for part in gathered if part.chosen), None),
        frozenset().union(*(part.aside for part in gathered)),
        {name: reason for part in gathered for name, reason in part.reasons.items()},
        files,
        inspection.touched is not None and all(part.passes for part in gathered),
        tuple(dict.fromkeys(entry for part in gathered for entry in part.bare)),
    )
    require_offered(asked, everything.subjects, everything.skipped)
    return everything


def _set_bounds(request: Request) -> None:
    """Say what is inspected, and what of it the person named: the policy of a checkout may name what it likes."""
    foreign = [path for path in request.paths if os.path.realpath(path) in request.foreign]
    own = [path for path in request.paths if path not in foreign]
    distrust(*own, *([request.image] if request.image is not None else ()))
    distrust(*foreign, named=False)
    beside = filter(None, (*request.training, request.model, request.env_file))
    show(*(path for path in beside if os.path.realpath(path) not in request.foreign))


def gather(request: Request, rules: RuleSet, environ: Mapping[str, str]) -> Gathered:
    """Read every input and resolve the subjects.

    Raises:
        CompatcheckError: an option makes no sense, or the environment cannot be found.
    """
    _require_inputs(request)
    shared = read_shared(request, rules, environ)
    _set_bounds(request)
    if request.paths or request.hook:
        from compatcheck.checking.elsewhere import hide_reasons  # noqa: PLC0415 (only for files)
        from compatcheck.checking.files import gather_paths, gather_touched  # noqa: PLC0415 (only for files)

        shared = shared._replace(hides=True)
        found = _count_runs(gather_touched(request, shared) if request.hook else gather_paths(request, shared))
        return found._replace(skipped=hide_reasons(found.skipped))
    if request.image is not None:
        from compatcheck.checking.images import gather_image  # noqa: PLC0415 (only for images)

        return gather_image(request, shared)
    return _gather_environment(request, shared)


def _require_inputs(request: Request) -> None:
    """Refuse what is chosen of an image or of files where none is named: a choice that nothing offers would be passed over.

    Raises:
        UsageError: with the option.
    """
    if request.image_environments and request.image is None:
        require_image(request.image_environments)
    chosen = request.selection
    if request.paths or request.hook or request.image is not None or chosen == DEFAULT:
        return
    options = (
        *(f"--{choice}" for choice in chosen.named),
        *(["--all-extras"] if chosen.all_extras else []),
        *([f"--python-version {chosen.python}"] if chosen.python is not None else []),
        *([f"--stage {chosen.stage}"] if chosen.stage is not None else []),
        *(["--script-args"] if chosen.script_arguments is not None and not request.training else []),
    )
    if options:
        raise UsageError(f"{options[0]}: no file is named that it is for", hint="name the file, or leave it out")


def require_image(names: Iterable[str]) -> NoReturn:
    """Refuse environments of an image where there is none.

    Raises:
        UsageError: always.
    """
    message = f"--environment {next(iter(names))}: no image is named"
    raise UsageError(message, hint="name the image that holds it, or leave it out")


def _count_runs(gathered: Gathered) -> Gathered:
    """Let what a run names and nobody could read count as named, whether a file or a pasted text holds the run."""

    def count(skipped: tuple[Skipped, ...]) -> tuple[Skipped, ...]:
        return tuple(entry._replace(named=True) if entry.by_run else entry for entry in skipped)

    subjects = tuple(subject._replace(skipped=count(subject.skipped)) for subject in gathered.subjects)
    return gathered._replace(subjects=subjects, skipped=count(gathered.skipped))


def _gather_environment(request: Request, shared: Shared) -> Gathered:
    environment, layout = read_installed(request, shared)
    hardware = list(shared.hardware)
    if request.gpu is None and request.here:
        hardware.append((measure_hardware(shared.environ), False))
    subject = build_subject(layout.origin, environment, shared.documents, shared._replace(hardware=tuple(hardware)))
    return Gathered((subject,), shared.skipped, layout.chosen, files=shared.files)


def read_installed(request: Request, shared: Shared) -> tuple[Environment, Layout]:
    """Read what is installed in the environment that a request is about, with the variables of its run.

    Raises:
        CompatcheckError: there is no such environment.
    """
    from compatcheck.collectors.python.installed import collect_installed  # noqa: PLC0415 (not for files)
    from compatcheck.collectors.python.interpreter import locate  # noqa: PLC0415 (not for files)
    from compatcheck.collectors.python.metadata_check import check_records  # noqa: PLC0415 (not for files)

    files = request.files
    layout = locate(request.python, request.prefix, shared.environ, files)
    distrust(layout.prefix)
    installed = collect_installed(layout, files=files)
    environment = check_records(installed, shared.rules.packages, layout.site_packages, files)
    if shared.variables is None and not request.here:
        pass
    elif shared.variables is None:
        own = layout.chosen not in {"--python", "--prefix"} or os.path.realpath(layout.prefix) == os.path.realpath(
            shared.environ.get("VIRTUAL_ENV", ""),
        )
        environment = with_variables(environment, shared.environ, Source("environment of this process"), complete=own)
    else:
        environment = with_variables(environment, shared.variables, Source(request.env_file or ""), complete=True)
    return environment, layout


def resolve_on_machine(gathered: Gathered, request: Request, rules: RuleSet) -> Gathered:
    """Resolve what has been read once more, on another machine; nothing is read again.

    Args:
        gathered: what a request gave that differs from this one in devices, nodes, driver and target only.
        request: names the machine.
        rules: the rule database.
    """
    from compatcheck.resolution.resolve import resolve  # noqa: PLC0415 (beside its use)

    settings = declared_settings(request)
    declared = declared_hardware(request)
    subjects = []
    for subject in gathered.subjects:
        own = None if subject.environment is None else subject.environment.hardware
        moved = resolve(
            subject.id,
            rules=rules,
            environment=subject.environment,
            documents=subject.as_read,
            hardware=declared if own is None else (*declared, (own, False)),
            settings=settings,
        )
        subjects.append(moved)
    return gathered._replace(subjects=tuple(subjects))


def measure_hardware(environ: Mapping[str, str]) -> Hardware:
    """Read the devices, the driver and the memory of this machine."""
    from compatcheck.collectors.machine.driver import collect_hardware  # noqa: PLC0415 (not for files)

    return collect_hardware(environ)


def require_offered(requests: Iterable[Request], subjects: Iterable[Subject], skipped: Iterable[Skipped]) -> None:
    """Refuse an extra or a group that no input has: a name written wrong would leave its packages unknown.

    Raises:
        UsageError: with the nearest name.
    """
    named = {choice: None for request in requests for choice in request.selection.named}
    if not named or any(entry.named for entry in skipped):
        return  # what was not read may be the input that has it
    environments = [subject.environment for subject in subjects if subject.environment is not None]
    offered = frozenset[Choice]().union(*(environment.offered for environment in environments))
    for choice in named:
        if choice not in offered:
            raise _unknown_choice(choice, offered)


def _unknown_choice(choice: Choice, offered: frozenset[Choice]) -> UsageError:
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    msg = f"--{choice}: no input has such {'an extra' if choice.kind == 'extra' else 'a group'}"
    if other := next((entry for entry in offered if entry.name == choice.name), None):
        return UsageError(msg, hint=f"it is {'an extra' if other.kind == 'extra' else 'a group'}: write --{other}")
    names = sorted(entry.name for entry in offered if entry.kind == choice.kind)
    near = get_close_matches(choice.name, names, n=1)
    return UsageError(
        msg, hint=f"did you mean {near[0]!r}?" if near else f"{choice.kind}s: {', '.join(names) or 'none'}"
    )


def _name_subject(request: Request, subject: str) -> str:
    """Say which run and which machine a subject is of."""
    named = subject if request.target is None else f"{subject} (on {request.target})"
    return named if request.run is None else f"{request.run}: {named}"


def _skipped_run(error: CompatcheckError, request: Request, inspection: Inspection) -> Skipped:
    path = inspection.policy.path if inspection.policy is not None else "policy"
    kind, name = ("target", request.target) if request.run is None else ("run", request.run)
    return Skipped(
        error.source or Source(path, f"{kind}s.{name}"), f"{kind} {name}: {error.message}", error.hint, named=True
    )
