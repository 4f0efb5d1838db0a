"""Logits and loss: bytes per logit by the loss code of the installed release.

Every figure was measured by the probes logits_and_loss and trl_sft_loss over all releases (docs/sweeps.md) and is derived in
their docstrings; losses outside of the model: policy_logits and trl_logits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size, exactly
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.memory.closed_form.layers import DECODER, LITGPT, RECIPES
from compatcheck.memory.closed_form.parameters import parameters
from compatcheck.memory.closed_form.policy_logits import (
    HEADLESS,
    NEMO_RL,
    OUTSIDE,
    POLICY_TRAINERS,
    completion_share,
    per_policy_logit,
)
from compatcheck.memory.closed_form.policy_logits import PerLogit as Range
from compatcheck.memory.closed_form.reference import WITHOUT
from compatcheck.memory.closed_form.trl_logits import fused_divergence, takes_tiles, trl_logits
from compatcheck.memory.precision import takes_loss_in_16_bits

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


class PerLogit(NamedTuple):
    """Bytes per logit of a 16-bit model."""

    forward: float
    """Peak inside the loss."""
    backward: float
    """While the loss is differentiated."""


MODERN = PerLogit(10, 12)
"""From 4.49: logits 2, their float32 copy 4, log-probabilities 4; in backward log-probabilities 4 and two gradients of 4."""
SHIFTED = PerLogit(14, 12)
"""4.46 to 4.48: the shifted float32 copy is made contiguous, 4 more."""
OLD_CAST = PerLogit(12, 12)
"""Before 4.46, types that cast in their own forward: float32 logits, shifted copy, log-probabilities."""
SIXTEEN_BIT = PerLogit(6, 6)
"""Types whose loss stayed in 16 bits: logits, shifted copy, log-probabilities of 2 each."""
AUTOCAST = PerLogit(12, 12)
"""The same under autocast, which takes cross_entropy in float32 (torch/csrc autocast_mode.h, list of float32 operations)."""
VOCABULARY_PARALLEL = PerLogit(6, 6)
"""Megatron-LM's: 16-bit logits and one float32 copy in which everything is done in place, the gradient too, which is handed back
in 16 bits (core/tensor_parallel/cross_entropy.py, core_v0.14.0)."""
NANOTRON = PerLogit(10, 6)
"""nanotron's: 16-bit logits, a float32 copy, and the same less the largest, which becomes exponential, softmax and gradient in
place; the gradient is handed back in 16 bits (src/nanotron/parallel/tensor_parallel/functional.py at 2411b022)."""
LOSS_PARALLEL = PerLogit(14, 16)
"""torch's `loss_parallel`, which torchtitan takes with tensor parallelism: 16-bit logits, their float32 copy, the same less the
largest and its exponential; in backward log-probabilities, a gradient in two steps and their exponential
(benchmarks/parallel_loss.py)."""
FACTORY = Range(20, 20, 20)
"""LLaMA-Factory's own DPO and KTO: the policy's float32 logits and log-probabilities stay while the reference makes both, and a
copy of the logits; 12 in backward, and of a loss without reference (benchmarks/preference_logits.py)."""
WHOLE = Range(12, 16, 20)
"""prime-rl's loss over whole logits: what the peaks that its repository shows leave beside states and activations, 15 to 18."""
_UNREAD = PerLogit(12, 16)
"""Of float32 logits that a loss nobody read takes log-probabilities of: logits, a quotient, log-probabilities; in backward
logits, log-probabilities and two gradients."""
MEGATRON, TORCHTITAN, PRIME_RL = "megatron", "torchtitan", "prime-rl"
_CHUNKS = 8
"""torchtune's CEWithChunkedOutputLoss splits the tokens in as many chunks (modules/loss/ce_chunked_output_loss.py, 0.4)."""
_HEAD_IN_LOSS = "LinearCrossEntropyLoss"
"""torchtune's loss that has the head, at work on one of as many chunks (modules/loss/cross_entropy_loss.py, 0.7.0)."""
_LITGPT_TOKENS = 128
"""LitGPT's head takes so many tokens of each sequence at a time (finetune/lora.py, lm_head_chunk_size)."""
_TOKENS = 256
"""trl's chunked loss takes so many tokens at a time and keeps none (docs/sweeps.md, trl 1.7)."""

SMOOTHED = "smoothed"
"""The label smoother of transformers' Trainer, which takes the labels out of the batch and the model's logits whole."""
SOURCE = "measured: probe logits_and_loss, docs/sweeps.md"
SMOOTHED_SOURCE = "measured: probe label_smoothing"
_WHOLE = frozenset({"cross_entropy", SMOOTHED})
"""Losses over whole logits."""
_SAME_LOGITS = frozenset(("dpo", "kto"))
"""Trainers of OpenRLHF that take log-probabilities of the same Actor as its policy trainers: trainer/dpo_trainer.py, v0.9.0."""


def per_logit(run: Run) -> PerLogit:
    """Return bytes per logit for the release of transformers, or the newest where it is not known."""
    release = run.release("transformers")
    if run.loss == SMOOTHED:
        return _capped(run, _smoothed(run))
    if run.code == MEGATRON:
        return VOCABULARY_PARALLEL if run.precision.compute < 4 else PerLogit(4, 4)
    if run.code == "nanotron":
        return NANOTRON if run.precision.compute < 4 else PerLogit(8, 4)
    if run.code == TORCHTITAN and run.parallel.tensor > 1 and run.precision.compute < 4:
        return LOSS_PARALLEL
    if takes_loss_in_16_bits(run.model.model_type, release):
        base = SIXTEEN_BIT
    elif release is None or release >= (4, 49):
        base = MODERN
    elif release >= (4, 46):
        base = SHIFTED
    else:
        base = OLD_CAST
    if base == SIXTEEN_BIT and run.mixed and run.parallel.sharding in {"none", "ddp"}:
        base = AUTOCAST
    if base != MODERN and run.micro_batch * sequences(run) == 1:
        copy = 2 if base == SIXTEEN_BIT else 4
        base = base._replace(
            forward=base.forward - copy
        )  # all but the last token of one sequence are contiguous as they are
    if run.trainer in POLICY_TRAINERS and run.precision.logits >= 4:
        return _UNREAD
    if run.precision.compute >= 4:
        base = PerLogit(max(8.0, base.forward - 2), base.backward)  # float32 logits are their own copy
    return _capped(run, base)


def _capped(run: Run, base: PerLogit) -> PerLogit:
    """Add the result of tanh, where the model caps its logits with one: backward needs it."""
    kept = run.precision.compute if RECIPES.get(run.model.model_type, DECODER).softcap else 0
    return PerLogit(base.forward + kept, base.backward + kept)


def _smoothed(run: Run) -> PerLogit:
    """Return what the label smoother takes, in the dtype of the logits it is given: nothing in it casts them.

    Logits, which the output holds, their shifted copy, log-probabilities and their negative; in backward the last two, and
    the gradients of the sum, which has no size of its own before it is cast to 16 bits, and of what was gathered.
    """
    each = run.precision.logits
    copied = run.micro_batch * sequences(run) > 1
    return PerLogit(each * (4 if copied else 3), each * (4 if each < 4 else 3))


def sequences(run: Run) -> int:
    """Return how many sequences one backward takes for each sample.

    DPO and its kin run chosen and rejected together, online DPO two completions of a prompt; XPO runs them one after the other
    and keeps both graphs (trl 0.11.0 to 1.13.0 online_dpo_trainer.py _forward, xpo_trainer.py _compute_logprobs).
    """
    return 2 if run.trainer in {"dpo", "cpo", "orpo", "reward", "online_dpo", "xpo"} else 1


def _is_of_policy(run: Run) -> bool:
    """Tell whether log-probabilities are taken as a policy's are."""
    own = run.code in {*OUTSIDE, "roll", "slime"} or (run.code == "openrlhf" and run.trainer in _SAME_LOGITS)
    return own or run.trainer in POLICY_TRAINERS


def is_loss_read(run: Run) -> bool:
    """Tell whether somebody read how the loss of a policy is computed."""
    own = run.code == PRIME_RL and run.loss == "fused_linear"
    return own or (run.code == NEMO_RL and run.loss == "chunked") or outside_loss(run, backward=True) is not None


def outside_loss(run: Run, *, backward: bool) -> tuple[Range, str] | None:
    """Return bytes per logit of a loss that takes the model's logits, and their source; None where none or nobody read it."""
    if run.code == PRIME_RL and run.loss == "cross_entropy":
        return WHOLE, "PrimeIntellect-ai/prime-rl 559b447 benchmarks/baselines"
    if _is_of_policy(run) and run.code != "trl":
        return per_policy_logit(run, backward=backward)
    if run.code == "llamafactory" and run.trainer in {"dpo", "kto"}:
        one_pass = backward or run.loss_type in WITHOUT
        return Range(12, 12, 12) if one_pass else FACTORY, "benchmarks/preference_logits.py"
    found = trl_logits(run)
    if found is None:
        return None
    recipe = RECIPES.get(run.model.model_type, DECODER)
    return found.plus(run.precision.compute if recipe.softcap and found.high else 0), "measured: docs/sweeps.md"


def logits(run: Run, *, backward: bool) -> tuple[Component, ...]:
    """Return what logits and loss take at their peak.

    Tensor-parallel ranks are taken to split the vocabulary.
    """
    tokens = run.tokens * sequences(run)
    if not run.makes_logits or run.trainer in {"reward", "prm"} or run.role in HEADLESS:
        return ()
    vocab = run.model.vocab / run.parallel.tensor
    facts = ("model.vocab_size", "training.micro_batch_size", "training.sequence_length")
    if run.loss == "fused_linear" and run.loss_by_free_memory:
        return _by_free_memory(run, tokens, facts)
    if run.loss == "fused_linear":
        return _in_tiles(run, tokens, facts, backward=backward) if takes_tiles(run) else _fused(run, tokens, facts)
    count = tokens * vocab
    outside = outside_loss(run, backward=backward)
    if outside is not None:
        (low, expected, high), source = outside
        rows = run.micro_batch * sequences(run) if run.micro_batch > 1 else 1
        many = f"{rows:,} sequences × " if rows > 1 else ""
        words = f"{expected:g} B × {many}{tokens // rows:,} tokens × {vocab:,.0f}"
        size = Size(int(low * count), int(expected * count), int(high * count))
        name = "logits of the update" if _is_of_policy(run) else "logits and loss"
        name = name if run.optimizer is not None else "log-probability logits"
        return (Component(name, "logits", size, words, source, run.role, facts),)
    each = per_logit(run)
    bytes_each = each.backward if backward else each.forward
    if run.loss == "chunked":
        bytes_each = _chunked(run, tokens, backward=backward)
    elif run.outputs_kept and backward:
        bytes_each += run.precision.logits
    if run.optimizer is None:
        copied = run.precision.logits > run.precision.compute
        bytes_each = run.precision.compute + (run.precision.logits if copied else 0)
    name = "logits and loss" if run.loss in _WHOLE else "logits, loss in chunks"
    size = exactly(bytes_each * count)
    unread = run.release("transformers") is None and run.code not in {MEGATRON, "nanotron"}
    if run.loss == "cross_entropy" and unread and run.optimizer is not None:
        size = Size(int(min(bytes_each, 10) * count), size.expected, int(max(bytes_each, 14) * count))
    elif run.loss == "chunked" and run.compiled and run.code == "torchtune":
        size = Size(size.low, size.expected, int((run.precision.compute + 8 / _CHUNKS) * count))
    if not run.loop_read:  # its loss may work in chunks, of which at least the 16-bit logits stay
        size = size._replace(low=min(size.low, int(run.precision.compute * count)))
    words = f"{bytes_each:g} B × {tokens:,} tokens × {vocab:,.0f}"
    source = SMOOTHED_SOURCE if run.loss == SMOOTHED else SOURCE
    return (Component(name, "logits", size, words, source, run.role, facts),)


def kept_outputs(run: Run) -> tuple[Component, ...]:
    """Return logits and cache that live through backward, where a loop holds the output of the model."""
    whole = run.loss in _WHOLE or (run.loss == "chunked" and run.code == LITGPT)
    if not run.outputs_kept or run.optimizer is None:
        return ()
    if not run.makes_logits or not whole:
        return cached_keys(run)
    count = run.tokens * sequences(run) * run.model.vocab / run.parallel.tensor
    words = f"{run.precision.logits:g} B × {run.tokens * sequences(run):,} tokens × {run.model.vocab / run.parallel.tensor:,.0f}"
    size = exactly(run.precision.logits * count)
    kept = Component("logits kept as output", "logits", size, words, SOURCE, run.role, ("run.outputs_kept",))
    return (kept, *cached_keys(run))


def cached_keys(run: Run) -> tuple[Component, ...]:
    """Return the cache of keys and values that the model hands on with its output, where blocks keep neither for backward.

    Without checkpoints it holds what backward needs. Source: transformers modeling_llama.py (v4.31.0), ``past_key_values``.
    """
    if not run.use_cache or not run.checkpointing:
        return ()
    own, tokens = run.model, run.tokens * sequences(run)
    layers = own.layers / run.parallel.pipeline
    count = 2 * tokens * own.key_width * layers / run.parallel.tensor
    words = f"2 × {run.precision.compute:g} B × {tokens:,} tokens × {own.key_width:,} × {layers:g} layers"
    size = exactly(run.precision.compute * count)
    return (Component("cache of keys and values", "activations", size, words, SOURCE, run.role, ("model.use_cache",)),)


def hole(run: Run) -> int:
    """Return bytes of the hole that a loss over whole logits leaves in the allocator's segments.

    Float32 copies: the block of the 16-bit logits is too small for them. A loss in 16 bits: the shifted copies of several
    sequences are one token shorter, and the gradient of the whole logits fits in none of their blocks. Both were found in
    replays, docs/memory-model.md.
    """
    if run.loss not in _WHOLE or run.optimizer is None or run.precision.compute >= 4 or run.outputs_kept:
        return 0  # logits that the loop keeps leave none
    if not logits(run, backward=True):
        return 0  # a head without a vocabulary
    engine = run.code in OUTSIDE or (run.code == "verl" and run.trainer in POLICY_TRAINERS)
    if (engine or run.loss == SMOOTHED) and run.precision.logits == run.precision.compute:
        return 0  # logits and gradients are all of one size
    outside = outside_loss(run, backward=True)
    if outside is not None and not outside[0].expected:
        return 0
    if per_logit(run).backward == SIXTEEN_BIT.backward and run.micro_batch * sequences(run) == 1:
        return 0
    share = completion_share(run) if run.code == "trl" and outside is not None and run.trainer in POLICY_TRAINERS else 1
    return int(share * run.precision.compute * run.tokens * sequences(run) * run.model.vocab / run.parallel.tensor)


def _chunked(run: Run, tokens: int, *, backward: bool) -> float:
    """Return bytes per logit of a loss in chunks.

    torchtune: 16-bit logits of all chunks; float32 log-probabilities, which the graph keeps for all chunks unless they are
    compiled and computed again, and then 16-bit gradients of the chunk at work instead of two float32 tensors of it. Its
    LinearCrossEntropyLoss has the head at work on one chunk, so that 16-bit logits are of that one alone
    (torchtune/modules/loss/cross_entropy_loss.py at 0.7.0; benchmarks/chunked_logits.py). LitGPT:
    logits, which the loop holds, and log-probabilities of all chunks, as Fabric hands the logits on, and two gradients of the
    chunk at work; without adapters the head takes all tokens at once, and the gradients of all chunks lie beside their
    concatenation (litgpt/utils.py chunked_cross_entropy, at 8641822 and 0.5.13; counted with 0.5.13 on a CPU). Its loop lets go
    of a micro batch's logits when the next one's are made and cast. Others: float32 work on one chunk only.
    """
    if run.code == LITGPT:
        each, recipe = run.precision.logits, RECIPES.get(run.model.model_type, DECODER)
        kept = run.precision.compute if recipe.softcap else 0
        at_work = 2 * each * min(_LITGPT_TOKENS, run.sequence) / run.sequence if run.adapters else each
        before = 0.0 if run.first_batch else each
        cast = run.precision.compute if run.precision.compute < each else 0.0
        return kept + max(2 * each + at_work, 0.0 if backward else before + cast + each)
    if run.code == "torchtune":
        kept = 0 if run.compiled else 4
        if kept and run.loss_type == _HEAD_IN_LOSS:
            copied = 4 if run.precision.compute < 4 else 0
            return kept + (8 if backward else run.precision.compute + copied) / _CHUNKS
        return run.precision.compute + kept + (run.precision.compute if run.compiled else 8) / _CHUNKS
    return (12 if backward else 10) * min(_TOKENS, tokens) / tokens


def _fused(run: Run, tokens: int, facts: tuple[str, ...]) -> tuple[Component, ...]:
    """Return what Liger's fused linear cross-entropy takes.

    As many chunks as the vocabulary is wider than the hidden size, each a power of two of tokens; logits of one chunk in the
    compute dtype, the gradient of the hidden states and, if the head is trained, of its weight, both made in forward. Source:
    liger_kernel/ops/fused_linear_cross_entropy.py 0.5.2 (inc_factor, chunk_size).
    """
    if run.code == PRIME_RL:
        return _prime_rl(run, tokens, facts)
    model, compute = run.model, run.precision.compute
    factor = -(-model.vocab // model.hidden)
    chunk = 1 << max(0, (-(-tokens // factor) - 1).bit_length())
    head = model.vocab * model.hidden if run.trainable >= model.parameters else 0
    size = compute * (min(chunk, tokens) * model.vocab + tokens * model.hidden + head)
    words = f"{compute:g} B × ({min(chunk, tokens):,} tokens × {model.vocab:,} + gradients of hidden states and head)"
    return (
        Component(
            "logits, fused loss",
            "logits",
            exactly(size),
            words,
            "liger_kernel fused_linear_cross_entropy.py",
            run.role,
            facts,
        ),
    )


def divergence_logits(run: Run) -> tuple[Component, ...]:
    """Return the whole logits that a fused loss makes beside its own work, to estimate a divergence from."""
    found = fused_divergence(run)
    if found is None:
        return ()
    vocab, rows = run.model.vocab / run.parallel.tensor, run.micro_batch
    words = f"{found.each:g} B × {rows:,} sequences × {run.sequence:,} tokens × {vocab:,.0f}"
    facts = ("model.vocab_size", "training.micro_batch_size", "training.sequence_length")
    size = exactly(found.each * run.tokens * vocab)
    source = "trl kto_trainer.py _compute_kl_logps"
    return (Component("logits of the divergence", "logits", size, words, source, run.role, facts),)


def _by_free_memory(run: Run, tokens: int, facts: tuple[str, ...]) -> tuple[Component, ...]:
    """Return what Unsloth's fused loss takes: work on one chunk of the logits, gradients of hidden states and of a trained head.

    The chunks are counted once, at the first loss: up to unsloth_zoo 2026.6 so that float32 logits fit half of what is free
    then, to the nearest multiple of 4, from 2026.7 to the next; from 2026.9.3 so that 16 B a logit and what no chunk makes
    smaller fit in it, from 2026.9.4 in at most 4 GiB. A chunk takes 16-bit logits alone where it is compiled, over which their
    gradients are written, and 14 B each where it is not, 12 B in float32 (counted on a CPU with torch 2.13). Source: unsloth_zoo
    fused_losses/cross_entropy_loss.py of 2025.9.1, 2025.11.1, 2026.4.4, 2026.6.7, 2026.7.1, 2026.9.3, 2026.9.4 and 2026.10.9.
    """
    model, compute = run.model, run.precision.compute
    release = run.release("unsloth-zoo") or run.release("unsloth")  # both are released together
    head = model.vocab * model.hidden if run.trainable >= model.parameters else 0
    states = tokens * model.hidden
    held = sum(part.size.expected for part in parameters(run))
    half = None if run.limit is None else max(0, run.limit - held) / 2
    whole = tokens * model.vocab
    if release is None or release >= (2026, 9, 4):
        half = min(_UNSLOTHS_CAP, _UNSLOTHS_CAP if half is None else half)
    if release is None or release >= (2026, 9, 3):
        fixed = compute * (states + 2 * head)
        half = half - fixed if half is not None and fixed < half else half
        asked = 16.0 * whole
    else:
        asked = 4.0 * whole
    quarters = asked / half / 4 if half else 0.0
    rounds_up = release is None or release >= (2026, 7)
    count = 4 * math.ceil(quarters) if rounds_up and 4 * quarters > 1 else 4 * round(quarters) or 1
    count = min(count, tokens)
    chunk = -(-tokens // count) * model.vocab
    each = Size(int(compute * chunk), int(compute * chunk), int((14 if compute < 4 else 12) * chunk))
    words = f"{compute:g} B × ({chunk // model.vocab:,} tokens × {model.vocab:,} + gradients of hidden states and head)"
    size = each + exactly(compute * (states + head))
    source = "unsloth_zoo/fused_losses/cross_entropy_loss.py"
    facts = (*facts, "hardware.memory_bytes")
    return (Component("logits in chunks, fused loss", "logits", size, words, source, run.role, facts),)


_UNSLOTHS_CAP = 4 * 2**30
"""Bytes that the work on a chunk may take at most: _CE_TARGET_GB_CAP."""


def _in_tiles(run: Run, tokens: int, facts: tuple[str, ...], *, backward: bool) -> tuple[Component, ...]:
    """Return what TRL's fused head takes from 1.15 on: one tile of the logits, a copy of the hidden states, gradients in float32.

    The tile is as wide for any vocabulary; of weights wider than what is computed in, a tile's rows are cast, and in backward
    the next ones beside them. Gradients are cast to the dtype of what they belong to while they are still there. Source:
    trl/kernels/chunked_logprob.py and trainer/utils.py 1.16.0; counted with them on a CPU, kernels replaced by the nothing that
    they allocate: within 0.3 % (benchmarks/tiled_logits.py). Without Triton, or before torch 2.8, it takes more.
    """
    model, each, wide = run.model, run.precision.compute, run.precision.autocast
    scored = tokens * (completion_share(run) if run.trainer in _SCORES_COMPLETIONS else 1)
    states, head = scored * model.hidden, model.vocab * model.hidden / run.parallel.tensor
    tile, weight = each * min(scored, _TILE[0]) * _TILE[1], 4 if wide else each
    size = tile + run.precision.residual * states
    size += each * min(model.vocab, _TILE[1] * (2 if backward else 1)) * model.hidden if wide else 0
    words = f"{each:g} B × {min(scored, _TILE[0]):,.0f} tokens × {_TILE[1]:,} + hidden states"
    if backward and run.optimizer is not None:
        size += (4 + (run.precision.residual if run.precision.residual < 4 else 0)) * states
        trains_head = run.trainable >= model.parameters
        size += (4 + (weight if weight < 4 else 0)) * head if trains_head else 0
        words += ", their gradients and the head's in float32" if trains_head else " and their gradients in float32"
    return (
        Component("logits in tiles", "logits", exactly(size), words, "trl/kernels/chunked_logprob.py", run.role, facts),
    )


_TILE = (4096, 32768)
"""Tokens and words of a tile: TOKEN_CHUNK_SIZE, _CHUNKED_LOGPROB_CHUNK_SIZE."""
_SCORES_COMPLETIONS = frozenset({"grpo", "rloo"})
"""Trainers whose prompts have no labels, as far as a share of completions is known."""


def _prime_rl(run: Run, tokens: int, facts: tuple[str, ...]) -> tuple[Component, ...]:
    """Return what prime-rl's head takes in backward: work on a piece of the logits, and gradients of hidden states and head.

    A piece is of 8,192 tokens, unless fewer are asked for, and of 8,192 words. 22.7 B each, as its function allocates on a CPU:
    16-bit logits, float32 copies, probabilities and gradients, those of the piece before among them.
    """
    model, compute = run.model, run.precision.compute
    head = model.vocab * model.hidden if run.trainable >= model.parameters else 0
    gradients = compute * (tokens * model.hidden + head)
    words, piece = min(_PIECE, model.vocab), min(_PIECE, tokens)
    whole = int(_PRIME_RL_BYTES * piece * words + gradients)
    said = f"{_PRIME_RL_BYTES:g} B × {piece:,} tokens × {words:,} + gradients of hidden states and head"
    size, source = (
        Size(int(gradients), whole, whole),
        "prime_rl/trainer/models/layers/lm_head.py; benchmarks/policy_logits.py",
    )
    return (Component("logits in pieces", "logits", size, said, source, run.role, facts),)


_PIECE, _PRIME_RL_BYTES = 8192, 22.7
