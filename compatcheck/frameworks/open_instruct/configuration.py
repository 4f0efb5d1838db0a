"""Recipes of open-instruct (YAML): arguments of its own scripts for supervised and preference training.

``open_instruct/finetune.py`` and ``dpo_tune_cache.py`` run their loop on accelerate, without the HF Trainer, though many of
their arguments are called as the Trainer's are. Sharding and precision come from the accelerate and DeepSpeed files they are
launched with. Read at the tags v0.1.0 to v0.3.0 and at e6c3044a.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Source
from compatcheck.frameworks.keys import LEAVE, Key, flatten, make_document, only_true, translate
from compatcheck.frameworks.text import expect_mapping, parse_json_or_yaml, read_text
from compatcheck.rules.vocabulary import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.document import Document


def _optimizer(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return "adamw_8bit" if only_true(value) is True else LEAVE


TABLE: dict[str, Key | tuple[Key, ...]] = {
    "per_device_train_batch_size": Key("training.micro_batch_size"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    "max_seq_length": Key("training.sequence_length", lambda value: LEAVE if value is None else value),
    "gradient_checkpointing": Key("training.gradient_checkpointing"),
    "packing": Key("training.packing"),
    "sync_each_batch": Key("training.sync_each_batch"),
    "sequence_parallel_size": Key("training.context_parallel"),
    "use_liger_kernel": Key("training.use_liger_kernel"),
    "use_lora": Key("training.peft", lambda on: "lora" if only_true(on) is True else None),
    "use_qlora": Key("model.quantization", lambda on: "nf4" if only_true(on) is True else LEAVE),
    "lora_rank": Key("training.lora_rank"),
    "lora_dropout": Key("training.lora_dropout"),
    "use_8bit_optimizer": Key("training.optimizer", _optimizer),
    "use_flash_attn": Key(
        "model.attn_implementation",
        lambda on: "flash_attention_2" if only_true(on) is True else "eager",
    ),
    "trust_remote_code": Key("model.trust_remote_code"),
    "beta": Key("training.kl_coefficient"),
    "dpo_beta": Key("training.kl_coefficient"),
    "loss_type": Key("training.loss_type"),
    "dpo_loss_type": Key("training.loss_type"),
}
"""Key → meaning."""

_REQUIRED = {"model_name_or_path", "with_tracking"}
_DATA = {"dataset_mix_dir", "dataset_mixer", "dataset_mixer_list", "max_seq_length"}
_SCRIPT = {"checkpointing_steps", "keep_last_n_checkpoints", "use_slow_tokenizer"}
_PREFERENCE = {"beta", "dpo_beta", "dpo_loss_type", "gamma_beta_ratio", "loss_type"}
"""Keys that only the script for preferences has."""
_WHOLE = ("dataset_mixer", "additional_model_arguments")


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a recipe of open-instruct."""
    return data.keys() >= _REQUIRED and bool(_DATA & data.keys()) and bool(_SCRIPT & data.keys())


def read(path: str, files: Files = LOCAL) -> Document:
    """Read a recipe.

    Raises:
        InputError: not readable, or no recipe.
    """
    return read_data(
        expect_mapping(parse_json_or_yaml(read_text(path, files), path), path, "an open-instruct recipe"), path
    )


def read_data(data: Mapping[str, Any], path: str) -> Document:
    """Translate a parsed recipe."""
    source = Source(path)
    translation = translate(flatten(data, stop=_WHOLE), TABLE, irrelevant=_irrelevant, source=source)
    preference = sorted(_PREFERENCE & data.keys())
    place = preference[0] if preference else "(keys of this script)"
    known = (
        Statement("training.framework", "(keys of this script)", "accelerate"),
        Statement("training.trainer", place, "dpo" if preference else "sft"),
    )
    names = sorted(argument_names())
    unread = tuple((key, near or nearest(key, names)) for key, near in translation.unread)
    model = data.get("model_name_or_path")
    references = (("model", model, "model_name_or_path"),) if isinstance(model, str) and model else ()
    translation = translation._replace(statements=(*translation.statements, *known), unread=unread)
    return make_document("open_instruct", source, translation, references)


@lru_cache(maxsize=1)
def argument_names() -> frozenset[str]:
    """Return the names of the scripts' arguments."""
    from compatcheck.frameworks.hf_trainer.names import OPEN_INSTRUCT_ARGUMENT_NAMES  # noqa: PLC0415 (long)

    return frozenset(OPEN_INSTRUCT_ARGUMENT_NAMES.split())


_OLDER = {"add_bos", "dataset_mix_dir", "gamma_beta_ratio", "num_epochs", "use_slow_tokenizer"}
"""Arguments of the scripts before 0.1.0 that the recipes still name."""


def _irrelevant(key: str) -> bool:
    name = key.partition(".")[0]
    return name in argument_names() or name in _OLDER
