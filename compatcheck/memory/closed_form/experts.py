"""Mixture of experts: how wide the part of a block is that one token goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


def routed_width(run: Run) -> float:
    """Return the width of the MLP a token goes through, all its experts together.

    With even routing each rank works on as many tokens as it has; a skewed router sends more to some (our probe moe_experts;
    the estimate's high bound has room for twice).
    """
    model = run.model
    if not model.experts:
        return float(model.intermediate)
    return float(model.experts_per_token * model.expert_width)
