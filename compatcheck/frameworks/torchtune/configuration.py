"""Configurations of torchtune's recipes (YAML), and the ``key=value`` words that ``tune run`` lays over them.

Keys as in the configurations of the releases 0.1.0 to 0.6.1. Components are named by dotted paths (``_component_``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement, Unresolved
from compatcheck.core.source import Source
from compatcheck.frameworks.conversions import LEAVE, OPEN, multiplied, opens
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten, make_document, translate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.document import Document

READER, LABEL = "torchtune", "torchtune"
_CHECKPOINTING, _SWITCH = "training.gradient_checkpointing", "enable_activation_checkpointing"
_MODE, _OPTION = "ac_mode", "ac_option"
_TARGETS, _ATTENTION = "training.lora_target_modules", "model.lora_attn_modules"
_BEYOND = {
    "model.apply_lora_to_mlp": ("gate_proj", "up_proj", "down_proj"),
    "model.apply_lora_to_output": ("lm_head",),
}
"""Layers that have adapters beside those of attention, off unless a key turns them on (``lora_*`` builders of 0.1.0 to 0.6.1)."""
_OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adam",
    "SGD": "sgd",
    "PagedAdamW": "paged_adamw",
    "PagedAdamW8bit": "paged_adamw_8bit",
    "AdamW8bit": "adamw_8bit",
}


def _last(value: Any) -> str:  # noqa: ANN401 (configuration)
    return str(value).rpartition(".")[2]


def _optimizer(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return _OPTIMIZERS.get(_last(value), OPEN) if isinstance(value, str) and value else LEAVE


def _adapter(value: Any) -> Any:  # noqa: ANN401 (configuration)
    name = _last(value)
    return "lora" if name.startswith("lora_") else "qlora" if name.startswith("qlora_") else None


def _quantization(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return "nf4" if _last(value).startswith("qlora_") else LEAVE


def _loss(value: Any) -> Any:  # noqa: ANN401 (configuration)
    name = _last(value)
    chunked = "Chunked" in name or name.startswith("LinearCrossEntropy")
    return "chunked" if chunked else "cross_entropy" if name == "CrossEntropyLoss" else opens(name)


def _trainer(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return TABLE.words["losses"].get(_last(value), LEAVE)


def _name(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return _last(value) if isinstance(value, str) and value else LEAVE


TABLE = KeyTable(
    __file__,
    conversions={
        "adapter": _adapter,
        "loss": _loss,
        "name": _name,
        "optimizer": _optimizer,
        "quantization": _quantization,
        "trainer": _trainer,
    },
)
"""Dotted key → meaning."""
NAMES = Names(__file__)

_RECIPES = {
    "full_finetune_distributed": {"training.trainer": "sft", "training.sharding": "fsdp"},
    "full_finetune_single_device": {"training.trainer": "sft", "training.sharding": "none"},
    "lora_finetune_distributed": {"training.trainer": "sft", "training.sharding": "fsdp", "training.peft": "lora"},
    "lora_finetune_single_device": {"training.trainer": "sft", "training.sharding": "none", "training.peft": "lora"},
    "qat_distributed": {"training.trainer": "sft", "training.sharding": "fsdp"},
    "lora_dpo_distributed": {"training.trainer": "dpo", "training.sharding": "fsdp", "training.peft": "lora"},
    "lora_dpo_single_device": {"training.trainer": "dpo", "training.sharding": "none", "training.peft": "lora"},
    "full_dpo_distributed": {"training.trainer": "dpo", "training.sharding": "fsdp"},
    "ppo_full_finetune_single_device": {"training.trainer": "ppo", "training.sharding": "none"},
}
"""What the choice of a recipe settles (``recipes/*.py``)."""
_RECIPE = "(recipe)"


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of torchtune: components named by their paths."""
    sections = [section for section in data.values() if isinstance(section, dict)]
    return any(
        str(section.get("_component_", "")).startswith(("torchtune.", "torch.", "bitsandbytes."))
        for section in sections
    )


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration.

    Raises:
        InputError: nothing in it was understood.
    """
    source = Source(path)
    table = {key: meaning for key, meaning in find_meanings(data).items() if key not in {"model", "loss", "optimizer"}}
    translation = translate(flatten(data), table, irrelevant=NAMES.__contains__, source=source)
    leaves = dict(flatten(data))
    models = tuple(name_model(leaves))
    document = make_document(READER, source, translation, models)
    document = document._replace(statements=(*document.statements, *of_path(path)))
    builder = leaves.get("model._component_")
    if builder is not None and not models:
        why = f"is built by {_last(builder)}, whose dimensions are not known here"
        document = document._replace(
            unresolved=(*document.unresolved, Unresolved("model.name", "model._component_", why))
        )
    return Reading((with_settled(document, data),))


def name_model(leaves: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Name the model by the function that builds it: ``torchtune.models.llama3_3.lora_llama3_3_70b``."""
    for key in ("model._component_", "model"):
        builder = re.sub(r"^q?lora_", "", _last(leaves.get(key, "")))
        if builder in TABLE.words["builders"]:
            yield "model", str(TABLE.words["builders"][builder]), key
            return


def find_meanings(data: Mapping[str, Any]) -> dict[str, tuple[Key, ...]]:
    """Return what keys mean here: `settle_checkpointing` says what the switch for all layers comes to beside a mode.

    FSDP's mesh joins ``dp_shard`` with ``cp`` (main, ``training/_distributed.py``).
    """
    shard = (Key("training.hsdp_shard_size", multiplied(data.get("context_parallel_dim"))),)
    switch = {"enable_activation_checkpointing": SILENT} if data.get(_MODE) is not None else {}
    return {**TABLE, "data_parallel_shard_dim": shard, **switch}


def settle_checkpointing(data: Mapping[str, Any]) -> Iterator[Statement | Unresolved]:
    """Say of how many layers one is checkpointed: a mode is followed where the switch is off (``full_finetune_distributed``)."""
    mode, every = data.get(_MODE), str(data.get(_OPTION))
    if mode is None:
        return
    if data.get(_SWITCH) is False and (mode == "full" or (mode == "selective" and every.isdecimal())):
        yield Statement(_CHECKPOINTING, _MODE, value=True)
        if mode == "selective":
            yield Statement("training.checkpoint_every", _OPTION, int(every) or 1)
    else:
        why = f"{_MODE} is {mode}, {_OPTION} is {every}, {_SWITCH} is {data.get(_SWITCH)}"
        yield Unresolved(_CHECKPOINTING, _MODE, why)


def settle_adapters(data: Mapping[str, Any]) -> Iterator[Statement | Unresolved]:
    """Say which layers have adapters, by the names that Llama's have elsewhere; who says a part alone leaves the rest open."""
    attention = data.get(_ATTENTION)
    told = {key: data[key] for key in (_ATTENTION, *_BEYOND) if key in data}
    if isinstance(attention, list) and all(isinstance(told.get(key, False), bool) for key in _BEYOND):
        names = ["o_proj" if name == "output_proj" else str(name) for name in attention]
        names += [name for key, layers in _BEYOND.items() if told.get(key) for name in layers]
        yield Statement(_TARGETS, _ATTENTION, tuple(names), None, tuple(key for key in _BEYOND if key not in told))
    elif told:
        yield Unresolved(_TARGETS, next(iter(told)), "is one of several keys that decide it together")


def with_settled(document: Document, data: Mapping[str, Any]) -> Document:
    """Add what several keys decide together."""
    said = (*settle_checkpointing(data), *settle_adapters(dict(flatten(data))))
    stated = (entry for entry in said if isinstance(entry, Statement))
    unresolved = (entry for entry in said if isinstance(entry, Unresolved))
    return document._replace(statements=(*document.statements, *stated), unresolved=(*document.unresolved, *unresolved))


def of_path(path: str) -> Iterator[Statement]:
    """Say what the name of a file tells of the recipe that it is for, where no command does (``_recipe_registry.py``)."""
    if path.endswith(("_single_device.yaml", "_single_device.yml")):
        yield Statement("training.sharding", "(path of this file)", "none", None, (_RECIPE,))
        yield Statement("hardware.world_size", "(path of this file)", 1, None, (_RECIPE,))


def of_recipe(name: str) -> Iterator[Statement]:
    """Say what a recipe settles."""
    for fact, value in _RECIPES.get(name.rpartition("/")[2].removesuffix(".py"), {}).items():
        yield Statement(fact, _RECIPE, value)
