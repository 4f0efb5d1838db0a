"""Arguments of the HF Trainer, as JSON or YAML: ``TrainingArguments``.

A file may mix the trainer's arguments with those of a script (``model_name_or_path``, LoRA keys, data sets), as the files
that ``HfArgumentParser`` reads do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.source import Source
from compatcheck.frameworks.conversions import is_on
from compatcheck.frameworks.hf_trainer.arguments import (
    TRAINER_TABLE,
    is_plain_trainer_argument,
    open_arguments,
    translate_arguments,
)
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names
from compatcheck.frameworks.reader import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

READER, LABEL = "hf_trainer", "HF Trainer"
MODELS = ("model_name_or_path", "model_name", "model_id")
"""Keys that may name the model, strongest first."""
TRL_TABLE = KeyTable(__file__, "trl_keys.txt", beneath=(TRAINER_TABLE,), fields={"model_init_kwargs.": None})
"""What the configuration classes of TRL's trainers take."""
TABLE = KeyTable(__file__, "script_keys.txt", beneath=(TRL_TABLE,), fields={"": None})
"""Arguments of the Trainer, and those of scripts around it: TRL's, and what ``from_pretrained`` lays over config.json."""
ALGORITHMS = {"sft", "dpo", "orpo", "cpo", "kto", "bco", "gkd", "ppo", "rloo", "grpo", "xpo", "prm", "reward"}
"""Words in the name of a script or recipe that say how it trains; TRL has a trainer for each."""
SCRIPT_NAMES = Names(__file__, "script_names.txt")
_TRL_NAMES = Names(__file__, "trl_names.txt")
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
_STRONG = Names(__file__, "marks.txt")
_ENOUGH = 2


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data holds trainer arguments."""
    return (
        len(data.keys() & _STRONG) >= _ENOUGH
        and not {"zero_optimization", "base_model", "compute_environment", "model_type"} & data.keys()
    )


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate parsed arguments; a DeepSpeed configuration inside them becomes a document of its own.

    Raises:
        InputError: nothing in them was understood.
    """
    return read_arguments(READER, data, path)


def read_arguments(reader: str, data: Mapping[str, Any], path: str, trainer: tuple[str, str] | None = None) -> Reading:
    """Translate parsed arguments of a program that takes the Trainer's.

    Args:
        reader: whose arguments they are.
        data: the parsed file.
        path: of the file.
        trainer: the training algorithm, and what tells it, as a key.

    Raises:
        InputError: nothing in them was understood.
    """
    source = Source(path)
    arguments = open_arguments(data, source, TABLE, models=MODELS, whole=("dataset_mixer", "dataset_mixture"))
    if is_on(data.get("use_dora")) and arguments.leaves.get("use_peft") is not False:
        arguments.table["use_peft"] = SILENT  # LoraConfig(use_dora=…): one adapter, of the other kind
    elif "use_peft" in arguments.table and "use_dora" not in data:
        arguments.table["use_peft"] = tuple(one._replace(without=("use_dora",)) for one in arguments.table["use_peft"])
    if trainer is not None:
        name, place = trainer
        arguments.leaves[place] = name
        arguments.table[place] = (Key("training.trainer"),)
    return Reading(translate_arguments(reader, source, arguments, irrelevant=_irrelevant, names=SCRIPT_NAMES))


def _irrelevant(key: str) -> bool:
    name = key.partition(".")[0]
    plain = name in SCRIPT_NAMES or name in _TRL_NAMES or key.startswith(_SECTIONS)
    return is_plain_trainer_argument(key) or (plain and name != "fsdp_config")
