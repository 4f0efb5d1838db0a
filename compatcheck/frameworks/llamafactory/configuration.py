"""LLaMA-Factory's training files (YAML or JSON): its own arguments beside the HF Trainer's.

``llamafactory-cli train`` reads one flat mapping into its dataclasses and the Trainer's ``Seq2SeqTrainingArguments``. What it
leaves alone keeps the Trainer's meaning and default; what it changes is here. Read at the tags v0.7.0 to v0.9.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.conversions import LEAVE, OPEN, constant, is_off, is_on
from compatcheck.frameworks.hf_trainer.arguments import (
    TRAINER_NAMES,
    TRAINER_TABLE,
    Arguments,
    is_plain_trainer_argument,
    open_arguments,
    read_precision,
    translate_arguments,
)
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names, Table
from compatcheck.frameworks.reader import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

READER, LABEL = "llamafactory", "LLaMA-Factory"
MODELS = ("model_name_or_path",)


def _inverted(value: Any) -> Any:  # noqa: ANN401 (configuration)
    if not isinstance(value, bool):
        msg = "expected true or false"
        raise ValueError(msg)  # noqa: TRY004 (the value of a configuration, not an argument)
    return not value


def _magnitude(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a number of blocks, which counts from the first one where it is negative."""
    return abs(value) if isinstance(value, int) and value else LEAVE


TABLE = KeyTable(__file__, conversions={"inverted": _inverted, "magnitude": _magnitude}, beneath=(TRAINER_TABLE,))
"""Its own arguments and the Trainer's."""
NAMES = Names(__file__)

_MARKS = {"cutoff_len", "finetuning_type", "lora_target", "plot_loss", "stage", "template"}
"""Keys that only this program's files hold."""
_TRAINS = {"output_dir", "per_device_train_batch_size", "learning_rate", "num_train_epochs", "deepspeed"}
_ENOUGH = 2
_MEGATRON = Names(__file__, "megatron_marks.txt")
"""Keys of the trainers on Megatron (``USE_MCA=1``, ``use_megatron_bridge``), which have their own optimizer and recomputation."""
_OWN_OPTIMIZERS = ("use_adam_mini", "use_apollo", "use_badam", "use_galore", "use_muon")
_LAYERWISE = ("apollo", "galore")
"""Optimizers that a switch of theirs, `…_layerwise`, steps for each parameter as its gradient comes (train/trainer_utils.py)."""
_NOT_MODELLED = {
    "use_hyper_parallel": "HyperParallel shards the model itself",
    "use_kt": "KTransformers keeps experts in host memory",
    "use_unsloth": "Unsloth replaces attention, loss and checkpointing",
}
"""Switches that put another program's code in place of what rules describe."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is for LLaMA-Factory, whichever command reads it."""
    return "model_name_or_path" in data and len(_MARKS & data.keys()) >= _ENOUGH


def is_for_training(data: Mapping[str, Any]) -> bool:
    """Tell a training file from files that only chat, merge or evaluate."""
    if "export_dir" in data:
        return False
    if data.get("do_train") in (None, False) and data.get("do_predict", data.get("do_eval")) is True:
        return False
    return data.get("do_train") is True or bool(_TRAINS & data.keys())


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed file; a DeepSpeed configuration inside it becomes a document of its own.

    Raises:
        InputError: nothing in it was understood.
    """
    return read_arguments(data, path) if is_for_training(data) else Reading()


def read_arguments(data: Mapping[str, Any], path: str) -> Reading:
    """Translate the arguments of a training.

    Raises:
        InputError: nothing in them was understood.
    """
    source = Source(path)
    arguments = open_arguments(data, source, TABLE, models=MODELS, whole=("rope_scaling",))
    _checkpointing(data, arguments)
    _adapters(data, arguments.table)
    _losses(data, arguments)
    _frozen(data, arguments)
    if data.get("moe_aux_loss_coef"):
        arguments.known.append(Statement(None, "(moe_aux_loss_coef)", True))
    if data.get("use_kt") is True:
        arguments.known.append(Statement(None, "(kt)", True))
    if data.get("fp8") is True and (precision := read_precision(data)) is not None:
        arguments.table[precision[0]] = SILENT
    if data.keys() & _MEGATRON:
        arguments.known.extend(_on_megatron(data))
    for name in _LAYERWISE:
        if data.get(f"use_{name}") is not True:
            arguments.table[f"{name}_layerwise"] = SILENT
    if any(data.get(key) is True for key in _OWN_OPTIMIZERS):
        arguments.table["optim"] = SILENT
        arguments.known.append(Statement(None, "optim", "replaced"))
    arguments.skipped.extend(
        Skipped(source._replace(key=key), f"{reason}, which no rule describes", "check the run without it")
        for key, reason in _NOT_MODELLED.items()
        if data.get(key) is True
    )
    names = sorted({*NAMES, *TRAINER_NAMES})
    return Reading(translate_arguments(READER, source, arguments, irrelevant=_irrelevant, names=names))


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
    table["gradient_checkpointing"] = (Key("training.gradient_checkpointing", lambda on: True if is_on(on) else LEAVE),)
    if not again:
        table[inner] = SILENT
        return
    arguments.known.append(Statement("program.checkpoints_by_trainer", "gradient_checkpointing", True))
    table["disable_gradient_checkpointing"] = table["use_reentrant_gc"] = SILENT
    if disabled:
        arguments.known.append(Statement(None, "use_reentrant_gc", "left to the Trainer"))
    elif inner not in arguments.leaves:
        arguments.known.append(Statement("training.use_reentrant", "gradient_checkpointing", True))


def _adapters(data: Mapping[str, Any], table: Table) -> None:
    """Settle what several keys say together: the adapter and the quantisation of the base model."""
    if data.get("use_dora") is True:
        table["finetuning_type"] = SILENT
        table["use_dora"] = (Key("training.peft", constant("dora")),)
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

    table["quantization_bit"] = (Key("model.quantization", convert),)


def _losses(data: Mapping[str, Any], arguments: Arguments) -> None:
    """Say that Liger's fused loss is left out in every stage but pre-training and SFT (``apply_liger_kernel``)."""
    if data.get("enable_liger_kernel") is True and data.get("stage", "sft") not in {"pt", "sft"}:
        arguments.known.append(Statement("training.loss_implementation", "stage", "cross_entropy"))


_TOWERS = ("freeze_vision_tower", "freeze_multi_modal_projector")


def _frozen(data: Mapping[str, Any], arguments: Arguments) -> None:
    """Tell which parts of a model with towers are frozen in full fine-tuning (``model/model_utils/visual.py``).

    Of a tower without its projector, or the other way round, nobody knows the parameters.
    """
    if data.get("finetuning_type") != "full":
        return
    key = next((name for name in ("freeze_language_model", "train_mm_proj_only") if is_on(data.get(name))), None)
    if key is not None:
        arguments.table["finetuning_type"] = SILENT
        arguments.known.append(Statement("training.peft", key, "freeze"))
        return
    trained = [name for name in _TOWERS if is_off(data.get(name))]
    if trained:
        arguments.known.append(Statement(None, "(trains a tower)", True))
    if trained and len(trained) < len(_TOWERS):
        arguments.table[trained[0]] = (Key("model.trainable_parameters", constant(OPEN)),)


def _on_megatron(data: Mapping[str, Any]) -> list[Statement]:
    """Say what follows from a trainer on Megatron: its own sharding, recomputation and optimizer."""
    key = min(data.keys() & _MEGATRON)
    return [
        Statement("training.sharding", key, "megatron"),
        Statement("training.gradient_checkpointing", key, data.get("recompute_granularity") is not None),
        Statement(None, "optim", "Megatron's own"),
    ]


def _irrelevant(key: str) -> bool:
    name = key.partition(".")[0]
    return name in NAMES or name == "kt_config" or is_plain_trainer_argument(key)
