"""Recipes of open-instruct (YAML): arguments of its own scripts for supervised and preference training.

``open_instruct/finetune.py`` and ``dpo_tune_cache.py`` run their loop on accelerate, without the HF Trainer, though many of
their arguments are called as the Trainer's are. Sharding and precision come from the accelerate and DeepSpeed files they are
launched with. Read at the tags v0.1.0 to v0.3.0 and at e6c3044a.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.conversions import is_off
from compatcheck.frameworks.keys import KeyTable, Names
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten, make_document, translate

if TYPE_CHECKING:
    from collections.abc import Mapping

READER, LABEL = "open_instruct", "open-instruct"
MODELS = ("model_name_or_path",)
TABLE = KeyTable(__file__)
"""Key → meaning."""
NAMES = Names(__file__)

_REQUIRED = {"model_name_or_path", "with_tracking"}
_DATA = {"dataset_mix_dir", "dataset_mixer", "dataset_mixer_list", "max_seq_length"}
_SCRIPT = {"checkpointing_steps", "keep_last_n_checkpoints", "use_slow_tokenizer"}
_PREFERENCE = {"beta", "dpo_beta", "dpo_loss_type", "gamma_beta_ratio", "loss_type"}
"""Keys that only the script for preferences has."""
_WHOLE = ("dataset_mixer", "additional_model_arguments")


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a recipe of open-instruct."""
    return data.keys() >= _REQUIRED and bool(_DATA & data.keys()) and bool(_SCRIPT & data.keys())


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed recipe.

    Raises:
        InputError: nothing in it was understood.
    """
    return read_recipe(data, path, None)


def read_recipe(data: Mapping[str, Any], path: str, trainer: str | None) -> Reading:
    """Translate a parsed recipe, or the options of a script.

    Args:
        data: the recipe, or the options of a command.
        path: where it stands.
        trainer: what the script that is started trains by; without one the keys tell.

    Raises:
        InputError: nothing in it was understood.
    """
    source = Source(path)
    translation = translate(
        flatten(data, stop=_WHOLE), TABLE, irrelevant=_irrelevant, source=source, names=sorted(NAMES)
    )
    preference = sorted(_PREFERENCE & data.keys())
    place = "(program)" if trainer else preference[0] if preference else "(keys of this script)"
    known = (
        Statement("training.framework", "(keys of this script)", "accelerate"),
        Statement("training.trainer", place, trainer or ("dpo" if preference else "sft")),
    )
    narrow = "use_8bit_optimizer" in data and not is_off(data["use_8bit_optimizer"])
    stated = tuple(
        one._replace(value="paged_adamw_8bit") if narrow and one.value == "paged_adamw" else one
        for one in translation.statements
    )  # torch's own optimizer, which runs where nothing is paged, has no 8-bit variant
    model = data.get(MODELS[0])
    references = (("model", model, MODELS[0]),) if isinstance(model, str) and model else ()
    translation = translation._replace(statements=(*stated, *known))
    return Reading((make_document(READER, source, translation, references),))


def _irrelevant(key: str) -> bool:
    return key.partition(".")[0] in NAMES
