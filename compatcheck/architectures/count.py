"""Counts the parameters of a model, per component, from its config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from compatcheck.architectures.keys import Keys, class_defaults
from compatcheck.architectures.parts import ParameterCounts
from compatcheck.core.errors import InputError
from compatcheck.core.source import Source

__all__ = ["CLASS_DEFAULTS_RELEASE", "ParameterCounts", "count_parameters", "known_model_types", "read_keys"]

CLASS_DEFAULTS_RELEASE = "5.23.0"
"""Release of transformers that the class defaults and the formulas were read from and checked with."""
_FAMILIES = ("decoders", "experts", "hybrids", "multimodal", "encoders")
"""Modules with formulas, the likely ones first; a module is imported when the ones before it do not know the type."""
_UNMEASURED = ("remote_code", "recent", "text_encoders")
"""Modules with the types that the class defaults do not have."""


def read_keys(config: Mapping[str, object], path: str = "config.json") -> Keys | None:
    """Return the keys of a configuration with its class defaults, or None when its model type is not known.

    Raises:
        InputError: it is no mapping, or ``model_type`` is no string.
    """
    if not isinstance(config, Mapping):
        raise InputError("the model configuration is not a mapping", source=Source(path), hint="give a config.json")
    model_type = config.get("model_type")
    if model_type is None:
        return None
    if not isinstance(model_type, str):
        raise InputError("model_type is not a string", source=Source(path, "model_type"), hint="correct model_type")
    defaults = class_defaults(model_type)
    if defaults is None:
        others = (import_module(f"compatcheck.architectures.{family}").CONFIGURATIONS for family in _UNMEASURED)
        defaults = next((known[model_type] for known in others if model_type in known), None)
    return None if defaults is None else Keys(config, defaults, path=path)


def count_keys(keys: Keys) -> ParameterCounts | None:
    """Count the model, or the part of one, whose keys are given."""
    for family in (*_FAMILIES, *_UNMEASURED):
        formula = import_module(f"compatcheck.architectures.{family}").FORMULAS.get(keys.model_type)
        if formula is not None:
            counts: ParameterCounts | None = formula(keys)
            return counts
    return None


def count_parameters(config: Mapping[str, object], path: str = "config.json") -> ParameterCounts | None:
    """Count the parameters of the model that a configuration describes.

    Keys left out have the class defaults of the transformers release named in ``data/class_defaults.jsonl``.

    Returns:
        Exact counts, or None where they are not known: another model type, remote code, an uncommon variant.

    Raises:
        InputError: a key has the wrong type or a negative value.
    """
    keys = read_keys(config, path)
    if keys is None or not _is_counted_class(keys):
        return None
    return count_keys(keys)


_FORMER_CLASSES = {
    "chatglm": "chatglmforconditionalgeneration",
    "internlm3": "internlm3forcausallm",
    "kimi_k25": "kimi_k25forconditionalgeneration",
    "t5": "t5withlmheadmodel",
}
"""Other names of the class that is counted, in files of before."""


def _is_counted_class(keys: Keys) -> bool:
    """Tell whether ``architectures`` names a class that the formulas count, and not one with another head."""
    names = keys.names("architectures")
    counted = {(keys.architecture or "").lower(), _FORMER_CLASSES.get(keys.model_type)}
    if keys.config.get("per_layer_config") is not None:
        return False
    if not names or any(name.lower() in counted for name in names):
        return True
    from compatcheck.architectures.heads import STEMS, find_head  # noqa: PLC0415 (of text encoders alone)

    return keys.model_type in STEMS and find_head(keys) is not None


def known_model_types() -> tuple[str, ...]:
    """Return the model types that can be counted, sorted."""
    modules = (import_module(f"compatcheck.architectures.{family}") for family in _FAMILIES)
    return tuple(sorted({model_type for module in modules for model_type in module.FORMULAS}))
