"""Whether a model that was loaded holds what its checkpoint has, a new head that was drawn, and runs at all.

A tiny checkpoint of ``model_type`` is written under the names that published ones have, with every weight 0.5, and loaded in
``dtype``. ``of`` says what is judged as ``faults``:

- ``weights``: values of the loaded model that are not 0.5;
- ``head``: values of the new head of a model for sequence classification that are no number or larger than 0.5. What memory held
  when it was handed out is made NaN, as torch's deterministic mode does;
- ``forward``: 1 where the first forward ends with an error; phimoe has positions beyond 4,096 there, by longrope, as
  Phi-3.5-MoE-instruct.

Prediction. A checkpoint is loaded whole, a new head is drawn with a standard deviation of 0.02, of which 0.5 is 25, and forward
runs: 0 of each.

Source: transformers conversion_mapping.py, modeling_utils.py _init_weights() and modeling_phimoe.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers",)
SHARES = ("tiny_models",)
BACKENDS = ("cpu",)
ACCOUNTING = "storages"
ALONE = True
"""The deterministic mode is the process's."""
DEFAULTS: Mapping[str, Any] = {"model_type": "llama", "of": "weights", "dtype": "bfloat16", "layers": 2}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"of": "head"}, {"model_type": "phimoe"})
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "model_type": ("llama", "qwen2", "phimoe"),
    "of": ("weights", "head", "forward"),
    "dtype": ("bfloat16", "float16", "float32"),
}
METRIC = "faults"
_VALUE = 0.5
_LONG = 131072


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return that nothing is wrong."""
    return {"faults": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: faults are counted."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    found = {"model.model_type": parameters["model_type"], "model.load_dtype": parameters["dtype"]}
    if parameters["of"] == "head":
        return {**found, "training.framework": "trl", "training.trainer": "reward", "run.head_in_checkpoint": False}
    long = parameters["of"] == "forward" and parameters["model_type"] == "phimoe"
    return {**found, "model.max_position_embeddings": _LONG if long else 512}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Write a checkpoint, load it and look."""
    import tempfile

    import torch
    import transformers

    torch.use_deterministic_algorithms(True)
    models = recorder.load("tiny_models")
    head = parameters["of"] == "head"
    class_ = transformers.AutoModelForSequenceClassification if head else transformers.AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as folder:
        config = _write(parameters, recorder, folder)
        if parameters["of"] == "forward":
            recorder.result("faults", int(not _runs(class_.from_config(config), parameters, recorder)))
            return
        name = "dtype" if models.release() >= models.parse("4.56.0") else "torch_dtype"
        model = class_.from_pretrained(folder, **{name: getattr(torch, parameters["dtype"])})
    wrong = {
        key: int((~(weight.abs() <= _VALUE) if head and key.startswith("score") else weight != _VALUE).sum())
        for key, weight in model.state_dict().items()
    }
    recorder.note(f"faults in {', '.join(key for key, count in wrong.items() if count) or 'no weight'}")
    recorder.result("values", sum(weight.numel() for weight in model.parameters()))
    recorder.result("faults", sum(wrong.values()))


def _runs(model: Any, parameters: Mapping[str, Any], recorder: Recorder) -> bool:
    """Tell whether a model's first forward does not end with an error."""
    models = recorder.load("tiny_models")
    inputs = models.batch(parameters["model_type"], recorder, size=2, length=16, vocab=model.config.vocab_size)
    try:
        model(**inputs)
    except (AttributeError, TypeError, ValueError) as error:
        recorder.note(f"forward ends: {error}")
        return False
    return True


def _write(parameters: Mapping[str, Any], recorder: Recorder, folder: str) -> Any:
    """Write configuration and weights as a published checkpoint has them, and return the configuration read of it."""
    import json
    import os

    import torch
    import transformers
    from safetensors.torch import save_file

    models = recorder.load("tiny_models")
    model_type, layers = parameters["model_type"], parameters["layers"]
    told = models.configure(model_type, recorder, layers=layers).to_dict()
    if parameters["of"] == "forward" and model_type == "phimoe":
        told.pop("rope_parameters", None)
        factors = [1.0] * (told["hidden_size"] // told["num_attention_heads"] // 2)
        told |= {"max_position_embeddings": _LONG, "original_max_position_embeddings": 4096, "rope_theta": 10000.0}
        told["rope_scaling"] = {
            "type": "longrope",
            "short_factor": factors,
            "long_factor": factors,
            "short_mscale": 1.24,
            "long_mscale": 1.24,
            "original_max_position_embeddings": 4096,
        }
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(told, file, default=str)
    config = transformers.AutoConfig.from_pretrained(folder)
    if model_type == "phimoe":
        weights = {key: torch.full(shape, _VALUE) for key, shape in _phimoe(config).items()}
        save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return config
    class_ = transformers.AutoModel if parameters["of"] == "head" else transformers.AutoModelForCausalLM
    model = class_.from_config(config)
    for weight in model.parameters():
        weight.data.fill_(_VALUE)
    models.save(model, folder)
    return config


def _phimoe(config: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of Phi-3.5-MoE-instruct by their names, at the sizes of a configuration."""
    hidden, inner = config.hidden_size, config.intermediate_size
    size = hidden // config.num_attention_heads
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "lm_head.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
        "model.norm.bias": (hidden,),
    }
    for layer in range(config.num_hidden_layers):
        start = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes |= {f"{start}{norm}.weight": (hidden,), f"{start}{norm}.bias": (hidden,)}
        for name, heads in (("q", config.num_attention_heads), *((one, config.num_key_value_heads) for one in "kv")):
            shapes[f"{start}self_attn.{name}_proj.weight"] = (heads * size, hidden)
        shapes[f"{start}self_attn.o_proj.weight"] = (hidden, config.num_attention_heads * size)
        shapes[f"{start}block_sparse_moe.gate.weight"] = (config.num_local_experts, hidden)
        for expert in range(config.num_local_experts):
            inside = f"{start}block_sparse_moe.experts.{expert}."
            shapes |= {f"{inside}w1.weight": (inner, hidden), f"{inside}w3.weight": (inner, hidden)}
            shapes[f"{inside}w2.weight"] = (hidden, inner)
    return shapes
