"""slime's command lines: ``python3 train.py`` with Megatron-LM's arguments, its own, and SGLang's as ``--sglang-…``.

Read at 0.1.0 to 0.3.1 and 624b824a (``slime/utils/arguments.py``, ``backends/megatron_utils``, ``backends/sglang_utils``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement
from compatcheck.core.source import Skipped
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import (
    FurtherContent,
    OptionMeanings,
    make_command_document,
    name_roles,
    state_value_heads,
)
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.launch.values import Argument, value_of
from compatcheck.frameworks.megatron import command as megatron
from compatcheck.frameworks.sglang import command as sglang

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch

READER = "slime"
TABLE = KeyTable(__file__)
"""Option → meaning, of slime's own."""
NAMES = Names(__file__)
_ENGINE = "sglang_"
_WHOLE: Table = {
    **megatron.TABLE,
    **{f"{_ENGINE}{key}": meanings for key, meanings in sglang.TABLE.items()},
    **TABLE,
}
_SWITCHES = megatron.SWITCHES | {
    "colocate", "debug_rollout_only", "debug_train_only", "no_offload_rollout", "no_offload_train", "offload", "offload_rollout",
    "offload_train", "release_train", "use_dynamic_batch_size", "use_kl_loss",
}  # fmt: skip
_ALWAYS = ("use_distributed_optimizer",)
"""What slime sets whatever is given (``set_default_megatron_args``); and bf16 but for fp16."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts slime: its script, with the batch that slime asks for and the checkpoint of its engine."""
    if re.search(r"(^|/)train(_async)?\.py$", launch.program) is None:
        return None
    options = parse_flags(launch.arguments).options
    return READER if {"hf_checkpoint", "rollout_batch_size"} <= options.keys() else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch."""
    flags = parse_flags(launch.arguments, switches=_SWITCHES)
    options, source = dict(flags.options), launch.command.source
    backend = value_of(options, "train_backend")
    if backend not in {None, "megatron"}:
        skip = Skipped(source, f"trains by slime's {backend} back end, which is not read", by_run=True)
        further = FurtherContent(skipped=(skip,), unknown=flags.unknown)
        return (make_command_document(OptionMeanings(READER, {}, lambda _: True), source, options, further),)
    for name in (*_ALWAYS, *(() if "fp16" in options else ("bf16",))):
        options.setdefault(name, Argument(True, None))
    further = FurtherContent(
        (
            *megatron.state_known(options),
            *_state(options),
            *_of_variables(launch),
            *_of_text(options, complete=not flags.unknown),
        ),
        skipped=tuple(megatron.find_skipped(options, launch)),
        unknown=flags.unknown,
    )
    meanings = OptionMeanings(READER, _table_for(options), _is_plain, {"hf_checkpoint": "model"})
    return (make_command_document(meanings, source, options, further),)


def _is_plain(key: str) -> bool:
    """Tell whether an option has no bearing by itself: slime's, Megatron's, SGLang's or that of its router."""
    return (
        key in NAMES
        or key in megatron.NAMES
        or key.removeprefix(_ENGINE) in sglang.NAMES
        or key.startswith((f"{_ENGINE}router_", "router_"))
    )


def _table_for(options: Mapping[str, Argument]) -> Table:
    """Read micro batches as counts of tokens where they are filled so, which leaves their number of sequences out."""
    table: Table = dict(_WHOLE)
    if value_of(options, "use_dynamic_batch_size"):
        table["micro_batch_size"] = SILENT
        table["max_tokens_per_gpu"] = (Key("training.micro_batch_tokens"),)
        table["log_probs_max_tokens_per_gpu"] = (Key("rollout.log_prob_micro_batch_tokens"),)
    if not _generates(options):
        for key in [key for key in table if key.startswith((_ENGINE, "rollout_num_gpus_per_engine"))]:
            table[key] = SILENT
    return table


def _generates(options: Mapping[str, Argument]) -> bool:
    """Tell whether a run has an engine of its own: none where data are given, nor where others run it."""
    without = ("debug_train_only", "load_debug_rollout_data", "rollout_external_engine_addrs")
    return not any(name in options for name in without) and value_of(options, "rollout_num_gpus") != 0


def _state(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say what follows from several options, and what slime does without being asked (``slime_validate_args``)."""
    if value_of(options, "loss_type") == "sft_loss":
        yield Statement("training.trainer", "loss_type", "sft")
    together = "colocate" in options
    has_critic = value_of(options, "advantage_estimator") == "ppo"
    if has_critic:
        yield from name_roles(("actor", "critic"))
        yield from state_value_heads(("critic",))
    # trained are weights of --ref-load in the dtype of Megatron, however those are stored that the engine starts with
    yield Statement("model.quantization", "hf_checkpoint", value=None)
    # its weights wait on the host and take the actor's place for a forward (backends/megatron_utils/actor.py _switch_model)
    yield Statement("training.reference_model", "(in the actor's place)", value=False)
    leaves = any(name in options for name in ("offload", "offload_train", "release_train")) or (
        together and "no_offload_train" not in options
    )
    key = next(
        (name for name in ("offload_train", "offload", "release_train", "colocate") if name in options), "(program)"
    )
    yield Statement("training.sleeps_while_idle", key, leaves or has_critic)
    if leaves or has_critic:
        yield Statement("training.offload_param", key, "cpu")
    if _generates(options):
        yield Statement("rollout.engine", "(program)", "sglang")
        yield Statement("rollout.colocated", "colocate" if together else "colocate (left out)", together)
        sleeps = any(name in options for name in ("offload", "offload_rollout")) or (
            together and "no_offload_rollout" not in options
        )
        yield Statement("rollout.sleep_mode", key, sleeps)
        yield Statement("rollout.multi_stage_wake_up", key, sleeps)
        yield from _split_engine(options)
    yield from _count(options)


def _of_variables(launch: Launch) -> Iterator[Statement]:
    """Name what slime's patch of Megatron-LM is told by variables (624b824a ``docker/patch/latest/megatron.patch``)."""
    if launch.variables.get(_FAKE_QUANTISATION) == "1":
        yield Statement(None, _FAKE_QUANTISATION, value=True)


_FAKE_QUANTISATION = "OPEN_TRAINING_INT4_FAKE_QAT_FLAG"


def _of_text(options: Mapping[str, Argument], *, complete: bool) -> Iterator[Statement]:
    """Say that Megatron's GPTModel is built, which has no towers, and no provider of another model is asked."""
    spec = value_of(options, "spec")
    plain = complete if "spec" not in options else isinstance(spec, list) and not str(spec[-1]).endswith("_provider")
    if plain and "custom_model_provider_path" not in options and value_of(options, "megatron_to_hf_mode") != "bridge":
        yield Statement(None, "(text alone)", value=True)


def _split_engine(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say over how many devices an engine splits matrices: all of its own, less those of its stages."""
    devices, stages = (value_of(options, name) for name in ("rollout_num_gpus_per_engine", "sglang_pp_size"))
    stages = stages or value_of(options, "sglang_pipeline_parallel_size") or 1
    if "rollout_num_gpus_per_engine" not in options:
        yield Statement("rollout.tensor_parallel", "rollout_num_gpus_per_engine (left out)", 1)
    elif isinstance(devices, int) and isinstance(stages, int):
        yield Statement("rollout.tensor_parallel", "rollout_num_gpus_per_engine", max(1, devices // stages))


def _count(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say how many sequences a rollout and a step have."""
    prompts, each = value_of(options, "rollout_batch_size"), value_of(options, "n_samples_per_prompt")
    each = 1 if "n_samples_per_prompt" not in options else each
    if not isinstance(prompts, int) or not isinstance(each, int):
        return
    yield Statement("rollout.global_batch_size", "rollout_batch_size", prompts * each)
    steps = value_of(options, "num_steps_per_rollout")
    if isinstance(steps, int) and steps > 0 and "global_batch_size" not in options:
        yield Statement("training.global_batch_size", "num_steps_per_rollout", max(1, prompts * each // steps))
