"""torchtune: its recipes, and the words that `tune run` lays over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.checking import Request, gather, open_rules
from compatcheck.frameworks.torchtune import configuration as torchtune
from tests import ROOT
from tests.unit.frameworks.launch_script.written_commands import documents, facts
from tests.unit.frameworks.reading import read_file

if TYPE_CHECKING:
    from pathlib import Path

FULL = ROOT / "fixtures/configs/torchtune/full.yaml"


def test_a_recipe_with_a_file_and_words_over_it() -> None:
    text = (
        "tune run --nproc_per_node 8 lora_finetune_distributed --config my.yaml "
        "batch_size=2 model.lora_rank=8 tokenizer.max_seq_len=$S"
    )
    document, launcher = documents(text)
    assert document.reader == "torchtune"
    assert facts(document) == {
        "training.micro_batch_size": 2,
        "training.lora_rank": 8,
        "training.trainer": "sft",
        "training.sharding": "fsdp",
        "training.peft": "lora",
    }
    assert document.references == (("config", "my.yaml", "--config"),)
    assert [(entry.fact, entry.key) for entry in document.unresolved] == [
        ("training.sequence_length", "tokenizer.max_seq_len")
    ]
    assert facts(launcher) == {"hardware.gpus_per_node": 8, "hardware.nodes": 1}


def test_a_configuration_of_torchtune_itself_is_not_known() -> None:
    document, launcher = documents(
        "tune run full_finetune_single_device --config llama3/8B_full_single_device batch_size=4"
    )
    assert facts(document)["training.micro_batch_size"] == 4
    assert "training.gradient_checkpointing" in {entry.fact for entry in document.unresolved}
    assert "training.micro_batch_size" not in {entry.fact for entry in document.unresolved}
    assert facts(launcher) == {"hardware.world_size": 1}


@pytest.mark.parametrize(
    ("words", "stated", "left"),
    [
        (
            "enable_activation_checkpointing=False ac_mode=selective ac_option=2",
            {"gradient_checkpointing": True, "checkpoint_every": 2},
            [],
        ),
        (
            "enable_activation_checkpointing=False ac_mode=selective ac_option=0",
            {"gradient_checkpointing": True, "checkpoint_every": 1},
            [],
        ),
        ("enable_activation_checkpointing=False ac_mode=full", {"gradient_checkpointing": True}, []),
        ("enable_activation_checkpointing=True ac_mode=selective ac_option=2", {}, ["training.gradient_checkpointing"]),
        ("ac_mode=selective ac_option=2", {}, ["training.gradient_checkpointing"]),
        ("enable_activation_checkpointing=True", {"gradient_checkpointing": True}, []),
    ],
)
def test_selective_checkpointing_is_of_some_layers(words: str, stated: dict[str, object], left: list[str]) -> None:
    document, _ = documents(f"tune run --nproc_per_node 2 full_finetune_distributed --config my.yaml {words}")
    found = {name: value for name, value in facts(document).items() if "checkpoint" in name}
    assert found == {f"training.{name}": value for name, value in stated.items()}
    assert [entry.fact for entry in document.unresolved] == left


def test_a_configuration_file_of_torchtune() -> None:
    document = read_file(torchtune, str(FULL)).documents[0]
    assert facts(document) == {
        "training.micro_batch_size": 2,
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "fused",
        "training.peft": None,
    }
    data = {
        "model": {"_component_": "torchtune.models.llama3.qlora_llama3_8b"},
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
    }
    found = facts(torchtune.read(data, "c.yaml").documents[0])
    assert (found["training.peft"], found["model.quantization"], found["training.loss_implementation"]) == (
        "qlora",
        "nf4",
        "chunked",
    )
    assert found["training.loss_type"] == "CEWithChunkedOutputLoss"


@pytest.mark.parametrize(
    ("builder", "name"),
    [
        ("llama3_3.llama3_3_70b", "meta-llama/Llama-3.3-70B-Instruct"),
        ("llama3_1.qlora_llama3_1_405b", "meta-llama/Meta-Llama-3.1-405B"),
        ("qwen2_5.lora_qwen2_5_7b_instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("mine.model", None),
    ],
)
def test_a_model_is_told_by_the_function_that_builds_it(builder: str, name: str | None) -> None:
    wanted = () if name is None else (("model", name, "model._component_"),)
    data = {"model": {"_component_": f"torchtune.models.{builder}"}, "batch_size": 2, "optimizer_in_bwd": True}
    document = torchtune.read(data, "c.yaml").documents[0]
    assert document.references == wanted
    assert facts(document)["training.optimizer_in_backward"] is True
    command = documents(f"tune run full_finetune_single_device model._component_=torchtune.models.{builder}")[0]
    assert command.references == wanted


def test_components_of_ones_own_are_open() -> None:
    recipe = {"optimizer": {"_component_": "mine.Lion"}, "loss": {"_component_": "mine.Loss"}, "batch_size": 1}
    document = torchtune.read(
        {**recipe, "teacher_model": {"_component_": "torchtune.models.llama3.llama3_8b"}}, "r.yaml"
    )[0][0]
    assert {entry.fact for entry in document.unresolved} == {"training.optimizer", "training.loss_implementation"}
    assert [gap.source.key for gap in document.gaps] == ["teacher_model._component_"]


SMALL = """
model:
  _component_: torchtune.models.{model}
optimizer:
  _component_: torch.optim.AdamW
batch_size: 2
dtype: bf16
"""


def resolve(path: Path, name: str, model: str = "qwen2.qwen2_1_5b", text: str = "", **more: Any) -> dict[str, Any]:
    (path / name).write_text(SMALL.format(model=model), encoding="utf-8")
    (path / "run.sh").write_text(text, encoding="utf-8")
    paths = (str(path / ("run.sh" if text else name)),)
    (subject,) = gather(Request(paths=paths, here=False, **more), open_rules(), {}).subjects
    return {fact: one.value for fact, one in subject.roles["train"].items()}


def test_a_file_for_one_device_is_not_sharded_and_a_recipe_says_otherwise(tmp_path: Path) -> None:
    alone = resolve(tmp_path, "1.5B_full_single_device.yaml")
    assert (alone["training.sharding"], alone["hardware.world_size"]) == ("none", 1)
    assert alone["training.fsdp_version"] is None
    assert not {"training.fsdp_reshard_after_forward", "training.fsdp_offload_params"} & alone.keys()
    words = "tune run --nproc_per_node 2 full_finetune_distributed --config 1.5B_full_single_device.yaml\n"
    found = resolve(tmp_path, "1.5B_full_single_device.yaml", text=words)
    assert (found["training.sharding"], found["hardware.world_size"]) == ("fsdp", 2)
    assert (found["training.fsdp_version"], found["training.fsdp_reshard_after_forward"]) == (2, True)


def test_a_file_that_no_command_names_is_sharded_over_several_devices(tmp_path: Path) -> None:
    assert "training.sharding" not in resolve(tmp_path, "1.5B_full.yaml")
    assert resolve(tmp_path, "1.5B_full.yaml", gpu="8xA100-80GB")["training.sharding"] == "fsdp"


@pytest.mark.parametrize(("model", "kernel"), [("gemma2.gemma2_2b", "eager"), ("qwen2.qwen2_1_5b", "sdpa")])
def test_scores_that_are_capped_are_made_whole(tmp_path: Path, model: str, kernel: str) -> None:
    assert resolve(tmp_path, "c.yaml", model)["program.attn_implementation"] == kernel


def test_a_builder_that_nobody_knows_is_said() -> None:
    def unresolved(builder: str) -> set[str | None]:
        data = {
            "model": {"_component_": f"torchtune.models.{builder}"},
            "batch_size": 1,
            "optimizer": {"_component_": "torch.optim.AdamW"},
        }
        return {one.fact for document in torchtune.read(data, "c.yaml").documents for one in document.unresolved}

    assert "model.name" in unresolved("llama9.llama9_1b")
    assert "model.name" not in unresolved("llama3_1.llama3_1_8b")


@pytest.mark.parametrize(
    ("loss", "trainer"),
    [("rlhf.loss.DPOLoss", "dpo"), ("rlhf.loss.PPOLoss", "ppo"), ("modules.loss.LinearCrossEntropyLoss", None)],
)
def test_a_loss_that_one_method_has_tells_the_method(loss: str, trainer: str | None) -> None:
    data = {"loss": {"_component_": f"torchtune.{loss}"}, "batch_size": 1}
    (document,) = torchtune.read(data, "c.yaml").documents
    assert facts(document).get("training.trainer") == trainer


ATTENTION = ["q_proj", "v_proj", "output_proj"]
MLP = ("gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize(
    ("more", "targets"),
    [
        ({}, ("q_proj", "v_proj", "o_proj")),
        ({"apply_lora_to_mlp": False}, ("q_proj", "v_proj", "o_proj")),
        ({"apply_lora_to_mlp": True, "apply_lora_to_output": False}, ("q_proj", "v_proj", "o_proj", *MLP)),
        ({"apply_lora_to_output": True}, ("q_proj", "v_proj", "o_proj", "lm_head")),
        ({"apply_lora_to_mlp": "${x}"}, None),
    ],
)
def test_several_keys_say_which_layers_have_adapters(more: dict[str, object], targets: tuple[str, ...] | None) -> None:
    model = {"_component_": "torchtune.models.llama3.lora_llama3_8b", "lora_attn_modules": ATTENTION, **more}
    document = torchtune.read({"model": model}, "c.yaml").documents[0]
    assert facts(document).get("training.lora_target_modules") == targets
    assert ("training.lora_target_modules" in {one.fact for one in document.unresolved}) is (targets is None)


def test_ranks_that_split_a_sequence_share_a_shard() -> None:
    words = "data_parallel_shard_dim=4 data_parallel_replicate_dim=2 context_parallel_dim=2"
    document, _ = documents(f"tune run --nproc_per_node 16 full_finetune_distributed {words}")
    assert facts(document)["training.hsdp_shard_size"] == 8
