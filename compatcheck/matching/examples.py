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
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from compatcheck.core.document import Document
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledRule, RuleSet
    from compatcheck.rules.lint import CheckEvidence
    from compatcheck.rules.rule import Rule
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
    return problems
