"""Severity from size: a share of the memory it is taken from."""

from __future__ import annotations

from compatcheck.core.units import GIB, format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.core.report import FindingImpact

REFERENCE_DEVICE_BYTES = 80 * GIB
"""What a device finding is held against when the hardware is unknown; the report says so."""
REFERENCE_HOST_BYTES = 1024 * GIB
"""The same for host memory of one node."""

HIGH_SHARE = 0.10
MEDIUM_SHARE = 0.01


TRANSIENT = frozenset({"load", "save"})
"""Phases that pass before or beside training: host memory that only they take is given back."""


def rate(
    impact: FindingImpact,
    device_bytes: int | None,
    host_bytes: int | None,
    worst: int | None = None,
    *,
    regression: bool = False,
) -> tuple[str, str | None]:
    """Rate an impact.

    Args:
        impact: with its size, where it is known.
        device_bytes: memory of one device, where it is known.
        host_bytes: memory of one node, likewise.
        worst: the most it can be in bytes, where its size is not known.
        regression: whether a release is at fault: then what nothing bounds does not read as little.

    Returns:
        The severity, and a remark when something was assumed to get it.
    """
    if impact.effect == "fails_to_start":
        return "critical", None
    size = worst if impact.expected_bytes is None else impact.expected_bytes
    if size is None:
        if impact.effect != "memory":  # time alone stops no run
            return "low" if impact.effect == "slower" else "medium", None
        if impact.memory == "host":
            return "low", "size unknown: memory of the host, which no device runs out of"
        open_ones = f" without {', '.join(impact.needs)}" if impact.needs else ""
        return "medium" if regression else "low", f"size unknown, and nothing known bounds it{open_ones}"
    if size <= 0:
        return "info", None
    known = device_bytes if impact.memory == "device" else host_bytes
    reference = known or (REFERENCE_DEVICE_BYTES if impact.memory == "device" else REFERENCE_HOST_BYTES)
    share = size / reference
    level = "high" if share >= HIGH_SHARE else "medium" if share >= MEDIUM_SHARE else "low"
    if impact.memory == "host" and impact.phase in TRANSIENT:
        return "low", None
    if impact.expected_bytes is None:
        between = impact.low_bytes is not None and impact.high_bytes is not None
        return level, f"{'' if between else 'size unknown, '}rated by the {format_bytes(size)} that it is at most"
    unknown = "the device's memory" if impact.memory == "device" else "the node's main memory"
    return level, None if known else f"rated against {reference // GIB} GiB: {unknown} is unknown"
