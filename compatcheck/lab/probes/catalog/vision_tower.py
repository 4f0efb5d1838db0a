"""What the vision tower of a model of text and images holds: masks of all patches, and layers that checkpointing leaves out.

The tower alone of ``model_type``, tiny, in bfloat16, reads ``images`` of 8 x 8 patches. ``of`` says what is measured:

- ``mask``: the peak of a forward without gradients at once, twice and three times as many images; the second difference over the
  square of the patches that were added is bytes for a pair of patches.
- ``layers``: what one more layer keeps alive after forward with gradient checkpointing, the slope over ``layers`` and twice as
  many.

Prediction. Images do not see each other, so nothing grows with the square of all patches: `bytes_per_pair` is 0. A mask of
booleans takes 1 byte a pair, and sdpa makes 2 more of it in bfloat16; one in bfloat16 takes 2, and 2 more while the next layer's
is made. A checkpointed layer keeps its input: `layer_bytes` is 2 x patches x hidden, up to one more state, of the patches that
the type makes of an image (mllama fills up tiles to a multiple of eight).

Source: transformers modeling_qwen2_vl.py, modeling_qwen2_5_vl.py, modeling_glm4v.py and modeling_mllama.py.
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
DEFAULTS: Mapping[str, Any] = {"model_type": "qwen2_vl", "of": "mask", "images": 16, "layers": 2, "hidden": 64}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"model_type": "qwen2_5_vl", "images": 12},
    {"of": "layers"},
    {"of": "layers", "images": 3, "hidden": 128},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "model_type": ("qwen2_vl", "qwen2_5_vl", "glm4v", "mllama"),
    "of": ("mask", "layers"),
}
METRIC = "excess_bytes"
_PATCHES = 64
_ROWS = {"mllama": 4 * 72}
"""Rows that a type makes of an image: four tiles, each of 64 patches and a class token, filled up to a multiple of eight."""


def _rows(parameters: Mapping[str, Any]) -> int:
    return int(parameters["images"] * _ROWS.get(parameters["model_type"], _PATCHES))


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing for pairs of patches, and one state for a layer."""
    return {"excess_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return half a byte a pair, or one more state."""
    rows = _rows(parameters)
    return rows**2 / 2 if parameters["of"] == "mask" else 2 * rows * parameters["hidden"]


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    masks = parameters["of"] == "mask"
    return {
        "model.model_type": parameters["model_type"],
        "model.attn_implementation": "sdpa",
        "training.micro_batch_size": 1,
        # Four patches are one token.
        "training.sequence_length": parameters["images"] * _PATCHES // 4,
        "training.compute_dtype": "bfloat16",
        "training.gradient_checkpointing": not masks,
        "run.trains_tower": not masks,
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a bare loop does."""
    return {
        "training.fsdp_activation_checkpointing": False,
        "run.checkpoint_wrappers": False,
        "program.runs_transformers": True,
        "program.sequences_per_sample": 1,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Read images with towers of two depths, or more and more images with one."""
    import contextlib
    from functools import partial

    import torch

    models = recorder.load("tiny_models")
    images, layers = parameters["images"], parameters["layers"]
    if parameters["of"] == "mask":
        tower = _build(parameters, layers, recorder).eval()
        _give_masks_a_batch()

        with torch.no_grad():
            peaks = [
                recorder.measure(partial(tower, **_inputs(parameters, count * images, recorder)))[1]
                for count in (1, 2, 3)
            ]
        second = peaks[2] - 2 * peaks[1] + peaks[0]
        recorder.result("bytes_per_pair", second / (2 * _rows(parameters) ** 2))
        recorder.result("excess_bytes", second / 2)
        return
    kept = []
    for depth in (layers, 2 * layers):
        tower = _build(parameters, depth, recorder)
        # A tower without the switch is passed over where the model around it is told.
        with contextlib.suppress(ValueError):
            models.checkpoint(tower, recorder, reentrant=False)
        inputs = _inputs(parameters, images, recorder)
        kept.append(recorder.measure(partial(tower, **inputs))[2])
        del tower
    layer = (kept[1] - kept[0]) / layers
    recorder.result("layer_bytes", layer)
    recorder.result("excess_bytes", layer - 2 * _rows(parameters) * parameters["hidden"])


def _give_masks_a_batch() -> None:
    """Have sdpa take masks of three dimensions as one of four: a CPU's flash kernel takes no others, and GPUs' do."""
    import torch.nn.functional as F  # noqa: N812 (the name everyone uses)

    attend = F.scaled_dot_product_attention

    def attend_with_batch(query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **options: Any) -> Any:
        if attn_mask is not None and attn_mask.dim() == query.dim() - 1:
            attn_mask = attn_mask[None]
        return attend(query, key, value, attn_mask, *rest, **options)

    F.scaled_dot_product_attention = attend_with_batch


def _build(parameters: Mapping[str, Any], depth: int, recorder: Recorder) -> Any:
    """Return a tower in training mode, or end the probe where this release has no such type."""
    import importlib

    import torch

    models = recorder.load("tiny_models")
    name, hidden = parameters["model_type"], parameters["hidden"]
    common = {"hidden_size": hidden, "num_heads": 4, "depth": depth, "patch_size": 4}
    config_name, class_name, told = {
        "qwen2_vl": ("Qwen2VLVisionConfig", "Qwen2VisionTransformerPretrainedModel", {**common, "embed_dim": hidden}),
        "qwen2_5_vl": (
            "Qwen2_5_VLVisionConfig",
            "Qwen2_5_VisionTransformerPretrainedModel",
            {**common, "out_hidden_size": hidden, "intermediate_size": 96, "window_size": 16},
        ),
        "glm4v": (
            "Glm4vVisionConfig",
            "Glm4vVisionModel",
            {**common, "out_hidden_size": hidden, "intermediate_size": 96, "image_size": 32, "temporal_patch_size": 2},
        ),
        "mllama": (
            "MllamaVisionConfig",
            "MllamaVisionModel",
            {
                "hidden_size": hidden,
                "num_attention_heads": 4,
                "num_hidden_layers": depth,
                "num_global_layers": 1,
                "intermediate_size": 96,
                "image_size": 32,
                "patch_size": 4,
                "intermediate_layers_indices": [0],
                "vision_output_dim": 2 * hidden,
            },
        ),
    }[name]
    try:
        modeling = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        configuration = importlib.import_module(f"transformers.models.{name}.configuration_{name}")
    except ImportError:
        recorder.unsupported(f"this release of transformers has no {name}")
    option = "dtype" if models.release() >= models.parse("4.56.0") else "torch_dtype"
    tower = getattr(modeling, class_name)._from_config(
        getattr(configuration, config_name)(**told), attn_implementation="sdpa", **{option: torch.bfloat16}
    )
    return tower.to(recorder.device).train()


def _inputs(parameters: Mapping[str, Any], images: int, recorder: Recorder) -> dict[str, Any]:
    """Return the inputs of one forward pass."""
    import torch

    where: dict[str, Any] = {"device": recorder.device}
    if parameters["model_type"] == "mllama":
        # One tile an image; the other three are there, masked, in every batch of the type.
        return {
            "pixel_values": torch.ones(images, 1, 4, 3, 32, 32, dtype=torch.bfloat16, **where),
            "aspect_ratio_ids": torch.ones(images, 1, dtype=torch.long, **where),
            "aspect_ratio_mask": torch.ones(images, 1, 4, dtype=torch.long, **where),
        }
    grid = torch.tensor([[1, 8, 8]] * images, **where)
    return {
        "hidden_states": torch.ones(images * _PATCHES, 3 * 2 * 4 * 4, dtype=torch.bfloat16, **where),
        "grid_thw": grid,
    }
