"""A real Trainer and a real loop of accelerate, checked before their first step and measured."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.lab.environments.overlay import Overlays

MODEL = """
import json, logging, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM

logging.basicConfig(level=logging.INFO, format="%(message)s")
sizes = dict(hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", vocab_size=8000, **sizes))
settings = json.loads(sys.argv[1])
"""
TRAINER = (
    MODEL
    + """
from transformers import Trainer, TrainingArguments
from compatcheck.integrations.trainer import MemoryCallback

data = [{"input_ids": torch.randint(0, 8000, (256,)), "labels": torch.randint(0, 8000, (256,))} for _ in range(8)]
options = dict(max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True, save_strategy="no")
callback = MemoryCallback(count_storages=True, stop="hardware.memory_bytes" in settings, settings=settings)
Trainer(model, TrainingArguments("out", **options), train_dataset=data, callbacks=[callback]).train()
print(open("out/compatcheck.json").read())
"""
)
LOOP = (
    MODEL
    + """
from accelerate import Accelerator
from compatcheck.integrations.accelerator import watch

accelerator = Accelerator(cpu=True)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
options = dict(micro_batch_size=4, sequence_length=256, settings=settings, stop="hardware.memory_bytes" in settings)
with watch(accelerator, model, optimizer, count_storages=True, **options) as watched:
    for _ in range(2):
        tokens = torch.randint(0, 8000, (4, 256))
        accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
        optimizer.step()
        optimizer.zero_grad()
print(json.dumps(watched.record(), indent=1))
"""
)


def run(script: str, folder: Path, overlays: Overlays, settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    interpreter = overlays.open(["transformers==5.23.0", "accelerate==1.15.0"])
    paths = (*interpreter.paths, str(ROOT), sysconfig.get_path("purelib"))
    return subprocess.run(
        [interpreter.python, "-c", script, json.dumps(settings)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.versions
@pytest.mark.ci
@pytest.mark.parametrize("script", [TRAINER, LOOP], ids=["Trainer", "accelerate"])
def test_the_peak_is_set_beside_the_estimate(script: str, tmp_path: Path, overlays: Overlays) -> None:
    done = run(script, tmp_path, overlays, {})
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout[done.stdout.index("{\n") :])
    estimated, measured = record["estimated_bytes"], record["measured_bytes"]
    assert record["findings"] == []
    assert measured["counted"] == "storages"
    assert measured["allocated"] == pytest.approx(estimated["expected"], rel=0.2)
    assert "compatcheck: peak " in done.stderr


@pytest.mark.versions
@pytest.mark.ci
@pytest.mark.parametrize("script", [TRAINER, LOOP], ids=["Trainer", "accelerate"])
def test_a_run_that_does_not_fit_stops_before_its_first_step(script: str, tmp_path: Path, overlays: Overlays) -> None:
    done = run(script, tmp_path, overlays, {"hardware.memory_bytes": 16 << 20})
    assert done.returncode == 1
    assert "FailsError: FAILS: 1 finding" in done.stderr
    assert "_stack/run-does-not-fit" in done.stderr
