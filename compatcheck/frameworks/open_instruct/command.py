"""open-instruct's command lines: its scripts for supervised and preference training, and for reinforcement learning.

Of the latter (``grpo_fast.py`` and its kin) what the options state is read, without defaults but that of ``deepspeed_zpg``, and
of ``grpo_fast.py`` what it does whatever they say.
Learners run DeepSpeed, generation vLLM on devices of its own unless ``--single_gpu_mode``. Options as in the scripts at the
main branch and at v0.1.0.

``dpo.py``, ``grpo.py`` and ``olmo_core_finetune.py`` train with OLMo-core, which shards, splits and checkpoints by options of
its own: another program, which is not read.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement
from compatcheck.core.source import Skipped
from compatcheck.frameworks.conversions import LEAVE
from compatcheck.frameworks.hf_trainer.parser import read_launch, read_lone_rank
from compatcheck.frameworks.keys import KeyTable
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.open_instruct import configuration as open_instruct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.frameworks.launch.program import Launch

_OLMO_CORE = re.compile(r"open_instruct[./](dpo|grpo|olmo_core_finetune)(\.py)?$")
_RL = re.compile(r"open_instruct[./](grpo_fast(?=\.py$|$)|grpo|ppo)\w*(\.py)?$")
_TUNING = re.compile(r"open_instruct[./](finetune|dpo_tune\w*)(\.py)?$")
_GROUP = "deepspeed_zpg"
"""Ranks of a second copy of the weights (ZeRO++), 8 unless given in v0.1.0 to v0.3.0 (``grpo_utils.py``)."""


_FAST_KIND = "grpo_fast"
_FAST: Mapping[str, Any] = {
    "training.peft": None,
    "training.gradient_checkpointing": True,
    "training.mixed_precision": "bf16",
    "training.optimizer": "adamw",
    "model.load_dtype": "bfloat16",
    "model.use_cache": False,
}
"""What the learners do whatever the options say (PolicyTrainerRayProcess, v0.1.0 to v0.3.0 and e6c3044a grpo_fast.py)."""

_LEFT_OUT = (("single_gpu_mode", "rollout.colocated", False), ("load_ref_policy", "training.reference_model", True))
"""What holds where an option of them is left out (v0.1.0 to v0.3.0 and e6c3044a grpo_utils.py)."""


def _sum(value: Any) -> Any:  # noqa: ANN401 (an option's value)
    """Sum the learners of all nodes: ``--num_learners_per_node 8 8``."""
    values = value if isinstance(value, list) else [value]
    return sum(values) if all(isinstance(item, int) and not isinstance(item, bool) for item in values) else LEAVE


RL_TABLE = KeyTable(__file__, "rl_keys.txt", {"sum": _sum})
"""Options of reinforcement learning."""


def recognise(launch: Launch) -> str | None:
    """Tell the algorithm of a launch of these scripts, ``tuning`` or ``olmo-core`` for others than reinforcement learning."""
    if _OLMO_CORE.search(launch.program):
        return "olmo-core"
    match = _RL.search(launch.program)
    if match is not None:
        return match[1]
    return "tuning" if launch.kind != "tool" and _TUNING.search(launch.program) else None


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch."""
    source = launch.command.source
    if kind == "olmo-core":
        why = f"starts {launch.program}, which trains with OLMo-core; its options are not read"
        skip = Skipped(source, why, "--set what they decide", by_run=True)
        return (Document("script", source, (), (), (skip,), is_command=True),)
    if kind == "tuning":
        trainer = "dpo" if "dpo_tune" in launch.program else "sft"
        translate = partial(open_instruct.read_recipe, trainer=trainer)
        return read_launch(launch, open_instruct, [read_lone_rank(launch)], translate=translate)
    flags = parse_flags(launch.arguments)
    trainer = kind.partition("_")[0]
    known = [Statement("training.trainer", "(program)", trainer), Statement("rollout.engine", "(program)", "vllm")]
    known += [Statement(fact, "(program)", value) for fact, value in (_FAST if kind == _FAST_KIND else {}).items()]
    for key, fact, value in _LEFT_OUT if kind == _FAST_KIND else ():
        if key not in flags.options:
            known.append(Statement(fact, f"{key} (left out)", value))
    stage = flags.options.get("deepspeed_stage")
    if stage is not None and stage.value == 3 and _GROUP not in flags.options:
        known.append(Statement("training.zero_hpz_partition_size", f"{_GROUP} (left out)", 8))
    meanings = OptionMeanings("script", RL_TABLE, open_instruct.NAMES.__contains__, {"model_name_or_path": "model"})
    further = FurtherContent(tuple(known), unknown=flags.unknown)
    return (make_command_document(meanings, source, flags.options, further),)
