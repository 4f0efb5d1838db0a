"""What a person can run next where little could be checked: with the configurations that lie here, or with the environment."""

from __future__ import annotations

import os
import re

from compatcheck.core.errors import CompatcheckError
from compatcheck.core.files import LOCAL
from compatcheck.core.redaction import redact
from compatcheck.core.report import NextStep
from compatcheck.core.source import Source
from compatcheck.core.textfile import CONFIGURATIONS, may_name_script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.checking.input_files import InputFile
    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Gathered, Request
    from compatcheck.core.report import SubjectReport
    from compatcheck.core.source import Skipped

MAX_FILES = 50
"""A directory with more files that may be configurations holds data."""

MAX_PYTHON = 8
"""A directory with more files of Python about training is a library; each takes tens of milliseconds to read."""

MAX_BYTES = 1 << 20
"""A larger file is data."""

MAX_COMMANDS = 3

ANY_PYTHON = "PATH/TO/python"
_SOME_DEVICES = "8xH100-80GB"


def find_next_step(
    inspection: Inspection, gathered: Gathered, subjects: Sequence[SubjectReport], environ: Mapping[str, str]
) -> NextStep | None:
    """Find what would make more of a check; None where nothing was left out that is known of."""
    given = inspection.requests[0]
    if inspection.touched is not None or given.image is not None:
        return None
    request = _leave_out_unread(given, gathered.skipped)
    checked = any(subject.is_checkable for subject in subjects)
    if given.paths:
        return _add_devices(request, subjects, "check") if checked else _add_environment(request, gathered, environ)
    if given.run is not None or given.training or given.model is not None:
        return _add_devices(request, subjects, "env") if checked else _name_environment(request)
    if inspection.policy is not None and inspection.policy.runs:
        names = [run.name for run in inspection.policy.runs]
        commands = _env(request, [["--run", name] for name in names])
        return NextStep(f"{inspection.policy.path} names {', '.join(names)}: a run adds its configuration", commands)
    found = find_configurations(os.curdir, request)
    if not found:
        return None if checked else _name_environment(request)
    files = dict.fromkeys(item.path.partition(":")[0] for item in found)
    named = f"{_join(files)} {'here says what is trained' if len(files) == 1 else 'here say what is trained'}"
    if not checked:
        request = request._replace(python=ANY_PYTHON, prefix=None)
        named += "; give the interpreter that trains, too"
    return NextStep(named, _env(request, _options(found)))


def _add_devices(request: Request, subjects: Sequence[SubjectReport], command: str) -> NextStep | None:
    """Ask for the devices of a run that could be estimated and was not judged; None where there is none."""
    estimates = [subject.estimate for subject in subjects if subject.estimate is not None and subject.estimate.phases]
    if not estimates or any(estimate.verdict.limit_bytes is not None for estimate in estimates):
        return None
    reason = "whether it fits was not judged, for no device is known: say what it runs on"
    devices = request._replace(gpu=request.gpu or _SOME_DEVICES)
    if command == "env":
        return NextStep(reason, _env(devices, [_named(request)]))
    return NextStep(reason, (_command("check", *request.paths, *_given(devices), *_named(request)),))


def _name_environment(request: Request) -> NextStep:
    """Ask for the environment: the one that was looked at is none that a run trains in."""
    commands = _env(request._replace(python=ANY_PYTHON, prefix=None), [_named(request)])
    return NextStep("give the interpreter that trains", commands)


def _named(request: Request) -> list[str]:
    """Return the options that name the configurations of a run that no policy names."""
    return [] if request.run is not None else [part for path in request.training for part in ("--training", path)]


def _add_environment(request: Request, gathered: Gathered, environ: Mapping[str, str]) -> NextStep | None:
    """Ask for the packages of configurations that were checked alone."""
    from compatcheck.collectors.python.interpreter import find_active  # noqa: PLC0415 (only where no package is known)
    from compatcheck.resolution.imported import imported_packages  # noqa: PLC0415 (only where no package is known)

    documents = [document for subject in gathered.subjects for document in subject.documents]
    missing = imported_packages(documents)
    if not missing:
        return _name_devices(gathered)
    python = find_active(environ) or ANY_PYTHON
    python = python.removeprefix(os.path.join(os.getcwd(), ""))
    commands = [_command("check", *request.paths, *_given(request._replace(python=python, prefix=None)))]
    if not any(map(os.path.isdir, request.paths)) and "-" not in request.paths:
        named = [part for path in request.paths for part in ("--training", path)]
        commands = [*_env(request._replace(python=None, prefix=None), [named]), *commands]
    return NextStep(f"no release is known of {_join(missing)}: add the environment that has them", tuple(commands))


def _name_devices(gathered: Gathered) -> NextStep | None:
    """Offer the devices and the driver of a report for a check that has packages; None where neither can be declared."""
    environments = [subject.environment for subject in gathered.subjects if subject.environment is not None]
    machine = next((one.hardware for one in environments if one.hardware is not None), None)
    if machine is None:
        return None
    count = f"{machine.gpus_per_node}x" if machine.gpus_per_node else ""
    given = {"--gpu": machine.gpu and _as_declared(f"{count}{machine.gpu}"), "--driver": machine.driver}
    options = [part for option, value in given.items() if value for part in (option, value)]
    if not options:
        return None
    commands = (_command("env", *options), _command("check", os.curdir, *options))
    return NextStep("this describes a machine: name it where packages are checked", commands)


def _as_declared(devices: str) -> str | None:
    """Return devices as ``--gpu`` takes them; None where it does not."""
    from compatcheck.collectors.machine.instances import parse_hardware  # noqa: PLC0415 (only where no package is known)

    try:
        parse_hardware(devices)
    except CompatcheckError:
        return None
    return devices


def _leave_out_unread(request: Request, skipped: Iterable[Skipped]) -> Request:
    """Return a request without what is given and could not be read at all: no command is printed that names it."""
    unread = {entry.source.path for entry in skipped if entry.named and entry.source == Source(entry.source.path)}
    return request._replace(
        paths=tuple(path for path in request.paths if path not in unread),
        training=tuple(path for path in request.training if path not in unread),
        model=None if "--model" in unread else request.model,
    )


def find_configurations(directory: str, request: Request) -> list[InputFile]:
    """Find the configurations, launch scripts and training scripts in a directory; what cannot be read is passed over."""
    names = sorted(name for name in os.listdir(directory) if _may_say(name) and not name.startswith("."))
    if len(names) > MAX_FILES:
        return []
    paths = [name if directory == os.curdir else os.path.join(directory, name) for name in names]
    likely = _select_likely(paths) if paths else []
    if sum(path.endswith(".py") for path in likely) > MAX_PYTHON:
        likely = [path for path in likely if not path.endswith(".py")]
    if not likely:
        return []
    from compatcheck.checking.input_files import read_found_file  # noqa: PLC0415 (only beside such files)

    return [item for path in likely for item in read_found_file(path, request.files)]


def _may_say(name: str) -> bool:
    return name.endswith((*CONFIGURATIONS, ".py")) or may_name_script(name)


def _select_likely(paths: Sequence[str]) -> list[str]:
    """Select the files of which some words in their head tell that they may say what is trained."""
    from compatcheck.frameworks.registry import is_told_by_words  # noqa: PLC0415 (only beside such files)
    from compatcheck.rules.programs import programs  # noqa: PLC0415 (only beside such files)

    names = sorted({name.replace("-", "_") for program in programs().values() for name in program.packages})
    packages = re.compile(rf"\b(?:{'|'.join(names)})\b".encode())

    def may_train(path: str, head: bytes) -> bool:
        if not path.endswith(CONFIGURATIONS):
            return packages.search(head) is not None
        return b'"model_type"' in head or is_told_by_words(head)

    return [path for path in paths if may_train(path, _read_head(path))]


def _read_head(path: str) -> bytes:
    from compatcheck.frameworks.registry import HEAD_BYTES  # noqa: PLC0415 (only beside such files)

    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_BYTES:
            return b""
        return LOCAL.read_bytes(path, HEAD_BYTES)
    except OSError:
        return b""


def _options(found: Sequence[InputFile]) -> list[list[str]]:
    """Return the options that name each run among these files."""
    from compatcheck.checking.pairing import group_runs  # noqa: PLC0415 (only beside such files)

    models = {item.path for item in found if {document.reader for document in item.documents} == {"model"}}
    return [
        [part for path in run.paths for part in ("--model" if path in models else "--training", path)]
        for run in group_runs(found)
    ]


def _env(request: Request, options: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Write the commands about an environment that add these options, the first few."""
    return tuple(_command("env", *_given(request), *more) for more in list(options)[:MAX_COMMANDS])


def _given(request: Request) -> list[str]:
    """Return the options of a request that say where packages lie, what the machine and the model are, and its settings."""
    options = {
        "--python": request.python,
        "--prefix": request.prefix,
        "--gpu": request.gpu,
        "--nodes": request.nodes,
        "--driver": request.driver,
        "--env-file": request.env_file,
        "--model": request.model,
        "--run": request.run,
    }
    given = [part for option, value in options.items() if value is not None for part in (option, str(value))]
    return [*given, *(part for setting in request.settings for part in ("--set", setting))]


def _command(*words: str) -> str:
    from shlex import join  # noqa: PLC0415 (only where something can be added)

    return redact(join(("compatcheck", *words)))


def _join(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
