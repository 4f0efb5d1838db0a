"""verl's command lines (Hydra): PPO, GRPO and their kin on FSDP or Megatron, and supervised training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Statement
from compatcheck.frameworks.keys import KeyTable
from compatcheck.frameworks.launch.arguments import (
    FurtherContent,
    OptionMeanings,
    make_command_document,
    skip_refused,
)
from compatcheck.frameworks.launch.hydra import Overrides, interpolate, parse_overrides
from compatcheck.frameworks.verl import configuration as verl
from compatcheck.frameworks.verl.forks import tell_fork

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

SFT_TABLE = KeyTable(__file__, "sft_keys.txt", verl.CONVERSIONS)
"""Keys of ``verl.trainer.fsdp_sft_trainer``."""


def recognise(launch: Launch) -> str | None:
    """Tell which trainer of verl a launch starts: ``rl``, ``sft``, or None."""
    words = [word.text or word.written for word in launch.arguments]
    if any(word.lstrip("+~'\"").startswith("actor_rollout_ref.") for word in words):
        return "rl"
    name = launch.program
    if launch.kind == "module" and re.fullmatch(r"verl\.trainer\.(main_ppo\w*)", name):
        return "rl"
    if re.search(r"(^|[./])(fsdp_sft_trainer|sft_trainer)(\.py)?$", name) and "verl" in name:
        return "sft"
    return None


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch of verl."""
    overrides = parse_overrides(launch.arguments)
    options = {key: interpolate(key, overrides.values) or argument for key, argument in overrides.values.items()}
    source = launch.command.source
    if kind == "sft":
        meanings = OptionMeanings(verl.READER, SFT_TABLE, verl.is_plain, {"model.partial_pretrain": "model"})
        known = (Statement("training.trainer", "(program)", "sft"), *_of_supervised(launch, options))
    else:
        table, models = verl.table_for(options)
        meanings = OptionMeanings(tell_fork(options, source.path), table, verl.is_plain, models)
        engine = overrides.values.get("model_engine") or overrides.groups.get("model_engine")
        known = tuple(verl.infer(options, overrides.config_name, engine))
    skipped = tuple(skip_refused(overrides.refused))
    further = FurtherContent(known, tuple(_configurations(overrides)), skipped, overrides.unknown)
    return (make_command_document(meanings, source, options, further),)


def _of_supervised(launch: Launch, options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say what ``fsdp_sft_trainer`` does without being asked.

    It always shards with FSDP, in float32 unless ``model_dtype`` says otherwise, and takes four sequences of 1,024 tokens a
    rank: ``verl/trainer/fsdp_sft_trainer.py`` and ``config/sft_trainer.yaml`` of v0.2.0.post2 to v0.7.0, which agree.
    """
    if "fsdp_sft_trainer" not in launch.program:
        return
    key = "(program fsdp_sft_trainer)"
    if "model.strategy" not in options:
        yield Statement("training.sharding", key, "fsdp")
    yield Statement("training.compute_dtype", key, "bfloat16")
    yield Statement("training.reduce_dtype", key, "float32")
    yield Statement("model.attn_implementation", key, "flash_attention_2")
    if "model.fsdp_config.model_dtype" not in options:
        yield Statement("training.param_dtype", "model.fsdp_config.model_dtype (left out)", "float32")
    if not {"data.micro_batch_size", "data.micro_batch_size_per_gpu"} & options.keys():
        left = "data.micro_batch_size_per_gpu (left out)"
        yield Statement("training.micro_batch_size", left, 4)
        yield Statement("training.micro_batch_is_global", left, value=False)
    if "data.max_length" not in options:
        yield Statement("training.sequence_length", "data.max_length (left out)", 1024)


def _configurations(overrides: Overrides) -> Iterator[tuple[str, str, str]]:
    """Name the YAML file a command composes from, where its directory is given."""
    path, name = overrides.config_path, overrides.config_name
    if path is None or name is None or not isinstance(path.value, str) or not isinstance(name.value, str):
        return
    if name.value.removesuffix(".yaml") in _OWN:
        return
    file = name.value if name.value.endswith((".yaml", ".yml")) else f"{name.value}.yaml"
    yield "config", f"{path.value.rstrip('/')}/{file}", "--config-name"


_OWN = {"ppo_trainer", "ppo_megatron_trainer", "sft_trainer", "sft_trainer_engine"}
"""Configurations verl itself brings; their defaults are rows of its table."""
