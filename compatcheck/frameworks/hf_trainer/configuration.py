"""Arguments of the HF Trainer and of TRL's trainers, as JSON or YAML: ``TrainingArguments``, ``SFTConfig``, ``DPOConfig`` ….

A file may mix the trainer's arguments with those of a script (``model_name_or_path``, LoRA keys, data sets), as the files
that ``HfArgumentParser`` and TRL's command line read do.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Source
from compatcheck.frameworks.hf_trainer.arguments import (
    TRAINER_TABLE,
    TRL_TABLE,
    Table,
    is_plain_trainer_argument,
    open_arguments,
    translate_arguments,
    trl_argument_names,
)
from compatcheck.frameworks.keys import Key
from compatcheck.frameworks.text import expect_mapping, parse_json_or_yaml, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.document import Document

TABLE: Table = {**TRAINER_TABLE, **TRL_TABLE}
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
    "dataset_mixer.",
    "dataset_mixture.",
    "dataset_kwargs.",
    "generation_kwargs.",
    "model_init_kwargs.",
    "chat_template_kwargs.",
    "code_",
    "dataset_",
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
    "beta",
    "dataset_mixer",
    "dataset_mixture",
    "dataset_train_split",
    "dataset_test_split",
    "loss_type",
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


def read(path: str, files: Files = LOCAL) -> tuple[Document, ...]:
    """Read a file of trainer arguments; a DeepSpeed configuration inside it becomes a document of its own.

    Raises:
        InputError: not readable, or no trainer arguments.
    """
    text = read_text(path, files)
    return read_data(expect_mapping(parse_json_or_yaml(text, path), path, "a file of trainer arguments"), path)


def read_data(data: dict[str, Any], path: str) -> tuple[Document, ...]:
    """Translate parsed arguments."""
    source = Source(path)
    trainer, place = detect_trainer(data, path)
    models = ("model_name_or_path", "model_name", "model_id")
    arguments = open_arguments(data, source, TABLE, models=models, whole=("dataset_mixer", "dataset_mixture"))
    if trainer is not None:
        arguments.leaves[place] = trainer
        arguments.table[place] = Key("training.trainer")
    reader = "trl" if trainer is not None or _TRL_SHARED & data.keys() else "hf_trainer"
    return translate_arguments(reader, source, arguments, irrelevant=_irrelevant, names=SCRIPT_KEYS)


def detect_trainer(data: Mapping[str, Any], path: str = "") -> tuple[str | None, str]:
    """Tell the TRL trainer from keys only it has, else from a word in the path of a file that is TRL's by its other keys.

    Returns:
        The trainer, None when nothing decides (a plain Trainer or an unknown script), and what decided, as a key.
    """
    scores = {name: len(marks & data.keys()) for name, marks in _TRL_MARKS.items()}
    losses = data.get("loss_type")
    if _PREFERENCE_LOSSES.intersection(map(str, losses if isinstance(losses, list) else [losses])):
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


def _irrelevant(key: str) -> bool:
    name = key.partition(".")[0]
    plain = name in SCRIPT_KEYS or key in SCRIPT_KEYS or name in trl_argument_names() or key.startswith(_SECTIONS)
    return is_plain_trainer_argument(key) or (plain and name != "fsdp_config")
