"""Adapters that a model of transformers takes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.frameworks.python_script.test_read import facts, read

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from peft import LoraConfig, PeftModel, get_peft_model
model = AutoModelForCausalLM.from_pretrained("m")
{}
Trainer(model=model, args=TrainingArguments("out"), train_dataset=ds).train()
"""


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("model.add_adapter(LoraConfig(r=16))", True),
        ("model.add_adapter(adapter_config=LoraConfig(r=16), adapter_name='a')", True),
        ("config = LoraConfig(r=16)\nmodel.add_adapter(config)", True),
        ("model = get_peft_model(model, LoraConfig(r=16))", False),
        ("pass", False),
        ("model = get_peft_model(model, LoraConfig(r=16))\nmodel.add_adapter('b', LoraConfig(r=8))", None),
        ("model.load_adapter('a/b')", None),
        ("if own:\n    model.add_adapter(LoraConfig(r=16))", None),
        ("from diffusers import UNet2DConditionModel\nmodel.add_adapter(LoraConfig(r=16))", None),
    ],
)
def test_a_model_takes_an_adapter_itself(tmp_path: Path, line: str, own: object) -> None:
    assert facts(read(tmp_path, _SCRIPT.format(line))).get("run.adapters_through_model") is own
