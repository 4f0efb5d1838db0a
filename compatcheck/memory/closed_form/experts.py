"""Mixture of experts: how wide the part of a block is that one token goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


SMALL = 0.02
"""Share of a block's dense parameters below which the rest is biases and norms."""


def routed_width(run: Run) -> float:
    """Return the width of the MLP a token goes through, all its experts together.

    With even routing each rank works on as many tokens as it has; a skewed router sends more to some (our probe moe_experts;
    the estimate's high bound has room for twice).
    """
    model = run.model
    if not model.experts:
        return float(model.intermediate)
    return float(model.experts_per_token * model.expert_width) + shared_width(run)


def shared_width(run: Run) -> float:
    """Return the width of shared experts, from the parameters of a block that neither attention nor routing explains."""
    model = run.model
    if not model.expert:
        return 0.0
    block = (model.in_blocks - model.expert) / model.layers
    attention = 2 * model.hidden * (model.query_width + model.key_width)
    router = model.hidden * model.experts
    spare = block - attention - router
    return spare / (3 * model.hidden) if spare > SMALL * block else 0.0
