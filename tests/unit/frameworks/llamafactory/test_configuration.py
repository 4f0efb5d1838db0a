"""The reader of LLaMA-Factory's training files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compatcheck.core.document import Document
from compatcheck.core.errors import InputError
from compatcheck.frameworks.llamafactory import configuration as llama_factory
from compatcheck.frameworks.recognise import read_configuration
from tests import ROOT
from tests.unit.frameworks.reading import read_file
from tests.unit.frameworks.stated_facts import facts

CONFIGS = ROOT / "fixtures/configs/llama_factory"
SHORT: dict[str, Any] = {"model_name_or_path": "llama-3-8b", "stage": "sft", "template": "llama3", "do_train": True}


def read(**keys: Any) -> Document:
    (document,) = llama_factory.read_arguments({**SHORT, **keys}, "train.yaml").documents
    return document


def test_full_fine_tuning_with_a_deepspeed_file() -> None:
    (document,) = read_file(llama_factory, str(CONFIGS / "full_zero3.yaml")).documents
    assert document.reader == "llamafactory"
    assert document.references == (
        ("model", "llama-3-70b", "model_name_or_path"),
        ("deepspeed", "zero3.json", "deepspeed"),
    )
    assert document.unread == ()
    assert document.skipped == ()
    assert facts(document) == {
        "model.attn_implementation": "flash_attention_2",
        "model.trust_remote_code": False,
        "training.gradient_accumulation_steps": 4,
        "training.learning_rate": 1e-5,
        "training.micro_batch_size": 1,
        "training.mixed_precision": "bf16",
        "training.packing": True,
        "training.peft": None,
        "training.sequence_length": 4096,
        "training.trainer": "sft",
        "training.use_liger_kernel": True,
    }


def test_preference_training_of_adapters_on_a_quantised_model() -> None:
    (document,) = read_file(llama_factory, str(CONFIGS / "qlora_dpo.yaml")).documents
    found = facts(document)
    assert document.unread == ()
    assert found["training.trainer"] == "dpo"
    assert found["training.peft"] == "lora"
    assert found["training.lora_rank"] == 16
    assert found["training.lora_target_modules"] == ("q_proj", "v_proj")
    assert found["training.lora_modules_to_save"] == ("embed_tokens",)
    assert found["model.quantization"] == "nf4"
    assert found["model.attn_implementation"] == "eager"
    assert found["training.gradient_checkpointing"] is True
    assert found["training.optimizer"] == "paged_adamw_8bit"
    assert found["training.kl_coefficient"] == 0.2
    assert found["training.loss_type"] == "orpo"


def test_files_that_train_nothing_are_passed_over() -> None:
    assert read_configuration(str(CONFIGS / "merge.yaml"), named=False) is None
    predicts = {**SHORT, "do_train": None, "do_predict": True, "output_dir": "out"}
    assert llama_factory.read(predicts, "predict.yaml").documents == ()


def test_a_prediction_file_is_not_taken_for_trainer_arguments(tmp_path: Path) -> None:
    file = tmp_path / "predict.yaml"
    lines = [
        "model_name_or_path: m",
        "stage: sft",
        "template: qwen",
        "do_predict: true",
        "output_dir: out",
        "bf16: true",
    ]
    file.write_text("\n".join(lines))
    assert read_configuration(str(file), named=False) is None
    with pytest.raises(InputError, match="no configuration this release can read"):
        read_configuration(str(file), named=True)


@pytest.mark.parametrize(
    ("stage", "trainer"),
    [("pt", "pretrain"), ("sft", "sft"), ("rm", "reward"), ("ppo", "ppo"), ("dpo", "dpo"), ("kto", "kto")],
)
def test_stages(stage: str, trainer: str) -> None:
    assert facts(read(stage=stage))["training.trainer"] == trainer


@pytest.mark.parametrize(
    ("keys", "checkpointing", "reentrant"),
    [
        ({}, None, None),
        ({"disable_gradient_checkpointing": True}, False, None),
        ({"use_reentrant_gc": False}, None, False),
        ({"gradient_checkpointing": False, "use_reentrant_gc": False}, None, False),
        # the Trainer enables it once more, and an absent mapping means reentrant in the patched function
        ({"gradient_checkpointing": True, "use_reentrant_gc": False}, True, True),
        ({"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}, True, False),
        ({"gradient_checkpointing_kwargs": {"use_reentrant": False}}, None, None),
        ({"gradient_checkpointing": True, "disable_gradient_checkpointing": True}, True, None),
    ],
)
def test_both_switches_for_checkpointing(keys: dict[str, Any], checkpointing: object, reentrant: object) -> None:
    document = read(**keys)
    assert facts(document).get("training.gradient_checkpointing") is checkpointing
    assert facts(document).get("training.use_reentrant") is reentrant
    by_trainer = keys.get("gradient_checkpointing") or None
    assert facts(document).get("program.checkpoints_by_trainer") is by_trainer
    assert document.unread == ()


@pytest.mark.parametrize(
    ("keys", "quantization"),
    [
        ({"quantization_bit": 4}, "nf4"),
        ({"quantization_bit": 4, "quantization_type": "fp4", "quantization_method": "bitsandbytes"}, "fp4"),
        ({"quantization_bit": 8}, "int8"),
        ({"quantization_bit": 2, "quantization_method": "hqq"}, "hqq"),
        ({"quantization_bit": 8, "quantization_method": "eetq"}, "eetq"),
        ({"quantization_bit": None}, None),
    ],
)
def test_quantisation_on_the_fly(keys: dict[str, Any], quantization: str | None) -> None:
    assert facts(read(**keys)).get("model.quantization") == quantization


@pytest.mark.parametrize(
    ("word", "kernel"),
    [
        ("auto", None),
        ("disabled", "eager"),
        (False, "eager"),
        ("sdpa", "sdpa"),
        ("fa2", "flash_attention_2"),
        ("fa3", "flash_attention_3"),
    ],
)
def test_attention(word: object, kernel: str | None) -> None:
    assert facts(read(flash_attn=word)).get("model.attn_implementation") == kernel


def test_pure_bf16_has_no_float32_copy() -> None:
    found = facts(read(pure_bf16=True))
    assert found["training.param_dtype"] == found["training.compute_dtype"] == "bfloat16"
    assert found["training.master_dtype"] is None
    assert "training.param_dtype" not in facts(read(pure_bf16=False))


def test_fp8_wins_over_bf16() -> None:
    assert facts(read(bf16=True, fp8=True))["training.mixed_precision"] == "fp8"


def test_dora_is_an_adapter_of_its_own() -> None:
    assert facts(read(finetuning_type="lora", use_dora=True))["training.peft"] == "dora"


@pytest.mark.parametrize(
    ("key", "optimizer"),
    [("use_galore", "galore"), ("use_apollo", "apollo"), ("use_muon", "muon"), ("use_badam", None)],
)
def test_an_optimizer_of_its_own_replaces_the_trainers(key: str, optimizer: str | None) -> None:
    document = read(**{key: True, "optim": "adamw_torch"})
    assert facts(document).get("training.optimizer") == optimizer
    assert "training.optimizer_implementation" not in facts(document)


@pytest.mark.parametrize("name", ["galore", "apollo"])
def test_a_layerwise_optimizer_gives_each_gradient_back(name: str) -> None:
    layerwise = {f"{name}_layerwise": True}
    assert facts(read(**{f"use_{name}": True}, **layerwise))["training.optimizer_in_backward"] is True
    assert "training.optimizer_in_backward" not in facts(read(**{f"use_{name}": True, f"{name}_layerwise": False}))
    assert "training.optimizer_in_backward" not in facts(read(**layerwise))


def test_liger_has_no_fused_loss_outside_supervised_training() -> None:
    assert "training.loss_implementation" not in facts(read(enable_liger_kernel=True))
    assert facts(read(enable_liger_kernel=True, stage="dpo"))["training.loss_implementation"] == "cross_entropy"


def test_megatron_shards_and_recomputes_by_itself() -> None:
    found = facts(read(tensor_model_parallel_size=2, expert_model_parallel_size=4, recompute_granularity="full"))
    assert found["training.sharding"] == "megatron"
    assert found["training.tensor_parallel"] == 2
    assert found["training.expert_parallel"] == 4
    assert found["training.gradient_checkpointing"] is True
    assert facts(read(pipeline_model_parallel_size=2))["training.gradient_checkpointing"] is False


@pytest.mark.parametrize("key", ["use_unsloth", "use_kt", "use_hyper_parallel"])
def test_code_that_no_rule_describes_is_said(key: str) -> None:
    (skipped,) = read(**{key: True}).skipped
    assert skipped.source.key == key
    assert "no rule describes" in skipped.reason


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ({"stage": "sftt"}, "known: pt, sft, rm, ppo, dpo, kto"),
        ({"finetuning_type": "qlora"}, "known: full, lora, freeze, oft"),
        ({"flash_attn": "fa9"}, "known: disabled, off, sdpa, fa2, fa3, true, false"),
        ({"quantization_bit": 3}, "expected 4 or 8"),
        ({"disable_gradient_checkpointing": "perhaps"}, "expected true or false"),
        ({"cutoff_len": "long"}, "expected a whole number from 1 on"),
        ({"model_name_or_path": ["a", "b"]}, "expected the path or hub id of a model"),
    ],
)
def test_a_value_not_understood_names_its_key_and_the_remedy(keys: dict[str, Any], hint: str) -> None:
    (skipped,) = read(**keys).skipped
    assert skipped.source == ("train.yaml", next(iter(keys))) or skipped.source.key == next(iter(keys))
    assert skipped.source.path == "train.yaml"
    assert f"{skipped.reason} {skipped.hint}".endswith(hint)


def test_misspelt_and_foreign_keys_are_unread() -> None:
    document = read(use_reentrant_gcc=False, max_seq_length=2048, prune_layers=1)
    assert document.unread == (
        ("use_reentrant_gcc", "use_reentrant_gc"),
        ("max_seq_length", "max_length"),
        ("prune_layers", None),
    )


def test_a_deepspeed_configuration_inside_is_read() -> None:
    data = {**SHORT, "deepspeed": {"zero_optimization": {"stage": 2}, "train_batch_size": 8}}
    _, inner = llama_factory.read_arguments(data, "train.yaml").documents
    assert facts(inner)["training.zero_stage"] == 2


def test_a_list_is_no_training_file(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("- a\n")
    with pytest.raises(InputError, match="is no configuration"):
        read_configuration(str(tmp_path / "train.yaml"), named=True)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"finetuning_type": "freeze", "freeze_trainable_layers": -4}, {"peft": "freeze", "trained_layers": 4}),
        ({"finetuning_type": "full", "freeze_language_model": True}, {"peft": "freeze"}),
        ({"finetuning_type": "full", "freeze_vision_tower": True}, {"peft": None}),
    ],
)
def test_what_is_trained_beside_frozen_parts(keys: dict[str, Any], expected: dict[str, object]) -> None:
    found = facts(read(**keys))
    stated = {name: found[f"training.{name}"] for name in ("peft", "trained_layers") if f"training.{name}" in found}
    assert stated == expected


@pytest.mark.parametrize(
    ("key", "fact"),
    [
        ("use_badam", "training.optimizer"),
        ("use_dft_loss", "training.loss_implementation"),
        ("use_unsloth", "training.loss_implementation"),
    ],
)
def test_what_no_reader_follows_is_open(key: str, fact: str) -> None:
    assert fact in {entry.fact for entry in read(**{key: True}).unresolved}
    assert not read(**{key: False}).unresolved
