"""Few combinations of parameters in which every two values that go together occur together, or every three."""

from __future__ import annotations

from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Row = Mapping[str, Any]


def cover_together(
    axes: Mapping[str, Sequence[Any]],
    is_sensible: Callable[[Row], bool],
    kind: str | None = None,
    *,
    together: int = 2,
) -> list[dict[str, Any]]:
    """Return rows that contain every pair, or triple, of values which some sensible row contains.

    Greedy: each row is the one of all that has the most pairs which no row before it has, the earliest of several. The result
    depends on nothing but what is given.

    Args:
        axes: parameter → values, the first one the usual one.
        is_sensible: tells whether there is such a run.
        kind: parameter of whose every value the most usual row comes first.
        together: how many values: 2 are pairs.
    """
    rows = [row for values in product(*axes.values()) if is_sensible(row := dict(zip(axes, values, strict=True)))]
    pairs = [_groups(row, axes, together) for row in rows]
    wanted = {pair for found in pairs for pair in found}
    chosen = []
    for value in () if kind is None else axes[kind]:
        own = [index for index, row in enumerate(rows) if kind is not None and row[kind] == value]
        if own:
            chosen.append(
                min(own, key=lambda index: sum(rows[index][name] != values[0] for name, values in axes.items()))
            )
    for index in chosen:
        wanted -= pairs[index]
    while wanted:
        best = max(range(len(rows)), key=lambda index: len(pairs[index] & wanted))
        chosen.append(best)
        wanted -= pairs[best]
    return [rows[index] for index in chosen]


def _groups(row: Row, axes: Mapping[str, Sequence[Any]], together: int) -> frozenset[tuple[int, ...]]:
    """Return the pairs of values of a row, or triples, by their places on their axes; all of them where there are fewer axes."""
    places = [(axis, axes[name].index(value)) for axis, (name, value) in enumerate(row.items())]
    return frozenset(tuple(chain(*several)) for several in combinations(places, min(together, len(places))))


def join_pairs(
    values: Sequence[tuple[str, Any]], is_wanted: Callable[[tuple[str, Any], tuple[str, Any]], bool], *, most: int
) -> list[tuple[tuple[str, Any], ...]]:
    """Return few groups of settings in which every wanted pair stands together: of many axes rows cannot be listed.

    Greedy, and the same each time: a group begins with the first pair that none before it has, and takes what brings most
    further ones, as long as anything brings one.

    Args:
        values: name and value; a group has a name once.
        is_wanted: tells whether two are to stand together.
        most: settings of a group.
    """
    left = {pair: None for pair in combinations(values, 2) if pair[0][0] != pair[1][0] and is_wanted(*pair)}
    places = {value: place for place, value in enumerate(values)}
    groups = []
    while left:
        group = [*next(iter(left))]
        while len(group) < most:
            names = {name for name, _ in group}
            brings = {
                value: sum(tuple(sorted((value, one), key=places.__getitem__)) in left for one in group)
                for value in values
                if value[0] not in names
            }
            best = max(brings, key=brings.__getitem__, default=None)
            if best is None or not brings[best]:
                break
            group.append(best)
        group.sort(key=places.__getitem__)
        for pair in combinations(group, 2):
            left.pop(pair, None)
        groups.append(tuple(group))
    return groups
