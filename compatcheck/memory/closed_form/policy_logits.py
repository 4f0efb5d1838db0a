"""Bytes per logit of trainers that learn from log-probabilities of what they generated, by program and release.

The logits themselves are in each figure. Without compiled or fused kernels the figures are those our probes measure (verl_losses,
log_probabilities, entropy, trl_grpo_loss); kernels that are compiled or fused hold less, which is the low bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

POLICY_TRAINERS = frozenset({"grpo", "ppo", "rloo", "online_dpo", "xpo", "nash_md", "gkd", "reinforce"})
_VERL = frozenset({"verl", "search-r1", "logic-rl", "tinyzero", "easy-r1"})


class PerLogit(NamedTuple):
    """Bytes per logit: low, expected, high."""

    low: float
    expected: float
    high: float


def per_policy_logit(run: Run, *, backward: bool) -> tuple[PerLogit, str] | None:
    """Return bytes per logit and their source; None for programs nobody read."""
    upcast = _casts(run)
    if run.framework in _VERL:
        return _verl(upcast=upcast, trains=run.optimizer is not None, backward=backward)
    if run.framework == "openrlhf":
        return _openrlhf(trains=run.optimizer is not None, backward=backward)
    if run.framework == "trl" and run.trainer == "grpo":
        return _trl(run.release("trl"), trains=run.optimizer is not None)
    return None


def _casts(run: Run) -> bool:
    """Tell whether the model returns float32 logits: before transformers 4.46 (rule logits-upcast-without-labels)."""
    release = run.release("transformers")
    return release is not None and release < (4, 46)


def _verl(*, upcast: bool, trains: bool, backward: bool) -> tuple[PerLogit, str]:
    """Return verl's: logits b, entropy by softmax and logsumexp, log-probabilities by flash-attn's kernel or row by row.

    Scoring holds the logits and two intermediates of the entropy (probe verl_losses: 2 b): 3 b; a cast is made beside the
    16-bit logits, 2 more. Forward in training is the same. Backward holds the logits and, without compilation, 24 of float32
    logits (probe entropy) and half of it of 16-bit ones; compiled, the gradients of both terms and their sum: 4 b.
    """
    each = 4 if upcast else 2
    source = "probe verl_losses; verl/workers/actor/dp_actor.py"
    extra = 2 if upcast else 0
    if not trains or not backward:
        return PerLogit(each + extra, 3 * each + extra, 3 * each + extra + 4), source
    return PerLogit(3 * each, 4 * each, 7 * each), source


def _openrlhf(*, trains: bool, backward: bool) -> tuple[PerLogit, str]:
    """Return OpenRLHF's: logits 2 and their float32 copy 4 (models/actor.py); log-probabilities 0 to 4 more, 12 in backward."""
    source = "openrlhf/models/actor.py, models/utils.py; probe log_probabilities"
    if not trains or not backward:
        return PerLogit(6, 8, 10), source
    return PerLogit(8, 12, 16), source


def _trl(release: tuple[int, ...] | None, *, trains: bool) -> tuple[PerLogit, str]:
    """Return TRL's GRPO over a step, release by release (docs/sweeps.md), beside the logits of 2 bytes."""
    source = "probe trl_grpo_loss, docs/sweeps.md"
    if not trains:
        return PerLogit(4, 4, 6), source
    steps = (((1, 16), 0), ((1, 10), 6), ((1, 0), 8), ((0, 23), 4), ((0, 20), 4.75), ((0, 0), 4))
    each = 6 if release is None else next(each for since, each in steps if release >= since)
    return PerLogit(each, each, each + (4 if release is None else 0)), source
