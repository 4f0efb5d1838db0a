"""Run a rule's examples: each is a small facts file and what the rule must say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import CompatcheckError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.units import GIB
from compatcheck.frameworks.model.lookup import find_model
from compatcheck.frameworks.native import configuration as native
from compatcheck.matching.decision import AFFECTED, POSSIBLE, SILENT, decide, size, truth
from compatcheck.resolution.resolve import TRAIN, resolve
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.expression import evaluate
from compatcheck.rules.lint import Problem, lint_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from compatcheck.core.document import Document
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledRule, RuleSet
    from compatcheck.rules.lint import CheckEvidence
    from compatcheck.rules.rule import Remedy, Rule
from compatcheck.rules.syntax import parse

EXPECTATION_KEYS = {"impact_gib", "needs", "why"}
"""Keys of an example that say what is expected instead of what is given."""

KINDS = {"match": AFFECTED, "no_match": SILENT, "unknown": POSSIBLE}


class Failure(NamedTuple):
    """An example the rule does not meet."""

    kind: str
    number: int
    message: str


def example_scope(example: Mapping[str, Any], rules: RuleSet, name: str) -> FactScope:
    """Return what rules can ask of an example.

    Raises:
        CompatcheckError: the example uses names or values outside the vocabulary.
    """
    subject = example_subject(example, rules, name)
    return FactScope(subject.roles[TRAIN], subject.environment, rules)


def example_subject(example: Mapping[str, Any], rules: RuleSet, name: str) -> Subject:
    """Resolve an example as any facts file.

    Raises:
        CompatcheckError: the example uses names or values outside the vocabulary.
    """
    given = {key: value for key, value in example.items() if key not in EXPECTATION_KEYS}
    document, environment = native.read_sections(given, name)
    problems = [str(skipped.source) + ": " + skipped.reason for skipped in document.skipped]
    problems += [f"{key} is not in the vocabulary" for key, _ in document.unread]
    if problems:
        raise CompatcheckError("; ".join(problems))
    documents: list[Document] = [document]
    documents += [find_model(reference, rules, {}) for kind, reference, _ in document.references if kind == "model"]
    return resolve(name, rules=rules, environment=environment, documents=documents)


def run_examples(
    rule: CompiledRule,
    examples: Mapping[str, tuple[Mapping[str, Any], ...]],
    rules: RuleSet,
) -> list[Failure]:
    """Run all examples of a rule."""
    failures = []
    for kind, wanted in KINDS.items():
        for index, example in enumerate(examples.get(kind, ())):
            try:
                message = _run(rule, example, wanted, rules, f"examples.{kind}.{index}")
            except CompatcheckError as error:
                message = str(error)
            if message:
                failures.append(Failure(kind, index, message))
    return failures


def _run(rule: CompiledRule, example: Mapping[str, Any], wanted: str, rules: RuleSet, name: str) -> str | None:
    scope = example_scope(example, rules, name)
    decision = decide(rule, scope)
    if decision.status != wanted:
        needs = f" (needs {', '.join(decision.needs)})" if decision.needs else ""
        return f"expected {wanted}, got {decision.status}{needs}"
    if "needs" in example:
        if not _is_list_of(example["needs"], str):
            return "needs is no list of facts"
        if sorted(example["needs"]) != list(decision.needs):
            return f"expected needs {sorted(example['needs'])}, got {list(decision.needs)}"
    if "impact_gib" in example:
        expected, missing = size(rules.texts(rule).sizes.expected, scope)
        if expected is None:
            return f"no size: needs {', '.join(missing) or 'a formula'}"
        if not _is_list_of(example["impact_gib"], (int, float)) or len(example["impact_gib"]) != _BOUNDS:
            return "impact_gib is no list of two sizes"
        low, high = example["impact_gib"]
        if not float(low) <= expected / GIB <= float(high):
            return f"size {expected / GIB:.3f} GiB is outside {low}–{high}"
    return None


def lay_over(example: Mapping[str, Any], done: Mapping[str, Any]) -> dict[str, Any]:
    """Return an example with what holds once a remedy was done in place of what it says of that."""
    merged = {key: value for key, value in example.items() if key not in EXPECTATION_KEYS}
    for key, value in done.items():
        before = merged.get(key, {})
        merged[key] = {**({"from": before} if isinstance(before, str) else before), **value}
    return merged


def _check_done(
    rule: CompiledRule, remedy: Remedy, matches: tuple[Mapping[str, Any], ...], rules: RuleSet
) -> Iterator[str]:
    """Say of which examples a remedy leaves the finding although it was done: it clears it, or says that half of it stays."""
    tried = False
    for number, example in enumerate(matches):
        name = f"examples.match.{number}"
        try:
            scope = example_scope(example, rules, name)
            if remedy.when is not None and truth(evaluate(parse(remedy.when), scope)) is not True:
                continue
            after = example_scope(lay_over(example, remedy.done or {}), rules, name)
        except (CompatcheckError, TypeError) as error:
            yield f"laid over {name}: {error}"
            continue
        tried = True
        decision = decide(rule, after)
        if decision.status == SILENT:
            continue
        before, left = (size(rules.texts(rule).sizes.expected, one)[0] for one in (scope, after))
        if before is None and "half" in (remedy.note or ""):
            continue
        if before is None or left is None or left > before / 2:
            needs = f", needs {', '.join(decision.needs)}" if decision.needs else ""
            yield f"the rule still speaks of {name} once it was done: {decision.status}{needs}"
        elif "half" not in (remedy.note or ""):
            yield f"{name} keeps {left / before:.0%} of its size once it was done: say that half of it or less is left"
    if not tried:
        yield "no match example under which this is a remedy: its condition is never true"


_BOUNDS = 2


def _is_list_of(value: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, kind) for one in value)


def example_truth(rules: RuleSet) -> Callable[[str, Mapping[str, Any]], bool | None]:
    """Return a function that evaluates an expression over an example, as the linter wants it."""
    scopes: dict[int, FactScope] = {}

    def decide_atom(expression: str, example: Mapping[str, Any]) -> bool | None:
        if id(example) not in scopes:
            scopes[id(example)] = example_scope(example, rules, "example")
        return truth(evaluate(parse(expression), scopes[id(example)]))

    return decide_atom


def check_rule(rule: Rule, rules: RuleSet, root: Path, check_evidence: CheckEvidence | None) -> list[Problem]:
    """Lint a rule and run its examples."""
    try:
        problems = list(lint_rule(rule, rules.releases, example_truth(rules), root, check_evidence))
    except CompatcheckError as error:
        problems = [Problem(Source(rule.path, "examples"), str(error))]
    compiled = rules.find(rule.id)
    if compiled is not None and rule.status == "active":
        examples = {"match": rule.examples.match, "no_match": rule.examples.no_match, "unknown": rule.examples.unknown}
        problems += [
            Problem(Source(rule.path, f"examples.{failure.kind}.{failure.number}"), failure.message)
            for failure in run_examples(compiled, examples, rules)
        ]
        problems += [
            Problem(Source(rule.path, f"remedies.{index}.done"), message)
            for index, remedy in enumerate(rule.remedies)
            if remedy.done
            for message in _check_done(compiled, remedy, rule.examples.match, rules)
        ]
    return problems
