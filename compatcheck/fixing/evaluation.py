"""What fails after some changes: each subject is resolved anew and judged by the whole engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from compatcheck.collectors.python.pinned_build import rebuild
from compatcheck.core.fix import SETTING, VERSION
from compatcheck.core.source import Source
from compatcheck.core.versions import exact_version
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.scope import version_need

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.environment import Package
    from compatcheck.core.facts import Value
    from compatcheck.core.fix import Change
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


class Target(NamedTuple):
    """What tells a finding from another one, whatever else changes."""

    subject: str
    rule: str
    role: str


class Judge(Protocol):
    """The engine, waivers and ``--fail-on`` of a run."""

    def __call__(self, subject: Subject) -> Sequence[Finding]:
        """Return the findings of a subject, marked where they fail."""


class Evaluation:
    """The subjects of a group under changes; one that none of them touches is not judged again."""

    def __init__(self, subjects: Sequence[Subject], rules: RuleSet, judge: Judge) -> None:
        """Judge the subjects as they are."""
        self.subjects = subjects
        self.rules = rules
        self.judge = judge
        self.count = 0
        """Subjects judged, each time."""
        self._known: dict[tuple[str, frozenset[tuple[str, Value]]], Sequence[Finding]] = {}
        self.before = self.findings(())
        self.targets = targets_of(finding for finding in self.before if finding.fails)

    def findings(self, changes: Sequence[Change]) -> list[Finding]:
        """Return the findings of all subjects."""
        found: list[Finding] = []
        for subject in self.subjects:
            own = [change for change in changes if subject.id in change.subjects]
            key = subject.id, frozenset((change.lever, change.value) for change in own)
            if key not in self._known:
                self.count += 1
                self._known[key] = self.judge(resolve_changed(subject, own, self.rules))
            found += self._known[key]
        return found

    def failing(self, changes: Sequence[Change]) -> list[Finding]:
        """Return the findings that fail, with those that a range only may clear: an installer takes any release of it."""
        ranged = {version_need(change.name) for change in changes if change.ranged}
        return [
            finding
            for finding in self.findings(changes)
            if finding.fails or (ranged & set(finding.needs) and target_of(finding) in self.targets)
        ]


def target_of(finding: Finding) -> Target:
    """Return what identifies a finding."""
    return Target(finding.subject, finding.rule_id, finding.role)


def targets_of(findings: Iterable[Finding]) -> frozenset[Target]:
    """Return what identifies each of some findings."""
    return frozenset(map(target_of, findings))


def resolve_changed(
    subject: Subject, changes: Iterable[Change], rules: RuleSet, documents: tuple[Document, ...] | None = None
) -> Subject:
    """Resolve a subject anew with changes, or with what its files read as now."""
    stated = {c.name: (c.value, Source("--set", c.name)) for c in changes if c.kind == SETTING}
    environment = subject.environment
    if environment is not None:
        moved = {c.name: move(environment.packages[c.name], c) for c in changes if c.kind == VERSION}
        environment = environment._replace(packages={**environment.packages, **moved})
        environment = rebuild(environment) if "torch" in moved else environment
    return resolve(
        subject.id,
        rules=rules,
        environment=environment,
        documents=subject.documents if documents is None else documents,
        hardware=subject.hardware,
        settings={**subject.settings, **stated},
    )


def move(package: Package, change: Change) -> Package:
    """Return a package as it is after a change."""
    value = str(change.value)
    version = value if package.version is not None else exact_version(value)
    return package._replace(version=version, specifier=None if version is not None else value)
