"""Configurations of torchtitan (TOML, or JSON as it saves them), whose keys are the options of its command line too.

Keys as in 0.1.0 to 0.2.2 and in the parsers of 2024. From 0.3.0 on a configuration is a Python function: no file is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement, Unresolved
from compatcheck.core.source import Source
from compatcheck.frameworks.conversions import LEAVE, is_off, is_on
from compatcheck.frameworks.keys import KeyTable, Names
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten, make_document, translate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "torchtitan", "torchtitan"


def _shards(degree: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a shard degree: above 1 it is FSDP; -1 (the ranks left) and 1 depend on the other degrees."""
    return "fsdp" if isinstance(degree, int) and degree > 1 else LEAVE


TABLE = KeyTable(__file__, conversions={"shards": _shards})
"""Dotted key → meaning."""
NAMES = Names(__file__)

_CHECKPOINTING, _POLICY = "training.gradient_checkpointing", "training.checkpointing_policy"
_EVERY = "training.checkpoint_every"
_COMPILE, _PRECISION, _LOSS = "training.compile", "training.mixed_precision", "training.loss_implementation"
_MICRO, _STEPS = "training.micro_batch_size", "training.gradient_accumulation_steps"
LOCAL_BATCH = ("training.local_batch_size", "training.batch_size")
SEVERAL = "(several stages)"
"""Says for the other documents of a run that there is more than one stage, or may be."""
STAGES = tuple(f"{section}.pipeline_parallel_degree" for section in ("parallelism", "experimental", "training"))
_SHARDS = tuple(f"{section}.data_parallel_shard_degree" for section in ("parallelism", "training"))
_MODE, _OPTION = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
_PART, _PARTS = "parallelism.pipeline_parallel_microbatch_size", "experimental.pipeline_parallel_microbatches"
_FLOAT8 = frozenset({"float8", "mx", "quantize.linear.float8", "quantize.linear.mx"})
"""Converters that make linear layers compute in 8 bits; of ``grouped_mm`` only experts do."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of torchtitan: its sections, or a flavor of one of its models."""
    sections = {name for name, value in data.items() if isinstance(value, dict)}
    model = data.get("model")
    flavored = isinstance(model, dict) and isinstance(model.get("flavor"), str)
    return (flavored and "training" in sections) or {"activation_checkpoint", "parallelism", "training"} <= sections


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration.

    Raises:
        InputError: nothing in it was understood.
    """
    source = Source(path)
    values = dict(flatten(data))
    translation = translate(iter(values.items()), table_for(values), irrelevant=NAMES.__contains__, source=source)
    document = make_document(READER, source, translation)
    return Reading(
        (
            document._replace(
                statements=(*document.statements, *settle(values)),
                unresolved=tuple(leave_open(values, is_file=True)),
                references=tuple(name_model(values)),
            ),
        )
    )


def name_model(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name the model by its flavor (``models/*/__init__.py``, 0.2.2)."""
    flavor = f"{values.get('model.name')}.{values.get('model.flavor')}"
    if flavor in TABLE.words["flavors"]:
        yield "model", str(TABLE.words["flavors"][flavor]), "model.flavor"


def table_for(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what keys mean beside one another: with stages the local batch is cut, see `settle`."""
    cut = stages(values) > 1
    table = dict(TABLE)
    for key in LOCAL_BATCH:
        table[key] = () if cut else tuple(meaning._replace(without=(SEVERAL,)) for meaning in TABLE[key])
    return table


def stages(values: Mapping[str, Any]) -> int:
    """Return the stages that a document states, 1 where it states none."""
    return max((_whole(values.get(key)) or 1 for key in STAGES), default=1)


def settle(values: Mapping[str, Any]) -> Iterator[Statement]:
    """State what several keys of a document decide together."""
    yield from _checkpoint(values)
    enabled = values.get("compile.enable")
    if enabled is not None:
        parts = values.get("compile.components")
        yield Statement(_COMPILE, "compile.enable", is_on(enabled) and (parts is None or "model" in _listed(parts)))
    yield from _precision(values)
    yield from _cut(values)
    if stages(values) > 1:
        yield Statement(None, SEVERAL, stages(values))
    for key in _SHARDS:
        if values.get(key) in (1, -1):
            yield Statement(None, f"(shard degree: {'1' if values[key] == 1 else 'rest'})", values[key])
    if values.get("model.name") == "flux":
        yield Statement(None, "(no language model)", "flux")
    else:
        yield Statement("training.trainer", "(program)", "pretrain")


def _checkpoint(values: Mapping[str, Any]) -> Iterator[Statement]:
    mode, option = values.get(_MODE), values.get(_OPTION)
    some = _is_of_some_blocks(mode, option, is_file=True)
    if mode in {"none", "full", "selective"} and not some:
        yield Statement(_CHECKPOINTING, _MODE, mode != "none")
    elif mode is not None:
        yield Statement(None, _MODE, mode)
    if option is not None:
        yield Statement(None, _OPTION, option)
    every = _every(mode, option)
    if every:
        origin = _MODE if mode == "full" else _OPTION
        yield Statement(_POLICY, origin, "every_other_product" if origin == _OPTION and option == "op" else "full")
        yield Statement(_EVERY, origin, every)


def _every(mode: object, option: object) -> int:
    """Return of how many blocks one is checkpointed, 0 where that is not told (``_apply_layer_sac``, 0.2.2)."""
    if mode == "full" or (mode in {None, "selective"} and str(option) in {"op", "0", "1"}):
        return 1
    return int(str(option)) if mode == "selective" and str(option).isdecimal() else 0


def leave_open(values: Mapping[str, Any], *, is_file: bool) -> Iterator[Unresolved]:
    """List what a document decides in a way that no fact tells.

    Over the configuration of a model of transformers its flavors lay a width and a depth of their own, ``full`` those of a 7B
    (experiments/transformers_modeling_backend/model/args.py, TitanDenseModelArgs, 0.2.2).
    """
    model = values.get("hf_transformers.model")
    if model:
        yield Unresolved("model.name", "hf_transformers.model", f"is {model} with the width and depth of the flavor")
    mode, option = values.get(_MODE), values.get(_OPTION)
    if mode not in {None, "none", "full", "selective"}:
        yield Unresolved(_CHECKPOINTING, _MODE, f"is {mode!r}: the compiler chooses what is computed again")
    elif _is_of_some_blocks(mode, option, is_file=is_file):
        every = "2 (left out)" if option is None else option
        why = f"is {every}: one block of so many is checkpointed, the others are kept"
        yield Unresolved(_CHECKPOINTING, _OPTION, why)
        yield Unresolved(_POLICY, _OPTION, why)


def _is_of_some_blocks(mode: object, option: object, *, is_file: bool) -> bool:
    """Tell whether one block of a number that is not told is checkpointed: between none and all of them."""
    return mode in {None, "selective"} and not _every(mode, option) and (is_file or option is not None)


def _precision(values: Mapping[str, Any]) -> Iterator[Statement]:
    dtype = values.get("training.mixed_precision_param")
    for key in ("model.converters", "float8.enable_float8_linear", "training.fp8_linear"):
        given = values.get(key)
        on = bool(_FLOAT8 & set(_listed(given))) if key == "model.converters" else bool(given) and not is_off(given)
        if on:
            yield Statement(_PRECISION, key, "fp8")
            return
    if dtype in ("bfloat16", "float32"):
        yield Statement(_PRECISION, "training.mixed_precision_param", "bf16" if dtype == "bfloat16" else "no")


def _cut(values: Mapping[str, Any]) -> Iterator[Statement]:
    """Say what stages make of the local batch: micro batches of 1 unless stated (2024: as many as there are stages)."""
    depth = stages(values)
    key = next((name for name in LOCAL_BATCH if name in values), None)
    local = _whole(values.get(key)) if key is not None else None
    if depth > 1 and key is None and STAGES[0] in values:  # a command; the batch stands in the file
        yield Statement(_MICRO, _PART if _PART in values else f"{_PART} (left out)", _whole(values.get(_PART)) or 1)
    if depth < 2 or key is None or local is None:
        return
    if key == "training.batch_size" and _PART not in values:
        part, origin = max(1, local // (_whole(values.get(_PARTS)) or depth)), _PARTS
    else:
        part, origin = _whole(values.get(_PART)) or 1, _PART
    yield Statement(_MICRO, origin if origin in values else f"{origin} (left out)", part)
    if _whole(values.get("training.global_batch_size")) is None:
        yield Statement(_STEPS, key, max(1, local // part))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _listed(value: object) -> list[str]:
    """Read a list of words, which a command may write with commas."""
    words = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return [part.strip() for word in words for part in str(word).split(",")]
