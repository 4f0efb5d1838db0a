"""A whole job on one device: its roles take turns, and what each leaves on the device while another works adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import NOTHING, Assumption, Estimate, Phase, Size, Unmodelled, Verdict, total
from compatcheck.core.units import format_bytes
from compatcheck.memory.batches import SCORING as SCORING_BATCH
from compatcheck.memory.batches import UPDATE, read_batch
from compatcheck.memory.closed_form.estimate import CHECKPOINTING, estimate, leave_out_models
from compatcheck.memory.closed_form.policy_logits import POLICY_TRAINERS
from compatcheck.memory.closed_form.reference import count_references
from compatcheck.memory.closed_form.verdict import judge
from compatcheck.memory.deciding_component import explain, rests_on
from compatcheck.memory.engine import DEFAULT_SHARE, price_engine
from compatcheck.memory.generation import context_of, generate, generate_in_trainer
from compatcheck.memory.rank_layout import find_contradiction
from compatcheck.memory.role import POLICY, SCORING, SCORING_PHASE, TRAINED, Role, read_role
from compatcheck.memory.run import read_numbers
from compatcheck.memory.serving import describe_server, estimate_server, serves
from compatcheck.memory.suggest import overlay
from compatcheck.memory.waiting_models import read_habits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Facts, Value
    from compatcheck.memory.engine import Engine
    from compatcheck.memory.role import Parts
    from compatcheck.memory.run import Run
    from compatcheck.memory.waiting_models import Habits


def estimate_job(roles: Mapping[str, Facts], environment: Environment | None = None) -> Estimate:
    """Estimate what one device of a job needs.

    Roles that share devices are added up phase by phase: the one that works, and what all others leave behind. Roles on devices
    of their own give phases of their own; the fullest device decides.

    Returns:
        An estimate; one without phases names what is missing, or why ranks cannot be arranged so (`Verdict.primary`).

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    refused = find_contradiction(roles, environment)
    if refused is not None:
        return Estimate("closed_form", (), Verdict("unknown", None, None, refused))
    server = next((facts for facts in roles.values() if serves(facts)), None)
    if server is not None:
        return estimate_server(server, environment)
    roles = _without_second_copy(roles)
    copies = _count_copies(roles, environment)
    roles = _with_reference(roles, copies)
    names = [name for name in (*TRAINED, *SCORING) if name in roles]
    if not names:
        return Estimate("closed_form", (), judge((), None), needs=("training.framework",))
    main = roles[names[0]]
    engine_facts = roles.get("rollout", main)
    learns = _only_trains(main, engine_facts)
    if _engine_is_unknown(engine_facts) and not learns:
        return Estimate("closed_form", (), judge((), None), needs=("rollout.engine",))
    if _is_alone(roles) and not _fills_batches(main, names[0]):
        return estimate(main, environment, role=names[0], trains=names[0] in TRAINED)
    beside_policy = copies if "reference" not in roles else NOTHING
    read = [read_role(name, roles[name], environment, beside_policy if name == names[0] else NOTHING) for name in names]
    missing = [found for found in read if isinstance(found, Estimate)]
    if missing:
        return missing[0]
    open_facts = tuple(_find_open(roles, names, engine_facts)) if not learns else ()
    if open_facts:
        return Estimate("closed_form", (), judge((), None), needs=open_facts)
    found = [role for role in read if isinstance(role, Role)]
    policy = found[0]
    habit = read_habits(main)
    places = _places(roles, names)
    sharing = [role for role in found if places[role.name] == places["rollout"]]
    beside = total(part.size for role in sharing for part in _at_start(role, habit))
    engine = price_engine(policy.run, engine_facts, beside, habit)
    if _get(main, "program.engine_elsewhere_is_server") and places["rollout"] == "engine":
        engine = None  # a server that is started by itself, with settings of its own
    phases = tuple(_merge(found, engine, engine_facts, habit, places))
    assumptions = dict.fromkeys(_name_assumptions(found))
    unmodelled = dict.fromkeys(entry for role in found for entry in role.unmodelled)
    unmodelled.update(dict.fromkeys((*_neighbours(main), *_not_read(main, policy.run, engine_facts, engine))))
    verdict = judge(phases, policy.run.limit)
    batches = {(role.name, name): batch for role in found for name, batch in role.batches.items()}
    verdict = explain(verdict, phases, batches, tuple(unmodelled), None if engine is None else engine.problem)
    if verdict.outcome == "does_not_fit" and any(_leaves_checkpointing_open(role, roles[role.name]) for role in found):
        verdict = verdict._replace(outcome="marginal")
        unmodelled[
            Unmodelled("checkpointing", "less", "nobody says whether activations are checkpointed; taken as kept")
        ] = None
    shorter = {(role.name, name): slope for role in found for name, slope in role.shorter.items()}
    verdict = verdict._replace(condition=rests_on(verdict, phases, shorter))
    estimated = Estimate("closed_form", phases, verdict, tuple(assumptions), tuple(unmodelled))
    return estimated if "critic" in roles else leave_out_models(estimated, policy.run.trainer)


def _name_assumptions(roles: Sequence[Role]) -> Iterator[Assumption]:
    """Give what is assumed of each role; what is not assumed of all of them says of which."""
    for role in roles:
        for entry in role.assumptions:
            shared = all(entry in other.assumptions for other in roles)
            named = shared or entry.fact.endswith(")")
            yield entry if named else entry._replace(fact=f"{entry.fact} ({role.name})")


def _leaves_checkpointing_open(role: Role, facts: Facts) -> bool:
    """Tell whether activations are taken as kept though nobody said so."""
    return role.name in TRAINED and not role.run.checkpointing and CHECKPOINTING not in facts


def _is_alone(roles: Mapping[str, Facts]) -> bool:
    """Tell whether one model is all that a job has on its devices."""
    names = [name for name in (*TRAINED, *SCORING) if name in roles]
    main = roles[names[0]]
    engine = roles.get("rollout", main)
    return len(names) == 1 and ("rollout.engine" not in engine or _only_trains(main, engine))


def _fills_batches(facts: Facts, role: str) -> bool:
    """Tell whether batches are filled up to a number of tokens."""
    batch = read_batch(facts, UPDATE, "training.global_batch_size", role)
    return batch is not None and batch.filled


def _engine_is_unknown(facts: Facts) -> bool:
    """Tell whether a share of the device is stated for an engine and nobody knows which: it may be one that is not described."""
    share = facts.get("rollout.gpu_memory_utilization")
    return share is not None and not share.origin.endswith("default") and "rollout.engine" not in facts


def _find_open(roles: Mapping[str, Facts], names: Sequence[str], engine: Facts) -> Iterator[str]:
    """Name what a program decides about its engine where its release does not tell: on whose devices it is, and its share.

    One that nobody names is taken to be with the others, and to have the share that the engine takes by itself.
    """
    program = _get(engine, "training.framework") or _get(roles[names[0]], "training.framework")
    if program is None or _get(engine, "rollout.engine") not in DEFAULT_SHARE:
        return
    shared = _stated(roles, names, "rollout.colocated")
    if shared is None:
        yield "rollout.colocated"
    elif shared and "rollout.gpu_memory_utilization" not in engine:
        yield "rollout.gpu_memory_utilization"


def _only_trains(facts: Facts, engine: Facts) -> bool:
    """Tell whether the trainer learns from data alone; a program's defaults name an engine for all of its trainers.

    One that a file itself starts runs beside any of them: prime-rl trains on answers of another model, and evaluates.
    """
    trainer, runs = facts.get("training.trainer"), engine.get("rollout.engine")
    learns = trainer is not None and trainer.value is not None and trainer.value not in POLICY_TRAINERS
    return learns and (runs is None or runs.origin.endswith("default"))


def _without_second_copy(roles: Mapping[str, Facts]) -> Mapping[str, Facts]:
    """Leave out the reference where the policy has adapters and scores with them off."""
    actor = roles.get("actor")
    if actor is None or "reference" not in roles:
        return roles
    if not _scores_without_adapters(actor):
        return roles
    return {name: facts for name, facts in roles.items() if name != "reference"}


def _scores_without_adapters(policy: Facts) -> bool:
    """Tell whether the policy is its own reference."""
    return bool(_get(policy, "program.adapters_off_is_reference")) and _get(policy, "training.peft") is not None


def _count_copies(roles: Mapping[str, Facts], environment: Environment | None) -> Size:
    """Count the frozen copies that the only role keeps of itself."""
    main = roles.get("train") or roles.get("actor")
    if main is None or len(roles) > 1 or _scores_without_adapters(main):
        return NOTHING
    package = environment.packages.get("trl") if environment is not None else None
    version = package.version if package is not None else None
    return count_references(main, read_numbers(version) or None if version is not None else None)


def _with_reference(roles: Mapping[str, Facts], copies: Size) -> Mapping[str, Facts]:
    """Add the reference model that a fact of the only role says is there: a frozen copy of the policy that scores as it does."""
    main = roles.get("train") or roles.get("actor")
    if main is None or len(roles) > 1 or "rollout.engine" not in main or _only_trains(main, main):
        return roles
    if not copies.low:
        return roles
    changed: dict[str, Value] = {"training.offload_optimizer": None, "training.gradient_checkpointing": False}
    frozen = _get(main, "program.frozen_dtype")
    if frozen is not None and _get(main, "training.param_dtype") == "float32":
        changed["training.param_dtype"] = frozen
    loaded = _get(main, "training.reference_load_dtype")
    if loaded is not None and _get(main, "training.sharding") != "zero":  # DeepSpeed casts the whole module
        changed["model.load_dtype"] = changed["training.param_dtype"] = loaded
    for to, source in zip(UPDATE, SCORING_BATCH, strict=True):
        if source in main:
            changed[to] = main[source].value
    return {**roles, "reference": overlay(main, changed)}


def _places(roles: Mapping[str, Facts], names: Iterable[str]) -> dict[str, str]:
    """Return which devices each role and the engine (``rollout``) are on, by any name.

    Where nobody says, they share them when one program runs them all in one group. Roles of a trainer that runs in one process
    are together in any case.
    """
    names = list(names)
    shared = _stated(roles, names, "rollout.colocated")
    if shared is None or shared:
        return dict.fromkeys((*names, "rollout"), "all")
    if not _get(roles[names[0]], "program.separates_roles"):
        return {**dict.fromkeys(names, "trainer"), "rollout": "engine"}
    places = {name: name for name in names}
    for name in names:
        other = roles[name].get("training.colocated_with")
        if other is not None and other.value in places:
            places[name] = places[str(other.value)]
    return {**places, "rollout": "engine"}


def _stated(roles: Mapping[str, Facts], names: Iterable[str], fact: str) -> bool | None:
    for name in (*names, "rollout"):
        found = roles[name].get(fact) if name in roles else None
        if found is not None and found.value is not None:
            return bool(found.value)
    return None


def _at_start(role: Role, habit: Habits) -> Parts:
    """Return what a role has on the device when the engine is built: parameters, for the first step makes optimizer states.

    Programs with a process for each role build their engines first (OpenRLHF cli/train_ppo_ray.py).
    """
    if not habit.roles_in_process:
        return ()
    if role.keeps_parameters or (habit.policy_at_rollout == "kept" and role.name in POLICY):
        return role.parameters
    return ()


def _merge(
    roles: list[Role], engine: Engine | None, engine_facts: Facts, habit: Habits, places: Mapping[str, str]
) -> Iterable[Phase]:
    policy = roles[0]

    def beside(place: str, working: str) -> Parts:
        """Return what all but one leave on some devices."""
        others = [role for role in roles if role.name != working and places[role.name] == place]
        parts = [part for role in others for part in role.idle]
        if not habit.roles_in_process:
            parts += [part for role in others for part in context_of(role)]
        return tuple(parts)

    if engine is not None:
        yield from generate(policy, engine, habit, places, beside(places["rollout"], policy.name))
    elif _get(engine_facts, "rollout.engine") == "hf":
        yield generate_in_trainer(policy, beside(places[policy.name], policy.name))
    for role in roles:
        rest = beside(places[role.name], role.name)
        if engine is not None and places[role.name] == places["rollout"]:
            rest = (*rest, *engine.asleep)
        for phase in role.phases:
            own = role.states if phase.name == SCORING_PHASE and role.keeps_states else ()
            yield Phase(phase.name, role.name, (*phase.components, *own, *rest), phase.above_block)


def _get(facts: Facts, name: str) -> Value:
    fact = facts.get(name)
    return None if fact is None else fact.value


def _not_read(main: Facts, run: Run, engine_facts: Facts, engine: Engine | None) -> Iterable[Unmodelled]:
    """Say what of the job nobody read."""
    kind = _get(engine_facts, "rollout.engine")
    if _get(main, "program.engine_elsewhere_is_server") and engine is None and kind == "vllm":
        yield Unmodelled("vLLM server", "either", "runs by itself on other devices, with settings of its own")
    elif engine is None and kind not in {None, "hf"}:
        yield Unmodelled("generation engine", "more", f"what {kind} holds is not modelled")
    if run.code == "verl" and kind == "hf":
        yield Unmodelled(
            "cache of generation", "more", "verl generates a device's whole share at once, or in batches nobody states"
        )
    if run.code == "verl" and run.parallel.sharding == "megatron":
        reason = "bytes per logit are those of verl's FSDP workers; Megatron's loss was not read"
        yield Unmodelled("log-probabilities under Megatron", "either", reason)


def _neighbours(facts: Facts) -> Iterable[Unmodelled]:
    """Say what else may be on these devices whose size nobody states."""
    on, size = facts.get("run.retriever_on_gpu"), facts.get("run.other_resident_bytes")
    if size is not None and size.value:
        return
    if on is not None and on.value:
        reason = (
            "a retrieval index shares these devices and nobody says how large it is: --set run.other_resident_bytes=…"
        )
        yield Unmodelled("retrieval index", "more", reason)
    elif on is None and _get(facts, "program.asks_retriever"):
        reason = (
            "the run asks a retriever; retrieval_launch.sh puts its index on every visible GPU (--faiss_gpu), "
            "retrieval_launch_ann.sh on none: --set run.retriever_on_gpu=false, or run.other_resident_bytes=…"
        )
        yield Unmodelled("retriever", "more", reason)


def describe_job(roles: Mapping[str, Facts], model: str | None = None) -> str | None:
    """Return a line that names a job: model, batch, sharding, devices; None where nothing of it is known."""
    first = next((roles[name] for name in TRAINED if name in roles), None)
    if first is None:
        return None

    parts = [str(model or _get(first, "model.name") or _get(first, "model.model_type") or "")]
    if serves(first):
        parts.append(describe_server(first))
    # cut to what a device holds where roles take turns
    whole = None if _is_alone(roles) else "training.global_batch_size"
    batch, length = read_batch(first, UPDATE, whole), _get(first, "training.sequence_length")
    if batch is not None:
        parts.append(f"{batch.sequences} × {batch.length:,} tokens")
    elif isinstance(length, int):
        parts.append(f"{length:,} tokens")
    sharding, stage = _get(first, "training.sharding"), _get(first, "training.zero_stage")
    if sharding == "zero":
        parts.append(f"ZeRO-{stage}")
    elif isinstance(sharding, str) and sharding != "none":
        parts.append({"fsdp": "FSDP", "ddp": "DDP"}.get(sharding, sharding))
    if isinstance(_get(first, "training.peft"), str):
        parts.append(str(_get(first, "training.peft")))
    gpu, world, memory = (
        _get(first, "hardware.gpu"),
        _get(first, "hardware.world_size"),
        _get(first, "hardware.memory_bytes"),
    )
    device = gpu if isinstance(gpu, str) else format_bytes(memory) if isinstance(memory, int) else None
    if device is not None:
        parts.append(f"{world} × {device}" if isinstance(world, int) else device)
    return ", ".join(part for part in parts if part) or None
