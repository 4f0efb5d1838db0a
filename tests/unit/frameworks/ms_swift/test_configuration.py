"""The reader of ms-swift's configuration files."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.document import AUTO, Document
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.ms_swift import configuration as ms_swift
from compatcheck.frameworks.recognise import read_configuration
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.unit.frameworks.reading import read_file
from tests.unit.frameworks.stated_facts import facts

CONFIGS = ROOT / "fixtures/configs/ms_swift"
SHORT: dict[str, Any] = {"model": "llama-3-8b", "tuner_type": "lora", "dataset": "mine"}


def read(**keys: Any) -> tuple[Document, ...]:
    return ms_swift.read({**SHORT, **keys}, "sft.yaml")[0]


def test_adapters_with_a_built_in_deepspeed_file() -> None:
    (document, inner), environment, *_ = read_file(ms_swift, str(CONFIGS / "sft.yaml"))
    found = facts(document)
    assert document.reader == "ms_swift"
    assert document.references == (("model", "llama-3-8b", "model"),)
    assert document.unread == document.skipped == ()
    assert found["training.peft"] == "lora"
    assert found["training.lora_rank"] == 16
    assert found["training.lora_target_modules"] == ("all-linear",)
    assert found["training.packing"] is True
    assert found["training.sequence_length"] == 2048
    assert found["model.load_dtype"] == "bfloat16"
    assert found["model.attn_implementation"] == "flash_attention_2"
    assert found["allocator.expandable_segments"] is True
    assert facts(inner)["training.zero_stage"] == 3
    assert facts(inner)["training.reduce_bucket_size"] is AUTO
    assert environment is not None
    assert environment.variables == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "MAX_PIXELS": "1003520"}
    assert not environment.variables_complete


def test_reinforcement_learning_as_json() -> None:
    (document, inner), environment, *_ = read_file(ms_swift, str(CONFIGS / "grpo.json"))
    found = facts(document)
    assert environment is None
    assert document.unread == document.skipped == ()
    assert found["training.trainer"] == "grpo"
    assert found["training.peft"] is None
    assert found["training.max_prompt_length"] == 1024
    assert "training.sequence_length" not in found
    assert found["training.max_response_length"] == 2048
    assert found["rollout.engine"] == "vllm"
    assert found["rollout.mode"] == "colocate"
    assert found["rollout.sleep_mode"] is True
    assert found["rollout.sleep_level"] == 1
    assert found["training.kl_coefficient"] == 0
    assert found["training.use_reentrant"] is False
    assert facts(inner)["training.zero_stage"] == 2
    assert facts(inner)["training.offload_optimizer"] == "cpu"


def test_megatron_with_groups_of_workers() -> None:
    (document,), *_ = read_file(ms_swift, str(CONFIGS / "megatron.yaml"))
    found = facts(document)
    assert document.reader == "megatron_swift"
    assert document.unread == document.skipped == ()
    assert found["training.framework"] == "megatron"
    assert found["training.sharding"] == "megatron"
    assert found["training.tensor_parallel"] == 2
    assert found["training.expert_parallel"] == 4
    assert found["training.micro_batch_size"] == 1
    assert found["training.global_batch_size"] == 32
    assert found["training.gradient_checkpointing"] is True
    assert found["training.offload_optimizer"] == "cpu"
    assert found["training.log_params_norm"] is False


def test_norm_of_parameters_on_megatron() -> None:
    keys = {"mcore_model": "mine", "rlhf_type": "dpo", "expert_tensor_parallel_size": 2, "log_params_norm": True}
    marks = {"micro_batch_size": 1, "attention_backend": "flash"}
    (document,), *_ = ms_swift.read({**keys, **marks}, "dpo.yaml")
    found = facts(document)
    assert document.reader == "megatron_swift"
    assert (found["training.log_params_norm"], found["training.expert_tensor_parallel"]) == (True, 2)
    assert document.unread == ()


def test_a_file_for_inference_is_passed_over() -> None:
    assert read_configuration(str(CONFIGS / "infer.yaml"), named=False) is None


@pytest.mark.parametrize(
    ("name", "stage", "optimizer", "parameters"),
    [
        ("zero0", 0, None, None),
        ("zero1", 1, None, None),
        ("zero2", 2, None, None),
        ("zero2_offload", 2, "cpu", None),
        ("zero3", 3, None, None),
        ("zero3_offload", 3, "cpu", "cpu"),
    ],
)
def test_built_in_deepspeed_files(name: str, stage: int, optimizer: str | None, parameters: str | None) -> None:
    _, inner = read(deepspeed=name)
    found = facts(inner)
    assert found["training.zero_stage"] == stage
    assert found.get("training.offload_optimizer") == optimizer
    assert found.get("training.offload_param") == parameters
    assert inner.unread == inner.skipped == ()


def test_a_deepspeed_file_of_ones_own_is_followed() -> None:
    (document,) = read(deepspeed="mine/zero3.json")
    assert document.references[1] == ("deepspeed", "mine/zero3.json", "deepspeed")


def test_built_in_fsdp_file_takes_checkpointing_over() -> None:
    (document,) = read(fsdp="fsdp2", gradient_checkpointing=True)
    found = facts(document)
    assert found["training.sharding"] == "fsdp"
    assert found["training.fsdp_version"] == 2
    assert found["training.fsdp_activation_checkpointing"] is True
    assert found["training.gradient_checkpointing"] is False


def test_an_fsdp_file_of_ones_own_is_named() -> None:
    (document,) = read(fsdp="mine/fsdp.json")
    assert facts(document)["training.sharding"] == "fsdp"
    assert [entry.source.key for entry in document.skipped] == ["fsdp_config"]


@pytest.mark.parametrize(
    ("word", "adapter"), [("lora", "lora"), ("full", None), ("adalora", "adalora"), ("vera", "vera"), ("boft", "boft")]
)
@pytest.mark.parametrize("key", ["tuner_type", "train_type", "sft_type"])
def test_adapters_over_the_releases(key: str, word: str, adapter: str | None) -> None:
    data = {"model": "llama-3-8b", "split_dataset_ratio": 0, key: word}
    (document,) = ms_swift.read(data, "sft.yaml")[0]
    assert facts(document)["training.peft"] == adapter


@pytest.mark.parametrize(
    ("keys", "quantization"),
    [
        ({"quant_method": "bnb", "quant_bits": 4}, "nf4"),
        ({"quant_method": "bnb", "quant_bits": 4, "bnb_4bit_quant_type": "fp4"}, "fp4"),
        ({"quant_method": "bnb", "quant_bits": 8}, "int8"),
        ({"quant_method": "hqq", "quant_bits": 4}, "hqq"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_bits": 4}, None),
    ],
)
def test_quantisation(keys: dict[str, Any], quantization: str | None) -> None:
    (document,) = read(**keys)
    assert facts(document).get("model.quantization") == quantization


def test_an_optimizer_plugin_replaces_the_trainers() -> None:
    (document,) = read(optimizer="muon", optim="adamw_torch")
    assert facts(document)["training.optimizer"] == "muon"
    (document,) = read(optimizer="lorap", optim="adamw_torch")
    assert "training.optimizer" not in facts(document)


@pytest.mark.parametrize(
    ("keys", "key", "hint"),
    [
        ({"rlhf_type": "dpoo"}, "rlhf_type", "known: cpo, dpo, gkd"),
        ({"quant_method": "bnb", "quant_bits": 3}, "quant_bits", "expected 4 or 8"),
        ({"attn_impl": "flashy"}, "attn_impl", "expected eager or sdpa"),
        ({"max_length": -4}, "max_length", "expected a whole number"),
    ],
)
def test_a_value_not_understood_names_its_key_and_the_remedy(keys: dict[str, Any], key: str, hint: str) -> None:
    (skipped,) = read(**keys)[0].skipped
    assert (skipped.source.path, skipped.source.key) == ("sft.yaml", key)
    assert skipped.hint is not None
    assert skipped.hint.startswith(hint)


def test_misspelt_keys_are_unread() -> None:
    (document,) = read(tuner_typ="full", split_dataset_rato=0)
    assert document.unread == (
        ("tuner_typ", "tuner_type"),
        ("split_dataset_rato", "split_dataset_ratio"),
    )


@pytest.mark.parametrize(
    ("keys", "made"),
    [
        ({"task_type": "seq_cls", "num_labels": 1}, False),
        ({"num_labels": 2}, False),
        ({"task_type": "embedding"}, False),
        ({"task_type": "generative_reranker"}, None),
        ({}, None),
    ],
)
def test_a_classifier_has_no_logits_of_a_vocabulary(keys: dict[str, Any], made: object) -> None:
    (document,) = read(**keys)
    assert facts(document).get("program.makes_logits") is made


FULL = {"tuner_type": "full"}
"""Full fine-tuning, of which parts may be frozen."""


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"freeze_parameters_ratio": 0.75}, {"training.peft": "freeze", "training.trained_share": 0.25}),
        ({"freeze_parameters_ratio": 1, "trainable_parameters": ["lm_head"]}, {"training.peft": "freeze"}),
        ({"freeze_parameters": ["model.embed_tokens"]}, {"training.peft": "freeze"}),
        ({"freeze_parameters_regex": "layers.[0-9]"}, {"training.peft": "freeze"}),
        ({"freeze_llm": True}, {"training.peft": "freeze"}),
        ({"lisa_activated_layers": 2}, {"training.peft": "freeze", "training.trained_layers": 2}),
        ({"freeze_parameters_ratio": 0.0, "freeze_vit": True, "lisa_activated_layers": 0}, {"training.peft": None}),
        ({"trainable_parameters": ["lm_head"]}, {"training.peft": None}),
    ],
)
def test_a_part_of_full_fine_tuning_may_be_frozen(keys: dict[str, Any], expected: dict[str, object]) -> None:
    found = facts(read(**FULL, **keys)[0])
    names = {"training.peft", "training.trained_share", "training.trained_layers"}
    assert {name: value for name, value in found.items() if name in names} == expected


def test_frozen_parts_are_for_full_fine_tuning_alone() -> None:
    assert facts(read(freeze_parameters_ratio=0.5, lisa_activated_layers=2)[0])["training.peft"] == "lora"


@pytest.mark.parametrize(
    ("keys", "fact"),
    [
        ({"tuner_type": "reft"}, "training.peft"),
        ({"tuner_type": "my_own"}, "training.peft"),
        ({"optimizer": "my_own"}, "training.optimizer"),
        ({"target_regex": "layers.*q_proj"}, "training.lora_target_modules"),
        ({"tuner_backend": "unsloth"}, "training.loss_implementation"),
        ({"max_memory": {0: "20GB"}}, "hardware.devices_per_rank"),
    ],
)
def test_what_no_reader_follows_is_open(keys: dict[str, Any], fact: str) -> None:
    document = read(**keys)[0]
    assert fact in {entry.fact for entry in document.unresolved}
    assert fact not in facts(document)


_ONLINE = {
    "rlhf_type": "grpo",
    "model": "Qwen/Qwen2.5-7B",
    "train_type": "full",
    "use_vllm": True,
    "vllm_mode": "colocate",
}


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, (None, None, None)),
        ({"offload_optimizer": True}, (None, None, True)),
        ({"offload_model": True}, ("cpu", True, None)),
        ({"offload_model": "false", "offload_optimizer": False}, (None, None, False)),
        # what lies on the host at work stays there
        ({"offload_model": True, "deepspeed": "zero3_offload"}, (None, None, None)),
    ],
)
def test_what_waits_on_the_host_while_the_engine_generates(more: dict[str, Any], found: tuple[object, ...]) -> None:
    stated = facts(ms_swift.read({**_ONLINE, **more}, "grpo.yaml").documents[0])
    names = ("training.offload_param", "program.moves_idle_state", "training.sleeps_while_idle")
    assert tuple(stated.get(name) for name in names) == found
    assert stated.get("program.policy_at_rollout") == ("before_cache" if found[0] else None)


def test_how_weights_go_to_the_engine_is_not_read() -> None:
    document = ms_swift.read({**_ONLINE, "move_model_batches": 16, "vllm_max_model_len": 4096}, "grpo.yaml").documents[
        0
    ]
    assert [gap.source.key for gap in document.gaps] == ["move_model_batches"]
    assert facts(document)["rollout.max_model_len"] == 4096


@pytest.mark.parametrize("megatron", [{}, {"micro_batch_size": 1, "tensor_model_parallel_size": 2}])
@pytest.mark.parametrize(
    ("keys", "trained"),
    [
        ({}, 7_000),
        ({"freeze_vit": False, "freeze_aligner": False}, 8_000),
        ({"freeze_vit": False}, None),
        ({"freeze_aligner": False, "freeze_vit": True}, None),
        ({"freeze_llm": True}, None),
    ],
)
def test_towers_are_frozen_unless_a_key_says_otherwise(
    megatron: dict[str, Any], keys: dict[str, Any], trained: int | None
) -> None:
    named = {"tuner_type": None, **megatron} if megatron else FULL  # on Megatron it is what is done where none is named
    model = {"model.parameters": 8_000, "model.vision_parameters": 1_000}
    packages = {"ms-swift": Package("ms-swift", "4.5.2", Source("x"))}
    stack = Environment(origin="x", packages=packages, complete=False)
    settings = {name: (value, Source("x")) for name, value in model.items()}
    found = resolve("x", rules=open_rules(), environment=stack, documents=read(**named, **keys), settings=settings)
    fact = found.roles["train"].get("model.trainable_parameters")
    assert (None if fact is None else fact.value) == trained
