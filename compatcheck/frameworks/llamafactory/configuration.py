"""LLaMA-Factory's training files (YAML or JSON): its own arguments beside the HF Trainer's.

``llamafactory-cli train`` reads one flat mapping into its dataclasses and the Trainer's ``Seq2SeqTrainingArguments``. What it
leaves alone keeps the Trainer's meaning and default; what it changes is here. Read at the tags v0.7.0 to v0.9.5.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.hf_trainer.arguments import (
    TRAINER_TABLE,
    Arguments,
    Table,
    is_plain_trainer_argument,
    open_arguments,
    read_precision,
    trainer_argument_names,
    translate_arguments,
)
from compatcheck.frameworks.keys import LEAVE, Key, only_true, stated
from compatcheck.frameworks.text import expect_mapping, parse_json_or_yaml, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.core.document import Document

_STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "ppo": "ppo", "dpo": "dpo", "kto": "kto"}
_TUNERS = {"full": None, "lora": "lora", "freeze": "freeze", "oft": "oft"}
_ATTENTION = {
    "disabled": "eager",
    "off": "eager",
    "sdpa": "sdpa",
    "fa2": "flash_attention_2",
    "fa3": "flash_attention_3",
    "true": "flash_attention_2",
    "false": "eager",
}
"""``flash_attn`` → kernel family. ``off`` is the word of 0.7 (a boolean once YAML 1.1 has read it), booleans those before."""


def _one_of(words: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a conversion by table that names the words it knows."""

    def convert(value: Any) -> Any:  # noqa: ANN401 (configuration)
        if str(value).lower() not in words:
            msg = f"known: {', '.join(words)}"
            raise ValueError(msg)
        return words[str(value).lower()]

    return convert


def _attention(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value in (None, "auto") else _one_of(_ATTENTION)(value)


def _targets(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None else "all-linear" if value == "all" else value


def _inverted(value: Any) -> Any:  # noqa: ANN401 (configuration)
    if not isinstance(value, bool):
        msg = "expected true or false"
        raise ValueError(msg)  # noqa: TRY004 (the value of a configuration, not an argument)
    return not value


def _when_true(value: Any) -> Callable[[Any], Any]:  # noqa: ANN401 (vocabulary value)
    return lambda switch: value if only_true(switch) is True else LEAVE


TABLE: Table = {
    **TRAINER_TABLE,
    "stage": Key("training.trainer", _one_of(_STAGES)),
    "finetuning_type": Key("training.peft", _one_of(_TUNERS)),
    "disable_gradient_checkpointing": Key("training.gradient_checkpointing", _inverted),
    "use_reentrant_gc": Key("training.use_reentrant"),
    "use_unsloth_gc": Key("training.activation_offloading"),
    "flash_attn": Key("model.attn_implementation", _attention),
    "cutoff_len": Key("training.sequence_length"),
    "packing": Key("training.packing", stated),
    "neat_packing": Key("training.packing", only_true),
    "lora_rank": Key("training.lora_rank"),
    "lora_dropout": Key("training.lora_dropout"),
    "lora_target": Key("training.lora_target_modules", _targets),
    "additional_target": Key("training.lora_modules_to_save", stated),
    "enable_liger_kernel": Key("training.use_liger_kernel"),
    "pure_bf16": (
        Key("training.param_dtype", _when_true("bfloat16")),
        Key("training.compute_dtype", _when_true("bfloat16")),
        Key("training.master_dtype", _when_true(None)),
    ),
    "fp8": Key("training.mixed_precision", _when_true("fp8")),
    "use_galore": Key("training.optimizer", _when_true("galore")),
    "use_apollo": Key("training.optimizer", _when_true("apollo")),
    "use_muon": Key("training.optimizer", _when_true("muon")),
    "pref_beta": Key("training.kl_coefficient"),
    "dpo_beta": Key("training.kl_coefficient"),
    "pref_loss": Key("training.loss_type"),
    "dpo_loss": Key("training.loss_type"),
    "ref_model": Key("training.reference_model", lambda name: True if name else LEAVE),
    "use_asft_loss": Key("training.reference_model", only_true),
    "compute_accuracy": Key("training.compute_metrics"),
    "trust_remote_code": Key("model.trust_remote_code"),
    "ray_num_workers": Key("hardware.world_size", lambda count: LEAVE if count in (None, 1) else count),
    "tensor_model_parallel_size": Key("training.tensor_parallel"),
    "pipeline_model_parallel_size": Key("training.pipeline_parallel"),
    "context_parallel_size": Key("training.context_parallel"),
    "expert_model_parallel_size": Key("training.expert_parallel"),
}
"""Key → meaning, over the releases that spell it so."""

_MARKS = {"cutoff_len", "finetuning_type", "lora_target", "plot_loss", "stage", "template"}
"""Keys that only this program's files hold."""
_TRAINS = {"output_dir", "per_device_train_batch_size", "learning_rate", "num_train_epochs", "deepspeed"}
_ENOUGH = 2
_MEGATRON = {
    "expert_model_parallel_size",
    "overlap_grad_reduce",
    "pipeline_model_parallel_size",
    "recompute_granularity",
    "tensor_model_parallel_size",
    "use_distributed_optimizer",
    "use_mca",
    "use_megatron_bridge",
}
"""Keys of the trainers on Megatron (``USE_MCA=1``, ``use_megatron_bridge``), which have their own optimizer and recomputation."""
_OWN_OPTIMIZERS = ("use_adam_mini", "use_apollo", "use_badam", "use_galore", "use_muon")
_NOT_MODELLED = {
    "use_hyper_parallel": "HyperParallel shards the model itself",
    "use_kt": "KTransformers keeps experts in host memory",
    "use_unsloth": "Unsloth replaces attention, loss and checkpointing",
}
"""Switches that put another program's code in place of what rules describe."""


def is_marked(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is for LLaMA-Factory, whichever command reads it."""
    return "model_name_or_path" in data and len(_MARKS & data.keys()) >= _ENOUGH


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a training file of LLaMA-Factory; files that only chat, merge or evaluate are not."""
    if not is_marked(data) or "export_dir" in data:
        return False
    if data.get("do_train") in (None, False) and data.get("do_predict", data.get("do_eval")) is True:
        return False
    return data.get("do_train") is True or bool(_TRAINS & data.keys())


def read(path: str, files: Files = LOCAL) -> tuple[Document, ...]:
    """Read a training file; a DeepSpeed configuration inside it becomes a document of its own.

    Raises:
        InputError: not readable, or no training file.
    """
    return read_data(
        expect_mapping(parse_json_or_yaml(read_text(path, files), path), path, "a LLaMA-Factory file"), path
    )


def read_data(data: dict[str, Any], path: str) -> tuple[Document, ...]:
    """Translate parsed arguments."""
    source = Source(path)
    arguments = open_arguments(data, source, TABLE, models=("model_name_or_path",), whole=("rope_scaling",))
    _checkpointing(data, arguments)
    _adapters(data, arguments.table)
    _losses(data, arguments)
    if data.get("fp8") is True and (precision := read_precision(data)) is not None:
        arguments.table[precision[0]] = _SILENT
    if _MEGATRON & data.keys():
        arguments.known.extend(_on_megatron(data))
    if any(data.get(key) is True for key in _OWN_OPTIMIZERS):
        arguments.table["optim"] = _SILENT
        arguments.known.append(Statement(None, "optim", "replaced"))
    arguments.skipped.extend(
        Skipped(source._replace(key=key), f"{reason}, which no rule describes", "check the run without it")
        for key, reason in _NOT_MODELLED.items()
        if data.get(key) is True
    )
    names = argument_names() | trainer_argument_names()
    return translate_arguments("llamafactory", source, arguments, irrelevant=_irrelevant, names=sorted(names))


_SILENT = Key("training.trainer", lambda _: LEAVE)
"""A key that states nothing here."""


def _checkpointing(data: Mapping[str, Any], arguments: Arguments) -> None:
    """Settle what the Trainer's switch for checkpointing does beside LLaMA-Factory's own.

    LLaMA-Factory turns checkpointing on while it loads the model, whatever the Trainer's switch says. When that switch is on
    the Trainer calls the same patched function once more with its own ``gradient_checkpointing_kwargs``, and an absent mapping
    means reentrant there, so ``use_reentrant_gc: false`` is undone (``model/model_utils/checkpointing.py`` of 0.8.3 to 0.9.5,
    ``trainer.py`` of transformers 4.48.0 to 5.3.0).
    """
    table = arguments.table
    again = data.get("gradient_checkpointing") is True
    disabled = data.get("disable_gradient_checkpointing") is True
    inner = "gradient_checkpointing_kwargs.use_reentrant"
    table["gradient_checkpointing"] = Key("training.gradient_checkpointing", only_true)
    if not again:
        table[inner] = _SILENT
        return
    table["disable_gradient_checkpointing"] = table["use_reentrant_gc"] = _SILENT
    if disabled:
        arguments.known.append(Statement(None, "use_reentrant_gc", "left to the Trainer"))
    elif inner not in arguments.leaves:
        arguments.known.append(Statement("training.use_reentrant", "gradient_checkpointing", True))


def _adapters(data: Mapping[str, Any], table: Table) -> None:
    """Settle what several keys say together: the adapter and the quantisation of the base model."""
    if data.get("use_dora") is True:
        table["finetuning_type"] = _SILENT
        table["use_dora"] = Key("training.peft", _when_true("dora"))
    method = str(data.get("quantization_method", "bnb"))
    four = str(data.get("quantization_type", "nf4"))
    kinds = {
        "bnb": {4: four, 8: "int8"},
        "bitsandbytes": {4: four, 8: "int8"},
        "eetq": {8: "eetq"},
        "hqq": dict.fromkeys((8, 6, 5, 4, 3, 2, 1), "hqq"),
    }.get(method, {})

    def convert(bits: Any) -> Any:  # noqa: ANN401 (configuration)
        if bits is None:
            return LEAVE
        if bits not in kinds:
            wanted = " or ".join(map(str, kinds)) or "quantization_method bnb, hqq or eetq"
            msg = f"expected {wanted}"
            raise ValueError(msg)
        return kinds[bits]

    table["quantization_bit"] = Key("model.quantization", convert)


def _losses(data: Mapping[str, Any], arguments: Arguments) -> None:
    """Say that Liger's fused loss is left out in every stage but pre-training and SFT (``apply_liger_kernel``)."""
    if data.get("enable_liger_kernel") is True and data.get("stage", "sft") not in {"pt", "sft"}:
        arguments.known.append(Statement("training.loss_implementation", "stage", "cross_entropy"))


def _on_megatron(data: Mapping[str, Any]) -> list[Statement]:
    """Say what follows from a trainer on Megatron: its own sharding, recomputation and optimizer."""
    key = min(_MEGATRON & data.keys())
    return [
        Statement("training.sharding", key, "megatron"),
        Statement("training.gradient_checkpointing", key, data.get("recompute_granularity") is not None),
        Statement(None, "optim", "Megatron's own"),
    ]


@lru_cache(maxsize=1)
def argument_names() -> frozenset[str]:
    """Return the names of LLaMA-Factory's own arguments."""
    from compatcheck.frameworks.hf_trainer.names import LLAMA_FACTORY_ARGUMENT_NAMES  # noqa: PLC0415 (long)

    return frozenset(LLAMA_FACTORY_ARGUMENT_NAMES.split())


def _irrelevant(key: str) -> bool:
    return key.partition(".")[0] in {*argument_names(), "kt_config"} or is_plain_trainer_argument(key)
