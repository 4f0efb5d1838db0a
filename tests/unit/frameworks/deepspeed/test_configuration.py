"""The reader of DeepSpeed's configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compatcheck.core.document import AUTO
from compatcheck.core.errors import InputError
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.recognise import read_configuration
from tests import ROOT
from tests.unit.frameworks.stated_facts import facts

CONFIGS = ROOT / "fixtures/configs/deepspeed"


def test_auto_values_stay_open_for_their_owner() -> None:
    document = read_configuration(str(CONFIGS / "zero3-auto.json"), named=True).documents[0]
    found = facts(document)
    assert found["training.zero_stage"] == 3
    assert found["training.reduce_bucket_size"] is AUTO
    assert found["training.prefetch_bucket_size"] is AUTO
    assert found["training.mixed_precision"] is AUTO
    assert found["training.max_live_parameters"] == 1_000_000_000
    assert found["training.offload_optimizer"] == "cpu"
    assert found["training.offload_param"] is None
    assert found["training.gather_16bit_weights_on_save"] is True
    assert document.unread == ()
    assert document.skipped == ()


def test_hjson_with_comments_and_the_old_offload_key() -> None:
    document = read_configuration(str(CONFIGS / "zero2-commented.hjson"), named=True).documents[0]
    found = facts(document)
    assert found["training.micro_batch_size"] == 4
    assert found["training.zero_stage"] == 2
    assert found["training.offload_optimizer"] == "cpu"
    assert found["training.reduce_bucket_size"] == 50_000_000
    assert found["training.mixed_precision"] == "fp16"
    assert found["training.optimizer"] == "adamw"
    assert document.unread == ()


def test_misspelt_keys_are_unread_with_the_nearest_known_key() -> None:
    document = read_configuration(str(CONFIGS / "misspelt.json"), named=True).documents[0]
    assert dict(document.unread) == {
        "zero_optimization.reduce_buckets_size": "zero_optimization.reduce_bucket_size",
        "zero_optimization.offload_optimizer.pin_memmory": "zero_optimization.offload_optimizer.pin_memory",
    }


@pytest.mark.parametrize("old", ["stage3_prefetch_bucket_size", "prefetch_bucket_size"])
def test_both_spellings_of_a_stage_3_key(old: str) -> None:
    document = deepspeed.read_section({"zero_optimization": {"stage": 3, old: 7}}, "ds.json")
    assert facts(document)["training.prefetch_bucket_size"] == 7


def test_an_inner_configuration_keeps_the_prefix_of_its_place() -> None:
    document = deepspeed.read_section({"zero_optimization": {"stage": 2}}, "args.yaml", "deepspeed.")
    assert document.statements[0].key == "deepspeed.zero_optimization.stage"


def test_infinity_is_not_understood() -> None:
    document = deepspeed.read_section({"zero_optimization": {"stage": float("inf")}}, "ds.json")
    assert [skipped.source.key for skipped in document.skipped] == ["zero_optimization.stage"]


def test_autotp_size_is_tensor_parallelism() -> None:
    found = facts(deepspeed.read_section({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 4}}, "ds.json"))
    assert found["training.tensor_parallel"] == 4


def test_an_optimizer_that_is_named_is_deepspeeds_own() -> None:
    found = facts(deepspeed.read_section({"train_batch_size": 8, "optimizer": {"type": "Muon"}}, "ds.json"))
    assert found["training.optimizer"] == "muon"
    assert found["training.optimizer_by_deepspeed"] is True


def test_truncated_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{\n"zero_optimization": {"stage": 3')
    with pytest.raises(InputError) as caught:
        read_configuration(str(file), named=True).documents[0]
    assert caught.value.source is not None
    assert caught.value.source.line == 2


@pytest.mark.parametrize(
    ("data", "prefix", "stage"),
    [
        ({"train_micro_batch_size_per_gpu": 2}, "", 0),
        ({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}, "", 2),
        ({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": "auto"}}, "", AUTO),
        ({"train_micro_batch_size_per_gpu": 2}, "deepspeed.", None),
    ],
)
def test_a_file_without_zero_is_stage_0(data: dict[str, Any], prefix: str, stage: object) -> None:
    document = deepspeed.read_section(data, "ds.json", prefix)
    found = {one.fact: one.value for one in document.statements}
    assert found.get("training.zero_stage") == stage


def test_what_is_compared_with_the_trainer_leaves_no_question_where_it_is_auto() -> None:
    data: dict[str, Any] = {
        "zero_optimization": {"stage": 2},
        "gradient_clipping": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}},
    }
    (document,) = deepspeed.read(data, "ds.json").documents
    found = facts(document)
    assert found["training.learning_rate"] == 1e-5
    assert "training.gradient_clipping" not in found
    assert "training.weight_decay" not in found
    assert document.unread == ()
