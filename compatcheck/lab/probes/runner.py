"""Run probes inside an interpreter and turn whatever happens into measurements.

A hang, a crash, a kill, a flood of output or a missing package is a result with a reason; what other tasks of the same process
had measured by then is kept, and the rest goes on in a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.process import Completed, run
from compatcheck.core.redaction import redact
from compatcheck.lab.environments import installed
from compatcheck.lab.measurement import Measurement, PhaseMemory, show_parameter
from compatcheck.lab.probes.allocator_counter import counter_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.probes.probe import Probe

ENTRY = Path(__file__).with_name("worker") / "__main__.py"
OUTPUT_LIMIT_BYTES = 8 * 2**20
TIMEOUT_SECONDS = 180.0
MEMORY_FRACTION = 0.9
"""Share of a CUDA device that a probe may take."""
_SCRATCH = "compatcheck-probe-"
_ABANDONED_SECONDS = 2 * 86400
"""No process of probes runs so long; its folder is touched with each file. Clocks jump: a folder that is locked is in use."""
_START_SECONDS = 60.0
"""Time allowed for an interpreter to start and import torch, beyond the tasks' own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may take, and what it leaves behind."""

    timeout_seconds: float = TIMEOUT_SECONDS
    """Time of one task."""
    retries: int = 1
    """How often a task is tried again after a hang or a kill."""
    memory_fraction: float = MEMORY_FRACTION
    """Share of a CUDA device that a probe may take."""
    snapshots: str | None = None
    """Folder that a snapshot of the CUDA allocator, with its history, is written to for each task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One probe with one set of parameters on one back end."""

    probe: Probe
    parameters: Mapping[str, Any]
    backend: str
    accounting: str

    @property
    def hash(self) -> str:
        """Of the code that it runs (`Probe.hash_for`)."""
        return self.probe.hash_for(self.parameters)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return int(self.parameters.get("world_size", 1))

    @property
    def alone(self) -> bool:
        """Whether it needs a process of its own: a process group is made once."""
        return self.world_size > 1 or ("world_size" in self.parameters and not self.is_forked) or self.probe.alone

    @property
    def is_forked(self) -> bool:
        """Whether it is forked off a process that has imported what such runs share: a GPU's context survives no fork."""
        return self.probe.forks and self.backend == "cpu" and hasattr(os, "fork")


def make_task(probe: Probe, parameters: Mapping[str, Any], backend: str | None = None) -> Task:
    """Complete the parameters and choose back end and accounting.

    Raises:
        UsageError: unknown parameter, or a back end the probe does not have.
    """
    chosen = backend or probe.module.BACKENDS[0]
    if chosen not in probe.module.BACKENDS:
        msg = f"probe {probe.name} cannot run on {chosen}"
        raise UsageError(msg, hint=f"it runs on {', '.join(probe.module.BACKENDS)}")
    complete = probe.complete(parameters)
    counted = {"cuda": "cuda", "fake": "storages"}.get(chosen) or probe.accounting(complete)
    if counted == "allocator" and counter_library()[0] is None:
        counted = "storages"
    return Task(probe=probe, parameters=complete, backend=chosen, accounting=counted)


def run_tasks(
    tasks: Sequence[Task],
    interpreter: Interpreter,
    *,
    keep: Callable[[Task, Measurement], None],
    limits: Limits = Limits(),
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Run tasks, as many in one process as can share one.

    Args:
        tasks: what to run.
        interpreter: where.
        keep: called with each result as soon as it is known; an interrupt loses none of them.
        limits: what each may take.
        cancelled: asked about ten times a second; True ends the process and raises.

    Raises:
        KeyboardInterrupt: it was cancelled.
    """
    for batch in _batches(tasks):
        pending = [(task, limits.retries) for task in batch]
        while pending:
            session = _Session([task for task, _ in pending], interpreter, limits, keep)
            session.run(cancelled)
            broken = session.broken
            left = pending[session.finished + (1 if broken is not None else 0) :]
            if broken is not None:
                task, tries = pending[session.finished]
                if tries > 0 and broken.status in {"timeout", "interrupted"}:
                    left.append((task, tries - 1))
                else:
                    keep(task, broken)
            pending = left


def _batches(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Put together what can share a process: the same back end and accounting, nothing distributed."""
    groups: dict[tuple[str, ...], list[Task]] = {}
    for task in tasks:
        if task.alone:
            yield [task]
        else:
            forked = task.probe.name if task.is_forked else ""
            groups.setdefault((task.backend, task.accounting, forked), []).append(task)
    yield from groups.values()


class _Session:
    """One process that works through tasks in their order."""

    def __init__(
        self,
        tasks: list[Task],
        interpreter: Interpreter,
        limits: Limits,
        keep: Callable[[Task, Measurement], None],
    ) -> None:
        self.tasks = tasks
        self.interpreter = interpreter
        self.limits = limits
        self.keep = keep
        self.finished = 0
        """How many tasks have a result."""
        self.broken: Measurement | None = None
        """What became of the task that the process ended in."""
        self._began = False
        self._phases: dict[str, PhaseMemory] = {}
        self._results: dict[str, float] = {}
        self._notes: list[str] = []
        self._position = 0

    def run(self, cancelled: Callable[[], bool]) -> None:
        """Run the process and take up its events while it runs."""
        first = self.tasks[0]
        _clear_abandoned()
        with tempfile.TemporaryDirectory(prefix=_SCRATCH) as directory, _locked(directory):
            request = os.path.join(directory, "request.json")
            results = os.path.join(directory, "results.jsonl")
            data = {
                "tasks": [
                    {
                        "key": str(index),
                        "path": task.probe.path,
                        "parameters": dict(task.parameters),
                        "shares": task.probe.shares(task.parameters),
                    }
                    for index, task in enumerate(self.tasks)
                ],
                "backend": first.backend,
                "accounting": first.accounting,
                "world_size": first.world_size,
                "forks": first.is_forked and not first.alone,
                "timeout_seconds": self.limits.timeout_seconds,
                "memory_fraction": self.limits.memory_fraction,
                "snapshots": None if self.limits.snapshots is None else os.path.abspath(self.limits.snapshots),
                "packages": list(self.interpreter.requested),
                "installed": installed.__file__,
            }
            Path(request).write_text(json.dumps(data), encoding="utf-8")
            Path(results).touch()

            def watch() -> None:
                self._take(results)
                if cancelled():
                    raise KeyboardInterrupt

            environ = self._environ(first)
            environ["TMPDIR"] = directory
            completed = run(
                [self.interpreter.python, str(ENTRY), request, results],
                timeout_seconds=_START_SECONDS + self.limits.timeout_seconds * len(self.tasks),
                output_limit_bytes=OUTPUT_LIMIT_BYTES,
                environ=environ,
                watch=watch,
            )
            self._take(results)
        if self.finished < len(self.tasks):
            status, reason = explain_end(completed, began=self._began, timeout_seconds=self.limits.timeout_seconds)
            task = self.tasks[self.finished]
            self.broken = self._measurement(
                task, {"status": status, "reason": reason, "versions": self._versions(task), "device": "unknown"}
            )

    def _versions(self, task: Task) -> dict[str, str]:
        """Return the releases a task that never ended was about."""
        names = ("python", "torch", *task.probe.module.PACKAGES, *self.interpreter.requested)
        return {name: self.interpreter.versions[name] for name in names if name in self.interpreter.versions}

    def _environ(self, task: Task) -> dict[str, str]:
        environ = self.interpreter.environment()
        for name, value in task.probe.environ(task.parameters).items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value
        library, _ = counter_library() if task.accounting == "allocator" else (None, None)
        if library:
            environ["LD_PRELOAD"] = " ".join(filter(None, (library, environ.get("LD_PRELOAD"))))
        return environ

    def _take(self, results: str) -> None:
        """Read the events that were written since the last time."""
        with open(results, encoding="utf-8") as file:
            file.seek(self._position)
            while (line := file.readline()).endswith("\n"):
                self._position = file.tell()
                self._take_event(json.loads(line))

    def _take_event(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "begin":
                self._began, self._phases, self._results, self._notes = True, {}, {}, []
            case "phase":
                phase = PhaseMemory(**event["phase"])
                self._phases.pop(phase.name, None)
                self._phases[phase.name] = phase
            case "result":
                self._results[event["name"]] = event["value"]
            case "note":
                self._notes.append(event["text"])
            case "end":
                task = self.tasks[self.finished]
                self.keep(task, self._measurement(task, event))
                self.finished += 1
                self._began = False

    def _measurement(self, task: Task, event: Mapping[str, Any]) -> Measurement:
        reason = "; ".join(filter(None, (event["reason"], *self._notes))) or None
        return Measurement(
            probe=task.probe.name,
            probe_hash=task.hash,
            backend=task.backend,
            accounting=task.accounting,
            parameters=dict(task.parameters),
            versions=dict(event["versions"]),
            device=event["device"],
            status=event["status"],
            phases=tuple(self._phases.values()),
            results=dict(self._results),
            reason=redact(reason) if reason else None,
            environment=self.interpreter.fingerprint,
            command=reproducing_command(task, self.interpreter.requirements()),
            time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )


@cache
def _clear_abandoned() -> None:
    """Remove, once, the scratch folders that this person's killed runs left behind: nothing can end after `kill -9`."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if found.st_uid == getattr(os, "getuid", lambda: 0)() and time.time() - found.st_mtime > _ABANDONED_SECONDS:
                with _locked(str(path)):
                    shutil.rmtree(path)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold a folder for this process, where the system has such locks; a process that is killed lets go of it.

    Raises:
        OSError: another process holds it.
    """
    try:
        import fcntl  # noqa: PLC0415 (not on every system)
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def reproducing_command(task: Task, requirements: Sequence[str] = (), interpreter: str = "") -> str:
    """Return the command that runs a task again beside the same packages.

    Args:
        task: what was run.
        requirements: what is laid over the interpreter.
        interpreter: options that name it, see `EnvironmentChoice.options`; without them it is the reader's own.
    """
    changed = {name: value for name, value in task.parameters.items() if task.probe.module.DEFAULTS[name] != value}
    options = "".join(f" --param {name}={show_parameter(value)}" for name, value in changed.items())
    beside = "".join(f" --with {shlex.quote(redact(text))}" for text in requirements)
    return f"compatcheck probe run {task.probe.name} --backend {task.backend}{options}{interpreter}{beside}"


_INSTALLED = re.compile(r"/(?:site-packages|dist-packages|environments/[0-9a-f]{20})/(.+)$")


class _Frame(NamedTuple):
    """A line of the stack that a worker prints when its time is over."""

    path: str
    line: str
    function: str

    @property
    def imports(self) -> bool:
        """Whether this is Python's own import system."""
        return self.path.startswith("<frozen importlib")

    @property
    def file(self) -> str:
        """The file, below the folder that packages are installed into."""
        found = _INSTALLED.search(self.path)
        return os.path.basename(self.path) if found is None else found.group(1)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _describe_stack(frames: Sequence[_Frame]) -> str:
    """Say what a process was doing, by its stack, the innermost frame first: what it imported, or where it hung."""
    importing = [index for index, frame in enumerate(frames) if frame.imports]
    if not importing:
        return "it hung in " + " < ".join(f"{frame} in {frame.function}" for frame in frames[:4])
    outermost = importing[-1]
    imported = [frame for frame in frames[:outermost] if not frame.imports]
    asking = f" for {frames[outermost + 1]}" if outermost + 1 < len(frames) else ""
    what = imported[-1].file if imported else "a module"
    return f"importing {what}{asking}"


def explain_end(completed: Completed, *, began: bool, timeout_seconds: float) -> tuple[str, str]:
    """Say how a process ended that left a task without a result.

    Args:
        completed: the process.
        began: whether the task had begun.
        timeout_seconds: time that the task had.

    Returns:
        The status of that task and the reason.
    """
    lines = [line.rstrip() for line in completed.output.splitlines() if line.strip()]
    if any(line.startswith("Timeout (") for line in lines):
        # Of several threads faulthandler writes the one that the process began with last.
        start = max(index for index, line in enumerate(lines) if line.startswith(("Timeout (", "Thread 0x")))
        frames = [
            _Frame(*match.groups())
            for line in lines[start:]
            if (match := re.search(r'File "([^"]*)", line (\d+) in (\S+)', line))
        ]
        return "timeout", f"the time limit of {timeout_seconds:g} s ended while {_describe_stack(frames)}"
    if completed.failure is not None:
        return ("timeout" if "did not answer" in completed.failure else "failed"), completed.failure
    code = completed.returncode
    last = " | ".join(line.strip() for line in lines[-3:])[-400:]
    if code is not None and code < 0:
        name = {
            -9: "killed (signal 9): by the system for want of memory, or from outside",
            -11: "it crashed (signal 11)",
        }
        status = "interrupted" if code == -9 else "failed"
        return status, name.get(code, f"ended by signal {-code}") + (f": {last}" if last and code != -9 else "")
    where = "" if began else "it did not get as far as the probe: "
    return "failed", f"{where}exit code {code}" + (f": {last}" if last else "")
