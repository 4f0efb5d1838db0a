"""The remedies of findings, each tried out: what does not clear its finding, or brings in another that fails, is not advised.

A setting that leaves less than half of a finding is: a smaller batch, checkpoints.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from compatcheck.core.builds import label_of, with_label
from compatcheck.core.effects import MINOR_RELEASE
from compatcheck.core.fix import NO_REMEDY, VERSION, Change, install_command
from compatcheck.core.report import FindingRemedy
from compatcheck.core.summary import size_text
from compatcheck.fixing.evaluation import Evaluation, target_of, targets_of
from compatcheck.fixing.files import EditableFiles
from compatcheck.matching.remedies import condition_of, good_releases, write_remedy
from compatcheck.resolution.scope import COMPONENT_FACTS, FactScope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.fix import Plan
    from compatcheck.core.report import Finding
    from compatcheck.fixing.evaluation import Judge
    from compatcheck.resolution.pins import Pin
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledRule, RuleSet

_UNTRIED = frozenset({"env", "note"})
"""What a remedy asks for that is neither a release nor a setting."""
_RELEASES = frozenset({"upgrade", "downgrade"})
_VARIABLE = "env "
"""What a need that is a variable of the environment begins with."""
_MOST_TRIED = 8
"""Releases of a package that are tried for one remedy."""


def try_remedies(subject: Subject, findings: Sequence[Finding], rules: RuleSet, judge: Judge) -> tuple[Finding, ...]:
    """Give the certain findings of a subject those remedies that hold what they promise, with all that has to move along."""
    if not any(map(_is_tried, findings)):
        return tuple(findings)
    evaluation = Evaluation((subject,), rules, judge)
    return tuple(
        finding._replace(remedies=tuple(_try_all(finding, subject, rules, evaluation)))
        if _is_tried(finding)
        else finding
        for finding in findings
    )


def _is_tried(finding: Finding) -> bool:
    return finding.status == "affected" and finding.suppressed is None and bool(finding.remedies)


def _try_all(finding: Finding, subject: Subject, rules: RuleSet, evaluation: Evaluation) -> Iterator[FindingRemedy]:
    rule = rules.find(finding.rule_id)
    if rule is None:
        return
    remedies = rules.texts(rule).remedies
    if all(remedy["verb"] in _UNTRIED for remedy in remedies):
        yield from finding.remedies
        return
    scope = FactScope(subject.roles[finding.role], subject.environment, rules)
    files = EditableFiles(())
    texts = set()
    for remedy in remedies:
        written = write_remedy(rule, remedy, scope, documents=subject.documents, role=finding.role)
        if remedy["verb"] in _RELEASES:  # also where no release is sure to be good: trying tells
            tried = _try_releases(finding, rule, remedy, scope, evaluation) or _without_version(remedy, scope, written)
        elif written is None or remedy["verb"] in _UNTRIED:
            tried = written
        else:
            from compatcheck.fixing.settings import find_setting  # noqa: PLC0415 (only where a remedy is a setting)

            target, safety = remedy["target"], remedy["safety"]
            change = find_setting(subject, finding.role, target, safety, remedy["note"], rules, files)
            tried = None if change is None else _try_setting(finding, written, change, evaluation)
        if tried is not None and tried.text not in texts:  # two ranges may lead to one release
            texts.add(tried.text)
            yield tried


def _try_setting(
    finding: Finding, written: FindingRemedy, change: Change, evaluation: Evaluation
) -> FindingRemedy | None:
    left = _find_left(finding, change, evaluation)
    brings = _brings(finding, (change,), evaluation, left)
    if brings is None or evaluation.unread((change,)) is not None:
        return None
    text = f"{written.text} at {', '.join(change.places)}" if change.places else written.text
    if len({edit.path for edit in change.edits}) > 1:  # each file has a word of its own
        each = " and ".join(f"{line} at {place}" for place, line in change.where)
        text = f"set {each} ({', '.join(name for name, _ in change.facts)})"
    if left is not None and left.status == "possible":
        variables = ", ".join(need.removeprefix(_VARIABLE) for need in left.needs)
        text = f"{text}; {variables}, which is not known here, may keep it"
    elif left is not None:
        text = f"{text}; leaves {size_text(left.impact)}"
    return _say_brings(written._replace(text=text, settings=change.facts), brings)


def _find_left(finding: Finding, change: Change, evaluation: Evaluation) -> Finding | None:
    """Return what a setting leaves of a finding where that is not all: a smaller batch makes fewer logits, and makes them.

    What only a variable of the environment can bring back then, no setting clears for certain.
    """
    target, size = target_of(finding), finding.impact and finding.impact.expected_bytes
    left = next((one for one in evaluation.findings((change,)) if target_of(one) == target), None)
    if left is not None and left.status == "possible" and all(need.startswith(_VARIABLE) for need in left.needs):
        return left
    if not size or left is None or left.status != "affected":
        return None
    rest = None if left.impact is None else left.impact.expected_bytes
    return None if rest is None or rest > size / 2 else left


def _brings(
    finding: Finding, changes: Sequence[Change], evaluation: Evaluation, left: Finding | None = None
) -> list[Finding] | None:
    """Return the certain findings that changes bring in; None where they do not clear this one, or bring in what fails.

    What is only possible then is not cleared: nobody knows the defaults of that release. Nor is a remedy what makes a run need
    more than there is.
    """
    if evaluation.obstacle(changes) is not None or evaluation.overloads(changes):
        return None
    target, before = target_of(finding), targets_of(evaluation.before)
    after = [one for one in evaluation.findings(changes) if one.suppressed is None]
    if (left is None and target in targets_of(after)) or any(
        one.fails and target_of(one) not in evaluation.targets for one in after
    ):
        return None
    new = (one for one in after if one.status == "affected" and target_of(one) not in before)
    return [one for one in new if not (one.advice or one.folded)]


def _say_brings(remedy: FindingRemedy, brings: Iterable[Finding]) -> FindingRemedy:
    """Say behind a remedy what it brings in, below what fails."""
    said = [", ".join(filter(None, (one.rule_id, size_text(one.impact)))) for one in brings]
    return remedy._replace(text=f"{remedy.text}; brings in {'; '.join(said)}") if said else remedy


def _without_version(
    remedy: Mapping[str, Any], scope: FactScope, written: FindingRemedy | None
) -> FindingRemedy | None:
    """Keep a change of something that has no one release here, or is no package: it cannot be tried."""
    names = remedy["target"]
    untried = any(
        name in COMPONENT_FACTS or (one := scope.package(name)) is None or one.version is None for name in names
    )
    return written if untried else None


def _try_releases(
    finding: Finding, rule: CompiledRule, remedy: Mapping[str, Any], scope: FactScope, evaluation: Evaluation
) -> FindingRemedy | None:
    """Return the remedy with the nearest releases that hold what it promises, or with the pin that is in their way."""
    if not condition_of(remedy, scope):  # what is not known does not speak against it
        return None
    names, target, verb = list(remedy["target"]), remedy["target"], remedy["verb"]
    series = (
        zip(*(good_releases(rule, name, target, verb, scope, sure=sure) for name in names), strict=False)
        for sure in (False, True)
    )
    blocked: tuple[Pin, Mapping[str, str]] | None = None
    costly: FindingRemedy | None = None

    def move(releases: Sequence[str]) -> tuple[Mapping[str, str], tuple[Change, ...], Pin | None]:
        chosen = dict(zip(names, releases, strict=True))
        changes = tuple(_release(finding, name, release, scope) for name, release in chosen.items())
        return chosen, changes, evaluation.obstacle(changes)

    def refuses_itself(moved: tuple[Mapping[str, str], tuple[Change, ...], Pin | None]) -> bool:
        """Tell whether what moves requires another release of what is beside it: an older one may not."""
        return moved[2] is not None and moved[2].holder in names

    tried = (itertools.islice(itertools.filterfalse(refuses_itself, map(move, one)), _MOST_TRIED) for one in series)
    for chosen, changes, pin in itertools.chain.from_iterable(tried):
        if pin is not None:
            blocked = blocked or (pin, chosen)
        elif (brings := _brings(finding, changes, evaluation)) is not None:
            followers = [change for change in evaluation.complete(changes) if change.follows]
            more = {change.name: change.release or "" for change in followers}
            labelled = {one.name: one.after if one.ranged else one.version for one in (*changes, *followers)}
            written = write_remedy(rule, remedy, scope, labelled)
            if written is None:
                return None
            written = written._replace(releases=tuple({**chosen, **more}.items()))
            if followers:
                along = ", ".join(f"{one.name} {one.after if one.ranged else one.release}" for one in followers)
                written = written._replace(text=f"{written.text} with {along} ({followers[0].why})")
            written = _say_brings(written, brings)
            unread = evaluation.unread(changes)
            if unread is None:
                return written
            costly = costly or written._replace(text=f"{written.text}; then {unread.source} is {unread.reason}")
    if costly is not None or blocked is None:
        return costly
    pin, refused = blocked
    written = write_remedy(rule, remedy, scope, refused)
    way_out = f"{pin}, and no known release of {pin.holder} allows another: an override is against that pin"
    return None if written is None else written._replace(command=None, note=way_out)


def _release(finding: Finding, name: str, release: str, scope: FactScope) -> Change:
    package = scope.package(name)
    value = with_label(release, label_of(package.version)) if package is not None else release
    before = None if package is None else package.version
    subjects = frozenset({finding.subject})
    return Change(VERSION, name, before, value, subjects, MINOR_RELEASE, (0,), "a rule's remedy", release=release)


def agree_with(plan: Plan, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Let the remedies of what a plan clears begin with what the plan does, where they change nothing or something else."""
    moves = {change.name: change.release or "" for change in plan.changes if change.kind == VERSION}
    cleared = {target_of(finding) for finding in plan.cleared}
    fitting = {subject for subject, estimate in plan.outcomes if estimate.verdict.outcome == "fits"}

    def goes(finding: Finding) -> bool:
        return (finding.subject in fitting and finding.is_about_fit) or target_of(finding) in cleared

    def agrees(remedy: FindingRemedy) -> bool:
        return all(moves.get(name, release) == release for name, release in remedy.releases)

    stays = {
        target_of(finding): why
        for finding, why in plan.remaining
        if finding.is_about_fit or not (finding.remedies or why == NO_REMEDY)
    }

    def adjust(finding: Finding) -> Finding:
        if target_of(finding) in stays:
            return finding._replace(remedies=(FindingRemedy(stays[target_of(finding)], None, "unsafe"),))
        changing = [remedy for remedy in finding.remedies if remedy.releases or remedy.settings]
        if not goes(finding):
            return finding
        settings = tuple(fact for change in plan.changes for fact in change.facts)
        steps = {*moves.items(), *settings}
        planned = [remedy for remedy in changing if {*remedy.releases, *remedy.settings} & steps]
        if planned and all(map(agrees, changing)):
            planned_first = sorted(finding.remedies, key=lambda one: one not in planned)
            return finding._replace(remedies=tuple(planned_first))
        kept = () if finding.is_about_fit else tuple(remedy for remedy in finding.remedies if agrees(remedy))
        same = [remedy for remedy in kept if {*remedy.releases, *remedy.settings} == steps]
        if same:  # the plan is one of them
            return finding._replace(remedies=(*same, *(remedy for remedy in kept if remedy not in same)))
        words = ", ".join(change.instruction for change in plan.changes)
        command = install_command(plan.changes)
        safety = "safe" if all(change.safe for change in plan.changes) else "unsafe"
        text = f"as planned for all findings: {words}"
        whole = FindingRemedy(text, command, safety, releases=tuple(moves.items()), settings=settings)
        return finding._replace(remedies=(whole, *kept))

    return tuple(map(adjust, findings))
