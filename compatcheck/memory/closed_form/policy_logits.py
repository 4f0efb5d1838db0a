"""Bytes per logit of programs that learn from log-probabilities of what they generated, by release; of TRL: trl_logits.

The logits themselves are in each figure. Figures come from the programs' own operations run on a CPU, flash-attn's and
compiled kernels replaced by what they allocate: benchmarks/policy_logits.py prints them. Where a figure grows with the share of
completions, prompts have logits too, and no log-probabilities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

POLICY_TRAINERS = frozenset(
    {"grpo", "ppo", "rloo", "online_dpo", "xpo", "nash_md", "gkd", "distillation", "sdpo", "sdft", "reinforce"}
)
VERL = frozenset({"verl", "verl-engine"})
"""Code that takes log-probabilities as verl's actor does: its workers, and its engines, for supervised training too."""
SKYRL, PARALLEL_CHUNKS, AREAL, NEMO_RL = "skyrl", "parallel-chunks", "areal", "nemo-rl"
OUTSIDE = frozenset({"verl-engine", SKYRL, PARALLEL_CHUNKS, AREAL, NEMO_RL})
"""Code that takes log-probabilities of its own for supervised and preference training, too."""
HEADLESS = frozenset({"critic", "reward"})
"""Roles whose head gives one number for each token: a value or a score."""


class PerLogit(NamedTuple):
    """Bytes per logit: low, expected, high."""

    low: float
    expected: float
    high: float

    def plus(self, more: float) -> PerLogit:
        """Return these with as much more of each."""
        return PerLogit(*(one + more for one in self))

    def times(self, share: float) -> PerLogit:
        """Return this share of each."""
        return PerLogit(*(one * share for one in self))


def per_policy_logit(run: Run, *, backward: bool) -> tuple[PerLogit, str] | None:
    """Return bytes per logit and their source; None for programs nobody read."""
    if run.code in VERL:
        return _verl(run, backward=backward)
    if run.code == "openrlhf":
        return _openrlhf(run, backward=backward)
    if run.code == "slime":
        return _slime(run, backward=backward)
    if run.code == "roll":
        return _roll(run, backward=backward)
    if run.code == NEMO_RL and run.loss != "chunked":
        return _nemo_rl(run, backward=backward)
    if run.code in {SKYRL, PARALLEL_CHUNKS, AREAL}:
        take = _areal if run.code == AREAL else _in_chunks
        return take(run, backward=backward and run.optimizer is not None), "benchmarks/chunked_logits.py"
    return None


def _in_chunks(run: Run, *, backward: bool) -> PerLogit:
    """Return figures of losses that work on one chunk of tokens after the other.

    SkyRL takes log-probabilities by flash-attn's kernel, whose gradient takes the place of the logits, and in training the
    entropy of one chunk in float32, which autograd keeps of all chunks where it has a coefficient
    (skyrl/backends/skyrl_train/utils/torch_utils.py). On Megatron the model's wrapper casts the logits to float32; of them
    log-probabilities are taken chunk by chunk, and in backward there is a float32 gradient of all (distributed/megatron/
    model_utils.py, ChunkedDistributedLogprob, after NeMo-Aligner's). The high bound adds one tensor of that width.
    """
    each, part = run.precision.compute, _part(run)
    if run.code == PARALLEL_CHUNKS:
        figure = 8 + 4 * part if backward else max(each + 4, 4 + 4 * part)
        return PerLogit(figure, figure, figure + 4)
    if run.entropy and run.optimizer is not None:
        figure = each + 12 + 8 * part if backward else each + 8 + 4 * part
    elif backward:
        figure = 2 * each
    else:
        figure = each + 12 * part if run.optimizer is not None else each
    return PerLogit(figure, figure, figure + each)


def _areal(run: Run, *, backward: bool) -> PerLogit:
    """Return AReaL's figures: it slices the logits, of which Megatron's wrapper makes float32 ones.

    A compiled chunk keeps its slice; one of a split vocabulary a float32 softmax. In backward the gradient of each slice is as
    large as all logits, and is added to that of the others (areal/utils/functional/vocab_parallel.py).
    """
    part, megatron = _part(run), run.parallel.sharding == "megatron"
    each = 4.0 if megatron else run.precision.compute
    made = run.precision.compute + 4 if megatron else each
    several, work = 4 if part < 1 else 3, 12 if megatron else 16
    if run.parallel.tensor == 1:
        figure = several * each if backward else made
    elif run.optimizer is None:
        figure = max(made, each + work * part)
    elif backward:
        figure = max(several * each + 4, each + work * part)
    else:
        figure = max(made, each + 4 + (work - 4) * part)
    return PerLogit(min(figure, 3 * each) if backward else figure, figure, figure + each)


def _part(run: Run) -> float:
    """Return which share of a micro batch one chunk is."""
    return min(_CHUNK_OF_LOSS, run.tokens) / run.tokens


_CHUNK_OF_LOSS = 1024
"""Tokens of a chunk: ``trainer.logprobs_chunk_size`` of SkyRL, ``chunk_size`` of AReaL."""


def completion_share(run: Run) -> float:
    """Return which share of a sequence's tokens is completion; all of it where that is not known."""
    return 1.0 if run.response is None else min(1.0, run.response / run.sequence)


def _verl(run: Run, *, backward: bool) -> tuple[PerLogit, str]:
    """Return verl's figures.

    The entropy is computed in every forward before 0.4, then in scoring by the policy and, with a coefficient, in training
    (dp_actor.py, calculate_entropy). Without padding it is compiled and allocates no logits of its own; with padding it is not,
    and autocast takes its softmax in float32. Log-probabilities come from flash-attn's kernel, whose gradient takes the place
    of the logits where no entropy needs them (``inplace_backward``, from 0.4). The high bound adds one tensor, which autograd
    makes where it cannot add gradients in place. ``use_torch_compile=False`` leaves the entropy as it is with padding; chunks,
    which padded batches never take, then bound its float32 tensors in scoring, and are all kept in training.
    """
    trains = run.optimizer is not None
    asked = bool(run.entropy) if trains else run.role != "reference"
    entropy = run.entropy_computed == "always" or (asked and run.entropy_computed != "never")
    cast = run.precision.logits > run.precision.compute
    each = 4.0 if cast else 2.0
    if run.unpadded is False:
        expected = _padded(run, cast=cast, entropy=entropy, backward=trains and backward)
    elif entropy and run.entropy_compiled is False:
        return _uncompiled(run, cast=cast, backward=trains and backward), _VERL_SOURCE
    elif trains and backward:
        expected = each * (3 if entropy else 2)
    else:
        expected = each + 2 if cast else each
    return PerLogit(expected, expected, expected + each), _VERL_SOURCE


_VERL_SOURCE = "verl/workers/actor/dp_actor.py; benchmarks/policy_logits.py"
_CHUNK = 2048
"""Tokens of a chunk of the entropy (verl/utils/torch_functional.py entropy_from_logits_with_chunking)."""


def _uncompiled(run: Run, *, cast: bool, backward: bool) -> PerLogit:
    """Return bytes per logit without padding of an entropy that is computed as it stands.

    Chunks: logits, their softmax and the product of both, 4 each, of one chunk; autograd keeps the first two of all.
    """
    each, whole = 4.0 if cast else 2.0, (28.0 if cast else 18.0) if backward else (12.0 if cast else 10.0)
    if not run.entropy_chunked:
        return PerLogit(whole, whole, whole + each)
    if backward:
        return PerLogit(min(whole, each * 3 + 8), whole, whole + each)
    return PerLogit(each, min(whole, each + 12 * min(_CHUNK, run.tokens) / run.tokens), whole)


def _padded(run: Run, *, cast: bool, entropy: bool, backward: bool) -> float:
    """Return bytes per logit with padding: the completion's part is copied, and its entropy is computed without compilation."""
    share, each = completion_share(run), 4.0 if cast else 2.0
    if backward:
        return each + (28 if cast else 18) * share if entropy else 2 * each
    return max(each + 2 if cast else each, each + (8 if entropy else each) * share)


def _openrlhf(run: Run, *, backward: bool) -> tuple[PerLogit, str]:
    """Return OpenRLHF's figures.

    Every release casts 16-bit logits, 2, to float32, 4. Before 0.6.2 logsumexp of a packed batch takes 4 more, and 12 in
    backward; from then on flash-attn's kernel takes none, and 4 for its gradient. A packed policy
    that ring attention splits, as it is taken to be, has log_softmax until 0.7.0. The output, which holds the logits, is kept
    through backward (ppo_actor.py, ``return_output=True``).
    """
    source = "openrlhf/models/actor.py, models/utils.py; probe log_probabilities"
    release = run.release("openrlhf")
    ring = run.parallel.context > 1 and run.trainer not in {"dpo", "kto"}
    old = release is not None and release < ((0, 7) if ring else (0, 6, 2))
    if run.optimizer is None or not backward:
        return PerLogit(8, 8, 10) if old else PerLogit(6, 6, 8 if release is not None else 10), source
    return PerLogit(8, 12, 16) if old else PerLogit(8, 10, 12), source


def _slime(run: Run, *, backward: bool) -> tuple[PerLogit, str]:
    """Return slime's figures.

    Megatron's Float16Module casts logits to float32, 4; an exponential beside them, 4, becomes their softmax and is all that is
    kept, and in backward its own gradient, which is cast to 16 bits, 2. With an entropy coefficient the logits are kept as well,
    and their gradient takes 4 more. A temperature other than 1 adds a quotient (utils/ppo_utils.py _VocabParallelLogProbEntropy,
    0.3.1 and 624b824a; benchmarks/checkout_losses.py). Before, both took a clone, and the entropy tensors of its own that were
    kept (0.1.0 to 0.3.0).
    """
    trains = run.optimizer is not None and backward
    expected = (12.0 if run.entropy else 6.0) if trains else 8.0
    release = run.release("slime")
    most = expected + 4 if release is not None and release >= (0, 3, 1) else 20.0
    return PerLogit(expected, expected, most), "slime utils/ppo_utils.py"


def _roll(run: Run, *, backward: bool) -> tuple[PerLogit, str]:
    """Return ROLL's figures.

    On Megatron a float32 copy, 4, beside 16-bit logits, 2, becomes exponential and gradient in place; an entropy with a gradient
    keeps the logits, and a softmax as wide, both in float32 with ``logits_in_fp32``. On FSDP2 the loop holds the logits through
    backward; float32 log-probabilities, 4, have a copy beside them, 4, in backward two gradients, and scoring computes an entropy
    of three tensors of 4 (benchmarks/checkout_losses.py).
    """
    trains = run.optimizer is not None
    if run.parallel.sharding == "megatron":
        entropy = trains and run.entropy
        return PerLogit(6, 8, 16) if entropy else PerLogit(
            6, 6, 8
        ), "mcore_adapter parallel_functions/vocab_parallel.py"
    expected = 10.0 if trains and not backward else 14.0
    if trains and run.entropy:
        expected = 34.0 if backward else 18.0
    return PerLogit(expected, expected, expected + 4), "roll/utils/functionals.py"


def _nemo_rl(run: Run, *, backward: bool) -> tuple[PerLogit, str]:
    """Return NeMo RL's figures.

    Every model hands over float32 logits, 4 (FSDP2's output dtype; Megatron's module casts them). Whole ones become
    log-probabilities, 4, which backward keeps, with a gradient of each. Logits that ranks share (DTensor, Megatron) become
    log-probabilities and, for backward, their softmax, whose place the gradient takes. The high bound adds one tensor.
    """
    shared = run.parallel.tensor > 1 or run.parallel.sharding == "megatron"
    expected = 12.0 if shared or (backward and run.optimizer is not None) else 8.0
    return PerLogit(expected, expected, expected + 4), "nemo_rl/distributed/model_utils.py; benchmarks/policy_logits.py"
