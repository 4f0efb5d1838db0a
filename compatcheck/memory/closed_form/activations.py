"""Activations kept for backward, with checkpointing or without, and what one block needs while it is differentiated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size, exactly
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.memory.closed_form.adapters import kept_per_token, summed_experts
from compatcheck.memory.closed_form.experts import routed_width
from compatcheck.memory.closed_form.layers import (
    LITGPT,
    RECIPES,
    Recipe,
    Setting,
    find_recipe,
    forward_peak,
    saved,
    transient,
)
from compatcheck.memory.closed_form.logits import TORCHTITAN, sequences
from compatcheck.memory.closed_form.parallel import held, in_flight
from compatcheck.memory.closed_form.trl_logits import ONLINE

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

TRACED = 0.03
"""How far a block whose recipe is known may be off: the largest difference to full-size traces, docs/memory-model.md."""
UNKNOWN_TYPE = 0.4
"""Range of blocks that were not read, as a share: nine of ten of the recipes lie so near to llama's. A program of one's own may
have blocks of its own: lit-gpt's of phi keep 0.60 of what transformers' do, of stablelm 1.11."""
SOURCE = "saved tensors of each operation, docs/memory-model.md; Korthikanti, arXiv 2205.05198"


class Activations(NamedTuple):
    """Bytes of activations on one rank."""

    kept: Size
    """All blocks, from the end of forward on."""
    outside: float
    """Final norm and the input of the head."""
    block: Size
    """One block in full, which backward recomputes under checkpointing; nothing without."""
    transient: Size
    """Gradients alive inside of one block's backward."""
    forward: Size
    """What one block needs in a forward that keeps nothing: under checkpointing, and where nothing is trained."""
    words: str


def activations(run: Run, *, last_stage: bool = False) -> Activations:
    """Return activations of the micro batches that are in flight on one rank.

    Args:
        run: the run.
        last_stage: those of the last pipeline stage, which has the loss and one micro batch at a time.
    """
    model, precision = run.model, run.precision
    recipe = find_recipe(model.model_type, model.activation, run.code)
    given = tokens = run.tokens * sequences(run)
    heard, sequence = run.micro_batch * model.encoder_positions, max(run.sequence, model.encoder_positions)
    if heard:  # by half of the blocks
        tokens = (given + heard) // 2
    at_once = max(given // ONLINE.get(run.trainer, 1), heard)  # of one pass, where the graphs of several are kept
    layers = held(run).layers
    at = setting(run)
    low_at, high_at = _alternatives(run, at)
    sizes = [_per_token(recipe, variant, run) for variant in (low_at, at, high_at)]
    spread = 0.0 if model.model_type in RECIPES and run.blocks_read else UNKNOWN_TYPE
    low, each, high = sizes[0] * (1 - TRACED - spread), sizes[1], sizes[2] * (1 + TRACED + spread)
    if model.experts:
        high *= 2 - 1 / model.experts_per_token if model.experts_per_token else 1
    block = Size(int(low * tokens), int(each * tokens), int(high * tokens))
    recomputed = Size(int(low * at_once), int(each * at_once), int(high * at_once))
    weights, gradient = summed_experts(run)
    block, recomputed = block + exactly(weights), recomputed + exactly(weights)
    stream = precision.residual * model.hidden / (run.parallel.tensor if run.sequence_parallel else 1)
    outside = given * (saved_outside(recipe, run))
    moment = transient(recipe, at, sequence) * at_once / run.parallel.tensor
    if _gathers_inputs(run):  # what is gathered in front of a matrix, and its product before that is reduced and split
        moment += 2 * at.compute * model.hidden * at_once * (1 - 1 / run.parallel.tensor)
    gradients = Size(int(moment * 0.8), int(moment), int(moment * 1.5)) + exactly(gradient)
    copies = 1 if last_stage else in_flight(run)
    many = f" × {copies} micro batches in flight" if copies > 1 else ""
    moment = forward_peak(recipe, at, sequence) * at_once
    passing = Size(int(moment * 0.9), int(moment), int(moment * 1.3)) + exactly(weights)
    nothing = Size(0, 0, 0)
    more = f" + {weights:,.0f} B of adapted expert weights in each" if weights else ""
    if run.optimizer is None:
        return Activations(nothing, outside, nothing, nothing, passing, "one block at a time, nothing is kept")
    if run.checkpointing:
        if run.policy == "every_other_product":
            stream += every_other_product(at)
        inputs = layers // run.checkpoint_every  # counted from the first block of the stage on
        whole = (layers - inputs) * copies
        kept = int(stream * tokens * inputs * copies)
        if run.activation_offloading:
            kept, whole = int(2 * stream * tokens), min(2, whole)
        words = f"{stream:,.0f} B × {tokens:,} tokens × {inputs} block inputs{many}"
        if whole:
            words += f" + {each:,.0f} B × {tokens:,} tokens × {layers - inputs} blocks{many}{more}"
        kept_all = Size(kept, kept, int(kept * 1.02)) + _times(block, whole)
        return Activations(kept_all, outside, recomputed, gradients, passing, words)
    count = layers * copies
    if run.activation_offloading:
        count = 2
    words = f"{each:,.0f} B × {tokens:,} tokens × {layers} blocks{many}{more}"
    return Activations(_times(block, count), outside, nothing, gradients, nothing, words)


def _times(size: Size, count: int) -> Size:
    return Size(size.low * count, size.expected * count, size.high * count)


def every_other_product(at: Setting) -> float:
    """Return bytes per token that torchtitan's selective checkpointing keeps of a block beside its input.

    Outputs of attention and of every other matrix product: of the seven of a llama block those of queries, values, gate and down
    (torchtitan at 9dec370, parallelisms/parallelize_llama.py, _get_custom_policy).
    """
    return at.compute * (at.query + at.key + at.query + at.intermediate + at.hidden) + 4 * at.heads


def setting(run: Run) -> Setting:
    """Return what decides which tensors of a block are kept."""
    model, precision = run.model, run.precision
    # FSDP1 makes gradients of the frozen weights of a unit, too
    full = run.trainable >= model.parameters or run.mixed_units is True
    split = run.parallel.tensor
    return Setting(
        hidden=model.hidden,
        query=model.query_width // split,
        key=max(model.key_width // split, model.head_dim),
        heads=max(1, model.heads // split),
        intermediate=routed_width(run) / split,
        experts=model.experts_per_token if model.experts else 0,
        compute=precision.compute,
        float16=precision.float16,
        residual=precision.residual,
        norms_trained=full,
        linears_trained=full,
        attention="eager" if model.attention == "eager" and run.policy != "core_attention" else "flash",
        repeated=_repeats(run),
        compiled=run.compiled,
    )


def _gathers_inputs(run: Run) -> bool:
    """Tell whether inputs of matrices that are split by columns are kept as they were gathered, along the whole sequence.

    torchtitan redistributes them in front of attention and MLP (9dec370, parallelize_llama.py, PrepareModuleInput), so that
    autograd saves what was gathered; Megatron saves each rank's part and gathers anew (core/tensor_parallel/layers.py).
    """
    return run.code == TORCHTITAN and run.sequence_parallel and run.parallel.tensor > 1


def _repeats(run: Run) -> bool:
    """Tell whether keys and values are repeated to all heads.

    transformers repeats them in the eager path always and in its sdpa path until 4.53, from 4.54 only with a mask
    (integrations/sdpa_attention.py use_gqa_in_sdpa). flash_attention_2 and 3 take fewer heads as they are.
    """
    if run.model.attention == "eager" or run.code == LITGPT:  # LitGPT expands and copies them before any kernel
        return True
    if run.model.attention != "sdpa":
        return False
    release = run.release("transformers")
    if release is not None and release < (4, 54):
        return True
    return bool(run.padded)


def _alternatives(run: Run, at: Setting) -> tuple[Setting, Setting]:
    """Return the settings that what is not known about the run allows: the leanest and the most wasteful."""
    low = high = at
    if run.model.attention == "sdpa" and run.padded is None:
        high = high._replace(repeated=True)
    if run.compiled:
        high = high._replace(compiled=False)
    if run.mixed_units is None:
        high = high._replace(norms_trained=True, linears_trained=True)
    return low, high


def _per_token(recipe: Recipe, at: Setting, run: Run) -> float:
    """Return bytes one block keeps per token."""
    parts = saved(recipe, at)
    split = run.parallel.tensor if run.sequence_parallel else 1
    whole = parts.norms / split + parts.inputs / (1 if _gathers_inputs(run) else split)
    scores = parts.scores * run.sequence
    return whole + parts.attention + parts.mlp + scores + kept_per_token(run)


def saved_outside(recipe: Recipe, run: Run) -> float:
    """Return bytes per token of the final norm and the head's input."""
    hidden, residual = run.model.hidden, run.precision.residual
    if run.optimizer is None:
        return hidden * run.precision.compute
    wide = 4 + residual if recipe.norm != "layer" else residual
    split = run.parallel.tensor if run.sequence_parallel else 1
    return hidden * (wide / split + run.precision.compute)


def components(run: Run, found: Activations, *, block: str = "") -> tuple[Component, ...]:
    """Return components: what is kept, and what one block needs.

    Args:
        run: the run.
        found: its activations.
        block: ``forward`` or ``backward`` while a block is computed or differentiated, empty in between.
    """
    facts = (
        "training.micro_batch_size", "training.sequence_length", "training.gradient_checkpointing",
        "model.attn_implementation",
    )  # fmt: skip
    outside = int(found.outside)
    kept = found.kept if block == "forward" else found.kept + Size(outside, outside, outside)
    name = "checkpointed activations" if run.checkpointing else "activations"
    parts = [Component(name, "activations", kept, found.words, SOURCE, run.role, facts)]
    if block:
        size = found.forward if block == "forward" else found.block + found.transient
        words = "tensors of one block" if block == "forward" else "saved tensors and gradients of one block"
        parts.append(Component(f"one block in {block}", "activations", size, words, SOURCE, run.role, facts))
    return tuple(part for part in parts if part.size.high)
