"""CUDA's accounting before a model of its allocator: no healthy release is bad, and nothing holds less than nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.lab.environments.interpreter import Interpreter
from compatcheck.lab.environments.overlay import Overlays
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.probes import runner
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.probes.runner import Task, make_task, run_tasks

SIMULATED = Path(__file__).with_name("simulated_cuda.py")


def derived_sizes(name: str) -> list[dict[str, object]]:
    """Return the sizes of a probe at which tensors alone are counted, on one rank: the model sees nothing inside of operators."""
    probe = find_probe(name)
    needed = {"cpu", "cuda"} <= set(probe.module.BACKENDS) and set(probe.module.PACKAGES) <= {"torch"}
    tasks = [make_task(probe, size, "cpu") for size in probe.module.SIZES] if needed else []
    return [dict(one.parameters) for one in tasks if one.accounting == "storages" and one.world_size == 1]


TRANSFORMERS = ("attention_scores", "kv_cache", "logits_and_loss", "returned_attentions", "training_step")
TRL = ("trl_defaults_memory", "trl_dpo_loss", "trl_grpo_loss", "trl_sft_loss")
TORCH_ALONE = [name for name in probe_names() if derived_sizes(name)]


def measure(
    tasks: list[Task], interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch, *further: str
) -> list[Measurement]:
    def run(command: list[str], **options: object) -> object:
        python, entry, *files = command
        return plain([python, str(SIMULATED), entry, *files, *further], **options)

    plain = runner.run
    monkeypatch.setattr(runner, "run", run)
    kept: list[Measurement] = []
    run_tasks(tasks, interpreter, keep=lambda _, one: kept.append(one))
    return kept


@pytest.mark.parametrize("name", TORCH_ALONE)
def test_no_healthy_release_is_bad(name: str, overlays: Overlays, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [make_task(find_probe(name), size, "cuda") for size in derived_sizes(name)]
    check(measure(tasks, overlays.base.interpreter, monkeypatch))


@pytest.mark.versions
@pytest.mark.parametrize(
    ("requirements", "name"),
    [
        *((("transformers==5.23.0",), name) for name in TRANSFORMERS),
        *((("peft==0.19.1", "transformers==5.6.0"), name) for name in ("peft_lora_forward", "peft_target_parameters")),
        *((("trl==1.16.0", "transformers==5.20.1", "requests"), name) for name in TRL),
        (("trl==1.13.0", "transformers==5.24.0"), "trl_lm_head"),
    ],
)
def test_no_healthy_release_of_a_package_is_bad(
    requirements: tuple[str, ...], name: str, overlays: Overlays, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = find_probe(name)
    tasks = [make_task(probe, size, "cuda") for size in probe.module.SIZES]
    check(measure(tasks, overlays.open(requirements), monkeypatch))


def check(measured: list[Measurement]) -> None:
    assert measured
    for one in measured:
        verdict, value, predicted = find_probe(one.probe).judge(one)
        assert verdict == "good", (one.parameters, value, predicted, one.reason)
        assert all(phase.live_bytes >= 0 for phase in one.phases)


def test_what_the_first_product_leaves_would_be_seen_without_taking_it_first(
    overlays: Overlays, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = find_probe("autocast_cache")
    (one,) = measure([make_task(probe, {}, "cuda")], overlays.base.interpreter, monkeypatch, "cold")
    verdict, value, predicted = probe.judge(one)
    assert verdict in {"bad", "below"}, (value, predicted)
