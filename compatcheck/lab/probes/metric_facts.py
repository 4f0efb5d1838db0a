"""The facts of the run behind one metric, where a probe makes several runs and its ``facts`` describe another of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.lab.probes.probe import Probe

_STATED: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("checkpointing_effectiveness", "bytes_per_layer_without"): {"training.gradient_checkpointing": False},
    ("logits_and_loss", "inference_bytes_per_logit"): {"program.passes_labels": False},
}
"""Probe and metric → what holds in that run instead."""
_UNSTATED: Mapping[tuple[str, str], frozenset[str]] = {
    # A forward without labels and gradients: trainers that keep a reference model or roll out make one, and it has no loss.
    ("logits_and_loss", "inference_bytes_per_logit"): frozenset({"training.trainer"}),
}
"""Probe and metric → what the run leaves open."""
_HIDDEN: Mapping[tuple[str, str], tuple[Mapping[str, Any], ...]] = {
    # What is alive after forward; with checkpointing a layer's masks and scores come and go.
    # The probe pads all sequences but the first.
    ("masks", "mask_bytes"): (
        {"training.gradient_checkpointing": True},
        {"run.attention_mask": "padding", "training.micro_batch_size": 1},
    ),
    # Without what forward copies out of the buffer.
    ("masks", "buffer_bytes"): ({"model.model_type": "llama"}, {"model.model_type": "gemma"}),
    # The probe's falcon is of the new architecture, of which no model has a single head; falcon-7b is of the old one.
    ("kv_cache", "cache_bytes"): ({"model.model_type": "falcon", "model.num_key_value_heads": 1},),
}
"""Probe and metric → facts of runs in which the metric does not show what rules speak of."""


def hides(probe: Probe, metric: str, facts: Mapping[str, Any]) -> bool:
    """Tell whether a metric does not show what is lost in such a run."""
    return any(
        all(facts.get(name) == value for name, value in hidden.items())
        for hidden in _HIDDEN.get((probe.name, metric), ())
    )


def metric_facts(probe: Probe, parameters: Mapping[str, Any], metric: str | None) -> dict[str, Any]:
    """Describe the run that a metric was taken of, in the vocabulary's names.

    Args:
        probe: the probe.
        parameters: all of them.
        metric: None is the probe's own.
    """
    key = (probe.name, metric or probe.module.METRIC)
    further: Callable[[Mapping[str, Any]], Mapping[str, Any]] = getattr(probe.module, "further_facts", lambda _: {})
    facts = {**probe.module.facts(parameters), **further(parameters), **_STATED.get(key, {})}
    return {name: value for name, value in facts.items() if name not in _UNSTATED.get(key, frozenset())}
