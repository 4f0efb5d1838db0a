"""How far a package moves, and what its requirement becomes: arithmetic on versions and specifier sets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.pattern import lazy_compile
from compatcheck.core.versions import all_ordered, compile_specifier, exact_version, order_of, parse_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

PATCH, MINOR, MAJOR = "patch", "minor", "major"
_KINDS = (PATCH, MINOR, MAJOR)
_SERIES = 2
"""Numbers that name a series: 0.16 of 0.16.8."""
_CLAUSE = lazy_compile(r"\s*(~=|===?|!=|<=|>=|<|>)\s*([^\s,]+)\s*")


@lru_cache(maxsize=8192)  # a search asks for the same few moves, again and again
def describe_move(current: str, target: str) -> str:
    """Return ``patch``, ``minor`` or ``major``, with `` down`` behind it for an older release.

    The kind is that of the first number that differs: 0.16.4 → 0.16.8 is a patch, 0.16.4 → 0.17.0 a minor, whatever the
    project says of its versions before 1.0.
    """
    before, after = _parsed(current), _parsed(target)
    old, new = _padded(before), _padded(after)
    kind = MAJOR if old[0] != new[0] else MINOR if old[1] != new[1] else PATCH
    return kind if after >= before else f"{kind} down"


class Distances:
    """How far moves from one version go, comparable: patch before minor before major, newer before older, near before far."""

    def __init__(self, current: str, releases: Sequence[str]) -> None:
        """Order the known releases, and the series they are of.

        Args:
            current: the version, or the newest one a range allows.
            releases: the known final releases.
        """
        self.current = current
        self._here, self._first = _place(current), series_of(current)
        self._releases = sorted(_place(release) for release in releases)
        self._series = sorted({series_of(release) for release in releases})

    def to(self, target: str) -> tuple[int, int, int]:
        """Return the kind of a move, the series it crosses and the releases it passes."""
        move = describe_move(self.current, target)
        rank = 2 * _KINDS.index(move.partition(" ")[0]) + move.endswith("down")
        first, last = sorted((self._first, series_of(target)))
        low, high = sorted((self._here, _place(target)))
        crossed = bisect_left(self._series, last) - bisect_left(self._series, first)
        return rank, crossed, bisect_left(self._releases, high) - bisect_right(self._releases, low)


def rewrite(specifier: str, target: str) -> str:
    """Return a requirement changed as little as it takes to require a version, or to start at it.

    A pin stays a pin (its local label is kept), ``~=`` and ``==1.2.*`` move on, a range gets the version as its floor; an upper
    bound that is in the way moves up by as many numbers as it has, and a lower bound that is in the way goes, for the series of
    the older release.

    >>> rewrite(">=0.15,<0.17", "0.16.8")
    '>=0.16.8,<0.17'
    """
    clauses = [match.groups() for match in map(_CLAUSE.fullmatch, specifier.split(",")) if match]
    if exact_version(specifier) is not None:
        pins = (_rewrite_pin(sign, operand, target) for sign, operand in clauses)
        return ",".join(dict.fromkeys(pin for pin in pins if pin.startswith("==")))
    version = _parsed(target)
    kept: list[str] = []
    floored = False
    for sign, operand in clauses:
        if sign == "~=":
            count = len(_parsed(operand).release)
            kept.append(f"~={_numbers(version, max(count, len(version.release)) if count > _SERIES else count)}")
            floored = True
        elif sign == "==":
            kept.append(f"=={_numbers(version, len(_parsed(operand.removesuffix('.*')).release))}.*")
            floored = floored or False
        elif sign in {">=", ">"}:
            if not floored:
                kept.append(f">={target}")
            floored = True
            if not all_ordered(compile_specifier(sign + operand), version) and "<" not in specifier:
                kept.append(
                    f"<{_raised('<', '.'.join(map(str, series_of(target))), version)}"
                )  # back, and not up again
        elif sign in {"<", "<="}:
            holds = all_ordered(compile_specifier(sign + operand), version)
            kept.append(f"{sign}{operand}" if holds else f"{sign}{_raised(sign, operand, version)}")
        elif all_ordered(compile_specifier(sign + operand), version):
            kept.append(f"{sign}{operand}")
    if not floored and not any(clause.startswith("==") for clause in kept):
        kept.insert(0, f">={target}")
    if any(clause.startswith("==") for clause in kept) and not floored:
        kept.append(f">={target}")
    return ",".join(kept)


def _rewrite_pin(sign: str, operand: str, target: str) -> str:
    if sign not in {"==", "==="} or operand.endswith(".*"):
        return ""  # what stands beside a pin adds nothing to it
    label = operand.partition("+")[2]
    return f"{sign}{target}" + (f"+{label}" if label and "+" not in target else "")


def _raised(sign: str, operand: str, version: Version) -> str:
    count = len(_parsed(operand).release)
    if sign == "<=":
        return str(version)
    release = (*version.release, 0, 0, 0)[:count]
    return ".".join(map(str, (*release[:-1], release[-1] + 1)))


def _numbers(version: Version, count: int) -> str:
    return ".".join(map(str, (*version.release, 0, 0, 0)[:count]))


@lru_cache(maxsize=8192)
def series_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a version that name its series: 0 and 16 of 0.16.8."""
    return _padded(_parsed(text))[:_SERIES]


def _padded(version: Version) -> tuple[int, ...]:
    return (*version.release, 0, 0)[: max(len(version.release), _SERIES + 1)]


def _place(text: str) -> tuple[tuple[int, ...], float]:
    place = order_of(text)
    if place is None:
        raise ValueError(f"{text!r} is not a version")
    return place


def _parsed(text: str) -> Version:
    version = parse_version(text)
    if version is None:
        raise ValueError(f"{text!r} is not a version")
    return version
