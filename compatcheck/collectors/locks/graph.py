"""Which entries of a lock are installed: by following its dependencies, or by the marker each entry carries.

A lock that serves several Pythons holds one distribution more than once; an entry counts for those Pythons on which it is
reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.environment import Environment, Package
from compatcheck.core.markers import InvalidMarkerError, evaluate
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.requirement import add_unselected
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo
from compatcheck.core.versions import InvalidSpecifierError, all_ordered, compile_specifier, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from compatcheck.core.markers import MarkerEnvironment
    from compatcheck.core.selection import Choice

_SHOWN_NAMES = 12
_MOST_WALKS = 5
MOST_ENTRIES = 100
"""Entries of one distribution that are looked at: a lock has one for each fork of its resolution, a few."""


class Dependency(NamedTuple):
    """One thing that an entry, or the project, requires."""

    name: str
    """Canonical name."""
    specifier: str = ""
    """PEP 440 specifier set, alternatives joined by ``||``; ``""`` allows every entry of that name."""
    marker: str | None = None
    extras: tuple[str, ...] = ()
    """Extras of that package that are wanted, canonical names."""
    entries: tuple[int, ...] | None = None
    """The very entries it means, where the lock says so."""


class Entry(NamedTuple):
    """One locked distribution."""

    name: str
    """Canonical name."""
    version: str | None
    """None where the lock tells none, as for a directory."""
    source: Source
    dependencies: tuple[Dependency, ...] = ()
    by_extra: Mapping[str, tuple[Dependency, ...]] = {}
    """What each of its extras adds."""
    marker: str | None = None
    """When this entry is installed, where the lock says so itself."""
    requires_python: str | None = None
    details: Mapping[str, str] = {}


class _Walk:
    """One way through the graph for one Python."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, str]] = set()
        """Entries with each of their extras that is wanted; the empty text is the entry itself."""
        self.queue: list[tuple[int, str]] = []
        self.allowed: dict[str, list[frozenset[int]]] = {}
        """By name: the entries that each requirement allows, where several are locked."""
        self.notes: list[str] = []


class Lock:
    """The entries of one lock, what is reached of them, and what is to be said about that."""

    def __init__(
        self, entries: Sequence[Entry], environment: MarkerEnvironment, remedy: str, *, keeps_extras: bool = False
    ) -> None:
        self.entries = entries
        self.environment = environment
        self.keeps_extras = keeps_extras
        """Whether markers anywhere in the graph ask for the extras of the project, not for those of the package they stand in."""
        self.remedy = remedy
        self.notes: list[str] = []
        self.skipped: list[Skipped] = []
        self.reached: dict[str, dict[int, set[str]]] = {}
        """By name, then by entry: the Pythons that install it."""
        self._narrowed: dict[str, frozenset[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        for index, entry in enumerate(entries):
            known = self._by_name.setdefault(entry.name, [])
            if len(known) < MOST_ENTRIES:
                known.append(index)
            elif len(known) == MOST_ENTRIES:
                known.append(index)
                reason = f"{entry.name} stands in the lock more than {MOST_ENTRIES} times"
                self.skipped.append(Skipped(entry.source, reason, remedy, named=True))

    def select(self, chosen: Iterable[int]) -> None:
        """Take those entries of the chosen ones whose marker holds."""
        for index in chosen:
            entry = self.entries[index]
            for python in self.environment.pythons:
                if self._holds(entry.marker, entry.name, self.environment, python):
                    self._reach(index, python)

    def follow(self, roots: Iterable[Dependency]) -> None:
        """Take what the roots require, and what that requires."""
        wanted = tuple(roots)
        for python in self.environment.pythons:
            self._follow(wanted, python)

    def _follow(self, roots: Sequence[Dependency], python: str) -> None:
        """Walk from the roots; where ways to one distribution allow different entries, walk again with those all allow."""
        for _ in range(_MOST_WALKS):
            walk = _Walk()
            self._want(roots, self.environment, python, walk)
            while walk.queue:
                index, extra = walk.queue.pop()
                entry, environment = self.entries[index], self.environment
                if not self.keeps_extras:
                    environment = environment._replace(extras=frozenset({extra} - {""}))
                self._want(entry.by_extra.get(extra, ()) if extra else entry.dependencies, environment, python, walk)
            if not any(self._narrow(name, found) for name, found in walk.allowed.items()):
                break
        self._narrowed.clear()
        self.notes += walk.notes
        for index, _ in walk.seen:
            self._reach(index, python)

    def _want(self, required: Iterable[Dependency], environment: MarkerEnvironment, python: str, walk: _Walk) -> None:
        for dependency in required:
            if not self._holds(dependency.marker, dependency.name, environment, python):
                continue
            candidates = self._candidates(dependency, python)
            if not candidates:
                walk.notes.append(f"{dependency.name} is required, but not locked")
            elif dependency.entries is None and len(self._by_name[dependency.name]) > 1:
                walk.allowed.setdefault(dependency.name, []).append(frozenset(candidates))
            for index in candidates:
                for key in ("", *dependency.extras):
                    if (index, key) not in walk.seen:
                        walk.seen.add((index, key))
                        walk.queue.append((index, key))

    def _narrow(self, name: str, found: Sequence[frozenset[int]]) -> bool:
        """Keep the entries that every way to a distribution allows; tells whether that leaves fewer than before."""
        common = frozenset.intersection(*found)
        if not common or common == frozenset.union(*found):
            return False
        self._narrowed[name] = common
        return True

    def _candidates(self, dependency: Dependency, python: str) -> list[int]:
        """Find the entries that a dependency can mean: of several, those it allows and that this Python can install."""
        candidates = self._by_name.get(dependency.name, []) if dependency.entries is None else [*dependency.entries]
        if dependency.name in self._narrowed:
            return [index for index in candidates if index in self._narrowed[dependency.name]]
        if len(candidates) > 1 and dependency.specifier:
            candidates = [
                index for index in candidates if _allows(dependency.specifier, self.entries[index].version) is not False
            ] or candidates
        if len(candidates) > 1:
            fitting = [
                index
                for index in candidates
                if _allows(self.entries[index].requires_python or "", python) is not False
                and self._holds(self.entries[index].marker, dependency.name, self.environment, python)
            ]
            candidates = fitting or candidates
        return candidates

    def _reach(self, index: int, python: str) -> None:
        self.reached.setdefault(self.entries[index].name, {}).setdefault(index, set()).add(python)

    def _holds(self, marker: str | None, name: str, environment: MarkerEnvironment, python: str) -> bool:
        if marker is None:
            return True
        try:
            return evaluate(marker, environment, python) is not False
        except InvalidMarkerError as error:
            self.notes.append(f"{name}: {error}; kept")
            return True

    def packages(self) -> dict[str, Package]:
        """Describe what was reached; versions that differ between the possible Pythons are joined with ``||``."""
        return {
            name: self._package(name, found)
            for name, found in sorted(self.reached.items())
            if any(
                self.entries[index].details.get("source") != "virtual" for index in found
            )  # uv installs none of these
        }

    def _package(self, name: str, found: Mapping[int, set[str]]) -> Package:
        entries = [self.entries[index] for index in sorted(found)]
        first = entries[0]
        details = dict(first.details)
        for entry in entries:
            if entry.version is not None and parse_version(entry.version) is None:
                reason = f"{echo(entry.version)}, the version of {name}, is no version"
                self.skipped.append(Skipped(entry.source, reason, self.remedy, named=True))
                return Package(name, None, entry.source, "", details)
        versions = list(dict.fromkeys(entry.version for entry in entries if entry.version is not None))
        if set().union(*found.values()) != set(self.environment.pythons):
            details["marker"] = "some Python versions only"
            self.notes.append(f"{name}: kept without knowing the Python version; some have no need of it")
        if len(versions) > 1:
            self.notes.append(f"{name}: {' or '.join(versions)}, depending on the Python version, which is not known")
            return Package(name, None, first.source, " || ".join(f"=={version}" for version in versions), details)
        if not versions:
            return Package(name, None, first.source, "", details)
        return Package(name, versions[0], first.source, None, details)

    def absent(self, packages: Mapping[str, Package]) -> set[str]:
        """Return the distributions that are locked, and installed in no case."""
        return set(self._by_name) - set(packages)


def select_entries(  # noqa: PLR0913 (what a lock may say beside its entries)
    path: str,
    select: Callable[[frozenset[Choice]], Lock],
    offered: frozenset[Choice],
    chosen: frozenset[Choice],
    *,
    skipped: Iterable[Skipped],
    notes: Iterable[str] = (),
    groups: str = "groups",
) -> Environment:
    """Select what a lock installs, and what its unselected extras and groups would bring."""
    lock = select(chosen)
    packages = lock.packages()
    packages = add_unselected(packages, offered - chosen, lambda more: select(chosen | more).packages())
    left_out = say_absent(lock.absent(packages)) + say_unselected(offered - chosen, groups)
    lost = (*skipped, *lock.skipped)
    pythons = lock.environment.pythons
    return Environment(
        path,
        packages,
        complete=not lost,
        python=pythons[0] if len(pythons) == 1 else None,
        skipped=lost,
        notes=tuple(dict.fromkeys((*notes, *left_out, *lock.notes))),
        offered=offered,
    )


def say_absent(names: Iterable[str]) -> list[str]:
    """Note the distributions that are locked and not installed."""
    absent = sorted(names)
    if not absent:
        return []
    shown = ", ".join(absent[:_SHOWN_NAMES])
    more = f" and {len(absent) - _SHOWN_NAMES} more" if len(absent) > _SHOWN_NAMES else ""
    return [f"locked, but not installed on this platform: {shown}{more}"]


def say_unselected(choices: Iterable[Choice], groups: str = "groups") -> list[str]:
    """Note the groups and extras that could be selected and are not."""
    names: dict[str, list[str]] = {}
    for choice in sorted(choices):
        names.setdefault("extras" if choice.kind == "extra" else groups, []).append(choice.name)
    return [f"{kind} not selected: {', '.join(left)}" for kind, left in names.items()]


def _allows(specifier: str, version: str | None) -> bool | None:
    """Tell whether a range holds a version; None where either cannot be read."""
    parsed = None if version is None else parse_version(version)
    if parsed is None:
        return None
    try:
        return all_ordered(compile_specifier(specifier), parsed)
    except InvalidSpecifierError:
        return None
