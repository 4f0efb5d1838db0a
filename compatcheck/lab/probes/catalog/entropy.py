"""Bytes per logit of the entropy of every token, by formula, whole and in chunks.

``implementation`` is the formula, x the logits:

- ``softmax_logsumexp``: p = softmax(x); logsumexp(x) - sum(p x). (verl.)
- ``log_softmax_exp``: l = log_softmax(x); -sum(exp(l) l). (TRL.)
- ``softmax_log_softmax``: -sum(softmax(x) log_softmax(x)).

It is computed in float32; ``logits_dtype`` bfloat16 adds the float32 copy made first. ``chunk`` is the number of
tokens taken at a time, copy included; 0 takes all. Measured at two vocabularies; the difference of two peaks divided
by the logits added is bytes per logit. The logits themselves, alive before, are not in it. ``of`` says which is
judged as ``bytes_per_logit``.

Prediction, with u = 4 for a float32 copy, else 0, and r the share of tokens in one chunk (1 when whole).
Intermediates of one formula, 4 bytes each: i = 2 for ``softmax_logsumexp`` (p, and the ``exp(x - max)`` inside
``logsumexp`` or the product p x), 3 for the others (two normalised tensors and their product).

- ``scoring``, peak under no_grad: r (u + 4 i).
- ``kept`` for backward: u + 4 (p, and x itself), or 8 (both normalised tensors; x is not needed).
- ``forward``: r (u + 4 i) and what was kept of the chunks before, (1 - r) x kept.
- ``backward``, whole: ``softmax_logsumexp`` holds what was kept, both gradients of the product 8, and ``x - lse``,
  its ``exp`` and their product 12: u + 24. The others hold 8, both gradients of the product 8 and the first
  normalisation's gradient 4: 20. In chunks, with d the bytes of a finished gradient (2 or 4): a chunk has (kept + 20
  or 12) r, all others together at most (1 - r) max(kept, d), and in the end all gradients are put together, 2 d: the
  larger of the two.

Source: the formulas of autograd in tools/autograd/derivatives.yaml and FunctionsManual.cpp. CUDA: the same operators,
never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {
    "implementation": "softmax_logsumexp",
    "of": "scoring",
    "logits_dtype": "bfloat16",
    "batch": 4,
    "length": 64,
    "vocab": 2048,
    "chunk": 0,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"logits_dtype": "float32", "batch": 2, "vocab": 1024},
    {"of": "backward"},
    {"of": "backward", "logits_dtype": "float32", "length": 32},
    {"chunk": 32},
    {"chunk": 64, "of": "forward"},
    {"chunk": 32, "of": "backward"},
    {"chunk": 32, "of": "backward", "logits_dtype": "float32"},
    {"implementation": "log_softmax_exp"},
    {"implementation": "log_softmax_exp", "of": "backward", "vocab": 1024},
    {"implementation": "log_softmax_exp", "chunk": 64, "of": "backward"},
    {"implementation": "softmax_log_softmax", "of": "backward"},
    {"implementation": "softmax_log_softmax", "chunk": 32},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "implementation": ("softmax_logsumexp", "log_softmax_exp", "softmax_log_softmax"),
    "of": ("scoring", "forward", "kept", "backward"),
    "logits_dtype": ("bfloat16", "float32"),
}
METRIC = "bytes_per_logit"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per logit."""
    tokens = parameters["batch"] * parameters["length"]
    share = (parameters["chunk"] or tokens) / tokens
    upcast = parameters["logits_dtype"] == "bfloat16"
    copy, finished = (4, 2) if upcast else (0, 4)
    by_logsumexp = parameters["implementation"] == "softmax_logsumexp"
    one = copy + (8 if by_logsumexp else 12)
    kept = copy + 4 if by_logsumexp else 8
    during = kept + (20 if by_logsumexp else 12)
    backward = during if share == 1 else max(during * share + (1 - share) * max(kept, finished), 2 * finished)
    values = {
        "scoring_bytes_per_logit": share * one,
        "forward_bytes_per_logit": share * one + (1 - share) * kept,
        "kept_bytes_per_logit": kept,
        "backward_bytes_per_logit": backward,
    }
    return {**values, "bytes_per_logit": values[parameters["of"] + "_bytes_per_logit"]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the slope is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller vocabulary in the vocabulary's names."""
    return {
        "model.vocab_size": parameters["vocab"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.max_response_length": parameters["length"],
        "training.max_prompt_length": 0,
        "training.use_remove_padding": False,
        "rollout.log_prob_micro_batch_size": parameters["batch"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Score, and train, at both vocabularies."""
    import torch

    batch, length, chunk = parameters["batch"], parameters["length"], parameters["chunk"]

    def softmax_logsumexp(logits: Any) -> Any:
        shares = logits.softmax(-1)
        return torch.logsumexp(logits, -1) - (shares * logits).sum(-1)

    def log_softmax_exp(logits: Any) -> Any:
        logarithms = logits.log_softmax(-1)
        return -(logarithms.exp() * logarithms).sum(-1)

    def softmax_log_softmax(logits: Any) -> Any:
        return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)

    formula = {
        "softmax_logsumexp": softmax_logsumexp,
        "log_softmax_exp": log_softmax_exp,
        "softmax_log_softmax": softmax_log_softmax,
    }[parameters["implementation"]]
    names = ("scoring", "forward", "kept", "backward")
    found: dict[str, list[int]] = {name: [] for name in names}
    for vocab in (parameters["vocab"], 2 * parameters["vocab"]):
        dtype = getattr(torch, parameters["logits_dtype"])
        logits = torch.randn(batch * length, vocab, device=recorder.device).to(dtype).requires_grad_()

        def score(logits: Any = logits) -> Any:
            if not chunk:
                return formula(logits.float())
            return torch.cat([formula(piece.float()) for piece in logits.split(chunk)])

        with torch.no_grad():
            found["scoring"].append(recorder.measure(score)[1])
        with recorder.phase("forward"):
            value, peak, kept = recorder.measure(score)
        found["forward"].append(peak)
        found["kept"].append(kept)
        held = [value.sum()]
        del value
        with recorder.phase("backward"):
            _, peak, _ = recorder.measure(lambda held=held: held.pop().backward())  # type: ignore[misc]  # bound at once
        found["backward"].append(kept + peak)
        del logits, score, held
    added = batch * length * parameters["vocab"]
    for name in names:
        slope = (found[name][1] - found[name][0]) / added
        recorder.result(f"{name}_bytes_per_logit", slope)
        if name == parameters["of"]:
            recorder.result("bytes_per_logit", slope)
