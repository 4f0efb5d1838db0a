"""Configurations that a script makes count where something is given them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.frameworks.python_script.test_read import facts, read

if TYPE_CHECKING:
    from pathlib import Path

_QUANTIZED = """from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, GPTQConfig
from trl import SFTConfig, SFTTrainer
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
{}
model = AutoModelForCausalLM.from_pretrained("m"{})
trainer = SFTTrainer(model, args=SFTConfig("o"))
"""


@pytest.mark.parametrize(
    ("lines", "given", "kept"),
    [
        ("", "", False),
        ("", ", quantization_config=bnb", True),
        ("", ", quantization_config=None", False),
        ("LARGE = False", ", quantization_config=bnb if LARGE else None", False),
        ("LARGE = True", ", quantization_config=bnb if LARGE else None", True),
        ("options = {'quantization_config': bnb}", ", **options", True),
        ("options = {}\noptions['quantization_config'] = bnb", ", **options", True),
        ("chosen = bnb", ", quantization_config=chosen", True),
        ("def make():\n    return bnb", ", quantization_config=make()", True),
        ("settings = dict(model_init_kwargs={'quantization_config': bnb})", "", True),
        ("other = BitsAndBytesConfig(load_in_8bit=True)", ", quantization_config=bnb", True),
        ("print(bnb)", "", True),  # somebody asks for it
        ("tokenizer = AutoTokenizer.from_pretrained('m', use_fast=False)", "", False),
    ],
)
def test_a_quantization_is_that_which_the_model_is_given(tmp_path: Path, lines: str, given: str, *, kept: bool) -> None:
    stated = facts(read(tmp_path, _QUANTIZED.format(lines, given)))
    assert stated.get("model.quantization") == ("nf4" if kept else None)


def test_a_quantization_of_another_class_is_open_whatever_else_is_made(tmp_path: Path) -> None:
    documents = read(tmp_path, _QUANTIZED.format("", ", quantization_config=GPTQConfig(bits=4)"))
    assert facts(documents).get("model.quantization") is None
    assert any(gap.facts == {"model.quantization"} for document in documents for gap in document.gaps)


@pytest.mark.parametrize(
    "line", ["gptq = GPTQConfig(bits=4)", "import transformers\ntransformers.GenerationConfig(use_cache=True)"]
)
def test_other_configurations_that_nothing_is_given_say_nothing(tmp_path: Path, line: str) -> None:
    documents = read(tmp_path, _QUANTIZED.format(line, ""))
    assert facts(documents).keys().isdisjoint({"model.quantization", "model.use_cache"})
    assert [gap.why for document in documents for gap in document.gaps] == []


def test_a_quantization_that_is_changed_on_the_way_is_open(tmp_path: Path) -> None:
    documents = read(tmp_path, _QUANTIZED.format("bnb.load_in_4bit = False", ", quantization_config=bnb"))
    assert any(gap.facts == {"model.quantization"} for document in documents for gap in document.gaps)
    documents = read(tmp_path, _QUANTIZED.format("bnb.load_in_4bit = False", ""))
    assert [gap.why for document in documents for gap in document.gaps] == []


def test_a_quantization_under_a_condition_is_open(tmp_path: Path) -> None:
    documents = read(tmp_path, _QUANTIZED.format("", ", quantization_config=bnb if sys.argv else None"))
    assert any(gap.facts == {"model.quantization"} for document in documents for gap in document.gaps)
    assert facts(documents).get("model.quantization") is None


def test_a_quantization_that_stands_alone_counts(tmp_path: Path) -> None:
    text = "from transformers import BitsAndBytesConfig\nbnb = BitsAndBytesConfig(load_in_8bit=True)\n"
    assert facts(read(tmp_path, text))["model.quantization"] == "int8"


_TRAINED = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("m")
small = TrainingArguments("o", per_device_train_batch_size=2)
big = SFTConfig("o", per_device_train_batch_size=16)
{}
{}
"""


@pytest.mark.parametrize(
    ("lines", "trainer", "batch"),
    [
        ("", "SFTTrainer(model, args=big)", 16),
        ("", "SFTTrainer(model, big)", 16),
        ("small.per_device_train_batch_size = 8", "SFTTrainer(model, args=big)", 16),
        ("big.per_device_train_batch_size = 8", "SFTTrainer(model, args=big)", None),
        ("", "Trainer(model, args=small)", 2),
        ("options = {'args': small}", "Trainer(model, **options)", 2),
        ("", "SFTTrainer(model, args=make())", None),
        ("", "SFTTrainer(model, **options)", None),
        ("run(args=small)", "SFTTrainer(model, args=big)", None),  # a function that is not read
    ],
)
def test_the_arguments_are_those_that_the_trainer_is_given(
    tmp_path: Path, lines: str, trainer: str, batch: int | None
) -> None:
    stated = facts(read(tmp_path, _TRAINED.format(lines, f"trainer = {trainer}")))
    assert stated.get("training.micro_batch_size") == batch


def test_a_configuration_that_no_trainer_is_given_tells_no_trainer(tmp_path: Path) -> None:
    stated = facts(read(tmp_path, _TRAINED.format("", "trainer = DPOTrainer(model, args=DPOConfig('o'))")))
    assert (stated["training.trainer"], "training.micro_batch_size" in stated) == ("dpo", False)


@pytest.mark.parametrize(
    ("lines", "given", "told"),
    [
        ("model = PeftModel.from_pretrained(model, 'a').merge_and_unload()", ", peft_config=lora", True),
        ("model = PeftModel.from_pretrained(model, 'a')", "", False),
        ("model = get_peft_model(model, lora)\nmodel = model.merge_and_unload()", "", False),
    ],
)
def test_adapters_count_from_where_something_is_given_them(
    tmp_path: Path, lines: str, given: str, *, told: bool
) -> None:
    text = """from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("m")
lora = LoraConfig(r=8)
{}
trainer = SFTTrainer(model, args=SFTConfig("o"){})
"""
    assert facts(read(tmp_path, text.format(lines, given))).get("training.lora_rank") == (8 if told else None)
