"""The history of a probe's verdict over the releases of a package."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, UsageError
from compatcheck.core.markers import canonical_name
from compatcheck.lab.bisect import BisectSearch, find_intervals, minors
from compatcheck.lab.bisection import Bisection, Outcome
from compatcheck.lab.probes.script import make_script
from compatcheck.lab.reporters import bisection as reporter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.probe import Probe
    from compatcheck.lab.probes.runner import Task


class SearchedReleases(NamedTuple):
    """The releases that are searched."""

    releases: Sequence[str]
    """Oldest first."""
    good: str | None = None
    """A release that is said to be good."""
    bad: str | None = None
    """A release that is said to be bad."""


class History(NamedTuple):
    """What a search found, and what it measured."""

    bisection: Bisection
    measurements: Mapping[str, Measurement]
    """By release."""

    @property
    def exit_code(self) -> int:
        """1: a release is bad; 0: none is; 3: none could be tested."""
        verdicts = {tested.verdict for tested in self.bisection.tested}
        if "bad" in verdicts:
            return EXIT_FINDINGS
        return EXIT_CLEAN if "good" in verdicts else EXIT_NOTHING_TO_CHECK


def find_history(task: Task, laboratory: Laboratory, searched: SearchedReleases, *, depth: str) -> History:
    """Search the releases of the laboratory's package.

    Args:
        task: the probe with its parameters.
        laboratory: measures it in any release.
        searched: the releases.
        depth: see `Search.run`.

    Raises:
        UsageError: a release is not what it was said to be.
    """
    probe = task.probe
    measured: dict[str, Measurement] = {}

    def judge(versions: Sequence[str]) -> Iterator[Outcome]:
        for version, (measurement,) in laboratory.measure_all(versions, [task]):
            verdict, value, _ = probe.judge(measurement)
            measured[version] = measurement
            yield Outcome(version=version, verdict=verdict, value=value, reason=measurement.reason)  # type: ignore[arg-type]

    search = BisectSearch(searched.releases, judge)
    _check_ends(search, searched.good, searched.bad)
    search.run(depth=depth)
    tested = search.tested()
    found = Bisection(
        probe=probe.name,
        package=laboratory.package,
        metric=probe.module.METRIC,
        predicted=probe.module.predict(task.parameters).get(probe.module.METRIC),
        tolerance=probe.module.tolerance(task.parameters),
        tested=tested,
        intervals=find_intervals(tested),
        transitions=search.transitions(),
        untested=search.untested(),
        older=search.older,
    )
    return History(found, measured)


def list_first(releases: Sequence[str]) -> list[str]:
    """Return the releases that a search tests first: the first of each minor version, and the newest."""
    return list(dict.fromkeys((*(minor[0] for minor in minors(releases)), releases[-1])))


def report_upstream(history: History, task: Task) -> str:
    """Write, for the package's maintainers, what changed, with a script that shows it (Markdown)."""
    found = history.bisection
    sides = dict.fromkeys(side for change in found.transitions for side in (change.before, change.after))
    return reporter.format_upstream(
        found,
        title=task.probe.title,
        derivation=task.probe.documentation.partition("\n")[2],
        measurements=[history.measurements[version] for version in sides],
        script=make_script(task),
    )


def check_package(probe: Probe, package: str) -> None:
    """Refuse to search the releases of a package that the probe does not use: its verdict could not change.

    Raises:
        UsageError: the probe does not use it.
    """
    used = dict.fromkeys((*probe.module.PACKAGES, "torch"))
    if canonical_name(package) not in used:
        msg = f"probe {probe.name} does not use {package}"
        raise UsageError(msg, hint=f"it uses {', '.join(used)}; `compatcheck sweep` measures it beside any package")


def _check_ends(search: BisectSearch, good: str | None, bad: str | None) -> None:
    """Test the releases a person called good and bad, and refuse to go on when they are not.

    Raises:
        UsageError: one of them is not what it was said to be.
    """
    for version, wanted in ((good, "good"), (bad, "bad")):
        if version is None:
            continue
        search.test(version)
        tested = search.found[version]
        if tested.verdict != wanted:
            why = f": {tested.reason}" if tested.reason else ""
            msg = f"{version} was to be {wanted} and is {tested.verdict}{why}"
            raise UsageError(msg, hint="the verdict is the probe's; leave the option out to search all releases")
