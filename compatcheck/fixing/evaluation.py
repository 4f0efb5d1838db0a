"""What a run comes to after some changes: its subjects are resolved anew and judged whole, findings and estimate."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from compatcheck.collectors.python.pinned_build import rebuild
from compatcheck.core.builds import OF_PYTORCH, label_beside, label_of, with_label
from compatcheck.core.effects import SAME_RESULT, effect_of_move
from compatcheck.core.environment import Package
from compatcheck.core.fix import SETTING, VERSION, Change
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.core.versions import allowed_releases, contains, exact_version
from compatcheck.fixing.companions import Companions
from compatcheck.fixing.moves import describe_move, rewrite
from compatcheck.resolution.binaries import with_same_build
from compatcheck.resolution.imported import UNREAD
from compatcheck.resolution.pins import Pin
from compatcheck.resolution.resolve import resolve_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.fix import TextEdit
    from compatcheck.core.report import Finding
    from compatcheck.core.versions import Bounds
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledRule, RuleSet


MOST_IN_ALL, MOST_OF_ONE = 600, 100
"""How often rules are matched with a role at most for the plan of a group, and for each of its subjects where they are
many; once takes some 9 ms."""


_Key = tuple[str, frozenset[tuple[str, object]]]
"""Subject, and the changes that concern it."""


class Target(NamedTuple):
    """What tells a finding from another one, whatever else changes."""

    subject: str
    rule: str
    role: str


class Judged(Protocol):
    """The verdict on a subject."""

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings, marked where they fail."""

    @property
    def estimate(self) -> Estimate | None:
        """What its run needs."""

    @property
    def work(self) -> int:
        """How often rules were matched for it, once for each role."""


class Judge(Protocol):
    """The engine, the estimate, waivers and ``--fail-on`` of a run."""

    def __call__(self, subject: Subject) -> Judged:
        """Return the verdict on a subject."""


class Verdicts(Judge, Protocol):
    """The same, and what is known of it before its run is priced, which costs ten times as much."""

    def unpriced(self, subject: Subject) -> Judged:
        """Return what matching alone says of a subject."""


class Evaluation:
    """The subjects of a group under changes; one that none of them touches is not judged again."""

    def __init__(
        self, subjects: Sequence[Subject], rules: RuleSet, judge: Judge, goals: frozenset[Target] = frozenset()
    ) -> None:
        """Judge the subjects as they are; goals are findings that are to be cleared, all that fail unless they are said."""
        self.goals = goals
        self.subjects = subjects
        self.rules = rules
        self.judge = judge
        self.count = 0
        """How often rules were matched: with each role of each subject judged, and of each variant supposed of it."""
        self.most = max(MOST_IN_ALL, MOST_OF_ONE * len(subjects))
        """The count at which every search stops."""
        self._changed: dict[_Key, Subject] = {}
        self._reread: dict[tuple[str, tuple[TextEdit, ...]], tuple[Document, ...] | None] = {}
        """Subject and edits of its files → what is read of them then, whatever releases move beside."""
        self._known: dict[_Key, Judged] = {}
        self._companions = {one.id: companions for one, companions in _pinned_alike(subjects, rules)}
        """Subject → its pins; subjects with the same releases share them."""
        self.before = self.findings(())
        self._failed = targets_of(finding for finding in self.before if finding.fails)

    @property
    def targets(self) -> frozenset[Target]:
        """What is to be cleared."""
        return self.goals or self._failed

    def counts(self, finding: Finding) -> bool:
        """Tell whether a finding is to be cleared, or not to be brought in; one that nobody asked about may stay."""
        target = target_of(finding)
        return target in self.targets or (finding.fails and target not in self._failed)

    def complete(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Return changes with what has to move along because releases require it; where a pin is in the way, they alone."""
        found: dict[tuple[str, str], Change] = {}
        for subject in self.subjects:
            moved = self._follow(subject, changes)
            torch = self._torch_after(subject, changes, moved) if not isinstance(moved, Pin) else None
            for name, (release, pin) in moved.items() if not isinstance(moved, Pin) else ():
                change = self._follower(subject, name, release, pin, torch)
                same = found.get((name, release), change)
                found[name, release] = same._replace(subjects=same.subjects | change.subjects)
            for change in self._raise_floors(subject, changes, {} if isinstance(moved, Pin) else moved):
                same = found.get((change.name, change.after), change)
                found[change.name, change.after] = same._replace(subjects=same.subjects | change.subjects)
        return (*(change for change in changes if not change.follows), *found.values())

    def obstacle(self, changes: Sequence[Change]) -> Pin | None:
        """Return the pin that no release of its holder would lift, None where the changes fit together."""
        followed = (self._follow(subject, changes) for subject in self.subjects)
        return next((one for one in followed if isinstance(one, Pin)), None)

    @staticmethod
    def disagree(changes: Sequence[Change]) -> bool:
        """Tell whether two changes set one fact, or edit one place: each was made for the run as it is."""
        edits = sorted({edit for change in changes if change.kind == SETTING for edit in change.edits})
        if any(a.path == b.path and a.end > b.start for a, b in pairwise(edits)):
            return True
        names = [
            (subject, change.role, name)
            for change in changes
            for name, _ in change.facts
            for subject in change.subjects
        ]
        return len(names) != len(set(names))

    def _follow(self, subject: Subject, changes: Sequence[Change]) -> dict[str, tuple[str, Pin]] | Pin:
        moves = {
            change.name: change.release or ""
            for change in changes
            if change.kind == VERSION and not (change.ranged or change.follows) and subject.id in change.subjects
        }
        if not moves or subject.environment is None:
            return {}
        return self._companions[subject.id].complete(moves)

    def _raise_floors(
        self, subject: Subject, changes: Sequence[Change], moved: Mapping[str, tuple[str, Pin]]
    ) -> Iterator[Change]:
        """Yield higher floors of packages that are required as ranges.

        An installer may leave any release of a range: what a rule says of a moved package beside some would stay possible.
        """
        environment = subject.environment
        own = [one for one in changes if one.kind == VERSION and subject.id in one.subjects and not one.follows]
        releases = {one.name: one.version for one in own if not one.ranged} | {
            name: to for name, (to, _) in moved.items()
        }
        if environment is None or not releases:
            return
        floors: dict[str, list[str]] = {}
        for rule in filter(None, map(self.rules.find, sorted({one.rule for one in self.targets}))):
            for name, held in _held_beside(rule, releases):
                package = environment.packages.get(name)
                if package is None or package.version is not None or any(one.name == name for one in own):
                    continue
                allowed = allowed_releases(package.specifier or "", self.rules.releases(name))
                bad = [any(contains(bounds, one) != "no" for bounds in held) for one in allowed]
                if True in bad and not bad[-1]:  # above the last one that the rule is about
                    floors.setdefault(name, []).append(allowed[len(bad) - bad[::-1].index(True)])
        for name, found in floors.items():
            floor, written = max(found, key=self.rules.releases(name).index), environment.packages[name].specifier or ""
            value = rewrite(written, floor)
            why = f"an older {name} does not go with what moves"
            ids = frozenset({subject.id})
            yield Change(VERSION, name, written or None, value, ids, SAME_RESULT, (), why, release=floor, follows=True)

    def _torch_after(
        self, subject: Subject, changes: Sequence[Change], moved: Mapping[str, tuple[str, Pin]]
    ) -> str | None:
        """Return torch's version after changes, with the label of its build where that release was built so."""
        torch = None if subject.environment is None else subject.environment.packages.get("torch")
        own = next((one.version for one in changes if one.name == "torch" and subject.id in one.subjects), None)
        if torch is None or torch.version is None or own is not None or "torch" not in moved:
            return own or (None if torch is None else torch.version)
        release = moved["torch"][0]
        built = with_same_build("torch", torch.version, (release,), self.rules)
        return with_label(release, label_of(torch.version)) if built else release

    @staticmethod
    def _follower(subject: Subject, name: str, release: str, pin: Pin, torch: str | None) -> Change:
        assert subject.environment is not None  # noqa: S101 (a package of it moves)
        package = subject.environment.packages[name]
        before = package.version or ""
        version = with_label(release, label_beside(name, before, torch)) if name in OF_PYTORCH else release
        move = describe_move(before, release)
        effect = effect_of_move(move)
        why = f"{pin}; this release allows another" if pin.holder == name else str(pin)
        subjects = frozenset({subject.id})
        return Change(
            VERSION, name, before, version, subjects, effect, (), why, release=release, move=move, follows=True
        )

    def judged(self, changes: Sequence[Change], *, whole: bool = True) -> list[tuple[Subject, Judged]]:
        """Return the verdict on each subject, under changes with all that moves along or, not whole, under these alone."""
        found = []
        for subject, key, changed in self._resolve(changes, whole=whole):
            if key not in self._known:
                self._known[key] = self.judge(changed)
                self.count += self._known[key].work
            found.append((subject, self._known[key]))
        return found

    def changed(self, changes: Sequence[Change]) -> list[Subject]:
        """Return what each subject comes to after changes, with all that moves along."""
        return [changed for _, _, changed in self._resolve(changes)]

    def unread(self, changes: Sequence[Change]) -> Skipped | None:
        """Return what is read of a run now and no more after some changes.

        It is a statement whose key a release does not know, or a program of whose release nobody read what it does.
        """
        for subject, _, changed in self._resolve(changes):
            for role, facts in changed.roles.items():
                found = facts.get(UNREAD)
                if found is not None and UNREAD not in subject.roles.get(role, ()):
                    return Skipped(next(iter(found.sources), Source(subject.id)), f"run by {found.value}")
            before = {(one.source.path, one.source.key) for one in subject.skipped}
            lost = (one for one in changed.skipped if (one.source.path, one.source.key) not in before)
            if (first := next(lost, None)) is not None:
                return first
        return None

    def overloads(self, changes: Sequence[Change]) -> bool:
        """Tell whether a run is expected to need more after some changes than before, and more than its device has."""
        for (_, before), (_, after) in zip(self.judged(()), self.judged(changes), strict=True):
            if before.estimate is not None and after.estimate is not None and after.estimate.verdict.limit_bytes:
                needed = after.estimate.needed.expected
                if needed > max(before.estimate.needed.expected, after.estimate.verdict.limit_bytes):
                    return True
        return False

    def _resolve(self, changes: Sequence[Change], *, whole: bool = True) -> Iterator[tuple[Subject, _Key, Subject]]:
        """Yield each subject as it is, what tells its variant from others, and what it is after changes."""
        changes = self.complete(changes) if whole else changes
        for subject in self.subjects:
            own = [change for change in changes if subject.id in change.subjects]
            key = subject.id, frozenset((change.lever, change.facts or change.value) for change in own)
            if key not in self._changed:
                self._changed[key] = (
                    resolve_changed(subject, own, self.rules, self._read(subject, own)) if own else subject
                )
            yield subject, key, self._changed[key]

    def _read(self, subject: Subject, changes: Sequence[Change]) -> tuple[Document, ...] | None:
        edits = edits_of(changes)
        if edits and (subject.id, edits) not in self._reread:
            from compatcheck.fixing.rereading import reread  # noqa: PLC0415 (only where files are edited)

            self._reread[subject.id, edits] = reread(subject.as_read, edits)
        return self._reread.get((subject.id, edits))

    def findings(self, changes: Sequence[Change]) -> list[Finding]:
        """Return the findings of all subjects."""
        return [finding for _, judged in self.judged(changes) for finding in judged.findings]

    def failing(self, changes: Sequence[Change], *, whole: bool = True) -> list[Finding]:
        """Return the findings that fail or are goals.

        One of those that is only possible then is not cleared, nor is one about memory that nothing can estimate any more.
        """
        judged = self.judged(changes, whole=whole)
        every = (one for _, verdict in judged for one in verdict.findings)
        found = [one for one in every if self.counts(one)]
        sized = {subject.id for subject, one in judged if one.estimate is not None and one.estimate.phases}
        lost = [one for one in self.before if one.is_about_fit and self.counts(one) and one.subject not in sized]
        return [*found, *lost] if changes else found


def _held_beside(rule: CompiledRule, releases: Mapping[str, str]) -> Iterator[tuple[str, list[Bounds]]]:
    """Yield the other packages that a rule is about beside these releases, each with the ranges that it holds then."""
    beside: dict[str, list[Bounds]] = {}
    for clause in rule.clauses:
        ranged = {name: bounds for name, bounds in clause.packages.items() if not isinstance(bounds, str)}
        moved = releases.keys() & ranged.keys()
        if moved and all(contains(ranged[name], releases[name]) != "no" for name in moved):
            for name in ranged.keys() - moved:
                beside.setdefault(name, []).append(ranged[name])
    yield from beside.items()


def _pinned_alike(subjects: Sequence[Subject], rules: RuleSet) -> Iterator[tuple[Subject, Companions]]:
    known: dict[frozenset[tuple[str, str | None]], Companions] = {}
    for subject in subjects:
        environment = subject.environment
        if environment is not None:
            key = frozenset((name, package.version) for name, package in environment.packages.items())
            yield subject, known.setdefault(key, known.get(key) or Companions(environment, rules))


def target_of(finding: Finding) -> Target:
    """Return what identifies a finding."""
    return Target(finding.subject, finding.rule_id, finding.role)


def targets_of(findings: Iterable[Finding]) -> frozenset[Target]:
    """Return what identifies each of some findings."""
    return frozenset(map(target_of, findings))


def edits_of(changes: Iterable[Change]) -> tuple[TextEdit, ...]:
    """Return the edits of settings: those of releases are no text that a configuration is read from."""
    return tuple(edit for change in changes for edit in change.edits if change.kind == SETTING)


def resolve_changed(
    subject: Subject, changes: Iterable[Change], rules: RuleSet, documents: tuple[Document, ...] | None = None
) -> Subject:
    """Resolve a subject anew with changes, or with what its files read as now; settings that go into files are read there."""
    changes = list(changes)
    edits, environment = edits_of(changes), subject.environment
    if edits:
        from compatcheck.fixing.rereading import reread, reread_variables  # noqa: PLC0415 (only where files are edited)

        documents = reread(subject.as_read, edits) if documents is None else documents
        environment = reread_variables(environment, edits)
    as_read = subject.as_read if documents is None else documents
    stated = {name: value for change in changes for name, value in change.facts if not change.edits}
    changed = subject._replace(environment=_move_all(environment, changes), as_read=as_read)
    return resolve_with(changed, stated, rules)


def _move_all(environment: Environment | None, changes: Iterable[Change]) -> Environment | None:
    if environment is None:
        return None
    moved = {c.name: move(environment.packages[c.name], c) for c in changes if c.kind == VERSION}
    listed = {
        name: Package(name, None, Source(listing.path))
        for c in changes
        if c.listings
        for name, listing in zip(c.installs, c.listings, strict=True)
    }
    environment = environment._replace(packages={**listed, **environment.packages, **moved})
    return rebuild(environment) if "torch" in moved else environment


def move(package: Package, change: Change) -> Package:
    """Return a package as it is after a change."""
    value = str(change.value)
    version = value if package.version is not None else exact_version(value)
    return package._replace(version=version, specifier=None if version is not None else value)
