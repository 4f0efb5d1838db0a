"""open-instruct's command lines: its scripts for supervised and preference training, and for reinforcement learning.

Of the latter (``grpo_fast.py`` and its kin) what the options state is read; its record has few of their defaults.
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
    from compatcheck.frameworks.launch.program import Launch

_OLMO_CORE = re.compile(r"open_instruct[./](dpo|grpo|olmo_core_finetune)(\.py)?$")
_RL = re.compile(r"open_instruct[./](grpo_fast(?=\.py$|$)|grpo|ppo)\w*(\.py)?$")
_TUNING = re.compile(r"open_instruct[./](finetune|dpo_tune\w*)(\.py)?$")
_RL_READER = "open_instruct_rl"


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
    known = (
        Statement("training.trainer", "(program)", kind.partition("_")[0]),
        Statement("rollout.engine", "(program)", "vllm"),
    )
    meanings = OptionMeanings(_RL_READER, RL_TABLE, open_instruct.NAMES.__contains__, {"model_name_or_path": "model"})
    further = FurtherContent(known, unknown=flags.unknown)
    return (make_command_document(meanings, source, flags.options, further),)
