"""One measurement for a terminal."""

from compatcheck.lab.measurement import Measurement, PhaseMemory
from compatcheck.lab.reporters.measurement import format_measurement

LONG = "_scaled_dot_product_flash_attention_for_cpu_backward.with_a_long_overload_name"


def test_an_operator_is_never_cut():
    phases = (
        PhaseMemory(name="forward", peak_allocated_bytes=10, live_bytes=5, peak_operator="aten.mm.default"),
        PhaseMemory(name="backward", peak_allocated_bytes=10, live_bytes=5, peak_operator=LONG),
    )
    measurement = Measurement(
        probe="masks",
        probe_hash="0",
        backend="cpu",
        accounting="storages",
        parameters={"use_cache": False, "mask": "none", "use_reentrant": None},
        versions={"torch": "2.13.0"},
        device="x86_64 CPU",
        status="ok",
        phases=phases,
    )
    text = format_measurement(measurement, predictions={}, metric="mask_bytes", verdict="good")
    assert f"\n    {LONG}\n" in text
    assert "5 B  aten.mm.default\n" in text
    assert max(map(len, text.splitlines())) <= 82
    assert "use_cache=false mask=none use_reentrant=null" in text
