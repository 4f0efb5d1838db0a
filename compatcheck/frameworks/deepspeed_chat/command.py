"""DeepSpeed-Chat's scripts: supervised, preference and reward training (steps 1 and 2), PPO (step 3).

Options as in ``applications/DeepSpeed-Chat/training/step*/main.py``; they build their DeepSpeed configuration themselves
(``dschat/utils/ds_utils.py``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement, Unresolved
from compatcheck.frameworks.keys import KeyTable, Names
from compatcheck.frameworks.launch.arguments import (
    FurtherContent,
    OptionMeanings,
    make_command_document,
    name_roles,
    state_forward_only,
    state_value_heads,
)
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

READER = "deepspeed_chat"


def _of_forward(stage: object) -> int:
    """Return the stage of a model that only runs forward: that of the trained one where it is 3 (``rlhf_engine.py``)."""
    return 3 if stage == 3 else 0


TABLE = KeyTable(__file__)
"""Options of steps 1 and 2."""
PPO_TABLE = KeyTable(__file__, "ppo_keys.txt", {"forward": _of_forward})
"""Options of step 3."""
_NAMES = Names(__file__)
_SWITCHES = Names(__file__, "switches.txt")

_FOLDER = re.compile(r"step(1_supervised|2_reward|2_dpo)_")
"""Folders of steps 1 and 2, each with a ``main.py`` and the scripts that start it."""
_TRAINERS = {"1_supervised": "sft", "2_reward": "reward", "2_dpo": "dpo"}
_MARKS = {
    "sft_only_data_path": "sft", "eot_token": "sft", "num_padding_at_beginning": "reward", "eval_iters": "reward",
    "beta": "dpo", "label_smoothing": "dpo",
}  # fmt: skip
"""Options that one of them has alone."""

_HYBRID = "enable_hybrid_engine"
"""Generates with DeepSpeed's inference kernels over the gathered weights (``deepspeed/runtime/hybrid_engine.py``)."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch is ``rl`` (step 3) or ``single`` (steps 1 and 2)."""
    if not launch.program.endswith(".py"):
        return None
    options = parse_flags(launch.arguments, switches=_SWITCHES).options
    if {"actor_model_name_or_path", "critic_model_name_or_path"} <= options.keys() and "actor_zero_stage" in options:
        return "rl"
    marks = {
        "data_split",
        "data_path",
        "num_padding_at_beginning",
        "sft_only_data_path",
        "lora_module_name",
        "max_seq_len",
    }
    return "single" if {"zero_stage", "model_name_or_path"} <= options.keys() and marks & options.keys() else None


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch."""
    flags = parse_flags(launch.arguments, switches=_SWITCHES)
    is_rl = kind == "rl"
    table = PPO_TABLE if is_rl else TABLE
    models = (
        {"actor_model_name_or_path": "model", "critic_model_name_or_path": "model:critic"}
        if is_rl
        else {"model_name_or_path": "model"}
    )
    known = tuple(_state(is_rl=is_rl))
    trainer = "ppo" if is_rl else _name_trainer(launch, flags.options)
    if trainer is not None:
        known = (*known, Statement("training.trainer", "(program)", trainer))
    meanings = OptionMeanings(READER, table, lambda name: name in _NAMES or name in _SWITCHES, models)
    further = FurtherContent(known, unknown=flags.unknown)
    document = make_command_document(meanings, launch.command.source, flags.options, further)
    if is_rl and _HYBRID in flags.options:
        why = "generates with DeepSpeed's hybrid engine, which is none that is described"
        document = document._replace(unresolved=(*document.unresolved, Unresolved("rollout.engine", _HYBRID, why)))
    return (document,)


def _name_trainer(launch: Launch, options: Mapping[str, Argument]) -> str | None:
    """Name what step 1 or 2 trains; None where neither a folder nor an option tells."""
    for path in (launch.program, launch.command.source.path):
        folder = _FOLDER.search(path)
        if folder is not None:
            return _TRAINERS[folder[1]]
    return next((trainer for name, trainer in _MARKS.items() if name in options), None)


def _state(*, is_rl: bool) -> Iterator[Statement]:
    """Say what the programs are, whatever their options."""
    yield Statement("training.framework", "(program)", "deepspeed")
    if not is_rl:
        return
    yield from name_roles(("actor", "critic", "reference", "reward"))
    yield from state_value_heads(("critic", "reward"))
    for role in ("reference", "reward"):
        yield from state_forward_only(role)
