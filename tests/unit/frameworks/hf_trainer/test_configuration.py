"""The reader of the HF Trainer's arguments."""

from __future__ import annotations

import pytest

from compatcheck.core.document import AUTO
from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from tests import ROOT
from tests.unit.frameworks.reading import read_file
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
    (document,) = hf_trainer.read({"learning_rate": 1e-5, "output_dir": "out", **given}, "a.json").documents
    assert facts(document).get("training.mixed_precision") == precision


@pytest.mark.parametrize("key", ["torch_compile_backend", "torch_compile_mode"])
def test_a_backend_of_the_compiler_compiles(key: str) -> None:
    (document,) = hf_trainer.read({"learning_rate": 1e-5, "output_dir": "out", key: "x"}, "a.json").documents
    assert facts(document)["training.compile"] is True


def test_values_of_the_wrong_type_are_said_and_lose_nothing_else() -> None:
    (document,) = hf_trainer.read(
        {"optim": [1], "per_device_train_batch_size": 2, "model_name_or_path": 5}, "a.yaml"
    ).documents
    assert facts(document)["training.micro_batch_size"] == 2
    assert [skipped.source.key for skipped in document.skipped] == ["optim", "model_name_or_path"]
