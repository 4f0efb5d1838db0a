"""Known regressions that add memory to a run, laid over an estimate that knows nothing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import WHOLE, Regressed, Regression, Size, total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.core.estimate import Estimate, Phase
    from compatcheck.core.report import Finding

COUNTED = frozenset(
    {
        "accelerate/fsdp2-upcasts-frozen-weights",  # run.py, _read_precision
        "openrlhf/logsumexp-over-a-whole-sequence",  # closed_form/policy_logits.py, _openrlhf
        "torch/foreach-optimizer-two-temporaries",  # closed_form/optimizer_states.py
        "transformers/attention-output-kept-twice",  # closed_form/activations.py
        "transformers/causal-mask-always-materialised",  # closed_form/masks.py
        "transformers/eager-scores-in-float32",  # closed_form/activations.py
        "transformers/falcon-mask-always-materialised",  # closed_form/masks.py
        "transformers/float32-logits-kept-as-output",  # closed_form/logits.py, per_logit
        "transformers/logits-upcast-without-labels",  # closed_form/policy_logits.py, casts
        "transformers/loss-shift-copies-logits",  # closed_form/logits.py, per_logit
        "transformers/packed-mask-without-attention-mask",  # closed_form/masks.py
        "transformers/padding-mask-copied-per-layer",  # closed_form/masks.py
        "trl/dpo-keeps-reference-logits",  # closed_form/logits.py, _dpo
        "trl/grpo-divides-logits-in-place",  # closed_form/policy_logits.py, _trl
        "verl/entropy-computed-when-unused",  # closed_form/policy_logits.py, _verl
    }
)
"""Regressions whose effect a formula of the estimate has already, by release or setting, with its module."""


def lay_over(estimate: Estimate, findings: Iterable[Finding]) -> Regressed | None:
    """Add what is known to go wrong here to the phases of an estimate.

    Args:
        estimate: with phases.
        findings: of the same run; only certain ones, of regressions with a size on each rank's device, count.

    Returns:
        None when there are none, or a formula of the estimate has them already.
    """
    found = tuple(_read(estimate, findings))
    if not found or not estimate.phases:
        return None
    needed, phase = _raise(estimate, found)
    return Regressed(found, needed, phase, _judge(estimate, needed))


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
        if finding.kind != "regression" or finding.status != "affected" or finding.suppressed is not None:
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


def _is_in(one: Regression, phase: Phase) -> bool:
    return one.phase in {WHOLE, phase.name} and one.role == phase.role


def _judge(estimate: Estimate, needed: Size) -> str:
    """Judge the raised need by the rule of the estimate's own verdict; it is never better than that."""
    limit, before = estimate.verdict.limit_bytes, estimate.verdict.outcome
    if limit is None or before == "does_not_fit":
        return before
    if needed.low > limit:
        return "does_not_fit"
    return before if needed.high <= limit else "marginal"
