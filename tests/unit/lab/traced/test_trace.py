"""An estimate from a traced step: components and phases, what is refused, and bytes equal to those of real tensors."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.core.errors import CompatcheckError
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.traced.request import Untraceable, make_request
from compatcheck.lab.traced.trace import PROGRAM, WORKER, Trace, conclude, run_program, trace
from compatcheck.memory.closed_form.context import CONTEXT, nccl_buffers
from tests.unit.lab.traced.measure_traces import (
    ADAPTERS,
    CONFIGURATIONS,
    DEFAULTS,
    FOLDER,
    LLAMA,
    measure,
    open_runtime,
    same,
)

if TYPE_CHECKING:
    from compatcheck.core.estimate import Phase
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.traced.trace import Runtime

MIB = 2**20
NEWEST = "5.23.0"
SIZES = {"training.micro_batch_size": 2, "training.sequence_length": 128}
QWEN_500M = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
LLAMA_7B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def tensor(size: int, operator: str = "aten.mm.default", module: str = "model.layers.0") -> dict[str, Any]:
    return {"bytes": size, "shape": [size // 2], "dtype": "bfloat16", "operator": operator, "module": module}


def phase(name: str, **components: int) -> dict[str, Any]:
    total = sum(components.values())
    parts = {part: {"bytes": size, "largest": [tensor(size)]} for part, size in components.items()}
    return {"name": name, "peak_bytes": total, "operator": "aten.mm.default", "components": parts, "peak": tensor(7)}


def result() -> dict[str, Any]:
    """Weights of 3,000 MiB, 1,000 of them loaded twice; 2,000 MiB of activations; as much again while going back."""
    return {
        "events": [
            *((0, 3000 * MIB, 0), (1, 1000 * MIB, 0), (1, 0, 0), (2, 2000 * MIB, 0)),
            *((3, 2000 * MIB, 0), (3, 0, 0), (2, 0, 0)),
        ],
        "marks": [(0, "load"), (3, "forward"), (4, "backward")],
        "phases": [
            phase("load", parameters=3000 * MIB, temporaries=1000 * MIB),
            phase("forward", parameters=3000 * MIB, activations=2000 * MIB),
            phase("backward", parameters=3000 * MIB, activations=2000 * MIB, temporaries=2000 * MIB),
        ],
        "notes": {"trainable_parameters": 15 * MIB, "trainable_bytes": 60 * MIB, "attention_kernels": {"efficient": 2}},
        "versions": {"torch": "2.13.0"},
    }


def concluded(**facts: Any) -> Trace:
    stated = {**SIZES, **{name.replace("__", "."): value for name, value in facts.items()}}
    request = make_request(stated, LLAMA)
    assert not isinstance(request, Untraceable)
    return conclude(result(), request, stated)


def inside(phase_: Phase) -> int:
    """Return what is in the allocator."""
    return sum(part.size.expected for part in phase_.components if part.kind not in {"context", "other"})


def test_components_add_up_to_what_the_allocator_reports() -> None:
    found = concluded()
    assert [(phase_.name, inside(phase_)) for phase_ in found.estimate.phases] == [
        ("load", 4000 * MIB),
        ("forward", 6000 * MIB),  # 2,000 MiB are not served from the cached 1,000
        ("backward", 8000 * MIB),
    ]
    assert found.estimate.allocated.expected == 7000 * MIB
    assert found.estimate.reserved.expected == 8000 * MIB
    assert found.estimate.device.expected == 8000 * MIB + CONTEXT.expected
    assert found.timeline[-1] == (4, 7000 * MIB, 8000 * MIB)
    assert "efficient attention" in {part.name.partition("of ")[2] for part in found.estimate.unmodelled}


def test_the_tensor_that_makes_the_peak_is_named() -> None:
    peak = concluded().peaks[-1]
    assert (peak.phase, peak.bytes, peak.operator) == ("backward", 7000 * MIB, "aten.mm.default")
    assert (peak.tensor_bytes, peak.module) == (7, "model.layers.0")


def test_buckets_of_several_ranks_are_there_from_the_first_forward_pass() -> None:
    found = concluded(hardware__world_size=2)
    assert found.estimate.allocated.expected == (7000 + 25 + 25 + 10) * MIB, "two whole buckets and the rest"
    (buckets,) = (part for part in found.estimate.phases[1].components if part.kind == "communication")
    assert buckets.size.expected == 4 * 15 * MIB
    names = [{part.name for part in phase_.components} for phase_ in found.estimate.phases]
    assert ["gradient buckets of DDP" in found for found in names] == [False, True, True]
    assert (
        found.estimate.device.expected - found.estimate.reserved.expected == CONTEXT.expected + nccl_buffers(2).expected
    )


def test_a_sharded_model_is_not_loaded_whole() -> None:
    found = concluded(training__sharding="fsdp", training__fsdp_version=2, hardware__world_size=2)
    assert [phase_.name for phase_ in found.estimate.phases] == ["forward", "backward"]
    assert found.estimate.reserved.expected == 7000 * MIB, "the 1,000 MiB that loading took are not there"


@pytest.mark.parametrize(
    ("memory", "outcome"),
    [(9000 * MIB, "fits"), (8100 * MIB, "marginal"), (7100 * MIB, "does_not_fit"), (None, "unknown")],
)
def test_the_verdict_is_a_replay_on_a_device_of_that_size(memory: int | None, outcome: str) -> None:
    verdict = concluded(hardware__memory_bytes=memory).estimate.verdict
    assert (verdict.outcome, verdict.limit_bytes) == (outcome, memory)
    assert verdict.primary == "parameters"


def test_other_processes_leave_less() -> None:
    crowded = {"hardware__memory_bytes": 9000 * MIB, "run__other_resident_bytes": 2000 * MIB}
    assert concluded(**crowded).estimate.verdict.outcome == "does_not_fit"


def test_expandable_segments_reserve_less() -> None:
    found = concluded(allocator__expandable_segments=True)
    assert [phase_.reserved for phase_ in found.replay.phases] == [4000 * MIB, 5000 * MIB, 7000 * MIB]


def test_an_interpreter_that_does_not_run_is_a_reason() -> None:
    found = trace(SIZES, config=LLAMA, python="/nowhere/python")
    assert isinstance(found, Untraceable)
    assert "could not be started" in found.reason


def recorded(release: str) -> dict[str, dict[str, Measurement]]:
    found: dict[str, dict[str, Measurement]] = {}
    for one in read_measurements(str(FOLDER / f"transformers-{release}.jsonl")):
        found.setdefault(json.dumps(one.parameters, sort_keys=True), {})[one.backend] = one
    return found


@pytest.mark.parametrize(("release", "number"), [("4.45.2", 39), ("4.57.6", 42), (NEWEST, 46)])
def test_recorded_traces_are_equal_to_what_real_tensors_took(release: str, number: int) -> None:
    pairs = recorded(release)
    assert len(pairs) == number
    assert [name for name, pair in pairs.items() if not same(pair["fake"], pair["cpu"])] == []
    assert all(pair["cpu"].succeeded and len(pair["cpu"].phases) == 4 for pair in pairs.values())


def describe_configuration(configuration: dict[str, Any]) -> str:
    """Return a configuration as the page has it: the model type and what differs from the defaults."""
    changed = {name: value for name, value in configuration.items() if name != "config"}
    tied = ["tied"] if configuration["config"].get("tie_word_embeddings") else []
    dropping = ["dropout"] if configuration["config"].get("resid_pdrop") else []
    if isinstance(lora := changed.pop("lora", None), dict):
        changed.update({"lora_" + name if name == "r" else name: value for name, value in lora.items()})
    texts = [f"{name}={'+'.join(value) if isinstance(value, list) else value}" for name, value in changed.items()]
    return " ".join([configuration["config"]["model_type"], *tied, *dropping, *texts])


def test_the_page_has_the_recorded_peaks() -> None:
    page = (FOLDER.parents[2] / "docs" / "traced.md").read_text(encoding="utf-8")
    for configuration in CONFIGURATIONS:
        cells = []
        for release in sorted(ADAPTERS):
            pair = recorded(release).get(json.dumps(configuration, sort_keys=True))
            peaks = [phase.peak_allocated_bytes or 0 for phase in pair["cpu"].phases] if pair else []
            cells.append(f"{max(peaks):,}" if peaks else "–")
        assert f"| {describe_configuration(configuration)} | {' | '.join(cells)} |" in page


def runtime(release: str = NEWEST) -> Runtime:
    try:
        return open_runtime(release)
    except CompatcheckError as error:
        pytest.skip(f"{error}; name an interpreter with torch in COMPATCHECK_TEST_PYTHON")


def check(configurations: list[dict[str, Any]], release: str) -> None:
    """Measure again; both must be as they were recorded, where they were."""
    known = recorded(release)
    for fake, real in measure(configurations, runtime(release)):
        before = known.get(json.dumps(fake.parameters, sort_keys=True))
        assert fake.succeeded == (before is not None), (fake.parameters, fake.reason)
        if before is not None:
            assert same(fake, real), fake.parameters
            assert (fake.phases, real.phases) == (before["fake"].phases, before["cpu"].phases), fake.parameters


@pytest.mark.versions
@pytest.mark.ci
def test_three_configurations_are_traced_to_the_byte() -> None:
    check([CONFIGURATIONS[0], CONFIGURATIONS[20], CONFIGURATIONS[33]], NEWEST)


@pytest.mark.versions
@pytest.mark.slow
@pytest.mark.parametrize("release", sorted(ADAPTERS))
def test_all_configurations_are_traced_to_the_byte(release: str) -> None:
    check(list(CONFIGURATIONS), release)


FLAT = {"version": 1, "strategy": "full_shard", "use_orig_params": True, "wraps_frozen_apart": False}
EACH = {"version": 2, "reshard_after_forward": True}
CHECKPOINTING = {"gradient_checkpointing": True, "use_reentrant": False}
ACCUMULATING = {"micro_batches": 2}
FROZEN = {
    "lora": {"r": 8, "target_modules": ["q_proj", "v_proj"], "autocast_adapter_dtype": False},
    "dtype": "bfloat16",
}


@pytest.mark.versions
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharding", "changed", "count"),
    [
        (EACH, {}, 2),
        (EACH, {}, 4),
        (EACH, CHECKPOINTING, 2),
        (EACH, CHECKPOINTING, 4),
        ({**EACH, "no_sync": True}, ACCUMULATING, 2),
        (FLAT, {}, 2),
        (FLAT, {}, 4),
        (FLAT, CHECKPOINTING, 2),
        (FLAT, {"autocast": "bfloat16", "outputs_to_float32": True}, 2),
        (
            {**FLAT, "use_orig_params": False, "wraps_frozen_apart": True, "no_sync": True},
            {**FROZEN, **ACCUMULATING, **CHECKPOINTING, "dtype": "float32", "autocast": "bfloat16"},
            2,
        ),
        ({**FLAT, "strategy": "shard_grad_op"}, {}, 2),
        ({**FLAT, "strategy": "shard_grad_op"}, {}, 4),
        ({**FLAT, "no_sync": True, "param_dtype": None, "reduce_dtype": None}, {**FROZEN, **ACCUMULATING}, 2),
    ],
)
def test_a_sharded_step_is_traced_as_real_ranks_take_it(
    sharding: Any, changed: Any, count: int, tmp_path: Path
) -> None:
    interpreter = runtime()
    sharding = {"world_size": count, "param_dtype": "bfloat16", "reduce_dtype": "float32", "no_sync": False, **sharding}
    request = {**DEFAULTS, "config": LLAMA, "dtype": "float32", **changed, "fsdp": sharding}
    (fake,) = run_program([{**request, "backend": "fake", "accounting": "tracker"}], interpreter)
    real = {**request, "backend": "cpu", "accounting": "storages", "fsdp": {**sharding, "real": True}}
    asked = tmp_path / "requests.json"
    asked.write_text(json.dumps({"worker": str(WORKER), "requests": [real]}), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [interpreter.python, str(PROGRAM), str(asked), str(tmp_path / f"{rank}.json")],
            env={
                **interpreter.environment(),
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
        )
        for rank in range(count)
    ]
    try:
        assert [rank.wait(timeout=300) for rank in ranks] == [0] * count
    finally:
        for rank in ranks:
            rank.kill()
    (found,) = json.loads((tmp_path / "0.json").read_text(encoding="utf-8"))
    assert (fake["status"], found["status"]) == ("ok", "ok"), (fake["reason"], found["reason"])
    numbers = [
        [(phase["name"], phase["peak_bytes"], phase["live_bytes"], phase["operator"]) for phase in one["phases"]]
        for one in (fake, found)
    ]
    assert numbers[0] == numbers[1]
    assert len({stream for _, _, stream in fake["events"]}) > 1, "gathers have streams of their own"


@pytest.mark.versions
@pytest.mark.slow
def test_a_mask_costs_the_efficient_kernel_a_copy_in_every_layer() -> None:
    facts = {"training.micro_batch_size": 4, "training.sequence_length": 1024, "model.use_cache": False}
    found = {}
    for mask in ("none", "padding"):
        traced = trace({**facts, "run.attention_mask": mask}, config=QWEN_500M, python=runtime())
        assert isinstance(traced, Trace), traced
        found[mask] = traced
        for phase_ in traced.estimate.phases:
            known = sum(part.size.expected for part in phase_.components if part.kind not in {"reserve", "context"})
            assert known == next(one.allocated for one in reversed(traced.replay.phases) if one.name == phase_.name)
    assert found["none"].notes["attention_kernels"] == {"flash": 48}
    assert found["padding"].notes["attention_kernels"] == {"efficient": 48}
    (masks,) = (part for part in found["padding"].estimate.phases[1].components if part.name == "masks")
    # transformers makes one of booleans; the kernel wants one in the dtype of the queries and keeps it, layer by layer
    assert masks.size.expected >= 24 * 2 * 4 * 1024**2


@pytest.mark.versions
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # GiB at 4096 tokens, as another tracker of live storages had counted them before this one was written; with eager
        # attention 2 GiB more, which CUDA's gradient of softmax takes inside (4 B × 32 heads × 4096²).
        ({}, {"backward": 62.01, "step": 62.76}),
        ({"training.optimizer_implementation": "fused"}, {"backward": 62.01, "step": 50.21}),
        ({"training.gradient_checkpointing": True}, {"backward": 50.61, "step": 62.76}),
        ({"model.attn_implementation": "eager"}, {"backward": 161.47, "step": 62.76}),
    ],
    ids=["flash", "fused", "checkpointing", "eager"],
)
def test_seven_billion_parameters_take_what_they_are_known_to_take(
    changed: dict[str, Any], expected: dict[str, float]
) -> None:
    facts = {
        "training.micro_batch_size": 1,
        "training.sequence_length": 4096,
        "model.use_cache": False,
        "run.attention_mask": "none",
        "model.attn_implementation": "sdpa",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = trace({**facts, **changed}, config=LLAMA_7B, python=runtime())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert isinstance(found, Trace), found
    workspaces = 2 * 8_519_680
    for name, gibibytes in expected.items():
        (peak,) = (one for one in found.peaks if one.phase == name)
        assert (peak.bytes - workspaces) / 2**30 == pytest.approx(gibibytes, abs=0.006)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15
    assert after.ru_maxrss * 1024 < 2**30


@pytest.mark.versions
@pytest.mark.slow
def test_what_cannot_be_traced_says_why() -> None:
    interpreter = runtime()
    unknown = trace(SIZES, config={"model_type": "no_such_model"}, python=interpreter)
    assert isinstance(unknown, Untraceable)
    assert "no_such_model" in unknown.reason
    optimizer = trace({**SIZES, "training.optimizer": "adamw_8bit"}, config=LLAMA, python=interpreter)
    assert isinstance(optimizer, Untraceable)
    assert "adamw_8bit" in optimizer.reason
    remote = trace(SIZES, config={**LLAMA, "auto_map": {"AutoModel": "x.Y"}}, python=interpreter)
    assert isinstance(remote, Untraceable)
    assert "auto_map" in remote.reason


def test_an_interpreter_without_torch_says_so() -> None:
    program = os.path.join(sys.base_prefix, "bin", "python3")
    if (
        not os.path.exists(program)
        or not subprocess.run([program, "-c", "import torch"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no interpreter without torch")
    found = trace(SIZES, config=LLAMA, python=program)
    assert isinstance(found, Untraceable)
    assert "no torch" in found.reason
