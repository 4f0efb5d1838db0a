"""A training step on fake tensors against the same on real ones: bytes of every phase, decisions, two independent counters."""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.core.errors import CompatcheckError, UsageError
from compatcheck.lab.environments.overlay import Base, Overlays, build_base
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task, run_tasks
from compatcheck.lab.probes.script import make_script
from compatcheck.rules.vocabulary import vocabulary

if TYPE_CHECKING:
    from compatcheck.lab.measurement import Measurement

NEWEST = "5.23.0"
RELEASES = ("4.45.2", "4.57.6", NEWEST)
DENSE = (
    *("llama", "mistral", "qwen2", "gemma", "gemma2", "phi3"),
    *("gpt2", "gpt_neox", "opt", "falcon", "stablelm", "cohere"),
)
MOE = ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss")
VARIANTS: tuple[dict[str, Any], ...] = (
    *({"model_type": type_, "mask": mask} for type_ in DENSE for mask in ("none", "ones")),
    *({"model_type": type_, "mask": "padding"} for type_ in ("llama", "phi3", "opt", "bert", "bart")),
    {"model_type": "bert", "mask": "none"},
    {"model_type": "llama", "attn_implementation": "eager"},
    {"model_type": "llama", "gradient_checkpointing": True},
    {"model_type": "qwen2", "gradient_checkpointing": True, "use_reentrant": True},
    {"model_type": "llama", "use_cache": True, "mask": "none", "steps": 2},
)
EXPERTS: tuple[dict[str, Any], ...] = (
    *({"model_type": type_, "mask": mask, "routing": "model"} for type_ in MOE for mask in ("none", "ones")),
    *({"model_type": type_, "experts_implementation": "eager"} for type_ in MOE),
    *({"model_type": type_, "experts_implementation": "eager", "routing": "skewed"} for type_ in MOE),
    {"model_type": "mixtral", "experts_implementation": "eager", "gradient_checkpointing": True},
    {"model_type": "mixtral", "experts_implementation": "batched_mm"},
)
SEVEN_BILLION = {
    "batch": 1,
    "sequence": 4096,
    "hidden_size": 4096,
    "layers": 32,
    "heads": 32,
    "kv_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
PROBE = find_probe("training_step")


@pytest.mark.parametrize(("optimizer", "copies"), [("adamw", 4), ("sgd", 2)])
def test_parameters_gradients_and_moments_are_predicted(optimizer: str, copies: int) -> None:
    assert PROBE.module.predict(PROBE.complete({"optimizer": optimizer})) == {"parameter_copies": copies}


@pytest.mark.parametrize("parameters", [{}, *PROBE.module.SIZES, *EXPERTS[:1]])
def test_facts_are_names_of_the_vocabulary(parameters: dict[str, Any]) -> None:
    assert set(PROBE.module.facts(PROBE.complete(parameters))) <= set(vocabulary())


@pytest.mark.parametrize("backend", ["fake", "cpu"])
def test_the_script_has_the_decisions_in_it(backend: str) -> None:
    text = make_script(make_task(PROBE, {}, backend))
    compile(text, "script.py", "exec")
    assert "class Decisions:" in text
    assert ("with FakeTensorMode(), accounting:" in text) == (backend == "fake")


@functools.cache
def overlays() -> Overlays:
    stated = os.environ.get("COMPATCHECK_TEST_PYTHON")
    try:
        return Overlays(Base(stated or sys.executable))
    except UsageError:
        pass
    try:
        return Overlays(build_base("2.13.0+cpu"))
    except CompatcheckError as error:
        pytest.skip(f"{error}; name an interpreter with torch in COMPATCHECK_TEST_PYTHON")


def measure(release: str, variants: tuple[dict[str, Any], ...], backend: str) -> list[Measurement]:
    """Measure all variants in one process."""
    found: list[Measurement] = []
    interpreter = overlays().open([f"transformers=={release}"])
    tasks = [make_task(PROBE, variant, backend) for variant in variants]
    run_tasks(tasks, interpreter, keep=lambda _, result: found.append(result))
    return found


def differences(release: str, variants: tuple[dict[str, Any], ...]) -> list[Any]:
    """Return what differs in bytes of any phase, results or decisions; a type that a release lacks must be lacking on both."""
    pairs = zip(variants, measure(release, variants, "fake"), measure(release, variants, "cpu"), strict=True)
    return [
        (variant, fake.status, fake.reason, fake.phases, cpu.status, cpu.reason, cpu.phases)
        for variant, fake, cpu in pairs
        if (fake.status, fake.reason, fake.phases, fake.results) != (cpu.status, cpu.reason, cpu.phases, cpu.results)
        or fake.status != "ok"
        or PROBE.judge(fake)[0] != "good"
    ]


@pytest.mark.versions
@pytest.mark.ci
def test_two_types_are_equal_to_the_byte() -> None:
    variants = tuple({"model_type": type_, "mask": mask} for type_ in ("llama", "gpt2") for mask in ("none", "ones"))
    assert differences(NEWEST, variants) == []


@pytest.mark.versions
@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_dense_types_are_equal_to_the_byte(release: str) -> None:
    assert differences(release, VARIANTS) == []


@pytest.mark.versions
@pytest.mark.slow
def test_mixtures_of_experts_are_equal_to_the_byte() -> None:
    assert differences(NEWEST, EXPERTS) == []


@pytest.mark.versions
@pytest.mark.slow
def test_what_cannot_be_traced_names_the_operator() -> None:
    variant = {"model_type": "mixtral", "experts_implementation": "eager", "routing": "model"}
    (found,) = measure(NEWEST, (variant,), "fake")
    assert found.status == "unsupported"
    assert "aten.nonzero.default" in (found.reason or "")


@pytest.mark.versions
@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "inside_operators"),
    [
        ({"sequence": 256, "optimizer": "sgd"}, 0),
        ({"sequence": 256, "optimizer": "sgd", "model_type": "mixtral", "experts_implementation": "eager"}, 0),
        # Scalars that foreach kernels take and give back inside, which only the allocator sees.
        ({"model_type": "qwen2"}, 10),
    ],
)
def test_other_counters_see_the_same_peak(parameters: dict[str, Any], inside_operators: int) -> None:
    interpreter = overlays().open([f"transformers=={NEWEST}"])
    runs = [("fake", "own"), ("fake", "memtracker"), ("cpu", "own"), ("cpu", "memtracker"), ("cpu", "profiler")]
    request = {
        "worker": str(Path(PROBE.path).parents[1]),
        "probe": PROBE.path,
        "parameters": PROBE.complete(parameters),
        "runs": runs,
    }
    script = Path(__file__).with_name("witness.py")
    done = subprocess.run(
        [interpreter.python, str(script), json.dumps(request)],
        env=interpreter.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *storages, allocator = json.loads(done.stdout.splitlines()[-1])
    assert set(storages) == {storages[0]}
    assert allocator == storages[0] + inside_operators


@pytest.mark.versions
@pytest.mark.slow
def test_seven_billion_parameters_take_seconds_and_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    (found,) = measure(NEWEST, (SEVEN_BILLION,), "fake")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.succeeded, found.reason
    assert found.results["parameters"] == 6_738_415_616
    # Parameters, gradients and both moments in bfloat16, step counters, the temporary of the size of the parameters, inputs.
    assert found.metric("step.peak_allocated_bytes") == pytest.approx(10 * 6_738_415_616, rel=1e-5)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15
    assert after.ru_maxrss * 1024 < 2**30
