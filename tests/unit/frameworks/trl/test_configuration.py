"""The reader of the arguments of TRL's trainers."""

from __future__ import annotations

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.recognise import read_configuration
from compatcheck.frameworks.trl import configuration as trl
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.unit.frameworks.reading import read_file
from tests.unit.frameworks.stated_facts import facts

CONFIGS = ROOT / "fixtures/configs"


def test_grpo_recipe() -> None:
    (document,) = read_file(trl, str(CONFIGS / "trl/grpo.yaml")).documents
    found = facts(document)
    assert document.reader == "trl"
    assert found["training.trainer"] == "grpo"
    assert found["rollout.engine"] == "vllm"
    assert found["training.num_generations"] == 16
    assert found["model.attn_implementation"] == "flash_attention_2"
    assert document.unread == ()


def test_preference_recipe_with_quantised_adapters() -> None:
    (document,) = read_file(trl, str(CONFIGS / "trl/preference.yaml")).documents
    found = facts(document)
    assert found["training.trainer"] == "dpo"
    assert found["training.peft"] == "lora"
    assert found["model.quantization"] == "nf4"
    assert document.unread == ()


@pytest.mark.parametrize(
    ("data", "path", "trainer"),
    [
        ({"packing": True}, "x.yaml", "sft"),
        ({"num_generations": 8}, "recipes/sft/x.yaml", "grpo"),
        ({"loss_type": "apo_zero"}, "x.yaml", "dpo"),
        ({"max_prompt_length": 8, "beta": 0.1}, "recipes/zephyr/orpo/config_full.yaml", "orpo"),
        ({"max_prompt_length": 8, "beta": 0.1}, "recipes/config_full.yaml", None),
        ({"beta": 0.1, "loss_type": "sigmoid"}, "dpo.yaml", "dpo"),
        ({"beta": 0.1, "loss_type": "sigmoid"}, "train.yaml", None),
        ({"dataset_mixture": {}}, "recipes/smol/sft/config.yaml", "sft"),
        ({"dataset_mixture": {}}, "recipes/sft-and-dpo.yaml", None),
        ({"learning_rate": 1}, "recipes/dpo/config.yaml", None),
    ],
)
def test_what_tells_a_trainer(data: dict[str, object], path: str, trainer: str | None) -> None:
    found = trl.detect_trainer(data, path)
    assert (found and found[0]) == trainer


def test_a_trainer_told_by_its_path_says_so() -> None:
    data = {"learning_rate": 1e-5, "output_dir": "out", "max_prompt_length": 8}
    (document,) = trl.read(data, "recipes/orpo/a.yaml").documents
    assert ("training.trainer", "(path of this file)") in {(entry.fact, entry.key) for entry in document.statements}


@pytest.mark.parametrize(
    ("given", "version", "padding_free"),
    [
        ({}, "0.18.2", False),
        ({}, "0.19.0", True),
        ({"packing_strategy": "bfd"}, "1.4.0", True),
        ({"packing_strategy": "wrapped"}, "1.4.0", False),
        ({"packing": False}, "1.4.0", False),
    ],
)
def test_packing_flattens_the_batch(given: dict[str, object], version: str, padding_free: object) -> None:
    reading = trl.read({"packing": True, "dataset_text_field": "text", **given}, "sft.yaml")
    versions = Environment("r.txt", {"trl": Package("trl", version, Source("r.txt"))}, complete=False)
    subject = resolve("x", rules=open_rules(()), environment=versions, documents=reading.documents)
    assert subject.roles["train"]["training.padding_free"].value is padding_free


def test_a_file_of_the_plain_trainer_is_not_trls() -> None:
    reading = read_configuration(str(CONFIGS / "hf_trainer/arguments.json"), named=True)
    assert reading is not None
    assert [document.reader for document in reading.documents] == ["hf_trainer"]
