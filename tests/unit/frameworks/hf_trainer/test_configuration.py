"""The reader of trainer arguments: HF Trainer and TRL."""

from __future__ import annotations

import pytest

from compatcheck.core.document import AUTO
from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from tests import ROOT
from tests.unit.frameworks.reading import read_file, read_trainer_arguments
from tests.unit.frameworks.stated_facts import facts

CONFIGS = ROOT / "fixtures/configs"


def test_json_arguments_with_fsdp() -> None:
    (document,) = read_file(hf_trainer, str(CONFIGS / "hf_trainer/arguments.json")).documents
    found = facts(document)
    assert document.reader == "hf_trainer"
    assert document.references == (("model", "llama-3-8b", "model_name_or_path"),)
    assert found["training.optimizer"] == "paged_adamw_8bit"
    assert found["training.use_reentrant"] is False
    assert found["training.sharding"] == "fsdp"
    assert found["training.fsdp_sharding_strategy"] == "full_shard"
    assert found["training.fsdp_offload_params"] is True
    assert found["training.mixed_precision"] == "bf16"
    assert document.unread == (("fsdp_config.limit_all_gather", "fsdp_config.limit_all_gathers"),)


def test_yaml_arguments_with_an_inner_deepspeed_configuration() -> None:
    document, inner = read_file(hf_trainer, str(CONFIGS / "hf_trainer/arguments.yaml")).documents
    assert facts(document)["training.mixed_precision"] == "no"
    assert inner.reader == "deepspeed"
    assert facts(inner)["training.zero_stage"] == 2
    assert facts(inner)["training.micro_batch_size"] is AUTO
    assert [key for key, _ in document.unread] == ["my_own_switch"]


def test_grpo_recipe() -> None:
    (document,) = read_file(hf_trainer, str(CONFIGS / "trl/grpo.yaml")).documents
    found = facts(document)
    assert document.reader == "trl"
    assert found["training.trainer"] == "grpo"
    assert found["rollout.engine"] == "vllm"
    assert found["training.num_generations"] == 16
    assert found["model.attn_implementation"] == "flash_attention_2"
    assert document.unread == ()


def test_preference_recipe_with_quantised_adapters() -> None:
    (document,) = read_file(hf_trainer, str(CONFIGS / "trl/preference.yaml")).documents
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
    assert hf_trainer.detect_trainer(data, path)[0] == trainer


def test_a_trainer_told_by_its_path_says_so() -> None:
    data = {"learning_rate": 1e-5, "output_dir": "out", "max_prompt_length": 8}
    (document,) = read_trainer_arguments(data, "recipes/orpo/a.yaml")
    assert ("training.trainer", "(path of this file)") in {(entry.fact, entry.key) for entry in document.statements}


@pytest.mark.parametrize(
    ("given", "precision"),
    [
        ({"bf16": True}, "bf16"),
        ({"fp16": True}, "fp16"),
        ({"fp16": False}, "no"),
        ({"bf16": False}, "no"),
        ({"bf16": False, "fp16": True}, "fp16"),
        ({}, None),
    ],
)
def test_mixed_precision(given: dict[str, object], precision: str | None) -> None:
    (document,) = read_trainer_arguments({"learning_rate": 1e-5, "output_dir": "out", **given}, "a.json")
    assert facts(document).get("training.mixed_precision") == precision


def test_values_of_the_wrong_type_are_said_and_lose_nothing_else() -> None:
    (document,) = read_trainer_arguments(
        {"optim": [1], "per_device_train_batch_size": 2, "model_name_or_path": 5}, "a.yaml"
    )
    assert facts(document)["training.micro_batch_size"] == 2
    assert [skipped.source.key for skipped in document.skipped] == ["optim", "model_name_or_path"]
