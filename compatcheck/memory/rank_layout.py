"""Whether ranks can be arranged as a run asks: what programs refuse before they allocate anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.versions import compile_specifier, contains
from compatcheck.memory.role import POLICY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Facts

_SPLITS = {
    "tensor": "training.tensor_parallel",
    "pipeline": "training.pipeline_parallel",
    "context": "training.context_parallel",
}
_OF_SERVERS = {
    "tensor": "rollout.tensor_parallel",
    "pipeline": "rollout.pipeline_parallel",
    "data": "rollout.data_parallel",
}

_TRAIN = frozenset({"train", "actor"})
_NOT_STATED = frozenset({"derived", "reader-default", "library-default"})


def find_contradiction(roles: Mapping[str, Facts], environment: Environment | None = None) -> str | None:
    """Return why ranks cannot be arranged as asked, with what to change; None where they can, or nobody says.

    Megatron-LM refuses ranks that are no multiple of tensor × pipeline × context (core/parallel_state.py,
    initialize_model_parallel) and heads that are none of the tensor-parallel ranks (core/transformer/transformer_config.py,
    core_r0.11.0); torch's device meshes and the sharding of attention by heads ask for the same. verl before 0.8 and its forks
    divide a micro batch over all ranks by them without a remainder, and then a batch by what is left
    (verl/workers/fsdp_workers.py "normalize config", v0.7.0; Search-R1 a14dc3a). A server takes as many devices as it splits its
    model over and leaves others alone. An engine beside a trainer is split over its ranks where it runs in their processes, and
    is refused where they are no multiple (verl v0.6.0 verl/workers/fsdp_workers.py _build_rollout, TRL v0.24.0
    trl/trainer/grpo_trainer.py); vLLM and SGLang refuse heads that are none of its tensor-parallel ranks (vLLM v0.14.0
    vllm/config/model.py verify_with_parallel_config), where SGLang's attention is not replicated. LitGPT has quantised bases on
    one device alone (`program.quantises_on_one_device`), and asserts that a batch holds a micro batch for each rank
    (`program.refuses_part_batches`). TRL's GRPO asks for whole groups of completions (`program.fills_groups`),
    its KTO for two sequences in a micro batch (`program.least_micro_batch`).
    """
    for role, facts in roles.items():
        sharding, stage = facts.get("training.sharding"), facts.get("training.zero_stage")
        if (
            sharding is not None
            and stage is not None
            and sharding.value == "fsdp"
            and stage.value
            and _NOT_STATED.isdisjoint({sharding.origin, stage.origin})
        ):
            return f"FSDP and DeepSpeed's ZeRO-{stage.value} exclude each other, and both are asked for: leave one out"
        of = "" if len(roles) == 1 else f" of {role}"
        serves = "program.serves" in facts
        sizes = {name: _count(facts, fact) for name, fact in (_OF_SERVERS if serves else _SPLITS).items()}
        stated = {name: size for name, size in sizes.items() if size is not None and size > 1}
        split = 1
        for size in stated.values():
            split *= size
        world = _count(facts, "hardware.world_size")
        if world is not None and (world < split if serves else world % split):
            words = " × ".join(f"{name} {size}" for name, size in stated.items())
            count = f"{split} devices" if serves else f"a multiple of {split} ranks"
            return (
                f"{words} parallel{of} needs {count}, and there {'is' if serves and world == 1 else 'are'} {world}: "
                "name all devices (--gpu N×…, --set hardware.world_size=…) or change the split"
            )
        found = _find_at_megatron(role, facts, environment, of)
        if found is not None:
            return found
        base, alone = facts.get("model.quantization"), facts.get("program.quantises_on_one_device")
        if world is not None and world > 1 and base is not None and base.value and alone is not None and alone.value:
            return (
                f"the program refuses a quantised base ({base.value}) on {world} devices: "
                "take one device, or leave the base as it is"
            )
        key, whole = _count(facts, "training.micro_batch_size"), facts.get("training.micro_batch_is_global")
        counts_all = whole is not None and whole.value is True and not _has(environment, "verl", ">=0.8")
        if key is not None and world is not None and counts_all and key < world // split:
            return (
                f"a micro batch of {key} over all {world // split} data-parallel ranks{of} leaves none for each: "
                f"make it a multiple of {world // split}"
            )
        batch, refuses = _count(facts, "training.global_batch_size"), facts.get("program.refuses_part_batches")
        if (
            None not in (batch, key, world)
            and refuses is not None
            and refuses.value
            and batch // (world // split) < key  # type: ignore[operator]  # none of them is None
        ):
            return (
                f"a batch of {batch} leaves each of {world // split} data-parallel ranks{of} less than a micro batch of {key}: "  # type: ignore[operator]  # as above
                "take a larger batch, a smaller micro batch or fewer devices"
            )
        least = _count(facts, "program.least_micro_batch")
        if key is not None and least is not None and key < least and not counts_all:
            return f"the program refuses a micro batch of {key}{of} and needs {least}: take a micro batch of at least {least}"
        found = None if world is None or key is None else _find_part_group(facts, key * (world // split), of)
        if found is not None:
            return found
        tensor, heads = stated.get("tensor", 1), _count(facts, "model.num_attention_heads")
        if heads is not None and heads % tensor:
            return f"{heads} attention heads{of} cannot be split over {tensor} tensor-parallel ranks: choose a divisor"
    policy = next((facts for role, facts in roles.items() if role in POLICY), None)
    return None if policy is None else _find_at_engine(policy, roles.get("rollout", policy))


def _find_at_megatron(role: str, facts: Facts, environment: Environment | None, of: str) -> str | None:
    """Return why Megatron's ranks cannot take experts, or heads of keys and values, as asked.

    Read in the wheels of 0.10.0, 0.12.0, 0.15.3 and 0.16.0: core/parallel_state.py initialize_model_parallel();
    core/transformer/moe/moe_layer.py (experts in equal parts; a ValueError in the forward of training where matrices are split
    and sequences are not); core/transformer/transformer_config.py (heads of keys and values are a multiple of the
    tensor-parallel ranks, from 0.16 on or a divisor).
    """
    sharding = facts.get("training.sharding")
    if sharding is None or sharding.value != "megatron":
        return None
    tensor, groups = _count(facts, "training.tensor_parallel") or 1, _count(facts, "model.num_key_value_heads")
    if groups is not None and groups % tensor and (tensor % groups or _has(environment, "megatron-core", "<0.16")):
        return f"{groups} heads of keys and values{of} cannot be split over {tensor} tensor-parallel ranks: choose a divisor"
    experts, parts = _count(facts, "model.num_experts"), _count(facts, "training.expert_parallel") or 1
    if experts is None:
        return None
    if experts % parts:
        return f"{experts} experts{of} cannot be split over {parts} expert-parallel ranks: choose a divisor"
    world, inside = _count(facts, "hardware.world_size"), _count(facts, "training.expert_tensor_parallel") or 1
    split = parts * inside * (_count(facts, "training.pipeline_parallel") or 1)
    if parts > 1 and world is not None and world % split:
        return (
            f"experts over {parts} ranks{of}, each split over {inside} and in as many stages as the rest, need a multiple of "
            f"{split} ranks, and there are {world}: name all devices (--gpu N×…, --set hardware.world_size=…) or change "
            "expert_model_parallel_size or expert_tensor_parallel_size"
        )
    splits = facts.get("training.sequence_parallel", facts.get("program.splits_sequences"))
    if tensor > 1 and role in _TRAIN and splits is not None and splits.value is False:
        return f"Megatron trains no experts{of} on {tensor} tensor-parallel ranks without sequence_parallel: turn it on"
    return None


def _find_part_group(facts: Facts, batch: int, of: str) -> str | None:
    """Return why completions do not fill groups of which each has as many as are made of a prompt.

    Args:
        facts: of the policy.
        batch: completions of a micro batch, over all ranks.
        of: whose they are, in words.
    """
    within, group = facts.get("program.fills_groups"), _count(facts, "training.num_generations")
    steps = (
        1 if within is not None and within.value == "micro_batch" else _count(facts, "training.steps_per_generation")
    )
    if within is None or group is None or steps is None or batch * steps % group == 0:
        return None
    times = "" if steps == 1 else f", {steps} times,"
    return (
        f"{batch} completions{of} in a micro batch of all devices{times} are no whole groups of {group}: "
        "name all devices (--gpu N×…), take a micro batch that fills groups, or another num_generations"
    )


def _find_at_engine(policy: Facts, facts: Facts) -> str | None:
    """Return why an engine cannot be split as asked, which has the policy's model."""
    kind = facts.get("rollout.engine")
    if "program.serves" in facts or kind is None or kind.value not in {"vllm", "sglang"}:
        return None
    tensor, stages = _count(facts, "rollout.tensor_parallel") or 1, _count(facts, "rollout.pipeline_parallel") or 1
    heads, world = _count(policy, "model.num_attention_heads"), _count(policy, "hardware.world_size")
    replicated = kind.value == "sglang" and (_count(facts, "rollout.data_parallel") or 1) > 1
    if heads is not None and heads % tensor and not replicated:
        return f"{heads} attention heads cannot be split over {tensor} tensor-parallel ranks of the engine: choose a divisor"
    shared, one = facts.get("rollout.colocated"), policy.get("program.engine_shares_process")
    split, in_ranks = tensor * stages, one is not None and one.value is True
    if (
        world is None
        or shared is None
        or shared.value is not True
        or not (world % split if in_ranks else world < split)
    ):
        return None
    return (
        f"an engine of tensor {tensor} × pipeline {stages} shares the devices of {world} ranks and needs "
        f"{'a multiple of ' if in_ranks else 'at least '}{split}: name all devices (--gpu N×…, --set hardware.world_size=…) "
        "or change the split"
    )


def _has(environment: Environment | None, package: str, versions: str) -> bool:
    found = None if environment is None else environment.packages.get(package)
    return (
        found is not None
        and found.version is not None
        and contains(compile_specifier(versions), found.version) == "yes"
    )


def _count(facts: Facts, name: str) -> int | None:
    fact = facts.get(name)
    value = None if fact is None else fact.value
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
