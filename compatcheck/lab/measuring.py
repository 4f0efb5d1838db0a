"""Measure probes in releases of a package: from the store where the same was measured before, else now, and kept at once."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from compatcheck.core.place import HERE
from compatcheck.lab.batch import ProbeBatch
from compatcheck.lab.cache import claim
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.environments.installer import UnbuildableError
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.probes.runner import TIMEOUT_SECONDS, Limits, Task, reproducing_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from compatcheck.core.place import Place
    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.environments.overlay import Overlays


class Store(Protocol):
    """Where measurements are kept."""

    def add(self, measurement: Measurement) -> object:
        """Keep one."""

    def find(  # noqa: PLR0913 (what identifies a measurement)
        self,
        *,
        probe: str,
        probe_hash: str,
        backend: str,
        accounting: str,
        parameters: Mapping[str, Any],
        versions: Mapping[str, str],
        environment: str | None,
    ) -> Measurement | None:
        """Return the newest result of the same probe, parameters and back end under these versions and packages."""


@dataclass(kw_only=True)
class Laboratory:
    """Releases or commits of one package over one base, and a store."""

    overlays: Overlays
    choice: EnvironmentChoice = field(default_factory=EnvironmentChoice)
    """How the interpreter below them was found or built."""
    package: str
    store: Store | None = None
    beside: tuple[str, ...] = ()
    """Further requirements in every environment: ``transformers==4.57.6``."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Name of a commit → the requirement that installs it; what is not here is a release."""
    bases: Callable[[str], Overlays] | None = None
    """Finds or builds overlays over another release of torch; None where there is only the interpreter's own."""
    dates: Mapping[str, str] = field(default_factory=dict)
    """Release → ISO date that its dependencies may not be newer than; without one the newest are taken."""
    timeout_seconds: float = TIMEOUT_SECONDS
    fresh: bool = False
    """Measure again what the store has."""
    jobs: int = 1
    """How many releases are measured at a time."""
    place: Place = HERE
    """Where probes run. Environments are found here first, so that the store can be asked."""
    progress: Callable[[str, Measurement], None] = lambda _version, _measurement: None
    """Called with each result, with those from the store too."""
    _cancelled: Event = field(default_factory=Event)
    _opened: dict[str, Interpreter] = field(default_factory=dict)

    def interpreter(self, version: str) -> Interpreter:
        """Return the environment of a release, built when there is none yet; the same one as long as this laboratory works.

        Raises:
            UnbuildableError: it could not be installed.
        """
        if version not in self._opened:
            overlays, own = self._base(version)
            requirements = (*own, *self.beside)
            self._opened[version] = overlays.open(requirements, exclude_newer=self.dates.get(version))
        return self._opened[version]

    def open_beside(self, version: str, pins: Mapping[str, str]) -> Interpreter | None:
        """Return the environment of a release with exactly these packages beside it, whatever it says that it needs.

        Args:
            version: the release.
            pins: distribution → requirement.

        Returns:
            None where it cannot be built.
        """
        own = self.interpreter(version)
        if {name: pin for name, pin in own.pins.items() if name != self.package} == pins:
            return own
        overlays, requirements = self._base(version)
        try:
            return overlays.open((*requirements, *pins.values()), alone=True)
        except UnbuildableError:
            return None

    def _base(self, version: str) -> tuple[Overlays, tuple[str, ...]]:
        """Return what a release is laid over, and what installs it there: torch is the base itself.

        Raises:
            UnbuildableError: the base has another torch, and none is built.
        """
        if self.package != "torch":
            return self.overlays, (self.sources.get(version, f"{self.package}=={version}"),)
        has = self.overlays.base.versions["torch"]
        if has.partition("+")[0] == version:
            return self.overlays, ()
        if self.bases is not None:
            return self.bases(version), ()
        msg = (
            f"torch is not laid over an interpreter, and this one has torch {has}: let one be built for each release "
            f"(--torch {has}), or name one that has {version} (--python)"
        )
        raise UnbuildableError(msg)

    def measure_all(self, wanted: Mapping[str, Sequence[Task]]) -> Iterator[tuple[str, list[Measurement]]]:
        """Measure the tasks of each release, as many releases at a time as there are jobs; results come in their order."""
        if self.jobs == 1 or len(wanted) == 1:
            for version, tasks in wanted.items():
                yield version, self.measure(version, tasks)
            return
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                yield from zip(wanted, pool.map(self.measure, wanted, wanted.values()), strict=True)
            except BaseException:
                self._cancelled.set()
                pool.shutdown(cancel_futures=True)
                raise

    def measure(
        self, version: str, tasks: Sequence[Task], *, environment: Interpreter | None = None
    ) -> list[Measurement]:
        """Measure tasks in one release.

        Args:
            version: the release, or the name of a commit.
            tasks: what is measured.
            environment: where, if not in the release's own environment.

        Returns:
            One measurement per task, in their order, each with the command that runs it again as it was run here; a release
            that cannot be installed gives ``failed`` ones.
        """
        try:
            interpreter = environment or self.interpreter(version)
        except UnbuildableError as error:
            # Not kept in the store: an index that was down is no property of a release.
            reason = f"could not be installed: {error}"
            failed = [unbuildable(task, {self.package: version}, reason, self.choice.options) for task in tasks]
            for measurement in failed:
                self.progress(version, measurement)
            return failed
        results: dict[int, Measurement] = {}
        self._recall(version, interpreter, tasks, results)
        if len(results) < len(tasks):
            with self._claim(interpreter, tasks):
                # Whoever held it may have measured the same.
                self._recall(version, interpreter, tasks, results)
                missing = [(index, task) for index, task in enumerate(tasks) if index not in results]
                if missing:
                    self._run(version, interpreter, missing, results)
        # What was kept knows neither this interpreter nor what was laid over it here.
        beside = interpreter.requirements()
        commands = [reproducing_command(task, beside, self.choice.options) for task in tasks]
        return [replace(results[index], command=command) for index, command in enumerate(commands)]

    def _claim(self, interpreter: Interpreter, tasks: Sequence[Task]) -> AbstractContextManager[None]:
        """Keep other processes from measuring these probes in this environment: what they measure is taken from the store."""
        if self.store is None or self.fresh:
            return nullcontext()
        what = [interpreter.python, interpreter.fingerprint, sorted({task.hash for task in tasks})]
        return claim(hashlib.sha256(json.dumps(what).encode()).hexdigest()[:20], self._cancelled)

    def _recall(
        self, version: str, interpreter: Interpreter, tasks: Sequence[Task], results: dict[int, Measurement]
    ) -> None:
        for index, task in enumerate(tasks):
            if index not in results and (known := self._known(task, interpreter)) is not None:
                results[index] = known
                self.progress(version, known)

    def _known(self, task: Task, interpreter: Interpreter) -> Measurement | None:
        if self.store is None or self.fresh:
            return None
        names = ("torch", *task.probe.module.PACKAGES, *interpreter.requested)
        versions = {name: interpreter.versions[name] for name in names if name in interpreter.versions}
        known = self.store.find(
            probe=task.probe.name,
            probe_hash=task.hash,
            backend=task.backend,
            accounting=task.accounting,
            parameters=task.parameters,
            versions=versions,
            environment=interpreter.fingerprint,
        )
        if known is not None and known.status == "unsupported" and task.backend == "cuda":
            return None  # a machine without a GPU and one with may share a home directory
        if known is not None and known.beside_a_mode:
            return None
        return known

    def _run(
        self,
        version: str,
        interpreter: Interpreter,
        missing: Sequence[tuple[int, Task]],
        results: dict[int, Measurement],
    ) -> None:
        def keep(result: tuple[int, Measurement]) -> None:
            index, measurement = result
            results[missing[index][0]] = measurement
            if self.store is not None:
                self.store.add(measurement)
            self.progress(version, measurement)

        batch = ProbeBatch(
            tasks=tuple(task for _, task in missing),
            interpreter=interpreter,
            limits=Limits(timeout_seconds=self.timeout_seconds),
            choice=self.choice,
        )
        self.place.do(batch, keep, self._cancelled.is_set)


def unbuildable(task: Task, versions: Mapping[str, str], reason: str, interpreter: str = "") -> Measurement:
    """Return the result of a task whose environment could not be built, over an interpreter named by these options."""
    return Measurement(
        probe=task.probe.name,
        probe_hash=task.hash,
        backend=task.backend,
        accounting=task.accounting,
        parameters=dict(task.parameters),
        versions=dict(versions),
        device="none",
        status="failed",
        reason=reason,
        command=reproducing_command(task, [f"{name}=={version}" for name, version in versions.items()], interpreter),
    )
