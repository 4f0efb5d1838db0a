"""Find every release that broke or mended something, from verdicts on as few releases as it takes.

A history is a list of intervals: good, bad, good is the normal case, and the newest and the oldest release may both be good. So
the first release of each minor version is tested first, and then what lies between neighbours that differ. Where all agree,
the gaps are halved until something differs or every release was tested.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal

from compatcheck.lab.bisection import Interval, Outcome, Transition
from compatcheck.lab.releases import group_minors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from compatcheck.lab.bisection import Verdict

    Judge = Callable[[Sequence[str]], Iterable[Outcome]]
    """Tests releases, in any order and as many at once as it likes."""

_TOLD = frozenset({"good", "bad", "below"})
GIVE_UP_AFTER = 3
"""So many minor versions in a row that cannot be tested, going back, and nothing older is tried."""


class BisectSearch:
    """A search over the releases of one package."""

    def __init__(self, releases: Sequence[str], judge: Judge) -> None:
        """Take the releases, oldest first, and what tests them."""
        self.releases = tuple(releases)
        self._judge = judge
        self.found: dict[str, Outcome] = {}
        self.oldest = 0
        """Index of the oldest release that is worth trying."""
        self.older: str | None = None

    def run(self, *, depth: str = "until-found") -> None:
        """Search.

        Args:
            depth: ``minors`` (one release per minor, and what lies between those that differ), ``until-found`` (and, when all
                agree, the releases between until two differ), ``all`` (every release).
        """
        self._test_minors()
        self._refine()
        while depth != "minors" and (depth == "all" or not self.transitions()):
            gap = self._widest_gap()
            if gap is None:
                break
            self.test(self._middle(gap))
            self._refine()

    def test(self, *versions: str) -> None:
        """Test releases that were not tested yet."""
        new = [version for version in dict.fromkeys(versions) if version not in self.found]
        if new:
            for tested in self._judge(new):
                self.found[tested.version] = tested

    def _test_minors(self) -> None:
        """Test the first release of each minor version, newest first, until too many in a row cannot be."""
        self.test(self.releases[-1])
        skipped: list[str] = []
        for minor in reversed(group_minors(self.releases)):
            if self._test_minor(minor):
                skipped = []
                continue
            skipped.append(minor[0])
            if len(skipped) == GIVE_UP_AFTER and any(tested.verdict != "skipped" for tested in self.found.values()):
                after = self.releases.index(skipped[0])
                self.oldest = min([index for index in self._known() if index > after], default=after)
                self.older = f"{', '.join(reversed(skipped))} could not be tested, so nothing older was tried"
                return

    def _test_minor(self, minor: Sequence[str]) -> bool:
        """Test the first release of a minor version, or its last when that cannot be."""
        for version in dict.fromkeys((minor[0], minor[-1])):
            self.test(version)
            if self.found[version].verdict != "skipped":
                return True
        return False

    def _verdict(self, version: str) -> str | None:
        tested = self.found.get(version)
        return None if tested is None else tested.verdict

    def _known(self) -> list[int]:
        """Return the indices of releases that have a verdict, oldest first."""
        return [index for index, version in enumerate(self.releases) if self._verdict(version) in _TOLD]

    def _refine(self) -> None:
        """Halve what lies between neighbours that differ until nothing is left to test there."""
        while True:
            wanted = []
            for left, right in pairwise(self._known()):
                if self._verdict(self.releases[left]) != self._verdict(self.releases[right]):
                    between = [index for index in range(left + 1, right) if self.releases[index] not in self.found]
                    if between:
                        wanted.append(self._middle(between))
            if not wanted:
                return
            self.test(*wanted)

    def _middle(self, indices: Sequence[int]) -> str:
        return self.releases[indices[len(indices) // 2]]

    def _widest_gap(self) -> list[int] | None:
        """Return the longest run of untested releases, the newest of equals."""
        runs: list[list[int]] = []
        for untested, group in groupby(
            range(self.oldest, len(self.releases)), key=lambda index: self.releases[index] not in self.found
        ):
            if untested:
                runs.append(list(group))
        return max(reversed(runs), key=len, default=None)

    def tested(self) -> tuple[Outcome, ...]:
        """Return what was tried, oldest first."""
        return tuple(self.found[version] for version in self.releases if version in self.found)

    def transitions(self) -> tuple[Transition, ...]:
        """Return where neighbours differ, oldest first."""
        return find_transitions(self.releases, self.found)

    def untested(self) -> tuple[str, ...]:
        """Return the releases not tried, of those worth trying."""
        return tuple(version for version in self.releases[self.oldest :] if version not in self.found)


def find_transitions(releases: Sequence[str], found: Mapping[str, Outcome]) -> tuple[Transition, ...]:
    """Return where neighbouring verdicts differ, oldest first."""
    known = [version for version in releases if version in found and found[version].verdict != "skipped"]
    order = {version: index for index, version in enumerate(releases)}
    return tuple(
        Transition(
            kind=_name_change(found[before].verdict, found[after].verdict),
            before=before,
            after=after,
            between=tuple(releases[order[before] + 1 : order[after]]),
        )
        for before, after in pairwise(known)
        if found[before].verdict != found[after].verdict
    )


def _name_change(before: Verdict, after: Verdict) -> Literal["introduced", "fixed", "lowered", "raised"]:
    if after == "bad":
        return "introduced"
    if before == "bad":
        return "fixed"
    return "lowered" if after == "below" else "raised"


def find_intervals(tested: Sequence[Outcome]) -> tuple[Interval, ...]:
    """Join neighbouring releases of one verdict; skipped ones stand for themselves only where nothing else was tested."""
    known = [one for one in tested if one.verdict != "skipped"] or list(tested)
    result = []
    for verdict, group in groupby(known, key=lambda one: one.verdict):
        versions = [one.version for one in group]
        result.append(Interval(first=versions[0], last=versions[-1], verdict=verdict))
    return tuple(result)
