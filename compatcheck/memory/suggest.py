"""Changes of a run's settings that may lower its peak; what they do is for the whole judgement to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.adapters import LOW_RANK
from compatcheck.core.effects import CHANGES_TRAINING, MORE_HARDWARE, SAME_RESULT, SLOWER
from compatcheck.core.facts import Fact, Facts
from compatcheck.core.suggestions import SuggestedChange
from compatcheck.memory.suggest_roles import propose as propose_for_roles
from compatcheck.memory.suggest_roles import propose_for_beside, propose_for_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.facts import Value

SUGGESTED = "derived"
"""Origin of facts that a suggestion changes."""
_NOTE = "suggested"


def overlay(facts: Facts, changed: Mapping[str, Value], origin: str = SUGGESTED) -> Facts:
    """Return the facts with some of them changed."""
    new = {name: Fact(name, value, origin, note=_NOTE) for name, value in changed.items()}
    return Facts({**facts, **new})


def candidates(roles: Mapping[str, Facts]) -> Iterator[SuggestedChange]:
    """Yield every change that this run's settings leave open, in no order."""
    training = next((facts for name, facts in roles.items() if name in {"train", "actor"}), None)
    facts = training if training is not None else next(iter(roles.values()))
    values = {name: fact.value for name, fact in facts.items()}
    if values.get("program.serves"):
        yield from propose_for_server(facts)
        return
    yield from propose_for_roles(facts)
    if values.get("rollout.engine") is not None:
        for role in ("critic", "reference", "reward"):
            yield from propose_for_beside(role, roles[role]) if role in roles else ()
    if (steps := facts.get(_STEPS)) is not None and steps.origin == "derived" and steps.note != _NOTE:
        del values[_STEPS]
    for propose in _PROPOSALS:
        yield from propose(values)


def _smaller_batch(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    size, steps = values.get("training.micro_batch_size"), values.get("training.gradient_accumulation_steps")
    if not isinstance(size, int) or size <= 1 or values.get("rollout.engine") is not None:
        return
    for smaller in sorted({max(size // 2, 1), 1}, reverse=True):
        if size % smaller:
            continue
        factor = size // smaller
        changed: dict[str, Value] = {"training.micro_batch_size": smaller}
        words = f"micro batch {size} → {smaller}"
        if isinstance(steps, int):
            changed["training.gradient_accumulation_steps"] = steps * factor
            words += f", accumulate {steps} → {steps * factor}"
        yield SuggestedChange(
            words, changed, SLOWER, "" if isinstance(steps, int) else f"accumulate {factor} times as often"
        )


def _smaller_evaluation(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    size = values.get("training.eval_batch_size")
    if values.get("training.evaluates") and isinstance(size, int) and size > 1:
        yield SuggestedChange(
            f"evaluation batch {size} → 1", {"training.eval_batch_size": 1}, SLOWER, "evaluations alone"
        )


def _checkpointing(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    if not values.get("training.gradient_checkpointing"):
        changed: dict[str, Value] = {"training.gradient_checkpointing": True}
        given = values.get("program.gives_input_gradients", True) or values.get("run.inputs_require_gradients")
        if "training.use_reentrant" not in values or (values.get("training.peft") in LOW_RANK and not given):
            changed["training.use_reentrant"] = False
        yield SuggestedChange("gradient checkpointing", changed, SLOWER, "recomputes each block in backward")


def _attention(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    if values.get("model.attn_implementation") == "eager":
        effect, note = SAME_RESULT, "the model type needs a path for it"
        if values.get("program.takes_flash_attention") is not False:
            kernels = {"model.attn_implementation": "flash_attention_2"}
            yield SuggestedChange("flash_attention_2 attention (needs flash-attn)", kernels, effect, note)
        if values.get("model.attn_logit_softcapping") is not None:
            effect, note = (
                CHANGES_TRAINING,
                "this model caps its attention scores, which sdpa leaves out in most releases",
            )
        if values.get("program.takes_sdpa") is not False:
            yield SuggestedChange("sdpa attention", {"model.attn_implementation": "sdpa"}, effect, note)


def _loss(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    """Propose Liger's loss, which a model computes that is given labels; trainers of TRL have losses of Liger's own.

    ms-swift refuses it where a process has several devices (``swift/trainers/arguments.py``, v3.5.0 to v4.5.2).
    """
    own = values.get("program.runs_trl_trainers") and values.get("program.has_liger_loss") is not False
    given = values.get("program.passes_labels") is not False or own
    alone = values.get("hardware.devices_per_rank") in {None, 1}
    known = values.get("model.has_liger_kernels") is not False or values.get("program.passes_labels") is False
    if given and alone and known and values.get("training.loss_implementation") in {None, "cross_entropy"}:
        changed: dict[str, Value] = {"training.loss_implementation": "fused_linear", "training.use_liger_kernel": True}
        yield SuggestedChange(
            "fused linear cross-entropy (Liger: needs liger-kernel)",
            changed,
            SAME_RESULT,
            "needs a model type that Liger knows",
        )


def _sharding(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    """Propose to spread what each rank of plain data parallelism holds all of."""
    world = values.get("hardware.world_size")
    if values.get("training.sharding", "ddp") != "ddp" or not isinstance(world, int) or world == 1:
        return
    if values.get("training.optimizer", "adamw") not in _ELEMENTWISE or values.get("training.optimizer_in_backward"):
        return
    zero: dict[str, Value] = {"training.sharding": "zero", "training.zero_stage": 2}
    yield SuggestedChange("DDP → ZeRO-2 (needs deepspeed)", zero, SAME_RESULT)
    if values.get("model.quantization") is None:
        note = "gathers parameters block by block"
        yield SuggestedChange("DDP → ZeRO-3 (needs deepspeed)", {**zero, "training.zero_stage": 3}, SLOWER, note)
        yield SuggestedChange("DDP → FSDP", {"training.sharding": "fsdp"}, SLOWER, note)


def _zero(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    stage, world = values.get("training.zero_stage"), values.get("hardware.world_size")
    if values.get("training.sharding") != "zero" or not isinstance(stage, int) or world in {None, 1}:
        return
    for higher in range(stage + 1, 4):
        yield SuggestedChange(
            f"ZeRO-{stage} → ZeRO-{higher}", {"training.zero_stage": higher}, SLOWER if higher == 3 else SAME_RESULT
        )


def _offload(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    if values.get("training.sharding") == "zero" and values.get("training.zero_stage"):
        if values.get("training.offload_optimizer") is None:
            note = "needs 12 bytes of main memory per parameter of the node's share"
            yield SuggestedChange("optimizer states on the host", {"training.offload_optimizer": "cpu"}, SLOWER, note)
        if values.get("training.zero_stage") == 3 and values.get("training.offload_param") is None:
            yield SuggestedChange("parameters on the host", {"training.offload_param": "cpu"}, SLOWER)
    if (
        values.get("training.sharding") == "fsdp"
        and not values.get("training.fsdp_offload_params")
        and _adds_up(values)
    ):
        yield SuggestedChange("FSDP CPU offload", {"training.fsdp_offload_params": True}, SLOWER)


def _adds_up(values: Mapping[str, Value]) -> bool:
    """Tell whether offloaded gradients of several micro batches are added: FSDP1 keeps the last one's outside of ``no_sync``.

    Source: torch 2.13 distributed/fsdp/fully_sharded_data_parallel.py, class FullyShardedDataParallel, limitations.
    """
    alone = values.get(_STEPS) == 1 or values.get("training.fsdp_version") == 2
    return alone or values.get("program.accumulates_without_sync") is True


def _optimizer(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    if values.get("training.optimizer", "adamw") == "adamw":
        if values.get("training.optimizer_implementation") == "foreach":
            yield SuggestedChange("fused AdamW", {"training.optimizer_implementation": "fused"}, SAME_RESULT)
        if values.get("training.sharding") in {"none", "ddp", "fsdp"}:
            yield SuggestedChange(
                "8-bit AdamW (needs bitsandbytes)", {"training.optimizer": "adamw_8bit"}, CHANGES_TRAINING
            )


def _parallel(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    world, degree = values.get("hardware.world_size"), values.get("training.tensor_parallel") or 1
    heads = values.get("model.num_key_value_heads")
    if isinstance(world, int) and isinstance(degree, int) and values.get("program.tensor_parallel"):
        wider = degree * 2
        split = wider
        for other in ("training.pipeline_parallel", "training.context_parallel"):
            size = values.get(other)
            split *= size if isinstance(size, int) and size > 0 else 1
        if world % split == 0 and (not isinstance(heads, int) or heads % wider == 0):
            yield SuggestedChange(f"tensor parallel {degree} → {wider}", {"training.tensor_parallel": wider}, SLOWER)


def _nodes(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    nodes, world = values.get("hardware.nodes"), values.get("hardware.world_size")
    if (
        not isinstance(nodes, int)
        or not isinstance(world, int)
        or values.get("training.sharding") not in {"zero", "fsdp"}
    ):
        return
    steps, size = (values.get(f"training.{name}") for name in ("gradient_accumulation_steps", "micro_batch_size"))
    for more in (nodes * 2, nodes * 4):
        changed: dict[str, Value] = {"hardware.nodes": more, "hardware.world_size": world // nodes * more}
        words, note, factor = f"{nodes} → {more} nodes", "", more // nodes
        if steps is None and any(values.get(name) is not None for name in _BATCHES):
            note = "the same batch, spread over more ranks"
        elif isinstance(steps, int) and steps % factor == 0:
            changed["training.gradient_accumulation_steps"] = steps // factor
            words += f", accumulate {steps} → {steps // factor}"
        elif isinstance(steps, int) and isinstance(size, int) and size % factor == 0:
            changed["training.micro_batch_size"] = size // factor
            words += f", micro batch {size} → {size // factor}"
        elif steps is None:
            note = "a batch that is counted by device grows with them"
        else:
            note = f"changes training, too: the global batch is {factor} times as large"
        yield SuggestedChange(words, changed, MORE_HARDWARE, note)


def _sequence(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    length = values.get("training.sequence_length")
    if isinstance(length, int) and length >= 1024 and "training.max_prompt_length" not in values:
        yield SuggestedChange(
            f"sequences of {length // 2:,}", {"training.sequence_length": length // 2}, CHANGES_TRAINING
        )


def _weights(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    """Propose smaller weights where they are frozen beneath adapters: what is trained keeps its precision."""
    if values.get("training.peft") not in LOW_RANK or values.get("model.quantization") is not None:
        return
    if values.get("model.load_dtype") == "float32":
        yield SuggestedChange("frozen weights in bfloat16", {"model.load_dtype": "bfloat16"}, CHANGES_TRAINING)
    if values.get("training.zero_stage") != 3 and values.get("training.sharding") != "fsdp":
        words = "frozen weights in 4 bits (needs bitsandbytes)"
        note = 'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4") where transformers loads the model'
        yield SuggestedChange(words, {"model.quantization": "nf4"}, CHANGES_TRAINING, note)


def _adapters(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    if "training.peft" in values and values["training.peft"] is None and values.get("program.adapters") is not False:
        changed: dict[str, Value] = {"training.peft": "lora", "training.lora_rank": 16}
        yield SuggestedChange("LoRA of rank 16", changed, CHANGES_TRAINING)


_PROPOSALS = (
    _smaller_batch, _smaller_evaluation, _checkpointing, _attention, _loss, _sharding, _zero, _offload, _optimizer, _parallel,
    _nodes, _sequence, _weights, _adapters,
)  # fmt: skip
_ELEMENTWISE = frozenset({"adamw", "adam", "sgd", "lion"})
"""Optimizers whose step on a part of a parameter is that part of the step: the others do not run on shards everywhere."""
_STEPS = "training.gradient_accumulation_steps"
"""Not a setting where it follows from the batch of all ranks."""
_BATCHES = ("training.global_batch_size", "rollout.global_batch_size")
"""Batches of all ranks, which stay as they are however many there are."""
