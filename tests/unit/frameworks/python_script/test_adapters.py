"""Adapters that a model of transformers takes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking import Request, gather
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.python_script.test_read import facts, read

if TYPE_CHECKING:
    from collections.abc import Mapping
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


_TWO = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer, ModelConfig, SFTConfig, SFTTrainer, get_peft_config
model = AutoModelForCausalLM.from_pretrained("m")
small = LoraConfig(r=8, target_modules=["q_proj", "v_proj"])
big = LoraConfig(r=64, target_modules="all-linear")
{}
trainer = SFTTrainer(model, args=SFTConfig("o"){})
"""


@pytest.mark.parametrize(
    ("lines", "given", "rank"),
    [
        ("", ", peft_config=big", 64),
        ("model = get_peft_model(model, big)", "", 64),
        ("model.add_adapter('own', big)", "", 64),
        ("every = {'a': small, 'b': big}", ", peft_config=every['b']", 64),
        ("chosen = big", ", peft_config=chosen", 64),
        ("def make(rank):\n    return LoraConfig(r=rank)", ", peft_config=make(32)", 32),
        (
            "class Own:\n    def make(self):\n        self.adapter = big\n        return self.adapter",
            ", peft_config=big",
            64,
        ),
        ("LARGE = True", ", peft_config=big if LARGE else small", 64),
        ("options = {'peft_config': big}", ", **options", 64),
        ("big = LoraConfig(r=16)", ", peft_config=big", 16),
        ("print(big)\nbig = LoraConfig(r=16)", ", peft_config=big", None),  # which of two is not told
        ("", ", peft_config=every[name]", None),
        ("", ", peft_config=big if large else small", None),
        ("DPOTrainer(model, args=DPOConfig('o'), peft_config=small)", ", peft_config=big", None),
        ("big.r = 16", ", peft_config=big", None),  # changed on the way
        ("small.r = 16", ", peft_config=big", 64),
    ],
)
def test_the_adapter_is_that_of_the_configuration_which_is_given(
    tmp_path: Path, lines: str, given: str, rank: int | None
) -> None:
    documents = read(tmp_path, _TWO.format(lines, given))
    assert facts(documents).get("training.lora_rank") == rank
    assert facts(documents)["training.peft"] == "lora"
    is_open = any(one.fact == "training.lora_rank" for document in documents for one in document.unresolved)
    assert is_open is (rank is None)


def test_a_configuration_that_nothing_is_given_makes_no_adapters(tmp_path: Path) -> None:
    text = """from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("m")
peft_config = LoraConfig(r=8)
{}
trainer = SFTTrainer(model, args=SFTConfig("o"))
"""
    stated = facts(read(tmp_path, text.format("")))
    assert (stated["training.peft"], "training.lora_rank" in stated) == (None, False)
    assert facts(read(tmp_path, text.format("print(peft_config)")))["training.lora_rank"] == 8
    assert (
        facts(read(tmp_path, "from peft import LoraConfig\npeft_config = LoraConfig(r=8)\n"))["training.peft"] == "lora"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("ModelConfig(use_peft=True)", ("lora", None)),
        ("ModelConfig(use_peft=True, lora_r=32)", ("lora", 32)),
        ("ModelConfig(use_peft=True, lora_r=32, use_dora=True)", ("dora", 32)),
        ("ModelConfig(lora_r=32)", (None, 32)),
        ("ModelConfig(**options)", (None, None)),
        ("ModelConfig(use_peft=large)", (None, None)),
    ],
)
def test_adapters_are_those_of_the_options_that_trl_is_given(
    tmp_path: Path, options: str, expected: tuple[str | None, int | None]
) -> None:
    documents = read(tmp_path, _TWO.format(f"own = {options}", ", peft_config=get_peft_config(own)"))
    stated = facts(documents)
    assert (stated.get("training.peft"), stated.get("training.lora_rank")) == expected
    told = "use_peft=large" not in options and "**" not in options
    assert any(one.fact == "training.peft" for document in documents for one in document.unresolved) is not told


def test_options_that_are_changed_before_trl_is_given_them_are_not_told(tmp_path: Path) -> None:
    lines = "own = ModelConfig(use_peft=True, lora_r=32)\nown.lora_r = 8"
    stated = facts(read(tmp_path, _TWO.format(lines, ", peft_config=get_peft_config(own)")))
    assert (stated["training.peft"], "training.lora_rank" in stated) == ("lora", False)


_PARSED = """from peft import LoraConfig
from transformers import AutoModel, AutoModelForCausalLM, HfArgumentParser
from trl import ModelConfig, SFTConfig, SFTTrainer, get_peft_config
{}
if __name__ == "__main__":
    training_args, model_args = HfArgumentParser((SFTConfig, {})).parse_args_into_dataclasses()
    {}
    SFTTrainer(model, args=training_args, peft_config=get_peft_config(model_args)).train()
"""


def _run(
    tmp_path: Path,
    load: str,
    *,
    words: str = "",
    above: str = "",
    options: str = "ModelConfig",
    transformers: str = "5.0.0",
) -> Mapping[str, object]:
    """Return the facts of a run of a script that parses TRL's options."""
    (tmp_path / "train.py").write_text(_PARSED.format(above, options, load), encoding="utf-8")
    command = f"python train.py --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --output_dir o --use_peft {words}\n"
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    (tmp_path / "requirements.txt").write_text(f"trl==1.0.0\ntransformers=={transformers}\n", encoding="utf-8")
    paths = str(tmp_path / "run.sh"), str(tmp_path / "requirements.txt")
    (subject,) = gather(Request(paths=paths, here=False), open_rules(), {}).subjects
    return {name: fact.value for name, fact in subject.roles["train"].items()}


_BY_NAME = "model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path{})"


@pytest.mark.parametrize(
    ("given", "words", "expected"),
    [
        ("", "--load_in_4bit", None),  # nobody makes a configuration of it
        ("", "", None),
        (", quantization_config=trl.get_quantization_config(model_args)", "--load_in_4bit", "nf4"),
    ],
)
def test_bits_count_where_a_script_hands_them_on(tmp_path: Path, given: str, words: str, expected: str | None) -> None:
    command = '"""train.py --load_in_4bit"""'
    assert _run(tmp_path, _BY_NAME.format(given), words=words, above=command)["model.quantization"] == expected


@pytest.mark.parametrize(
    ("given", "words", "transformers", "expected"),
    [
        ("", "", "5.0.0", "bfloat16"),  # what the model's own file states
        ("", "", "4.57.1", "float32"),
        ("", "--dtype float16", "5.0.0", "bfloat16"),
        (", dtype=model_args.dtype", "", "5.0.0", "float32"),  # TRL's own
        (", dtype=model_args.dtype", "--dtype float16", "5.0.0", "float16"),
        (", **options", "--dtype float16", "5.0.0", "float16"),
    ],
)
def test_the_dtype_of_a_model_is_what_its_call_is_given(
    tmp_path: Path, given: str, words: str, transformers: str, expected: str
) -> None:
    load = _BY_NAME.format(given) + '; embedding = AutoModel.from_pretrained("a/b", dtype=torch.float16)'
    found = _run(tmp_path, load, words=words, transformers=transformers)
    assert found["model.load_dtype"] == expected


def test_fields_of_a_class_of_ones_own_replace_those_of_trl(tmp_path: Path) -> None:
    own = 'class Own(ModelConfig):\n    lora_r: int = 4\n    dtype: str = "bfloat16"\n'
    load = _BY_NAME.format(", dtype=model_args.dtype")
    found = _run(tmp_path, load, above=own, options="Own", words="--lora_target_modules q_proj")
    assert (found["training.lora_rank"], found["model.load_dtype"], found["training.lora_dropout"]) == (
        4,
        "bfloat16",
        0.05,
    )
    assert _run(tmp_path, load, above=own, options="Own", words="--lora_r 8")["training.lora_rank"] == 8
