"""Bytes per logit of the log-probabilities of given tokens, by formula, when scoring and in training.

Policy trainers need log p(token) at every position. ``implementation`` says how it is formed from the logits of
``batch`` sequences:

- ``log_softmax``: normalise everything, then gather. (verl's and TRL's plain path, OpenRLHF up to 0.5.7.)
- ``cross_entropy``: ``F.cross_entropy`` without reduction.
- ``logsumexp``: the gathered logit minus ``logsumexp`` of everything.
- ``rows``: the same, one sequence at a time (verl and TRL on float32 logits, OpenRLHF 0.5.8 to 0.6.1).
- ``chunks``: the same, ``chunk`` tokens at a time (OpenRLHF from 0.6.2 without flash-attn: 1024).
- ``row_log_softmax``: ``log_softmax``, one sequence at a time (verl and TRL on 16-bit logits).

All compute in float32; ``logits_dtype`` bfloat16 adds the float32 copy that trainers make first. Measured at two
vocabularies; the difference of two peaks divided by the logits added is bytes per logit, and what is kept per token
drops out. The logits themselves, alive before, are not in it. ``of`` says which of the four is judged as
``bytes_per_logit``.

Prediction, with u = 4 for a float32 copy, else 0, and r the share of tokens in one row or chunk:

- ``scoring``, peak under no_grad, is u + the largest intermediate: 4 for a whole ``log_softmax``, 4 for the ``exp(x -
  max)`` inside ``logsumexp``, 4 r by row or chunk.
- ``forward`` is the same with grad, but ``row_log_softmax`` keeps every row: u + 4.
- ``kept`` for backward: 4, the log-probabilities, where ``log_softmax`` saved its output (the copy is dropped); u
  where ``logsumexp`` saved its input.
- ``backward``: ``log_softmax`` holds its output 4, the gradient scattered into zeros 4 + 4 (``cross_entropy`` 4) and
  its own gradient 4, never more than three at once: 12. ``logsumexp`` holds ``x - lse``, its ``exp`` and their
  product: u + 12. By row the gradients of the rows before are there, 4 (1 - r), beside those of one row, 12 r; then
  all are put together, 4 + 4, and the gradient of the gathered logits, 4, is added in place: u + max(8, 4 + 8 r). By
  chunk they come through ``flatten`` and are added into a third tensor, when the copy is gone: 12 at least.
  ``row_log_softmax`` frees what it saved row by row and ends in stacking the gradients: max(8, 4 + 8 r).

So rows and chunks save memory in scoring and in forward, and less in backward; ``logsumexp`` of upcast logits costs
16 in backward where plain ``log_softmax`` costs 12. Under a TorchDispatchMode nothing is added in place, and rows cost
as much as the whole.

Source: logsumexp in ATen/native/ReduceOps.cpp; logsumexp_backward and gather_backward in
torch/csrc/autograd/FunctionsManual.cpp. CUDA: the same operators, never run.
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
    "implementation": "log_softmax",
    "of": "backward",
    "logits_dtype": "bfloat16",
    "batch": 4,
    "length": 64,
    "vocab": 2048,
    "chunk": 32,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"logits_dtype": "float32", "batch": 2, "vocab": 1024},
    {"implementation": "cross_entropy"},
    {"implementation": "logsumexp"},
    {"implementation": "logsumexp", "logits_dtype": "float32", "of": "scoring"},
    {"implementation": "rows"},
    {"implementation": "rows", "of": "scoring", "batch": 2},
    {"implementation": "chunks", "of": "scoring"},
    {"implementation": "chunks", "logits_dtype": "float32", "chunk": 64},
    {"implementation": "row_log_softmax"},
    {"implementation": "row_log_softmax", "of": "scoring", "batch": 8},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "implementation": ("log_softmax", "cross_entropy", "logsumexp", "rows", "chunks", "row_log_softmax"),
    "of": ("scoring", "forward", "kept", "backward"),
    "logits_dtype": ("bfloat16", "float32"),
}
METRIC = "bytes_per_logit"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per logit."""
    implementation = parameters["implementation"]
    copy = 4 if parameters["logits_dtype"] == "bfloat16" else 0
    share = 1.0
    if implementation in {"rows", "row_log_softmax"}:
        share = 1 / parameters["batch"]
    elif implementation == "chunks":
        share = parameters["chunk"] / (parameters["batch"] * parameters["length"])
    normalised = implementation in {"log_softmax", "cross_entropy", "row_log_softmax"}
    pieces = max(8, 4 + 8 * share)
    backward = {"row_log_softmax": pieces, "chunks": max(12, copy + pieces)}.get(
        implementation, 12 if normalised else copy + pieces
    )
    values = {
        "scoring_bytes_per_logit": copy + 4 * share,
        "forward_bytes_per_logit": copy + (4 if normalised else 4 * share),
        "kept_bytes_per_logit": 4 if normalised else copy,
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
        "training.trainer": "grpo",
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Score, and train, at both vocabularies."""
    import torch
    import torch.nn.functional as F  # noqa: N812 (the name everyone uses)

    batch, length, chunk = parameters["batch"], parameters["length"], parameters["chunk"]

    def pick(values: Any, tokens: Any) -> Any:
        return values.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    def by_chunk(logits: Any, tokens: Any) -> Any:
        picked = pick(logits, tokens)
        pieces = logits.flatten(0, 1).split(chunk)
        return picked - torch.cat([torch.logsumexp(piece, -1) for piece in pieces]).view(tokens.shape)

    formulas: dict[str, Any] = {
        "log_softmax": lambda logits, tokens: pick(logits.log_softmax(-1), tokens),
        "cross_entropy": lambda logits, tokens: (
            -F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view(tokens.shape)
        ),
        "logsumexp": lambda logits, tokens: pick(logits, tokens) - torch.logsumexp(logits, -1),
        "rows": lambda logits, tokens: pick(logits, tokens) - torch.stack([torch.logsumexp(row, -1) for row in logits]),
        "chunks": by_chunk,
        "row_log_softmax": lambda logits, tokens: torch.stack(
            [pick(row.log_softmax(-1), chosen) for row, chosen in zip(logits, tokens)]  # noqa: B905 (Python 3.9 runs this too)
        ),
    }
    formula = formulas[parameters["implementation"]]
    names = ("scoring", "forward", "kept", "backward")
    found: dict[str, list[int]] = {name: [] for name in names}
    for vocab in (parameters["vocab"], 2 * parameters["vocab"]):
        dtype = getattr(torch, parameters["logits_dtype"])
        logits = torch.randn(batch, length, vocab, device=recorder.device).to(dtype).requires_grad_()
        tokens = torch.randint(0, vocab, (batch, length), device=recorder.device)

        def score(logits: Any = logits, tokens: Any = tokens) -> Any:
            return formula(logits.float(), tokens)

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
