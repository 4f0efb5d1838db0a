"""Configurations of training programs whose files this release does not read, told by their keys.

Their files share many key names with the HF Trainer's, and mean other defaults by leaving them out. Reading them as trainer
arguments would be a guess, so they are named and not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Marks(NamedTuple):
    """Keys that tell one program's files."""

    framework: str
    keys: frozenset[str]
    """Top-level keys only this program's files hold."""
    enough: int = 2
    """How many of them decide."""


PROGRAMS = (
    Marks(
        "LLaMA-Factory v1",
        frozenset(["dist_config", "kernel_config", "model_class", "quant_config", "sample_backend", "train_dataset"]),
    ),
    Marks("NeMo", frozenset(["exp_manager", "model", "trainer"]), enough=3),
    Marks(
        "LLM Foundry",
        frozenset(["device_train_microbatch_size", "global_train_batch_size", "max_duration", "train_loader"]),
    ),
    Marks(
        "a script on accelerate without the HF Trainer",
        frozenset(["checkpointing_steps", "keep_last_n_checkpoints", "use_slow_tokenizer", "with_tracking"]),
    ),
)
"""Strongest marks first."""


def recognise(data: Mapping[str, Any]) -> str | None:
    """Name the program a configuration is for, when its files are known but not read."""
    for program in PROGRAMS:
        if len(program.keys & data.keys()) >= program.enough:
            return program.framework
    return None
