"""A model's ``config.json``: its dimensions, and its parameters by component."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.architectures.adapters import names_recur
from compatcheck.architectures.count import ParameterCounts, count_parameters
from compatcheck.architectures.dimensions import dimensions
from compatcheck.core.document import Document, Statement
from compatcheck.core.errors import UsageError
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.reader import Reading
from compatcheck.rules.values import parse_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.frameworks.keys import Key

READER, LABEL = "model", "config.json"
TABLE: Mapping[str, tuple[Key, ...]] = {}
"""Its keys are read by `architectures.dimensions`."""

_COUNTS = {
    "model.parameters": "total",
    "model.parameters_in_blocks": "in_blocks",
    "model.embedding_parameters": "embedding",
    "model.lm_head_parameters": "lm_head",
    "model.expert_parameters": "expert",
    "model.expert_parameters_per_layer": "expert_per_layer",
    "model.vision_parameters": "vision",
}

OWN_FACTS = frozenset(_COUNTS) | {
    f"model.{name}"
    for name in (
        "tower_linears",
        "block_linears",
        "expert_names_recur",
        "tower_outputs_unused",
        "model_type",
        "architecture",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "attention_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "global_head_dim",
        "vocab_size",
        "max_position_embeddings",
        "moe_intermediate_size",
        "num_experts",
        "num_experts_per_token",
        "tie_word_embeddings",
        "has_conv3d",
        "alibi",
        "stored_dtype",
        "stored_quantization",
    )
}
"""Facts that tell which model it is; others, such as the attention, are choices of a run."""


# a file states how weights are stored; which dtype they are loaded in, and whether they are quantised then, the program chooses
_STORED = {
    "model.load_dtype": ("model.stored_dtype",),
    "model.quantization": ("model.quantization", "model.stored_quantization"),
}


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a model's config.json."""
    return isinstance(data.get("model_type"), str) and "base_model" not in data


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed config.json, parameter counts included.

    Raises:
        InputError: a dimension is negative or of the wrong type.
    """
    return Reading((make_model_document(data, path, count_parameters(data, path)),))


def make_model_document(
    config: Mapping[str, Any], path: str, counts: ParameterCounts | None, words: str = "counted from the configuration"
) -> Document:
    """Translate a parsed config.json whose parameters have been counted, ``words`` tells how."""
    source = Source(path)
    statements: list[Statement] = []
    skipped: list[Skipped] = []
    for dimension, (value, key) in dimensions(config, path).items():
        facts = _STORED.get(dimension, (dimension,))
        try:
            statements.extend(
                Statement(fact, key, parse_value(fact, value, source._replace(key=key))) for fact in facts
            )
        except UsageError as error:
            skipped.append(Skipped(source._replace(key=key), error.message, error.hint))
    if counts is not None:
        statements.extend(Statement(fact, words, getattr(counts, field)) for fact, field in _COUNTS.items())
        for fact, layers in (("model.tower_linears", counts.tower), ("model.block_linears", counts.linears)):
            if layers:
                statements.append(Statement(fact, words, tuple(sorted(map(str, layers)))))
        if counts.linears:
            statements.append(Statement("model.expert_names_recur", words, names_recur(counts.linears)))
        if counts.unused is not None:
            statements.append(Statement("model.tower_outputs_unused", words, counts.unused))
    else:
        model_type = config.get("model_type")
        reason = f"parameters of model type {model_type!r} cannot be counted from its configuration"
        skipped.append(
            Skipped(source, reason, "give a model directory with safetensors files, or --set model.parameters=…"),
        )
    return Document(READER, source, tuple(statements), (), tuple(skipped))
