"""Arguments of TRL's trainers, as JSON or YAML: ``SFTConfig``, ``DPOConfig`` …, beside those of the HF Trainer."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from compatcheck.frameworks.keys import Names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.frameworks.reader import Reading

READER, LABEL = "trl", "TRL"
TABLE, MODELS = hf_trainer.TABLE, hf_trainer.MODELS
TRAINERS = hf_trainer.ALGORITHMS

_MARKS = {
    "sft": {
        "dataset_text_field",
        "packing",
        "padding_free",
        "assistant_only_loss",
        "completion_only_loss",
        "eval_packing",
    },
    "dpo": {"rpo_alpha", "loss_weights", "label_smoothing_dpo", "reference_free", "use_weighting", "f_divergence_type"},
    "grpo": {"num_generations", "max_completion_length", "use_vllm", "vllm_mode", "scale_rewards", "reward_funcs"},
}
"""Keys that only one trainer has."""
_SHARED = Names(__file__, "marks.txt")
"""Keys that several of TRL's trainers and scripts have and the plain Trainer does not."""
_PREFERENCE_LOSSES = Names(__file__, "dpo_losses.txt")
"""Values of ``loss_type`` that only DPO has."""


def is_marked(data: Mapping[str, Any]) -> bool:
    """Tell whether arguments hold one that the plain Trainer does not have and TRL's trainers do."""
    return not data.keys().isdisjoint(_SHARED) or any(not marks.isdisjoint(data) for marks in _MARKS.values())


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data holds the arguments of a trainer of TRL."""
    return hf_trainer.recognise(data) and is_marked(data)


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate parsed arguments; the trainer is told by its keys, else by the path.

    Raises:
        InputError: nothing in them was understood.
    """
    return hf_trainer.read_arguments(READER, data, path, detect_trainer(data, path))


def detect_trainer(data: Mapping[str, Any], path: str) -> tuple[str, str] | None:
    """Tell the TRL trainer from keys only it has, else from a word in the path of a file that is TRL's by its other keys.

    Returns:
        The trainer and what decided, as a key; None when nothing decides (an unknown script).
    """
    scores = {name: len(marks & data.keys()) for name, marks in _MARKS.items()}
    losses = data.get("loss_type")
    if any(str(loss) in _PREFERENCE_LOSSES for loss in (losses if isinstance(losses, list) else [losses])):
        scores["dpo"] += 1
    best = max(scores, key=lambda name: scores[name])
    if scores[best] and list(scores.values()).count(scores[best]) == 1:
        return best, "(keys of this trainer)"
    if scores[best] or data.keys() & _SHARED:
        words = re.split(r"[^a-z]+", "/".join(path.lower().replace(os.sep, "/").split("/")[-3:]))
        named = TRAINERS.intersection(words)
        if len(named) == 1:
            return named.pop(), "(path of this file)"
    return None
