"""What ``--set`` states for each role: a frozen model has no optimizer, and scores in batches of scoring."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Value
    from compatcheck.core.source import Source

_FROZEN = frozenset({"reference", "reward"})
_TRAINED_ONLY = frozenset(
    {
        "training.micro_batch_size",
        "training.micro_batch_is_global",
        "training.micro_batch_tokens",
        "training.gradient_accumulation_steps",
        "training.offload_param",
        "training.offload_optimizer",
        "training.optimizer",
        "training.optimizer_implementation",
        "training.peft",
        "training.lora_rank",
        "training.sleeps_while_idle",
    }
)
"""Facts about models that are trained; a frozen one has its own."""
_SCORES_BY = {
    "rollout.log_prob_micro_batch_size": "training.micro_batch_size",
    "rollout.log_prob_micro_batch_is_global": "training.micro_batch_is_global",
    "rollout.log_prob_micro_batch_tokens": "training.micro_batch_tokens",
}
"""Batches of scoring, and the facts of a frozen model that they are."""


def settings_of(role: str, settings: Mapping[str, tuple[Value, Source]]) -> dict[str, tuple[Value, Source]]:
    """Return the settings that hold for one role."""
    if role not in _FROZEN:
        return dict(settings)
    own = {name: stated for name, stated in settings.items() if name not in _TRAINED_ONLY}
    return own | {fact: settings[name] for name, fact in _SCORES_BY.items() if name in settings}
