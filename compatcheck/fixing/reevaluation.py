"""Findings of one subject under many changes: a rule is evaluated again only where something it read differs.

A search tries thousands of combinations of releases and settings, and almost every rule comes out of each as it came out of the
one before. What resolving and each rule read (packages, facts) is written down while they run; the outcome counts for every
combination in which all of that is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from compatcheck.core.errors import RuleError
from compatcheck.core.facts import Facts
from compatcheck.matching.engine import Sitting, build, order, without_repeats
from compatcheck.resolution.scope import FactScope

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from compatcheck.core.environment import Environment, Package
    from compatcheck.core.facts import Fact, Value
    from compatcheck.core.report import Finding
    from compatcheck.fixing.problem import Case
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledRule, RuleSet

Item = TypeVar("Item")

_Names = tuple[tuple[str, ...], tuple[str, ...]]
"""Packages and facts that were read."""


class Judge(NamedTuple):
    """What makes a finding count."""

    rules: RuleSet
    selects: Callable[[str], bool]
    """Tells by id whether a rule takes part."""
    mark: Callable[[Finding, Subject], Finding]
    """Lays waivers over a finding and marks it where it fails; reads no more of the subject than its packages and facts."""


class Watched(Mapping[str, Item]):
    """A mapping that writes down which names were asked for."""

    def __init__(self, items: Mapping[str, Item], read: dict[str, None]) -> None:
        """Watch a mapping.

        Args:
            items: what is asked for.
            read: receives the names, also of those that are not there.
        """
        self._items = items
        self._read = read

    def __getitem__(self, name: str) -> Item:
        """Return an item, or raise KeyError."""
        self._read[name] = None
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names: each counts as asked for."""
        self._read.update(dict.fromkeys(self._items))
        return iter(self._items)

    def __len__(self) -> int:
        """Count the items, which no change of releases alters."""
        return len(self._items)


class _Seen:
    """What one computation gave, by what it read."""

    def __init__(self) -> None:
        self._by_names: dict[_Names, dict[tuple[Hashable, ...], Any]] = {}

    def find(self, packages: Mapping[str, Hashable], facts: Mapping[str, Hashable]) -> tuple[_Names, Any] | None:
        """Return the packages and facts that were read and what came out, when all of it was as it is now; else None."""
        for (first, second), outcomes in self._by_names.items():
            key = (*map(packages.get, first), *map(facts.get, second))
            if key in outcomes:
                return (first, second), outcomes[key]
        return None

    def add(
        self,
        read: tuple[Mapping[str, None], Mapping[str, None]],
        packages: Mapping[str, Hashable],
        facts: Mapping[str, Hashable],
        outcome: Any,  # noqa: ANN401 (whatever was computed)
    ) -> None:
        first, second = tuple(sorted(read[0])), tuple(sorted(read[1]))
        key = (*map(packages.get, first), *map(facts.get, second))
        self._by_names.setdefault((first, second), {})[key] = outcome


class _Resolved:
    """What resolving gave."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.marks = {role: {n: _mark_fact(f) for n, f in facts.items()} for role, facts in subject.roles.items()}
        """Role → fact → what tells it from another value."""
        self.differ: set[int] | None = None
        """Places of the rules that read a fact which is another one than the first time."""


class _First:
    """How every rule came out the first time, by its place in the order of roles and rules."""

    def __init__(self, packages: Mapping[str, Hashable], facts: Mapping[str, Mapping[str, Hashable]]) -> None:
        self.packages = packages
        self.facts = facts
        self.readers: dict[tuple[str, str], set[int]] = {}
        """Role and fact, or no role and package → the places of the rules that read it."""
        self.spoken: dict[int, Finding] = {}

    def add(self, place: int, role: str, read: _Names, finding: Finding | None) -> None:
        """Remember a rule."""
        for owner, names in (("", read[0]), (role, read[1])):
            for name in names:
                self.readers.setdefault((owner, name), set()).add(place)
        if finding is not None:
            self.spoken[place] = finding

    def places(self, packages: Mapping[str, Hashable], resolved: _Resolved) -> set[int]:
        """Return the places of the rules that may come out differently now."""
        if resolved.differ is None:
            resolved.differ = self._readers_of(
                (role, name)
                for role, marks in resolved.marks.items()
                for name in self.facts[role].keys() | marks.keys()
                if self.facts[role].get(name) != marks.get(name)
            )
        return resolved.differ | self._readers_of(("", n) for n, mark in packages.items() if self.packages[n] != mark)

    def _readers_of(self, names: Iterable[tuple[str, str]]) -> set[int]:
        return set().union(*(self.readers.get(name, ()) for name in names))


class Recall:
    """The findings of one subject, recalled where they cannot differ."""

    def __init__(self, case: Case, judge: Judge) -> None:
        """Remember nothing yet."""
        self.case = case
        self.judge = judge
        self.evaluations = 0
        """Rules that were evaluated."""
        environment = case.subject.environment
        self._packages = {} if environment is None else {n: _mark_package(p) for n, p in environment.packages.items()}
        self._resolved: dict[frozenset[tuple[str, Value]], _Seen] = {}
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._moved: tuple[Mapping[str, Hashable], Environment | None] = ({}, None)
        self._first: dict[tuple[str, ...], _First] = {}
        self._sitting = Sitting.of(case.subject, judge.rules)
        told = (
            rule for rule in self._sitting.rules if rule.kind != "folklore"
        )  # stands beside the findings it is about
        self._rules = [rule for rule in told if judge.selects(rule.id)]

    def findings(self, packages: Mapping[str, Package], settings: Mapping[str, Value]) -> list[Finding]:
        """Return the findings with other releases and settings, marked as they count.

        Args:
            packages: packages that differ, by name.
            settings: facts that differ.
        """
        marks = {**self._packages, **{n: _mark_package(p) for n, p in packages.items() if n in self._packages}}
        resolved = self._resolve(packages, settings, marks)
        roles = tuple(resolved.subject.roles)
        first = self._first.get(roles)
        if first is None:
            first = self._first[roles] = _First(marks, resolved.marks)
            for place in range(len(roles) * len(self._rules)):
                role, rule = self._at(roles, place)
                read, finding = self._recall(rule, role, resolved, packages, marks)
                first.add(place, role, read, finding)
        found = dict(first.spoken)
        for place in first.places(marks, resolved):
            role, rule = self._at(roles, place)
            _, finding = self._recall(rule, role, resolved, packages, marks)
            found.pop(place, None)
            if finding is not None:
                found[place] = finding
        return sorted(without_repeats([found[place] for place in sorted(found)]), key=order)

    def _environment_after(
        self, packages: Mapping[str, Package], marks: Mapping[str, Hashable], read: dict[str, None]
    ) -> Environment | None:
        """Return the environment with other releases, its packages watched."""
        if self._moved[0] is not marks:
            self._moved = marks, self.case.environment_after(packages)
        environment = self._moved[1]
        return None if environment is None else environment._replace(packages=Watched(environment.packages, read))

    def _at(self, roles: tuple[str, ...], place: int) -> tuple[str, CompiledRule]:
        return roles[place // len(self._rules)], self._rules[place % len(self._rules)]

    def _recall(
        self,
        rule: CompiledRule,
        role: str,
        resolved: _Resolved,
        packages: Mapping[str, Package],
        marks: Mapping[str, Hashable],
    ) -> tuple[_Names, Finding | None]:
        """Return the packages and facts a rule reads, and what it finds."""
        seen = self._seen.setdefault((role, rule.id), _Seen())
        known = seen.find(marks, resolved.marks[role])
        return known or self._evaluate(seen, rule, role, resolved, packages, marks)

    def _resolve(
        self, packages: Mapping[str, Package], settings: Mapping[str, Value], marks: Mapping[str, Hashable]
    ) -> _Resolved:
        seen = self._resolved.setdefault(frozenset((n, _mark_value(v)) for n, v in settings.items()), _Seen())
        known = seen.find(marks, {})
        if known:
            return known[1]  # type: ignore[no-any-return]
        read: dict[str, None] = {}
        subject = self.case.change(self.judge.rules, packages, settings, lambda items: Watched(items, read))
        resolved = _Resolved(subject)
        seen.add((read, {}), marks, {}, resolved)
        return resolved

    def _evaluate(
        self,
        seen: _Seen,
        rule: CompiledRule,
        role: str,
        resolved: _Resolved,
        packages: Mapping[str, Package],
        marks: Mapping[str, Hashable],
    ) -> tuple[_Names, Finding | None]:
        self.evaluations += 1
        read: tuple[dict[str, None], dict[str, None]] = ({}, {})
        environment = self._environment_after(packages, marks, read[0])
        facts = Facts(Watched(resolved.subject.roles[role], read[1]))
        subject = resolved.subject._replace(environment=environment, roles={role: facts})
        scope = FactScope(facts, environment, self.judge.rules)
        finding = None
        try:
            weighed = self._sitting.weigh(rule, role, scope)
            if weighed.decision is not None:
                finding = self.judge.mark(build(rule, weighed.decision, subject, role, facts, scope), subject)
        except RuleError:
            finding = None  # the check before the search reports it
        seen.add(read, marks, resolved.marks[role], finding)
        return (tuple(read[0]), tuple(read[1])), finding


def _mark_package(package: Package) -> Hashable:
    return package.version, package.specifier


def _mark_value(value: Value) -> Any:  # noqa: ANN401 (hashable)
    return type(value), value


def _mark_fact(fact: Fact) -> Hashable:
    return type(fact.value), fact.value, fact.origin
