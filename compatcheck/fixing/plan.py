"""The plans of a run: for each group of subjects that share files, the changes that clear what fails, as text and in words."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from compatcheck.core.effects import EFFECTS, MAJOR_RELEASE, worst_effect
from compatcheck.core.errors import InputError
from compatcheck.core.fix import NO_REMEDY, NOT_CHECKED, NOT_NEEDED, REFUSED, VERSION, Plan, Resolution
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.progress import follow
from compatcheck.core.units import format_bytes
from compatcheck.fixing.confirmation import Confirmed, Questions, search_confirmed
from compatcheck.fixing.evaluation import Evaluation, target_of, targets_of
from compatcheck.fixing.files import EditableFiles
from compatcheck.fixing.levers import find_levers
from compatcheck.fixing.search import Changes, Search, Shortage, State, by_series
from compatcheck.matching.remedies import say_unspelled
from compatcheck.memory.closed_form.verdict import SAFE
from compatcheck.resolution.pins import allows
from compatcheck.resolution.scope import FactScope

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.fix import Change
    from compatcheck.core.report import Finding
    from compatcheck.fixing.evaluation import Target, Verdicts
    from compatcheck.fixing.resolver import UvResolver
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

MAY_NOT_FIT = "_stack/run-may-not-fit"
"""What is left of a run that fits, but not for certain."""
_MOST_EXPLAINED = 3
"""Refused combinations that are looked at to say why a finding stays."""
_MOST_TO_EXPLAIN = 100
"""How often rules may be matched beyond what the search has taken, to say which pin is in the way of a change."""

NATIVE_NOTE = "the facts file describes the run: change it where the run is configured too"


class Ways(NamedTuple):
    """How releases are looked up and checked."""

    resolver: UvResolver | None
    list_releases: Callable[[str], Sequence[str]] | None = None
    """Asks an index for the final releases of a package, oldest first; None to stay with the known ones."""
    why_not: str | None = None
    """Why there is no resolver."""
    announce: Callable[[str], None] | None = None
    """Told what the resolver is asked, which takes seconds."""


def find_ways(*, offline: bool, say: Callable[[str], None] = lambda _: None) -> Ways:
    """Return uv and the configured index, where they are there and may be asked; `say` is told before they are."""
    from compatcheck.fixing.resolver import UvResolver, find_resolver  # noqa: PLC0415 (beside its use)

    if offline:
        return Ways(None, None, "--offline")
    resolver = find_resolver(say)
    if not isinstance(resolver, UvResolver):
        from compatcheck.core.installation import tell_remedy  # noqa: PLC0415 (only where it is missing)

        return Ways(None, None, f"{resolver.describe_absence()}; get it: {tell_remedy('uv')}")

    def list_releases(package: str) -> Sequence[str]:
        resolver.say_index()
        return _list_releases(package)

    return Ways(resolver, list_releases)


def _list_releases(package: str) -> Sequence[str]:
    from compatcheck.services.releases import fetch_releases  # noqa: PLC0415 (only with an index)

    try:
        found = fetch_releases(package)
    except InputError:
        return ()
    return [release.version for release in found if not (release.yanked or release.prerelease)]


def find_plans(
    subjects: Sequence[Subject],
    failing: Sequence[Finding],
    rules: RuleSet,
    judge: Verdicts,
    ways: Ways,
    most: int | None = None,
) -> tuple[list[Plan], int]:
    """Find the changes that clear what fails.

    Args:
        subjects: all that were read.
        failing: what is to be cleared.
        rules: the database.
        judge: gives the verdict on a subject.
        ways: how releases are looked up and checked.
        most: subjects that are planned for at most, a group's number counted once for each plan before; None for all.

    Returns:
        A plan for each group of subjects in which something fails, and how many times a subject was evaluated.
    """
    by_id = {subject.id: subject for subject in subjects}
    hit = {finding.subject for finding in failing}
    locked = {path for name in hit for path in EditableFiles.manifests_of(by_id[name], locked=True)}
    # The change of a lock is written into the manifest behind it, too.
    hit -= {name for name in hit if EditableFiles.manifests_of(by_id[name]) & locked}
    plans: list[Plan] = []
    evaluations = 0
    groups = group_by_files({name: EditableFiles.paths_of(one) or [name] for name, one in by_id.items()})
    for names in follow(groups, "planning changes"):
        if hit & set(names) and (most is None or len(names) * (len(plans) + 1) <= most):
            group = Group([by_id[name] for name in names], failing, rules, judge, ways)
            if most is None:  # who asks for a plan alone waits for one that looks at every role as often
                group.evaluation.most *= max(len(subject.roles) for subject in group.subjects) or 1
            plans.append(group.plan())
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


class Group:
    """Subjects that share files, with what can change in them."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        failing: Sequence[Finding],
        rules: RuleSet,
        judge: Verdicts,
        ways: Ways,
    ) -> None:
        """Collect what could change; nothing is searched yet."""
        names = {subject.id for subject in subjects}
        self.subjects = subjects
        self.rules = rules
        self.ways = ways
        self.failing = [finding for finding in failing if finding.subject in names]
        self.files = EditableFiles(subjects)
        self.levers = find_levers(subjects, self.failing, rules, self.files, ways.list_releases)
        self._blamed_levers = frozenset().union(*map(self.levers.blamed, self.failing))
        certain = frozenset(target_of(one)._replace(rule=MAY_NOT_FIT) for one in self.failing if one.is_about_fit)
        self.evaluation = Evaluation(subjects, rules, judge, targets_of(self.failing) | certain)
        self._unpriced = judge.unpriced
        self._matched: dict[tuple[int, ...], dict[Hashable, frozenset[str]]] = {}
        """The subjects of a variant, which live as long as the evaluation → what fails of it by matching alone."""
        self.questions = Questions(self.evaluation, self.levers, self.files, ways.resolver, ways.announce)
        self.shortage = True
        """Whether how much is missing counts, and not only that a run does not fit: each step towards it is one."""
        self.at_worst = True
        """Whether a run is to fit at worst, not only by what is expected of it."""
        self.nearest: tuple[Change, ...] = ()
        """What brings a run nearest to fitting that nothing makes fit."""
        self._blamed: dict[tuple[bool, bool, tuple[Change, ...]], Mapping[Hashable, frozenset[str]]] = {}
        self._effects: dict[Change, str | None] = {}
        self._own: dict[Change, Change] = {}
        self._prices: dict[Change, Change | None] = {}

    @property
    def count(self) -> int:
        """The evaluations so far."""
        return self.evaluation.count

    @property
    def most(self) -> int:
        """The count at which every search stops."""
        return self.evaluation.most

    def __call__(self, changes: Sequence[Change]) -> Mapping[Hashable, frozenset[str]]:
        """Return what fails after some changes, each with the levers it blames: the problem that is searched."""
        key = self.at_worst, self.shortage, tuple(changes)
        if key not in self._blamed:  # a search comes back to what it has tried again and again
            self._blamed[key] = self._blame(changes)
        return self._blamed[key]

    def _blame(self, changes: Sequence[Change]) -> Mapping[Hashable, frozenset[str]]:
        pin = self.evaluation.obstacle(changes)
        if pin is not None:
            moved = frozenset(change.lever for change in changes if change.kind == VERSION)
            return {**self(()), pin: moved}
        if self.evaluation.disagree(changes):
            return {**self(()), "settings": frozenset(change.lever for change in changes)}
        unread = self.evaluation.unread(changes)
        if unread is not None:
            return {**self(()), unread: frozenset(change.lever for change in changes)}
        if changes and (still := self._find_unmoved(changes)) is not None:
            return still
        found: dict[Hashable, frozenset[str]] = {}
        estimates = {subject.id: judged.estimate for subject, judged in self.evaluation.judged(changes)}
        for finding in self.evaluation.failing(changes):
            levers, steps = self.levers.blamed(finding), list[Shortage]()
            estimate = estimates[finding.subject]
            if finding.is_about_fit and estimate is not None:
                steps = list(_find_shortage(finding.subject, estimate, at_worst=self.at_worst))
                if not (steps or self.at_worst or finding.fails):
                    continue  # it is expected to fit
            target = target_of(finding)
            found[Shortage(target, 0) if finding.is_about_fit else target] = levers
            if finding.is_about_fit:  # what does not fit may not fit either: the second is a step towards fitting
                found[Shortage(target._replace(rule=MAY_NOT_FIT), 0)] = levers
            found.update((step, levers) for step in steps if self.shortage)
        return found

    def _find_unmoved(self, changes: Sequence[Change]) -> Mapping[Hashable, frozenset[str]] | None:
        """Return what fails where all that failed before still does, whether a run fits or not, so that none need be priced.

        None where something is cleared, or where what a run needs is what fails.
        """
        if self._fails(self.subjects).keys() != targets_of(self.failing):
            return None
        found = self._fails(self.evaluation.changed(changes))
        return found if targets_of(self.failing) <= found.keys() else None

    def _fails(self, subjects: Sequence[Subject]) -> Mapping[Hashable, frozenset[str]]:
        """Return what fails by matching alone, each with the levers it blames."""
        key = tuple(map(id, subjects))
        if key not in self._matched:
            verdicts = [self._unpriced(subject) for subject in subjects]
            self.evaluation.count += sum(one.work for one in verdicts)
            every = (one for verdict in verdicts for one in verdict.findings)
            self._matched[key] = {
                target_of(one): self.levers.blamed(one) for one in every if self.evaluation.counts(one)
            }
        return self._matched[key]

    def effect(self, change: Change) -> str | None:
        """Return what a change costs together with what has to move along, None where a pin is in the way."""
        if change not in self._effects:
            blocked = self.evaluation.obstacle((change,)) is not None
            together = self._complete((change,))
            self._effects[change] = None if blocked else worst_effect(one.effect for one in together)
        return self._effects[change]

    def _complete(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Return changes with what has to move along: that costs no less than the same move of the package by itself."""
        return tuple(self._as_lever(one) if one.follows else one for one in self.evaluation.complete(changes))

    def _as_lever(self, follower: Change) -> Change:
        moves = self.levers.changes.get(follower.lever, ()) if follower.lever in self._blamed_levers else ()
        same = next((one for one in moves if one.release == follower.release), follower)
        return follower._replace(effect=worst_effect((follower.effect, same.effect)))

    def _price(self, change: Change) -> Change | None:
        """Return a change that costs what it does with all that moves along, which is counted; None where a pin is in the way."""
        if change not in self._prices:
            self._prices[change], effect = None, self.effect(change)
            if effect is not None:
                # a floor moves nothing
                along = sum(one.follows and not one.ranged for one in self.evaluation.complete((change,)))
                self._prices[change] = priced = change._replace(effect=effect, along=along)
                self._own[priced] = change
        return self._prices[change]

    def search(self) -> Confirmed:
        """Search for what clears what fails; a run is to fit for certain unless that takes a major release or more.

        Where it does, a plan that costs less is enough with which the run is expected to fit.
        """
        found = self._search()
        if not self.evaluation.goals - targets_of(self.failing) or self._cost(found) < EFFECTS.index(MAJOR_RELEASE):
            return found
        self.at_worst, self.shortage = False, True
        expected = self._search()
        if not expected.state.blamed and self._cost(expected) < self._cost(found):
            return expected
        self.at_worst = True
        return found

    def _cost(self, found: Confirmed) -> int:
        return EFFECTS.index(worst_effect(one.effect for one in self._complete(found.state.changes)))

    def _search(self) -> Confirmed:
        """Search with what costs the person least, then with what costs more, until nothing fails any more."""
        least = 0
        best: Confirmed | None = None
        for level, changes in self._levels():  # what a resolver says is asked for what is worth asking about
            search = Search(changes, self)
            state = search.run()
            if best is None or len(state.blamed) < len(best.state.blamed):
                best, least = Confirmed(state, (), search.is_smallest(state)), level
            if not state.blamed:
                break
        assert best is not None  # noqa: S101 (there are effects)
        if best.state.blamed and self.count >= self.most:
            best = best._replace(smallest=False)
        found = (
            best if self.questions.resolver is None else None
        )  # nobody to ask: the same search would come to the same
        refused: list[tuple[Change, ...]] = []
        for level, changes in () if found is not None else self._levels():
            if found is not None and len(found.state.blamed) <= len(best.state.blamed):
                break
            if level < least:
                continue
            other = search_confirmed(changes, self, self.questions)
            refused += other.refused
            found = other if found is None or len(other.state.blamed) < len(found.state.blamed) else found
        assert found is not None  # noqa: S101 (there is a level)
        self.nearest = found.state.changes
        self.shortage = False  # what only brings a run nearer to fitting is taken back
        pruned = Search(self.levers.changes, self).prune(
            State(found.state.changes, self(found.state.changes)), self.questions.allow
        )
        own = tuple(self._own.get(change, change) for change in pruned.changes)
        return Confirmed(pruned._replace(changes=own), tuple(refused), found.smallest)

    def _levels(self) -> Iterator[tuple[int, Mapping[str, Sequence[Change]]]]:
        """Yield each level of `EFFECTS` that has changes which may clear what fails, with all that cost no more."""
        blamed = self._blamed_levers & self.levers.changes.keys()
        known = 0
        for level in range(len(EFFECTS)):
            every = Changes(self.levers.changes, partial(self._within, level, blamed))
            count = sum(len(every[name]) for name in blamed)
            if count > known:
                yield level, every
            known = count
        if not known:
            yield 0, Changes(self.levers.changes, partial(self._within, 0, blamed))

    def _within(self, level: int, blamed: Container[str], lever: str) -> Sequence[Change]:
        """Return the changes of a lever that cost no more than a level of `EFFECTS`, of a blamed one with what moves along."""
        found = [one for one in self.levers.changes[lever] if EFFECTS.index(one.effect) <= level]
        if lever not in blamed:
            return found
        priced = filter(None, map(self._price, found))
        return sorted((one for one in priced if EFFECTS.index(one.effect) <= level), key=self._order)

    @staticmethod
    def _order(change: Change) -> tuple[object, ...]:
        return EFFECTS.index(change.effect), change.along, change.distance, str(change.value)

    def plan(self) -> Plan:
        """Search, and write what was found as changes of files."""
        found = self.search()
        changes = self._complete(found.state.changes)
        cleared = self._cleared(changes)
        written = self.files.write(self._describe(changes), self.ways.resolver)
        judged = self.evaluation.judged(changes)
        after = [finding for _, one in judged for finding in one.findings]
        return Plan(
            subjects=tuple(subject.id for subject in self.subjects),
            changes=written.changes,
            files=written.files,
            resolution=self._resolution(written.changes)._replace(moved=written.moved),
            cleared=tuple(finding for finding in self.failing if target_of(finding) in cleared),
            remaining=tuple(
                (finding, self._why_left(finding, found.refused))
                for finding in self.failing
                if target_of(finding) not in cleared
            ),
            outcomes=tuple(
                (subject.id, one.estimate)
                for subject, one in judged
                if one.estimate is not None and one.estimate.phases
            ),
            brings=_rules_of(
                targets_of(one for one in after if one.suppressed is None) - targets_of(self.evaluation.before)
            ),
            exhausted=bool(changes[1:] or cleared < targets_of(self.failing))
            and (not found.smallest or self.questions.stopped),
            notes=(*self._open(), *self.levers.notes, *written.notes),
        )

    def _open(self) -> Iterator[str]:
        """Say of what a plan changes only for want of a statement that the statement may do as well."""
        for subject, one in self.evaluation.judged(()):
            if one.estimate is not None and one.estimate.possible:
                of = f"{subject.id}: " if len(self.subjects) > 1 else ""
                yield f"{of}state what decides it, and it may be enough: {one.estimate.verdict.condition}"

    def _cleared(self, changes: Sequence[Change], *, whole: bool = True) -> frozenset[Target]:
        """Return what changes clear, with all that moves along or, where they are not whole, without."""
        return targets_of(self.failing) - targets_of(self.evaluation.failing(changes, whole=whole))

    def _describe(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Say of each change where it is written and which findings come back without it, or go with it alone."""
        cleared = self._cleared(changes)
        failing = targets_of(self.evaluation.failing(changes)) | targets_of(self.failing)
        native = {
            document.source.path
            for subject in self.subjects
            for document in subject.documents
            if document.reader == "native"
        }
        described = []
        for change in changes:
            others = [other for other in changes if other is not change]
            without = cleared - self._cleared(others, whole=False)
            kept_out = _rules_of(targets_of(self.evaluation.failing(others, whole=False)) - failing)
            comes_in = f"without it {', '.join(kept_out)} would come in" if kept_out else None
            clears = _rules_of(without | (cleared & self._cleared([change], whole=False)))
            if change.kind != VERSION:
                told = NATIVE_NOTE if any(edit.path in native for edit in change.edits) else None
                note = "; ".join(filter(None, (change.note, told, comes_in))) or None
                described.append(change._replace(clears=clears, note=note))
                continue
            package = self.levers.packages.get(change.name)
            found = [] if package is None else self.files.edits(package, change)
            edits, places = tuple(edit for _, edit in found), tuple(place for place, _ in found)
            told = NATIVE_NOTE if any(edit.path in native for edit in edits) else None
            note = "; ".join(filter(None, (told, comes_in))) or None
            command = None if edits else self.files.command({change.name: change.version})
            described.append(change._replace(clears=clears, edits=edits, places=places, note=note, command=command))
        return tuple(described)

    def _resolution(self, changes: Sequence[Change]) -> Resolution:
        wanted = {change.name: (change,) for change in changes if change.kind == VERSION}
        if not wanted:
            return Resolution(NOT_NEEDED)
        answer = self.questions.ask(wanted)
        detail = answer.detail or (self.ways.why_not if answer.verdict == NOT_CHECKED else None)
        return Resolution(answer.verdict, detail, unbuilt=answer.unbuilt)

    def _why_left(self, finding: Finding, refused: Sequence[Sequence[Change]]) -> str:
        for changes in refused[:_MOST_EXPLAINED]:
            resolution = self._resolution(changes)
            if resolution.verdict == REFUSED and target_of(finding) in self._cleared(changes):
                moves = ", ".join(f"{change.name} {change.after}" for change in changes)
                return f"unresolvable: {moves} would clear it, but {resolution.detail}"
        for lever in sorted(self.levers.blamed(finding)):
            for nearest, *_ in by_series(self.levers.changes.get(lever, ())):
                change, pin = nearest, self.evaluation.obstacle((nearest,))
                if self.evaluation.count > self.evaluation.most + _MOST_TO_EXPLAIN:
                    break
                if pin is None or target_of(finding) not in self._cleared((change,), whole=False):
                    continue
                if pin.package == change.name:
                    return (
                        f"{pin}, and no known release of {pin.holder} allows {change.name} {change.after}; an override "
                        f"(uv: override-dependencies = ['{change.name}=={change.release}']) is against that pin"
                    )
                if not any(allows(pin.specifier, one) for one in self._versions(pin.package)):  # else it is but too old
                    return f"{pin}, and nothing that is known goes with {change.name} {change.after}"
        if finding.is_about_fit:
            return self._say_nearest(finding)
        if finding.remedies:
            return f"no change of a file was found; by hand: {finding.remedies[0].text}"
        return self._say_unspelled(finding) or NO_REMEDY

    def _say_unspelled(self, finding: Finding) -> str | None:
        """Say that a run's program has no setting for what the remedies of a finding set."""
        rule = self.rules.find(finding.rule_id)
        subject = next(one for one in self.subjects if one.id == finding.subject)
        if rule is None:
            return None
        scope = FactScope(subject.roles[finding.role], subject.environment, self.rules)
        return say_unspelled(rule, scope, subject.documents, finding.role)

    def _versions(self, name: str) -> Iterator[str]:
        """Yield the releases of a package that stand in the environments."""
        for subject in self.subjects:
            package = subject.environment.packages.get(name) if subject.environment is not None else None
            if package is not None and package.version is not None:
                yield package.version

    def _say_nearest(self, finding: Finding) -> str:
        """Say that nothing makes a run fit, and how near to it the best changes come."""
        words = "nothing that this tool can change makes it fit"
        before, estimate = (self._estimate(finding.subject, changes) for changes in ((), self.nearest))
        if before is not None and before.untold is not None:
            return before.untold
        if not self.nearest or estimate is None or not estimate.phases:
            return words
        needed = format_bytes(estimate.needed.expected)
        changes = " + ".join(change.instruction for change in self.nearest)
        return f"{words}; nearest is {changes}, which needs {needed}"

    def _estimate(self, subject: str, changes: Sequence[Change]) -> Estimate | None:
        """Return the estimate of a subject's run after some changes."""
        return next((one.estimate for of, one in self.evaluation.judged(changes) if of.id == subject), None)


_STEPS = 16
"""Steps in which what is missing is counted, for each doubling of what a device has: one is 4 % of the need."""


def _find_shortage(subject: str, estimate: Estimate, *, at_worst: bool) -> Iterator[Shortage]:
    """Yield the steps in which each phase of a run needs too much: one change may mend one phase of several.

    At worst is as the verdict has it (`compatcheck.memory.closed_form.verdict.judge`).
    """
    for phase in estimate.phases:
        worst = min(phase.size.high, max(int(phase.needed.expected / SAFE), phase.needed.high))
        needed = worst if at_worst else phase.needed.expected
        for step in range(count_steps(needed, estimate.verdict.limit_bytes or 0)):
            yield Shortage((subject, phase.role, phase.name), step)


def count_steps(needed: int, limit: int) -> int:
    """Count in how many steps what is missing is made up for."""
    return math.ceil(_STEPS * math.log2(needed / limit)) if needed > limit > 0 else 0


def _rules_of(targets: Iterable[Target]) -> tuple[str, ...]:
    """Return the rules of targets, each once."""
    return tuple(dict.fromkeys(target.rule for target in sorted(targets)))
