"""Take a decision apart: every condition with the facts it read and its outcome, and the size term by term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.matching.decision import Decision, decide, size, truth
from compatcheck.matching.engine import open_scope
from compatcheck.rules.expression import conjuncts, evaluate, fact_names, own_requirements, write

if TYPE_CHECKING:
    from compatcheck.resolution.scope import FactScope
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledClause, CompiledRule, RuleSet, Texts
    from compatcheck.rules.expression import Code


class Condition(NamedTuple):
    """One condition of a rule and how it came out here."""

    text: str
    outcome: bool | None
    """True, False, or None when it cannot be decided."""
    facts: tuple[Fact, ...]
    missing: tuple[str, ...]
    """Facts it reads that are unknown."""


class Explanation(NamedTuple):
    """One rule over one role of one subject."""

    rule: CompiledRule
    texts: Texts
    subject: str
    role: str
    decision: Decision
    alternatives: tuple[tuple[Condition, ...], ...]
    """Per clause of ``affected``: its packages and its own condition."""
    conditions: tuple[Condition, ...]
    exceptions: tuple[Condition, ...]
    expected_bytes: int | None
    size_facts: tuple[Fact, ...]
    size_needs: tuple[str, ...]


Locate = Callable[[Source], Source]


def explain(rule: CompiledRule, subject: Subject, rules: RuleSet, locate: Locate) -> Iterator[Explanation]:
    """Explain a rule over every role of a subject.

    Raises:
        RuleError: an expression of the rule does not fit the values.
    """
    for role in subject.roles:
        scope = open_scope(subject, role, rules)
        texts = rules.texts(rule)
        expected, needs = size(texts.sizes.expected, scope)
        yield Explanation(
            rule=rule,
            texts=texts,
            subject=subject.id,
            role=role,
            decision=decide(rule, scope),
            alternatives=tuple(
                tuple(_clause(clause, rule, index, rules, scope, locate)) for index, clause in enumerate(rule.clauses)
            ),
            conditions=tuple(_conditions(rule.when, scope, locate)),
            exceptions=tuple(_conditions(rule.unless, scope, locate)),
            expected_bytes=expected,
            size_facts=_facts(texts.sizes.expected, scope, locate) if texts.sizes.expected else (),
            size_needs=needs,
        )


def _clause(
    clause: CompiledClause,
    rule: CompiledRule,
    index: int,
    rules: RuleSet,
    scope: FactScope,
    locate: Locate,
) -> Iterator[Condition]:
    written = rules.texts(rule).affected[index][0]
    for name, bounds in clause.packages.items():
        verdict = scope.in_range(name, bounds)
        outcome = True if verdict == "yes" else False if verdict == "no" else None
        package = scope.package(name)
        facts: tuple[Fact, ...] = ()
        if package is not None and package.specifier != "absent":
            version = package.version or package.specifier or "any release"
            facts = (Fact(name, version, "installed", (locate(package.source),)),)
        elif outcome is not None:
            facts = (Fact(name, "absent", "installed"),)
        yield Condition(f"{name} {written[name]}", outcome, facts, () if facts else (f"version of {name}",))
    yield from _conditions(clause.when, scope, locate)


def _conditions(code: Code | None, scope: FactScope, locate: Locate) -> Iterator[Condition]:
    if code is None:
        return
    for part in conjuncts(code):
        missing = tuple(sorted(name for name in fact_names(part) if name not in scope.facts))
        yield Condition(write(part), truth(evaluate(part, scope)), _facts(part, scope, locate), missing)


def _facts(code: Code, scope: FactScope, locate: Locate) -> tuple[Fact, ...]:
    known = [scope.facts[name] for name in sorted(fact_names(code)) if name in scope.facts]
    for package, dependency in sorted(own_requirements(code)):
        required = scope.own_requirement(package, dependency)
        known += [required] if required is not None else []
    return tuple(fact._replace(sources=tuple(map(locate, fact.sources))) for fact in known)
