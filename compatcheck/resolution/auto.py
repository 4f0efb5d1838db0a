"""Fill in ``auto`` values of a DeepSpeed file the way their owner does.

Only the HF Trainer and accelerate (and TRL above them) fill them in; DeepSpeed itself takes the word for a string. Source of the
formulas: ``transformers/integrations/deepspeed.py``, ``HfTrainerDeepSpeedConfig.trainer_config_finalize`` and accelerate's
``DeepSpeedPlugin``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.facts import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.core.source import Source

OWNERS = {"hf_trainer", "trl", "accelerate", "llamafactory", "axolotl"}
"""Readers that resolve ``auto``; LLaMA-Factory and axolotl run the HF Trainer."""

_TRAINER_FACTS = {
    "training.micro_batch_size",
    "training.gradient_accumulation_steps",
    "training.global_batch_size",
    "training.mixed_precision",
    "training.optimizer",
    "training.param_dtype",
    "training.zero_stage",
    "training.offload_optimizer",
    "training.offload_param",
}
"""``auto`` means: whatever the trainer's own argument or default says."""

_HIDDEN_SIZE_FORMULAS: dict[str, tuple[Callable[[int], float], str]] = {
    "training.reduce_bucket_size": (lambda hidden: hidden * hidden, "hidden_size²"),
    "training.prefetch_bucket_size": (lambda hidden: 0.9 * hidden * hidden, "0.9 × hidden_size²"),
    "training.param_persistence_threshold": (lambda hidden: 10 * hidden, "10 × hidden_size"),
}
"""What ``auto`` means for sizes that depend on the model."""


def fill_in(
    automatic: Mapping[str, Source],
    facts: Mapping[str, Fact],
    readers: set[str],
) -> tuple[dict[str, Fact], dict[str, str]]:
    """Resolve ``auto`` values.

    Args:
        automatic: facts whose only statement is ``auto``.
        facts: what is known so far; the model's ``hidden_size`` counts.
        readers: the programs present in this run.

    Returns:
        Resolved facts, and for the others why nobody fills them in.
    """
    resolved: dict[str, Fact] = {}
    reasons: dict[str, str] = {}
    owners = sorted(readers & OWNERS)
    for name, source in automatic.items():
        if not owners:
            reasons[name] = (
                "`auto` is filled in by the HF Trainer or accelerate, and no configuration of theirs was given"
            )
        elif name in _TRAINER_FACTS:
            continue  # the owner's own default row applies, as for a key left out
        elif name in _HIDDEN_SIZE_FORMULAS:
            hidden = facts.get("model.hidden_size")
            if hidden is None or not isinstance(hidden.value, int):
                reasons[name] = "`auto` depends on the model's hidden_size; give --model"
                continue
            formula, words = _HIDDEN_SIZE_FORMULAS[name]
            value = int(formula(hidden.value))
            resolved[name] = Fact(
                name,
                value,
                "derived",
                (source, *hidden.sources),
                f"auto = {words} in the HF Trainer",
            )
        else:
            reasons[name] = "`auto` is not a value the HF Trainer fills in for this key"
    return resolved, reasons
