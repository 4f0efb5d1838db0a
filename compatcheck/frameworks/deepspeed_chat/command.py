"""DeepSpeed-Chat's scripts: supervised, preference and reward training (steps 1 and 2), PPO (step 3).

Options and their defaults as in ``applications/DeepSpeed-Chat/training/step*/main.py``; they build their DeepSpeed configuration
themselves (``dschat/utils/ds_utils.py``). There are no releases, so that a default is a statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.frameworks.keys import LEAVE, Key
from compatcheck.frameworks.launch.arguments import Beyond, Program, Table, make_command_document, name_roles
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.launchers import Launch
    from compatcheck.frameworks.launch.values import Argument

READER = "deepspeed_chat"
_SWITCHES = {
    "gradient_checkpointing", "offload", "only_optimize_lora", "compute_fp32_loss", "enable_tensorboard", "add_eot_token",
    "print_loss", "enable_hybrid_engine", "unpin_actor_parameters", "release_inference_cache", "offload_reference_model",
    "offload_reward_model", "actor_gradient_checkpointing", "critic_gradient_checkpointing", "enable_ema", "align_overflow",
    "enable_mixed_precision_lora", "print_answers", "enable_test_mode",
}  # fmt: skip


def _cpu(value: Any) -> Any:  # noqa: ANN401 (an option's value)
    return "cpu" if value is True else LEAVE


def _adapter(rank: Any) -> Any:  # noqa: ANN401 (an option's value)
    return "lora" if isinstance(rank, int) and rank > 0 else None


TABLE: Table = {
    "per_device_train_batch_size": Key("training.micro_batch_size"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    "max_seq_len": Key("training.sequence_length"),
    "gradient_checkpointing": Key("training.gradient_checkpointing"),
    "zero_stage": Key("training.zero_stage"),
    "offload": (Key("training.offload_optimizer", _cpu), Key("training.offload_param", _cpu)),
    "dtype": Key("training.mixed_precision"),
    "lora_dim": (Key("training.lora_rank"), Key("training.peft", _adapter)),
    "beta": Key("training.kl_coefficient"),
}
"""Options of steps 1 and 2."""

RL_TABLE: Table = {
    "per_device_training_batch_size": tuple(
        Key("training.micro_batch_size", None, role) for role in ("actor", "critic")
    ),
    "per_device_generation_batch_size": Key("rollout.max_num_seqs"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    "max_prompt_seq_len": Key("training.max_prompt_length"),
    "max_answer_seq_len": Key("training.max_response_length"),
    "dtype": Key("training.mixed_precision"),
    "inference_tp_size": Key("rollout.tensor_parallel"),
    "offload": tuple(
        Key(fact, _cpu, role)
        for role in ("actor", "critic")
        for fact in ("training.offload_optimizer", "training.offload_param")
    ),
    "offload_reference_model": Key("training.offload_param", _cpu, "reference"),
    "offload_reward_model": Key("training.offload_param", _cpu, "reward"),
    **{
        f"{role}_{name}": tuple(key._replace(role=role) for key in keys)
        for role in ("actor", "critic")
        for name, keys in {
            "zero_stage": (Key("training.zero_stage"),),
            "gradient_checkpointing": (Key("training.gradient_checkpointing"),),
            "lora_dim": (Key("training.lora_rank"), Key("training.peft", _adapter)),
        }.items()
    },
}
"""Options of step 3."""

_PLAIN = {
    "data_path", "data_split", "sft_only_data_path", "data_output_path", "per_device_eval_batch_size", "learning_rate",
    "weight_decay", "num_train_epochs", "lr_scheduler_type", "num_warmup_steps", "output_dir", "seed", "local_rank", "dropout",
    "lora_module_name", "lora_learning_rate", "tensorboard_path", "eot_token", "num_padding_at_beginning", "eval_interval",
    "eval_iters", "label_smoothing", "unsupervised_dataset_name", "unsupervised_dataset_config_name", "unsup_coef",
    "generation_batches", "ppo_epochs", "actor_learning_rate", "critic_learning_rate", "actor_weight_decay", "deepspeed",
    "critic_weight_decay", "preprocessing_num_workers", "tp_gather_partition_size", "actor_dropout", "critic_dropout",
    "actor_lora_module_name", "critic_lora_module_name", "actor_lora_learning_rate", "critic_lora_learning_rate",
    "print_answers_interval", "test_stop_step",
} | _SWITCHES  # fmt: skip

_STEPS = {
    "learning_rate": {"zero_stage": 0, "per_device_train_batch_size": 16, "max_seq_len": 512, "gradient_accumulation_steps": 1},
    "actor": {
        "actor_zero_stage": 0, "critic_zero_stage": 0, "per_device_training_batch_size": 16, "max_prompt_seq_len": 256,
        "max_answer_seq_len": 256, "gradient_accumulation_steps": 1,
    },
}  # fmt: skip
"""Defaults of the options that decide about memory, of steps 1 and 2 and of step 3."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch is ``rl`` (step 3) or ``single`` (steps 1 and 2)."""
    if not launch.program.endswith(".py"):
        return None
    options = parse_flags(launch.arguments, switches=_SWITCHES).options
    if {"actor_model_name_or_path", "critic_model_name_or_path"} <= options.keys() and "actor_zero_stage" in options:
        return "rl"
    marks = {
        "data_split",
        "data_path",
        "num_padding_at_beginning",
        "sft_only_data_path",
        "lora_module_name",
        "max_seq_len",
    }
    return "single" if {"zero_stage", "model_name_or_path"} <= options.keys() and marks & options.keys() else None


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch."""
    flags = parse_flags(launch.arguments, switches=_SWITCHES)
    is_rl = kind == "rl"
    table = RL_TABLE if is_rl else TABLE
    models = (
        {"actor_model_name_or_path": "model", "critic_model_name_or_path": "model:critic"}
        if is_rl
        else {"model_name_or_path": "model"}
    )
    known = tuple(_defaults(flags.options, table, is_rl=is_rl))
    program = Program(READER, table, _PLAIN.__contains__, models)
    beyond = Beyond(known, (), (), flags.unknown)
    return (make_command_document(program, launch.command.source, flags.options, beyond),)


def _defaults(options: Mapping[str, Argument], table: Table, *, is_rl: bool) -> Iterator[Statement]:
    yield Statement("training.framework", "(program)", "deepspeed")
    left_out = _STEPS["actor" if is_rl else "learning_rate"]
    for name, value in {**left_out, "dtype": "fp16"}.items():
        if name not in options:
            entry = table[name]
            for key in (entry,) if isinstance(entry, Key) else entry:
                yield Statement(key.fact, f"{name} (left out)", value, key.role)
    for name in ("gradient_checkpointing", "actor_gradient_checkpointing", "critic_gradient_checkpointing"):
        if name in table and name not in options:
            role = name.partition("_")[0] if is_rl else None
            yield Statement("training.gradient_checkpointing", f"{name} (left out)", False, role)
    roles: tuple[str | None, ...] = ("actor", "critic") if is_rl else (None,)
    for role in roles:
        prefix = f"{role}_" if role else ""
        if "offload" not in options:
            yield Statement("training.offload_optimizer", "offload (left out)", None, role)
            yield Statement("training.offload_param", "offload (left out)", None, role)
        if f"{prefix}lora_dim" not in options:
            yield Statement("training.peft", f"{prefix}lora_dim (left out)", None, role)
    if not is_rl:
        return
    yield from name_roles(("actor", "critic", "reference", "reward"))
    yield Statement("training.trainer", "(program)", "ppo")
    yield Statement("rollout.engine", "(program)", "hf")
    for role in ("reference", "reward"):
        yield Statement("training.gradient_checkpointing", "(only run forward)", False, role)
        yield Statement("training.offload_optimizer", "(only run forward)", None, role)
        yield Statement("model.trainable_parameters", "(only run forward)", 0, role)
