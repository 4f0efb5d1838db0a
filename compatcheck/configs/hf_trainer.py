"""Arguments of the HF Trainer and of TRL's trainers, as JSON or YAML: ``TrainingArguments``, ``SFTConfig``, ``DPOConfig`` ….

A file may mix the trainer's arguments with those of a script (``model_name_or_path``, LoRA keys, data sets), as the files
that ``HfArgumentParser`` and TRL's command line read do.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from compatcheck.configs import deepspeed
from compatcheck.configs.keys import LEAVE, Key, flatten, make_document, only_true, translate
from compatcheck.configs.text import expect_mapping, parse_json, parse_json_or_yaml, read_text
from compatcheck.core.errors import InputError
from compatcheck.core.source import Skipped, Source
from compatcheck.rules.vocabulary import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.core.document import Document

OPTIMIZERS = {
    "adamw_hf": ("adamw", None),
    "adamw_torch": ("adamw", "foreach"),
    "adamw_torch_fused": ("adamw", "fused"),
    "adamw_apex_fused": ("adamw", None),
    "adamw_torch_xla": ("adamw", None),
    "adamw_anyprecision": ("adamw", None),
    "adafactor": ("adafactor", None),
    "sgd": ("sgd", "foreach"),
    "adagrad": ("adagrad", "foreach"),
    "rmsprop": ("rmsprop", "foreach"),
    "adamw_bnb_8bit": ("adamw_8bit", None),
    "adamw_8bit": ("adamw_8bit", None),
    "paged_adamw_8bit": ("paged_adamw_8bit", None),
    "paged_adamw_32bit": ("paged_adamw", None),
    "paged_adamw": ("paged_adamw", None),
    "lion_32bit": ("lion", None),
    "lion_8bit": ("lion", None),
    "paged_lion_32bit": ("lion", None),
    "paged_lion_8bit": ("lion", None),
    "ademamix": ("ademamix", None),
    "ademamix_8bit": ("ademamix", None),
    "galore_adamw": ("galore", None),
    "galore_adamw_8bit": ("galore", None),
    "galore_adafactor": ("galore", None),
    "galore_adamw_layerwise": ("galore", None),
    "lomo": ("lomo", None),
    "adalomo": ("lomo", None),
    "grokadamw": ("grokadamw", None),
    "schedule_free_adamw": ("schedule_free", None),
    "schedule_free_sgd": ("schedule_free", None),
    "schedule_free_radam": ("schedule_free", None),
    "apollo_adamw": ("apollo", None),
    "apollo_adamw_layerwise": ("apollo", None),
    "stable_adamw": ("stable_adamw", None),
    "muon": ("muon", None),
}
"""``optim`` → optimizer and, where torch's own step runs, its kernel family (foreach is torch's default on CUDA)."""


def _optimizer(name: Any) -> Any:  # noqa: ANN401 (configuration)
    if str(name) not in OPTIMIZERS:
        msg = f"known: {', '.join(sorted(OPTIMIZERS))}"
        raise ValueError(msg)
    return OPTIMIZERS[str(name)][0]


def _optimizer_implementation(name: Any) -> Any:  # noqa: ANN401 (configuration)
    return OPTIMIZERS.get(str(name), (None, None))[1] or LEAVE


def _accumulation(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return None if value in (None, "") else value


def _length(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None else value


def _dtype(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value in (None, "auto") else value


def _targets(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None else value


def _quantized(kind: str) -> Callable[[Any], Any]:
    return lambda value: kind if value is True or str(value).lower() == "true" else LEAVE


def _attention(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None else str(value).removeprefix("kernels-community/")


def _boolean(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None else value


_REENTRANT = Key("training.use_reentrant", _boolean)
_FSDP_VERSION = Key("training.fsdp_version")
TABLE: dict[str, Key | tuple[Key, ...]] = {
    "per_device_train_batch_size": Key("training.micro_batch_size"),
    "per_gpu_train_batch_size": Key("training.micro_batch_size"),
    "per_device_eval_batch_size": Key("training.eval_batch_size"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    "gradient_checkpointing": Key("training.gradient_checkpointing", _boolean),
    "gradient_checkpointing_kwargs.use_reentrant": _REENTRANT,
    "activation_checkpointing": Key("training.gradient_checkpointing", _boolean),
    "activation_checkpointing_kwargs.use_reentrant": _REENTRANT,
    "use_reentrant": _REENTRANT,
    "optim": (
        Key("training.optimizer", _optimizer),
        Key("training.optimizer_implementation", _optimizer_implementation),
    ),
    "eval_accumulation_steps": Key("training.eval_accumulation_steps", _accumulation),
    "prediction_loss_only": Key("training.prediction_loss_only", _boolean),
    "torch_empty_cache_steps": Key("training.empty_cache_steps", _accumulation),
    "average_tokens_across_devices": Key("training.average_tokens_across_devices", _boolean),
    "full_determinism": Key("training.full_determinism"),
    "use_liger_kernel": Key("training.use_liger_kernel", _boolean),
    "use_liger": Key("training.use_liger_kernel", _boolean),
    "use_liger_loss": Key("training.use_liger_kernel", only_true),
    "auto_find_batch_size": Key("training.auto_find_batch_size"),
    "torch_compile": Key("training.compile"),
    "packing": Key("training.packing"),
    "padding_free": Key("training.padding_free", _boolean),
    "loss_type": Key("training.loss_type", lambda value: LEAVE if not isinstance(value, str) else value),
    "max_seq_length": Key("training.sequence_length", _length),
    "max_seq_len": Key("training.sequence_length", _length),
    "max_length": Key("training.sequence_length", _length),
    "model_max_length": Key("training.sequence_length", _length),
    "block_size": Key("training.sequence_length", _length),
    "max_prompt_length": Key("training.max_prompt_length", _length),
    "max_completion_length": Key("training.max_response_length", _length),
    "response_length": Key("training.max_response_length", _length),
    "activation_offloading": Key("training.activation_offloading"),
    "precompute_ref_log_probs": Key("training.precompute_ref_log_probs"),
    "beta": Key("training.kl_coefficient"),
    "num_generations": Key("training.num_generations", _length),
    "use_vllm": Key("rollout.engine", lambda value: "vllm" if value is True else LEAVE),
    "vllm_mode": Key("rollout.mode"),
    "vllm_gpu_memory_utilization": Key("rollout.gpu_memory_utilization", _length),
    "vllm_enable_sleep_mode": Key("rollout.sleep_mode"),
    "vllm_tensor_parallel_size": Key("rollout.tensor_parallel"),
    "ds3_gather_for_generation": Key("training.ds3_gather_for_generation"),
    "accelerator_config.gradient_accumulation_kwargs.sync_each_batch": Key("training.sync_each_batch"),
    "ddp_find_unused_parameters": (),
    "fsdp": (),
    "fsdp_config.version": _FSDP_VERSION,
    "fsdp_config.fsdp_version": _FSDP_VERSION,
    "fsdp_config.activation_checkpointing": Key("training.fsdp_activation_checkpointing"),
    "fsdp_config.cpu_ram_efficient_loading": Key("training.fsdp_cpu_ram_efficient_loading"),
    "fsdp_config.fsdp_cpu_ram_efficient_loading": Key("training.fsdp_cpu_ram_efficient_loading"),
    "fsdp_config.use_orig_params": Key("training.fsdp_use_orig_params"),
    "fsdp_config.fsdp_use_orig_params": Key("training.fsdp_use_orig_params"),
    "fsdp_config.offload_params": Key("training.fsdp_offload_params"),
    "fsdp_config.fsdp_offload_params": Key("training.fsdp_offload_params"),
    "fsdp_config.limit_all_gathers": Key("training.fsdp_limit_all_gathers"),
    "fsdp_config.sync_module_states": Key("training.fsdp_sync_module_states"),
    "fsdp_config.state_dict_type": Key("training.fsdp_state_dict_type", lambda value: str(value).lower()),
    "fsdp_config.fsdp_state_dict_type": Key("training.fsdp_state_dict_type", lambda value: str(value).lower()),
    "fsdp_config.reshard_after_forward": Key(
        "training.fsdp_reshard_after_forward",
        lambda value: value if isinstance(value, bool) else LEAVE,
    ),
    "fsdp_config.fsdp_reshard_after_forward": Key(
        "training.fsdp_reshard_after_forward",
        lambda value: value if isinstance(value, bool) else LEAVE,
    ),
    "attn_implementation": Key("model.attn_implementation", _attention),
    "torch_dtype": Key("model.load_dtype", _dtype),
    "dtype": Key("model.load_dtype", _dtype),
    "use_cache": Key("model.use_cache"),
    "trust_remote_code": Key("model.trust_remote_code"),
    "load_in_4bit": Key("model.quantization", _quantized("nf4")),
    "load_in_8bit": Key("model.quantization", _quantized("int8")),
    "use_peft": Key("training.peft", lambda value: "lora" if value is True else None),
    "use_dora": Key("training.peft", lambda value: "dora" if value is True else LEAVE),
    "lora_r": Key("training.lora_rank"),
    "lora_rank": Key("training.lora_rank"),
    "lora_dropout": Key("training.lora_dropout"),
    "lora_target_modules": Key("training.lora_target_modules", _targets),
    "lora_modules_to_save": Key("training.lora_modules_to_save", _targets),
}
"""Key → meaning, over the releases of transformers and TRL that spell it so."""

SCRIPT_KEYS = {
    "model_name_or_path",
    "model_name",
    "model_id",
    "model_revision",
    "tokenizer_name_or_path",
    "tokenizer_name",
    "config_name",
    "cache_dir",
    "use_fast_tokenizer",
    "dataset_name",
    "dataset_config",
    "dataset_config_name",
    "dataset_mixer",
    "dataset_splits",
    "dataset_mixture",
    "dataset_train_split",
    "dataset_test_split",
    "dataset_text_field",
    "dataset_num_proc",
    "dataset_kwargs",
    "dataset_batch_size",
    "dataset_id_or_path",
    "dataset",
    "datasets",
    "data_path",
    "train_file",
    "validation_file",
    "test_file",
    "max_train_samples",
    "max_eval_samples",
    "preprocessing_num_workers",
    "overwrite_cache",
    "chat_template",
    "system_prompt",
    "eos_token",
    "pad_token",
    "reward_funcs",
    "reward_weights",
    "script_args",
    "lora_alpha",
    "lora_task_type",
    "lora_bias",
    "use_rslora",
    "bnb_4bit_quant_type",
    "use_bnb_nested_quant",
    "bnb_4bit_compute_dtype",
    "bnb_4bit_use_double_quant",
    "callbacks",
    "benchmarks",
    "overwrite_hub_revision",
    "push_to_hub_revision",
    "wandb_entity",
    "wandb_project",
    "wandb_run_group",
    "auto_insert_empty_system_msg",
    "preprocessing_only",
    "text_column",
    "prompt_column",
    "response_column",
    "gradient_checkpointing_use_reentrant",
    "num_processes",
}
"""Keys of the scripts around a trainer that have no bearing on memory by themselves."""

_SECTIONS = (
    "accelerator_config.",
    "dataset_mixer.",
    "dataset_mixture.",
    "dataset_kwargs.",
    "generation_config.",
    "generation_kwargs.",
    "gradient_checkpointing_kwargs.",
    "lr_scheduler_kwargs.",
    "liger_kernel_config.",
    "model_init_kwargs.",
    "optim_args.",
    "parallelism_config.",
    "chat_template_kwargs.",
    "code_",
    "dataset_",
    "hub_",
    "push_to_hub",
    "wandb_",
    "reward_",
)
_STRONG = {
    "per_device_train_batch_size",
    "gradient_checkpointing",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "learning_rate",
    "output_dir",
    "optim",
    "lr_scheduler_type",
    "warmup_ratio",
    "logging_steps",
    "save_strategy",
    "max_steps",
    "bf16",
    "fp16",
    "report_to",
}
_ENOUGH = 2
_TRL_MARKS = {
    "sft": {
        "dataset_text_field",
        "packing",
        "padding_free",
        "assistant_only_loss",
        "completion_only_loss",
        "eval_packing",
    },
    "dpo": {"rpo_alpha", "loss_weights", "label_smoothing_dpo", "reference_free", "use_weighting", "f_divergence_type"},
    "grpo": {"num_generations", "max_completion_length", "use_vllm", "vllm_mode", "scale_rewards", "reward_funcs"},
}
"""Keys that only one trainer has."""
_TRL_SHARED = {
    "dataset_mixer",
    "dataset_mixture",
    "dataset_train_split",
    "dataset_test_split",
    "max_prompt_length",
    "precompute_ref_log_probs",
}
"""Keys that several of TRL's trainers and scripts have and the plain Trainer does not."""
_PREFERENCE_LOSSES = {
    "apo_down",
    "apo_zero",
    "aot",
    "aot_pair",
    "bco_pair",
    "discopop",
    "exo_pair",
    "nca_pair",
    "robust",
    "sppo_hard",
}
"""Values of ``loss_type`` that only DPO has."""
_TRAINER_WORDS = {"sft", "dpo", "orpo", "cpo", "kto", "bco", "gkd", "ppo", "rloo", "grpo", "xpo", "prm", "reward"}
"""Words in the path of a recipe that name its trainer."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data holds trainer arguments."""
    return (
        len(_STRONG & data.keys()) >= _ENOUGH
        and not {"zero_optimization", "base_model", "compute_environment", "model_type"} & data.keys()
    )


def read(path: str) -> tuple[Document, ...]:
    """Read a file of trainer arguments; a DeepSpeed configuration inside it becomes a document of its own.

    Raises:
        InputError: not readable, or no trainer arguments.
    """
    text = read_text(path)
    return read_data(expect_mapping(parse_json_or_yaml(text, path), path, "a file of trainer arguments"), path)


def read_data(data: dict[str, Any], path: str) -> tuple[Document, ...]:
    """Translate parsed arguments."""
    source = Source(path)
    trainer, place = detect_trainer(data, path)
    data, skipped = _open_sections(data, source)
    leaves = dict(flatten(data, stop={"deepspeed", "dataset_mixer", "dataset_mixture"}))
    table: dict[str, Key | tuple[Key, ...]] = dict(TABLE)
    precision = _precision(data)
    if precision is not None:
        key, name = precision
        table[key] = Key("training.mixed_precision", lambda _: name)
    for key, value in _fsdp(data.get("fsdp")):
        table["fsdp"] = (*_keys(table["fsdp"]), Key(key, partial(_constant, value)))
    references: list[tuple[str, str, str]] = []
    for key in ("model_name_or_path", "model_name", "model_id"):
        model = data.get(key)
        if isinstance(model, str) and model:
            references.append(("model", model, key))
            break
        if model:
            skipped.append(_not_understood(source, key, "the path or hub id of a model"))
    documents: list[Document] = []
    inner = data.get("deepspeed")
    if isinstance(inner, str) and inner:
        references.append(("deepspeed", inner, "deepspeed"))
    elif isinstance(inner, dict):
        documents.append(deepspeed.read_data(inner, path, "deepspeed."))
    elif inner:
        skipped.append(_not_understood(source, "deepspeed", "the path of a DeepSpeed configuration, or its content"))
    leaves.pop("deepspeed", None)
    if trainer is not None:
        leaves[place] = trainer
        table[place] = Key("training.trainer")
    translation = translate(iter(leaves.items()), table, irrelevant=_irrelevant, source=source)
    reader = "trl" if trainer is not None or _TRL_SHARED & data.keys() else "hf_trainer"
    translation = translation._replace(
        skipped=(*translation.skipped, *skipped),
        unread=tuple(
            (key, near or (nearest(key, list(SCRIPT_KEYS)) if position < _MAX_GUESSES else None))
            for position, (key, near) in enumerate(translation.unread)
        ),
    )
    return (make_document(reader, source, translation, tuple(references)), *documents)


_MAX_GUESSES = 100
_SECTION_KEYS = ("accelerator_config", "deepspeed", "fsdp_config", "gradient_checkpointing_kwargs")
"""Arguments that may hold a mapping as JSON text, or the path of a JSON file (``TrainingArguments._VALID_DICT_FIELDS``)."""


def _open_sections(data: dict[str, Any], source: Source) -> tuple[dict[str, Any], list[Skipped]]:
    """Parse the arguments whose mapping is written as JSON text, as the HF Trainer does."""
    opened = dict(data)
    skipped = []
    for key in _SECTION_KEYS:
        text = data.get(key)
        if not isinstance(text, str) or not text:
            continue
        if text.lstrip().startswith("{"):
            try:
                opened[key] = expect_mapping(parse_json(text, source.path), source.path, key)
            except InputError as error:
                del opened[key]
                hint = "write a mapping, or its JSON in full"
                skipped.append(Skipped(source._replace(key=key), f"{key}: {error.message}", hint))
        elif key == "fsdp_config":
            del opened[key]
            reason = f"names {text!r}, which is not read"
            skipped.append(Skipped(source._replace(key=key), reason, "write its keys under fsdp_config, or --set them"))
    return opened, skipped


def _not_understood(source: Source, key: str, wanted: str) -> Skipped:
    return Skipped(source._replace(key=key), f"value of {key} is not understood", f"expected {wanted}")


def _constant(value: object, _: object) -> object:
    return value


def detect_trainer(data: Mapping[str, Any], path: str = "") -> tuple[str | None, str]:
    """Tell the TRL trainer from keys only it has, else from a word in the path of a file that is TRL's by its other keys.

    Returns:
        The trainer, None when nothing decides (a plain Trainer or an unknown script), and what decided, as a key.
    """
    scores = {name: len(marks & data.keys()) for name, marks in _TRL_MARKS.items()}
    if data.get("loss_type") in _PREFERENCE_LOSSES:
        scores["dpo"] += 1
    best = max(scores, key=lambda name: scores[name])
    if scores[best] and list(scores.values()).count(scores[best]) == 1:
        return best, "(keys of this trainer)"
    if scores[best] or _TRL_SHARED & data.keys():
        words = re.split(r"[^a-z]+", "/".join(path.lower().replace(os.sep, "/").split("/")[-3:]))
        named = _TRAINER_WORDS.intersection(words)
        if len(named) == 1:
            return named.pop(), "(path of this file)"
    return None, ""


def _keys(entry: Key | tuple[Key, ...]) -> tuple[Key, ...]:
    return (entry,) if isinstance(entry, Key) else entry


def _precision(data: Mapping[str, Any]) -> tuple[str, str] | None:
    for key in ("bf16", "fp16"):
        if data.get(key) is True:
            return key, key
    if data.get("bf16") is False and data.get("fp16") in (None, False):
        return "bf16", "no"
    if data.get("fp16") is False and data.get("bf16") is None:
        return "fp16", "no"
    return None


def _fsdp(value: Any) -> list[tuple[str, object]]:  # noqa: ANN401 (configuration)
    """Translate the words of the ``fsdp`` argument (``full_shard auto_wrap offload``)."""
    words = value if isinstance(value, list) else str(value or "").split()
    if value is True:
        return [("training.sharding", "fsdp")]
    strategies = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"}
    facts: list[tuple[str, object]] = [
        ("training.fsdp_sharding_strategy", word) for word in words if word in strategies
    ]
    if words:
        facts.append(("training.sharding", "fsdp"))
    if "offload" in words:
        facts.append(("training.fsdp_offload_params", True))
    return facts


@lru_cache(maxsize=1)
def _argument_names() -> frozenset[str]:
    from compatcheck.configs.argument_names import ARGUMENT_NAMES  # noqa: PLC0415 (long; only for trainer files)

    return frozenset(ARGUMENT_NAMES.split())


_FSDP_PLAIN = frozenset(
    [
        "auto_wrap_policy",
        "backward_prefetch",
        "forward_prefetch",
        "ignored_modules",
        "min_num_params",
        "transformer_layer_cls_to_wrap",
        "xla",
        "xla_fsdp_grad_ckpt",
        "xla_fsdp_settings",
        "xla_fsdp_v2",
    ],
)
"""Keys of ``fsdp_config``, with or without the prefix ``fsdp_``, that have no bearing on memory by themselves."""


def _irrelevant(key: str) -> bool:
    name, _, inner = key.partition(".")
    if name == "fsdp_config" and inner:
        return inner.removeprefix("fsdp_") in _FSDP_PLAIN
    return key in SCRIPT_KEYS or name in SCRIPT_KEYS or name in _argument_names() or key.startswith(_SECTIONS)
