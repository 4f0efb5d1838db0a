"""The history of a probe's verdict over the releases of a package."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from importlib.metadata import distributions
from typing import TYPE_CHECKING

from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, UsageError
from compatcheck.core.markers import canonical_name
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.lab.bisect import BisectSearch, find_intervals
from compatcheck.lab.bisection import Bisection, Outcome
from compatcheck.lab.holding import attribute
from compatcheck.lab.probes.script import make_script
from compatcheck.lab.release_series import differ
from compatcheck.lab.releases import group_minors
from compatcheck.lab.reporters import bisection as reporter
from compatcheck.lab.reporters.measurement import show_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.lab.attribution import HeldPair
    from compatcheck.lab.bisection import Transition, Verdict
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.probe import Probe
    from compatcheck.lab.probes.runner import Task


class Wanted(NamedTuple):
    """What a person says of a history."""

    good: str | None = None
    """A release that is said to be good."""
    bad: str | None = None
    """A release that is said to be bad."""
    threshold: float | None = None
    """A release that measures more is bad; None leaves it to the probe."""


class History(NamedTuple):
    """What a search found, and what it measured."""

    bisection: Bisection
    measurements: Mapping[str, Measurement]
    """By release."""

    @property
    def is_own(self) -> bool:
        """Whether a change was shown to be the package's."""
        return any(one.attribution is not None and one.attribution.is_own for one in self.bisection.transitions)

    @property
    def exit_code(self) -> int:
        """1: a release is bad; 0: none is; 3: none could be tested."""
        verdicts = {tested.verdict for tested in self.bisection.tested}
        if "bad" in verdicts:
            return EXIT_FINDINGS
        return EXIT_CLEAN if verdicts - {"skipped"} else EXIT_NOTHING_TO_CHECK


class _Judge:
    """Measures releases and says whether each is bad: by the probe, a threshold, or the end that is said to be good."""

    def __init__(self, task: Task, laboratory: Laboratory, threshold: float | None) -> None:
        self.task = task
        self.laboratory = laboratory
        self.metric = task.probe.module.METRIC
        self.threshold = threshold
        self.unlike: float | None = None
        """What differs from this is bad."""
        self.measured: dict[str, Measurement] = {}

    @property
    def criterion(self) -> str | None:
        if self.unlike is not None:
            return f"bad is what differs from {show_quantity(self.metric, self.unlike)}, as the good end measures"
        return None if self.threshold is None else f"bad is above {show_quantity(self.metric, self.threshold)}"

    def __call__(self, versions: Sequence[str]) -> Iterator[Outcome]:
        for version, (measurement,) in self.laboratory.measure_all(dict.fromkeys(versions, (self.task,))):
            self.measured[version] = measurement
            yield self.outcome(version)

    def outcome(self, version: str) -> Outcome:
        one = self.measured[version]
        return Outcome(version=version, verdict=self.verdict(one), value=one.metric(self.metric), reason=one.reason)

    def verdict(self, measurement: Measurement) -> Verdict:
        value = measurement.metric(self.metric)
        if (self.unlike is None and self.threshold is None) or value is None or not measurement.succeeded:
            return self.task.probe.judge(measurement)[0] if measurement.succeeded else "skipped"  # type: ignore[return-value]
        if self.unlike is not None:
            return "bad" if differ(self.metric, value, self.unlike) else "good"
        return "bad" if value > (self.threshold or 0) else "good"

    def shows(self, transition: Transition, pair: HeldPair) -> bool | None:
        """Tell whether two measurements are on the two sides of a transition; None where one has no result."""
        found = [self.verdict(one) for one in (pair.before, pair.after)]
        if "skipped" in found:
            return None
        return found == [self.verdict(self.measured[version]) for version in (transition.before, transition.after)]


def find_history(task: Task, laboratory: Laboratory, releases: Sequence[str], wanted: Wanted, *, depth: str) -> History:
    """Search the releases of the laboratory's package, and find out whose each change is.

    Args:
        task: the probe with its parameters.
        laboratory: measures it in any release.
        releases: the releases, oldest first.
        wanted: what a person says of them.
        depth: see `BisectSearch.run`.

    Raises:
        UsageError: a release is not what it was said to be.
    """
    module = task.probe.module
    judge = _Judge(task, laboratory, wanted.threshold)
    search = BisectSearch(releases, judge)
    _check_ends(search, judge, wanted)
    search.run(depth=depth)
    tested = search.tested()
    found = Bisection(
        probe=task.probe.name,
        package=laboratory.package,
        metric=module.METRIC,
        predicted=module.predict(task.parameters).get(module.METRIC),
        tolerance=module.tolerance(task.parameters),
        criterion=judge.criterion,
        tested=tested,
        intervals=find_intervals(tested),
        transitions=tuple(
            replace(
                one,
                attribution=attribute(laboratory, one.before, one.after, [task], [partial(judge.shows, one)])[0],
            )
            for one in search.transitions()
        ),
        untested=search.untested(),
        older=search.older,
    )
    return History(found, judge.measured)


def list_first(releases: Sequence[str]) -> list[str]:
    """Return the releases that a search tests first: the first of each minor version, and the newest."""
    return list(dict.fromkeys((*(minor[0] for minor in group_minors(releases)), releases[-1])))


def report_upstream(history: History, task: Task, laboratory: Laboratory) -> str:
    """Write, for the package's maintainers, what changed in it, with a script that shows it (Markdown)."""
    own = [one for one in history.bisection.transitions if one.attribution is not None and one.attribution.is_own]
    sides = list(dict.fromkeys(side for change in own for side in (change.before, change.after)))
    return reporter.format_upstream(
        replace(history.bisection, transitions=tuple(own)),
        title=task.probe.title,
        measurements={version: history.measurements[version] for version in sides},
        repository=find_repository(laboratory, sides[-1]) if sides else None,
        script=make_script(task, brief=True),
    )


def find_repository(laboratory: Laboratory, version: str) -> str | None:
    """Return the address of the package's repository on GitHub, as its metadata has it; None where it has none."""
    interpreter = laboratory.interpreter(version)
    for distribution in distributions(name=laboratory.package, path=list(interpreter.paths)):
        told = [distribution.metadata["Home-page"] or "", *(distribution.metadata.get_all("Project-URL") or ())]
        if found := re.search(r"https://github\.com/[\w.-]+/[\w.-]+?(?=\.git|[/#?\s]|$)", "\n".join(told)):
            return found[0]
    return None


def check_package(probe: Probe, package: str) -> None:
    """Refuse to search the releases of a package that the probe does not use: its verdict could not change.

    Raises:
        UsageError: the probe does not use it.
    """
    used = dict.fromkeys((*probe.module.PACKAGES, "torch"))
    if canonical_name(package) not in used:
        msg = f"probe {probe.name} does not use {package}"
        raise UsageError(msg, hint=f"it uses {', '.join(used)}; `compatcheck sweep` measures it beside any package")


def _check_ends(search: BisectSearch, judge: _Judge, wanted: Wanted) -> None:
    """Test the releases a person called good and bad.

    Where the probe calls them otherwise and both are named, the person means the difference between the two: bad to worse.

    Raises:
        UsageError: one cannot be tested, is not what it was said to be, or the two measure the same.
    """
    ends = {end: name for end, name in (("good", wanted.good), ("bad", wanted.bad)) if name is not None}
    for version in ends.values():
        search.test(version)
    wrong = [(version, end) for end, version in ends.items() if search.found[version].verdict != end]
    if not wrong:
        return
    version, end = wrong[0]
    tested = search.found[version]
    good, bad = (search.found[ends[end]].value if end in ends else None for end in ("good", "bad"))
    if good is None or bad is None or judge.threshold is not None or not differ(judge.metric, good, bad):
        why = f": {tested.reason}" if tested.reason else ""
        msg = f"{version} was to be {end} and is {tested.verdict}{why}"
        same = good is not None and bad is not None
        hint = "the two measure the same" if same else "name both ends, or say with --threshold what is bad"
        raise UsageError(msg, hint=hint)
    judge.unlike = good
    for one in list(search.found):
        search.found[one] = judge.outcome(one)
