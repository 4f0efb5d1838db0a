"""Accelerate's configuration file (YAML or JSON), as ``accelerate config`` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatcheck.core.document import LEFT_OUT, Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.conversions import ByWords, constant, multiplied
from compatcheck.frameworks.keys import Key, KeyTable, Names, Table
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten, make_document, translate

READER, LABEL = "accelerate", "accelerate"
TABLE = KeyTable(__file__)
"""Dotted key → meaning."""
NAMES = Names(__file__)
"""Keys that have no bearing on memory; any other key of a section that decides about it is worth a word."""
_SHARDING = {"DEEPSPEED": None, "FSDP": "fsdp", "MULTI_GPU": "ddp", "NO": "none", "MEGATRON_LM": "megatron"}

_KINDS = {"distributed_type": (Key("training.sharding", ByWords({"DEEPSPEED": "zero", "FSDP": "fsdp"}, "leave")),)}
"""How the file says that state is spread; of DeepSpeed the stage decides whether it is."""
ALL_DEFAULTS = Statement(None, f"deepspeed_config.zero_stage{LEFT_OUT}", value=True)
"""DeepSpeed is asked for and nothing more said of it: every default of accelerate's plugin holds."""
_REFUSED = frozenset(
    f"deepspeed_config.{name}"
    for name in (
        "gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device", "offload_param_device",
        "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
    )
)  # fmt: skip
"""Keys that accelerate refuses beside a DeepSpeed file, the mixed precision apart (0.16 to 1.15 utils/dataclasses.py,
``DeepSpeedPlugin._deepspeed_config_checks``)."""
_PRECISION = "mixed_precision"
"""Refused beside a DeepSpeed file unless the command states it, too (commands/launch.py, ``mp_from_config_flag``)."""


SHARD = "parallelism_config.parallelism_config_dp_shard_size"


def join_shard(sizes: Mapping[str, object]) -> Table:
    """Return what ``dp_shard`` means beside replicas: FSDP's mesh joins it with ``cp`` (parallelism_config.py of 1.12.0)."""
    if sizes.get("parallelism_config_dp_replicate_size") in (None, 1, "1"):
        return {}
    return {SHARD: (Key("training.hsdp_shard_size", multiplied(sizes.get("parallelism_config_cp_size"))),)}


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is an accelerate configuration."""
    return "compute_environment" in data or ("distributed_type" in data and "mixed_precision" in data)


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration.

    Raises:
        InputError: nothing in it was understood.
    """
    source = Source(path)
    table = dict(TABLE)
    kind = str(data.get("distributed_type", "")).upper()
    sharding = _SHARDING.get(kind)
    if sharding is not None:
        table["distributed_type"] = (Key("training.sharding", constant(sharding)),)
    fsdp = data.get("fsdp_config")
    first = kind == "FSDP" and not (isinstance(fsdp, Mapping) and "fsdp_version" in fsdp)
    parallelism = data.get("parallelism_config") or {}
    size = "parallelism_config_sp_size"
    if isinstance(parallelism, Mapping) and parallelism.get(size) not in (None, 1, "1"):
        del table["parallelism_config.parallelism_config_cp_size"]
        table[f"parallelism_config.{size}"] = (Key("training.context_parallel"),)
    elif isinstance(parallelism, Mapping):
        table |= join_shard(parallelism)
    references: tuple[tuple[str, str, str], ...] = ()
    more: list[Statement] = []
    section = data.get("deepspeed_config")
    inner = section.get("deepspeed_config_file") if isinstance(section, Mapping) else None
    written = {f"deepspeed_config.{name}" for name in section} if isinstance(section, Mapping) else set()
    refused = sorted(_REFUSED & written) + [_PRECISION] * (data.get(_PRECISION) is not None)
    if refused and kind == "DEEPSPEED":  # where a DeepSpeed file is named, here or by the Trainer's arguments
        more.append(Statement("configuration.refused", refused[0], tuple(refused)))
    if isinstance(inner, str):
        references = (("deepspeed", inner, "deepspeed_config.deepspeed_config_file"),)
        for key in _REFUSED - written:  # none is to be added
            table.pop(key, None)
    leaves = flatten(data, stop={"fsdp_config.fsdp_transformer_layer_cls_to_wrap", "commands"})
    translation = translate(leaves, table, irrelevant=NAMES.__contains__, source=source, auto=True)
    document = make_document(READER, source, translation, references)
    if first:
        more.append(Statement("training.fsdp_version", "fsdp_config.fsdp_version (left out)", 1))
    if kind == "DEEPSPEED" and not section:
        more.append(ALL_DEFAULTS)
    document = document._replace(statements=(*document.statements, *more), table={**document.table, **_KINDS})
    return Reading((document,))
