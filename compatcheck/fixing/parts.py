"""Search a group of many configurations in parts: releases for all of them, then each configuration's settings by themselves.

A directory of fifty configurations has one requirements file and fifty sets of settings; together they are too many
combinations to try, and a setting of one file changes nothing for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.fixing.search import Best, search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.fixing.problem import Releases
    from compatcheck.fixing.search import Choice, Score

MOST_TOGETHER = 5
"""Settings up to which a group is searched as a whole."""


def search_parts(problem: Releases, choices: Mapping[str, Sequence[Choice]]) -> Best:
    """Find good releases for all subjects, then the best settings of each part of them; not always the smallest set."""
    releases = {name: found for name, found in choices.items() if name in problem.axes}
    best = search(problem, problem.select(releases))
    taken = best.choices
    problem.select(choices)
    for names, subjects in _parts(problem, choices):
        found = search(_Part(problem, best.choices, subjects), {name: choices[name] for name in names})
        taken += found.choices
    return best._replace(choices=taken, remaining=problem.score(taken).remaining, exhausted=True)


def _parts(problem: Releases, choices: Mapping[str, Sequence[Choice]]) -> list[tuple[tuple[str, ...], frozenset[str]]]:
    """Join settings that change a subject both: the subjects of two parts differ."""
    parts: list[tuple[tuple[str, ...], frozenset[str]]] = []
    for name, setting in problem.settings.items():
        if not choices.get(name):
            continue
        joined = [part for part in parts if part[1] & setting.subjects]
        parts = [part for part in parts if part not in joined]
        names = (*(other for part in joined for other in part[0]), name)
        parts.append((names, setting.subjects.union(*(part[1] for part in joined))))
    return parts


class _Part:
    """The settings of some subjects, with the releases that were chosen."""

    def __init__(self, problem: Releases, releases: tuple[Choice, ...], subjects: frozenset[str]) -> None:
        self.problem = problem
        self.releases = releases
        self.subjects = subjects

    def score(self, choices: Sequence[Choice]) -> Score:
        """Evaluate a combination on these subjects."""
        return self.problem.evaluate((*self.releases, *choices), self.subjects)

    def bound(self, axes: Sequence[str]) -> int:
        """Return a number that is never too many: there are few settings."""
        del axes
        return 0

    def is_spent(self) -> bool:
        """Tell whether the time for evaluations is used up."""
        return self.problem.is_spent()

    def lowest(self) -> int:
        """Return a number that is never too many."""
        return 0

    def core(self, axes: Sequence[str], limit: int) -> None:
        """Return None: a setting is not resolved."""

    def accept(self, choices: Sequence[Choice], limit: int) -> bool:
        """Accept every setting."""
        del choices, limit
        return True
