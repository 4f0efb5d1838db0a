"""What was understood of the inputs of a command: every fact with its value, origin and line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.report import describe_subject, holds_something, list_skipped
from compatcheck.core.errors import EXIT_CLEAN, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.frameworks.lines import LineFinder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.core.report import SubjectReport
    from compatcheck.core.source import Skipped
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


class Description(NamedTuple):
    """The subjects of a command, not matched against any rule."""

    subjects: tuple[SubjectReport, ...]
    skipped: tuple[Skipped, ...]
    """What was not read of the inputs."""
    exit_code: int


def describe(asked: Request | Inspection, rules: RuleSet, environ: Mapping[str, str]) -> Description:
    """Describe what was understood; conflicts, ``auto`` values nobody fills in, and unread keys among it.

    Raises:
        CompatcheckError: nothing could be read at all.
    """
    gathered = gather_all(as_inspection(asked), rules, environ)
    lines = LineFinder(gathered.files)
    subjects = tuple(
        _describe(subject, gathered.reasons.get(subject.id, gathered.chosen), lines) for subject in gathered.subjects
    )
    skipped = list_skipped(gathered, lines)
    if any(entry.named for entry in skipped):
        return Description(subjects, skipped, EXIT_UNREADABLE_INPUT)
    understood = any(map(holds_something, gathered.subjects))
    return Description(subjects, skipped, EXIT_CLEAN if understood else EXIT_NOTHING_TO_CHECK)


def _describe(subject: Subject, chosen: str | None, lines: LineFinder) -> SubjectReport:
    described = describe_subject(subject, (), chosen)
    facts = tuple(
        (role, fact._replace(sources=tuple(map(lines.with_line, fact.sources)))) for role, fact in described.facts
    )
    unread = tuple((lines.with_line(source), near) for source, near in described.unread_keys)
    gaps = tuple((lines.with_line(source), why) for source, why in described.gaps)
    return described._replace(facts=facts, unread_keys=unread, gaps=gaps)
