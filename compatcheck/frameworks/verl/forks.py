"""The forks of verl that share its keys and mean some of them otherwise: Search-R1, Logic-RL and TinyZero, of January 2025."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.frameworks.launch.values import Argument

_SEARCH_R1 = {
    "actor_rollout_ref.actor.state_masking", "actor_rollout_ref.rollout.n_agent", "algorithm.no_think_rl",
    "do_search", "retriever.topk", "retriever.url",
}  # fmt: skip
"""Keys only Search-R1 has; what limits turns (``max_turns``, ``data.max_obs_length``) others have too, each in its own way."""
_PROJECTS = {"search-r1": "search-r1", "grpo_logic_kk": "logic-rl", "tinyzero": "tinyzero", "logic-rl": "logic-rl"}
"""Project names in the scripts of forks whose keys are all verl's own."""


def tell_fork(options: Mapping[str, Argument], script: str | None = None) -> str:
    """Tell verl itself from its forks: by keys of their own, else by the project that a launch script names.

    Args:
        options: by key.
        script: path of the launch script, None for a configuration file.
    """
    if _SEARCH_R1 & options.keys():
        return "search-r1"
    if script is None or any(key.endswith("_per_gpu") for key in options):
        return "verl"
    words = [str(options[key].value).lower() for key in ("trainer.project_name",) if key in options]
    words += re.split(r"[/\\]", script.lower())
    return next((fork for mark, fork in _PROJECTS.items() if mark in words), "verl")
