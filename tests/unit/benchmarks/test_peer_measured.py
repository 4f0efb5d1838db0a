"""Runs whose peak a script measured are put to peers as they ran."""

from benchmarks.peers.measured import read_measured


def test_each_run_with_a_peak_is_asked_once_by_what_was_measured_first():
    runs = [run for run, _ in read_measured()]
    assert len(runs) == len({run.case for run in runs}) >= 120
    assert {run.peak.kind for run in runs} == {"allocated", "reserved", "device"}
    assert all(run.shape is not None or run.inexpressible for run in runs)


def test_a_run_keeps_its_adapter_weights_and_attention():
    runs = {run.case: run for run, _ in read_measured()}
    eager = next(run for run in runs.values() if run.group.startswith("fitcheck") and run.attention == "eager")
    assert (eager.adapter.kind, eager.weights, eager.recompute) == ("lora", "bf16", "full")
    titan = runs["torchtitan benchmark 2024-12: table 2: context 8"]
    assert (titan.tokens, titan.weights, titan.sharding) == (262144 // 8, "fp32", "fsdp")
