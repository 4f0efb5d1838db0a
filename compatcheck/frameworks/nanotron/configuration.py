"""nanotron's configurations (``examples/*.yaml``): YAML of dataclasses, with the model's dimensions in them.

Read at v0.1 to v0.5 and 2411b022. Weights of 16 bits are trained with float32 copies and a buffer of float32 gradients, where
``accumulate_grad_in_fp32`` asks for them; ``zero_stage`` splits copies and moments over data-parallel ranks, and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import LEFT_OUT, Statement, Unresolved
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.keys import KeyTable, Names
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten, make_document, translate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "nanotron", "nanotron"


def _is_above_zero(value: Any) -> Any:  # noqa: ANN401 (configuration)
    if type(value) is not int:
        msg = "expected a whole number"  # dacite refuses another type
        raise ValueError(msg)
    return value > 0


TABLE = KeyTable(__file__, conversions={"any": _is_above_zero})
"""Key → meaning."""
NAMES = Names(__file__)
_SECTIONS = {"general", "model", "parallelism", "tokens"}
_MODEL, _TOKENS, _LENGTH = "model.model_config.", "tokens.", "tokens.sequence_length"
_MAMBA = f"{_MODEL}is_mamba_config"
_RANKS = ("dp", "tp", "pp", "context_parallel_size")
_WHOLE = {
    **dict.fromkeys((f"parallelism.{name}" for name in _RANKS), "hardware.world_size"),
    _LENGTH: "training.sequence_length",
}
"""What rests on keys that are read together, each a whole number: nanotron refuses one that YAML reads as text (``1e3``)."""
_OF_ALL = "(all forward, then all backward)"
"""Schedule that keeps what all micro batches of a step keep, also without stages (``AllForwardAllBackwardPipelineEngine``)."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of nanotron."""
    model = data.get("model")
    return data.keys() >= _SECTIONS and isinstance(model, dict) and "model_config" in model


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration.

    Raises:
        InputError: nothing in it was understood.
    """
    source = Source(path)
    values = dict(flatten(data))
    translation = translate(iter(values.items()), TABLE, irrelevant=NAMES.__contains__, source=source)
    document = make_document(READER, source, translation)
    skipped = document.skipped
    if values.get(_MAMBA) is True:
        skipped += (Skipped(source._replace(key=_MAMBA), "is of Mamba, whose blocks no formula has", passes=True),)
    unknown = (
        Unresolved(fact, key, f"is {values[key]!r}, and no whole number")
        for key, fact in _WHOLE.items()
        if type(values.get(key, 1)) is not int
    )
    statements, unresolved = (*document.statements, *_settle(values)), (*document.unresolved, *unknown)
    return Reading((document._replace(statements=statements, unresolved=unresolved, skipped=skipped),))


def _settle(values: Mapping[str, Any]) -> Iterator[Statement]:
    """Say what several keys decide together, and what nanotron does without being asked."""
    yield Statement("training.trainer", "(program)", "pretrain")
    yield Statement("training.sharding", "(program)", "megatron")
    yield from _state(values)
    ranks = 1
    for name in _RANKS:
        size = values.get(f"parallelism.{name}", 1)
        ranks *= size if type(size) is int and size > 0 else 0
    if ranks and "parallelism.dp" in values:
        yield Statement("hardware.world_size", "parallelism.dp", ranks)
    longest = _find_longest(values)
    if longest is not None:
        yield Statement("training.sequence_length", _LENGTH, longest)
    steps = values.get(f"{_TOKENS}batch_accumulation_per_replica")
    if values.get("parallelism.pp_engine") in (None, "afab") and type(steps) is int and steps > 1:
        yield Statement(None, _OF_ALL, True)
    plain = values.get(f"{_MODEL}is_starcoder2_config") is True
    yield Statement("model.gated_mlp", "(program)", not plain)
    heads, many = values.get(f"{_MODEL}num_attention_heads"), values.get(f"{_MODEL}num_key_value_heads")
    if many is None and values.get(f"{_MODEL}num_kv_heads") is None and type(heads) is int:
        shared = plain and values.get(f"{_MODEL}grouped_query") is not True
        yield Statement("model.num_key_value_heads", f"{_MODEL}num_key_value_heads{LEFT_OUT}", 1 if shared else heads)
    yield from _count_experts(values)


def _state(values: Mapping[str, Any]) -> Iterator[Statement]:
    """Say in which dtypes weights, gradients and the optimizer's copies are."""
    dtype, wide = values.get("model.dtype"), values.get("optimizer.accumulate_grad_in_fp32")
    if dtype is None:
        dtype = "bfloat16"
        yield Statement("training.param_dtype", f"model.dtype{LEFT_OUT}", dtype)
    if wide is True:
        yield Statement("training.grad_accum_dtype", "optimizer.accumulate_grad_in_fp32", "float32")
        yield Statement("training.master_dtype", "optimizer.accumulate_grad_in_fp32", "float32")
    elif wide is False:
        yield Statement("training.grad_accum_dtype", "optimizer.accumulate_grad_in_fp32", dtype)
        yield Statement("training.master_dtype", "optimizer.accumulate_grad_in_fp32", None)


def _find_longest(values: Mapping[str, Any]) -> int | None:
    """Return the longest sequences of all stages of the data."""
    stages = values.get("data_stages")
    lengths = (
        [one.get("sequence_length") for one in stages if isinstance(one, dict)] if isinstance(stages, list) else []
    )
    return max((one for one in (values.get(_LENGTH), *lengths) if type(one) is int), default=None)


def _count_experts(values: Mapping[str, Any]) -> Iterator[Statement]:
    """Say how many parameters the experts have where every block has some: gate, up and down of each."""
    experts = values.get(f"{_MODEL}moe_config.num_experts", values.get(f"{_MODEL}moe_num_experts"))
    if experts is None:
        yield Statement("model.expert_parameters", f"{_MODEL}moe_config{LEFT_OUT}", 0)
    elif values.get(f"{_MODEL}moe_config.layers", [-1]) != [-1]:
        yield Statement(None, "(layers without experts)", True)
