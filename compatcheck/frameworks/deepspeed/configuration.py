"""DeepSpeed's configuration file (JSON, or Hjson as DeepSpeed itself parses it)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.conversions import LEAVE, constant
from compatcheck.frameworks.keys import Key, KeyTable, Names
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten, make_document, translate

if TYPE_CHECKING:
    from compatcheck.core.document import Document

READER, LABEL = "deepspeed", "DeepSpeed"
_OF_THE_TRAINER = frozenset(
    {
        "gradient_clipping",
        "optimizer.params.lr",
        "optimizer.params.weight_decay",
        "scheduler.params.warmup_max_lr",
    }
)
"""Keys that are compared with the trainer's arguments and matter to nothing else: ``auto`` leaves no question."""
_STAGES = "zero_optimization"


def _none_if_empty(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value else None


TABLE = KeyTable(__file__, conversions={"none_if_empty": _none_if_empty})
"""Dotted key → meaning."""
NAMES = Names(__file__)
"""Keys that have no bearing on memory; any other key of a section that decides about it is worth a word."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a DeepSpeed configuration."""
    marks = {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "zero_allow_untested_optimizer"}
    return bool(marks & data.keys()) and "model_type" not in data


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration.

    Raises:
        InputError: nothing in it was understood.
    """
    return Reading((read_section(data, path),))


def read_section(data: Mapping[str, Any], path: str, prefix: str = "") -> Document:
    """Translate a parsed configuration; ``prefix`` is its place inside another file.

    Raises:
        InputError: nothing in it was understood.
    """
    source = Source(path)
    table = {prefix + key: meaning for key, meaning in TABLE.items()}
    precision = _precision(data)
    if precision is not None:
        key, name = precision
        table[prefix + key] = (Key("training.mixed_precision", constant(name)),)
    if isinstance(data.get("zero_optimization"), bool):  # the oldest form; DeepSpeed reads it as stage 1 or 0
        table[prefix + "zero_optimization"] = (Key("training.zero_stage", int),)
    leaves = list(flatten(data, prefix, stop={prefix + "zero_optimization.leaf_module.classes"}))
    for key, value in leaves:
        if value == "auto" and key.removeprefix(prefix) in _OF_THE_TRAINER:
            del table[key]
    translation = translate(
        iter(leaves),
        table,
        irrelevant=lambda key: key.startswith(f"{prefix}_") or key.removeprefix(prefix) in NAMES,
        source=source,
        auto=True,
    )
    document = make_document(READER, source, translation)
    if prefix:
        return document
    statements = () if _STAGES in data else (Statement("training.zero_stage", f"{_STAGES} (left out)", 0),)
    return document._replace(statements=(*document.statements, *statements))


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
