"""Print the defaults that the real classes of a release have, as JSON.

Runs inside the interpreter that holds the release and imports nothing of compatcheck: ``python dump_defaults.py trl``.
Only fields that a row of ``rules/_programs`` maps to a fact are printed. ``fields`` are the declared defaults, ``built`` the
values of an object built with no argument beyond the output directory, where they differ.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import warnings
from typing import Any

TRAINING_ARGUMENTS = [
    "accelerator_config",
    "auto_find_batch_size",
    "average_tokens_across_devices",
    "bf16",
    "deepspeed",
    "eval_accumulation_steps",
    "eval_strategy",
    "evaluation_strategy",
    "fp16",
    "fsdp",
    "full_determinism",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "label_smoothing_factor",
    "optim",
    "per_device_eval_batch_size",
    "per_device_train_batch_size",
    "prediction_loss_only",
    "torch_compile",
    "torch_empty_cache_steps",
    "use_cpu",
    "use_liger_kernel",
]
TRL = [
    "activation_offloading",
    "beta",
    "bf16",
    "ds3_gather_for_generation",
    "eval_packing",
    "fp16",
    "generation_batch_size",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "kl_coef",
    "loss_type",
    "max_completion_length",
    "max_length",
    "max_prompt_length",
    "max_seq_length",
    "num_generations",
    "packing",
    "padding_free",
    "per_device_eval_batch_size",
    "per_device_train_batch_size",
    "precompute_ref_log_probs",
    "response_length",
    "rloo_k",
    "use_liger_kernel",
    "use_liger_loss",
    "use_vllm",
    "vllm_enable_sleep_mode",
    "vllm_gpu_memory_utilization",
    "vllm_mode",
    "vllm_tensor_parallel_size",
    "average_tokens_across_devices",
    "gradient_accumulation_steps",
    "disable_dropout",
    "sync_ref_model",
    "reference_free",
    "steps_per_generation",
]
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
    except Exception:  # noqa: BLE001 (bfloat16 is refused without a GPU, unless the CPU is asked for)
        try:
            built = cls(**keywords, use_cpu=True)
        except Exception as error:  # noqa: BLE001 (a release may refuse to build here; the declared defaults remain)
            result["not_built"] = f"{type(error).__name__}: {error}"[:200]
            return result
    result["built"] = {
        name: plain(getattr(built, name))
        for name in fields
        if hasattr(built, name) and plain(getattr(built, name)) != fields[name]
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
        found["TrainingArguments(fsdp)"] = {
            "fields": {},
            "environment": variables,
            "plugin": plugin,
            "config": plain(built.fsdp_config),
        }
    except Exception as error:  # noqa: BLE001 (see dump_dataclass)
        found["TrainingArguments(fsdp)"] = {"fields": {}, "not_built": f"{type(error).__name__}: {error}"[:200]}
    config = transformers.LlamaConfig(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        vocab_size=8,
    )
    model = transformers.LlamaForCausalLM(config)
    model.gradient_checkpointing_enable()
    keywords = (
        getattr(model.model, "_gradient_checkpointing_func", None) or model.model.layers[0]._gradient_checkpointing_func
    )
    found["gradient_checkpointing_enable"] = {"fields": {}, "keywords": plain(keywords.keywords)}
    return found


def _reentrant_default(module: str) -> str | None:
    """Say whether the trainer beside a configuration sets use_reentrant to False by itself, read in its source."""
    for name in (module, module.replace("_config", "_trainer")):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            with open(spec.origin, encoding="utf-8") as file:
                text = file.read()
            if 'setdefault("use_reentrant", False)' in text and 'Version("5.0.0")' in text:
                return "False below transformers 5"
    return None


def dump_trl() -> dict[str, Any]:
    """Return the defaults of every trainer configuration this release has, wherever it lives."""

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
                found[name] = {
                    "module": cls.__module__,
                    **dump_dataclass(cls, TRL),
                    "reentrant": _reentrant_default(cls.__module__),
                }
                break
    return found


ZERO = [
    "stage",
    "reduce_bucket_size",
    "allgather_bucket_size",
    "overlap_comm",
    "contiguous_gradients",
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "module_granularity_threshold",
    "memory_efficient_linear",
    "gather_16bit_weights_on_model_save",
    "zero_hpz_partition_size",
    "offload_optimizer",
    "offload_param",
]


def dump_deepspeed() -> dict[str, Any]:
    """Return the values DeepSpeed gives to keys left out of a configuration, per ZeRO stage."""
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    found: dict[str, Any] = {}
    for stage in range(4):
        zero = DeepSpeedZeroConfig(stage=stage)
        found[f"zero_optimization(stage={stage})"] = {
            "fields": {name: plain(getattr(zero, name)) for name in ZERO if hasattr(zero, name)},
        }
    offloaded = DeepSpeedZeroConfig(stage=3, offload_optimizer={"device": "cpu"}, offload_param={"device": "cpu"})
    found["offload_optimizer"] = {
        "fields": {name: getattr(offloaded.offload_optimizer, name) for name in ("pin_memory", "pipeline_write")},
    }
    found["offload_param"] = {"fields": {"pin_memory": offloaded.offload_param.pin_memory}}
    leaf = getattr(offloaded, "leaf_module", None)
    found["leaf_module"] = {"fields": {} if leaf is None else {"classes": list(leaf.classes)}}
    precisions = (("", {}), ("bf16", {"bf16": {"enabled": True}}), ("fp16", {"fp16": {"enabled": True}}))
    for name, precision in precisions:
        for stage in (0, 2):
            config = DeepSpeedConfig(
                {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, **precision},
            )
            found[f"config({name or 'fp32'}, stage={stage})"] = {"fields": _deepspeed_fields(config)}
    return found


def _deepspeed_fields(config: Any) -> dict[str, Any]:
    """Read the parts of a DeepSpeedConfig whose names changed between releases."""
    fields = {
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "zero_stage": plain(config.zero_config.stage),
    }
    for name in ("bf16", "fp16"):
        part = getattr(config, {"bf16": "bfloat16_config", "fp16": "float16_config"}[name], None)
        old = {"bf16": "bfloat16_enabled", "fp16": "fp16_enabled"}[name]
        fields[f"{name}.enabled"] = plain(part.enabled if part is not None else getattr(config, old))
        if name == "bf16" and hasattr(part, "bf16_master_weights_and_grads"):
            fields["bf16.bf16_master_weights_and_grads"] = part.bf16_master_weights_and_grads
    if hasattr(config, "torch_autocast_enabled"):
        fields["torch_autocast.enabled"] = config.torch_autocast_enabled
    if hasattr(getattr(config, "compile_config", None), "deepcompile"):
        fields["compile.deepcompile"] = config.compile_config.deepcompile
    fields["data_types.grad_accum_dtype"] = plain(config.grad_accum_dtype)
    return fields


def dump_accelerate() -> dict[str, Any]:
    """Return the defaults of the plugins, with no variable of the launcher set."""
    from accelerate.commands.launch import launch_command_parser
    from accelerate.utils import FullyShardedDataParallelPlugin, GradientAccumulationPlugin

    for name in list(os.environ):
        if name.startswith(("ACCELERATE_", "FSDP_")):
            del os.environ[name]
    names = [
        "fsdp_version",
        "sharding_strategy",
        "reshard_after_forward",
        "cpu_offload",
        "use_orig_params",
        "limit_all_gathers",
        "sync_module_states",
        "cpu_ram_efficient_loading",
        "activation_checkpointing",
        "state_dict_type",
    ]
    found: dict[str, Any] = {}
    for version in (1, 2):
        keywords = (
            {"fsdp_version": version}
            if "fsdp_version" in {f.name for f in dataclasses.fields(FullyShardedDataParallelPlugin)}
            else {}
        )
        if version == 1 or keywords:
            plugin = _fsdp_plugin(FullyShardedDataParallelPlugin, keywords)
            found[f"FullyShardedDataParallelPlugin({version})"] = {
                "fields": {name: _policy(getattr(plugin, name)) for name in names if hasattr(plugin, name)},
            }
    plugin = _fsdp_plugin(FullyShardedDataParallelPlugin, {})
    found["FullyShardedDataParallelPlugin()"] = {"fields": {"fsdp_version": getattr(plugin, "fsdp_version", 1)}}
    found["GradientAccumulationPlugin"] = {
        "fields": {
            "sync_each_batch": GradientAccumulationPlugin(num_steps=2).sync_each_batch,
            "num_steps": GradientAccumulationPlugin().num_steps,
        },
    }
    launched = vars(launch_command_parser().parse_args(["script.py"]))
    kept = ("fsdp_", "zero", "offload_", "mixed_precision")
    found["launch"] = {"fields": {name: plain(value) for name, value in launched.items() if name.startswith(kept)}}
    try:
        from accelerate.utils import DeepSpeedPlugin

        plugin = DeepSpeedPlugin()
        fields = {
            name: plain(getattr(plugin, name))
            for name in [
                "zero_stage",
                "offload_optimizer_device",
                "offload_param_device",
                "gradient_accumulation_steps",
                "zero3_init_flag",
                "zero3_save_16bit_model",
                "gradient_clipping",
            ]
        }
        found["DeepSpeedPlugin"] = {"fields": fields, "deepspeed_config": plain(plugin.deepspeed_config)}
    except Exception as error:  # noqa: BLE001 (needs deepspeed's metadata)
        found["DeepSpeedPlugin"] = {"fields": {}, "not_built": f"{type(error).__name__}: {error}"[:200]}
    return found


def _fsdp_plugin(cls: type, keywords: dict[str, Any]) -> Any:
    """Build the plugin; old releases ask for the device of a GPU while doing so, and get one that does not exist."""
    import torch

    available, current = torch.cuda.is_available, torch.cuda.current_device
    try:
        return cls(**keywords)
    except RuntimeError:
        torch.cuda.is_available, torch.cuda.current_device = (lambda: True), (lambda: 0)
        try:
            return cls(**keywords)
        finally:
            torch.cuda.is_available, torch.cuda.current_device = available, current


def _policy(value: Any) -> Any:
    """Name FSDP's enumerations and policies."""
    name = getattr(value, "name", None)
    if name is not None:
        return name
    if type(value).__name__ == "CPUOffload":
        return value.offload_params
    return value if isinstance(value, (bool, int, str, type(None))) else type(value).__name__


AUTO_KEYS = [
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "bf16.enabled",
    "fp16.enabled",
    "zero_optimization.stage",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.sub_group_size",
    "zero_optimization.overlap_comm",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.offload_param.device",
    "optimizer.params.lr",
    "optimizer.params.betas",
    "optimizer.params.eps",
    "optimizer.params.weight_decay",
    "scheduler.params.warmup_min_lr",
    "scheduler.params.warmup_max_lr",
    "scheduler.params.warmup_num_steps",
    "scheduler.params.total_num_steps",
    "amp.enabled",
    "amp.opt_level",
]


def dump_auto() -> dict[str, Any]:
    """Return what the Trainer makes of ``auto`` in a DeepSpeed configuration: value, or ``auto`` where it is left alone."""
    import copy
    from types import SimpleNamespace

    import transformers
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    configs = {
        "hidden_size": SimpleNamespace(hidden_size=4096),
        "hidden_sizes": SimpleNamespace(hidden_sizes=[1024, 2048]),
        "text_config.hidden_size": SimpleNamespace(text_config=SimpleNamespace(hidden_size=3584)),
        "text_config.hidden_sizes": SimpleNamespace(text_config=SimpleNamespace(hidden_sizes=[512, 768])),
        "none": SimpleNamespace(),
    }
    cases = {
        "stage3": (3, {}, "hidden_size"),
        "stage2": (2, {}, "hidden_size"),
        "stage3-bf16": (3, {"bf16": True}, "hidden_size"),
        "stage3-fp16": (3, {"fp16": True}, "hidden_size"),
        **{f"stage3-{name}": (3, {}, name) for name in list(configs)[1:]},
    }
    found = {}
    for case, (stage, extra, shape) in cases.items():
        document: dict[str, Any] = {}
        for key in AUTO_KEYS:
            node = document
            *parents, last = key.split(".")
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = "auto"
        document["zero_optimization"]["stage"] = stage
        given = copy.deepcopy(document)
        arguments = transformers.TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            report_to=[],
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            warmup_steps=10,
        )
        for name, value in extra.items():
            setattr(arguments, name, value)
        entry: dict[str, Any] = {
            "arguments": {"stage": stage, **extra, "model": plain(vars(configs[shape]))},
            "fields": {},
        }
        try:
            config = HfTrainerDeepSpeedConfig(given)
            config.trainer_config_process(arguments)
            config.trainer_config_finalize(arguments, SimpleNamespace(config=configs[shape]), 1000)
        except Exception as error:  # noqa: BLE001 (refusing is the behaviour that is recorded)
            entry["refused"] = f"{type(error).__name__}: {error}"[:300]
        else:
            entry["fields"] = {key: plain(config.get_value(key)) for key in AUTO_KEYS}
        found[case] = entry
    return found


def main(package: str) -> None:
    """Print the dump of ``package``."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("WANDB_DISABLED", "true")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    dumps = {
        "accelerate": dump_accelerate,
        "deepspeed": dump_deepspeed,
        "transformers": dump_transformers,
        "transformers-auto": dump_auto,
        "trl": dump_trl,
    }
    output, sys.stdout = sys.stdout, sys.stderr
    classes = dumps[package]()
    versions = {}
    for name in ("torch", "transformers", "accelerate", "deepspeed", "trl"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    json.dump({"package": package, "versions": versions, "classes": classes}, output, indent=1, sort_keys=True)
    output.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
