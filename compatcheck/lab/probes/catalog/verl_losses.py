"""Bytes per logit of verl's own functions for log-probabilities and entropy.

``function`` of ``verl/utils/torch_functional.py`` is run as the installed release has it, on logits of ``batch`` x
``length`` x ``vocab``. That one file is loaded, with empty stand-ins for what it imports beside torch and these
functions do not use (tensordict, transformers, verl's device module), so that no Ray is started; flash-attn's cross
entropy is left out. Measured at two vocabularies; the difference of two peaks divided by the logits added is bytes
per logit; the logits themselves are not in it.

Prediction, b bytes of a logit, r the share of tokens in one row or chunk:
- ``logprobs_from_logits_naive``: scoring b, backward 12 (float32).
- ``logprobs_from_logits_v2``: float32 one ``logsumexp`` per row, scoring 4 r, backward max(8, 4 + 8 r) (see
  log_probabilities); 16 bits one ``log_softmax`` per row, whose name holds the last row while the next is made: scoring
  2 x b r.
- ``entropy_from_logits``: softmax and its product with the logits, or the temporary of ``logsumexp``: scoring 2 b;
  backward 24 (float32).
- ``entropy_from_logits_with_chunking``: float32 copies of one chunk, its softmax and its product; the softmax of the
  last chunk is alive while the next is made: scoring 12 r for 16 bits, 8 r for float32. Backward (float32): every
  slice's gradient is made at full size, 4, and added to the sum of the earlier ones, 4, in place, while the softmax of
  the other chunks is kept, 4 (1 - r); the gradient of one chunk takes 20 r beside that sum and what is kept: the larger
  of 12 - 4 r and 8 + 16 r, for two chunks or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("verl",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "allocator"
ALONE = True
DEFAULTS: Mapping[str, Any] = {
    "function": "entropy_from_logits",
    "of": "scoring",
    "logits_dtype": "float32",
    "batch": 4,
    "length": 64,
    "vocab": 1024,
    "chunk": 32,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"of": "backward", "vocab": 2048},
    {"function": "entropy_from_logits_with_chunking"},
    {"function": "entropy_from_logits_with_chunking", "chunk": 64, "of": "backward"},
    {"function": "logprobs_from_logits_v2"},
    {"function": "logprobs_from_logits_v2", "logits_dtype": "bfloat16", "batch": 8},
    {"function": "logprobs_from_logits_naive", "of": "backward"},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "function": (
        "entropy_from_logits",
        "entropy_from_logits_with_chunking",
        "logprobs_from_logits_v2",
        "logprobs_from_logits_naive",
    ),
    "of": ("scoring", "backward"),
    "logits_dtype": ("bfloat16", "float32"),
}
METRIC = "bytes_per_logit"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per logit; backward for float32 only."""
    tokens = parameters["batch"] * parameters["length"]
    chunk, row = parameters["chunk"] / tokens, 1 / parameters["batch"]
    whole = parameters["logits_dtype"] == "float32"
    element = 4 if whole else 2
    scoring = {
        "logprobs_from_logits_naive": element,
        "logprobs_from_logits_v2": 4 * row,
        "entropy_from_logits": 2 * element,
        "entropy_from_logits_with_chunking": (8 if whole else 12) * chunk,
    }[parameters["function"]]
    backward = {
        "logprobs_from_logits_naive": 12,
        "logprobs_from_logits_v2": max(8, 4 + 8 * row),
        "entropy_from_logits": 24,
        "entropy_from_logits_with_chunking": max(12 - 4 * chunk, 8 + 16 * chunk),
    }[parameters["function"]]
    values: dict[str, float] = {"scoring_bytes_per_logit": scoring}
    if whole:
        values["backward_bytes_per_logit"] = backward
    if parameters["of"] + "_bytes_per_logit" in values:
        values["bytes_per_logit"] = values[parameters["of"] + "_bytes_per_logit"]
    return values


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the slope is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller vocabulary in the vocabulary's names."""
    return {
        "model.vocab_size": parameters["vocab"],
        "training.framework": "verl",
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.max_response_length": parameters["length"],
        "training.max_prompt_length": 0,
        "training.use_remove_padding": False,
        "rollout.log_prob_micro_batch_size": parameters["batch"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Load the functions, score, and train, at both vocabularies."""
    import importlib.util
    import os
    import sys
    import types

    import torch

    found = importlib.util.find_spec("verl")
    if found is None or not found.submodule_search_locations:
        recorder.unsupported("needs verl")
    path = os.path.join(next(iter(found.submodule_search_locations)), "utils", "torch_functional.py")

    class StandIn(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    for name in ("tensordict", "transformers", "verl", "verl.utils", "verl.utils.device"):
        sys.modules[name] = StandIn(name)
    for name in ("flash_attn", "torch_npu"):
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails, as where it is not installed
    spec = importlib.util.spec_from_file_location("verl.utils.torch_functional", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    name = parameters["function"]
    function = getattr(module, name, None)
    if function is None:
        recorder.unsupported(f"this release has no {name}")
    batch, length = parameters["batch"], parameters["length"]
    peaks: dict[str, list[int]] = {"scoring": [], "backward": []}
    for vocab in (parameters["vocab"], 2 * parameters["vocab"]):
        dtype = getattr(torch, parameters["logits_dtype"])
        logits = torch.randn(batch, length, vocab, device=recorder.device).to(dtype).requires_grad_()
        tokens = torch.randint(0, vocab, (batch, length), device=recorder.device)

        def score(logits: Any = logits, tokens: Any = tokens) -> Any:
            if name.startswith("logprobs"):
                return function(logits, tokens)
            if name.endswith("chunking"):
                return function(logits.flatten(0, 1), parameters["chunk"])
            return function(logits)

        with torch.no_grad(), recorder.phase("scoring"):
            peaks["scoring"].append(recorder.measure(score)[1])
        with recorder.phase("forward"):
            value, _, kept = recorder.measure(score)
        held = [value.sum()]
        del value
        with recorder.phase("backward"):
            _, peak, _ = recorder.measure(lambda held=held: held.pop().backward())  # type: ignore[misc]  # bound at once
        peaks["backward"].append(kept + peak)
        del logits, score, held
    added = batch * length * parameters["vocab"]
    for kind, (small, large) in peaks.items():
        recorder.result(f"{kind}_bytes_per_logit", (large - small) / added)
    recorder.result("bytes_per_logit", (peaks[parameters["of"]][1] - peaks[parameters["of"]][0]) / added)
