"""The known releases of a package as the bits of a number, the oldest as the lowest: which of them ranges and requirements hold.

Many rules ask about one package, and their ranges share few bounds: on which side of a bound a release lies is looked up once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import reduce
from itertools import accumulate
from operator import and_, or_

from compatcheck.core.versions import (
    OPERATORS,
    allowed_releases,
    compile_specifier,
    contains,
    exact_version,
    order_of,
    plain_release,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compatcheck.core.versions import Bounds, Verdict

_ANY_POST = 10**9


class ReleaseBits:
    """The known releases of one package."""

    def __init__(self, names: Sequence[str]) -> None:
        """Take the releases, oldest first."""
        self.names = names
        self.every = (1 << len(names)) - 1
        keyed = [(key, place) for place, name in enumerate(names) if (key := plain_release(name)) is not None]
        keyed.sort()
        self._keys = [key for key, _ in keyed]
        self._places = [place for _, place in keyed]
        self._below = list(accumulate((1 << place for place in self._places), or_, initial=0))
        """The first final and post releases, so many."""
        self._plain = self._below[-1]
        self._others = [place for place in range(len(names)) if not self._plain >> place & 1]
        self._sides: dict[tuple[str, ...], tuple[int, int]] = {}
        self._splits: dict[int, tuple[Bounds, tuple[int, int]]] = {}
        self._allowed: dict[str, int | None] = {}

    def beyond(
        self, version: str, *, above: bool, avoided: Iterable[Bounds], allowed: Bounds, left_out: int = 0
    ) -> Iterator[str]:
        """Yield the releases above or below a version in a range and outside of others, the nearest first; no pre-release.

        Those whose bits are ``left_out`` are none of them.
        """
        here = order_of(version)
        if here is None:
            return
        good = reduce(and_, (self.split(bounds)[1] for bounds in avoided), self.split(allowed)[0] & ~left_out)
        places = (
            self._places[bisect_right(self._keys, here) :] if above else self._places[: bisect_left(self._keys, here)]
        )
        for place in places if above else reversed(places):
            if good >> place & 1:
                yield self.names[place]

    def listed(self, bits: int) -> list[str]:
        """Return the releases that bits stand for, oldest first."""
        return [name for place, name in enumerate(self.names) if bits >> place & 1]

    def judge(self, bounds: Bounds, specifier: str) -> Verdict | None:
        """Tell how many releases that a requirement allows lie in a range, as `versions.judge`.

        Returns:
            None where it allows none of these, or others too.

        Raises:
            InvalidSpecifierError: ``specifier`` is not PEP 440.
        """
        if specifier not in self._allowed:
            self._allowed[specifier] = self._allow(specifier)
        allowed = self._allowed[specifier]
        if allowed is None:
            return None
        inside, outside = self.split(bounds)
        if not allowed & ~inside:
            return "all"
        return "some" if allowed & ~outside else "none"

    def _allow(self, specifier: str) -> int | None:
        bits = {name: 1 << place for place, name in enumerate(self.names)}
        named = allowed_releases(specifier, (self.names[place] for place in self._others))  # pins too
        if not all(name in bits for name in named):
            return None
        ranges = [part for part in specifier.split("||") if exact_version(part) is None]
        ordered = reduce(or_, (self.split(compile_specifier(part))[0] for part in ranges), 0) & self._plain
        return ordered | sum(bits[name] for name in named) or None

    def split(self, bounds: Bounds) -> tuple[int, int]:
        """Return the releases in a range and those outside; a build of a bound's own release is on neither side.

        An answer is kept with its range, so that no other takes the range's place.
        """
        kept = self._splits.get(id(bounds))
        if kept is None:
            inside, outside = 0, self.every
            for clauses in bounds:
                sides = [self._sides_of(*clause) for clause in clauses]
                inside |= reduce(and_, (yes for yes, _ in sides), self.every)
                outside &= reduce(or_, (no for _, no in sides), 0)
            kept = self._splits[id(bounds)] = bounds, (inside, outside)
        return kept[1]

    def _sides_of(self, *clause: str) -> tuple[int, int]:
        kept = self._sides.get(clause)
        if kept is None:
            bound = plain_release(clause[1]) if clause[0] in OPERATORS else None
            yes = 0 if bound is None else self._hold(clause[0], bound)
            no = 0 if bound is None else self._plain & ~yes
            for place in range(len(self.names)) if bound is None else self._others:
                answer = contains([[clause]], self.names[place])
                yes |= (answer == "yes") << place
                no |= (answer == "no") << place
            kept = self._sides[clause] = yes, no
        return kept

    def _hold(self, comparison: str, bound: tuple[tuple[int, ...], int]) -> int:
        """Return the final and post releases on one side of a bound that is one, too."""
        before, through = self._below[bisect_left(self._keys, bound)], self._below[bisect_right(self._keys, bound)]
        if comparison == ">" and bound[1] < 0:  # PEP 440: ">1.0" leaves out 1.0.post1
            through = self._below[bisect_right(self._keys, (bound[0], _ANY_POST))]
        found = {"<": before, "<=": through, ">=": ~before, ">": ~through, "==": through ^ before}
        return self._plain & found.get(comparison, ~(through ^ before))
