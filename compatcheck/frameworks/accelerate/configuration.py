"""Accelerate's configuration file (YAML or JSON), as ``accelerate config`` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Source
from compatcheck.frameworks.keys import LEAVE, Key, flatten, lower_case, make_document, none_when_zero, translate
from compatcheck.frameworks.text import expect_mapping, parse_json_or_yaml, read_text

if TYPE_CHECKING:
    from compatcheck.core.document import Document

_STRATEGIES = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard", "5": "hybrid_shard_zero2"}


def _strategy(value: Any) -> Any:  # noqa: ANN401 (configuration)
    text = str(value)
    return _STRATEGIES.get(text, text.lower())


def _reshard(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """FSDP1 files hold a strategy's name here, FSDP2 files a boolean."""
    if isinstance(value, bool) or str(value).lower() in {"true", "false"}:
        return value
    return LEAVE


_DEEPSPEED = "deepspeed_config."
_FSDP = "fsdp_config."
TABLE: dict[str, Key | tuple[Key, ...]] = {
    "mixed_precision": Key("training.mixed_precision", lambda value: "no" if value in (None, False) else value),
    "num_processes": Key("hardware.world_size"),
    "num_machines": Key("hardware.nodes"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    _DEEPSPEED + "zero_stage": Key("training.zero_stage"),
    _DEEPSPEED + "offload_optimizer_device": Key("training.offload_optimizer", none_when_zero),
    _DEEPSPEED + "offload_param_device": Key("training.offload_param", none_when_zero),
    _DEEPSPEED + "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    _DEEPSPEED + "zero3_init_flag": Key("training.zero_init"),
    _DEEPSPEED + "zero3_save_16bit_model": Key("training.gather_16bit_weights_on_save"),
    _DEEPSPEED + "deepspeed_moe_layer_cls_names": Key("training.moe_leaf_modules"),
    _FSDP + "fsdp_version": Key("training.fsdp_version"),
    _FSDP + "fsdp_sharding_strategy": Key("training.fsdp_sharding_strategy", _strategy),
    _FSDP + "fsdp_reshard_after_forward": Key("training.fsdp_reshard_after_forward", _reshard),
    _FSDP + "fsdp_cpu_ram_efficient_loading": Key("training.fsdp_cpu_ram_efficient_loading"),
    _FSDP + "fsdp_use_orig_params": Key("training.fsdp_use_orig_params"),
    _FSDP + "fsdp_sync_module_states": Key("training.fsdp_sync_module_states"),
    _FSDP + "fsdp_state_dict_type": Key("training.fsdp_state_dict_type", lower_case),
    _FSDP + "fsdp_offload_params": Key("training.fsdp_offload_params"),
    _FSDP + "fsdp_activation_checkpointing": Key("training.fsdp_activation_checkpointing"),
    _FSDP + "fsdp_limit_all_gathers": Key("training.fsdp_limit_all_gathers"),
    "megatron_lm_config.megatron_lm_tp_degree": Key("training.tensor_parallel"),
    "megatron_lm_config.megatron_lm_pp_degree": Key("training.pipeline_parallel"),
    "megatron_lm_config.megatron_lm_context_parallel_size": Key("training.context_parallel"),
    "megatron_lm_config.megatron_lm_expert_model_parallel_size": Key("training.expert_parallel"),
    "parallelism_config.parallelism_config_tp_size": Key("training.tensor_parallel"),
    "parallelism_config.parallelism_config_cp_size": Key("training.context_parallel"),
}
"""Dotted key → meaning; the names ``accelerate config`` writes."""

_PLAIN = {
    "command_file",
    "commands",
    "compute_environment",
    "debug",
    "distributed_type",
    "downcast_bf16",
    "dynamo_backend",
    "enable_cpu_affinity",
    "gpu_ids",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "main_training_function",
    "rdzv_backend",
    "same_network",
    "tpu_env",
    "tpu_name",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "tpu_zone",
    "use_cpu",
    "num_cpu_threads_per_process",
}
_SECTION_NAMES = {
    "deepspeed_config": (
        "deepspeed_config_file deepspeed_exclusion_filter deepspeed_hostfile deepspeed_inclusion_filter "
        "deepspeed_multinode_launcher gradient_clipping offload_optimizer_nvme_path offload_param_nvme_path "
        "fp16_enabled"
    ),
    "fsdp_config": (
        "fsdp_auto_wrap_policy fsdp_backward_prefetch fsdp_backward_prefetch_policy fsdp_forward_prefetch "
        "fsdp_ignored_modules fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap"
    ),
}
"""Keys of the sections that decide about memory, which have no bearing on it; any other key there is worth a word."""

_SECTIONS = (
    "dynamo_config",
    "fp8_config",
    "ipex_config",
    "megatron_lm_config",
    "mpirun_config",
    "parallelism_config",
    "tp_config",
    "tpu_env",
    "commands",
)


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is an accelerate configuration."""
    return "compute_environment" in data or ("distributed_type" in data and "mixed_precision" in data)


def read(path: str, files: Files = LOCAL) -> Document:
    """Read an accelerate configuration file.

    Raises:
        InputError: not readable, or not an accelerate configuration.
    """
    return read_data(
        expect_mapping(parse_json_or_yaml(read_text(path, files), path), path, "an accelerate configuration"), path
    )


def read_data(data: Mapping[str, Any], path: str) -> Document:
    """Translate a parsed configuration."""
    source = Source(path)
    table = dict(TABLE)
    kind = str(data.get("distributed_type", "")).upper()
    sharding = {"DEEPSPEED": None, "FSDP": "fsdp", "MULTI_GPU": "ddp", "NO": "none", "MEGATRON_LM": "megatron"}.get(
        kind,
    )
    if sharding is not None:
        table["distributed_type"] = Key("training.sharding", lambda _: sharding)
    fsdp = data.get("fsdp_config")
    if kind == "FSDP" and not (isinstance(fsdp, Mapping) and "fsdp_version" in fsdp):
        table["distributed_type"] = (
            Key("training.sharding", lambda _: "fsdp"),
            Key("training.fsdp_version", lambda _: 1),
        )
    parallelism = data.get("parallelism_config") or {}
    size = "parallelism_config_sp_size"
    if isinstance(parallelism, Mapping) and parallelism.get(size) not in (None, 1, "1"):
        del table["parallelism_config.parallelism_config_cp_size"]
        table[f"parallelism_config.{size}"] = Key("training.context_parallel")
    references: tuple[tuple[str, str, str], ...] = ()
    section = data.get("deepspeed_config")
    inner = section.get("deepspeed_config_file") if isinstance(section, Mapping) else None
    if isinstance(inner, str):
        references = (("deepspeed", inner, "deepspeed_config.deepspeed_config_file"),)
    stop = {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", "commands"}
    translation = translate(flatten(data, stop=stop), table, irrelevant=_irrelevant, source=source, auto=True)
    return make_document("accelerate", source, translation, references)


def _irrelevant(key: str) -> bool:
    section, _, name = key.partition(".")
    if section in _SECTION_NAMES:
        return not name or name in _SECTION_NAMES[section].split()
    return section in _PLAIN or section in _SECTIONS
