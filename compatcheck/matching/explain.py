"""Take a decision apart: every condition with the facts it read and its outcome, and the size term by term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from compatcheck.core.facts import Fact
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.matching.decision import POSSIBLE, SILENT, Decision, decide, size, truth
from compatcheck.matching.engine import RelevantRules, build, costs_nothing, has_say, open_scope, states_run
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
    because: str | None
    """Why a check says nothing of it though the rule's own conditions may hold."""
    alternatives: tuple[tuple[Condition, ...], ...]
    """Per clause of ``affected``: its packages and its own condition."""
    conditions: tuple[Condition, ...]
    exceptions: tuple[Condition, ...]
    expected_bytes: int | None
    size_facts: tuple[Fact, ...]
    size_needs: tuple[str, ...]


Locate = Callable[[Source], Source]


def explain(rule: CompiledRule, subject: Subject, rules: RuleSet, locate: Locate) -> Iterator[Explanation]:
    """Explain a rule over every role of a subject, with the verdict that `match` comes to.

    Raises:
        RuleError: an expression of the rule does not fit the values.
    """
    relevant = RelevantRules.of(subject, rules)
    for role in subject.roles:
        scope = open_scope(subject, role, rules)
        texts = rules.texts(rule)
        decision, because = _judge(rule, relevant, subject, role, scope)
        expected, needs = size(texts.sizes.expected, scope)
        if decision.status != SILENT:
            finding = build(rule, decision, subject, role, scope)
            decision = decision._replace(assumptions=finding.assumptions)
            if finding.impact is not None:
                expected, needs = finding.impact.expected_bytes, finding.impact.needs
            if costs_nothing(finding):
                decision, because = Decision(SILENT), "it costs no memory here"
        yield Explanation(
            rule=rule,
            texts=texts,
            subject=subject.id,
            role=role,
            decision=decision,
            because=because,
            alternatives=tuple(
                tuple(_clause(clause, rule, index, rules, scope, locate)) for index, clause in enumerate(rule.clauses)
            ),
            conditions=tuple(_conditions(rule.when, scope, locate)),
            exceptions=tuple(_conditions(rule.unless, scope, locate)),
            expected_bytes=expected,
            size_facts=_facts(texts.sizes.expected, scope, locate) if texts.sizes.expected else (),
            size_needs=needs,
        )


def _judge(
    rule: CompiledRule, relevant: RelevantRules, subject: Subject, role: str, scope: FactScope
) -> tuple[Decision, str | None]:
    """Return what a check says of a rule, and why where it says nothing of one whose conditions may hold."""
    own = decide(rule, scope)
    if own.status == SILENT:
        return own, None
    if rule.status != "active":
        return Decision(SILENT), "a rule that is not active makes no finding"
    if rule.kind == "folklore":
        return Decision(SILENT), "folklore is told beside findings and is none"
    if all(one.id != rule.id for one in relevant.rules):
        return own, "no input names what it is about"
    if not has_say(rule, role, subject):
        return Decision(SILENT), "it is about another model of this run"
    found = relevant.decide(rule, scope, {}, stated=states_run(subject.roles[role]))
    if found.decision is not None:
        return found.decision, None
    stays_open = own.status == POSSIBLE and (found.waits or bool(found.folded))
    return own if stays_open else Decision(SILENT), found.because


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
