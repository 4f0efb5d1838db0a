"""Find the changes of one run: group its subjects by the files they share, search each group, prove the new texts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.checking.checks import Criteria
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.report import build_report, mark_failing
from compatcheck.checking.shared import read_shared
from compatcheck.core.errors import InputError
from compatcheck.core.fix import NOT_CHECKED, NOT_NEEDED, REFUSED, RESOLVED, Change, Fix, Plan, Resolution
from compatcheck.core.textfile import pretend
from compatcheck.core.versions import compile_specifier, parse_version
from compatcheck.fixing.edits.project import any_of, write_requirements
from compatcheck.fixing.files import Files
from compatcheck.fixing.moves import describe_move, is_patch_up
from compatcheck.fixing.parts import MOST_TOGETHER, search_parts
from compatcheck.fixing.problem import Axis, Case, Releases, Setting, group_by_files, rules_of, what_clears
from compatcheck.fixing.reevaluation import Judge
from compatcheck.fixing.resolver import DEFAULT_PYTHON, Demand
from compatcheck.fixing.search import search
from compatcheck.fixing.settings import NATIVE_NOTE, find_settings
from compatcheck.matching.engine import match
from compatcheck.resolution.binaries import KIND as MISFIT
from compatcheck.resolution.binaries import PINNED, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from compatcheck.checking.checks import Checks
    from compatcheck.checking.inspection import Inspection as Inputs
    from compatcheck.checking.request import Gathered
    from compatcheck.checking.waivers import Waivers
    from compatcheck.core.environment import Package
    from compatcheck.core.fail_on import Threshold
    from compatcheck.core.fix import FileChange
    from compatcheck.core.report import Finding, Report
    from compatcheck.fixing.resolver import UvResolver
    from compatcheck.fixing.search import Best, Choice
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


_MOST_EXPLAINED = 3
"""Refused combinations that are looked at to say why a finding stays."""


class Judging(NamedTuple):
    """What makes a finding count."""

    rules: RuleSet
    checks: Checks
    threshold: Threshold
    waivers: Waivers | None

    def report(self, gathered: Gathered) -> Report:
        """Check subjects."""
        return build_report(gathered, Criteria(self.rules, self.checks, self.threshold, self.waivers))

    def findings(self, subject: Subject) -> list[Finding]:
        """Match one subject, as a report has its findings."""
        return [self.mark(found, subject) for found in match(subject, self.rules, self.checks.selects).findings]

    def mark(self, finding: Finding, subject: Subject) -> Finding:
        """Lay the waivers over a finding and mark it where it fails."""
        (kept,) = (finding,) if self.waivers is None else self.waivers.apply((finding,), subject)
        return mark_failing(kept, (subject,), self.threshold, strict=self.checks.strict)


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


def find_fix(plan: Inputs, judging: Judging, ways: Ways, *, unsafe: bool) -> Fix:
    """Find the changes that clear what fails.

    Args:
        plan: what is read.
        judging: which findings count.
        ways: how releases are looked up and checked.
        unsafe: whether unsafe changes are made too.

    Raises:
        CompatcheckError: nothing could be read at all.
    """
    gathered = gather_all(plan, judging.rules, os.environ)
    report = judging.report(gathered)
    failing = {finding.subject for finding in report.findings if finding.fails}
    if not failing:
        return Fix(report, (), applied=False, exit_code=report.exit_code)
    cases = {case.subject.id: case for case in _cases(plan, gathered, judging.rules)}
    groups = group_by_files({name: Files.paths_of(case.subject) or [name] for name, case in cases.items()})
    plans, evaluations = [], 0
    behind = {
        name for name in failing if name in cases and Files.manifests_of(cases[name].subject) & _locked(cases, failing)
    }
    for names in groups:
        if (failing - behind) & set(names):
            group = _Group([cases[name] for name in names], report, judging, ways)
            plans.append(group.plan(unsafe=unsafe))
            evaluations += group.problem.evaluations
    plans = _prove(plans, plan, report, judging)
    asked = 0 if ways.resolver is None else ways.resolver.asked
    return Fix(report, tuple(plans), applied=False, exit_code=0, evaluations=evaluations, resolutions=asked)


def _locked(cases: Mapping[str, Case], names: set[str]) -> set[str]:
    """Return the manifests behind the locks of these subjects: the change of a lock is written into them too."""
    return {path for name in names if name in cases for path in Files.manifests_of(cases[name].subject, locked=True)}


def _cases(plan: Inputs, gathered: Gathered, rules: RuleSet) -> list[Case]:
    cases = []
    shared = {request.run: read_shared(request, rules, os.environ) for request in plan.requests}
    for subject in gathered.subjects:
        run = next((name for name in shared if name is not None and subject.id.startswith(f"{name}: ")), None)
        own = shared.get(run) or next(iter(shared.values()))
        hardware = list(own.hardware)
        request = next(request for request in plan.requests if run is None or request.run == run)
        if not request.paths and request.gpu is None and request.here:
            from compatcheck.collectors.machine.driver import collect_hardware  # noqa: PLC0415 (not for files)

            hardware.append((collect_hardware(os.environ), False))
        if subject.environment is not None and subject.environment.hardware is not None:
            hardware.append((subject.environment.hardware, False))
        cases.append(Case(subject, tuple(hardware), own.settings))
    return cases


class _Group:
    """Subjects that share files, with what can change in them."""

    def __init__(self, cases: list[Case], report: Report, judging: Judging, ways: Ways) -> None:
        self.cases = cases
        self.judging = judging
        self.ways = ways
        self.rules = judging.rules
        self.notes: list[str] = []
        self._after: dict[tuple[tuple[str, str], ...], set[tuple[str, str, str]]] = {}
        self.files = Files([case.subject for case in cases])
        names = {case.subject.id for case in cases}
        self.failing = [finding for finding in report.findings if finding.fails and finding.subject in names]
        self.axes = self._movable()
        self.settings, self.setting_edits = self._find_settings()
        ask = None if ways.resolver is None else self.ask
        judge = Judge(judging.rules, judging.checks.selects, judging.mark)
        self.problem = Releases(cases, judge, self.axes, self.settings, ask)

    def _movable(self) -> dict[str, Axis]:
        stated: dict[str, list[Package]] = {}
        for case in self.cases:
            environment = case.subject.environment
            for name, package in () if environment is None else environment.packages.items():
                if (name in self.rules.packages or name in PINNED) and name not in environment.components:  # type: ignore[union-attr]
                    stated.setdefault(name, []).append(package)
        concerned = {fact.name for finding in self.failing for fact in finding.facts}
        for finding in self.failing:
            for fact in finding.facts:
                if fact.name == f"environment.{MISFIT}" and isinstance(fact.value, tuple):
                    concerned.update(fact.value)
        axes = {}
        for name, packages in stated.items():
            written = {(package.version, package.specifier) for package in packages}
            details = packages[0].details
            fixed = {"direct_url", "vcs", "editable"} & set(details)
            if "presence" in details and "extra" not in details:
                fixed.add("presence")
            if len(written) > 1:
                self.notes.append(f"{name} is required differently by subjects that share files; it is left alone")
            if len(written) > 1 or fixed or not self.files.can_move(packages[0]):
                if len(written) == 1 and name in concerned:
                    self.notes.append(f"{name} ({packages[0].source}) is left alone: {_why_left(fixed)}")
                continue
            built = (self.rules.section(f"tables/{TABLE}") or {}).get(name, ())
            known = [release for release in (*self.rules.releases(name), *built) if _is_final(release)]
            if name in concerned and self.ways.list_releases is not None:
                known += [release for release in self.ways.list_releases(name) if _is_final(release)]
            unique = {parse_version(release): release for release in known}
            releases = tuple(unique[version] for version in sorted(filter(None, unique)))
            if releases:
                axes[name] = Axis(packages[0], releases)
        return axes

    def _find_settings(self) -> tuple[dict[str, Setting], dict[str, tuple[object, ...]]]:
        settings: dict[str, Setting] = {}
        edits: dict[str, tuple[object, ...]] = {}
        for case in self.cases:
            own = [finding for finding in self.failing if finding.subject == case.subject.id]
            for found, change in find_settings(case, own, self.rules, self.files):
                before = settings.get(found.axis, found)
                subjects = before.subjects | found.subjects
                settings[found.axis] = found._replace(subjects=subjects, safe=before.safe and found.safe)
                edits[found.axis] = change
        return settings, edits

    # The resolver.

    def ask(self, wanted: Mapping[str, Sequence[str]]) -> tuple[str, str | None]:
        """Ask whether every project of the group resolves with these versions; what does not as it stands tells nothing."""
        verdicts: list[tuple[str, str | None]] = []
        for demand, before in zip(self._demands(wanted), self._demands({}), strict=True):
            assert self.ways.resolver is not None  # noqa: S101 (asked only with one)
            answer = self.ways.resolver.resolve(demand)
            if answer.verdict == REFUSED:
                base = self.ways.resolver.resolve(before)
                if base.verdict != RESOLVED:
                    verdicts.append((NOT_CHECKED, f"the project as it is does not resolve: {base.detail}"))
                    continue
            detail = (
                answer.detail
                if answer.verdict != RESOLVED
                else f"for CPython {demand.python or DEFAULT_PYTHON} on Linux"
            )
            verdicts.append((answer.verdict, detail))
        order = (REFUSED, NOT_CHECKED, RESOLVED)
        return min(
            verdicts,
            key=lambda verdict: order.index(verdict[0]),
            default=(NOT_CHECKED, "no file states what is required"),
        )

    def _demands(self, wanted: Mapping[str, Sequence[str]]) -> list[Demand]:
        releases = {name: axis.releases for name, axis in self.axes.items()}
        python = next(
            (
                case.subject.environment.python
                for case in self.cases
                if case.subject.environment is not None and case.subject.environment.python
            ),
            None,
        )
        demands = []
        for project in self.files.projects.values():
            requirements = write_requirements(project.requirements, wanted, releases)
            constraints = write_requirements(project.constraints, wanted, releases)
            stated = {item.name for item in project.statements}
            if project.lock is not None:
                requirements += tuple(
                    f"{name}{any_of(values, releases.get(name, ()))}"
                    for name, values in wanted.items()
                    if name not in stated
                )
            if requirements:
                minor = project.python if python is None else ".".join(python.split(".")[:2])
                demands.append(Demand(requirements, constraints, project.options, minor))
        if not self.files.projects:
            pins = tuple(
                f"{name}{any_of(wanted[name], axis.releases)}"
                if name in wanted
                else f"{name}=={(axis.package.version or '').partition('+')[0]}"
                for name, axis in self.axes.items()
                if axis.package.version
            )
            demands.append(Demand(pins, (), (), None if python is None else ".".join(python.split(".")[:2])))
        return demands

    # The plan.

    def plan(self, *, unsafe: bool) -> Plan:
        """Search, and write what was found as changes of files."""
        choices = self.problem.choices(self._advised_against())
        safe_axes = {name: [choice for choice in found if choice.safe] for name, found in choices.items()}
        if len(self.settings) > MOST_TOGETHER:
            safe = search_parts(self.problem, safe_axes)
            full = safe if not safe.remaining else search_parts(self.problem, choices)
        else:
            safe = search(self.problem, self.problem.select(safe_axes))
            known = 0 if safe.exhausted or safe.refused else safe.remaining
            full = safe if not safe.remaining else search(self.problem, self.problem.select(choices), safe_leaves=known)
        better = (full.remaining, full.unsafe) != (safe.remaining, safe.unsafe) and full.remaining < safe.remaining
        chosen = full if unsafe and better else safe
        left = full if better and not unsafe else None
        described = self._describe(chosen)
        files, commands, moved, lock_note = self._write(chosen)
        changes = tuple(change._replace(command=commands.get(change.name, change.command)) for change in described)
        cleared, remaining, brings = self._outcome(chosen, left, full)
        return Plan(
            subjects=tuple(case.subject.id for case in self.cases),
            changes=changes,
            files=files,
            resolution=self._resolution(chosen, moved),
            cleared=cleared,
            remaining=remaining,
            unsafe=() if left is None else self._describe(left),
            unsafe_clears=() if left is None else rules_of(_keys(self._cleared(left)) - _keys(cleared)),
            unsafe_resolution=None if left is None else self._resolution(left, ()),
            brings=brings,
            exhausted=safe.exhausted or full.exhausted or self.problem.stopped,
            notes=(*self.notes, *lock_note),
        )

    def _advised_against(self) -> dict[str, list[object]]:
        """Collect the ranges that remedies of what fails move to and call unsafe."""
        found: dict[str, list[object]] = {}
        for finding in self.failing:
            rule = self.rules.find(finding.rule_id)
            for remedy in () if rule is None else self.rules.texts(rule).remedies:
                if remedy["verb"] in {"upgrade", "downgrade"} and remedy["safety"] != "safe":
                    for name, specifier in remedy["target"].items():
                        found.setdefault(name, []).append(compile_specifier(str(specifier)))
        return found

    def _describe(self, best: Best) -> tuple[Change, ...]:
        clears = what_clears(self.problem, best.choices) if best.choices else {}
        return tuple(self._describe_one(choice, rules_of(sorted(clears[choice.axis]))) for choice in best.choices)

    def _describe_one(self, choice: Choice, clears: tuple[str, ...]) -> Change:
        setting = self.settings.get(choice.axis)
        if setting is not None:
            name, value = next(iter(setting.facts.items()))
            place, before = self.files.place_of_setting(self.setting_edits[choice.axis])
            why = "the rule calls it safe" if setting.safe else "the rule says that it changes more than memory"
            return Change(
                "setting", name, before, _word(value), None, choice.safe, why, (place,), clears, note=setting.note
            )
        axis = self.axes[choice.axis]
        target = self.problem.release_of(choice)
        move = describe_move(self.problem.current_of(choice.axis), target)
        if choice.safe:
            why = "a newer release of the same series"
        elif is_patch_up(move):
            why = "a rule says that this release changes more than memory"
        else:
            why = f"{'an older' if move.endswith('down') else 'a newer'} {move.partition(' ')[0]} release"
        edits = self.files.edits(choice.axis, axis, choice.value, target)
        command = None if edits else self.files.command({choice.axis: target})
        places = tuple(place for place, _ in edits)
        native = {
            document.source.path
            for case in self.cases
            for document in case.subject.documents
            if document.reader == "native"
        }
        described = any(edit.path in native for _, edit in edits)
        note = NATIVE_NOTE if described else None
        before = axis.written or None
        return Change(
            "version", choice.axis, before, choice.value, move, choice.safe, why, places, clears, command, note
        )

    def _write(
        self, best: Best
    ) -> tuple[tuple[FileChange, ...], dict[str, str], tuple[tuple[str, str | None, str | None], ...], tuple[str, ...]]:
        """Return the changed files, commands by package, what moves along in a lock, and remarks."""
        edits = [
            edit
            for choice in best.choices
            if choice.axis in self.axes
            for _, edit in self.files.edits(
                choice.axis, self.axes[choice.axis], choice.value, self.problem.release_of(choice)
            )
        ]
        for choice in best.choices:
            if choice.axis in self.setting_edits:
                edits += [edit for edit in self.setting_edits[choice.axis] if edit is not None]  # type: ignore[misc]
        targets = {choice.axis: self.problem.release_of(choice) for choice in best.choices if choice.axis in self.axes}
        changes = self.files.change(edits)
        if not targets or not self.files.locks:
            return changes, {}, (), ()
        return self.files.change_lock(changes, targets, self.ways.resolver)

    def _resolution(self, best: Best, moved: tuple[tuple[str, str | None, str | None], ...]) -> Resolution:
        if not any(choice.axis in self.axes for choice in best.choices):
            return Resolution(NOT_NEEDED)
        verdict, detail = self.problem.reason(best.choices)
        if verdict == NOT_CHECKED:
            detail = detail or self.ways.why_not
        unbuilt: tuple[str, ...] = ()
        if self.ways.resolver is not None and verdict == RESOLVED:
            wanted = {choice.axis: (choice.value,) for choice in best.choices if choice.axis in self.axes}
            answers = [self.ways.resolver.resolve(demand) for demand in self._demands(wanted)]
            unbuilt = tuple(sorted({name for answer in answers for name in answer.unbuilt}))
        return Resolution(verdict, detail, moved, unbuilt)

    def _cleared(self, best: Best) -> tuple[Finding, ...]:
        return self._cleared_by(best.choices)

    def _outcome(
        self, best: Best, left: Best | None, full: Best
    ) -> tuple[tuple[Finding, ...], tuple[tuple[Finding, str], ...], tuple[str, ...]]:
        after = [one for found in self.problem.findings_after(best.choices) for one in found]
        failing = _keys(one for one in after if one.fails)
        cleared = tuple(finding for finding in self.failing if not _keys([finding]) & failing)
        with_unsafe = set() if left is None else _keys(self._cleared(left))
        remaining = tuple(
            (finding, self._why_left(finding, unsafe=bool(_keys([finding]) & with_unsafe), refused=full.refused))
            for finding in self.failing
            if _keys([finding]) & failing
        )
        before = _keys(self.problem.findings)
        brings = rules_of(_keys(one for one in after if one.suppressed is None) - before)
        return cleared, remaining, brings

    def _why_left(self, finding: Finding, *, unsafe: bool, refused: Sequence[Sequence[Choice]]) -> str:
        if unsafe:
            return "only an unsafe change clears it"
        for choices in refused[:_MOST_EXPLAINED]:
            verdict, detail = self.problem.reason(choices)
            if verdict == REFUSED and _keys([finding]) <= _keys(self._cleared_by(choices)):
                moves = ", ".join(f"{choice.axis} {choice.value}" for choice in choices)
                return f"unresolvable: {moves} would clear it, but {detail}"
        if finding.remedies:
            return f"no change of a file was found; by hand: {finding.remedies[0].text}"
        return "no remedy is known"

    def _cleared_by(self, choices: Sequence[Choice]) -> tuple[Finding, ...]:
        key = tuple((choice.axis, choice.value) for choice in choices)
        if key not in self._after:
            self._after[key] = _keys(
                one for found in self.problem.findings_after(choices) for one in found if one.fails
            )
        return tuple(finding for finding in self.failing if not _keys([finding]) & self._after[key])


def _prove(plans: list[Plan], inputs: Inputs, report: Report, judging: Judging) -> list[Plan]:
    """Read everything again as if the files were written: what the new texts do not clear was not cleared."""
    texts = {file.path: file.after for plan in plans for file in plan.files}
    if not texts:
        return plans
    with pretend(texts):
        after = judging.report(gather_all(inputs, judging.rules, os.environ))
    failing = _keys(finding for finding in after.findings if finding.fails)
    new = failing - _keys(finding for finding in report.findings if finding.fails)
    proved = []
    for plan in plans:
        if any(change.command for change in plan.changes):
            proved.append(plan)  # a part of it stands in no file yet
            continue
        back = [finding for finding in plan.cleared if _keys([finding]) & failing]
        kept = tuple(finding for finding in plan.cleared if finding not in back)
        left = tuple((finding, "the changed files were read again, and it is still there") for finding in back)
        entered = [rule for subject, rule, _ in sorted(new) if subject in plan.subjects]
        notes = (f"the changed files bring in {', '.join(dict.fromkeys(entered))}",) if entered else ()
        proved.append(plan._replace(cleared=kept, remaining=(*plan.remaining, *left), notes=(*plan.notes, *notes)))
    return proved


def _keys(findings: Iterable[Finding]) -> set[tuple[str, str, str]]:
    return {(finding.subject, finding.rule_id, finding.role) for finding in findings}


def _why_left(fixed: set[str]) -> str:
    """Say why a package that a finding is about does not move, from the details that hold it."""
    if "presence" in fixed:
        return "whether it is installed is not known"
    if fixed:
        return "it is no release of an index"
    return "no pin stands there that an edit or a program could move"


def _is_final(release: str) -> bool:
    version = parse_version(release)
    return version is not None and not version.is_prerelease


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
