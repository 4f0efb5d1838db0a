"""Rules whose open range holds releases that nobody has looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import contains, parse_version, read_final_release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from compatcheck.rules.database import CompiledRule, RuleSet


class Stale(NamedTuple):
    """An open range of a rule, and what came out since it was checked."""

    rule_id: str
    package: str
    checked_through: str
    """The newest release that was looked at."""
    newer: tuple[str, ...]
    """Final releases after it that the range holds, the oldest first."""


def find_stale(
    rules: RuleSet, chosen: Iterable[CompiledRule], releases: Callable[[str], Sequence[str]]
) -> Iterator[Stale]:
    """Yield the open ranges of rules that hold newer releases than were looked at.

    Args:
        rules: the database.
        chosen: rules of it.
        releases: of a package.
    """
    for rule in chosen:
        for package, last in rules.texts(rule).checked_through.items():
            ranges = [clause.packages[package] for clause in rule.clauses if package in clause.packages]
            newer = [
                (version, release)
                for release in releases(package)
                if read_final_release(release) is not None
                and (version := parse_version(release)) is not None
                and contains([[[">", last]]], release) == "yes"
                and any(isinstance(bounds, str) or contains(bounds, release) == "yes" for bounds in ranges)
            ]
            if newer:
                yield Stale(rule.id, package, last, tuple(release for _, release in sorted(newer)))
