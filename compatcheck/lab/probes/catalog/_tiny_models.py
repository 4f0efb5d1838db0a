"""Tiny randomly initialised models of many model types, in whatever release of transformers is installed.

Not a probe: the probes about transformers load it with ``recorder.load("tiny_models")``. All models of a probe have the same
dimensions, whatever their configuration calls them, so that one formula predicts them all; where a type cannot have one
(no grouped-query attention, a fused decoder and encoder), a function here says what it has instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

DIMENSIONS: Mapping[str, int] = {
    "hidden": 64,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "intermediate": 96,
    "vocab": 160,
    "positions": 512,
    "expert_count": 4,
    "experts_per_token": 2,
}
"""What a model has unless a probe says otherwise; ``head_dim`` is ``hidden / heads``."""

_STANDARD = {
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "intermediate",
    "vocab_size": "vocab",
    "max_position_embeddings": "positions",
}
_WITH_HEAD_DIM = {**_STANDARD, "head_dim": "head_dim"}
_GPT2 = {
    "n_embd": "hidden",
    "n_layer": "layers",
    "n_head": "heads",
    "n_inner": "intermediate",
    "vocab_size": "vocab",
    "n_positions": "positions",
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
_MOE = {
    **_STANDARD,
    "num_experts_per_tok": "experts_per_token",
    "moe_intermediate_size": "intermediate",
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_ENCODER = {name: value for name, value in _STANDARD.items() if name != "num_key_value_heads"} | _NO_DROPOUT
_SEQ2SEQ = {
    "d_model": "hidden",
    "encoder_layers": "layers",
    "decoder_layers": "layers",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "heads",
    "encoder_ffn_dim": "intermediate",
    "decoder_ffn_dim": "intermediate",
    "vocab_size": "vocab",
    "max_position_embeddings": "positions",
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
_T5 = {
    "d_model": "hidden",
    "d_kv": "head_dim",
    "d_ff": "intermediate",
    "num_layers": "layers",
    "num_decoder_layers": "layers",
    "num_heads": "heads",
    "vocab_size": "vocab",
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}
_VISION = {
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "intermediate",
    "image_size": 32,
    "patch_size": 4,
}

CAUSAL: Mapping[str, Mapping[str, Any]] = {
    "llama": _STANDARD,
    "mistral": _STANDARD,
    "qwen2": _STANDARD,
    "qwen3": _WITH_HEAD_DIM,
    "gemma": _WITH_HEAD_DIM,
    "gemma2": {**_WITH_HEAD_DIM, "query_pre_attn_scalar": "head_dim"},
    "gemma3_text": {**_WITH_HEAD_DIM, "query_pre_attn_scalar": "head_dim"},
    "vaultgemma": {**_WITH_HEAD_DIM, "query_pre_attn_scalar": "head_dim"},
    "phi": _STANDARD,
    "phi3": {**_STANDARD, "original_max_position_embeddings": "positions"},
    "cohere": _STANDARD,
    "cohere2": _STANDARD,
    "stablelm": _STANDARD,
    "starcoder2": {**_STANDARD, "residual_dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0},
    "olmo": _STANDARD,
    "olmo2": _STANDARD,
    "olmo3": {**_STANDARD, "layer_types": "full_attention"},
    "granite": _STANDARD,
    "glm": _WITH_HEAD_DIM,
    "glm4": _WITH_HEAD_DIM,
    "nemotron": _WITH_HEAD_DIM,
    "persimmon": {name: value for name, value in _STANDARD.items() if name != "num_key_value_heads"},
    "smollm3": _STANDARD,
    "seed_oss": {**_WITH_HEAD_DIM, "attention_dropout": 0.0, "residual_dropout": 0.0},
    "ernie4_5": _WITH_HEAD_DIM,
    "exaone4": {**_STANDARD, "sliding_window_pattern": 4, "sliding_window": None, "layer_types": "full_attention"},
    "hunyuan_v1_dense": _WITH_HEAD_DIM,
    "arcee": _STANDARD,
    "helium": _WITH_HEAD_DIM,
    "diffllama": _STANDARD,
    "apertus": _STANDARD,
    "ministral": _WITH_HEAD_DIM,
    "jamba": {
        **_MOE,
        "num_experts": "expert_count",
        "attn_layer_period": 1,
        "attn_layer_offset": 0,
        "use_mamba_kernels": False,
    },
    "zamba2": {
        **_STANDARD,
        "num_key_value_heads": "heads",
        # For the four layers of `masks`: some releases want one for each layer, and no more.
        "layers_block_type": ("mamba", "hybrid") * 2,
        "mamba_d_state": 16,
        "n_mamba_heads": 4,
        "use_mem_rope": True,
    },
    "dbrx": {
        "d_model": "hidden",
        "n_layers": "layers",
        "n_heads": "heads",
        "max_seq_len": "positions",
        "vocab_size": "vocab",
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "gpt2": _GPT2,
    "gpt_neo": {
        "hidden_size": "hidden",
        "num_layers": "layers",
        "num_heads": "heads",
        "intermediate_size": "intermediate",
        "vocab_size": "vocab",
        "max_position_embeddings": "positions",
        "attention_types": "global",
    },
    "gpt_neox": {**_ENCODER, "attention_dropout": 0.0, "hidden_dropout": 0.0},
    "gptj": {**_GPT2, "rotary_dim": 8},
    "codegen": {**_GPT2, "rotary_dim": 8},
    "gpt_bigcode": _GPT2,
    "opt": {
        **_ENCODER,
        "ffn_dim": "intermediate",
        "word_embed_proj_dim": "hidden",
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "bloom": {
        "hidden_size": "hidden",
        "n_layer": "layers",
        "n_head": "heads",
        "vocab_size": "vocab",
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "falcon": {
        "hidden_size": "hidden",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_kv_heads": "kv_heads",
        "new_decoder_architecture": True,
        "ffn_hidden_size": "intermediate",
        "vocab_size": "vocab",
        "max_position_embeddings": "positions",
        "alibi": False,
    },
    "mpt": {
        "d_model": "hidden",
        "n_layers": "layers",
        "n_heads": "heads",
        "max_seq_len": "positions",
        "vocab_size": "vocab",
    },
    "biogpt": {**_ENCODER, "activation_dropout": 0.0, "layerdrop": 0.0},
    "xglm": {
        "d_model": "hidden",
        "num_layers": "layers",
        "attention_heads": "heads",
        "ffn_dim": "intermediate",
        "vocab_size": "vocab",
        "max_position_embeddings": "positions",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "layerdrop": 0.0,
    },
    "mixtral": {**_MOE, "num_local_experts": "expert_count"},
    "qwen2_moe": {**_MOE, "num_experts": "expert_count", "shared_expert_intermediate_size": "intermediate"},
    "qwen3_moe": {**_MOE, "num_experts": "expert_count", "head_dim": "head_dim"},
    "olmoe": {**_MOE, "num_experts": "expert_count"},
    "phimoe": {**_MOE, "num_local_experts": "expert_count"},
    "granitemoe": {**_MOE, "num_local_experts": "expert_count"},
    "gpt_oss": {**_MOE, "num_local_experts": "expert_count", "head_dim": "head_dim"},
    "deepseek_v3": {
        **_MOE,
        "num_key_value_heads": "heads",
        "n_routed_experts": "expert_count",
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 0,
        "q_lora_rank": 32,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
    },
    "glm4_moe": {
        **_MOE,
        "head_dim": "head_dim",
        "n_routed_experts": "expert_count",
        "first_k_dense_replace": 0,
    },
    "ernie4_5_moe": {
        **_MOE,
        "moe_num_experts": "expert_count",
        "moe_k": "experts_per_token",
        "moe_layer_start_index": 0,
        "moe_num_shared_experts": 1,
    },
    "jetmoe": {
        **_MOE,
        "num_key_value_heads": "kv_heads",
        "kv_channels": "head_dim",
        "num_local_experts": "expert_count",
    },
    "dots1": {
        **_MOE,
        "n_routed_experts": "expert_count",
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 0,
        "n_shared_experts": 1,
    },
}
"""Model types that predict the next token: names of their configuration → a name of `DIMENSIONS`, or the value itself."""
MASKED: Mapping[str, Mapping[str, Any]] = {
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "xlm-roberta": _ENCODER,
    "electra": {**_ENCODER, "embedding_size": "hidden"},
    "deberta-v2": {**_ENCODER, "relative_attention": True, "pos_att_type": ("c2p", "p2c"), "position_buckets": 32},
    "distilbert": {
        "dim": "hidden",
        "n_layers": "layers",
        "n_heads": "heads",
        "hidden_dim": "intermediate",
        "vocab_size": "vocab",
        "max_position_embeddings": "positions",
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "modernbert": _ENCODER,
}
SEQ2SEQ: Mapping[str, Mapping[str, Any]] = {
    "bart": _SEQ2SEQ,
    "mbart": _SEQ2SEQ,
    "pegasus": _SEQ2SEQ,
    "marian": _SEQ2SEQ,
    "m2m_100": _SEQ2SEQ,
    "t5": _T5,
    "mt5": _T5,
}
VISION: Mapping[str, Mapping[str, Any]] = {
    "vit": {**_VISION, **_NO_DROPOUT},
    "deit": {**_VISION, **_NO_DROPOUT},
    "dinov2": {**_VISION, **_NO_DROPOUT, "mlp_ratio": 2},
    "clip_vision_model": _VISION,
    "siglip_vision_model": _VISION,
}
CHOICES: Mapping[str, tuple[str, ...]] = {"model_type": (*CAUSAL, *MASKED, *SEQ2SEQ, *VISION)}
"""Values of parameters of the probes that load this."""
MOE = (
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "olmoe",
    "phimoe",
    "granitemoe",
    "gpt_oss",
    "deepseek_v3",
    "glm4_moe",
    "ernie4_5_moe",
    "dots1",
)
"""Causal types whose MLP is a mixture of experts in every layer."""

BIASED = ("t5", "mt5")
"""Types whose attention has a learned bias for each pair of positions, which takes the place of a mask."""
HYBRID = ("gemma2", "gemma3_text", "cohere2", "vaultgemma", "modernbert")
"""Types with a second mask: their layers take turns in attending to everything and to a window."""

_MULTI_HEAD = frozenset(
    {"gpt2", "gpt_neo", "gpt_neox", "gptj", "codegen", "opt", "bloom", "mpt", "biogpt", "xglm", "persimmon"}
)
_MULTI_QUERY = frozenset({"gpt_bigcode"})
_VISION_TOKENS = {"vit": 65, "deit": 66, "dinov2": 65, "clip_vision_model": 65, "siglip_vision_model": 64}
_AUTO = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "vision": "AutoModel",
}
_OWN_CLASS = {"clip_vision_model": "CLIPVisionModel", "siglip_vision_model": "SiglipVisionModel"}
"""Types that the automatic classes of some releases do not know."""


def kind(model_type: str) -> str:
    """Say what a model type is: ``causal``, ``masked``, ``seq2seq`` or ``vision``."""
    for name, types in (("causal", CAUSAL), ("masked", MASKED), ("seq2seq", SEQ2SEQ), ("vision", VISION)):
        if model_type in types:
            return name
    message = f"no tiny model of type {model_type!r}"
    raise ValueError(message)


def complete(dimensions: Mapping[str, int]) -> dict[str, int]:
    """Return all dimensions, these over the defaults, with ``head_dim``."""
    all_ = {**DIMENSIONS, **dimensions}
    return {**all_, "head_dim": all_["hidden"] // all_["heads"]}


def key_value_heads(model_type: str, dimensions: Mapping[str, int]) -> int:
    """Return the key and value heads that a type really has with these dimensions."""
    all_ = complete(dimensions)
    return all_["heads"] if model_type in _MULTI_HEAD else 1 if model_type in _MULTI_QUERY else all_["kv_heads"]


def kv_values(model_type: str, dimensions: Mapping[str, int]) -> int:
    """Return the values that a type must cache for one token and layer: keys and values, or what both are made from."""
    if model_type == "deepseek_v3":
        return CAUSAL[model_type]["kv_lora_rank"] + CAUSAL[model_type]["qk_rope_head_dim"]
    return 2 * key_value_heads(model_type, dimensions) * complete(dimensions)["head_dim"]


def states(model_type: str, length: int) -> int:
    """Return how many rows of ``hidden`` values one more layer of a type hands on, for one sequence of this length.

    An encoder-decoder gets one more layer on either side; an image has as many tokens as it has patches and class tokens.
    """
    if model_type in VISION:
        return _VISION_TOKENS[model_type]
    return 2 * length if model_type in SEQ2SEQ else length


def release() -> Any:
    """Return the installed release of transformers, comparable with `parse`."""
    import transformers

    return parse(transformers.__version__)


def parse(text: str) -> Any:
    """Return a release as a comparable object."""
    from packaging.version import Version

    return Version(text)


def configure(model_type: str, recorder: Recorder, **dimensions: int) -> Any:
    """Return the configuration of a tiny model, or end the probe where this release does not know the type."""
    import transformers

    table = {**CAUSAL, **MASKED, **SEQ2SEQ, **VISION}[model_type]
    all_ = complete(dimensions)
    values: dict[str, Any] = {
        name: all_[value] if isinstance(value, str) and value in all_ else value for name, value in table.items()
    }
    if values.get("attention_types") == "global":
        values["attention_types"] = [[["global"], all_["layers"]]]
    if "layer_types" in values:
        values["layer_types"] = [values["layer_types"]] * all_["layers"]
    if "pos_att_type" in values:
        values["pos_att_type"] = list(values["pos_att_type"])
    values.update(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    try:
        return transformers.AutoConfig.for_model(model_type, **values)
    except (ValueError, KeyError) as error:
        if "nrecognized model" not in str(error) and not isinstance(error, KeyError):
            raise
        recorder.unsupported(f"transformers {transformers.__version__} has no model type {model_type}")


def build(
    model_type: str,
    recorder: Recorder,
    *,
    implementation: str | None = None,
    experts: str | None = None,
    dtype: str | None = "bfloat16",
    **dimensions: int,
) -> Any:
    """Return a tiny model, on the recorder's device, in training mode.

    Args:
        model_type: one of `CAUSAL`, `MASKED`, `SEQ2SEQ`, `VISION`.
        recorder: the probe's; it is ended where the type or the implementation does not exist in this release.
        implementation: of attention; the release's own choice when None.
        experts: implementation of the experts (5.0 and newer); the release's own choice when None.
        dtype: of the weights; what the release makes of a configuration that names none when None.
        dimensions: over the defaults.
    """
    import torch
    import transformers

    config = configure(model_type, recorder, **dimensions)
    options: dict[str, Any] = {}
    if dtype is not None:
        options["dtype" if release() >= parse("4.56.0") else "torch_dtype"] = getattr(torch, dtype)
    if implementation is not None:
        if release() >= parse("4.36.0"):
            options["attn_implementation"] = implementation
        elif implementation != "eager":
            recorder.unsupported("attn_implementation needs transformers >= 4.36")
    if experts is not None:
        if release() < parse("5.0.0.dev0"):
            recorder.unsupported("experts_implementation needs transformers >= 5.0")
        options["experts_implementation"] = experts
    name = _OWN_CLASS.get(model_type, _AUTO[kind(model_type)])
    class_ = getattr(transformers, name, None)
    if class_ is None:
        recorder.unsupported(f"transformers {transformers.__version__} has no {name}")
    make = class_.from_config if name.startswith("Auto") else class_._from_config
    try:
        model = make(config, **options)
    except (ValueError, ImportError) as error:
        text = str(error)
        if "scaled_dot_product_attention" in text or "Unrecognized configuration class" in text:
            recorder.unsupported(" ".join(text.split())[:160])
        raise
    except TypeError as error:
        if "unexpected keyword argument" in str(error) and implementation in (None, "eager"):
            model = make(config, **{key: value for key, value in options.items() if "dtype" in key})
        else:
            raise
    if implementation not in (None, "eager") and attention_of(model) != implementation:
        recorder.unsupported(f"{model_type} runs {attention_of(model)} when {implementation} is asked for")
    _freeze_imports()
    # Fake tensors cannot be moved in place; they say that they are on the CPU anyway.
    return (model.to(recorder.device) if recorder.device != "cpu" else model).train()


def _freeze_imports() -> None:
    """Keep what the imports made out of later garbage collections, which would take a tenth of a second each."""
    import gc

    gc.freeze()


def attention_of(model: Any) -> str:
    """Return the implementation of attention that a model has chosen; before 4.36 there was eager alone."""
    return str(getattr(model.config, "_attn_implementation", None) or "eager")


def batch(
    model_type: str, recorder: Recorder, *, size: int, length: int, vocab: int, mask: str = "ones"
) -> dict[str, Any]:
    """Return the inputs of one forward pass.

    Args:
        model_type: decides what goes in.
        recorder: the probe's, for the device.
        size: sequences.
        length: tokens of each, padding included.
        vocab: tokens are drawn from its upper part: the lowest ids are special.
        mask: ``none``, ``ones``, or ``padding``: the last quarter of every sequence but the first. Fake tensors get none:
            releases look into a mask to see whether it can be left out.
    """
    import torch

    if model_type in VISION:
        return {"pixel_values": torch.ones(size, 3, 32, 32, dtype=torch.bfloat16, device=recorder.device)}
    tokens = torch.arange(size * length, device=recorder.device).view(size, length) % (vocab - 8) + 8
    inputs = {"input_ids": tokens}
    if mask != "none" and recorder.backend != "fake":
        ones = torch.ones(size, length, dtype=torch.long, device=recorder.device)
        if mask == "padding":
            ones[1:, length - length // 4 :] = 0
        inputs["attention_mask"] = ones
    if model_type in SEQ2SEQ:
        inputs["decoder_input_ids"] = tokens
    if model_type in CAUSAL or model_type in SEQ2SEQ:
        inputs["use_cache"] = False
    return inputs


def checkpoint(model: Any, recorder: Recorder, *, reentrant: bool | None) -> None:
    """Turn gradient checkpointing on, or end the probe where the model says that it has none.

    Args:
        model: of `build`.
        recorder: the probe's.
        reentrant: the variant; the release's own choice when None.
    """
    if not getattr(model, "supports_gradient_checkpointing", False):
        recorder.unsupported(f"{type(model).__name__} does not support gradient checkpointing")
    if reentrant is None:
        model.gradient_checkpointing_enable()
    elif release() >= parse("4.35.0"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    else:
        recorder.unsupported("the choice of use_reentrant needs transformers >= 4.35")


def save(model: Any, folder: str) -> None:
    """Save a model as safetensors, which only newer releases do unless told."""
    if release() < parse("5.0.0.dev0"):
        model.save_pretrained(folder, safe_serialization=True)
    else:
        model.save_pretrained(folder)
