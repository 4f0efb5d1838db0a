"""Severity from size: a share of the memory it is taken from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.units import GIB

if TYPE_CHECKING:
    from compatcheck.core.report import FindingImpact

REFERENCE_DEVICE_BYTES = 80 * GIB
"""What a device finding is held against when the hardware is unknown; the report says so."""
REFERENCE_HOST_BYTES = 1024 * GIB
"""The same for host memory of one node."""

HIGH_SHARE = 0.10
MEDIUM_SHARE = 0.01


def rate(impact: FindingImpact, device_bytes: int | None, host_bytes: int | None) -> tuple[str, str | None]:
    """Rate an impact.

    Returns:
        The severity, and a remark when something was assumed to get it.
    """
    if impact.effect == "fails_to_start":
        return "critical", None
    expected = impact.expected_bytes
    if expected is None:
        if impact.effect != "memory":
            return "medium", None
        return "medium", "size unknown, rated medium"
    if expected <= 0:
        return "info", None
    known = device_bytes if impact.memory == "device" else host_bytes
    reference = known or (REFERENCE_DEVICE_BYTES if impact.memory == "device" else REFERENCE_HOST_BYTES)
    share = expected / reference
    level = "high" if share >= HIGH_SHARE else "medium" if share >= MEDIUM_SHARE else "low"
    remark = (
        None if known else f"rated against {reference // GIB} GiB of {impact.memory} memory: the hardware is unknown"
    )
    return level, remark
