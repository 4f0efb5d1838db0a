"""A measurement to vary, and measurements drawn at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from compatcheck.lab.measurement import BACKENDS, STATUSES, Measurement, PhaseMemory

BASE = Measurement(
    probe="zero3_release",
    probe_hash="0123456789ab",
    backend="cpu",
    accounting="allocator",
    parameters={"world_size": 2, "layers": 12, "checkpointing": "non-reentrant"},
    versions={"deepspeed": "0.16.7", "torch": "2.13.0+cpu", "python": "3.11.7"},
    device="x86_64 CPU, gloo",
    status="ok",
    phases=(PhaseMemory(name="backward", peak_allocated_bytes=142753685, live_bytes=138486473),),
    results={"kept_bytes": 25440256},
    command="compatcheck probe run zero3_release --backend cpu",
    time="2026-11-21T05:40:00+00:00",
)


def measurement(**changes: Any) -> Measurement:
    """Return the measurement with changes."""
    return Measurement(**{**{name: getattr(BASE, name) for name in Measurement.__slots__}, **changes})


words = st.text(st.sampled_from("ab_-.0é\n\"'🎉"), min_size=1, max_size=8)
values = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), words, st.lists(words, max_size=2))
phases = st.builds(
    PhaseMemory,
    name=words,
    peak_allocated_bytes=st.none() | st.integers(0, 2**50),
    live_bytes=st.integers(0, 2**50),
    peak_operator=st.none() | words,
)
measurements = st.builds(
    Measurement,
    probe=st.sampled_from(["a", "b"]),
    probe_hash=st.sampled_from(["0123456789ab", "unknown"]),
    backend=st.sampled_from(BACKENDS),
    accounting=st.sampled_from(["storages", "allocator"]),
    parameters=st.dictionaries(
        st.sampled_from(["x", "y", "config"]), values | st.dictionaries(words, values, max_size=2)
    ),
    versions=st.dictionaries(
        st.sampled_from(["torch", "peft", "python"]), st.sampled_from(["1.0", "2.13.0+cpu", "0.9"])
    ),
    device=words,
    status=st.sampled_from(STATUSES),
    phases=st.lists(phases, max_size=2).map(tuple),
    results=st.dictionaries(
        words, st.integers(-5, 2**50) | st.floats(allow_nan=False, allow_infinity=False), max_size=2
    ),
    reason=st.none() | words,
    command=st.none() | words,
    time=st.none() | st.sampled_from(["2026-11-21T05:40:00+00:00", "2026-11-22T00:00:00+00:00"]),
)
