"""A mapping whose copies cost nothing: all are versions of one, and what differs between two is known without a comparison.

A script of a thousand branches over a thousand variables would otherwise copy and compare a million.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping
from itertools import islice
from typing import Any, TypeVar

_K = TypeVar("_K")
_T = TypeVar("_T")
_NOTHING: Any = object()
"""Stands for a name that is not there."""

_APART = 64
"""As many steps apart, or as many as there are names, versions stop sharing a store."""


class _Step:
    """What one version changes upon another."""

    __slots__ = ("before", "changes", "depth", "is_open", "since", "values")

    def __init__(self, before: _Step | None, names: int) -> None:
        self.before = before
        self.depth: int = 0 if before is None else before.depth + 1
        self.changes: dict[Any, tuple[Any, Any]] = {}
        """What the names it changes stand for before it and after it."""
        self.is_open = True
        """Whether one version alone ends with it, which may go on in it."""
        self.since: int = 0 if before is None or before.since >= max(_APART, names) else before.since + 1
        """The steps since the one whose values are kept whole."""
        self.values: dict[Any, Any] | None = None
        """All values after it where they are kept, so that no way to a version is longer than its names are many."""


class _Store:
    """The values of the version that was asked last, of those that share it."""

    __slots__ = ("step", "values")

    def __init__(self, values: dict[Any, Any]) -> None:
        self.values = values
        self.step = _Step(None, len(values))

    def leads_far(self, step: _Step) -> bool:
        """Tell whether more steps lie between the version in force and another than there are names."""
        return any(True for _ in islice(_between(self.step, step), max(_APART, len(self.values)), None))

    def go(self, step: _Step) -> None:
        """Bring another version into force, by the steps that lie between."""
        on: list[_Step] = []
        for between, is_back in _between(self.step, step):
            if is_back:
                for name, (value, _) in between.changes.items():
                    _put(self.values, name, value)
            else:
                on.append(between)
        self._go_on(on)
        self.step = step

    def leave(self, step: _Step) -> _Store:
        """Return a store of its own for a version of this one, which stays as it is."""
        on: list[_Step] = []
        while step.values is None and step.before is not None:
            on.append(step)
            step = step.before
        left = _Store(dict(step.values or {}))
        left._go_on(on)
        return left

    def _go_on(self, steps: list[_Step]) -> None:
        for step in reversed(steps):
            for name, (_, value) in step.changes.items():
                _put(self.values, name, value)


def _put(values: dict[_K, _T], name: _K, value: _T) -> None:
    if value is _NOTHING:
        values.pop(name, None)
    else:
        values[name] = value


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
        if self._store is other._store and not (self._parts() or other._parts()):
            steps = [step for step, _ in _between(self._step, other._step)]
            names = dict.fromkeys(name for step in reversed(steps) for name in step.changes)
            here, there = list(map(self.get, names)), list(map(other.get, names))  # one version after the other
        else:
            ours, theirs = self._now(), other._now()
            names = dict.fromkeys((*ours, *theirs))
            here, there = list(map(ours.get, names)), list(map(theirs.get, names))
        return {name: (one, two) for name, one, two in zip(names, here, there, strict=True) if one is not two}

    def _now(self) -> dict[_K, _T]:
        if self._store.step is not self._step and not self._parts():
            self._store.go(self._step)
        return self._store.values

    def _parts(self) -> bool:
        """Part from the others where the way to it is longer than its names are many, and tell whether it did."""
        is_far = self._store.leads_far(self._step)
        if is_far:
            self._store = self._store.leave(self._step)
            self._step = self._store.step
        return is_far

    def _change(self, name: _K, value: _T) -> None:
        values, step = self._now(), self._step
        if not step.is_open:
            if not step.since and step.values is None:
                step.values = values.copy()
            step = self._step = self._store.step = _Step(step, len(values))
        old = step.changes[name][0] if name in step.changes else values.get(name, _NOTHING)
        step.changes[name] = (old, value)
        _put(values, name, value)

    def __getitem__(self, name: _K) -> _T:
        """Return what a name stands for."""
        return self._now()[name]

    def __setitem__(self, name: _K, value: _T) -> None:
        """Let a name stand for something."""
        self._change(name, value)

    def __delitem__(self, name: _K) -> None:
        """Let a name stand for nothing."""
        if name not in self:
            raise KeyError(name)
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
