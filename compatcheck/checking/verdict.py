"""The verdict on one subject: what is wrong with it, what its run needs with that, and whether either fails.

It is made here and nowhere else; every command prints it or a part of it.
"""

from __future__ import annotations

from compatcheck.core.errors import UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.summary import worst_first
from compatcheck.core.units import MIB
from compatcheck.matching.engine import Outcome, match
from compatcheck.rules.programs import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from compatcheck.checking.checks import Criteria
    from compatcheck.checking.suppositions import State
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Fact, Value
    from compatcheck.core.report import Finding
    from compatcheck.matching.memory import Memory
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


class Judgement(NamedTuple):
    """What is said of one subject."""

    findings: tuple[Finding, ...]
    """Worst first; waived, rated, and marked where they fail, are advice or only counted."""
    estimate: Estimate | None
    """What the run needs on each device, the certain regressions in it; None where no run is described."""
    outcome: Outcome
    """What matching gave, with what could not be decided."""
    work: int = 1
    """How often the rules were matched for a role: for each of its own, and of each variant that was supposed."""


def judge(
    subject: Subject,
    criteria: Criteria,
    memory: Memory | None = None,
    state: State | None = None,
    doubted: frozenset[str] = frozenset({"fits", "marginal"}),
) -> Judgement:
    """Match a subject, price its run with what is known to go wrong in it, and tell what fails.

    A run whose sizes make no sense has no estimate; `price` says which one. A memory is of variants of this subject, and
    ``state`` gives such with more stated. ``doubted`` are the outcomes that what nobody states may make worse.
    """
    outcome, found = _find(subject, criteria, memory)
    estimate, work = None, len(subject.roles)
    if describes_run(subject):
        from compatcheck.checking.fit import is_beside_peak, price, rate_deciding, state_estimate  # noqa: PLC0415 (only where a run is described)
        from compatcheck.checking.suppositions import Means, suppose_worst  # noqa: PLC0415 (as above)
        from compatcheck.matching.memory import Memory  # noqa: PLC0415 (as above)
        from compatcheck.memory.regressions import find_deciding  # noqa: PLC0415 (as above)
        from compatcheck.memory.suggest import overlay  # noqa: PLC0415 (as above)

        of_variants = Memory() if memory is None else memory

        def find_in_variant(variant: Subject) -> Sequence[Finding]:
            nonlocal work
            work += len(variant.roles)
            return _find(variant, criteria, of_variants)[1]

        def excludes(variant: Subject, finding: Finding, stated: Mapping[str, Value]) -> bool:
            roles = {role: overlay(facts, stated) for role, facts in variant.roles.items()}
            one = match(variant._replace(roles=roles), criteria.rules, lambda rule: rule == finding.rule_id)
            return not one.findings

        try:
            estimate = price(subject, found)
            if estimate.verdict.outcome in doubted:
                state = state or Resolutions(criteria.rules)
                estimate = suppose_worst(subject, found, estimate, Means(state, excludes, find_in_variant, price))
        except UsageError:
            pass  # `compatcheck estimate` says which size makes no sense
        else:
            about_run = match(state_estimate(subject, estimate), criteria.rules, lambda rule: rule in OF_ESTIMATES)
            more = (one for one in about_run.findings if criteria.checks.selects(one.rule_id))
            about = _waive_with(_waive(more, subject, criteria), found, find_deciding(estimate))
            found = rate_deciding((*about, *found), estimate)
            found = tuple(
                one._replace(folded=True) if _is_advice(one) and is_beside_peak(one, estimate) else one for one in found
            )
    marked = sorted((_mark(one, subject, criteria) for one in found), key=worst_first)
    return Judgement(tuple(marked), estimate, outcome, work)


def _find(subject: Subject, criteria: Criteria, memory: Memory | None) -> tuple[Outcome, tuple[Finding, ...]]:
    """Match a subject: what matching gave, and the findings of it, waived and told apart from what is only counted.

    A variant is often asked for what fails first, and priced next: what was found of it then is in its memory.
    """
    found: tuple[Outcome, tuple[Finding, ...]]
    if memory is not None and memory.latest is not None and memory.latest[0] is subject:
        found = memory.latest[1]
        return found
    found = _sift(match(subject, criteria.rules, criteria.checks.selects, memory), subject, criteria)
    if memory is not None:
        memory.latest = subject, found
    return found


def _sift(outcome: Outcome, subject: Subject, criteria: Criteria) -> tuple[Outcome, tuple[Finding, ...]]:
    kept = _waive(outcome.findings, subject, criteria)
    return outcome, tuple(one._replace(folded=_is_folded(one, subject)) for one in kept)


def _waive(findings: Iterable[Finding], subject: Subject, criteria: Criteria) -> Iterable[Finding]:
    return findings if criteria.waivers is None else criteria.waivers.apply(findings, subject)


def _waive_with(
    about: Iterable[Finding], found: Iterable[Finding], deciding: frozenset[tuple[str, str]]
) -> Iterator[Finding]:
    """Waive that a run does not fit where nothing but waived findings makes it so; what it needs is said all the same."""
    waived = [one.suppressed for one in found if one.suppressed is not None and (one.rule_id, one.role) in deciding]
    for one in about:
        covered = one.suppressed is None and deciding and len(waived) == len(deciding)
        yield one._replace(suppressed=waived[0]) if covered else one


def judge_unpriced(subject: Subject, criteria: Criteria, memory: Memory | None = None) -> Judgement:
    """Match a subject and tell what fails by that alone: nothing about whether its run fits."""
    return _leave_unpriced(subject, criteria, _find(subject, criteria, memory))


def _leave_unpriced(subject: Subject, criteria: Criteria, matched: tuple[Outcome, tuple[Finding, ...]]) -> Judgement:
    outcome, found = matched
    return Judgement(tuple(_mark(one, subject, criteria) for one in found), None, outcome, len(subject.roles))


class Resolutions:
    """Subjects with more stated; the same of the same subject is resolved once."""

    def __init__(self, rules: RuleSet) -> None:
        """Resolve by these rules."""
        self._rules = rules
        self._known: dict[Hashable, tuple[Subject, Subject]] = {}

    def __call__(self, subject: Subject, stated: Mapping[str, Value]) -> Subject:
        """Return a subject with more stated; one on other devices as it is on its own."""
        read_from = subject.environment, subject.as_read, subject.hardware
        settings = frozenset((*subject.settings.items(), *((name, (value, None)) for name, value in stated.items())))
        key = (*map(id, read_from), settings)
        if key not in self._known:
            from compatcheck.resolution.resolve import resolve_with  # noqa: PLC0415 (only where something is supposed)

            self._known[key] = subject, resolve_with(subject, stated, self._rules)  # what it is read from lives on
        return self._known[key][1]


class Variants:
    """The verdict on subjects, and on variants of them: rules that rest on nothing that differs are matched once."""

    def __init__(self, criteria: Criteria) -> None:
        """Judge by these criteria."""
        self._criteria = criteria
        self._first: dict[str, tuple[Subject, Judgement]] = {}
        """Subject → itself as it was read, and its verdict."""
        self._memories: dict[str, Memory] = {}
        self._resolutions = Resolutions(criteria.rules)

    def of_all_rules(self) -> Variants:
        """Return verdicts of rules that were not selected, too: a change can bring them in for certain all the same."""
        if not self._criteria.checks.select:
            return self
        return Variants(self._criteria._replace(checks=self._criteria.checks._replace(select=(), strict=False)))

    def __call__(self, subject: Subject) -> Judgement:
        """Return the verdict on a subject, or on what it comes to after changes."""
        if subject.id not in self._first:
            self._first[subject.id] = subject, judge(subject, self._criteria, state=self._resolutions)
        as_read, verdict = self._first[subject.id]
        return (
            verdict if subject is as_read else judge(subject, self._criteria, self._memory(subject), self._resolutions)
        )

    def remedied(self, subject: Subject) -> Judgement:
        """Return the verdict on what a remedy makes of a subject; more is supposed of it only where it needs more then."""
        first = self(subject) if subject.id not in self._first else self._first[subject.id][1]
        if subject is self._first[subject.id][0]:
            return first
        found = judge(subject, self._criteria, self._memory(subject), self._resolutions, frozenset())
        needs = [one.estimate.needed.high for one in (first, found) if one.estimate is not None and one.estimate.phases]
        return found if needs == sorted(needs, reverse=True) else self(subject)

    def unpriced(self, subject: Subject) -> Judgement:
        """Return what fails of a subject, or of what it comes to after changes, whatever its run needs."""
        as_read, verdict = self._first.get(subject.id, (None, None))
        if verdict is not None and subject is as_read:  # it was matched for its verdict
            return _leave_unpriced(subject, self._criteria, _sift(verdict.outcome, subject, self._criteria))
        return judge_unpriced(subject, self._criteria, self._memory(subject))

    def on(self, devices: Mapping[str, Value], subject: Subject) -> Judgement:
        """Return the verdict on a subject on other devices, whose facts are laid over what was resolved.

        What is supposed of it is supposed on these devices, too, but not of one that may not fit on them anyway.
        """

        def state(placed: Subject, stated: Mapping[str, Value]) -> Subject:
            return place(self._resolutions(placed, stated), devices)

        memory = self._memory(subject)
        return judge(place(subject, devices), self._criteria, memory, state, frozenset({"fits"}))

    def _memory(self, subject: Subject) -> Memory:
        from compatcheck.matching.memory import Memory  # noqa: PLC0415 (only where changes are tried)

        return self._memories.setdefault(subject.id, Memory())


def place(subject: Subject, devices: Mapping[str, Value]) -> Subject:
    """Return a subject on other devices, stated as ``--gpu`` states them: rules about devices are silent about others."""
    from compatcheck.memory.suggest import overlay  # noqa: PLC0415 (only where other devices are tried)

    return subject._replace(roles={role: overlay(facts, devices, "set") for role, facts in subject.roles.items()})


OF_ESTIMATES = frozenset({"_stack/run-cannot-start", "_stack/run-does-not-fit", "_stack/run-may-not-fit"})
"""Rules about what the estimate came to, which are matched once it is made."""


def describes_run(subject: Subject) -> bool:
    """Tell whether the inputs say enough of a run to estimate what it needs: its model, and what a step takes unless it serves.

    Of one that is set up for a device, and says no length, what it needs at least may be too much.
    """
    return any(
        "model.hidden_size" in facts
        and (
            "training.sequence_length" in facts
            or "program.serves" in facts
            or ("hardware.memory_bytes" in facts and any(map(_is_of_training, facts.values())))
        )
        for facts in subject.roles.values()
    )


def _is_of_training(fact: Fact) -> bool:
    return fact.name.startswith("training.") and fact.origin in _DESCRIBED


def _mark(finding: Finding, subject: Subject, criteria: Criteria) -> Finding:
    """Mark a finding that counts against ``--fail-on``, and one that is advice."""
    certain, advice = finding.status == "affected", _is_advice(finding)
    finding = finding._replace(advice=certain and advice)
    if advice or finding.suppressed is not None or not (certain or criteria.checks.strict):
        return finding
    facts = subject.roles.get(finding.role)
    fact = facts.get("hardware.memory_bytes") if facts is not None else None
    device_bytes = fact.value if fact is not None and isinstance(fact.value, int) else None
    return finding._replace(fails=True) if criteria.threshold.reached_by(finding, device_bytes) else finding


def _is_advice(finding: Finding) -> bool:
    """Tell whether no release is at fault: a pitfall, or a default, that none brought in and that does not decide the fit.

    What only passes through the host while a run is loaded or saved is advice, too.
    """
    impact = finding.impact
    if impact is not None and impact.memory == "host" and impact.phase in {"load", "save"}:
        return True
    starts = impact is None or impact.effect != "fails_to_start"
    habit = finding.kind in {"pitfall", "default-change"} and not finding.by_release
    return habit and starts and finding.rating is None


_CHOICES = frozenset(
    {
        "runtime.torch_build",
        "training.framework",
        "training.fsdp_version",
        "training.offload_optimizer",
        "training.offload_param",
        "training.sharding",
        "training.zero_stage",
    }
)
"""Facts that say which program, sharding, engine or build a run has; a run that is described has what its inputs name."""

_OF_SHARDING: Mapping[Value, frozenset[str]] = {
    "zero": frozenset({"training.offload_optimizer", "training.offload_param", "training.zero_stage"}),
    "fsdp": frozenset({"training.fsdp_version"}),
}
"""Those of them that are settings of a sharding that a run has."""


_DESCRIBED = frozenset({"configuration", "declared", "script", "set"})
"""Origins of what a person or a file says of a run, as opposed to what is installed and what follows from it."""


def _is_folded(finding: Finding, subject: Subject) -> bool:
    """Tell whether a finding is nothing to read.

    It costs next to nothing, is advice that nothing here can follow, or waits for what no input of this run hints at. What takes
    memory beside the peak of the run is told once its need is known.
    """
    impact = finding.impact
    sized = impact is not None and impact.expected_bytes is not None
    if impact is not None and sized and impact.effect == "memory" and (impact.high_bytes or 0) < MIB:
        return True
    if finding.status == "affected":
        return not finding.remedies and _is_advice(finding)
    opened = {name for name, _, _ in subject.unresolved} | {entry.fact for entry in subject.skipped}
    needs = set(finding.needs) - opened
    described = any(_is_of_training(fact) for facts in subject.roles.values() for fact in facts.values())
    if any(need.startswith(("run.", "rollout.", "allocator.")) for need in needs):
        return described or not _is_pair(finding)
    sharding = subject.roles[finding.role].get("training.sharding")
    elsewhere = _CHOICES - _OF_SHARDING.get(sharding.value if sharding is not None else None, frozenset())
    return described and (not elsewhere.isdisjoint(needs) or (not sized and _states_none_of(needs, subject)))


def _is_pair(finding: Finding) -> bool:
    """Tell whether a finding is that releases of several packages do not go together, whatever is started."""
    return finding.kind == "incompatibility" and sum(fact.origin == "installed" for fact in finding.facts) > 1


def _states_none_of(needs: Iterable[str], subject: Subject) -> bool:
    """Tell whether one of these settings has a key in no file of the programs that a run is configured for."""
    wanted = {need for need in needs if need.startswith("training.")}
    readers = {document.reader for document in subject.documents}
    if not wanted or any(find_program(reader).kind == "script" for reader in readers):
        return False
    from compatcheck.frameworks.registry import find_configuration_reader  # noqa: PLC0415 (few findings are left open)

    found = [find_configuration_reader(reader) for reader in readers if find_program(reader).reads_keys]
    if not found or None in found:
        return False
    stated = {key.fact for reader in found if reader is not None for keys in reader.TABLE.values() for key in keys}
    return not wanted <= stated
