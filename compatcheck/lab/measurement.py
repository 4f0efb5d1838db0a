"""What one run of a probe measured, and under which releases, parameters and back end."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUSES = ("ok", "failed", "timeout", "oom", "unsupported", "interrupted")
BACKENDS = ("fake", "cpu", "cuda")
UNKNOWN = "unknown"
"""Probe hash or accounting of a measurement that was taken before they were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMemory:
    """Memory over one phase of a training step, on one rank."""

    name: str
    """``load``, ``forward``, ``backward``, ``step`` or a name of the probe's own."""
    peak_allocated_bytes: int | None
    """Highest sum of live tensor bytes during the phase; on CUDA those requested of torch's allocator."""
    live_bytes: int
    """Live tensor bytes at its end, after a garbage collection."""
    peak_operator: str | None = None
    """The operator that ran when the peak was reached, as ``aten.mm.default``; None where nothing watched operators."""
    peak_reserved_bytes: int | None = None
    """CUDA only: ``torch.cuda.max_memory_reserved``."""
    device_used_bytes: int | None = None
    """CUDA only: used memory of the device as the driver counts it, other processes and contexts included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of one probe with one set of parameters in one environment."""

    probe: str
    probe_hash: str
    """First twelve digits of the SHA-256 of the probe's code, without its words: another code, another probe."""
    backend: str
    """``fake``, ``cpu`` or ``cuda``."""
    accounting: str
    """What was counted: ``storages`` of tensors, the CPU ``allocator`` (temporaries inside operators included), or ``cuda``."""
    parameters: Mapping[str, Any]
    versions: Mapping[str, str]
    """Distribution → installed version, and ``python``; commits and local trees have labels (`environments.installed`)."""
    device: str
    status: str
    environment: str | None = None
    """Twelve digits for all packages beside the interpreter's own, those included that ``versions`` leaves out."""
    phases: tuple[PhaseMemory, ...] = ()
    results: Mapping[str, float] = field(default_factory=dict)
    """Quantities the probe derived from the phases: bytes per logit, a slope over layers, a counter."""
    reason: str | None = None
    """Why there is no result, or what a reader must know about it."""
    command: str | None = None
    """How to run it again."""
    time: str | None = None
    """UTC, ISO 8601, seconds."""

    @property
    def succeeded(self) -> bool:
        """Whether there is a result."""
        return self.status == "ok"

    @property
    def beside_a_mode(self) -> bool:
        """Whether a mode watched operators beside a count that needs none: backward may be too high (docs/measuring.md)."""
        return self.accounting != "storages" and any(phase.peak_operator for phase in self.phases)

    def metric(self, name: str) -> float | None:
        """Return one quantity: a result's name, ``PHASE.peak_allocated_bytes``, ``PHASE.live_bytes``, or the highest peak."""
        if name in self.results:
            return self.results[name]
        if name == "peak_allocated_bytes":
            peaks = [phase.peak_allocated_bytes for phase in self.phases if phase.peak_allocated_bytes is not None]
            return max(peaks, default=None)
        wanted, _, attribute = name.rpartition(".")
        for phase in self.phases:
            if phase.name == wanted:
                value = getattr(phase, attribute, None)
                return value if isinstance(value, int) else None
        return None


def show_parameter(value: object) -> str:
    """Write the value of a parameter as ``--param`` reads it: ``4``, ``true``, ``null``, ``padding``."""
    return value if isinstance(value, str) else json.dumps(value)


def to_json(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as JSON data; what is None or empty is left out."""
    data = asdict(measurement)
    data["phases"] = [{name: value for name, value in phase.items() if value is not None} for phase in data["phases"]]
    return {name: value for name, value in data.items() if value not in (None, {}, [])}


def from_json(data: Mapping[str, Any]) -> Measurement:
    """Read what `to_json` wrote; the hash and accounting of a record that lacks them are ``unknown``.

    Raises:
        ValueError: a key is missing, unknown or of the wrong type.
    """
    if not isinstance(data, dict):
        msg = "a measurement is a mapping"
        raise ValueError(msg)  # noqa: TRY004 (what is malformed is one kind of error)
    known = {name: data[name] for name in Measurement.__slots__ if name in data}
    if unknown := set(data) - set(known):
        msg = f"no measurement has {', '.join(sorted(unknown))}"
        raise ValueError(msg)
    if known.get("status") not in STATUSES:
        msg = f"status {known.get('status')!r} is none of {', '.join(STATUSES)}"
        raise ValueError(msg)
    known = {name: value for name, value in known.items() if value is not None}
    known = {"probe_hash": UNKNOWN, "accounting": UNKNOWN, "parameters": {}, "versions": {}, **known}
    _check_types(known)
    try:
        phases = tuple(PhaseMemory(**{"peak_allocated_bytes": None, **phase}) for phase in known.pop("phases", ()))
        return Measurement(**known, phases=phases)
    except TypeError as error:
        raise ValueError(str(error)) from error


_TEXTS = ("probe", "probe_hash", "backend", "accounting", "device", "environment", "reason", "command", "time")


def _check_types(data: Mapping[str, Any]) -> None:
    """Refuse values of another type than a measurement holds.

    Raises:
        ValueError: naming the key.
    """
    for name in _TEXTS:
        if not isinstance(data.get(name) or "", str):
            msg = f"{name} must be text"
            raise ValueError(msg)  # noqa: TRY004 (see from_json)
    for name, wanted in (("parameters", object), ("versions", str), ("results", int | float)):
        values = data.get(name, {})
        if not isinstance(values, dict) or not all(isinstance(value, wanted) for value in values.values()):
            kind = {"parameters": "", "versions": " to text", "results": " to numbers"}[name]
            msg = f"{name} must map names{kind}"
            raise ValueError(msg)
    if not isinstance(data.get("phases", []), list | tuple):
        msg = "phases are a list"
        raise ValueError(msg)  # noqa: TRY004 (see from_json)
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        msg = "a text holds half a character"
        raise ValueError(msg) from None
    for phase in data.get("phases", []):
        numbers = [value for key, value in phase.items() if key.endswith("_bytes")] if isinstance(phase, dict) else [""]
        if not all(value is None or isinstance(value, int) for value in numbers):
            msg = "a phase is a mapping with bytes as whole numbers"
            raise ValueError(msg)
