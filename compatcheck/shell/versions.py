"""A mapping whose copies cost nothing: all are versions of one, and what differs between two is known without a comparison.

A script of a thousand branches over a thousand variables would otherwise copy and compare a million.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping
from typing import Any, TypeVar

_K = TypeVar("_K")
_T = TypeVar("_T")
_NOTHING: Any = object()
"""Stands for a name that is not there."""


class _Step:
    """What one version changes upon another."""

    __slots__ = ("before", "depth", "is_open", "others")

    def __init__(self, before: _Step | None) -> None:
        self.before = before
        self.depth: int = 0 if before is None else before.depth + 1
        self.others: dict[Any, Any] = {}
        """What the names it changes stand for on the other side: before it where it is in force, and in it where it is not."""
        self.is_open = True
        """Whether one version alone ends with it, which may go on in it."""


class _Store:
    """The values of the version that was asked last."""

    __slots__ = ("step", "values")

    def __init__(self, values: dict[Any, Any]) -> None:
        self.values = values
        self.step = _Step(None)

    def go(self, step: _Step) -> None:
        """Bring another version into force, by the steps that lie between; most of a long script's time goes by here."""
        values = self.values
        down: list[_Step] = []
        one: Any = self.step
        two: Any = step
        while one is not two:
            if one.depth < two.depth:
                down.append(two)
                two = two.before
                continue
            _swap(values, one.others)
            one = one.before
        for two in reversed(down):
            _swap(values, two.others)
        self.step = step


def _swap(values: dict[Any, Any], others: dict[Any, Any]) -> None:
    for name, other in others.items():
        others[name] = values.get(name, _NOTHING)
        if other is _NOTHING:
            values.pop(name, None)
        else:
            values[name] = other


def _between(one: _Step | None, two: _Step | None) -> Iterator[tuple[_Step, bool]]:
    """Yield the steps that two versions do not share, the last first, and whether each is one of the first's."""
    while one is not two:
        if one is not None and (two is None or one.depth >= two.depth):
            yield one, True
            one = one.before
        elif two is not None:
            yield two, False
            two = two.before


class Versions(MutableMapping[_K, _T]):
    """Names and what they stand for."""

    __slots__ = ("_step", "_store")

    def __init__(self, values: dict[_K, _T] | None = None) -> None:
        """Begin with these values."""
        self._store = _Store({} if values is None else values)
        self._step = self._store.step

    def copy(self) -> Versions[_K, _T]:
        """Return a version that may change on its own."""
        copied: Versions[_K, _T] = Versions.__new__(Versions)
        copied._store, copied._step = self._store, self._step
        self._step.is_open = False
        return copied

    def differing(self, other: Versions[_K, _T]) -> dict[_K, tuple[_T | None, _T | None]]:
        """Return the names that may stand for something else in another version, and what for in both."""
        if self._store is not other._store:
            names = dict.fromkeys((*self, *other))
        else:
            steps = [step for step, _ in _between(self._step, other._step)]
            names = dict.fromkeys(name for step in reversed(steps) for name in step.others)
        here, there = list(map(self.get, names)), list(map(other.get, names))  # one version after the other
        return {name: (one, two) for name, one, two in zip(names, here, there, strict=True) if one is not two}

    def _now(self) -> dict[_K, _T]:
        store = self._store
        if store.step is not self._step:
            store.go(self._step)
        return store.values

    def _change(self, name: _K, value: _T) -> None:
        values = self._now()
        if not self._step.is_open:
            self._step = self._store.step = _Step(self._step)
        self._step.others.setdefault(name, values.get(name, _NOTHING))
        if value is _NOTHING:
            del values[name]
        else:
            values[name] = value

    def __getitem__(self, name: _K) -> _T:
        """Return what a name stands for."""
        return self._now()[name]

    def __setitem__(self, name: _K, value: _T) -> None:
        """Let a name stand for something."""
        self._change(name, value)

    def __delitem__(self, name: _K) -> None:
        """Let a name stand for nothing."""
        self._change(name, _NOTHING)

    def __iter__(self) -> Iterator[_K]:
        """Go through the names as they are now."""
        return iter(list(self._now()))

    def __reversed__(self) -> Iterator[_K]:
        """Go back through the names as they are now."""
        return reversed(self._now())

    def __len__(self) -> int:
        """Count the names."""
        return len(self._now())

    def __contains__(self, name: object) -> bool:
        """Tell whether a name stands for something."""
        return name in self._now()

    def items(self) -> ItemsView[_K, _T]:
        """List the names with what they stand for, as they are now."""
        return self._now().copy().items()

    def __eq__(self, other: object) -> bool:
        """Tell whether all names stand for the same."""
        return isinstance(other, Versions) and all(one == two for one, two in self.differing(other).values())

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        """Show it as a dictionary."""
        return f"Versions({self._now()!r})"
