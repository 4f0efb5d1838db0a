"""Known regressions that add memory to a run, laid over an estimate that knows nothing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import ASLEEP, NOTHING, WHOLE, Component, Regression, Size
from compatcheck.memory.closed_form.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.core.estimate import Estimate, Phase
    from compatcheck.core.report import Finding, FindingImpact

COUNTED = frozenset(
    {
        "accelerate/fsdp2-no-sync-keeps-unsharded-gradients",  # closed_form/gradients.py
        "openrlhf/logsumexp-over-a-whole-sequence",  # closed_form/policy_logits.py, _openrlhf
        "torch/fsdp1-mixes-frozen-and-trainable",  # closed_form/gradients.py, beside
        "torch/foreach-optimizer-two-temporaries",  # closed_form/optimizer_states.py
        "transformers/float32-logits-kept-as-output",  # closed_form/logits.py, logits (outputs_kept)
        "transformers/logits-upcast-without-labels",  # precision.py, logits
        "transformers/loss-shift-copies-logits",  # closed_form/logits.py, per_logit
        "trl/dpo-keeps-reference-logits",  # closed_form/trl_logits.py
        "trl/grpo-divides-logits-in-place",  # closed_form/trl_logits.py
        "trl/grpo-entropy-of-whole-rows",  # closed_form/trl_logits.py
        "trl/kto-copies-shifted-logits",  # closed_form/trl_logits.py
        "trl/kto-keeps-kl-logits",  # closed_form/trl_logits.py
        "verl/entropy-computed-when-unused",  # closed_form/policy_logits.py, _verl
        "verl/no-sync-keeps-unsharded-gradients",  # closed_form/gradients.py
    }
)
"""Regressions whose effect a formula of the estimate has already, by release or setting, with its module. Each makes a
difference to the estimate there, which is tested."""

ADDED = frozenset(
    {
        "deepspeed/hpz-secondary-shard",
        "deepspeed/persistence-threshold-above-layer-weights",
        "deepspeed/zero3-keeps-inputs-of-frozen-layers",
        "deepspeed/zero3-linear-weights-kept-for-backward",
        "flash-attn/deterministic-backward-splits-dq",
        "peft/dora-saves-a-weight-copy",
        "torch/flex-attention-uncompiled",
        "torch/hsdp-holds-reduce-scatter-outputs",
        "transformers/batched-mm-gathers-experts",
        "transformers/fused-experts-not-quantised",
        "transformers/gpt-bigcode-caches-while-training",
        "transformers/sliding-mask-copied-per-layer",
    }
)
"""Pitfalls that take memory which no formula has; most others say what a formula has, as eager attention or a float32 loss."""
GATHERED = frozenset(
    {
        "deepspeed/persistence-threshold-above-layer-weights",
        "deepspeed/zero3-linear-weights-kept-for-backward",
        "deepspeed/zero3-params-kept-after-no-grad-forward",
        "deepspeed/zero3-params-kept-in-backward",
        "openrlhf/pins-deepspeed-that-keeps-zero3-params",
    }
)
"""Rules by which ZeRO-3 keeps the same gathered parameters: they are there once, whichever of them holds."""
_ONWARD = {"forward": frozenset({"forward", "backward"})}
"""Phases in which memory of a phase is there: what forward takes is mostly saved for backward."""

_AWAKE = frozenset({"load", "profile", "rollout"})
"""Phases in which an engine does not sleep; a server has no others."""


def lay_over(estimate: Estimate, findings: Iterable[Finding]) -> Estimate:
    """Return an estimate with what is known to go wrong here in its phases and its verdict.

    Args:
        estimate: of a run, without regressions.
        findings: of the same run; only certain ones, of regressions with a size on each rank's device, count.
    """
    found = tuple(_without_same(_read(estimate, findings)))
    return _include(estimate, found) if found and estimate.phases else estimate


def widen(estimate: Estimate, possible: tuple[Regression, ...], condition: str) -> Estimate:
    """Return an estimate whose range holds what is only possible, and whose verdict hangs on that.

    Args:
        estimate: of a run that fits, or may fit.
        possible: regressions that are there on the condition.
        condition: what decides it, in words.
    """
    bounds = tuple(
        one._replace(size=Size(0, 0, one.size.high), passing=Size(0, 0, one.passing.high)) for one in possible
    )
    phases = tuple(_fill(phase, bounds) for phase in estimate.phases)
    verdict = judge(phases, estimate.verdict.limit_bytes, estimate.verdict.verify)
    verdict = verdict._replace(outcome="marginal", condition=condition)
    return estimate._replace(phases=phases, verdict=verdict, possible=possible)


def with_phases(estimate: Estimate, more: tuple[Phase, ...]) -> Estimate:
    """Return an estimate with phases that its method does not price; its verdict is never better than before."""
    if not more or not estimate.phases:
        return estimate
    before = estimate.verdict
    verdict = judge((*estimate.phases, *more), before.limit_bytes, before.verify)
    if _WORSE.index(verdict.outcome) <= _WORSE.index(before.outcome):
        verdict = before._replace(margin_bytes=verdict.margin_bytes)
    return estimate._replace(phases=(*estimate.phases, *more), verdict=verdict)


def find_deciding(estimate: Estimate) -> frozenset[tuple[str, str]]:
    """Find the regressions without which a run fits, or may fit, and with which it does not.

    Returns:
        (rule, role) of each that alone makes it not fit, or without which all others leave it fitting.
    """
    clean, found = estimate.without, estimate.regressions
    if clean is None or clean.verdict.outcome not in {"fits", "marginal"} or clean.verdict.unless is not None:
        return frozenset()

    def fits(regressions: Iterable[Regression]) -> bool:
        return _include(clean, tuple(regressions)).verdict.outcome != "does_not_fit"

    def decides(one: Regression) -> bool:
        others = [other for other in found if other is not one]
        return not fits([one]) or (fits(others) and estimate.verdict.outcome == "does_not_fit")

    return frozenset((one.rule_id, one.role) for one in found if decides(one))


def find_turning(estimate: Estimate) -> tuple[str, ...]:
    """Name the regressions with which a run may not fit that fits without: each without which it does, or all together."""
    clean, found = estimate.without, estimate.regressions
    if clean is None or clean.verdict.outcome != "fits" or estimate.verdict.outcome != "marginal":
        return ()

    def fits(regressions: Iterable[Regression]) -> bool:
        return _include(clean, tuple(regressions)).verdict.outcome == "fits"

    alone = [one for one in found if fits(other for other in found if other is not one)]
    return tuple(dict.fromkeys(one.rule_id for one in alone or found))


def _include(estimate: Estimate, regressions: tuple[Regression, ...]) -> Estimate:
    """Add regressions to the phases they are in, and judge those as any other; the verdict is never better than before."""
    phases = tuple(_fill(phase, regressions) for phase in estimate.phases)
    before, verdict = estimate.verdict, estimate.verdict
    if phases != estimate.phases:
        verdict = judge(phases, before.limit_bytes, before.verify)._replace(least=before.least)
        outcome = max(before.outcome, verdict.outcome, key=_WORSE.index)
        condition, unless = (before.condition, before.unless) if outcome == before.outcome else (None, None)
        added = sum(one.size.expected for one in regressions if one.adds)
        least, limit = before.least, before.limit_bytes or 0
        if outcome == "does_not_fit" and least is not None and least.needed_bytes + added <= limit:
            outcome, unless = "marginal", least.unless
            condition = f"this is with all that nobody stated for the worst: it may fit if {unless}"
        verdict = verdict._replace(outcome=outcome, condition=condition, unless=unless)
    return estimate._replace(phases=phases, verdict=verdict, regressions=regressions, without=estimate)


_WORSE = ("unknown", "fits", "marginal", "does_not_fit")


def is_worse(one: Estimate, other: Estimate | None) -> bool:
    """Tell whether the verdict of an estimate is worse than that of another."""
    return other is not None and _WORSE.index(one.verdict.outcome) > _WORSE.index(other.verdict.outcome)


def _fill(phase: Phase, regressions: tuple[Regression, ...]) -> Phase:
    """Add regressions to a phase; what passes with a block adds what is beyond the loss, where the peak is there."""
    parts, spare = [], phase.above_block
    for one in regressions:
        if not one.adds or not _is_in(one, phase):
            continue
        size = one.size - one.passing + _beyond(one.passing, spare)
        spare = _beyond(spare, one.passing)
        parts.append(Component(one.rule_id, "regression", size, "known regression", one.rule_id, one.role))
    return phase._replace(components=(*phase.components, *parts)) if parts else phase


def _beyond(size: Size, other: Size) -> Size:
    """Return what of a size is above another, bound by bound."""
    return Size(*(max(0, one - two) for one, two in zip(size, other, strict=True)))


def _read(estimate: Estimate, findings: Iterable[Finding]) -> Iterable[Regression]:
    for finding in findings:
        impact = finding.impact
        if not counts_apart(finding) or finding.status != "affected":  # a waived one takes the memory all the same
            continue
        if impact is None or not impact.expected_bytes:
            continue
        expected = impact.expected_bytes
        low, high = impact.low_bytes, impact.high_bytes
        size = Size(expected if low is None else low, expected, expected if high is None else high)
        one = Regression(finding.rule_id, finding.role, impact.phase, size, _passing(size, impact), adds=True)
        yield one._replace(adds=any(_is_in(one, phase) for phase in estimate.phases))


def counts_apart(finding: Finding) -> bool:
    """Tell whether a finding that is certain and has a size adds to an estimate what none of its formulas has."""
    impact = finding.impact
    if impact is None or finding.rule_id in COUNTED:
        return False
    if finding.kind != "regression" and finding.rule_id not in ADDED:
        return False
    return (impact.effect, impact.memory, impact.scope) == ("memory", "device", "rank")


def _passing(size: Size, impact: FindingImpact) -> Size:
    """Return what of a size passes with a block; all that its bounds differ in does."""
    if not impact.passing_bytes:
        return NOTHING
    low, high = (impact.passing_bytes + bound - size.expected for bound in (size.low, size.high))
    return Size(max(0, low), impact.passing_bytes, high)


def _without_same(found: Iterable[Regression]) -> Iterable[Regression]:
    """Leave out, of rules that keep the same tensors, all but the largest."""
    found = list(found)
    for one in found:
        others = [other for other in found if {one.rule_id, other.rule_id} <= GATHERED and other.role == one.role]
        if not others or one is max(others, key=lambda other: other.size.expected):
            yield one


def _is_in(one: Regression, phase: Phase) -> bool:
    phases = _ONWARD.get(one.phase, {one.phase})
    always = one.phase == WHOLE or (one.phase == ASLEEP and phase.name not in _AWAKE)
    return (always or phase.name in phases) and one.role == phase.role
