"""Probes run in one environment, each judged by its own prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK
from compatcheck.lab.environments.installer import UnbuildableError
from compatcheck.lab.measuring import unbuildable
from compatcheck.lab.probes.runner import run_tasks
from compatcheck.lab.reporters.predictions import Judged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compatcheck.lab.environments.overlay import Overlays
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.probes.runner import Limits, Task


def run_probes(
    tasks: Sequence[Task],
    overlays: Overlays,
    beside: Sequence[str],
    *,
    keep: Callable[[Task, Measurement], None],
    limits: Limits,
) -> None:
    """Run tasks over an interpreter with further packages beside; one that cannot be built gives each task a failure.

    Args:
        tasks: what is measured.
        overlays: lay packages over the interpreter.
        beside: requirements of those packages.
        keep: takes each measurement as it comes.
        limits: of each task.
    """
    try:
        interpreter = overlays.open(beside)
    except UnbuildableError as error:
        for task in tasks:
            keep(task, unbuildable(task, _pinned(beside), f"could not be installed: {error}"))
    else:
        run_tasks(tasks, interpreter, keep=keep, limits=limits)


def judge(task: Task, measurement: Measurement) -> Judged:
    """Set a measurement beside what its probe predicts."""
    module = task.probe.module
    verdict, _, _ = task.probe.judge(measurement)
    changed = {name: value for name, value in task.parameters.items() if module.DEFAULTS[name] != value}
    return Judged(measurement, changed, module.predict(task.parameters), module.METRIC, verdict)


def exit_code_of(judged: Sequence[Judged]) -> int:
    """Return 1 when a probe is bad, 3 when none is but one has no result, else 0."""
    verdicts = {one.verdict for one in judged}
    if "bad" in verdicts:
        return EXIT_FINDINGS
    return EXIT_NOTHING_TO_CHECK if "skipped" in verdicts else EXIT_CLEAN


def _pinned(requirements: Sequence[str]) -> dict[str, str]:
    """Return the releases that are asked for exactly: distribution → version."""
    return {name: version for name, equals, version in (text.partition("==") for text in requirements) if equals}
