"""Count parameters per component of real transformers models on meta tensors: the oracle for our formulas.

Runs inside an environment with torch and transformers and imports nothing of compatcheck. Reads JSON lines from stdin, one
configuration each, and writes one JSON line per configuration: the counts, or why there are none.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from typing import Any

TOWER = re.compile(
    r"(^|\.)(vision_\w+|visual|audio_\w+|image_newline|multi_modal_projector|multimodal_projector|mm_projector|connector|"
    r"merger|projector|embed_vision|embed_audio|vqmodel|vision_embed_tokens|aligner)(\.|$)",
)
"""Module names of vision and audio towers and of what connects them to the language model."""
EXPERTS = re.compile(r"(^|\.)experts\.|block_sparse_moe\.(input|output)_linear\.|(^|\.)mlp\.(input|output)_linear\.")
"""Parameter names inside routed experts; shared experts and routers are not."""
BLOCK_LISTS = {"mpt": "blocks"}


def choose_class(model_type: str, architectures: list[str] | None) -> Any:
    """Return the class that trains this configuration: the named architecture, else the one of the auto mappings."""
    import transformers
    from transformers.models.auto import modeling_auto

    if architectures:
        return getattr(transformers, architectures[0])
    for mapping in (
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        "MODEL_MAPPING_NAMES",
    ):
        name = getattr(modeling_auto, mapping).get(model_type)
        if model_type in ENCODERS and "MASKED" not in mapping:
            continue
        if name is not None:
            return getattr(transformers, name if isinstance(name, str) else name[0])
    raise LookupError(model_type)


ENCODERS = ("bert", "roberta", "xlm-roberta", "electra", "camembert", "data2vec-text", "ernie")
"""Types in the causal mapping too, whose usual head is the masked one."""


def build(config: dict[str, Any]) -> Any:
    """Build the model on the meta device."""
    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    parsed = CONFIG_MAPPING[config["model_type"]].from_dict(json.loads(json.dumps(config)))
    with torch.device("meta"):
        return choose_class(config["model_type"], config.get("architectures"))(parsed)


def find_blocks(model: Any) -> list[str]:
    """Name the repeated blocks, the modules that gradient checkpointing wraps, outside the towers."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    names = [name for name, module in model.named_modules() if isinstance(module, GradientCheckpointingLayer)]
    return [name for name in names if not TOWER.search(name)]


def count(model: Any) -> dict[str, int]:
    """Sum the parameters of each component."""
    blocks = tuple(f"{name}." for name in find_blocks(model))
    embedding = model.get_input_embeddings()
    inputs = {id(p) for p in embedding.parameters()} if embedding is not None else set()
    try:
        head = model.get_output_embeddings()
    except NotImplementedError:
        head = None
    outputs = {id(p) for p in head.parameters()} - inputs if head is not None else set()
    result = dict.fromkeys(
        ("total", "in_blocks", "embedding", "lm_head", "expert", "expert_per_layer", "vision", "other"),
        0,
    )
    layers: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        size = parameter.numel()
        result["total"] += size
        block = next((b for b in blocks if name.startswith(b)), None)
        if id(parameter) in inputs:
            result["embedding"] += size
        elif id(parameter) in outputs:
            result["lm_head"] += size
        elif TOWER.search(name):
            result["vision"] += size
        elif block:
            result["in_blocks"] += size
            if EXPERTS.search(name):
                result["expert"] += size
                layers[block] = layers.get(block, 0) + size
        else:
            result["other"] += size
    result["expert_per_layer"] = max(layers.values(), default=0)
    return result


def show(model: Any) -> None:
    """Print the parameters, one line per distinct name with layer numbers left out."""
    blocks = tuple(f"{name}." for name in find_blocks(model))
    seen: dict[str, list[str]] = {}
    for name, parameter in model.named_parameters():
        label = "block" if name.startswith(blocks) else "tower" if TOWER.search(name) else "-"
        seen.setdefault(f"{re.sub(r'[.][0-9]+(?=[.]|$)', '.N', name)} {label}", []).append(str(tuple(parameter.shape)))
    for name, shapes in seen.items():
        print("   ", name, len(shapes), " ".join(dict.fromkeys(shapes)))


def main() -> None:
    """Answer every line of stdin."""
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    for line in sys.stdin:
        config = json.loads(line)
        try:
            model = build(config)
            if "--show" in sys.argv:
                print(config, type(model).__name__)
                show(model)
                continue
            answer: dict[str, Any] = {"class": type(model).__name__, "counts": count(model)}
        except Exception as error:  # noqa: BLE001 - any failure of a foreign release is an answer
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps({"config": config, **answer, "transformers": transformers.__version__}), flush=True)


if __name__ == "__main__":
    main()
