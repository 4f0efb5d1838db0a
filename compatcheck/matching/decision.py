"""Decide one rule over the facts of one role: affected, possible or silent, and why."""

from __future__ import annotations

import math

from compatcheck.core.errors import RuleError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.rules.database import CompiledClause, CompiledRule
from compatcheck.rules.expression import Code, Unknown, conjuncts, disjuncts, evaluate, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from compatcheck.resolution.scope import FactScope

AFFECTED, POSSIBLE, SILENT = "affected", "possible", "silent"
UNSTATED = ("run.", "runtime.", "env ")
"""What needs begin with that no configuration states: what the program's own code does, how torch was built and what it loads,
variables of the process. An exception that hangs on these alone is taken not to hold, and said; one that hangs on a setting, a
release or the hardware leaves a rule undecided."""


class Decision(NamedTuple):
    """The outcome of one rule."""

    status: str
    """``affected``, ``possible`` or ``silent``."""
    needs: tuple[str, ...] = ()
    """Facts, or spoken conditions, that would decide a ``possible``; sorted."""
    assumptions: tuple[str, ...] = ()
    """What was taken for granted: known exceptions that could not be ruled out, uncertain builds."""
    packages: tuple[str, ...] = ()
    """Packages and components of the clause that matched."""
    clause: CompiledClause | None = None


class _Conditions(NamedTuple):
    """What the condition and the exceptions of a rule leave open; all of its clauses share them."""

    needs: frozenset[str]
    """Facts that would decide the condition."""
    notes: tuple[str, ...]
    """Exceptions that are taken not to hold."""
    open_exceptions: frozenset[str]
    """Facts that would decide the others, which are asked about once nothing else is open."""


def decide(rule: CompiledRule, scope: FactScope, known: dict[int, object] | None = None) -> Decision:
    """Decide a rule; what its conditions come to is kept in ``known``, as `evaluate` does.

    Where each release that a requirement allows is in one alternative or another, which of them it is need not be known.

    Raises:
        RuleError: an expression of the rule does not fit the values.
    """
    best = Decision(SILENT)
    known = {} if known is None else known
    conditions = None
    split: dict[str, list[CompiledClause]] = {}
    for clause in rule.clauses:
        opened = _judge_clause(clause, scope, known)
        if opened is None:
            continue
        conditions = conditions or _judge_conditions(rule, scope, known)
        if conditions is None:
            return best
        outcome = _join(clause, opened, conditions)
        if outcome.status == AFFECTED:
            return outcome
        if best.status == SILENT or len(outcome.needs) < len(best.needs):
            best = outcome
        for name in clause.packages:
            if opened[0] == {scope.package_need(name)} and not isinstance(clause.packages[name], str):
                split.setdefault(name, []).append(clause)
    for name, clauses in split.items():
        together = scope.rules.union([one.packages[name] for one in clauses])
        if conditions is not None and len(clauses) > 1 and scope.in_range(name, together) == "yes":
            outcome = _join(clauses[0], (frozenset(), ()), conditions)
            if outcome.status == AFFECTED or len(outcome.needs) < len(best.needs):
                return outcome
    if best.status == SILENT and rule.unverified:
        clause = CompiledClause(rule.unverified, None)
        opened = _judge_clause(clause, scope, known)
        conditions = None if opened is None else _judge_conditions(rule, scope, known)
        if opened is not None and conditions is not None:
            needs, notes = opened
            between = "between a release known bad and one known good, not checked"
            return _join(clause, (needs, (between, *notes)), conditions)._replace(status=POSSIBLE)
    return best


def _judge_clause(
    clause: CompiledClause, scope: FactScope, known: dict[int, object]
) -> tuple[frozenset[str], tuple[str, ...]] | None:
    """Return what an alternative's own ranges and condition leave open, and its uncertain builds; None where it is silent."""
    needs: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    for name, bounds in clause.packages.items():
        verdict = scope.in_range(name, bounds)
        if verdict == "no":
            return None
        if verdict != "yes":
            needs |= {scope.package_need(name)}
            note = _uncertainty(name, verdict, scope)
            notes = (*notes, note) if note else notes
    if clause.when is not None:
        value = evaluate(clause.when, scope, known)
        if isinstance(value, Unknown):
            needs |= value.needs
        elif not value:
            return None
    return needs, notes


def _judge_conditions(rule: CompiledRule, scope: FactScope, known: dict[int, object]) -> _Conditions | None:
    """Return what a rule's condition and exceptions leave open; None where one of them silences it."""
    needs = open_exceptions = frozenset[str]()
    notes: tuple[str, ...] = ()
    if rule.when is not None:
        value = evaluate(rule.when, scope, known)
        if isinstance(value, Unknown):
            needs = value.needs
        elif not value:
            return None
    if rule.unless is not None:
        value = evaluate(rule.unless, scope, known)
        if isinstance(value, Unknown):
            for part in disjuncts(rule.unless):
                open_part = evaluate(part, scope, known)
                if isinstance(open_part, Unknown) and _is_unstated(part, open_part, scope):
                    notes = (*notes, _opposite(part, scope))
                elif isinstance(open_part, Unknown):
                    open_exceptions |= open_part.needs
        elif value:
            return None
    return _Conditions(needs, notes, open_exceptions)


def _join(clause: CompiledClause, opened: tuple[frozenset[str], tuple[str, ...]], conditions: _Conditions) -> Decision:
    """Return what an alternative comes to that neither its own ranges nor the rule's conditions silence."""
    own_needs, own_notes = opened
    needs = own_needs | conditions.needs or conditions.open_exceptions
    status = POSSIBLE if needs else AFFECTED
    return Decision(status, tuple(sorted(needs)), (*own_notes, *conditions.notes), tuple(clause.packages), clause)


def _is_unstated(exception: Code, value: Unknown, scope: FactScope) -> bool:
    """Tell whether an exception hangs on what no file states alone, or on a package that none names and nothing known beside."""
    parts = conjuncts(exception)
    unnamed = [one for one in parts if one[:2] == ["call", "installed"] and scope.package(str(one[2][1])) is None]
    if unnamed:
        return not any(truth(evaluate(one, scope)) for one in parts if one not in unnamed)
    return all(name.startswith(UNSTATED) for name in value.needs)


def _opposite(exception: Code, scope: FactScope) -> str:
    """Say that an exception does not hold, without what is known of it."""
    from compatcheck.rules.words import say  # noqa: PLC0415 (only where something is taken for granted)

    return say(_open_part(exception, scope), holds=False).replace("`", "")


def _open_part(code: Code, scope: FactScope) -> Code:
    """Return what of an expression of unknown value is unknown itself; what is known beside it decides nothing."""
    kind, *parts = code
    if kind in {"and", "or"}:
        left = [_open_part(part, scope) for part in parts if isinstance(evaluate(part, scope), Unknown)]
        return left[0] if len(left) == 1 else [kind, *left]
    if kind == "not":
        return ["not", _open_part(parts[0], scope)]
    if kind == "if":
        test = evaluate(parts[0], scope)
        return code if isinstance(test, Unknown) else _open_part(parts[1] if test else parts[2], scope)
    return code


def _uncertainty(name: str, verdict: str, scope: FactScope) -> str | None:
    package = scope.package(name)
    if verdict == "boundary" and package is not None:
        build = f"{name} {package.version} is a pre-release or source build of a release the range ends at"
        return f"{build}: the change may or may not be in it"
    if verdict == "some" and package is not None and package.version is not None:
        return f"{name} {package.version} may not be installed"
    if verdict == "some" and package is not None:
        optional = ", and may not be installed" if package.is_optional else ""
        return f"{name}{package.specifier or ' (any release)'} allows affected and unaffected releases{optional}"
    if verdict == "unknown" and package is not None:
        return f"{name} {package.version or package.specifier} is not a version that can be compared"
    return None


def truth(value: object) -> bool | None:
    """Return a condition's value as True, False or None for unknown."""
    return None if isinstance(value, Unknown) else bool(value)


def size(expression: Code | None, scope: FactScope) -> tuple[int | None, tuple[str, ...]]:
    """Evaluate a size expression.

    Returns:
        Bytes, or None with the facts that would give them.

    Raises:
        RuleError: the expression gives no finite number.
    """
    value, needs = number(expression, scope)
    return None if value is None else round(value), needs


def bounds(expression: Code | None, scope: FactScope) -> tuple[int | None, int | None]:
    """Return the least and the most that a size comes to: of one that is not known, where it is one of a few."""
    value: Any = None if expression is None else evaluate(expression, scope)
    sizes = value.choices if isinstance(value, Unknown) else () if value is None else (value,)
    return (round(min(sizes)), round(max(sizes))) if sizes else (None, None)


def number(expression: Code | None, scope: FactScope) -> tuple[float | None, tuple[str, ...]]:
    """Evaluate an expression that gives a number, as `size` does one that gives bytes."""
    if expression is None:
        return None, ()
    value: Any = evaluate(expression, scope)
    if isinstance(value, Unknown):
        return None, tuple(sorted(value.needs))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RuleError(f"`{write(expression)}` is {value!r}, which is no size")
    return value, ()
