"""What a run needs on each device, with what is known to go wrong in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import HIDDEN
from compatcheck.core.estimate import THE_LEAST, Assumption, Estimate, Verdict
from compatcheck.core.facts import Fact, Facts
from compatcheck.core.report import FindingRemedy
from compatcheck.core.setting_names import split_name
from compatcheck.core.summary import range_text
from compatcheck.core.units import format_bytes
from compatcheck.memory.closed_form.estimate import CHECKPOINTING
from compatcheck.memory.job import estimate_job
from compatcheck.memory.regressions import find_deciding, find_turning, lay_over
from compatcheck.memory.suggest import overlay
from compatcheck.resolution.derive import derive
from compatcheck.resolution.gaps import Gaps, may_set, open_facts
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.document import Gap
    from compatcheck.core.facts import Value
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject

_WORLD = frozenset({"hardware.world_size", "hardware.nodes", "hardware.gpus_per_node"})
_TOKENS = "training.micro_batch_tokens"
"""Decides a batch that is filled by tokens, and without it sequences are assumed."""
_SPLITS = frozenset(
    {
        "hardware.devices_per_rank",
        "model.quantization",
        "model.trainable_parameters",
        "training.context_parallel",
        "training.hsdp_shard_size",
        "training.pipeline_parallel",
        "training.tensor_parallel",
        "training.zero_stage",
    }
)
"""Facts that an estimate takes as none, or as all that there is, without a word, and that change it by a multiple."""


def price(subject: Subject, findings: Iterable[Finding] = ()) -> Estimate:
    """Estimate the run of a subject in closed form, with those of its findings that are known to take memory.

    Returns:
        An estimate; without phases, and with what is needed, where it would assume a fact which an input sets to something
        nobody can tell.

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    roles, borrowed = _with_models(_with_unread(subject))
    subject, doubtful = _with_doubtful(subject._replace(roles=roles))
    borrowed += doubtful
    found, findings = estimate_job(subject.roles, subject.environment), tuple(findings)
    while True:
        subject, supposed = _with_usual(subject, found)
        if not supposed:
            break
        found, borrowed = estimate_job(subject.roles, subject.environment), (*borrowed, *supposed)
    told = {entry.fact.partition(" (")[0] for entry in borrowed}
    opened = {name for name, _, _ in subject.unresolved if name not in told}
    not_understood = {entry.fact for entry in subject.skipped if entry.fact is not None}
    opened |= {name for name in not_understood if not all(name in facts for facts in subject.roles.values())}
    assumed = {entry.fact.partition(" (")[0] for entry in found.assumptions if not entry.is_most}
    needs = [name for name in sorted(opened) if name in assumed | _SPLITS]
    if opened & _WORLD and "hardware.world_size" in assumed and "hardware.world_size" not in needs:
        needs.append("hardware.world_size")
    if _TOKENS in opened and "training.micro_batch_size" in assumed:
        needs.append(_TOKENS)
    wanted = [*needs, *(name for name in found.needs if name not in needs)]
    if wanted and _LEAST.issuperset(wanted):
        least = _price_least(wanted, findings, subject)
        if least.verdict.outcome == "does_not_fit":
            return least
    if not found.phases or not needs:
        said = (*found.assumptions, *_overruled(subject), *borrowed)
        found = lay_over(found._replace(assumptions=said), findings)
        return _retry(_doubt(found, findings, subject), findings, subject)
    return Estimate(found.method, (), Verdict("unknown", None, None), found.assumptions, (), tuple(needs))


_LEAST = frozenset({"training.max_prompt_length", "training.max_response_length", "training.sequence_length"})
"""Facts of which 1 is the least, and takes the least memory: without them nobody can tell what a run needs beyond that."""


def _price_least(names: Sequence[str], findings: Iterable[Finding], subject: Subject) -> Estimate:
    """Estimate a run with the shortest sequences: what does not fit then fits with none."""
    roles = {role: overlay(facts, dict.fromkeys(names, 1)) for role, facts in subject.roles.items()}
    found = lay_over(estimate_job(roles, subject.environment), findings)
    words = f"at least that, with sequences of one token: nobody states {' and '.join(names)}"
    said = (*(Assumption(name, 1, THE_LEAST) for name in names), *found.assumptions)
    found = _doubt(found._replace(assumptions=said), findings, subject._replace(roles=roles))
    return found._replace(verdict=found.verdict._replace(condition=found.verdict.condition or words))


def _doubt(found: Estimate, findings: Iterable[Finding], subject: Subject) -> Estimate:
    """Say of assumptions what was not read and may replace them; let no run be refused that such a part may make fit.

    Args:
        found: the estimate, with what is known to go wrong.
        findings: about the run.
        subject: the run; priced anew with the cheapest of all that its unread parts may set.
    """
    unlaunched = _is_unlaunched(subject)
    if not subject.gaps and not subject.unresolved and not unlaunched:
        return found
    named = tuple(_name_gap(entry, subject.gaps) for entry in found.assumptions)
    opened = [entry for entry, before in zip(named, found.assumptions, strict=True) if entry != before]
    found = found._replace(assumptions=named)
    if found.verdict.outcome == "fits" and (size := next((one for one in opened if one.fact in _SIZES), None)):
        words = f"it rests on {size.fact} = {size.value}: {size.reason}"
        return found._replace(verdict=found.verdict._replace(outcome="marginal", condition=words))
    if found.verdict.outcome != "does_not_fit":
        return found
    roles = {role: _at_cheapest(role, facts, subject) for role, facts in subject.roles.items()}
    if unlaunched:
        roles = {role: overlay(facts, {name: _CHEAPEST[name] for name in _SHARDING}) for role, facts in roles.items()}
    cheapest = found if roles == subject.roles else lay_over(estimate_job(roles, subject.environment), findings)
    if cheapest.verdict.outcome == "does_not_fit":
        return found
    launcher = ["the file of accelerate launch"] if unlaunched else []
    places = [gap.source for gap in subject.gaps] or [source for _, source, _ in subject.unresolved]
    first, *more = dict.fromkeys([*launcher, *(str(source.key or source) for source in places)])
    parts = f"{first} and {len(more)} more parts" if more else first
    words = f"with the cheapest that {parts}, not read, may set: {range_text(cheapest.needed)}"
    return found._replace(
        verdict=found.verdict._replace(outcome="marginal", condition=found.verdict.condition or words)
    )


def _retry(found: Estimate, findings: Iterable[Finding], subject: Subject) -> Estimate:
    """Refuse no run whose trainer tries smaller batches where one does not fit (accelerate, find_executable_batch_size)."""
    first = next(iter(subject.roles.values()))
    retries = first.get("training.auto_find_batch_size")
    if found.verdict.outcome != "does_not_fit" or retries is None or not retries.value:
        return found
    least = overlay(first, {"training.micro_batch_size": 1})
    smallest = lay_over(
        estimate_job({**subject.roles, next(iter(subject.roles)): least}, subject.environment), findings
    )
    if smallest.verdict.outcome == "does_not_fit":
        return found
    words = f"the trainer tries smaller batches (training.auto_find_batch_size); with one sequence: {range_text(smallest.needed)}"
    return found._replace(verdict=found.verdict._replace(outcome="marginal", condition=words))


_SIZES = frozenset({"training.micro_batch_size", "training.sequence_length"})
"""Facts that the need grows with in proportion: no run surely fits that only a default of theirs lets fit."""

_DOUBTFUL = "doubtful"
"""Origin of what is assumed because something states it that a part which was not read may set anew."""


def _with_unread(subject: Subject) -> Subject:
    """Name the script that a command starts and that nobody read, where nothing else says what trains: no run surely fits."""
    names = [
        str(gap.source.key)
        for one in subject.documents
        if one.reader == "script" and one.is_command
        for gap in one.gaps
    ]
    if not names:
        return subject
    roles = {
        role: facts if "training.framework" in facts else overlay(facts, {"program.unread_release": names[0]})
        for role, facts in subject.roles.items()
    }
    return subject._replace(roles=roles)


def _with_doubtful(subject: Subject) -> tuple[Subject, tuple[Assumption, ...]]:
    """Assume what is stated and may be set anew by a part that was not read, and say so."""
    said: dict[Assumption, None] = {}
    roles = dict(subject.roles)
    for document in subject.documents:
        for one in document.doubtful:
            if any(split_name(one.key) < split_name(gap.key or "") for gap in subject.gaps):
                continue  # data_max_length beside max_length
            place = document.place(one.key)
            for role, facts in roles.items():
                if one.fact is not None and one.fact not in facts and one.role in {None, role}:
                    fact = Fact(one.fact, one.value, _DOUBTFUL, (place,))  # type: ignore[arg-type]  # a vocabulary value
                    roles[role] = Facts({**facts, one.fact: fact})
                    said[Assumption(one.fact, fact.value, f"as {place} says, unless what was not read sets it")] = None
    if not said:
        return subject, ()
    for role, facts in roles.items():
        known = dict(facts)
        derive(known, open_facts(subject.documents, role, facts))
        roles[role] = Facts(known)
    return subject._replace(roles=roles), tuple(said)


def _with_usual(subject: Subject, found: Estimate) -> tuple[Subject, tuple[Assumption, ...]]:
    """Assume what is usual where an estimate would assume something else, or lacks it; say so."""
    assumed: dict[str, Value] = {entry.fact: entry.value for entry in found.assumptions}
    said: dict[Assumption, None] = {}
    roles = dict(subject.roles)
    for role, usual in subject.usual.items():
        for name, (value, words) in usual.items():
            named = name if name in assumed or name in found.needs else f"{name} ({role})"
            lacks = name in found.needs or (named in assumed and assumed[named] != value)
            if role in roles and lacks and name not in roles[role]:
                roles[role] = Facts({**roles[role], name: Fact(name, value, _DOUBTFUL, (), words)})
                said[Assumption(named, value, words)] = None
    return subject._replace(roles=roles), tuple(said)


def _is_unlaunched(subject: Subject) -> bool:
    """Tell whether only a recipe was read of a program that leaves sharding to ``accelerate launch``, whose file was not."""
    readers = [find_program(name) for name in {document.reader for document in subject.documents} - {"model"}]
    stated = any(name in facts for facts in subject.roles.values() for name in _SHARDING)
    return not stated and bool(readers) and all(reader.runs_as == "accelerate" for reader in readers)


def _name_gap(entry: Assumption, gaps: Iterable[Gap]) -> Assumption:
    """Say of an assumption about the training which part that was not read may replace it."""
    name = entry.fact.partition(" (")[0]
    gap = next((gap for gap in gaps if may_set(gap, "", name)), None)
    if gap is None or not name.startswith(("training.", "rollout.")):
        return entry
    usual = entry.reason.removesuffix(" unless somebody turns it on")
    named = gap.source if gap.source.key in {None, HIDDEN} else gap.source.key
    return entry._replace(reason=f"{usual}; {named} was not read and may set it")


_CHEAPEST: Mapping[str, Value] = {
    "model.attn_implementation": "flash_attention_2",
    "model.quantization": "nf4",
    "rollout.free_cache_engine": True,
    "rollout.sleep_mode": True,
    "training.activation_offloading": True,
    CHECKPOINTING: True,
    "training.loss_implementation": "fused_linear",
    "training.micro_batch_size": 1,
    "training.offload_optimizer": "cpu",
    "training.offload_param": "cpu",
    "training.optimizer": "sgd",
    "training.optimizer_in_backward": True,
    "training.param_dtype": "bfloat16",
    "training.peft": "lora",
    "training.sharding": "zero",
    "training.zero_stage": 3,
}
"""Facts that an estimate takes for something where nobody states them, with what costs the least memory."""
_SHARDING = ("training.sharding", "training.zero_stage")


def _at_cheapest(role: str, facts: Facts, subject: Subject) -> Facts:
    """Return the facts of a role with the cheapest of all that something which was not read may set."""
    opened = open_facts(subject.documents, role, facts) | {name for name, _, _ in subject.unresolved}
    on_defaults, gaps = any(gap.assumed for gap in subject.gaps), Gaps(subject.gaps)

    def is_open(name: str) -> bool:
        if name in facts and facts[name].origin == _DOUBTFUL:
            return True
        if name in facts:
            return on_defaults and facts[name].origin in {"reader-default", "library-default"}
        return on_defaults or name in opened or gaps.may_set("", name)

    changed = {name: value for name, value in _CHEAPEST.items() if is_open(name)}
    sharding = changed.get("training.sharding") or ("training.sharding" in facts and facts["training.sharding"].value)
    if sharding != "zero" or "hardware.world_size" not in facts:
        changed = {name: value for name, value in changed.items() if name not in _SHARDING}
    kept = {name: fact for name, fact in facts.items() if name != "model.trainable_parameters"}  # follows from adapters
    return overlay(Facts(kept) if "training.peft" in changed else facts, changed)


def _overruled(subject: Subject) -> Iterator[Assumption]:
    """Say where a declared device stands against the number of devices or nodes that a script starts on."""
    for facts in subject.roles.values():
        for name in sorted(_WORLD & facts.keys()):
            fact = facts[name]
            if fact.origin == "declared" and fact.alternatives:
                value, place = fact.alternatives[0]
                told = fact.sources[0].path if fact.sources else "declared"
                yield Assumption(name, fact.value, f"as {told} says; {place} says {value}")
        return


def _with_models(subject: Subject) -> tuple[dict[str, Facts], tuple[Assumption, ...]]:
    """Take a model that could not be read to be as large as the first one, and say of which roles."""
    first = next(iter(subject.roles.values()))
    model = {name: fact for name, fact in first.items() if name.startswith("model.")}
    roles, said = dict(subject.roles), []
    for role, facts in subject.roles.items():
        if "model.hidden_size" in model and "model.hidden_size" not in facts:
            roles[role] = Facts({**model, **facts})
            name = facts.get("model.name")
            key = f" ({name.sources[0].key})" if name is not None and name.sources and name.sources[0].key else ""
            words = "its model" if name is None else f"{name.value}{key}"
            reason = f"{words} was not read; taken to be as large as the policy's model"
            said.append(Assumption(f"model ({role})", "the policy's", reason))
    return roles, tuple(said)


def state_estimate(subject: Subject, estimate: Estimate) -> Subject:
    """Return a subject whose first role has what its estimate came to among its facts."""
    verdict, peak, place = estimate.verdict, estimate.peak_phase, ""
    cause = None if estimate.possible else verdict.primary
    values: dict[str, Value] = {}
    if estimate.phases or verdict.primary is not None:
        values["estimate.verdict"] = verdict.outcome if estimate.phases else "cannot_start"
    if estimate.phases and verdict.limit_bytes is not None:
        worst = verdict.outcome == "marginal"
        high = estimate.needed.high if estimate.needed.high > verdict.limit_bytes else estimate.device.high
        needed = high if worst else estimate.needed.expected
        values |= {"estimate.needed_bytes": needed, "estimate.limit_bytes": verdict.limit_bytes}
        place = f"{', at worst' if worst else ''}, in {peak.name}" if peak is not None else ""
    turning = () if estimate.possible else find_turning(estimate)
    told = {
        "estimate.verdict": "; ".join(
            (
                "verdict of the estimate",
                *([f"cause: {cause}"] if cause else []),
                *([f"it fits without {', '.join(turning)}"] if turning else []),
                *([verdict.condition] if verdict.condition else []),
            )
        ),
        "estimate.needed_bytes": f"what it needs on one device{place}",
        "estimate.limit_bytes": "what one device has",
    }
    stated = {name: Fact(name, value, "derived", (), told[name]) for name, value in values.items()}
    role = next(iter(subject.roles))
    return subject._replace(roles={**subject.roles, role: Facts({**subject.roles[role], **stated})})


def rate_deciding(findings: tuple[Finding, ...], estimate: Estimate) -> tuple[Finding, ...]:
    """Rate critical what says that the run does not fit, and the findings without which it would."""
    deciding = find_deciding(estimate)
    limit, after = format_bytes(estimate.verdict.limit_bytes or 0), format_bytes(estimate.needed.expected)
    severity = "critical" if does_not_run(estimate) else "medium"
    words = ""
    if estimate.without is not None:
        before = format_bytes(estimate.without.needed.expected)
        words = f"the run is estimated to need {before} of {limit} a device without this, and {after} with it"
    possible = {(one.rule_id, one.role) for one in estimate.possible}
    open_words = f"the run is estimated to need {after} of {limit} a device without this; {estimate.verdict.condition}"
    waiting = [one for one in findings if (one.rule_id, one.role) in possible]
    packages = tuple(dict.fromkeys(fact for one in waiting for fact in one.facts if "." not in fact.name))
    places = tuple(source for fact in packages for source in fact.sources)

    refused = None if estimate.phases else (estimate.verdict.primary or "").rpartition(": ")[2]

    def rate(finding: Finding) -> Finding:
        if finding.is_about_fit:
            facts, locations = (*packages, *finding.facts), (*places, *finding.locations)
            return finding._replace(severity=severity, facts=facts, locations=locations)
        if refused and any(fact.name == "estimate.verdict" for fact in finding.facts):
            return finding._replace(remedies=(FindingRemedy(refused, None, "unsafe"),))
        key = finding.rule_id, finding.role
        if key in (deciding if finding.status == "affected" else possible):
            said = words if finding.status == "affected" else open_words
            return finding._replace(severity="critical", rating=said, folded=False)
        return finding

    return tuple(map(rate, findings))


_UPDATES = frozenset({"forward", "backward", "step"})


def is_beside_peak(finding: Finding, estimate: Estimate) -> bool:
    """Tell whether a finding takes memory in an update that leaves room for it: another phase needs more, and decides."""
    impact, limit = finding.impact, estimate.verdict.limit_bytes
    if impact is None or limit is None or impact.effect != "memory" or impact.phase not in _UPDATES:
        return False
    own: list[int] = []
    others: list[int] = []
    for phase in estimate.phases:
        (own if phase.role == finding.role and phase.name in _UPDATES else others).append(phase.size.expected)
    return bool(own and others) and max(own) < min(limit, max(others))


def does_not_run(estimate: Estimate) -> bool:
    """Tell whether a run does not fit, or cannot be started as it is described."""
    refused = not estimate.phases and estimate.verdict.primary is not None
    return refused or estimate.verdict.outcome == "does_not_fit"
