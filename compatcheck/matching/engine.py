"""Evaluate the rules over a subject: a pure function of facts, packages and the rule data."""

from __future__ import annotations

from functools import partial

from compatcheck.core.errors import RuleError
from compatcheck.core.facts import TRAITS, Fact
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.report import Finding, FindingImpact, FindingReference, MeasuredSeries
from compatcheck.core.source import Skipped, Source
from compatcheck.core.versions import contains
from compatcheck.matching.decision import AFFECTED, POSSIBLE, SILENT, Decision, bounds, decide, number, size, truth
from compatcheck.matching.remedies import write_remedies
from compatcheck.matching.severity import rate
from compatcheck.resolution.imported import FRAMEWORK, imported_packages
from compatcheck.resolution.scope import COMPONENT_FACTS, FactScope
from compatcheck.rules.expression import Code, Unknown, conjuncts, evaluate, fact_names, write
from compatcheck.rules.programs import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from compatcheck.matching.memory import Memory, Recall
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledRule, RuleSet, Sizes, Texts
    from compatcheck.rules.program import Program


class Outcome(NamedTuple):
    """What matching one subject gave."""

    findings: tuple[Finding, ...]
    folded: tuple[tuple[str, int], ...]
    """Packages a configuration implies and no input names a release of, with the number of rules that depend on them."""
    skipped: tuple[Skipped, ...]
    """Rules that could not be evaluated."""
    waiting: int = 0
    """Pitfalls and default changes of which nothing is known but the packages: a configuration would decide them."""


def match(
    subject: Subject,
    rules: RuleSet,
    selects: Callable[[str], bool] = lambda _: True,
    memory: Memory | None = None,
) -> Outcome:
    """Evaluate every rule that concerns a subject, once per role; a memory is of variants of this subject."""
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    folded: dict[str, int] = {}
    waiting = 0
    relevant = RelevantRules.of(subject, rules)
    for role, facts in subject.roles.items():
        scope = open_scope(subject, role, rules)
        stated = states_run(facts)
        frame = (role, relevant.implied, relevant.contradictory, relevant.served, stated)
        recall = None if memory is None else memory.open(frame, facts, subject.environment, rules, scope.opened)
        known: dict[int, object] = {}
        decided = []
        for rule in relevant.rules:
            if not selects(rule.id) or not has_say(rule, role, subject):
                continue
            try:
                if recall is None:
                    found = relevant.decide(rule, scope, known, stated=stated)
                else:  # each answer with all that it rests on, so nothing is known of another
                    found = recall.ask(rule.id, partial(relevant.decide_anew, rule, stated=stated))
            except RuleError as error:
                skipped.append(
                    Skipped(Source(rule.id), f"the rule could not be evaluated: {error.message}", "please report this"),
                )
                continue
            for name in found.folded:
                folded[name] = folded.get(name, 0) + 1
            waiting += found.waits
            if found.decision is not None:
                decided.append((rule, found.decision))
        findings.extend(_build_all(decided, subject, role, scope, recall, skipped))
    return Outcome(
        tuple(_name_roles(without_repeats(findings))), tuple(sorted(folded.items())), tuple(skipped), waiting
    )


def open_scope(subject: Subject, role: str, rules: RuleSet) -> FactScope:
    """Return what rules can ask of a role; whether a fact is stated is unknown where something not read may state it."""
    facts = subject.roles[role]
    if not (subject.unresolved or subject.gaps or subject.unread):
        return FactScope(facts, subject.environment, rules)
    from compatcheck.resolution.gaps import Opened  # noqa: PLC0415 (only where something was not read)

    return FactScope(facts, subject.environment, rules, Opened.of(subject, role, facts))


class RuleOutcome(NamedTuple):
    """What one rule comes to."""

    decision: Decision | None = None
    """None where it says nothing."""
    folded: tuple[str, ...] = ()
    """Packages without a known release that it depends on."""
    waits: bool = False
    """Whether a configuration would decide it."""
    because: str | None = None
    """Why it says nothing though its own conditions may hold."""


def has_say(rule: CompiledRule, role: str, subject: Subject) -> bool:
    """Tell whether a rule is about a role: what a rollout or its engine does is said of the policy, the engine, and a teacher."""
    if role in {next(iter(subject.roles), ""), "rollout"}:
        return role != "teacher" or rule.phase == "rollout"
    return rule.phase == "rollout" if role == "teacher" else rule.phase != "rollout" and not _is_of_engine(rule)


def _is_of_engine(rule: CompiledRule) -> bool:
    """Tell whether a rule is about one engine, which a run has once, whichever roles its configuration gives the settings to."""
    return rule.when is not None and any(part[1:2] == [["fact", "rollout.engine"]] for part in conjuncts(rule.when))


class RelevantRules(NamedTuple):
    """The rules that concern a subject, and what of it they are decided with; it depends on no setting."""

    rules: tuple[CompiledRule, ...]
    implied: tuple[str, ...]
    contradictory: frozenset[str]
    """Packages whose requirements exclude each other."""
    served: frozenset[str] = frozenset()
    """Packages whose code runs in a subject that is an inference engine alone; empty for any other."""
    engines: frozenset[str] = frozenset()
    """The engines' own distributions among these: a rule about one of them and what it imports is about that subject too."""

    @classmethod
    def of(cls, subject: Subject, rules: RuleSet) -> RelevantRules:
        """Collect the rules about a subject's packages, those it implies, and its components."""
        environment = subject.environment
        names = () if environment is None else (*environment.packages, *environment.components)
        names = (*names, *(component for component in COMPONENT_FACTS if component not in names))
        implied = _implied(subject, set(names))
        damage = () if environment is None else environment.damage
        contradictory = frozenset(damaged.package for damaged in damage if damaged.kind == "contradictory")
        scope = FactScope({}, environment, rules)

        def excludes(name: str, bounds: object) -> bool:
            return name not in COMPONENT_FACTS and scope.in_range(name, bounds) == "no"  # those are facts of roles

        about = tuple(rules.rules_about((*names, *implied), excludes))
        engines = _engines_alone(subject)
        served = (
            frozenset((*COMPONENT_FACTS, *(name for engine in engines for name in engine.packages)))
            if engines
            else frozenset()
        )
        return cls(about, implied, contradictory, served, frozenset(engine.packages[0] for engine in engines))

    def _runs_there(self, packages: Iterable[str]) -> bool:
        """Tell whether an engine runs the code of these packages, or is one of them and imports the others."""
        return self.served.issuperset(packages) or not self.engines.isdisjoint(packages)

    def _is_never_done(self, rule: CompiledRule, scope: FactScope) -> bool:
        """Tell whether a rule is about what is not done here, whatever its conditions come to: they need not be decided.

        An engine that serves has no backward; a build for the CPU allocates on no device, where the run is said to be for none.
        """
        if self.served and rule.phase in {"backward", "step"}:
            return True
        return (
            rule.memory == "device"
            and rule.effect == "memory"
            and scope.value("runtime.torch_build") == "cpu"
            and "hardware.memory_bytes" not in scope.facts
        )

    def decide_anew(self, rule: CompiledRule, scope: FactScope, *, stated: bool) -> RuleOutcome:
        """Decide a rule as `decide` does, whatever was evaluated of others."""
        return self.decide(rule, scope, {}, stated=stated)

    def decide(self, rule: CompiledRule, scope: FactScope, known: dict[int, object], *, stated: bool) -> RuleOutcome:
        """Decide a rule for one role, of which a run is stated or not, and whether what is known is enough to speak of it.

        What its conditions come to is kept in ``known``, as `evaluate` does: other rules of this database ask the same.

        Raises:
            RuleError: an expression of the rule does not fit the values.
        """
        if self._is_never_done(rule, scope):
            return RuleOutcome(because="what it is about is not done here")
        decision = decide(rule, scope, known)
        if decision.status == AFFECTED and rule.phase in WORK and rule.effect == "memory" and not stated:
            decision = decision._replace(status=POSSIBLE, needs=(FRAMEWORK,))
        if decision.status == SILENT:
            return RuleOutcome()
        if not keeps_graph(scope) and _cannot_concern(rule, decision):
            return RuleOutcome(because="this model is only run forward")
        if self.served and not self._runs_there(decision.packages):
            return RuleOutcome(because="the engine that is started does not run that code")
        trains_nothing = self.served or (not stated and _only_converts(scope))
        if trains_nothing and any(need.startswith("training.") for need in decision.needs):
            return RuleOutcome(because="no training is started")
        if never_runs(decision.packages, scope):
            return RuleOutcome(because="this program does not run that code")
        if any(need.startswith("estimate.") for need in decision.needs):  # nobody can be asked
            return RuleOutcome(because="no estimate of this run can be made")
        unknown = [
            name
            for name in decision.packages
            if scope.package_need(name) in decision.needs
            and (scope.package(name) is None or name in self.contradictory)
        ]
        folded = tuple(name for name in unknown if name in self.implied or name in self.contradictory)
        if any(name not in COMPONENT_FACTS for name in unknown):
            return RuleOutcome(folded=folded, because="no release of what it is about is known")
        if decision.status == POSSIBLE and not _has_evidence(rule, decision, scope, known):
            return RuleOutcome(folded=folded, waits=True, because="nothing that is known speaks for it")
        return RuleOutcome(decision, folded)


def never_runs(packages: Iterable[str], scope: FactScope) -> bool:
    """Tell whether the code of one of these packages takes no part in the program, as far as anybody has read it."""
    others = scope.value("program.never_runs")
    never = {*others} if isinstance(others, tuple) else set()
    if scope.value("program.runs_transformers") is False:
        never.add("transformers")
    return not never.isdisjoint(packages)


WORK = frozenset({"forward", "backward", "step"})
"""Phases of training: of a model that nobody is known to train no rule about them is certain."""


def states_run(facts: Mapping[str, Fact]) -> bool:
    """Tell whether anything is known of a training run; that peft is not installed says nothing of one."""
    return any(name.startswith(_OF_RUNS) and not _is_of_absence(name, fact) for name, fact in facts.items())


def _only_converts(scope: FactScope) -> bool:
    """Tell whether a program merges adapters or the checkpoints of ranks, and nothing in it that was not read may train."""
    return any(scope.value(name) is True for name in _CONVERTS) and scope.declared(CHECKPOINTING) is False


_CONVERTS = ("run.merges_adapter", "run.converts_zero_checkpoint")
_OF_RUNS = ("training.", "rollout.")


def _is_of_absence(name: str, fact: Fact) -> bool:
    """Tell whether a setting is known only because a package is not installed: of a run it says nothing."""
    return name.startswith(_OF_RUNS) and fact.origin == "installed"


CHECKPOINTING, KEEPS_GRAPH = "training.gradient_checkpointing", "program.keeps_graph"


def keeps_graph(scope: FactScope) -> bool:
    """Tell whether a role is trained, as far as anybody knows: what its forward makes is kept for backward."""
    return scope.value(KEEPS_GRAPH) is not False


def _cannot_concern(rule: CompiledRule, decision: Decision) -> bool:
    """Tell whether a rule is none of a model that is only run forward; of what is merely possible, the trained one's role tells.

    What checkpointing would give back is what a graph keeps, and under ``no_grad`` there is none.
    """
    kept = rule.unless is not None and CHECKPOINTING in fact_names(rule.unless)
    kept = kept or (rule.when is not None and ["not", ["fact", CHECKPOINTING]] in conjuncts(rule.when))
    return decision.status == POSSIBLE or rule.phase in {"backward", "step"} or kept


def without_repeats(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out what a later role says again, on the same facts, of a rule that an earlier role has.

    Memory that a role's own settings cost is its own, though another role's settings have the same values.
    """
    seen: set[tuple[object, ...]] = set()
    kept = []
    for finding in findings:
        facts = tuple((fact.name, fact.value) for fact in finding.facts)
        costs = finding.status == AFFECTED and finding.impact is not None and finding.impact.effect == "memory"
        identity = (
            *(finding.rule_id, finding.status, finding.impact, finding.needs, facts),
            finding.locations if costs else (),
        )
        if identity not in seen:
            seen.add(identity)
            kept.append(finding)
    return kept


def _name_roles(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Name the role in the title of what is said of several."""
    roles: dict[str, set[str]] = {}
    for finding in findings:
        roles.setdefault(finding.rule_id, set()).add(finding.role)
    for finding in findings:
        several = len(roles[finding.rule_id]) > 1
        yield finding._replace(title=f"{finding.title} ({finding.role})") if several else finding


def _has_evidence(rule: CompiledRule, decision: Decision, scope: FactScope, known: dict[int, object]) -> bool:
    """Tell whether anything speaks for an undecided rule.

    A release known to be bad speaks for itself, and so do two that are known not to go together, or may be where nothing else is
    open. A pitfall of every release, what two settings do to each other, or a rule about no package needs at least one of its
    conditions to hold; otherwise every environment would be told of every pitfall. That a package is not there is none.
    """
    if rule.kind == "regression" and any(name not in COMPONENT_FACTS for name in decision.packages):
        return True
    if rule.kind == "incompatibility" and _is_of_pair(decision, scope):
        return True
    texts = (rule.when, decision.clause.when if decision.clause is not None else None)
    parts = [part for text in texts if text is not None for part in _conditions(text)]
    facts = {name: scope.facts.get(name) for part in parts for name in fact_names(part)}
    stated = {name: fact for name, fact in facts.items() if fact is not None and not _is_of_absence(name, fact)}
    if len(stated) < sum(fact is not None for fact in facts.values()):
        scope, known = FactScope(stated, scope.environment, scope.rules, scope.opened, scope.others), {}
    return any(truth(evaluate(part, scope, known)) for part in parts)


def _conditions(text: Code) -> Iterator[Code]:
    """Yield the atoms of a condition; of one that holds only where a fact is there, what it asks then."""
    for part in conjuncts(text):
        if part[0] == "if" and part[3] == ["value", False]:
            yield from _conditions(part[2])
        else:
            yield part


def _is_of_pair(decision: Decision, scope: FactScope) -> bool:
    """Tell whether releases of several packages do not go together, or one is of such a pair and nothing but releases is open."""
    ranges = {} if decision.clause is None else decision.clause.packages
    stated = [name for name, bounds in ranges.items() if not isinstance(bounds, str)]
    known = [name for name in stated if scope.in_range(name, ranges[name]) == "yes"]
    open_ones = {scope.package_need(name) for name in stated if name not in known}
    return len(stated) > 1 and (known == stated or (bool(known) and open_ones.issuperset(decision.needs)))


def _implied(subject: Subject, known: set[str]) -> tuple[str, ...]:
    """Return the packages that the programs of a subject's configurations import, of which no input says anything."""
    if subject.environment is not None and subject.environment.complete:
        return subject.environment.unlisted
    engines = {facts["rollout.engine"].value for facts in subject.roles.values() if "rollout.engine" in facts}
    return tuple(name for name in imported_packages(subject.documents, engines) if name not in known)


def _engines_alone(subject: Subject) -> tuple[Program, ...]:
    """Return the inference engines that are started, by a command or a script, where nothing else is."""
    read = [(document, find_program(document.reader)) for document in subject.documents]
    started = tuple(program for document, program in read if document.is_command and program.kind != "script")
    if not started and not any(program.reads_keys for _, program in read):
        started = tuple(program for _, program in read if program.kind == "engine")
    return started if all(program.kind == "engine" for program in started) else ()


def _build_all(
    decided: Iterable[tuple[CompiledRule, Decision]],
    subject: Subject,
    role: str,
    scope: FactScope,
    recall: Recall | None,
    skipped: list[Skipped],
) -> Iterator[Finding]:
    decided = list(decided)
    folklore = [rule for rule, _ in decided if rule.kind == "folklore"]
    for rule, decision in decided:
        if rule.kind == "folklore":
            continue
        try:
            # what would help is read of the run itself; of a variant, whether anything does against what is certain
            written = recall is None or decision.status == AFFECTED
            builds = partial(build, rule, decision, subject, role, written=written)
            finding = builds(scope) if recall is None else recall.ask((rule.id, id(decision)), builds)
        except RuleError as error:
            skipped.append(
                Skipped(Source(rule.id), f"the rule could not be evaluated: {error.message}", "please report this"),
            )
            continue
        if costs_nothing(finding):
            continue
        wrong = tuple((other.id, other.title) for other in folklore if rule.id in other.debunks)
        yield finding._replace(folklore=wrong)


def costs_nothing(finding: Finding) -> bool:
    """Tell whether memory is all that a finding could cost, and it comes to none of it: that is no finding.

    That a run does not fit is one though its peak is below what there is: another of its phases is above.
    """
    impact = finding.impact
    return (
        impact is not None
        and not finding.is_about_fit
        and impact.effect == "memory"
        and impact.expected_bytes == 0
        and not (impact.low_bytes or impact.high_bytes)
    )


def build(
    rule: CompiledRule,
    decision: Decision,
    subject: Subject,
    role: str,
    scope: FactScope,
    *,
    written: bool = True,
) -> Finding:
    """Build the finding of a rule that is not silent, with its remedies where these are to be written."""
    facts = scope.facts
    texts = scope.rules.texts(rule)
    impact, assumed = _impact(rule, texts.sizes, scope)
    device, host = facts.get("hardware.memory_bytes"), facts.get("hardware.host_memory_bytes")
    worst = _bound(texts.sizes, scope) if impact.expected_bytes is None else None
    # what adapters train is little, as far as nobody says how much
    regression = rule.kind == "regression" and not (TRAINABLE in impact.needs and _has_adapters(scope))
    severity, remark = rate(impact, _integer(device), _integer(host), worst, regression=regression)
    used = _used_facts(rule, decision, facts, scope)
    assumptions = (
        *decision.assumptions,
        *_unchecked(decision, texts, scope),
        *assumed,
        *((remark,) if remark and decision.status != SILENT else ()),
    )
    return Finding(
        rule_id=rule.id,
        subject=subject.id,
        role=role,
        kind=rule.kind,
        title=rule.title,
        status=decision.status,
        severity=severity,
        confidence=rule.confidence,
        message=texts.what,
        impact=impact,
        needs=tuple(sorted(_name_needs(decision.needs, scope))),
        assumptions=assumptions,
        facts=used,
        locations=tuple(dict.fromkeys(source for fact in used for source in fact.sources)),
        remedies=write_remedies(rule, texts, scope, subject.documents, role) if written else (),
        by_release=_came_with_release(rule, texts, scope),
        references=tuple(
            FindingReference(str(entry["type"]), str(entry["url"]), entry["date"]) for entry in texts.references
        ),
        measured=None
        if texts.measured is None
        else MeasuredSeries(**{**texts.measured, "points": tuple(map(tuple, texts.measured["points"]))}),
    )


def _name_needs(needs: Iterable[str], scope: FactScope) -> Iterator[str]:
    """Name what a person can tell, and say in words what was not read of the program's code: nobody states a trait."""
    for need in needs:
        if not need.startswith(TRAITS):
            yield need
            continue
        from compatcheck.rules.vocabulary import meaning_of, type_of  # noqa: PLC0415 (only for code that was not read)

        program = find_program(str(scope.value(FRAMEWORK)))
        whether = "whether " if type_of(need) == "bool" else ""
        yield f"{whether}{meaning_of(need)} (code of {program.label})"


def _came_with_release(rule: CompiledRule, texts: Texts, scope: FactScope) -> bool:
    """Tell whether a release brought in what a rule is about: an older one is known that does not have it.

    Of a pitfall, that alone says little: every release may have it in another form. One counts that a change of release clears.
    Ranges that the releases here are not in have no say.
    """
    if rule.kind not in {"pitfall", "default-change"}:
        return True  # by its kind: a release is at fault
    if rule.kind == "pitfall" and not any(remedy["verb"] in {"upgrade", "downgrade"} for remedy in texts.remedies):
        return False
    for clause in rule.clauses:
        ranges = [(name, bounds) for name, bounds in clause.packages.items() if not isinstance(bounds, str)]
        here = [(scope.package(name), bounds) for name, bounds in ranges]
        if any(one and one.version and contains(bounds, one.version) == "no" for one, bounds in here):
            continue
        if any(contains(bounds, known) == "no" for name, bounds in ranges for known in scope.rules.releases(name)[:1]):
            return True
    return False


def _unchecked(decision: Decision, texts: Texts, scope: FactScope) -> Iterator[str]:
    """Say where a release is newer than the last one a rule was checked on."""
    for name in decision.packages:
        package, last = scope.package(name), texts.checked_through.get(name)
        if package is None or package.version is None or last is None:
            continue
        if contains([[[">", last]]], package.version) == "yes":
            yield f"{name} {package.version} is newer than {last}, the last release this was checked on"


class _FullTuning(FactScope):
    """A scope in which every parameter is trained, for sizes of runs that state no adapter."""

    def value(self, name: str) -> object:
        """Take all parameters for the trainable ones when nothing tells how many those are."""
        value = super().value(name)
        return super().value("model.parameters") if name == TRAINABLE and isinstance(value, Unknown) else value


TRAINABLE = "model.trainable_parameters"
LENGTH = "training.sequence_length"


class _WorstCase(FactScope):
    """A scope in which what is not known and has a worst value has it, for a bound on a size."""

    def value(self, name: str) -> object:
        """Take float32 for an unknown dtype, all parameters for the trained, no checkpointing, no limit that nothing keeps."""
        value = super().value(name)
        if name == LENGTH and super().value("training.keeps_long_rows") is True:
            return Unknown(frozenset((name,)))
        if not isinstance(value, Unknown):
            return value
        if name == TRAINABLE:
            return self._most_trained()
        if name == CHECKPOINTING:
            return False
        from compatcheck.rules.vocabulary import type_of  # noqa: PLC0415 (only for sizes that are not known)

        return "float32" if type_of(name) == "dtype" else value

    def _most_trained(self) -> object:
        """Return all parameters; of matrices with adapters of a rank r no more than 2 r for each row of the narrower side."""
        known = super().value
        total, rank = known("model.parameters"), known("training.lora_rank")
        widths = [known(f"model.{name}") for name in ("hidden_size", "num_key_value_heads", "head_dim")]
        if not _has_adapters(self) or "training.lora_modules_to_save" in self.facts:
            return total
        if not isinstance(total, int) or not isinstance(rank, int) or not all(isinstance(one, int) for one in widths):
            return total
        hidden, heads, each = (int(str(width)) for width in widths)
        expert = known("model.moe_intermediate_size")
        narrowest = min(hidden, heads * each, expert if isinstance(expert, int) and expert > 0 else hidden)
        return min(total, total * 2 * rank // max(1, narrowest))


def _has_adapters(scope: FactScope) -> bool:
    """Tell whether adapters are trained beside frozen weights."""
    fact = scope.facts.get("training.peft")
    return fact is not None and fact.value not in {None, "freeze"}


def _bound(sizes: Sizes, scope: FactScope) -> int | None:
    """Return the most that a rule of unknown size can cost, None where nothing known bounds it."""
    worst = _WorstCase(scope.facts, scope.environment, scope.rules)
    return max(
        (found for found in (size(sizes.high, worst)[0], bounds(sizes.expected, worst)[1]) if found is not None),
        default=None,
    )


class _ForwardOnly(FactScope):
    """A scope in which one layer at a time has its temporaries, as where activations are recomputed."""

    def value(self, name: str) -> object:
        """Take checkpointing for on, so that no size counts what layers keep for backward."""
        return True if name == CHECKPOINTING else super().value(name)


def _impact(rule: CompiledRule, sizes: Sizes, scope: FactScope) -> tuple[FindingImpact, tuple[str, ...]]:
    if not keeps_graph(scope):
        scope = _ForwardOnly(scope.facts, scope.environment, scope.rules, scope.opened)
    expected, needs = size(sizes.expected, scope)
    assumed: tuple[str, ...] = ()
    if needs == (TRAINABLE,) and "training.peft" not in scope.facts and "model.parameters" in scope.facts:
        scope = _FullTuning(scope.facts, scope.environment, scope.rules, scope.opened)
        expected, needs = size(sizes.expected, scope)
        assumed = ("for the size, that every parameter is trained: no input configures an adapter",)
    (low, _), (high, _) = size(sizes.low, scope), size(sizes.high, scope)
    least, most = bounds(sizes.expected, scope) if expected is None else (expected, expected)
    impact = FindingImpact(
        expected_bytes=expected,
        low_bytes=least if low is None else low,
        high_bytes=most if most is None or high is None else high,
        effect=rule.effect,
        memory=rule.memory,
        scope=rule.scope,
        phase=rule.phase,
        needs=tuple(sorted(_name_needs(needs, scope))),
        formula=None if sizes.expected is None else write(sizes.expected),
        passing_bytes=round(expected * (number(sizes.passing, scope)[0] or 0)) if expected is not None else None,
    )
    return impact, assumed


def _used_facts(
    rule: CompiledRule, decision: Decision, facts: Mapping[str, Fact], scope: FactScope
) -> tuple[Fact, ...]:
    used = []
    for name in decision.packages:
        package = scope.package(name)
        if package is not None and package.specifier != "absent":
            used.append(
                Fact(name, package.version or package.specifier or "any release", "installed", (package.source,)),
            )
    condition = decision.clause.when if decision.clause is not None else None
    names: dict[str, None] = {}
    sizes = scope.rules.texts(rule).sizes
    for expression in (condition, rule.when, rule.unless, sizes.expected or sizes.high):
        if expression is not None:
            names.update(dict.fromkeys(sorted(fact_names(expression))))
    used.extend(_with_meaning(facts[name]) for name in names if name in facts)
    return tuple(used)


def _with_meaning(fact: Fact) -> Fact:
    """Return a trait with its meaning as its note, for its name is written in no configuration."""
    if not fact.name.startswith(TRAITS):
        return fact
    from compatcheck.rules.vocabulary import meaning_of  # noqa: PLC0415 (only where a program is known)

    return fact._replace(note=meaning_of(fact.name))


def _integer(fact: Fact | None) -> int | None:
    return fact.value if fact is not None and isinstance(fact.value, int) else None
