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
_HIDDEN: Mapping[tuple[str, str], Mapping[str, Any]] = {
    # What is alive after forward; with checkpointing a layer's masks and scores come and go.
    ("masks", "mask_bytes"): {"training.gradient_checkpointing": True},
}
"""Probe and metric → a fact of runs in which the metric does not show what rules speak of."""


def hides(probe: Probe, metric: str, facts: Mapping[str, Any]) -> bool:
    """Tell whether a metric does not show what is lost in such a run."""
    hidden = _HIDDEN.get((probe.name, metric), {})
    return any(facts.get(name) == value for name, value in hidden.items())


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
