"""Known regressions that add memory to a run, laid over an estimate that knows nothing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import WHOLE, Component, Regressed, Regression, Size, total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.core.estimate import Estimate, Phase
    from compatcheck.core.report import Finding

COUNTED = frozenset(
    {
        "accelerate/fsdp2-no-sync-keeps-unsharded-gradients",  # closed_form/gradients.py
        "openrlhf/logsumexp-over-a-whole-sequence",  # closed_form/policy_logits.py, _openrlhf
        "torch/foreach-optimizer-two-temporaries",  # closed_form/optimizer_states.py
        "transformers/float32-logits-kept-as-output",  # closed_form/logits.py, logits (outputs_kept)
        "transformers/logits-upcast-without-labels",  # closed_form/policy_logits.py, casts
        "transformers/loss-shift-copies-logits",  # closed_form/logits.py, per_logit
        "trl/dpo-keeps-reference-logits",  # closed_form/logits.py, _dpo
        "trl/grpo-divides-logits-in-place",  # closed_form/policy_logits.py, _trl
        "verl/entropy-computed-when-unused",  # closed_form/policy_logits.py, _verl
    }
)
"""Regressions whose effect a formula of the estimate has already, by release or setting, with its module. Each makes a
difference to the estimate there, which is tested."""

ADDED = frozenset(
    {
        "deepspeed/hpz-secondary-shard",
        "deepspeed/persistence-threshold-above-layer-weights",
        "deepspeed/zero3-linear-weights-kept-for-backward",
        "flash-attn/deterministic-backward-splits-dq",
        "peft/dora-saves-a-weight-copy",
        "torch/flex-attention-uncompiled",
        "torch/fsdp1-mixes-frozen-and-trainable",
        "torch/hsdp-holds-reduce-scatter-outputs",
        "transformers/batched-mm-gathers-experts",
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


def lay_over(estimate: Estimate, findings: Iterable[Finding]) -> Regressed | None:
    """Add what is known to go wrong here to the phases of an estimate.

    Args:
        estimate: with phases.
        findings: of the same run; only certain ones, of regressions with a size on each rank's device, count.

    Returns:
        None when there are none, or a formula of the estimate has them already.
    """
    found = tuple(_without_same(_read(estimate, findings)))
    if not found or not estimate.phases:
        return None
    needed, phase = _raise(estimate, found)
    return Regressed(found, needed, phase, _judge(estimate, needed))


def include(estimate: Estimate, regressed: Regressed | None) -> Estimate:
    """Return an estimate with its known regressions as components of the phases they are in, so that peaks have them."""
    if regressed is None:
        return estimate

    def fill(phase: Phase) -> Phase:
        found = [one for one in regressed.regressions if one.adds and _is_in(one, phase)]
        parts = (
            Component(one.rule_id, "workspace", one.size, "known regression", one.rule_id, one.role) for one in found
        )
        return phase._replace(components=(*phase.components, *parts))

    return estimate._replace(phases=tuple(fill(phase) for phase in estimate.phases))


def find_deciding(estimate: Estimate, regressed: Regressed) -> frozenset[tuple[str, str]]:
    """Find the regressions without which a run fits, or may fit, and with which it does not.

    Returns:
        (rule, role) of each that alone makes it not fit, or without which all others leave it fitting.
    """
    if estimate.verdict.outcome not in {"fits", "marginal"}:
        return frozenset()

    def fits(regressions: Iterable[Regression]) -> bool:
        return _judge(estimate, _raise(estimate, regressions)[0]) != "does_not_fit"

    def decides(one: Regression) -> bool:
        others = [other for other in regressed.regressions if other is not one]
        return not fits([one]) or (fits(others) and not fits(regressed.regressions))

    return frozenset((one.rule_id, one.role) for one in regressed.regressions if decides(one))


def _raise(estimate: Estimate, regressions: Iterable[Regression]) -> tuple[Size, Phase]:
    """Return what the fullest phase needs with these regressions, and that phase."""
    found = tuple(regressions)
    raised = [
        (phase.needed + total(one.size for one in found if one.adds and _is_in(one, phase)), phase)
        for phase in estimate.phases
    ]
    needed = Size(*(max(bounds) for bounds in zip(*(size for size, _ in raised), strict=True)))
    return needed, max(raised, key=lambda pair: pair[0].expected)[1]


def _read(estimate: Estimate, findings: Iterable[Finding]) -> Iterable[Regression]:
    for finding in findings:
        impact = finding.impact
        if finding.kind != "regression" and finding.rule_id not in ADDED:
            continue
        if finding.status != "affected" or finding.suppressed is not None:
            continue
        if impact is None or not impact.expected_bytes or finding.rule_id in COUNTED:
            continue
        if impact.memory != "device" or impact.scope != "rank" or impact.effect != "memory":
            continue
        expected = impact.expected_bytes
        low, high = impact.low_bytes, impact.high_bytes
        size = Size(expected if low is None else low, expected, expected if high is None else high)
        one = Regression(finding.rule_id, finding.role, impact.phase, size, adds=True)
        yield one._replace(adds=any(_is_in(one, phase) for phase in estimate.phases))


def _without_same(found: Iterable[Regression]) -> Iterable[Regression]:
    """Leave out, of rules that keep the same tensors, all but the largest."""
    found = list(found)
    for one in found:
        others = [other for other in found if {one.rule_id, other.rule_id} <= GATHERED and other.role == one.role]
        if not others or one is max(others, key=lambda other: other.size.expected):
            yield one


def _is_in(one: Regression, phase: Phase) -> bool:
    phases = _ONWARD.get(one.phase, {one.phase})
    return (one.phase == WHOLE or phase.name in phases) and one.role == phase.role


def _judge(estimate: Estimate, needed: Size) -> str:
    """Judge the raised need by the rule of the estimate's own verdict; it is never better than that."""
    limit, before = estimate.verdict.limit_bytes, estimate.verdict.outcome
    if limit is None or before == "does_not_fit":
        return before
    if needed.low > limit:
        return "does_not_fit"
    return before if needed.high <= limit else "marginal"
