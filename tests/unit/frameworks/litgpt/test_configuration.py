"""LitGPT's files, and what its code makes of what they leave out."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from compatcheck.checking import Request, gather, open_rules
from compatcheck.frameworks.litgpt import configuration as litgpt
from tests.unit.frameworks.launch_script.written_commands import facts

LORA = {"checkpoint_dir": "checkpoints/google/gemma-2b", "lora_query": True, "train": {"max_seq_length": 512}}
FULL = {"checkpoint_dir": "checkpoints/google/gemma-2b", "train": {"max_seq_length": 512}}
PRETRAIN = {"model_name": "tiny-llama-1.1b", "train": {"max_tokens": 9}}


def resolve(tmp_path: Any, data: dict[str, Any], requirement: str = "litgpt==0.5.13") -> dict[str, Any]:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    (tmp_path / "requirements.txt").write_text(f"{requirement}\n", encoding="utf-8")
    request = Request(paths=(str(tmp_path / "requirements.txt"), str(tmp_path / "c.yaml")), here=False)
    (subject,) = gather(request, open_rules(), {}).subjects
    return {name: fact.value for name, fact in subject.roles["train"].items()}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (LORA, True),
        (PRETRAIN, True),
        ({"lora_query": True, "lora_mlp": False}, True),
        ({"checkpoint_dir": "m", "train": "data.json"}, False),
        ({"train": {"epochs": 3}}, False),
        ({"lora_r": 8, "base_model": "m"}, False),
    ],
)
def test_a_file_is_told_by_its_section_beside_a_model_or_by_its_switches(data: dict[str, Any], *, told: bool) -> None:
    assert litgpt.recognise(data) is told


def test_a_file_without_adapters_is_said_to_be_taken_for_full_fine_tuning() -> None:
    (document,) = litgpt.read(FULL, "c.yaml").documents
    assert facts(document)["training.peft"] is None
    assert [one.passes for one in document.skipped] == [True]
    assert not litgpt.read(LORA, "c.yaml").documents[0].skipped


def test_precision_left_out_is_mixed_and_a_quantised_base_has_a_paged_optimizer(tmp_path: Any) -> None:
    found = resolve(tmp_path, {**LORA, "optimizer": {"class_path": "torch.optim.AdamW"}})
    assert (found["training.param_dtype"], found["training.mixed_precision"]) == ("float32", "bf16")
    assert (found["training.optimizer"], found["training.lora_rank"], found["training.micro_batch_size"]) == (
        "adamw",
        8,
        1,
    )
    found = resolve(tmp_path, {**LORA, "precision": "bf16-true", "quantize": "bnb.nf4-dq"}, "litgpt")
    assert (found["training.param_dtype"], found["training.optimizer"]) == ("bfloat16", "paged_adamw")
    assert (found["model.quantization"], found["model.double_quantization"]) == ("nf4", True)


@pytest.mark.parametrize(
    ("data", "release", "expected"),
    [
        (LORA | {"devices": 1}, "0.5.13", ("none", None, False)),
        (LORA | {"devices": 4}, "0.5.10", ("fsdp", 1, True)),
        (LORA | {"devices": 4}, "0.5.11", ("fsdp", 2, True)),
        (FULL | {"devices": 4}, "0.5.13", ("fsdp", 1, True)),
        (PRETRAIN | {"devices": 4}, "0.5.13", ("fsdp", 1, False)),
    ],
)
def test_several_devices_shard_and_all_but_pretraining_recomputes(
    tmp_path: Any, data: dict[str, Any], release: str, expected: tuple[object, ...]
) -> None:
    found = resolve(tmp_path, data, f"litgpt=={release}")
    names = ("training.sharding", "training.fsdp_version", "training.gradient_checkpointing")
    assert tuple(found[name] for name in names) == expected


def test_the_head_is_a_weight_of_its_own(tmp_path: Any) -> None:
    found = resolve(tmp_path, FULL)
    assert found["model.parameters"] == found["model.trainable_parameters"] == 3_030_460_416  # litgpt's GPT, built
    tied = {"model_name": "gemma-2b", "train": {"tie_embeddings": True}}
    assert resolve(tmp_path, tied)["model.parameters"] == 2_506_172_416


def test_pretraining_takes_blocks_as_long_as_the_model_has_them_and_compiles(tmp_path: Any) -> None:
    found = resolve(tmp_path, PRETRAIN)
    assert (found["training.sequence_length"], found["training.compile"]) == (2048, True)
    assert (found["training.micro_batch_size"], found["training.global_batch_size"]) == (4, 512)


def test_sizes_that_stand_in_the_file_are_the_models(tmp_path: Any) -> None:
    sizes = {"n_layer": 6, "n_embd": 288, "n_head": 6, "padded_vocab_size": 32000, "mlp_class_name": "LLaMAMLP"}
    found = resolve(tmp_path, {"model_name": "stories15M", "model_config": sizes, "train": {"max_seq_length": 256}})
    assert (found["model.hidden_size"], found["model.vocab_size"], found["model.gated_mlp"]) == (288, 32000, True)
    assert "model.name" not in found


def test_adapters_lie_beside_the_layers_that_its_own_model_has(tmp_path: Any) -> None:
    layers = {f"lora_{name}": True for name in ("query", "key", "value", "projection", "mlp", "head")}
    found = resolve(tmp_path, {**LORA, **layers, "checkpoint_dir": "checkpoints/microsoft/Phi-3-mini-4k-instruct"})
    assert found["model.model_type"] == "phi3"  # which has its layers in one in transformers
    assert found["model.trainable_parameters"] == 14_942_208 + 8 * (3072 + 32_064)


def test_scores_that_are_capped_are_made_whole_and_an_adapted_head_is_counted(tmp_path: Any) -> None:
    layers = {f"lora_{name}": True for name in ("query", "key", "value", "projection", "mlp", "head")}
    found = resolve(tmp_path, {**LORA, **layers, "checkpoint_dir": "checkpoints/google/gemma-2-2b"})
    assert found["program.attn_implementation"] == "eager"
    assert found["model.trainable_parameters"] == 10_383_360 + 8 * (2304 + 256_000)
    assert resolve(tmp_path, LORA)["program.attn_implementation"] == "sdpa"
