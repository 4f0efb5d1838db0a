"""The phases in which completions are generated: weights are handed to an engine, and it or the trainer itself generates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Phase, Size, exactly, total
from compatcheck.memory.closed_form.context import context
from compatcheck.memory.closed_form.kv_cache import kv_cache
from compatcheck.memory.closed_form.parallel import held
from compatcheck.memory.closed_form.reserve import not_itemised, reserve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.memory.engine import Engine
    from compatcheck.memory.role import Parts, Role
    from compatcheck.memory.run import Run
    from compatcheck.memory.waiting_models import Habits

_OUTSIDE = frozenset({"context", "other", "reserve"})
_BUCKET = 2**31
"""verl from 0.6 on hands weights over in buckets of at most ``update_weights_bucket_megabytes``, 2048 (rollout.yaml)."""


def generate(policy: Role, engine: Engine, habit: Habits, places: Mapping[str, str], others: Parts) -> Iterable[Phase]:
    """Return the phases of an engine: weights are handed over, and it generates."""
    if places[policy.name] != places["rollout"]:
        own = (
            () if not habit.engine_in_process else (part for part in context_of(policy) if part.name == "CUDA context")
        )
        yield _complete("rollout", "rollout", (*engine.awake, *others, *own), policy)
        return
    left = policy.states if policy.keeps_states else ()
    here = policy.keeps_parameters or habit.policy_at_rollout == "kept"
    around = context_of(policy)
    handing = () if habit.policy_at_rollout == "before_weights" and not policy.keeps_parameters else policy.parameters
    if not handing:
        handing = tuple(part._replace(size=Size(0, 0, part.size.high)) for part in policy.parameters)
    at_once = not engine.sleeps or (habit.policy_at_rollout == "after_sync" and not habit.share_of_free)
    cache = (
        engine.cache if at_once else tuple(part for part in engine.cache if part.kind not in {"kv_cache", "workspace"})
    )
    gathered = _gathered(policy.run, layered=engine.layered) if engine.weights else ()
    yield _complete(
        "weight_sync",
        "rollout",
        (*engine.weights, *cache, *handing, *gathered, *left, *others, *around),
        policy,
    )
    kept = policy.parameters if here else ()
    yield _complete("rollout", "rollout", (*engine.awake, *kept, *left, *others, *around), policy)


def _gathered(run: Run, *, layered: bool) -> Parts:
    """Return what handing weights over gathers: one tensor at a time, or all of them where adapters are summoned with the model.

    Only FSDP summons; Megatron's are exported one after the other, adapters or not.
    Source: verl/workers/sharding_manager/fsdp_vllm.py (``full_tensor``, ``FSDP.summon_full_params``), v0.7.0 to v0.9.1
    workers/engine/megatron/transformer_impl.py (``get_per_tensor_param``).
    """
    model = run.model
    if run.peft is not None and run.code == "verl" and run.parallel.sharding != "megatron" and not layered:
        size = exactly(run.precision.frozen * model.parameters)
        words = f"{run.precision.frozen:g} B × {model.parameters:,}, all of the model for its adapters"
    else:
        largest = max(model.embedding, model.hidden * model.intermediate)
        one = int((run.precision.stored + run.precision.compute) * largest)
        size = Size(int(run.precision.compute * largest), one, one + _BUCKET)
        words = (
            f"({run.precision.stored:g} + {run.precision.compute:g}) B × {largest:,}, the largest tensor and its cast"
        )
    source = "verl/workers/sharding_manager/fsdp_vllm.py"
    return (
        Component("gathered weights on their way to the engine", "live_parameters", size, words, source, run.role, ()),
    )


def generate_in_trainer(policy: Role, others: Parts) -> Phase:
    """Return the phase in which Hugging Face's ``generate`` runs in the trainer's process.

    TRL generates what all accumulation steps of an update need at once, and gathers a ZeRO-3 or FSDP model for it
    (trl/models/utils.py, unwrap_model_for_generation, ``ds3_gather_for_generation``).
    """
    run = policy.run
    count = run.micro_batch * run.sequence
    cache = kv_cache(run, count * run.accumulation)
    small = kv_cache(run, count).size.low
    parts = [cache._replace(size=cache.size._replace(low=min(small, cache.size.low)))]
    if run.parallel.stage == 3 and (run.parallel.shard > 1 or run.offload_param):
        each = run.precision.compute
        size = exactly(each * held(run).total)
        words = f"{each:g} B × {held(run).total:,.0f}, the whole model"
        parts.append(
            Component("weights gathered for generation", "live_parameters", size, words,
                      "trl/models/utils.py unwrap_model_for_generation", run.role, ("training.ds3_gather_for_generation",))
        )  # fmt: skip
    own = (*policy.parameters, *policy.states)
    return _complete("rollout", policy.name, (*own, *parts, *others, *context_of(policy)), policy)


def context_of(role: Role) -> Parts:
    """Return the CUDA context of a role's process and its communicators."""
    return tuple(part for part in context(role.run) if part.kind == "context")


def _complete(name: str, owner: str, parts: Parts, role: Role) -> Phase:
    """Make a phase of generation: other processes, and what is not itemised and the allocator's cache beside the engine's."""
    around = tuple(part for part in context(role.run) if part.kind == "other")
    inside = total(part.size for part in parts if part.kind not in _OUTSIDE and part.role != "rollout")
    return Phase(
        name, owner, (*parts, *around, not_itemised(role.run, inside, inside), reserve(role.run, inside, None))
    )
