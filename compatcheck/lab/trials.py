"""The trials of rules: each plans what has to be measured for one, measures it and judges."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from random import sample
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, CompatcheckError
from compatcheck.core.place import HERE
from compatcheck.core.process import run
from compatcheck.lab.confirm import judge
from compatcheck.lab.confirmation import Confirmation
from compatcheck.lab.experiment import Experiment, design, side_key, sides
from compatcheck.lab.holding import attribute
from compatcheck.lab.joint_prediction import JointPrediction, judge_cells
from compatcheck.lab.pairs import Trial, plan
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.release_series import differ
from compatcheck.lab.releases import Axis
from compatcheck.lab.reporters.measurement import show_quantity
from compatcheck.lab.settings import open_laboratory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from compatcheck.core.place import Place
    from compatcheck.lab.attribution import HeldPair
    from compatcheck.lab.environments.choice import EnvironmentChoice
    from compatcheck.lab.environments.overlay import Overlays
    from compatcheck.lab.joint_prediction import ExperimentResult
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.pairs import TrialRequest
    from compatcheck.lab.probes.runner import Task
    from compatcheck.lab.settings import Settings
    from compatcheck.rules.database import CompiledRule, RuleSet


class Trials:
    """Trials of several rules over one interpreter, which is found or built once."""

    def __init__(
        self,
        settings: Settings,
        rules: RuleSet,
        progress: Callable[[str, Measurement], None],
        place: Place = HERE,
    ) -> None:
        """Take how to measure, the database, what is told of each result, and where probes run."""
        self.settings = settings
        self.rules = rules
        self.progress = progress
        self.place = place
        self._overlays: Overlays | None = None

    @cached_property
    def _has_cuda(self) -> bool:
        return _sees_cuda(self.settings.environment)

    def plan(self, rule: CompiledRule, request: TrialRequest) -> Trial | Confirmation:
        """Choose what to measure for a rule, or say why nothing can be.

        Raises:
            UsageError: what was asked for makes no sense for this rule.
        """
        trial = plan(rule, self.rules.texts(rule), self.rules, request)
        if not isinstance(trial, Trial):
            return trial
        return _on_installed_torch(trial, rule, self.rules, request, self.settings.environment)

    def run(self, rule: CompiledRule, trial: Trial, request: TrialRequest) -> Confirmation:
        """Measure both sides of what was planned for a request and judge them."""
        backend = self.settings.backend or trial.backend
        if (backend or trial.probe.module.BACKENDS[0]) == "cuda" and not self._has_cuda:
            return _without_cuda(rule.id, trial, request)
        releases = [release for release in (trial.suspect, trial.baseline) if release is not None]
        laboratory = open_laboratory(
            self.settings,
            trial.package,
            Axis(tuple(releases), self.rules.dates(trial.package)),
            progress=self.progress,
            overlays=self._overlays,
            place=self.place,
        )
        self._overlays = laboratory.overlays
        suspect = _measure(laboratory, trial, trial.suspect, trial.parameters, backend)
        baseline = None
        if trial.baseline is not None:
            baseline = _measure(laboratory, trial, trial.baseline, trial.baseline_parameters, backend)
        found = judge(rule, trial, suspect, baseline, self.rules)
        return attribute_confirmation(found, trial, laboratory, make_task(trial.probe, trial.parameters, backend))

    def run_experiment(self, rule: CompiledRule, count: int | None, *, measured: bool) -> ExperimentResult:
        """Measure the cells of a rule's experiment, or so many of them drawn at random, and judge them.

        Args:
            rule: the rule.
            count: how many; None is all.
            measured: False designs the experiment alone.
        """
        experiment = design(rule, self.rules)
        cells = (
            experiment.cells if count is None else tuple(sample(experiment.cells, min(count, len(experiment.cells))))
        )
        found = self.measure_cells(cells) if measured else {}
        return judge_cells(rule, Experiment(cells, experiment.untried), found, JointPrediction(self.rules))

    def measure_cells(self, cells: Iterable[Trial]) -> dict[str, Measurement]:
        """Measure both sides of cells, each release once with all that is wanted of it, and return them by `side_key`."""
        wanted: dict[str, dict[str, dict[str, Task]]] = {}
        for cell in cells:
            backend = self.settings.backend or cell.backend or cell.probe.module.BACKENDS[0]
            if backend == "cuda" and not self._has_cuda:
                continue
            for release, parameters in sides(cell):
                task = make_task(cell.probe, parameters, backend)
                tasks = wanted.setdefault(cell.package, {}).setdefault(release, {})
                tasks[side_key(cell, release, parameters)] = task
        found: dict[str, Measurement] = {}
        for package, releases in wanted.items():
            laboratory = open_laboratory(
                self.settings,
                package,
                Axis(tuple(releases), self.rules.dates(package)),
                progress=self.progress,
                overlays=self._overlays,
                place=self.place,
            )
            self._overlays = laboratory.overlays
            ordered = {release: list(releases[release].values()) for release in sorted(releases, key=Version)}
            for release, measured in laboratory.measure_all(ordered):
                found |= zip(releases[release], measured, strict=True)
        return found


def attribute_confirmation(found: Confirmation, trial: Trial, laboratory: Laboratory, task: Task) -> Confirmation:
    """Hold every other package on both sides of a confirmed rule: what a neighbour did confirms nothing.

    Args:
        found: what the two sides said, each beside the packages of its day.
        trial: what was measured.
        laboratory: has measured both releases.
        task: the same on both; sides that differ in a setting have one release.
    """
    sides = trial.baseline, trial.suspect
    if found.verdict != "confirmed" or sides[0] in {None, sides[1]} or trial.parameters != trial.baseline_parameters:
        return found

    def shows(pair: HeldPair) -> bool | None:
        healthy, value = pair.before.metric(trial.metric), pair.after.metric(trial.metric)
        if healthy is None or value is None:
            return None
        return value > healthy and differ(trial.metric, value, healthy)

    (attribution,) = attribute(laboratory, str(sides[0]), trial.suspect, [task], [shows])
    said = attribution.describe(trial.package, lambda one: show_quantity(trial.metric, one.metric(trial.metric)))
    if attribution.cause == "neighbours":
        return replace(found, verdict="inconclusive", reason=said)
    return replace(found, reason=f"{found.reason}; {said}") if said else found


def exit_code_of(found: Sequence[Confirmation]) -> int:
    """Return 1 when a rule was confirmed, 0 when none was and one was refuted, 3 when nothing was decided."""
    verdicts = {one.verdict for one in found}
    if "confirmed" in verdicts:
        return EXIT_FINDINGS
    return EXIT_CLEAN if "refuted" in verdicts else EXIT_NOTHING_TO_CHECK


def exit_code_of_cells(found: Sequence[ExperimentResult]) -> int:
    """Return 1 when a cell is wrong, 0 when none is and some were measured, else 3."""
    verdicts = {outcome.verdict for one in found for _, outcome in one.outcomes}
    if "wrong" in verdicts:
        return EXIT_FINDINGS
    return EXIT_CLEAN if verdicts - {"unmeasured"} else EXIT_NOTHING_TO_CHECK


def _measure(
    laboratory: Laboratory, trial: Trial, version: str, parameters: Mapping[str, Any], backend: str | None
) -> Measurement:
    return laboratory.measure(version, [make_task(trial.probe, parameters, backend)])[0]


def _on_installed_torch(
    trial: Trial, rule: CompiledRule, rules: RuleSet, request: TrialRequest, choice: EnvironmentChoice
) -> Trial:
    """Take the torch that is there as both sides, where a setting tells them apart and the rule is about that release too.

    Torch is never laid over an interpreter, so another release would need another interpreter.
    """
    if trial.package != "torch" or request.suspect or trial.baseline not in {None, trial.suspect}:
        return trial
    try:
        installed = Version(choice.torch or choice.base().versions["torch"]).public
        here = plan(rule, rules.texts(rule), rules, request._replace(suspect=installed))
    except (CompatcheckError, ValueError):
        return trial
    return here if isinstance(here, Trial) and here.baseline in {None, installed} else trial


def _sees_cuda(choice: EnvironmentChoice) -> bool:
    """Ask torch of the base whether there is a device, before anything is installed for nothing."""
    asked = "import torch; print('cuda' if torch.cuda.is_available() else 'none')"
    base = choice.base()
    done = run([base.python, "-I", "-c", asked], timeout_seconds=120, environ=base.interpreter.environment())
    return "cuda" in done.output.split()


def _without_cuda(rule_id: str, trial: Trial, request: TrialRequest) -> Confirmation:
    sides = f"{trial.package} {trial.suspect}" + (
        f" against {trial.baseline}" if trial.baseline != trial.suspect else ""
    )
    return Confirmation(
        rule_id=rule_id,
        verdict="inconclusive",
        reason=f"torch sees no CUDA device here, and {trial.probe.name} needs one ({sides} remains to be measured). "
        f"On a machine that has one: compatcheck confirm {rule_id}{request.options}",
        probe=trial.probe.name,
    )
