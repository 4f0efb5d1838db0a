"""The plans of a run: for each group of subjects that share files, the changes that clear what fails, as text and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.fix import NOT_CHECKED, NOT_NEEDED, REFUSED, VERSION, Plan, Resolution
from compatcheck.fixing.confirmation import Questions, search_confirmed
from compatcheck.fixing.evaluation import Evaluation, target_of, targets_of
from compatcheck.fixing.files import EditableFiles
from compatcheck.fixing.levers import find_levers
from compatcheck.fixing.settings import NATIVE_NOTE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from compatcheck.core.fix import Change
    from compatcheck.core.report import Finding
    from compatcheck.fixing.evaluation import Judge, Target
    from compatcheck.fixing.resolver import UvResolver
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_MOST_EXPLAINED = 3
"""Refused combinations that are looked at to say why a finding stays."""


class Ways(NamedTuple):
    """How releases are looked up and checked."""

    resolver: UvResolver | None
    list_releases: Callable[[str], Sequence[str]] | None = None
    """Asks an index for the final releases of a package, oldest first; None to stay with the known ones."""
    why_not: str | None = None
    """Why there is no resolver."""


def find_ways(*, offline: bool) -> Ways:
    """Return uv and the configured index, where they are there and may be asked."""
    from compatcheck.fixing.resolver import find_resolver  # noqa: PLC0415 (beside its use)

    if offline:
        return Ways(None, None, "--offline")
    resolver = find_resolver()
    if resolver is None:
        return Ways(None, None, "there is no uv; pip install 'compatcheck[bisect]' brings it")
    return Ways(resolver, _list_releases)


def _list_releases(package: str) -> Sequence[str]:
    from compatcheck.services.releases import fetch_releases  # noqa: PLC0415 (only with an index)

    try:
        found = fetch_releases(package)
    except InputError:
        return ()
    return [release.version for release in found if not (release.yanked or release.prerelease)]


def find_plans(
    subjects: Sequence[Subject], failing: Sequence[Finding], rules: RuleSet, judge: Judge, ways: Ways, *, unsafe: bool
) -> tuple[list[Plan], int]:
    """Find the changes that clear what fails.

    Returns:
        A plan for each group of subjects in which something fails, and how many times a subject was evaluated.
    """
    by_id = {subject.id: subject for subject in subjects}
    hit = {finding.subject for finding in failing}
    locked = {path for name in hit for path in EditableFiles.manifests_of(by_id[name], locked=True)}
    # The change of a lock is written into the manifest behind it, too.
    hit -= {name for name in hit if EditableFiles.manifests_of(by_id[name]) & locked}
    plans, evaluations = [], 0
    for names in group_by_files({name: EditableFiles.paths_of(one) or [name] for name, one in by_id.items()}):
        if hit & set(names):
            group = _Group([by_id[name] for name in names], failing, rules, judge, ways)
            plans.append(group.plan(unsafe=unsafe))
            evaluations += group.evaluation.count
    return plans, evaluations


def group_by_files(files: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Group subjects that share a file, directly or through others."""
    groups: list[tuple[set[str], list[str]]] = []
    for subject, paths in files.items():
        own, names = set(paths), [subject]
        joined = [group for group in groups if group[0] & own]
        groups = [group for group in groups if group not in joined]
        groups.append(
            (own.union(*(group[0] for group in joined)), [*(n for group in joined for n in group[1]), *names])
        )
    order = {subject: index for index, subject in enumerate(files)}
    return sorted(
        (tuple(sorted(names, key=order.__getitem__)) for _, names in groups), key=lambda names: order[names[0]]
    )


class _Group:
    """Subjects that share files, with what can change in them."""

    def __init__(
        self, subjects: Sequence[Subject], failing: Sequence[Finding], rules: RuleSet, judge: Judge, ways: Ways
    ) -> None:
        names = {subject.id for subject in subjects}
        self.subjects = subjects
        self.rules = rules
        self.ways = ways
        self.failing = [finding for finding in failing if finding.subject in names]
        self.files = EditableFiles(subjects)
        self.levers = find_levers(subjects, self.failing, rules, self.files, ways.list_releases)
        self.evaluation = Evaluation(subjects, rules, judge)
        self.questions = Questions(subjects, self.levers, self.files, ways.resolver)

    @property
    def count(self) -> int:
        """The evaluations so far."""
        return self.evaluation.count

    def __call__(self, changes: Sequence[Change]) -> Mapping[Hashable, frozenset[str]]:
        """Return what fails after some changes, each with the levers it blames: the problem that is searched."""
        failing = self.evaluation.failing(changes)
        return {target_of(finding): self.levers.blamed(finding) for finding in failing}

    def plan(self, *, unsafe: bool) -> Plan:
        """Search, first without unsafe changes, and write what was found as changes of files."""
        every = self.levers.changes
        harmless = {lever: [change for change in changes if change.safe] for lever, changes in every.items()}
        safe = search_confirmed(harmless, self, self.questions)
        full = search_confirmed(every, self, self.questions, safe.state.changes) if safe.state.blamed else safe
        if len(full.state.blamed) >= len(safe.state.blamed):
            full = full._replace(state=safe.state)
        chosen, other = (full, ()) if unsafe else (safe, full.state.changes)
        other = () if other == chosen.state.changes else other
        cleared = self._cleared(chosen.state.changes)
        with_unsafe = self._cleared(other) if other else frozenset()
        written = self.files.write(self._describe(chosen.state.changes), self.ways.resolver)
        after = self.evaluation.findings(written.changes)
        return Plan(
            subjects=tuple(subject.id for subject in self.subjects),
            changes=written.changes,
            files=written.files,
            resolution=self._resolution(written.changes)._replace(moved=written.moved),
            cleared=tuple(finding for finding in self.failing if target_of(finding) in cleared),
            remaining=tuple(
                (finding, self._why_left(finding, full.refused, unsafe=target_of(finding) in with_unsafe))
                for finding in self.failing
                if target_of(finding) not in cleared
            ),
            unsafe=self._describe(other),
            unsafe_clears=_rules_of(with_unsafe - cleared),
            unsafe_resolution=self._resolution(other) if other else None,
            brings=_rules_of(
                targets_of(one for one in after if one.suppressed is None) - targets_of(self.evaluation.before)
            ),
            exhausted=not (safe.smallest and full.smallest) or self.questions.stopped,
            notes=(*self.levers.notes, *written.notes),
        )

    def _cleared(self, changes: Sequence[Change]) -> frozenset[Target]:
        return targets_of(self.failing) - targets_of(one for one in self.evaluation.findings(changes) if one.fails)

    def _describe(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Say of each change where it is written and which findings come back without it, or go with it alone."""
        cleared = self._cleared(changes)
        native = {
            document.source.path
            for subject in self.subjects
            for document in subject.documents
            if document.reader == "native"
        }
        described = []
        for change in changes:
            without = cleared - self._cleared([other for other in changes if other is not change])
            clears = _rules_of(without | (cleared & self._cleared([change])))
            if change.kind != VERSION:
                described.append(change._replace(clears=clears))
                continue
            found = self.files.edits(self.levers.packages[change.name], change)
            edits, places = tuple(edit for _, edit in found), tuple(place for place, _ in found)
            note = NATIVE_NOTE if any(edit.path in native for edit in edits) else None
            command = None if edits else self.files.command({change.name: change.release or ""})
            described.append(change._replace(clears=clears, edits=edits, places=places, note=note, command=command))
        return tuple(described)

    def _resolution(self, changes: Sequence[Change]) -> Resolution:
        wanted = {change.name: (change,) for change in changes if change.kind == VERSION}
        if not wanted:
            return Resolution(NOT_NEEDED)
        answer = self.questions.ask(wanted)
        detail = answer.detail or (self.ways.why_not if answer.verdict == NOT_CHECKED else None)
        return Resolution(answer.verdict, detail, unbuilt=answer.unbuilt)

    def _why_left(self, finding: Finding, refused: Sequence[Sequence[Change]], *, unsafe: bool) -> str:
        if unsafe:
            return "only an unsafe change clears it"
        for changes in refused[:_MOST_EXPLAINED]:
            resolution = self._resolution(changes)
            if resolution.verdict == REFUSED and target_of(finding) in self._cleared(changes):
                moves = ", ".join(f"{change.name} {change.after}" for change in changes)
                return f"unresolvable: {moves} would clear it, but {resolution.detail}"
        if finding.remedies:
            return f"no change of a file was found; by hand: {finding.remedies[0].text}"
        return "no remedy is known"


def _rules_of(targets: Iterable[Target]) -> tuple[str, ...]:
    """Return the rules of targets, each once."""
    return tuple(dict.fromkeys(target.rule for target in sorted(targets)))
