"""Choose what to measure for a rule: a pair of its own evidence, or its probe on both sides of the clause that holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from compatcheck.core.errors import CompatcheckError, UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.lab.confirmation import Confirmation
from compatcheck.lab.evidence_pairs import find_pairs
from compatcheck.lab.measurement import show_parameter
from compatcheck.lab.probes.metric_facts import metric_facts
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.proof import as_example
from compatcheck.matching.decision import SILENT, decide, truth
from compatcheck.matching.examples import example_scope
from compatcheck.resolution.scope import ABSENT
from compatcheck.rules.expression import conjuncts, evaluate, fact_names, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.lab.probes.probe import Probe
    from compatcheck.resolution.scope import FactScope
    from compatcheck.rules.database import CompiledClause, CompiledRule, RuleSet, Texts

ANY_RELEASE = ">=0"
"""Release of a package that nothing is known of before it is installed."""


class Trial(NamedTuple):
    """What has to be measured to confirm a rule."""

    probe: Probe
    metric: str
    package: str
    """The package whose release differs; where a setting differs, the one the rule is about."""
    suspect: str
    """Release of the suspect side."""
    baseline: str | None
    """Release of the healthy side; None where there is none, see ``loss``."""
    parameters: Mapping[str, Any]
    baseline_parameters: Mapping[str, Any]
    backend: str | None = None
    """What the pair of the evidence was measured on; None is the probe's own choice."""
    facts: Mapping[str, Any] = {}
    """Vocabulary name → value that the pair's size is computed with, over what the probe says: of one logit, of one layer."""
    loss: bool = False
    """Whether the metric is itself what is lost; else the probe's prediction stands in for a baseline there is none of."""
    versions: Mapping[str, str] = {}
    """Releases, or specifiers, of the other packages that the condition is tried with before anything is installed."""


class TrialRequest(NamedTuple):
    """What the person asked for over the default."""

    suspect: str | None = None
    """Release of the suspect side."""
    baseline: str | None = None
    """Release of the healthy side."""
    parameters: Mapping[str, Any] = {}
    """Of both sides."""

    @property
    def options(self) -> str:
        """The options that ask for it again, with a blank before each."""
        releases = (("--suspect", self.suspect), ("--baseline", self.baseline))
        named = "".join(f" {option} {release}" for option, release in releases if release is not None)
        return named + "".join(f" --param {name}={show_parameter(value)}" for name, value in self.parameters.items())


def plan(rule: CompiledRule, texts: Texts, rules: RuleSet, request: TrialRequest | None = None) -> Trial | Confirmation:
    """Choose releases and parameters that the rule is about on the suspect side and not on the other, or say why nothing can.

    The first pair of the rule's evidence is taken, or the first that has what was asked for; without a pair the rule's probe,
    on the nearest releases on both sides of the clause that its parameters satisfy.

    Args:
        rule: the rule.
        texts: its texts.
        rules: the database, for the pairs and the known releases.
        request: what replaces the default.

    Raises:
        UsageError: a parameter that the probe does not have or in which the sides differ; a suspect release that is not
            affected, or a healthy one that is.
    """
    request = request or TrialRequest()
    refusal: UsageError | None = None
    reasons: list[str] = []
    for make in (_from_evidence, _from_probe):
        try:
            trials = sorted(make(rule, texts, rules, request), key=lambda trial: trial[0])
        except UsageError as error:
            refusal = refusal or error
            continue
        for _, trial in trials:
            reason = find_fault(rule, texts, rules, trial)
            if reason is None:
                return trial
            reasons.append(reason)
    if refusal is not None:
        raise refusal
    if reasons and (request.suspect or request.baseline):
        raise UsageError(reasons[0], hint=f"`compatcheck confirm {rule.id} --dry-run` shows releases that fit")
    use = texts.probe
    if use is None or use["name"] not in probe_names():
        return Confirmation(rule_id=rule.id, verdict="inconclusive", reason=_without_probe(texts))
    reason = reasons[0] if reasons else _without_release(rule)
    return Confirmation(rule_id=rule.id, verdict="inconclusive", reason=reason, probe=use["name"])


def all_trials(rule: CompiledRule, texts: Texts, rules: RuleSet) -> list[Trial]:
    """Return every trial that says something about the rule: the pairs of its evidence, without any those of its probe."""
    for make in (_from_evidence, _from_probe):
        trials = [trial for _, trial in sorted(make(rule, texts, rules, TrialRequest()), key=lambda trial: trial[0])]
        trials = [trial for trial in trials if find_fault(rule, texts, rules, trial) is None]
        if trials:
            return trials
    return []


def find_fault(
    rule: CompiledRule,
    texts: Texts,
    rules: RuleSet,
    trial: Trial,
    versions: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
) -> str | None:
    """Say why measuring this would say nothing about the rule; None where it would.

    Args:
        rule: the rule.
        texts: its texts.
        rules: tables and defaults.
        trial: what is to be measured, or was.
        versions: what was installed on both sides; None before anything is.
    """
    suspect, baseline = versions or (
        {**trial.versions, trial.package: trial.suspect},
        {**trial.versions, trial.package: trial.baseline or trial.suspect},
    )
    here = _decide(rule, texts, trial, trial.parameters, suspect, rules)
    if here is not None:
        return f"the run is not one the rule is about, because {here}"
    if trial.baseline is None or trial.parameters != trial.baseline_parameters:
        # What tells the sides apart by a setting may have no name in the vocabulary; releases always do.
        return None
    if _decide(rule, texts, trial, trial.baseline_parameters, baseline, rules) is None:
        return f"the baseline is not a healthy one, because the rule is about {trial.package} {trial.baseline} as well"
    return None


def _decide(
    rule: CompiledRule,
    texts: Texts,
    trial: Trial,
    parameters: Mapping[str, Any],
    versions: Mapping[str, str],
    rules: RuleSet,
) -> str | None:
    """Say why the rule is not about a run; None where it is, or may be.

    Facts of the evidence may describe the run or only the unit of its metric, so the run counts with them or without.
    """
    because = None
    for facts in ({}, trial.facts) if trial.facts else ({},):
        scope = trial_scope(trial, parameters, versions, rules, facts)
        if isinstance(scope, str):
            because = because or scope
        elif decide(rule, scope).status != SILENT:
            return None
        else:
            because = because or why_silent(rule, texts, scope)
    return because


def trial_scope(
    trial: Trial, parameters: Mapping[str, Any], versions: Mapping[str, str], rules: RuleSet, over: Mapping[str, Any]
) -> FactScope | str:
    """Resolve the facts of a run of the trial's probe, or say why they cannot be told."""
    try:
        facts = {**metric_facts(trial.probe, parameters, trial.metric), **over}
        return example_scope(as_example(facts, versions), rules, "measurement")
    except (CompatcheckError, LookupError, TypeError, ValueError) as error:
        return f"what it is cannot be told: {error}"


def why_silent(rule: CompiledRule, texts: Texts, scope: FactScope) -> str:
    """Name the condition that leaves a run out: the rule's own, else that of the clause that comes nearest."""
    for part in () if rule.when is None else conjuncts(rule.when):
        if truth(evaluate(part, scope)) is False:
            return f"`{write(part)}` does not hold{_read(part, scope)}"
    if rule.unless is not None and truth(evaluate(rule.unless, scope)):
        return f"its exception `{write(rule.unless)}` holds{_read(rule.unless, scope)}"
    other = None
    for clause, (written, _) in zip(rule.clauses, texts.affected, strict=True):
        outside = [name for name, bounds in clause.packages.items() if scope.in_range(name, bounds) == "no"]
        if _may_hold(clause, scope) and outside:
            package = scope.package(outside[0])
            has = "is not installed" if package is None else f"{package.version or package.specifier} is"
            return f"{outside[0]} {has}{'' if package is None else ' outside ' + written[outside[0]]}"
        if not outside and clause.when is not None:
            other = f"`{write(clause.when)}` does not hold{_read(clause.when, scope)}"
    return other or "no clause of it holds for these releases and parameters"


def _read(code: Any, scope: FactScope) -> str:  # noqa: ANN401 (compiled code)
    known = [
        f"{name} is {show_parameter(scope.facts[name].value)}"
        for name in sorted(fact_names(code))
        if name in scope.facts
    ]
    return f" ({', '.join(known)})" if known else ""


def _may_hold(clause: CompiledClause, scope: FactScope) -> bool:
    return clause.when is None or truth(evaluate(clause.when, scope)) is not False


def _from_evidence(
    rule: CompiledRule, texts: Texts, rules: RuleSet, request: TrialRequest
) -> Iterator[tuple[int, Trial]]:
    """Yield the pairs of the evidence as they would be measured again, each with how much of it was replaced."""
    del texts
    names = probe_names()
    refusal = None
    for pair in find_pairs(rule, rules):
        if pair["probe"] not in names:
            continue
        probe = find_probe(pair["probe"])
        suspect, baseline = pair["suspect"], pair["baseline"]
        changed = {} if baseline is None else baseline["versions"]
        about = [*probe.module.PACKAGES, *packages_of(rule)]
        package = next((name for name in about if name in changed and name in packages_of(rule)), None)
        package = package or next(
            (name for name in about if name in suspect["versions"] and name in packages_of(rule)), None
        )
        if package is None:
            continue
        try:
            parameters = probe.complete({**suspect["parameters"], **request.parameters})
            others = {**parameters, **(baseline["parameters"] if baseline else {})}
            _refuse_what_tells_apart(request, parameters, others)
            others = probe.complete(others)
        except UsageError as error:
            refusal = refusal or error
            continue
        bad = request.suspect or suspect["versions"][package]
        good = request.baseline or (None if baseline is None else changed.get(package, bad))
        replaced = (bad != suspect["versions"][package]) + (
            good != (baseline and changed.get(package, suspect["versions"][package]))
        )
        replaced += sum(suspect["parameters"].get(name) != value for name, value in request.parameters.items())
        versions = {name: version for name, version in suspect["versions"].items() if name != "python"}
        yield (
            replaced,
            Trial(
                probe,
                pair["metric"],
                package,
                bad,
                good,
                parameters,
                others,
                backend=pair["backend"],
                facts=pair["facts"],
                loss=good is None,
                versions=versions,
            ),
        )
    if refusal is not None:
        raise refusal


def _refuse_what_tells_apart(request: TrialRequest, suspect: Mapping[str, Any], baseline: Mapping[str, Any]) -> None:
    for name in request.parameters:
        if suspect[name] != baseline[name]:
            msg = f"--param {name}: it is what tells the suspect side from the healthy one"
            raise UsageError(msg, hint="give another parameter, or measure one side with `compatcheck probe run`")


def _from_probe(rule: CompiledRule, texts: Texts, rules: RuleSet, request: TrialRequest) -> Iterator[tuple[int, Trial]]:
    """Yield the rule's probe with its parameters, then with one other choice of each, around the clauses that hold."""
    use = texts.probe
    if use is None or use["name"] not in probe_names():
        return
    probe = find_probe(use["name"])
    own = probe.complete({**use["parameters"], **request.parameters})
    _refuse_what_tells_apart(request, own, {**own, **(use.get("baseline") or {})})
    fixed = {*use["parameters"], *(use.get("baseline") or ()), *request.parameters}
    variants = [own]
    for name, choices in probe.choices.items():
        variants += [{**own, name: value} for value in choices if name not in fixed and value != own[name]]
    for distance, parameters in enumerate(variants):
        trial = _around_clauses(rule, rules, request, probe, parameters, use)
        if trial is not None:
            yield distance, trial


def _around_clauses(
    rule: CompiledRule,
    rules: RuleSet,
    request: TrialRequest,
    probe: Probe,
    parameters: Mapping[str, Any],
    use: Mapping[str, Any],
) -> Trial | None:
    """Return the newest release of the clauses that these parameters satisfy, and the nearest one outside of them."""
    for package in (*probe.module.PACKAGES, *packages_of(rule)):
        releases = [release for release in rules.releases(package) if not Version(release).is_prerelease]
        clauses = [clause for clause in rule.clauses if package in clause.packages]
        if not releases or not clauses:
            continue
        versions = {
            name: ABSENT if bounds == ABSENT else ANY_RELEASE
            for clause in clauses
            for name, bounds in clause.packages.items()
            if name != package
        }
        trial = Trial(probe, use["metric"] or probe.module.METRIC, package, "", None, parameters, {}, versions=versions)
        affected = {release for clause in clauses for release in _affected(clause, trial, releases, rules)}
        bad = request.suspect or next((release for release in reversed(releases) if release in affected), None)
        if bad is None:
            continue
        setting = use.get("baseline") is not None
        doubtful = rule.unverified.get(package)
        sick = affected | {release for release in releases if doubtful and contains(doubtful, release) != "no"}
        good = request.baseline or (bad if setting else nearest_healthy(bad, releases, sick))
        others = probe.complete({**parameters, **(use.get("baseline") or {})})
        return trial._replace(suspect=bad, baseline=good, baseline_parameters=others)
    return None


def _affected(clause: CompiledClause, trial: Trial, releases: list[str], rules: RuleSet) -> list[str]:
    """Return the releases of a clause whose own condition the trial's parameters do not rule out."""
    bounds = clause.packages[trial.package]
    if bounds == ABSENT:
        return []
    if bounds == "present":
        bounds = compile_specifier(ANY_RELEASE)
    inside = [release for release in releases if contains(bounds, release) == "yes"]
    if not inside:
        return []
    scope = trial_scope(trial, trial.parameters, {**trial.versions, trial.package: inside[-1]}, rules, {})
    return inside if not isinstance(scope, str) and _may_hold(clause, scope) else []


def packages_of(rule: CompiledRule) -> list[str]:
    """Return the packages of all clauses, in their order."""
    return list(dict.fromkeys(name for clause in rule.clauses for name in clause.packages))


def nearest_healthy(bad: str, releases: list[str], affected: set[str]) -> str | None:
    """Return the next release after it that is not affected, else the last one before it."""
    try:
        suspect = Version(bad)
    except InvalidVersion:
        return None
    healthy = [release for release in releases if release not in affected]
    later = [release for release in healthy if Version(release) > suspect]
    earlier = [release for release in healthy if Version(release) < suspect]
    return later[0] if later else (earlier[-1] if earlier else None)


def _without_probe(texts: Texts) -> str:
    where = f"; it can be verified on {' or '.join(texts.verifiable)}" if texts.verifiable else ""
    return f"no probe measures this rule yet{where}. `compatcheck probe list` shows what can be measured"


def _without_release(rule: CompiledRule) -> str:
    return f"no known release of {', '.join(packages_of(rule)) or 'any package'} is affected that can be installed here"
