"""DeepSpeed's configuration file (JSON, or Hjson as DeepSpeed itself parses it)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.hjson import parse_hjson
from compatcheck.core.json_file import parse_json
from compatcheck.core.source import Source
from compatcheck.core.textfile import STANDARD_INPUT
from compatcheck.core.yaml import YAML_1_1, parse_yaml
from compatcheck.frameworks.keys import LEAVE, Key, flatten, make_document, none_when_zero, translate
from compatcheck.frameworks.text import expect_mapping, read_text

if TYPE_CHECKING:
    from compatcheck.core.document import Document

_OPTIMIZERS = {
    "adam": "adam",
    "adamw": "adamw",
    "lamb": "lamb",
    "lion": "lion",
    "muon": "muon",
    "adagrad": "adagrad",
    "sgd": "sgd",
    "onebitadam": "onebit_adam",
    "onebitlamb": "onebit_lamb",
    "zerooneadam": "zero_one_adam",
    "muadam": "muadam",
    "muadamw": "muadamw",
    "musgd": "musgd",
}


def _optimizer(name: Any) -> Any:  # noqa: ANN401 (configuration)
    return _OPTIMIZERS.get(str(name).lower(), LEAVE)


def _device(name: Any) -> Any:  # noqa: ANN401 (configuration)
    return none_when_zero(name)


def _dtype(name: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if name is None else name


_ZERO = "zero_optimization."
TABLE: dict[str, Key | tuple[Key, ...]] = {
    "train_micro_batch_size_per_gpu": Key("training.micro_batch_size"),
    "train_batch_size": Key("training.global_batch_size"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    "optimizer.type": Key("training.optimizer", _optimizer),
    "communication_data_type": Key("training.reduce_dtype", _dtype),
    "data_types.grad_accum_dtype": Key("training.grad_accum_dtype", _dtype),
    "torch_autocast.enabled": Key("training.torch_autocast"),
    "bf16.bf16_master_weights_and_grads": Key("training.bf16_master_weights_and_grads"),
    "tensor_parallel.autotp_size": Key("training.tensor_parallel", lambda value: value or LEAVE),
    "compile.deepcompile": Key("training.deepcompile"),
    _ZERO + "stage": Key("training.zero_stage"),
    _ZERO + "contiguous_gradients": Key("training.contiguous_gradients"),
    _ZERO + "reduce_bucket_size": Key("training.reduce_bucket_size"),
    _ZERO + "allgather_bucket_size": Key("training.allgather_bucket_size"),
    _ZERO + "overlap_comm": Key("training.overlap_comm"),
    _ZERO + "offload_optimizer": Key("training.offload_optimizer", lambda value: None if not value else LEAVE),
    _ZERO + "offload_optimizer.device": Key("training.offload_optimizer", _device),
    _ZERO + "offload_optimizer.pin_memory": Key("training.offload_optimizer_pin_memory"),
    _ZERO + "offload_optimizer.pipeline_write": Key("training.offload_optimizer_pipeline_write"),
    _ZERO + "offload_param": Key("training.offload_param", lambda value: None if not value else LEAVE),
    _ZERO + "offload_param.device": Key("training.offload_param", _device),
    _ZERO + "offload_param.pin_memory": Key("training.offload_param_pin_memory"),
    _ZERO + "cpu_offload": Key("training.offload_optimizer", lambda value: "cpu" if value else None),
    _ZERO + "cpu_offload_params": Key("training.offload_param", lambda value: "cpu" if value else None),
    _ZERO + "stage3_prefetch_bucket_size": Key("training.prefetch_bucket_size"),
    _ZERO + "prefetch_bucket_size": Key("training.prefetch_bucket_size"),
    _ZERO + "stage3_param_persistence_threshold": Key("training.param_persistence_threshold"),
    _ZERO + "param_persistence_threshold": Key("training.param_persistence_threshold"),
    _ZERO + "stage3_model_persistence_threshold": Key("training.model_persistence_threshold"),
    _ZERO + "model_persistence_threshold": Key("training.model_persistence_threshold"),
    _ZERO + "stage3_max_live_parameters": Key("training.max_live_parameters"),
    _ZERO + "max_live_parameters": Key("training.max_live_parameters"),
    _ZERO + "stage3_max_reuse_distance": Key("training.max_reuse_distance"),
    _ZERO + "max_reuse_distance": Key("training.max_reuse_distance"),
    _ZERO + "stage3_module_granularity_threshold": Key("training.module_granularity_threshold"),
    _ZERO + "module_granularity_threshold": Key("training.module_granularity_threshold"),
    _ZERO + "stage3_gather_16bit_weights_on_model_save": Key("training.gather_16bit_weights_on_save"),
    _ZERO + "stage3_gather_fp16_weights_on_model_save": Key("training.gather_16bit_weights_on_save"),
    _ZERO + "gather_16bit_weights_on_model_save": Key("training.gather_16bit_weights_on_save"),
    _ZERO + "zero_hpz_partition_size": Key("training.zero_hpz_partition_size"),
    _ZERO + "memory_efficient_linear": Key("training.memory_efficient_linear"),
    _ZERO + "leaf_module.classes": Key("training.moe_leaf_modules"),
}
"""Dotted key → meaning; the names of ``deepspeed/runtime/zero/config.py`` and their ``stage3_`` aliases."""

_SECTION_NAMES = {
    "activation_checkpointing": {
        "partition_activations",
        "contiguous_memory_optimization",
        "cpu_checkpointing",
        "number_checkpoints",
        "synchronize_checkpoint_boundary",
        "profile",
    },
    "bf16": {
        "bf16_master_weights_and_grads",
        "bf16_optimizer_states",
        "check_grad_overflow",
        "enabled",
        "immediate_grad_update",
    },
    "bfloat16": {"enabled", "immediate_grad_update"},
    "fp16": {
        "auto_cast",
        "consecutive_hysteresis",
        "enabled",
        "fp16_master_weights_and_grads",
        "hysteresis",
        "initial_scale_power",
        "loss_scale",
        "loss_scale_window",
        "min_loss_scale",
        "opt_level",
    },
    "optimizer": {"type", "params", "legacy_fusion"},
}
"""Keys of the sections in which a misspelt key would change memory."""
_OFFLOAD_PLAIN = {
    "offload_optimizer": {
        "buffer_count",
        "fast_init",
        "nvme_path",
        "pipeline",
        "pipeline_read",
        "ratio",
        "super_offload",
    }
    | {"cpuadam_cores_perc", "buffer_size", "max_in_cpu"},
    "offload_param": {"buffer_count", "buffer_size", "max_in_cpu", "nvme_path"},
}

_SECTIONS = (
    "aio.",
    "amp.",
    "autotuning.",
    "checkpoint.",
    "comms_logger.",
    "compile.",
    "compression_training.",
    "csv_monitor.",
    "curriculum_learning.",
    "data_efficiency.",
    "data_types.",
    "elasticity.",
    "flops_profiler.",
    "hybrid_engine.",
    "monitor_config.",
    "nebula.",
    "pipeline.",
    "progressive_layer_drop.",
    "quantize_training.",
    "scheduler.",
    "sparse_attention.",
    "tensor_parallel.",
    "tensorboard.",
    "torch_autocast.",
    "timers.",
    "wandb.",
    "weight_quantization.",
    "zenflow.",
    "comet.",
)
_PLAIN = {
    "bf16",
    "fp16",
    "amp",
    "checkpoint_tag_validation",
    "dataloader_drop_last",
    "disable_allgather",
    "dump_state",
    "eigenvalue",
    "fp32_allreduce",
    "gradient_clipping",
    "gradient_predivide_factor",
    "graph_harvesting",
    "load_universal_checkpoint",
    "memory_breakdown",
    "optimizer",
    "prescale_gradients",
    "scheduler",
    "seq_parallel_communication_data_type",
    "seed",
    "sparse_gradients",
    "steps_per_print",
    "use_data_before_expert_parallelism",
    "use_data_before_expert_parallel",
    "use_node_local_storage",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "zero_optimization",
}
_ZERO_PLAIN = {
    "allgather_partitions",
    "allow_untested_optimizer",
    "elastic_checkpoint",
    "enable_sanity_checks",
    "ignore_unused_parameters",
    "legacy_stage1",
    "load_from_fp32_weights",
    "log_trace_cache_warnings",
    "mics_hierarchical_params_gather",
    "mics_shard_size",
    "override_module_apply",
    "pipeline_loading_checkpoint",
    "reduce_scatter",
    "round_robin_gradients",
    "stage3_use_all_reduce_for_fetch_params",
    "sub_group_size",
    "use_all_reduce_for_fetch_params",
    "use_multi_rank_bucket_allreduce",
    "zero_quantized_gradients",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_weights",
    "zeropp_loco_param",
    "leaf_module",
    "zenflow",
}


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a DeepSpeed configuration."""
    marks = {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "zero_allow_untested_optimizer"}
    return bool(marks & data.keys()) and "model_type" not in data


def read(path: str, files: Files = LOCAL) -> Document:
    """Read a DeepSpeed configuration file.

    Raises:
        InputError: not readable, not JSON or Hjson, or not a DeepSpeed configuration.
    """
    text = read_text(path, files)
    if not text.strip():
        raise InputError("is empty", source=Source(path), hint="was it truncated, or is another file meant?")
    if path.endswith((".yaml", ".yml")) or (path == STANDARD_INPUT and not text.lstrip().startswith("{")):
        return read_data(expect_mapping(parse_yaml(text, path, YAML_1_1), path, "a DeepSpeed configuration"), path)
    try:
        data = parse_json(text, path)
    except InputError as strict:
        try:
            data = parse_hjson(text, path)
        except InputError as lenient:
            raise _further(strict, lenient) from None
    return read_data(expect_mapping(data, path, "a DeepSpeed configuration"), path)


def _further(strict: InputError, lenient: InputError) -> InputError:
    """Choose the error of the parser that got further: it is about what is wrong, not about a comment."""
    lines = [error.source.line or 0 if error.source is not None else 0 for error in (strict, lenient)]
    return lenient if lines[1] > lines[0] else strict


def read_data(data: dict[str, Any], path: str, prefix: str = "") -> Document:
    """Translate a parsed configuration; ``prefix`` is its place inside another file."""
    source = Source(path)
    table = {prefix + key: meaning for key, meaning in TABLE.items()}
    precision = _precision(data)
    if precision is not None:
        key, name = precision
        table[prefix + key] = Key("training.mixed_precision", lambda _: name)
    if isinstance(data.get("zero_optimization"), bool):  # the oldest form; DeepSpeed reads it as stage 1 or 0
        table[prefix + "zero_optimization"] = Key("training.zero_stage", int)
    leaves = flatten(data, prefix, stop={prefix + "zero_optimization.leaf_module.classes"})
    translation = translate(
        leaves,
        table,
        irrelevant=lambda key: _irrelevant(key.removeprefix(prefix)),
        source=source,
        auto=True,
    )
    return make_document("deepspeed", source, translation)


def _precision(data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key that decides between fp16 and bf16, and the precision it stands for when it is not ``auto``."""
    answers: dict[str, tuple[str, object]] = {}
    for key, name in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        section = data.get(key)
        if isinstance(section, Mapping) and "enabled" in section:
            answers[key] = (name, section["enabled"])
    for wanted in (True, "auto"):
        for key, (name, enabled) in answers.items():
            if enabled == wanted:
                return f"{key}.enabled", name
    return (f"{next(iter(answers))}.enabled", "no") if answers else None


def _irrelevant(key: str) -> bool:
    if key.startswith(_ZERO):
        section, _, name = key.removeprefix(_ZERO).partition(".")
        return section in _ZERO_PLAIN or name in _OFFLOAD_PLAIN.get(section, ())
    section, _, name = key.partition(".")
    if section in _SECTION_NAMES:
        return not name or name.split(".")[0] in _SECTION_NAMES[section]
    return section.startswith("_") or key in _PLAIN or key.startswith(_SECTIONS)
