"""What could change in a group of subjects: releases of packages and settings that rules advise, the nearest first."""

from __future__ import annotations

from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from compatcheck.core.builds import OF_PYTORCH, label_beside, with_label
from compatcheck.core.effects import (
    CHANGES_TRAINING,
    EFFECTS,
    OLDER_RELEASE,
    SAME_RESULT,
    effect_of_move,
    worst_effect,
)
from compatcheck.core.fix import VERSION, Change
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import allowed_releases, compile_specifier, contains, order_of_final, parse_version
from compatcheck.fixing.companions import Companions
from compatcheck.fixing.moves import PATCH, Distances, describe_move, rewrite
from compatcheck.fixing.search import Changes
from compatcheck.matching.remedies import condition_of
from compatcheck.resolution.binaries import KIND as MISFIT
from compatcheck.resolution.binaries import built_with, with_same_build
from compatcheck.resolution.pins import KIND as BY_PINS
from compatcheck.resolution.scope import COMPONENT_FACTS, FactScope

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.environment import Package
    from compatcheck.core.report import Finding
    from compatcheck.fixing.files import EditableFiles
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


_COMPARED = {f"environment.{MISFIT}": ("torch",), f"environment.{BY_PINS}": ()}
"""Facts that name packages whose releases do not go together, with what else these are compared with."""


_RELEASES = frozenset({"upgrade", "downgrade"})


def _sets(remedy: Mapping[str, Any]) -> bool:
    return bool(remedy["verb"] == "set")


class Blame:
    """The packages whose releases may clear findings."""

    def __init__(self, rules: RuleSet, subjects: Iterable[Subject]) -> None:
        """Keep the rules, and the subjects as they are."""
        self._rules = rules
        self._subjects = {subject.id: subject for subject in subjects}

    def packages(self, finding: Finding) -> frozenset[str]:
        """Return the packages that a remedy of a finding moves, and those that a fact says do not go together.

        Another package that its rule asks about mends nothing: an older one is from before a default, a check or a feature of
        the run's. That a run may not fit names the packages of what decides it.
        """
        moving = (remedy["target"] for remedy in self.remedies(finding) if remedy["verb"] in _RELEASES)
        names = {name for target in moving for name in target}
        names |= {fact.name for fact in finding.facts if finding.is_about_fit and "." not in fact.name}
        for fact in finding.facts:
            if fact.name in _COMPARED and isinstance(fact.value, tuple):
                names |= {*map(str, fact.value), *_COMPARED[fact.name]}
        if not names.isdisjoint(COMPONENT_FACTS):
            names.add("torch")  # its build brings the CUDA libraries
        return frozenset(names)

    def remedies(self, finding: Finding) -> Iterator[Mapping[str, Any]]:
        """Yield the remedies of a finding's rule whose condition is not known to be false here."""
        rule = self._rules.find(finding.rule_id)
        subject = self._subjects.get(finding.subject)
        facts = None if subject is None else subject.roles.get(finding.role)
        if rule is None:
            return
        for remedy in self._rules.texts(rule).remedies:
            if (
                subject is None
                or facts is None
                or condition_of(remedy, FactScope(facts, subject.environment, self._rules))
            ):
                yield remedy


class Levers(NamedTuple):
    """Everything that could change, and what could not."""

    changes: Mapping[str, Sequence[Change]]
    """By lever, the ones that cost the person least first, and the nearest first of them."""
    packages: Mapping[str, Package]
    """The packages that can move, as they are."""
    releases: Mapping[str, Sequence[str]]
    """The releases each can move to, oldest first."""
    advised: Mapping[tuple[str, str], frozenset[str]]
    """Subject and rule → levers of the settings that its remedies name."""
    notes: tuple[str, ...]
    blame: Blame

    def blamed(self, finding: Finding) -> frozenset[str]:
        """Return the levers that may clear a finding."""
        rule = FIT if finding.is_about_fit else finding.rule_id
        return self.blame.packages(finding) | self.advised.get((finding.subject, rule), frozenset())


def find_levers(
    subjects: Sequence[Subject],
    failing: Sequence[Finding],
    rules: RuleSet,
    files: EditableFiles,
    list_releases: Callable[[str], Sequence[str]] | None,
) -> Levers:
    """Find what could change."""
    stated = _known_packages(subjects, rules)
    blame = Blame(rules, subjects)
    concerned = frozenset().union(*map(blame.packages, failing))
    against, upwards = _advised_against(failing, blame), _mended_by_newer(failing, blame)
    short, back = (_short_of_remedies(failing, rules, verb) for verb in ("upgrade", "downgrade"))
    changes: dict[str, Callable[[], Iterable[Change]]] = {}
    packages, releases, notes = {}, {}, []
    for name, found in stated.items():
        package = found[0][1]
        alike = len({(one.version, one.specifier) for _, one in found}) == 1
        why_not = _why_left(package, files)
        if not alike:
            notes.append(f"{name} is required differently by subjects that share files; it is left alone")
        elif why_not and name in concerned:
            notes.append(f"{name} ({package.source}) is left alone: {why_not}")
        if not alike or why_not:
            continue
        listed = list_releases(name) if name in concerned and list_releases is not None else ()
        known = _list_ways(package, (*rules.releases(name), *listed), failing, blame, rules)
        packages[name] = package
        if known:
            releases[name], ids = known, frozenset(subject for subject, _ in found)
            torch = stated["torch"][0][1].version if "torch" in stated else None
            label = label_beside(name, package.version, torch)
            minor = ".".join((torch or "").split(".")[:2])
            beside = frozenset(one for one in known if name in OF_PYTORCH and built_with(name, one, rules) == minor)
            said = _Advice(against.get(name, ()), name in upwards, short.get(name, ()), back.get(name, ()))
            changes[name] = partial(_moves, package, known, ids, said, label, beside)
    settings: dict[str, dict[str, Change]] = {}
    advised: dict[tuple[str, str], set[str]] = {}
    for subject in subjects:
        own = [finding for finding in failing if finding.subject == subject.id]
        if not any(one.is_about_fit or any(map(_sets, blame.remedies(one))) for one in own):
            continue
        from compatcheck.fixing.settings import find_settings, find_smaller_settings  # noqa: PLC0415 (only where one may help)

        advice = [(one.rule_id, change) for one in own for change in find_settings(subject, one, rules, files)]
        if any(one.is_about_fit for one in own):
            advice += [(FIT, change) for change in find_smaller_settings(subject, rules, files)]
        for rule_id, change in advice:
            advised.setdefault((subject.id, rule_id), set()).add(change.lever)
            same = settings.setdefault(change.lever, {})
            key = str([edit.new for edit in change.edits] or change.facts)
            before = same.get(key, change)
            effect = worst_effect((before.effect, change.effect))
            paths = {edit.path for edit in change.edits}
            read_by = {one.id for one in subjects if paths & {document.source.path for document in one.documents}}
            same[key] = before._replace(subjects=change.subjects | before.subjects | read_by, effect=effect)
    changes.update((lever, found.values) for lever, found in settings.items())
    by_finding = {key: frozenset(found) for key, found in advised.items()}
    made = Changes(changes, lambda lever: _sorted(changes[lever]()))
    return Levers(made, packages, releases, by_finding, tuple(notes), blame)


def _known_packages(subjects: Iterable[Subject], rules: RuleSet) -> dict[str, list[tuple[str, Package]]]:
    """Return the packages that something is known of, each with the subjects that have it."""
    found: dict[str, list[tuple[str, Package]]] = {}
    for subject in subjects:
        environment = subject.environment
        if environment is None:
            continue
        names = rules.packages | Companions(environment, rules).names
        for name, package in environment.packages.items():
            if name in names and name not in environment.components:
                found.setdefault(name, []).append((subject.id, package))
    return found


FIT = "fit"
"""Stands for every rule about whether a run fits: the same settings help against each."""


def _sorted(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: (EFFECTS.index(change.effect), change.distance, str(change.value)))


class _Advice(NamedTuple):
    """What the rules about what fails say of a package's releases."""

    against: Sequence[Any]
    """Ranges that change more than memory."""
    upwards: bool
    """Whether newer releases are a remedy and no older ones."""
    short: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    """By rule, the ranges that its remedies move to and those that it is about: a newer release in neither mends nothing."""
    back: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    """The same of rules that name an older release: one between it and those that a rule is about mends nothing, either."""

    def passes_over(self, releases: Sequence[str]) -> frozenset[str]:
        """Return the releases, of some from the oldest to the newest, that a rule goes back past."""
        passed: set[str] = set()
        for named, affected in self.back:
            places = [
                place for place, one in enumerate(releases) if any(contains(range_, one) == "yes" for range_ in named)
            ]
            between = releases[places[-1] + 1 :] if places else ()
            passed.update(one for one in between if all(contains(range_, one) == "no" for range_ in affected))
        return frozenset(passed)

    def mends(self, release: str) -> bool:
        """Tell whether no rule leaves out a newer release that is not one of its own, either."""
        return not any(
            all(contains(bounds, release) == "no" for bounds in (*named, *affected)) for named, affected in self.short
        )


def _moves(
    package: Package,
    releases: Sequence[str],
    subjects: frozenset[str],
    advice: _Advice,
    label: str,
    beside: Collection[str],
) -> Iterator[Change]:
    """Yield every move of a package: of a pin to each release, of a range to each floor.

    A pin gets the label of the build that goes with the torch beside it; the same release with that label is the nearest.

    Args:
        package: that moves.
        releases: that it can move to, the oldest first.
        subjects: that it is of.
        advice: what the rules about what fails say of its releases.
        label: that a release gets.
        beside: the releases that were built with the torch beside it.
    """
    written = package.version or package.specifier or ""
    current = _release_here(package, releases)
    if current is None or parse_version(current) is None:
        return  # an installer takes the newest release of a range: moves are counted from there
    seen, distances = {written, current}, Distances(current, releases)
    unsafe = {one for one in releases if any(contains(bounds, one) == "yes" for bounds in advice.against)}
    if back := [one for one in releases if one in unsafe and describe_move(current, one).endswith("down")]:
        unsafe.update(releases[: releases.index(back[-1])])  # what is older still is no safer way back
    older = [one for one in releases if describe_move(current, one).endswith("down")]
    passed = advice.passes_over(older)
    for release in releases:
        if package.version is not None:
            value = with_label(release, label)
        else:
            value = rewrite(written, release) if written else f">={release}"
        same = parse_version(release) == parse_version(current)
        if value in seen or (same and package.version is None):
            continue
        seen.add(value)
        move = describe_move(current, release)
        if release in passed or (not move.endswith("down") and not same and not advice.mends(release)):
            continue
        effect = effect_of_move(move)
        why = f"{'an older' if move.endswith('down') else 'a newer'} {move.partition(' ')[0]} release"
        if advice.upwards and move.endswith("down"):
            effect = CHANGES_TRAINING if unsafe else OLDER_RELEASE  # no less than the newer one, where that is unsafe
            why = "an older release, where a rule knows a newer one"
        elif release in unsafe:
            effect, why = CHANGES_TRAINING, "a rule says that this release changes more than memory"
        elif move == PATCH:
            why = "a newer release of the same series"
        if release in beside:
            effect, why = SAME_RESULT, "built as the torch beside it"
        distance = distances.to(release)
        yield Change(
            VERSION, package.name, written or None, value, subjects, effect, distance, why, release=release, move=move
        )


def _release_here(package: Package, releases: Sequence[str]) -> str | None:
    """Return the release that stands here: of a range the newest, which an installer takes."""
    return package.version or next(reversed(allowed_releases(package.specifier or "", releases) or [None]), None)


def _final(known: Sequence[str]) -> tuple[str, ...]:
    """Return the final releases, each once and the oldest first."""
    places = {place: release for release in known if (place := order_of_final(release)) is not None}
    return tuple(places[place] for place in sorted(places))


_LONG_PAST = timedelta(days=730)
"""Time before the release here from which on another is no way back unless a rule names it: it lacks more than the defect."""


def _list_ways(
    package: Package, releases: Sequence[str], failing: Iterable[Finding], blame: Blame, rules: RuleSet
) -> tuple[str, ...]:
    """Return the final releases of the build here, without what is long past, but for what remedies of what fails go back to."""
    known = _final(with_same_build(package.name, package.version, releases, rules))
    dates = rules.dates(package.name)
    here = dates.get((_release_here(package, known) or "").partition("+")[0])
    if here is None:
        return known
    least = str(date.fromisoformat(here) - _LONG_PAST)
    named = [
        compile_specifier(str(remedy["target"][package.name]))
        for finding in failing
        for remedy in blame.remedies(finding)
        if remedy["verb"] == "downgrade" and package.name in remedy["target"]
    ]
    return tuple(
        one for one in known if dates.get(one, here) >= least or any(contains(bounds, one) == "yes" for bounds in named)
    )


def _why_left(package: Package, files: EditableFiles) -> str | None:
    """Say why a package does not move; None where it can."""
    if package.is_optional and not package.brought_by:
        return "whether it is installed is not known"
    if {"direct_url", "vcs", "editable"} & package.details.keys():
        return "it is no release of an index"
    return None if files.can_move(package) else "no pin stands there that an edit or a program could move"


def _advised_against(failing: Sequence[Finding], blame: Blame) -> dict[str, list[object]]:
    """Collect the ranges that remedies of what fails move to and call unsafe."""
    found: dict[str, list[object]] = {}
    for finding in failing:
        for remedy in blame.remedies(finding):
            if remedy["verb"] in _RELEASES and remedy["safety"] != "safe":
                for name, specifier in remedy["target"].items():
                    found.setdefault(name, []).append(compile_specifier(str(specifier)))
    return found


def _mended_by_newer(failing: Sequence[Finding], blame: Blame) -> frozenset[str]:
    """Name the packages that remedies of what fails move up, and none moves down: what is older may lack more than the defect."""
    moved: dict[str, set[str]] = {"upgrade": set(), "downgrade": set()}
    for finding in failing:
        for remedy in blame.remedies(finding):
            if remedy["verb"] in moved:
                moved[remedy["verb"]].update(remedy["target"])
    return frozenset(moved["upgrade"] - moved["downgrade"])


def _short_of_remedies(
    failing: Iterable[Finding], rules: RuleSet, verb: str
) -> dict[str, list[tuple[list[object], list[object]]]]:
    """Collect, of rules about releases of a package whose remedies move it as the ``verb`` says, the ranges of both.

    A rule that ends where another defect begins names the release from which on both are gone.
    """
    found: dict[str, list[tuple[list[object], list[object]]]] = {}
    for rule in filter(None, map(rules.find, dict.fromkeys(finding.rule_id for finding in failing))):
        remedies = [one for one in rules.texts(rule).remedies if one["verb"] in _RELEASES]
        for name in dict.fromkeys(name for one in remedies if one["verb"] == verb for name in one["target"]):
            affected = [clause.packages.get(name) for clause in rule.clauses]
            if all(isinstance(bounds, list) for bounds in affected):
                named = [compile_specifier(str(one["target"][name])) for one in remedies if name in one["target"]]
                found.setdefault(name, []).append((list(named), affected))
    return found
