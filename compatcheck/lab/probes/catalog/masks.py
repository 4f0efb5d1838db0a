"""Bytes of S×S attention masks that a model keeps, for a mask of ones, of padding, or none at all.

A tiny model of ``model_type`` with sdpa attention runs forward on ``batch`` sequences of ``length`` tokens, a number that is
no other dimension of the model. Every tensor whose last two dimensions are length x length is a mask, for sdpa returns no
scores; a dispatch mode adds up their storages, each once. ``mask_bytes`` is what is still alive after forward in training,
``peak_mask_bytes`` the most at one time, ``inference_peak_mask_bytes`` the same under no_grad. Masks that are buffers of the
model are ``buffer_bytes`` and not in these.

Prediction. Without padding attention is purely causal (or unmasked, in an encoder), which sdpa needs no mask for: 0. With
padding one mask in the dtype of the queries serves all layers and is kept for backward: 2 x batch x length². Types with two
kinds of layers need two, encoder-decoders one for the encoder and one for the attention to it. Whether a mask can be left out
is read from its values, which fake tensors do not have: there is no ``fake`` here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers",)
SHARES = ("tiny_models",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "model_type": "llama",
    "mask": "none",
    "use_cache": False,
    "checkpointing": False,
    "layers": 4,
    "batch": 2,
    "length": 37,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"mask": "ones"}, {"mask": "ones", "length": 53, "batch": 3})
CHOICES: Mapping[str, tuple[Any, ...]] = {"mask": ("none", "ones", "padding")}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,), "mask": ("none", "ones", "padding"), "use_cache": (True, False)}
METRIC = "mask_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of one mask for padding, of none otherwise."""
    from compatcheck.lab.probes.catalog._tiny_models import HYBRID, SEQ2SEQ

    model_type = parameters["model_type"]
    kinds = 2 if model_type in HYBRID or model_type in SEQ2SEQ else 1
    padded = parameters["mask"] == "padding"
    return {"mask_bytes": 2 * parameters["batch"] * parameters["length"] ** 2 * kinds if padded else 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: masks are counted exactly."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.model_type": parameters["model_type"],
        "model.attn_implementation": "sdpa",
        "model.num_hidden_layers": parameters["layers"],
        "model.num_attention_heads": 4,
        "model.num_key_value_heads": 4,
        "model.head_dim": 16,
        "model.use_cache": parameters["use_cache"],
        "training.gradient_checkpointing": parameters["checkpointing"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": "bfloat16",
        "run.attention_mask": parameters["mask"],
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return that padding stays where it is."""
    return {"training.padding_free": False, "training.sharding": "none"}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward once with gradients and once without, watching what is as large as a mask."""
    import gc
    import weakref

    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    models = recorder.load("tiny_models")
    model_type, length = parameters["model_type"], parameters["length"]
    if models.kind(model_type) == "vision":
        recorder.unsupported("images have no attention mask")
    if model_type in models.BIASED:
        recorder.unsupported(f"{model_type} has a learned bias in the place of a mask")

    class Masks(TorchDispatchMode):
        """Adds up storages of tensors that end in length x length."""

        def __init__(self) -> None:
            super().__init__()
            self.live = self.peak = 0
            self.known: dict[int, Any] = {}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for value in tree_leaves(result):
                if isinstance(value, torch.Tensor) and tuple(value.shape[-2:]) == (length, length):
                    self.add(value.untyped_storage())
            return result

        def add(self, storage: Any) -> None:
            key, size = storage._cdata, storage.nbytes()
            # A view that repeats a row, and a buffer that was there before.
            if key in self.known or key in before or size < length * length:
                return

            def forget(_: Any) -> None:
                self.known.pop(key)
                self.live -= size

            self.known[key] = weakref.ref(storage, forget)
            self.live += size
            self.peak = max(self.peak, self.live)

    model = models.build(model_type, recorder, implementation="sdpa", layers=parameters["layers"], kv_heads=4)
    before = {buffer.untyped_storage()._cdata for buffer in model.buffers()}
    square = [buffer.nbytes for buffer in model.buffers() if buffer.dim() > 1 and min(buffer.shape[-2:]) >= length]
    recorder.result("buffer_bytes", sum(square))
    if parameters["checkpointing"]:
        models.checkpoint(model, recorder, reentrant=None)
    inputs = models.batch(
        model_type,
        recorder,
        size=parameters["batch"],
        length=length,
        vocab=models.DIMENSIONS["vocab"],
        mask=parameters["mask"],
    )
    if "use_cache" in inputs:
        inputs["use_cache"] = parameters["use_cache"]
    with torch.no_grad(), Masks() as masks:
        model(**inputs)
    recorder.result("inference_peak_mask_bytes", masks.peak)
    with Masks() as masks:
        output = model(**inputs)
        gc.collect()
        recorder.result("mask_bytes", masks.live)
        recorder.result("peak_mask_bytes", masks.peak)
        del output
