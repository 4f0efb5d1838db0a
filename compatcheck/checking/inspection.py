"""What one command inspects: the policy of the project, with what the person named laid over its runs and machines."""

from __future__ import annotations

import os

from compatcheck.core.errors import UsageError
from compatcheck.core.files import LOCAL
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.programs import lies_beside
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_BYTES, POLICY_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.checking.policy import NamedRun, Policy, Target
    from compatcheck.checking.request import Request
    from compatcheck.core.files import Files

PROJECT_FILE = "pyproject.toml"


class Inspection(NamedTuple):
    """What one command inspects: a request per run and machine, and the policy behind them."""

    requests: tuple[Request, ...]
    policy: Policy | None = None
    complete: bool = True
    """Whether everything the policy is about takes part, so that an unused waiver is worth a word."""
    touched: tuple[str, ...] | None = None
    """Files a commit touches: a run takes part as a whole where one of them is read for it; None where runs are not chosen so."""


class PolicyUse(NamedTuple):
    """Which policy takes part in an inspection, and what of it."""

    path: str | None = None
    """Its file; None for the nearest one at or above the working directory."""
    disabled: bool = False
    runs: tuple[str, ...] = ()
    """Names of the runs that are inspected; empty for all of them where no file is named, or the directory of the policy."""
    targets: tuple[str, ...] = ()
    """Names of the machines it is for; empty for all of them."""
    narrowed: bool = False
    """Whether a selection leaves out rules."""


def find_policy(directory: str, home: str | None) -> str | None:
    """Return the nearest policy file at or above a directory, or None.

    Looks no higher than the root of the git checkout or the home directory. A ``pyproject.toml`` without the
    table is passed over without being parsed. What has the name of a policy and is no file, a dangling link or a pipe, is
    found all the same: a policy that is left out without a word would let pass what it forbids.
    """
    here = os.path.abspath(directory)
    while True:
        path = os.path.join(here, POLICY_FILE)
        if os.path.lexists(path):
            return path
        path = os.path.join(here, PROJECT_FILE)
        if os.path.isfile(path) and has_table(path):
            return path
        above = os.path.dirname(here)
        if here in {above, home} or os.path.exists(os.path.join(here, ".git")):
            return None
        here = above


def has_table(path: str, files: Files = LOCAL) -> bool:
    """Tell whether a file may hold the table, in any way TOML can open it: a header or key of it, or of ``tool`` alone."""
    import re  # noqa: PLC0415 (only beside a project file)

    tool = rb"[ \t]*[\"']?tool[\"']?[ \t]*"
    table = rb"^(?:\xef\xbb\xbf)?[ \t]*(?:\[*%b(?:\.[ \t]*[\"']?compatcheck\b|=)|\[%b\])" % (tool, tool)
    try:
        text = files.read_bytes(path, MAX_BYTES + 1)
        return (
            len(text) > MAX_BYTES
            or text.startswith((b"\xff\xfe", b"\xfe\xff"))
            or re.search(table, text, re.MULTILINE) is not None
        )
    except OSError:
        return True  # its reader says why nobody can tell


def load_policy(path: str | None, *, disabled: bool) -> Policy | None:
    """Read the policy that ``--policy`` names, else the nearest one.

    Raises:
        UsageError: it cannot be read or makes no sense.
    """
    if disabled:
        if path is not None:
            raise UsageError("--policy and --no-policy exclude each other")
        return None
    found = path
    if found is None:
        home = os.path.expanduser("~")
        found = find_policy(os.getcwd(), home)
        if found is None:
            return None
        found = _shortest(found)
    from compatcheck.checking.policy import read_policy  # noqa: PLC0415 (only with a policy)

    policy = read_policy(found)
    if policy is None and path is not None:
        raise UsageError(
            "holds no [tool.compatcheck]", source=Source(path), hint="name a compatcheck.toml, or add the table"
        )
    return policy


def _shortest(path: str) -> str:
    relative = os.path.relpath(path)
    return relative if len(relative) <= len(path) else path


def as_inspection(asked: Request | Inspection) -> Inspection:
    """Return the inspection of a request alone, without a policy; an inspection as it is."""
    return asked if isinstance(asked, Inspection) else Inspection((asked,))


def _nothing_named(request: Request) -> UsageError:
    """Say that a check of files has none, and which command is about what was named beside."""
    hint = "name files or directories, or write runs into the policy"
    if request.python is not None:
        hint = f"name files or directories; an environment alone: compatcheck env --python {request.python}"
    elif request.image is not None:
        hint = f"name files or directories; an image alone: compatcheck image {request.image}"
    return UsageError("nothing to check", hint=hint)


def make_inspection(request: Request, use: PolicyUse, *, files: bool, on_targets: bool = True) -> Inspection:
    """Lay the runs and the machines of the policy under a request.

    Args:
        request: what the person named; what it leaves open a run and a target fill.
        use: the policy, and what of it.
        files: whether the command is about files; then a run's paths are read, else the installed environment is.
        on_targets: whether the command is about the machines of the policy, and not about one where something has run.

    Raises:
        UsageError: a policy that makes no sense, an unknown run, or nothing to read.
    """
    policy = load_policy(use.path, disabled=use.disabled)
    runs = {run.name: run for run in policy.runs} if policy is not None else {}
    for name in use.runs:
        if name not in runs:
            raise _unknown_run(name, runs, policy)
    chosen = [runs[name] for name in use.runs]
    touched = request.paths if request.hook else None
    holds = (
        files and policy is not None and runs and not (use.runs or request.hook) and _holds(request.paths, policy.path)
    )
    if files and not use.runs and (request.hook or not request.paths or holds):
        chosen = list(runs.values())
        if not chosen and request.training and not request.hook:
            request = request._replace(paths=request.training, training=())
        elif not chosen and not request.hook:
            raise _nothing_named(request)
    if files:
        of_runs = [path for run in runs.values() for path in (*run.paths, *run.training, run.model) if path is not None]
        request = request._replace(run_files=frozenset(map(os.path.realpath, of_runs)))
    if policy is not None and use.path is None:
        request = request._replace(foreign=_find_foreign(request, runs.values(), policy.path))
    targets = choose_targets(use.targets, policy) if on_targets or use.targets else ()
    complete = not (use.narrowed or request.hook or use.targets) and len(chosen) == len(runs)
    requests: list[Request] = []
    rest = () if chosen and (use.runs or not request.paths) else (None,)
    for run in (*chosen, *rest):
        laid = request if run is None else lay_over(request._replace(paths=()) if holds else request, run, files=files)
        names = () if run is None or use.targets else run.targets
        requests += lay_targets(laid, [target for target in targets if not names or target.name in names])
    return Inspection(tuple(requests), policy, complete, touched)


def _find_foreign(request: Request, runs: Iterable[NamedRun], policy: str) -> frozenset[str]:
    """Return the real paths outside of a policy's checkout that it names, and the person does not."""
    of_runs = (path for run in runs for path in (*run.paths, *run.training, run.model, run.env_file))
    named = (*request.paths, *request.training, request.model, request.env_file)
    own = {os.path.realpath(path) for path in named if path is not None}
    return (
        frozenset(os.path.realpath(path) for path in of_runs if path is not None and not lies_beside(path, policy))
        - own
    )


def _holds(paths: Iterable[str], policy: str) -> bool:
    """Tell whether one of the paths is a directory that the policy stands in: what it declares of it is part of what is there."""
    place = os.path.realpath(policy)
    return any(place.startswith(os.path.join(os.path.realpath(path), "")) for path in paths if os.path.isdir(path))


def choose_targets(names: Sequence[str], policy: Policy | None) -> tuple[Target, ...]:
    """Return the targets of the policy, or those of them that ``--target`` names.

    Raises:
        UsageError: a name that no target has.
    """
    targets = () if policy is None else policy.targets
    if not names:
        return targets
    known = {target.name: target for target in targets if target.name is not None}
    for name in names:
        if name not in known:
            msg = f"--target {name}: no such target"
            place = None if policy is None else Source(policy.path)
            hint = f"targets: {', '.join(known)}" if known else f"write [targets.{name}] into {POLICY_FILE}"
            raise UsageError(msg, source=place, hint=hint)
    return tuple(known[name] for name in dict.fromkeys(names))


def lay_targets(request: Request, targets: Sequence[Target]) -> list[Request]:
    """Fill what the command line and the run leave open about the machine, once per target.

    Devices and their number of nodes belong together: a target's nodes are none of a device that was named otherwise.
    Targets that then say the same are one.
    """
    laid: list[Request] = []
    for target in targets:
        fields = ["driver"] if request.driver is None else []
        if request.gpu is None:
            fields += ["gpu", "nodes"] if request.nodes is None else ["gpu"]
        given = {key: getattr(target, key) for key in fields if getattr(target, key) is not None}
        sources = {key: target.sources[key] for key in given}
        name = target.name if given else None
        entry = request._replace(**given, target=name, sources={**request.sources, **sources})
        if not any(_machine(entry) == _machine(other) for other in laid):
            laid.append(entry)
    if len(laid) == 1 and len(targets) > 1:
        laid = [laid[0]._replace(target=None)]
    return laid or [request]


def _machine(request: Request) -> tuple[str | None, int | None, str | None]:
    return request.gpu, request.nodes, request.driver


def _unknown_run(name: str, runs: Mapping[str, NamedRun], policy: Policy | None) -> UsageError:
    if policy is None:
        return UsageError(f"--run {name}: there is no policy", hint=f"write [runs.{name}] into {POLICY_FILE}")
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    near = get_close_matches(name, runs, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"runs: {', '.join(runs) or 'none'}"
    return UsageError(f"--run {name}: no such run", source=Source(policy.path), hint=hint)


def lay_over(request: Request, run: NamedRun, *, files: bool) -> Request:
    """Fill what the command line leaves open from a named run; settings are joined, the command line's come last and win."""
    return request._replace(
        run=run.name,
        sources={key: place for key, place in run.sources.items() if getattr(request, key, None) is None},
        paths=(run.paths if files else ()) if request.hook else request.paths or (run.paths if files else ()),
        hook=False,
        python=request.python or (run.python if request.prefix is None else None),
        prefix=request.prefix or (run.prefix if request.python is None else None),
        model=request.model or run.model,
        training=request.training or run.training,
        gpu=request.gpu or run.gpu,
        nodes=request.nodes or run.nodes,
        driver=request.driver or run.driver,
        settings=request.settings,
        run_settings=run.settings,
        env_file=request.env_file or run.env_file,
        selection=request.selection.over(run.selection) if files else request.selection,
    )
