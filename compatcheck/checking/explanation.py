"""Why a rule matches the subjects of a command, with the arithmetic, or which fact rules it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.checking.checks import Checks, open_criteria
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.report import list_skipped
from compatcheck.checking.verdict import OF_ESTIMATES, judge
from compatcheck.core.errors import EXIT_CLEAN, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.frameworks.lines import LineFinder
from compatcheck.matching.explain import explain as explain_over
from compatcheck.rules.named_rule import find_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.checking.checks import Criteria
    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.core.source import Skipped
    from compatcheck.matching.explain import Explanation
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


class Explanations(NamedTuple):
    """One rule over every role of every subject."""

    explanations: tuple[Explanation, ...]
    skipped: tuple[Skipped, ...]
    """What was not read of the inputs."""
    exit_code: int


def explain(rule: str, asked: Request | Inspection, rules: RuleSet, environ: Mapping[str, str]) -> Explanations:
    """Show each condition of a rule with the facts it read, and its size in bytes step by step.

    Raises:
        UsageError: there is no such rule.
        CompatcheckError: nothing could be read at all.
    """
    inspection = as_inspection(asked)
    criteria = open_criteria(inspection, rules, Checks())
    found = find_rule(rule, rules)
    gathered = gather_all(inspection, rules, environ)
    lines = LineFinder(gathered.files)
    explained = tuple(
        entry
        for subject in gathered.subjects
        for entry in explain_over(found, _with_estimate(found.id, subject, criteria), rules, lines.with_line)
    )
    skipped = list_skipped(gathered, lines)
    if any(entry.named for entry in skipped):
        return Explanations(explained, skipped, EXIT_UNREADABLE_INPUT)
    return Explanations(explained, skipped, EXIT_CLEAN if explained else EXIT_NOTHING_TO_CHECK)


def _with_estimate(rule: str, subject: Subject, criteria: Criteria) -> Subject:
    """Return a subject with what its estimate came to, where a rule is about that."""
    if rule not in OF_ESTIMATES or (estimate := judge(subject, criteria).estimate) is None:
        return subject
    from compatcheck.checking.fit import state_estimate  # noqa: PLC0415 (only for these rules)

    return state_estimate(subject, estimate)
