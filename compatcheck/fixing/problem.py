"""Changes of releases and settings as a search problem: every combination is judged by the whole engine."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.collectors.python.pinned_build import public_cuda, rebuild
from compatcheck.core.errors import RuleError
from compatcheck.core.fix import NOT_CHECKED, REFUSED, RESOLVED
from compatcheck.core.source import Source
from compatcheck.core.versions import contains, exact_version, judge, parse_version
from compatcheck.fixing.moves import cost_of_move, describe_move, is_patch_up, rewrite, series_of
from compatcheck.fixing.reevaluation import Judge, Recall
from compatcheck.fixing.search import Choice, Score
from compatcheck.matching.decision import SILENT, decide
from compatcheck.resolution.binaries import PINNED, TABLE
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.scope import FactScope, version_need

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment, Package
    from compatcheck.core.facts import Value
    from compatcheck.core.hardware import Hardware
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledRule, RuleSet

MOST_RESOLUTIONS = 40
"""Questions to the resolver after which the search ends."""

_MOST_SETTINGS = 5
MOST_EVALUATION_SECONDS = 10.0
"""Time a search may evaluate rules for; after it the best so far stands."""
MOST_RESOLVER_SECONDS = 60.0
"""Time after which the resolver is not asked any more."""

Target = tuple[str, str, str]
"""Subject, rule and role of a finding."""


class Case(NamedTuple):
    """A subject with what it takes to resolve it anew."""

    subject: Subject
    hardware: tuple[tuple[Hardware, bool], ...]
    settings: Mapping[str, tuple[Value, Source]]

    def change(
        self,
        rules: RuleSet,
        packages: Mapping[str, Package],
        settings: Mapping[str, Value],
        watch: Callable[[Mapping[str, Package]], Mapping[str, Package]] = lambda items: items,
    ) -> Subject:
        """Resolve the subject with other releases and settings, its packages seen through ``watch``."""
        stated = {name: (value, Source("--set", name)) for name, value in settings.items()}
        environment = self.environment_after(packages, watch)
        if environment is not None and "torch" in packages:
            environment = rebuild(environment)
        return resolve(
            self.subject.id,
            rules=rules,
            environment=environment,
            documents=self.subject.documents,
            hardware=self.hardware,
            settings={**self.settings, **stated},
        )

    def environment_after(
        self,
        packages: Mapping[str, Package],
        watch: Callable[[Mapping[str, Package]], Mapping[str, Package]] = lambda items: items,
    ) -> Environment | None:
        """Return the environment with other releases of the packages that are in it."""
        environment = self.subject.environment
        if environment is None:
            return None
        own = {name: package for name, package in packages.items() if name in environment.packages}
        return environment._replace(packages=watch({**environment.packages, **own}))


class Setting(NamedTuple):
    """A change of a configuration that a rule's remedy names and the text of a file can make."""

    axis: str
    facts: Mapping[str, Value]
    subjects: frozenset[str]
    """Ids of the subjects whose files it changes."""
    safe: bool
    note: str | None


class Axis(NamedTuple):
    """A package that can move."""

    package: Package
    releases: tuple[str, ...]
    """Releases it can move to, oldest first."""

    @property
    def pinned(self) -> bool:
        """Whether exactly one version is required."""
        return self.package.version is not None

    @property
    def written(self) -> str:
        """The version, or the range."""
        return self.package.version or self.package.specifier or ""


class Releases:
    """The problem of one group of subjects: what can move, what each combination leaves, and what resolves."""

    def __init__(
        self,
        cases: Sequence[Case],
        judge: Judge,
        axes: Mapping[str, Axis],
        settings: Mapping[str, Setting],
        ask: Callable[[Mapping[str, Sequence[str]]], tuple[str, str | None]] | None,
    ) -> None:
        """Judge the subjects as they are.

        Args:
            cases: subjects that share files.
            judge: which findings count.
            axes: packages that can move, by name.
            settings: settings that can change, by axis.
            ask: asks the resolver whether the packages can have one of these versions or ranges; None without a resolver.
        """
        self.judge = judge
        self.rules = judge.rules
        self.axes = axes
        self.settings = settings
        self.ask = ask
        self.evaluations = 0
        self.asked = 0
        self.stopped = False
        self.resolver_seconds = 0.0
        self.reasons: dict[tuple[tuple[str, str], ...], tuple[str, str | None]] = {}
        self._scores: dict[frozenset[tuple[str, Hashable]], Score] = {}
        self._bounds: dict[frozenset[str], int] = {}
        self._values: dict[str, list[Choice]] = {}
        self._released: dict[tuple[str, str], str] = {}
        self._domains: dict[tuple[str, int], tuple[str, ...]] = {}
        self._begun = time.monotonic()
        self._resolving = 0.0
        self._recalls = {case.subject.id: Recall(case, judge) for case in cases}
        self.findings = [finding for recall in self._recalls.values() for finding in recall.findings({}, {})]
        self._originals = {_key(finding): finding for finding in self.findings if finding.fails}
        self.targets = {_key(finding) for finding in self.findings if finding.fails}
        hit = {subject for subject, _, _ in self.targets}
        self.cases = sorted(cases, key=lambda case: case.subject.id not in hit)
        self._signatures = self._collect_bounds()

    # What a package can become.

    def choices(self, advised_against: Mapping[str, Sequence[Any]]) -> dict[str, list[Choice]]:
        """Return every choice of every axis.

        Args:
            advised_against: package → ranges that a rule's remedy calls unsafe to move to.
        """
        result = {
            name: list(self._moves(name, axis, advised_against.get(name, ()))) for name, axis in self.axes.items()
        }
        for name, setting in self.settings.items():
            result[name] = [Choice(name, _show(setting.facts), (0, 0, 1), name, setting.safe)]
        self._values = {name: found for name, found in result.items() if found}
        return self._values

    def _moves(self, name: str, axis: Axis, unsafe: Sequence[Any]) -> Iterator[Choice]:
        current = axis.package.version or self._highest(axis)
        if current is None or parse_version(current) is None:
            return
        seen: set[str] = set()
        for release in axis.releases:
            value = release
            if axis.pinned:
                label = current.partition("+")[2]
                value = f"{release}+{label}" if label else release
            elif axis.written:
                value = rewrite(axis.written, release)
            else:
                value = f">={release}"
            if value in seen or value in {axis.written, current} or parse_version(release) == parse_version(current):
                continue
            seen.add(value)
            self._released[name, value] = release
            move = describe_move(current, release)
            safe = is_patch_up(move) and not any(contains(bounds, release) == "yes" for bounds in unsafe)
            cost = cost_of_move(current, release, axis.releases, pinned=axis.pinned)
            yield Choice(name, value, cost, self._cell(name, axis, value), safe)

    def release_of(self, choice: Choice) -> str:
        """Return the release of a choice, the lowest one of a range."""
        return self._released[choice.axis, choice.value]

    def current_of(self, name: str) -> str:
        """Return the version that a package's moves are counted from."""
        axis = self.axes[name]
        return axis.package.version or self._highest(axis) or ""

    def _highest(self, axis: Axis) -> str | None:
        """Return the newest release a range allows: an installer takes it, and what moves the range is counted from there."""
        from compatcheck.core.versions import allowed_releases  # noqa: PLC0415 (only for ranges)

        allowed = allowed_releases(axis.written, axis.releases)
        return allowed[-1] if allowed else None

    def _cell(self, name: str, axis: Axis, value: str) -> Hashable:
        bounds = self._signatures.get(name, ())
        if axis.pinned:
            return (*(contains(part, value) for part in bounds), *self._binary(name, value))
        return tuple(judge(part, value, self.rules.releases(name)) for part in bounds)

    def _has(self, name: str) -> bool:
        return any(
            case.subject.environment is not None and name in case.subject.environment.packages for case in self.cases
        )

    def _binary(self, name: str, value: str) -> tuple[object, ...]:
        """Return what compiled code of a release fits: the torch it was built with; of torch, its series and CUDA."""
        release = value.partition("+")[0]
        if name == "torch":
            built = any(self._has(other) for other in (*PINNED, "flash-attn"))
            return series_of(release) if built else None, public_cuda(value)
        if name not in PINNED:
            return ()
        return ((self.rules.section(f"tables/{TABLE}") or {}).get(name, {}).get(release),)

    def _collect_bounds(self) -> dict[str, tuple[Any, ...]]:
        """Collect every range a package is compared with by rules that some release would not silence."""
        found: dict[str, list[Any]] = {name: [] for name in self.axes}
        spoken: set[str] = set()
        for case in self.cases:
            relaxed = case.change(self.rules, self._relax(tuple(self.axes)), {})
            names = (
                () if relaxed.environment is None else (*relaxed.environment.packages, *relaxed.environment.components)
            )
            for facts in relaxed.roles.values():
                scope = FactScope(facts, relaxed.environment, self.rules)
                for rule in self.rules.rules_about(
                    (*names, *self.axes, "cuda", "cudnn", "nccl", "cublas", "driver", "python")
                ):
                    if rule.id not in spoken and (self.settings or self._may_speak(rule, scope)):
                        spoken.add(rule.id)
                        for clause in rule.clauses:
                            _add_ranges(clause.packages, found)
                            _add_code(clause.when, found)
                        _add_ranges(rule.unverified, found)
                        for code in (rule.when, rule.unless, rule.expected, rule.low, rule.high):
                            _add_code(code, found)
        if any(case.subject.documents for case in self.cases):
            for section in self._default_sections():
                for row in self.rules.section(section) or ():
                    _add_ranges(row["ranges"], found)
                    _add_code(row["when"], found)
                    _add_code(row.get("value"), found)
        return {name: tuple({repr(part): part for part in parts}.values()) for name, parts in found.items()}

    @staticmethod
    def _may_speak(rule: CompiledRule, scope: FactScope) -> bool:
        try:
            return decide(rule, scope).status != SILENT
        except RuleError:
            return True

    def _default_sections(self) -> list[str]:
        return sorted(
            {
                name
                for database in self.rules.databases
                for kind in ("defaults/", "traits/")
                for name in database.sections(kind)
            }
        )

    # What a combination leaves.

    def score(self, choices: Sequence[Choice]) -> Score:
        """Count the targets that still fail, and tell whether something else fails that did not."""
        key = frozenset((choice.axis, choice.cell) for choice in choices)
        if key not in self._scores:
            self._scores[key] = self.evaluate(choices)
        return self._scores[key]

    def evaluate(self, choices: Sequence[Choice], subjects: frozenset[str] | None = None) -> Score:
        """Count the targets of all subjects, or of some, that fail after a combination."""
        failing: set[Target] = set()
        targets = self.targets if subjects is None else {target for target in self.targets if target[0] in subjects}
        ranged = {version_need(choice.axis) for choice in choices if self._is_range(choice)}
        for found in self.findings_after(choices, subjects):
            failing |= {_key(finding) for finding in found if finding.fails}
            # A range that also holds releases without the finding does not clear it: an installer takes any of them.
            failing |= {_key(finding) for finding in found if ranged & set(finding.needs)} & targets
            if failing - targets:
                return Score(len(targets), allowed=False)
        return Score(len(failing))

    def _is_range(self, choice: Choice) -> bool:
        axis = self.axes.get(choice.axis)
        return axis is not None and not axis.pinned

    def findings_after(
        self, choices: Sequence[Choice], subjects: frozenset[str] | None = None
    ) -> Iterator[Sequence[Finding]]:
        """Yield the findings of each subject, or of some, after a combination."""
        packages = self.packages_after(choices)
        for case in self.cases:
            if subjects is not None and case.subject.id not in subjects:
                continue
            self.evaluations += 1
            settings = self._settings_for(case, [choice.axis for choice in choices])
            yield self._recalls[case.subject.id].findings(packages, settings)

    def packages_after(self, choices: Sequence[Choice]) -> dict[str, Package]:
        """Return the packages that move, as they are afterwards."""
        moved = {}
        for choice in choices:
            axis = self.axes.get(choice.axis)
            if axis is not None:
                version = choice.value if axis.pinned else exact_version(choice.value)
                specifier = None if version is not None else choice.value
                moved[choice.axis] = axis.package._replace(version=version, specifier=specifier)
        return moved

    def _settings_for(self, case: Case, axes: Iterable[str]) -> dict[str, Value]:
        result: dict[str, Value] = {}
        for name in axes:
            setting = self.settings.get(name)
            if setting is not None and case.subject.id in setting.subjects:
                result.update(setting.facts)
        return result

    def is_spent(self) -> bool:
        """Tell whether the time for evaluations is used up; that of the resolver does not count."""
        return time.monotonic() - self._begun - self._resolving > MOST_EVALUATION_SECONDS

    # What no value of some axes can change.

    def bound(self, axes: Sequence[str]) -> int:
        """Count the targets that fail whatever these packages become: each is taken for any of its releases at once."""
        key = frozenset(axes)
        if key not in self._bounds:
            self._bounds[key] = self._relaxed_remaining(axes, {})
        return self._bounds[key]

    def lowest(self) -> int:
        """Count the targets that nothing clears; 0, which is never too many, where a great many settings can change."""
        if len(self.settings) > _MOST_SETTINGS:
            return 0
        left = set(self.targets)
        for count in range(len(self.settings) + 1):
            for chosen in itertools.combinations(self.settings, count):
                left &= self._relaxed_failing((*self.axes, *chosen), {})
        return len(left)

    def _relaxed_remaining(self, axes: Sequence[str], fixed: Mapping[str, Package]) -> int:
        return len(self._relaxed_failing(axes, fixed))

    def _relaxed_failing(self, axes: Sequence[str], fixed: Mapping[str, Package]) -> set[Target]:
        failing: set[Target] = set()
        for case in self.cases:
            if not any(subject == case.subject.id for subject, _, _ in self.targets):
                continue
            self.evaluations += 1
            found = self._recalls[case.subject.id].findings(self._relax(axes, fixed), self._settings_for(case, axes))
            failing |= {_key(finding) for finding in found if self._stays(finding)}
        return failing & self.targets

    def _stays(self, finding: Finding) -> bool:
        """Tell whether a finding about packages that can be anything is one whatever they are.

        It is not where something was taken for granted that the packages decide: an exception, a size, or, under --strict, that
        it concerns them at all.
        """
        original = self._originals.get(_key(finding))
        if original is None or not finding.fails or finding.status != "affected":
            return False
        if any(fact.origin in _MAY_FOLLOW_A_RELEASE for fact in finding.facts):
            return False
        same = finding.impact == original.impact and finding.severity == original.severity
        return same and _exceptions(finding) == _exceptions(original)

    def _relax(self, axes: Sequence[str], fixed: Mapping[str, Package] | None = None) -> dict[str, Package]:
        packages = {
            name: self.axes[name].package._replace(version=None, specifier=self._anything(name))
            for name in axes
            if name in self.axes
        }
        return {**packages, **(fixed or {})}

    def _anything(self, name: str) -> str:
        axis = self.axes[name]
        own = [f"=={axis.package.version}"] if axis.pinned else []
        return " || ".join([*own, *(f"=={release}" for release in axis.releases)])

    # What resolves.

    def select(self, axes: Mapping[str, Sequence[Choice]]) -> Mapping[str, Sequence[Choice]]:
        """Restrict the values that the resolver may choose from to those of one search, and return them."""
        self._values = {name: list(choices) for name, choices in axes.items()}
        self._domains.clear()
        self._begun, self._resolving = time.monotonic(), 0.0
        return axes

    def core(self, axes: Sequence[str], limit: int) -> frozenset[str] | None:
        """Ask the resolver whether any of the values that could help fit; name what else would have to move where not."""
        packages = [name for name in axes if name in self.axes]
        if self.ask is None or not packages:
            return None
        domains = {name: self._domain(name, limit) for name in packages}
        if not all(domains.values()):
            return frozenset()
        verdict, detail = self._ask(domains)
        if verdict != REFUSED:
            return None
        text = f" {(detail or '').lower()} "
        others = {name for name in self.axes if name not in axes}
        # Which pins stand against each other is read out of uv's words; where it names none of ours, any may.
        return frozenset(name for name in others if _mentions(text, name)) or frozenset(others)

    def _domain(self, name: str, limit: int) -> tuple[str, ...]:
        """Return the values of a package that could be part of a solution that leaves fewer than ``limit`` targets."""
        if (name, limit) not in self._domains:
            helpful: dict[Hashable, bool] = {}
            others = tuple(axis for axis in self.axes if axis != name)
            for choice in self._values.get(name, ()):
                if choice.cell not in helpful:
                    rest = self._relaxed_remaining((*others, *self.settings), self.packages_after([choice]))
                    helpful[choice.cell] = len(self.settings) > 1 or rest < limit
            self._domains[name, limit] = tuple(
                choice.value for choice in self._values.get(name, ()) if helpful[choice.cell]
            )
        return self._domains[name, limit]

    def accept(self, choices: Sequence[Choice], limit: int) -> bool:
        """Ask the resolver about a combination; without one every combination passes, unchecked.

        A whole series is asked about before one release of it, and one package before all of them: what is refused there need
        not be asked again for each.
        """
        wanted = {choice.axis: (choice.value,) for choice in choices if choice.axis in self.axes}
        if self.ask is None or not wanted:
            return True
        for name, values in wanted.items():
            others = {other: self._domain(other, limit) or wanted[other] for other in wanted if other != name}
            if self.axes[name].pinned:
                series = series_of(self._released[name, values[0]])
                group = [
                    value for value in self._domain(name, limit) if series_of(self._released[name, value]) == series
                ]
                if len(group) > 1 and self._ask({name: tuple(group), **others})[0] == REFUSED:
                    return False
            if others and self._ask({name: values, **others})[0] == REFUSED:
                return False
        return self._ask(wanted)[0] != REFUSED

    def _ask(self, wanted: Mapping[str, Sequence[str]]) -> tuple[str, str | None]:
        key = tuple(sorted((name, ",".join(values)) for name, values in wanted.items()))
        if key not in self.reasons:
            if self.asked >= MOST_RESOLUTIONS or self.resolver_seconds > MOST_RESOLVER_SECONDS:
                self.stopped = True
                return REFUSED, f"the resolver was asked {self.asked} times, and no more"
            started = time.monotonic()
            self.asked += 1
            assert self.ask is not None  # noqa: S101 (callers look)
            self.reasons[key] = self.ask(wanted)
            self._resolving += time.monotonic() - started
            self.resolver_seconds += time.monotonic() - started
        return self.reasons[key]

    def reason(self, choices: Sequence[Choice]) -> tuple[str, str | None]:
        """Return what the resolver said about a combination, or why it did not."""
        wanted = {choice.axis: (choice.value,) for choice in choices if choice.axis in self.axes}
        if not wanted:
            return RESOLVED, None
        if self.ask is None:
            return NOT_CHECKED, None
        return self._ask(wanted)


def _key(finding: Finding) -> Target:
    return finding.subject, finding.rule_id, finding.role


_MAY_FOLLOW_A_RELEASE = {"derived", "reader-default", "library-default"}
"""Origins of facts that can be others at another release: a default, and what is worked out from defaults."""


def _exceptions(finding: Finding) -> list[str]:
    """Return the exceptions of a rule that were assumed not to hold."""
    return [assumption for assumption in finding.assumptions if assumption.startswith("not (")]


def _show(facts: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.items())


def _mentions(text: str, name: str) -> bool:
    import re  # noqa: PLC0415 (only for a refusal)

    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def _add_ranges(ranges: Mapping[str, Any], found: dict[str, list[Any]]) -> None:
    for name, bounds in ranges.items():
        if name in found and not isinstance(bounds, str):
            found[name].append(bounds)


def _add_code(code: Any, found: dict[str, list[Any]]) -> None:  # noqa: ANN401 (compiled expressions)
    """Find ``installed(package, range)`` and ``version_in(fact, range)`` in an expression; this one counts for every package."""
    if not isinstance(code, list) or not code:
        return
    if code[0] == "call" and code[1] in {"installed", "version_in", "metadata_refutes"}:
        ranges = [part[2] if part[0] == "range" else part[1] for part in code[2:] if part[0] in {"range", "value"}]
        bounds = [part for part in ranges if isinstance(part, list)]
        named = [part for part in ranges if isinstance(part, str) and part in found]
        for name in named if code[1] == "installed" else found:
            found[name].extend(bounds)
    for part in code[1:]:
        _add_code(part, found)


def group_by_files(files: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Group subjects that share a file, directly or through others.

    Args:
        files: subject → the files that state its packages and settings.
    """
    groups: list[tuple[set[str], set[str]]] = []
    for subject, paths in files.items():
        own, names = set(paths), {subject}
        apart = []
        for group in groups:
            if group[0] & own:
                own |= group[0]
                names |= group[1]
            else:
                apart.append(group)
        groups = [*apart, (own, names)]
    order = {subject: index for index, subject in enumerate(files)}
    return sorted(
        (tuple(sorted(names, key=order.__getitem__)) for _, names in groups), key=lambda names: order[names[0]]
    )


def rules_of(targets: Iterable[Target]) -> tuple[str, ...]:
    """Return the rules of targets, each once."""
    return tuple(dict.fromkeys(rule for _, rule, _ in targets))


def what_clears(problem: Releases, choices: Sequence[Choice]) -> dict[str, set[Target]]:
    """Tell for each change which targets come back when it alone is taken back, or which it clears alone."""

    def failing(part: Sequence[Choice], subjects: frozenset[str] | None = None) -> set[Target]:
        return {_key(one) for found in problem.findings_after(part, subjects) for one in found if one.fails}

    cleared = problem.targets - failing(choices)
    result = {}
    for choice in choices:
        setting = problem.settings.get(choice.axis)
        subjects = None if setting is None else setting.subjects
        without = failing([other for other in choices if other is not choice], subjects)
        targets = {target for target in problem.targets if subjects is None or target[0] in subjects}
        alone = targets - failing([choice], subjects)
        result[choice.axis] = (without & cleared) | (alone & cleared)
    return result
