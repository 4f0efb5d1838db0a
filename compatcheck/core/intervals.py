"""Version ranges as ordered intervals: what formats that know only "introduced" and "fixed" can say.

PEP 440 puts all versions in one order, so a compiled range (`compatcheck.core.versions`) is a set of intervals. Two clauses are
none: ``===``, which compares texts, and ``>`` of a final release, which leaves out that release's own post releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compatcheck.core.versions import Bounds


class UnorderedRangeError(ValueError):
    """A range that is not a set of intervals."""


class Interval(NamedTuple):
    """Versions from one on up to another."""

    start: str | None
    """First version; None is before every version."""
    end: str | None
    """First version behind the interval, or its last one (`closed`); None is open."""
    closed: bool = False
    """Whether ``end`` itself belongs to the interval."""

    def holds(self, version: Version) -> bool:
        """Tell whether a version, without local label, lies in the interval."""
        if self.start is not None and version < Version(self.start):
            return False
        if self.end is None:
            return True
        return version <= Version(self.end) if self.closed else version < Version(self.end)


class _Cut(NamedTuple):
    """A place between two versions: just before one, or just behind it."""

    version: Version
    behind: bool


_Span = tuple[_Cut | None, _Cut | None]
"""From a cut to a cut; None is before, or behind, every version."""


def find_intervals(bounds: Bounds) -> tuple[Interval, ...]:
    """Write a compiled range as intervals, lowest first, none touching the next.

    Raises:
        UnorderedRangeError: naming the clause that is no interval.
    """
    spans: list[_Span] = []
    for clauses in bounds:
        held: list[_Span] = [(None, None)]
        for clause in clauses:
            held = [span for left in held for right in _spans(clause) if (span := _meet(left, right)) is not None]
        spans += held
    return tuple(map(_interval, _join(spans)))


def _spans(clause: Sequence[str]) -> list[_Span]:
    comparison = clause[0]
    if comparison == "===":
        raise UnorderedRangeError(f"=== {clause[1]} compares texts")
    version = Version(clause[1])
    before, behind = _Cut(version, behind=False), _Cut(version, behind=True)
    if comparison == ">" and not (version.is_prerelease or version.is_postrelease):
        raise UnorderedRangeError(f"> {version} leaves out the post releases of {version}")
    if comparison == "!=*":
        return [(None, before), (_Cut(Version(clause[2]), behind=False), None)]
    found: dict[str, list[_Span]] = {
        ">=": [(before, None)],
        ">": [(behind, None)],
        "<": [(None, before)],
        "<=": [(None, behind)],
        "==": [(before, behind)],
        "!=": [(None, before), (behind, None)],
    }
    return found[comparison]


def _meet(left: _Span, right: _Span) -> _Span | None:
    starts = [span[0] for span in (left, right) if span[0] is not None]
    ends = [span[1] for span in (left, right) if span[1] is not None]
    start, end = max(starts, default=None), min(ends, default=None)
    return None if start is not None and end is not None and start >= end else (start, end)


def _join(spans: Iterable[_Span]) -> list[_Span]:
    joined: list[_Span] = []
    for start, end in sorted(spans, key=lambda span: (span[0] is not None, span[0])):
        if joined:
            first, last = joined[-1]
            if last is None:
                break
            if start is None or start <= last:
                joined[-1] = (first, None if end is None else max(last, end))
                continue
        joined.append((start, end))
    return joined


def _interval(span: _Span) -> Interval:
    start, end = span
    return Interval(
        start=None if start is None else str(_successor(start.version) if start.behind else start.version),
        end=None if end is None else str(end.version),
        closed=end is not None and end.behind,
    )


def _successor(version: Version) -> Version:
    """Return the first version behind another, local labels apart: ``1.0`` → ``1.0.post0.dev0``.

    PEP 440 orders ``1.0.dev1 < 1.0.dev2``, ``1.0 < 1.0.post0.dev0`` and ``1.0.post1 < 1.0.post2.dev0``, with nothing in between.
    https://packaging.python.org/en/latest/specifications/version-specifiers/#summary-of-permitted-suffixes-and-relative-ordering
    """
    text = version.public
    if version.dev is not None:
        return Version(f"{text.rpartition('.dev')[0]}.dev{version.dev + 1}")
    if version.post is not None:
        return Version(f"{text.rpartition('.post')[0]}.post{version.post + 1}.dev0")
    return Version(f"{text}.post0.dev0")
