"""Loops of a script's own that train by accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.run_cli import run
from tests.unit.frameworks.python_script.test_changes import read

if TYPE_CHECKING:
    from pathlib import Path

_LOOP = """from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
accelerator = Accelerator(mixed_precision="bf16"{})
model = AutoModelForCausalLM.from_pretrained("gpt2")
model, loader = accelerator.prepare(model, loader)
for batch in loader:
    {}
"""
_BACKWARD = "accelerator.backward(model(**batch).loss)"


@pytest.mark.parametrize(
    ("given", "line", "framework"),
    [
        ("", _BACKWARD, "accelerate"),
        ("", "accelerator.print(model(**batch).loss)", None),
        ("", f"{_BACKWARD}\nTrainer(model, TrainingArguments('o')).train()", "hf_trainer"),
        (", fsdp_plugin=FullyShardedDataParallelPlugin()", _BACKWARD, None),
    ],
)
def test_a_loop_of_ones_own_has_the_traits_of_accelerate(
    tmp_path: Path, given: str, line: str, framework: str | None
) -> None:
    facts = read(tmp_path, _LOOP.format(given, line)).roles["train"]
    stated = facts.get("training.framework")
    assert (None if stated is None else stated.value) == framework
    assert ("program.uses_accelerate" in facts) is ("backward" in line)


@pytest.mark.parametrize(("stated", "steps"), [("8", "8"), ('"auto"', "4")])
def test_a_file_of_deepspeed_counts_before_what_the_accelerator_is_given(
    stated: str, steps: str, tmp_path: Path
) -> None:
    section = f'"gradient_accumulation_steps": {stated}, "train_micro_batch_size_per_gpu": 2'
    (tmp_path / "ds.json").write_text(f'{{"zero_optimization": {{"stage": 2}}, {section}}}')
    plugin = ", gradient_accumulation_steps=4, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config='ds.json')"
    script = tmp_path / "t.py"
    script.write_text("from accelerate import DeepSpeedPlugin\n" + _LOOP.format(plugin, _BACKWARD))
    told = " ".join(run("facts", str(script)).out.split())
    assert f"training.gradient_accumulation_steps = {steps} " in told
