"""A whole job on one device: its roles take turns, and what each leaves on the device while another works adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.estimate import Assumption, Estimate, Phase, Unmodelled, total
from compatcheck.core.units import format_bytes
from compatcheck.memory.closed_form.estimate import estimate, estimate_run
from compatcheck.memory.closed_form.reserve import reserve
from compatcheck.memory.closed_form.verdict import judge
from compatcheck.memory.engine import price_engine
from compatcheck.memory.run import read_run
from compatcheck.memory.suggest import overlay

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.estimate import Component
    from compatcheck.core.facts import Facts, Value
    from compatcheck.memory.engine import Engine
    from compatcheck.memory.run import Run

TRAINED = ("train", "actor", "critic")
"""Roles that are trained, the policy first."""
SCORING = ("reference", "reward")
"""Roles that only run forward."""
MOVES_WHILE_IDLE = frozenset({"verl", "search-r1", "logic-rl", "tinyzero", "easy-r1"})
"""Programs whose offloading takes state off the device while another role works and puts it back to work
(verl/utils/fsdp_utils.py, offload_fsdp_model_to_cpu), where DeepSpeed and FSDP keep it on the host at work too."""
KEEPS_POLICY_FOR_ROLLOUT = frozenset({"search-r1", "logic-rl", "tinyzero"})
"""Programs that put an offloaded policy on the device before the rollout and take it off after it (fsdp_workers.py,
generate_sequences)."""
_ENVIRONMENT_KINDS = frozenset({"context", "other", "reserve"})
_STAYS = frozenset({"parameters", "optimizer_states"})
"""Kinds that a role leaves on the device while another works; gradients are freed by then."""


class _Role(NamedTuple):
    """One model of the job."""

    name: str
    run: Run
    phases: tuple[Phase, ...]
    idle: tuple[Component, ...]
    """What it leaves while another role works."""
    in_rollout: tuple[Component, ...]
    """What it leaves while the engine generates."""


def estimate_job(roles: Mapping[str, Facts], environment: Environment | None = None) -> Estimate:
    """Estimate what one device of a job needs.

    Roles that share devices are added up phase by phase: the one that works, and what all others leave behind. Roles on devices
    of their own give phases of their own; the fullest device decides.

    Args:
        roles: facts by role; `rollout` may hold the engine's alone.
        environment: where releases of packages are looked up.

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    names = [name for name in (*TRAINED, *SCORING) if name in roles]
    if not names:
        return Estimate("closed_form", (), judge((), None), needs=("training.framework",))
    main = roles[names[0]]
    engine_facts = roles.get("rollout", main)
    if len(names) == 1 and "rollout.engine" not in engine_facts:
        return estimate(main, environment, role=names[0], trains=names[0] in TRAINED)
    read = [_read_role(name, roles[name], environment) for name in names]
    missing = [found for found in read if isinstance(found, Estimate)]
    if missing:
        return missing[0]
    priced = [found for found in read if isinstance(found, _Role)]
    colocated = _colocated(roles, names)
    beside = sum(part.size.expected for role in priced for part in role.in_rollout) if colocated else 0
    engine = price_engine(priced[0].run, engine_facts, beside)
    phases = tuple(_merge(priced, engine, colocated=colocated))
    assumptions, unmodelled = _notes(priced, environment, roles)
    if engine is not None:
        unmodelled = (*unmodelled, *engine.unmodelled)
    return Estimate("closed_form", phases, judge(phases, priced[0].run.limit), assumptions, unmodelled)


def _read_role(name: str, facts: Facts, environment: Environment | None) -> _Role | Estimate:
    trains = name in TRAINED
    values = {fact.name: fact.value for fact in facts.values()}
    moves = values.get("training.framework") in MOVES_WHILE_IDLE
    at_work: dict[str, Value] = {}
    if moves:
        at_work = {"training.offload_param": None, "training.offload_optimizer": None}
        if (
            not trains
            and values.get("training.offload_param")
            and values.get("training.framework") in {"verl", "easy-r1"}
        ):
            at_work = {"training.fsdp_offload_params": True}  # FSDP's own CPUOffload for the reference, since verl 0.2
    reading = read_run(overlay(facts, at_work) if at_work else facts, environment, role=name, trains=trains)
    if reading.run is None:
        return Estimate("closed_form", (), judge((), None), reading.assumptions, (), reading.needs)
    run = reading.run
    phases = estimate_run(run).phases
    phases = tuple(phase for phase in phases if phase.name != "load")
    phases = (*_scoring(name, facts, at_work, environment), *phases)
    kept = {
        "parameters": not (moves and values.get("training.offload_param")),
        "optimizer_states": not (moves and values.get("training.offload_optimizer")),
    }
    resting = tuple(part for part in phases[-1].components if part.kind in _STAYS and part.role == name)
    idle = tuple(part for part in resting if kept[part.kind])
    loaded = values.get("training.framework") in KEEPS_POLICY_FOR_ROLLOUT and name in {"actor", "train"}
    in_rollout = tuple(part for part in resting if kept[part.kind] or (loaded and part.kind == "parameters"))
    return _Role(name, run, phases, idle, in_rollout)


def _scoring(
    name: str, facts: Facts, at_work: Mapping[str, Value], environment: Environment | None
) -> tuple[Phase, ...]:
    """Return the phase in which a trained policy scores what was generated: a forward without gradients, in its own batches."""
    size = facts.get("rollout.log_prob_micro_batch_size")
    if name not in {"train", "actor"} or size is None or not isinstance(size.value, int):
        return ()
    changed: dict[str, Value] = {**at_work, "training.micro_batch_size": size.value}
    reading = read_run(overlay(facts, changed), environment, role=name, trains=False)
    if reading.run is None:
        return ()
    return (estimate_run(reading.run).phases[-1]._replace(name="log_probabilities"),)


def _colocated(roles: Mapping[str, Facts], names: Iterable[str]) -> bool:
    """Tell whether roles and engine share devices; where nobody says, they do when one program runs them all in one group."""
    for name in (*names, "rollout"):
        fact = roles[name].get("rollout.colocated") if name in roles else None
        if fact is not None and fact.value is not None:
            return bool(fact.value)
    return True


def _merge(roles: list[_Role], engine: Engine | None, *, colocated: bool) -> Iterable[Phase]:
    if engine is not None:
        others = tuple(part for role in roles for part in role.in_rollout) if colocated else ()
        yield _complete("rollout", "rollout", (*engine.awake, *others), roles[0])
    for role in roles:
        rest: tuple[Component, ...] = ()
        if colocated:
            rest = tuple(part for other in roles if other is not role for part in other.idle)
            rest = (*rest, *(engine.asleep if engine is not None else ()))
        for phase in role.phases:
            own = tuple(part for part in phase.components if part.kind != "reserve")
            if phase.name == "log_probabilities":
                own = (*own, *(part for part in role.idle if part.kind == "optimizer_states"))
            yield _complete(phase.name, role.name, (*own, *rest), role)


def _complete(name: str, owner: str, parts: tuple[Component, ...], role: _Role) -> Phase:
    """Make a phase: one CUDA context, and the allocator's cache over all but what the engine takes in one block."""
    seen = {part.name for part in parts if part.kind == "context"}
    around = tuple(
        part
        for part in role.phases[-1].components
        if part.kind in {"context", "other"} and part.name not in seen and part not in parts
    )
    inside = total(part.size for part in parts if part.kind not in _ENVIRONMENT_KINDS and part.role != "rollout")
    return Phase(name, owner, (*parts, *around, reserve(role.run, inside, None)))


def _notes(
    roles: list[_Role], environment: Environment | None, facts: Mapping[str, Facts]
) -> tuple[tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    assumptions: dict[Assumption, None] = {}
    unmodelled: dict[Unmodelled, None] = {}
    for role in roles:
        found = estimate(facts[role.name], environment, role=role.name, trains=role.name in TRAINED)
        assumptions.update(dict.fromkeys(found.assumptions))
        unmodelled.update(dict.fromkeys(found.unmodelled))
    return tuple(assumptions), tuple(unmodelled)


def describe_job(roles: Mapping[str, Facts], model: str | None = None) -> str | None:
    """Return a line that names a job: model, batch, sharding, devices; None where nothing of it is known.

    Args:
        roles: facts by role.
        model: what the person calls the model.
    """
    first = next((roles[name] for name in TRAINED if name in roles), None)
    if first is None:
        return None

    def get(name: str) -> Value:
        fact = first.get(name) if first is not None else None
        return None if fact is None else fact.value

    parts = [str(model or get("model.name") or get("model.model_type") or "")]
    micro, length = get("training.micro_batch_size"), get("training.sequence_length")
    if isinstance(length, int):
        parts.append(f"{micro} × {length:,} tokens" if isinstance(micro, int) else f"{length:,} tokens")
    sharding, stage = get("training.sharding"), get("training.zero_stage")
    if sharding == "zero":
        parts.append(f"ZeRO-{stage}")
    elif isinstance(sharding, str) and sharding != "none":
        parts.append({"fsdp": "FSDP", "ddp": "DDP"}.get(sharding, sharding))
    if isinstance(get("training.peft"), str):
        parts.append(str(get("training.peft")))
    gpu, world, memory = get("hardware.gpu"), get("hardware.world_size"), get("hardware.memory_bytes")
    device = gpu if isinstance(gpu, str) else format_bytes(memory) if isinstance(memory, int) else None
    if device is not None:
        parts.append(f"{world} × {device}" if isinstance(world, int) else device)
    return ", ".join(part for part in parts if part) or None
