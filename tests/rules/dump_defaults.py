"""Print the defaults that the real classes of a release have, as JSON.

Runs inside the interpreter that holds the release and imports nothing of compatcheck: ``python dump_defaults.py trl``.
Only fields that a row of ``rules/_defaults`` maps to a fact are printed. ``fields`` are the declared defaults, ``built`` the
values of an object built with no argument beyond the output directory, where they differ.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import importlib.metadata
import json
import os
import sys
import tempfile
import warnings
from typing import Any

TRAINING_ARGUMENTS = (
    "accelerator_config auto_find_batch_size average_tokens_across_devices bf16 deepspeed eval_accumulation_steps fp16 fsdp "
    "full_determinism gradient_accumulation_steps gradient_checkpointing gradient_checkpointing_kwargs optim "
    "per_device_eval_batch_size per_device_train_batch_size prediction_loss_only torch_compile torch_empty_cache_steps use_cpu "
    "use_liger_kernel"
).split()
TRL = (
    "activation_offloading beta bf16 ds3_gather_for_generation eval_packing fp16 generation_batch_size gradient_checkpointing "
    "gradient_checkpointing_kwargs kl_coef loss_type max_completion_length max_length max_prompt_length max_seq_length num_generations packing "
    "padding_free per_device_eval_batch_size per_device_train_batch_size precompute_ref_log_probs response_length rloo_k use_liger_kernel use_liger_loss "
    "use_vllm vllm_enable_sleep_mode vllm_gpu_memory_utilization vllm_mode vllm_tensor_parallel_size average_tokens_across_devices "
    "gradient_accumulation_steps disable_dropout sync_ref_model reference_free steps_per_generation"
).split()
TRAINERS = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "grpo": "GRPOConfig",
    "rloo": "RLOOConfig",
    "ppo": "PPOConfig",
    "kto": "KTOConfig",
    "orpo": "ORPOConfig",
    "cpo": "CPOConfig",
    "reward": "RewardConfig",
    "prm": "PRMConfig",
    "gkd": "GKDConfig",
    "online_dpo": "OnlineDPOConfig",
    "xpo": "XPOConfig",
    "nash_md": "NashMDConfig",
    "bco": "BCOConfig",
}


def plain(value: Any) -> Any:
    """Reduce a default to JSON."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value)


def dump_dataclass(cls: type, names: list[str]) -> dict[str, Any]:
    """Return the declared and the built defaults of the chosen fields of a dataclass of arguments."""
    fields = {}
    for field in dataclasses.fields(cls):
        if field.name in names:
            if field.default is not dataclasses.MISSING:
                fields[field.name] = plain(field.default)
            elif field.default_factory is not dataclasses.MISSING:
                fields[field.name] = plain(field.default_factory())
            else:
                fields[field.name] = "<required>"
    result: dict[str, Any] = {"fields": fields}
    keywords: dict[str, Any] = {"output_dir": tempfile.mkdtemp()}
    known = {field.name for field in dataclasses.fields(cls)}
    if "report_to" in known:
        keywords["report_to"] = []
    try:
        built = cls(**keywords)
    except Exception as error:  # noqa: BLE001 (a release may refuse to build here; the declared defaults remain)
        result["not_built"] = f"{type(error).__name__}: {error}"[:200]
        return result
    result["built"] = {
        name: plain(getattr(built, name)) for name in fields if hasattr(built, name) and plain(getattr(built, name)) != fields[name]
    }
    return result


def dump_transformers() -> dict[str, Any]:
    """Return TrainingArguments' defaults and what gradient_checkpointing_enable passes on."""
    import transformers

    found = {"TrainingArguments": dump_dataclass(transformers.TrainingArguments, TRAINING_ARGUMENTS)}
    arguments = transformers.TrainingArguments
    try:
        built = arguments(output_dir=tempfile.mkdtemp(), report_to=[], fsdp="full_shard", fsdp_config={})
        variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith("FSDP_")}
        plugin = plain(getattr(built, "fsdp_plugin_args", None)) or {}
        found["TrainingArguments(fsdp)"] = {"fields": {}, "environment": variables, "plugin": plugin, "config": plain(built.fsdp_config)}
    except Exception as error:  # noqa: BLE001 (see dump_dataclass)
        found["TrainingArguments(fsdp)"] = {"fields": {}, "not_built": f"{type(error).__name__}: {error}"[:200]}
    config = transformers.LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, vocab_size=8
    )
    model = transformers.LlamaForCausalLM(config)
    model.gradient_checkpointing_enable()
    keywords = getattr(model.model, "_gradient_checkpointing_func", None) or getattr(model.model.layers[0], "_gradient_checkpointing_func")
    found["gradient_checkpointing_enable"] = {"fields": {}, "keywords": plain(keywords.keywords)}
    return found


def dump_trl() -> dict[str, Any]:
    """Return the defaults of every trainer configuration this release has, wherever it lives."""
    import trl

    found = {}
    for trainer, name in TRAINERS.items():
        for module in ("trl", f"trl.experimental.{trainer}"):
            try:
                cls = getattr(importlib.import_module(module), name)
            except Exception as error:  # noqa: BLE001 (moved, or its import fails in this release)
                if not isinstance(error, (AttributeError, ModuleNotFoundError)):
                    found.setdefault(name, {"fields": {}, "not_imported": f"{type(error).__name__}: {error}"[:200]})
                continue
            if dataclasses.is_dataclass(cls):
                found[name] = {"module": cls.__module__, **dump_dataclass(cls, TRL)}
                break
    return found


def main(package: str) -> None:
    """Print the dump of ``package``."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("WANDB_DISABLED", "true")
    classes = {"transformers": dump_transformers, "trl": dump_trl}[package]()
    versions = {}
    for name in (package, "torch", "transformers", "accelerate", "deepspeed"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    json.dump({"package": package, "versions": versions, "classes": classes}, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main(sys.argv[1])
