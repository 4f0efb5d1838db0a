"""Bytes per logit of TRL's trainers over a step, by release and by the dtype of the logits that their losses receive.

Every figure is measured: probes trl_dpo_loss and trl_grpo_loss over all releases (docs/sweeps.md), with which the tests compare
this table row by row. The rules about TRL's losses say what stands out in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.memory.closed_form.policy_logits import PerLogit, completion_share

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


class Peak(NamedTuple):
    """Bytes per logit at the peak of a step."""

    each: float
    alone: float = 0
    """At least so many where one row, or one pair, is the whole batch."""
    row: float = 0
    """More for each logit of one row, which is worked on by itself."""
    high: float = 0
    """At most, where there is no kernel."""

    def of(self, rows: int) -> PerLogit:
        """Return the figure for a batch of so many rows."""
        found = max(self.each + self.row / rows, self.alone if rows == 1 else 0)
        return PerLogit(found, found, max(found, self.high))


NONE = Peak(0)
_Releases = tuple[tuple[tuple[int, ...], Peak, Peak], ...]
"""First release, peak with 16-bit logits, peak with float32 ones; newest first."""
# 1.14 on a GPU: its kernels were launched and did nothing (launched.jsonl); what a CPU takes without them is the high bound
_POLICY: _Releases = (
    ((1, 15), NONE, NONE),
    ((1, 14), Peak(4, high=6), Peak(8, high=16)),
    ((1, 10), Peak(6), Peak(12, alone=16)),
    ((1, 0), Peak(8), Peak(16)),
    ((0, 23), Peak(4, alone=6), Peak(12, alone=16)),
    ((0, 20), Peak(4, row=6), Peak(12, alone=16)),
    ((0, 0), Peak(4, alone=6), Peak(12, alone=16)),
)
_OLD_DPO: _Releases = (
    ((0, 15), Peak(5, alone=6), Peak(12)),
    ((0, 14), Peak(6), Peak(12)),
    ((0, 0), Peak(6), Peak(16)),
)
_WITHOUT_REFERENCE: _Releases = (((0, 15), Peak(6), Peak(14)), ((0, 0), Peak(7), Peak(14)))
_UNPAIRED: _Releases = (((0, 15), Peak(8), Peak(16)), ((0, 0), Peak(8), Peak(20)))
_BY_TRAINER: dict[str, _Releases] = {
    "grpo": _POLICY,
    "rloo": tuple(entry for entry in _POLICY if entry[0] >= (0, 20)),
    "dpo": (
        ((1, 15), NONE, NONE),
        ((1, 14), Peak(5, high=8), Peak(10, high=12)),
        ((1, 6), Peak(8), Peak(12)),
        ((0, 29), Peak(11, alone=12), Peak(18)),
        *_OLD_DPO,
    ),
    "kto": (
        ((1, 15), NONE, NONE),
        ((1, 14), Peak(7, high=9), Peak(14)),
        ((1, 9), Peak(9), Peak(14)),
        ((1, 8), Peak(10), Peak(16)),
        ((1, 7), Peak(8, row=4), Peak(12, row=4)),
        ((1, 6), Peak(12, row=4), Peak(20, row=4)),
        *_UNPAIRED,
    ),
    "bco": _UNPAIRED,  # get_batch_logps and forward are as those of KTO in 0.17 (v0.19.0 bco_trainer.py)
    "orpo": _WITHOUT_REFERENCE,
    "cpo": _WITHOUT_REFERENCE,
}
_PRECOMPUTED: _Releases = (
    ((1, 15), NONE, NONE),
    ((1, 14), Peak(4, high=6), Peak(8, high=12)),
    ((1, 6), Peak(6), Peak(12)),
    ((0, 29), Peak(7, alone=8), Peak(12)),
    *_OLD_DPO,
)
"""DPO without the reference's logits and the copy of them, which up to 0.28 are gone before the peak."""
_DFT: _Releases = (
    ((1, 15), NONE, NONE),
    ((1, 6), Peak(6), Peak(12, alone=16)),
    ((1, 3), Peak(8), Peak(12, alone=16)),
    ((0, 23), Peak(6), Peak(12, alone=16)),
)
"""SFT's ``loss_type: dft``: log-probabilities row by row, beside what the metrics copy, twice in 1.3 to 1.5
(rule trl/dft-loss-materialises-logits, probe trl_sft_loss)."""
_FUSED = (1, 15)
"""From here on the losses of TILED take the hidden states, in tiles."""
TILED = frozenset({"sft", "dpo", "kto", "grpo", "rloo"})
"""Trainers that give their models a fused head (add_fused_lm_head in trl/trainer/*_trainer.py of 1.15.0 and 1.16.0)."""
_FIRST_RLOO = (0, 22)
"""Before, RLOOTrainer has a loop of its own, which generates inside of its loss."""
_MISMATCHED_UNTIL = (0, 17)
"""Before, KTO keeps the logits of the batch that it estimates the divergence with (rule trl/kto-keeps-kl-logits)."""
_USUAL = (1, 13)
"""Stands for a release that is not known: the newest with logits whose losses need no kernel."""


_DIVERGENCE = PerLogit(14, 30, 30)
"""Beside the logits of student and teacher, 2 each, GKD's divergence of 16-bit logits: both divided by the temperature, their
log-probabilities, the mixture of both, its divergence from each, what the mask keeps (benchmarks/distillation_logits.py)."""


ONLINE = {"online_dpo": 1, "xpo": 2, "nash_md": 1}
"""Trainers that learn from completions which they have judged, and in how many passes, whose graphs are kept, they score them."""
_BY_ROWS = (0, 15)
"""From here on XPO and Nash-MD take log-probabilities row by row (selective_log_softmax)."""


def _online(run: Run) -> PerLogit:
    """Return the figures of an online trainer: of all its passes, of which a reference scores each behind the policy.

    What is kept is the log-softmax of completions; row by row of float32 logits it is these, whole. A pass makes logits of
    prompt and completion, in 16 bits and then in float32 where they are cast, and in backward their gradient; beside them the
    log-softmax, of one row at a time where rows are taken. Source: benchmarks/online_logits.py, trl 0.11.0 to 1.16.0
    online_dpo_trainer.py _forward(), xpo_trainer.py and nash_md_trainer.py _compute_logprobs().
    """
    release = run.release("trl")
    by_rows = run.trainer != "online_dpo" and (release is None or release >= _BY_ROWS)
    each, share, part = run.precision.logits, completion_share(run), 1 / ONLINE[run.trainer]
    trains = run.optimizer is not None
    made = run.precision.compute + each if each > run.precision.compute else each
    if by_rows and each >= 4:
        kept, work = each, max(made, 12 * share if trains else 0)
    else:
        kept, work = each * share, max(made, each + each * share / (run.micro_batch if by_rows else 1))
    found = (kept if trains else 0) + part * work
    return PerLogit(found, found, found + part * each)


def takes_tiles(run: Run) -> bool:
    """Tell whether the run's loss is taken tile by tile by TRL's own head, which replaces Liger's, too."""
    release = run.release("trl")
    return run.code == "trl" and run.trainer in TILED and release is not None and release >= _FUSED


_AFTER_POLICY = (1, 8)
"""From here on the reference's divergence under Liger is taken when the policy's forward has been kept."""
_OWN_PRODUCT = (1, 9)
"""From here on with a product of its own, which stays in 16 bits."""


class Divergence(NamedTuple):
    """Whole logits from which KTO estimates a divergence, though Liger's loss makes none."""

    each: float
    """Bytes per logit of one pass without a graph; the policy's are gone before the reference's."""
    beside_kept: bool
    """Whether what the policy's forward keeps is there, too."""


def fused_divergence(run: Run) -> Divergence | None:
    """Return the logits that KTO with Liger makes all the same; None where it makes none.

    They are taken row by row: of float32 ones the sum of exponentials, which has a tensor of its own, of 16-bit ones the
    log-softmax. Source: trl 0.17.0 to 1.13.0 kto_trainer.py _compute_kl_logps(), _compute_loss_liger(); 1.14.0 takes tiles there.
    """
    release = run.release("trl") or _USUAL
    own = run.code == "trl" and run.trainer == "kto" and run.loss == "fused_linear" and run.loss_type in {"", "kto"}
    if not own or release >= (1, 14):
        return None
    single = run.precision.logits >= 4 and release < _OWN_PRODUCT
    each = max(6, 4 + 4 / run.micro_batch) if single else run.precision.compute * (1 + 1 / run.micro_batch)
    return Divergence(each, beside_kept=release >= _AFTER_POLICY)


def trl_logits(run: Run) -> PerLogit | None:
    """Return bytes per logit over a step of a trainer of TRL; None for one that was not measured.

    Policy trainers make logits of completions alone; of GKD's samples nobody knows where they begin.
    """
    release = run.release("trl")
    if run.trainer == "gkd" and run.optimizer is not None:
        return _DIVERGENCE.plus(4).times(2 if run.precision.logits >= 4 else 1)
    if run.trainer in ONLINE:
        return _online(run)
    dft = run.trainer == "sft" and run.loss_type == "dft"
    rows = _DFT if dft else _BY_TRAINER.get(run.trainer)
    if rows is None or (run.trainer == "rloo" and release is not None and release < _FIRST_RLOO):
        return None
    if dft and release is not None and release < rows[-1][0]:
        return None  # no release before has it
    if run.trainer == "dpo" and run.precomputed:
        rows = _PRECOMPUTED
    single = run.precision.logits >= 4
    if run.optimizer is None:  # logits and their quotient by the temperature
        found = PerLogit(8, 8, 12) if single else PerLogit(4, 4, 6)
        return found.times(completion_share(run)) if release is None or release < _FUSED else PerLogit(0, 0, 0)
    peaks = [(since, single_peak if single else half_peak) for since, half_peak, single_peak in rows]
    found = next(peak for since, peak in peaks if (release or _USUAL) >= since).of(run.micro_batch)
    if release is None:
        others = [peak.of(run.micro_batch).expected for _, peak in peaks if peak != NONE]
        found = PerLogit(min(others), found.expected, max(others))
    elif run.trainer == "kto" and release < _MISMATCHED_UNTIL and run.loss_type in {"", "kto"}:
        found = found.plus(4 if single else 2)
    return found.times(completion_share(run)) if run.trainer in {"grpo", "rloo"} else found
