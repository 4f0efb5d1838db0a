"""prime-rl's configurations: values as its own pydantic models have them (559b447, prime-pydantic-config 0.4.3)."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.document import Document
from compatcheck.core.toml import parse_toml
from compatcheck.frameworks.prime_rl import configuration as prime_rl
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import facts

RL = """
max_steps = 20
seq_len = 2048

[model]
name = "Qwen/Qwen3-0.6B"

[trainer.model.ac_offloading]
max_inflight_activations = 1

[orchestrator]
batch_size = 128
group_size = 16

[inference.vllm]
gpu_memory_utilization = 0.5
"""
SFT = """
[model]
name = "Qwen/Qwen3-0.6B"
compile = "None"

[data]
type = "fake"
batch_size = 2
seq_len = 1024
"""
DEFAULTS: dict[str, Any] = {
    "training.param_dtype": "float32",
    "training.compute_dtype": "bfloat16",
    "training.reduce_dtype": "float32",
    "training.micro_batch_size": 1,
    "training.gradient_checkpointing": True,
    "training.activation_offloading": True,
    "training.fsdp_offload_params": False,
    "training.offload_optimizer": "cpu",
    "training.fsdp_reshard_after_forward": True,
    "training.replicas": 1,
    "training.context_parallel": 1,
    "training.peft": None,
    "training.optimizer": "adamw",
    "training.optimizer_implementation": "foreach",
    "training.loss_implementation": "fused_linear",
    "training.sharding": "fsdp",
    "training.fsdp_version": 2,
    "hardware.world_size": 1,
}


def read(text: str) -> Document:
    (document,) = prime_rl.read(parse_toml(text, "c.toml"), "c.toml").documents
    return document


def settle(text: str) -> dict[str, Any]:
    """Return all facts of a run, defaults included."""
    subject = resolve("c", rules=open_rules(()), documents=(read(text),))
    return {name: fact.value for name, fact in subject.roles["train"].items()}


def test_what_a_file_for_rl_says_and_leaves_out() -> None:
    found = settle(RL)
    wanted = DEFAULTS | {
        "training.trainer": "grpo",
        "training.sequence_length": 2048,
        "training.global_batch_size": 128,
        "training.compile": True,
        "rollout.n": 16,
        "rollout.engine": "vllm",
        "rollout.colocated": False,
        "rollout.gpu_memory_utilization": 0.5,
        "rollout.tensor_parallel": 1,
        "rollout.enforce_eager": False,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert not read(RL).unread
    assert ("model", "Qwen/Qwen3-0.6B", "model.name") in read(RL).references


def test_what_a_file_for_sft_says_and_leaves_out() -> None:
    found = settle(SFT)
    wanted = DEFAULTS | {
        "training.trainer": "sft",
        "training.sequence_length": 1024,
        "training.global_batch_size": 2,
        "training.compile": False,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert "rollout.engine" not in found


def test_a_length_of_the_trainer_wins_over_the_shared_one() -> None:
    longer = RL.replace(
        "[trainer.model.ac_offloading]", "[trainer.model]\nseq_len = 4096\n[trainer.model.ac_offloading]"
    )
    assert settle(longer)["training.sequence_length"] == 4096


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ("[model.ac]", True),
        ('ac = "None"', True),  # offloading turns it on
        ('ac = "None"\nac_offloading = "None"', False),
        ('ac_offloading = "None"', True),
    ],
)
def test_a_section_that_is_there_is_on(section: str, wanted: object) -> None:
    assert settle(SFT.replace('compile = "None"', section))["training.gradient_checkpointing"] is wanted


@pytest.mark.parametrize("section", ["ac.freq = 2", 'ac.mode = "selective"'])
def test_checkpoints_of_some_blocks_or_parts_are_open(section: str) -> None:
    document = read(SFT.replace('compile = "None"', section))
    assert "training.gradient_checkpointing" not in facts(document)
    assert "training.gradient_checkpointing" in {one.fact for one in document.unresolved}


def test_adapters_have_defaults_of_their_own() -> None:
    found = settle(SFT + "\n[model.lora]\nrank = 8\n")
    assert (found["training.peft"], found["training.lora_rank"]) == ("lora", 8)
    assert settle(SFT + "\n[model.lora]\n")["training.lora_rank"] == 16
    assert "experts" in settle(SFT + "\n[model.lora]\n")["training.lora_target_modules"]


def test_all_of_the_optimizer_on_the_host_leaves_16_bit_weights() -> None:
    found = settle(SFT.replace('compile = "None"', "full_offload = true\noptim_cpu_offload = false"))
    assert (found["training.param_dtype"], found["training.master_dtype"]) == ("bfloat16", "float32")
    assert found["training.offload_optimizer"] == "cpu"
    assert not found.get("program.states_return_for_step")
    assert settle(SFT)["program.states_return_for_step"] is True


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("num_train_gpus = 6", (1, 6)),
        ('type = "multi_node"\nnum_train_nodes = 4\nnum_infer_nodes = 2', (4, 8)),
        ('type = "multi_node"\nnum_train_nodes = 4\ngpus_per_node = 4', (4, 4)),
    ],
)
def test_devices_that_train_are_counted(text: str, wanted: tuple[int, int]) -> None:
    found = facts(read(f"{RL}\n[deployment]\n{text}\n"))
    assert (found["hardware.nodes"], found["hardware.gpus_per_node"]) == wanted


def test_files_of_others_are_not_its_own() -> None:
    assert prime_rl.recognise({"trainer": {}, "orchestrator": {}})
    assert not prime_rl.recognise(
        {"model": {"name": "llama3", "flavor": "8B"}, "optim": {}, "data": {}, "ckpt": {}, "val": {}}
    )
    assert not prime_rl.recognise({"trainer": {}, "model": {}})


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        ({"tensor_parallel_size": 8, "enable_expert_parallel": True}, (1, 8)),
        ({"data_parallel_size": 4, "tensor_parallel_size": 2, "enable_expert_parallel": True}, (4, 8)),
        ({"data_parallel_size": 4}, (None, None)),
    ],
)
def test_experts_of_the_engine_are_spread_over_all_of_its_devices(
    engine: dict[str, Any], found: tuple[int | None, int | None]
) -> None:
    data = {"trainer": {"model": {"name": "x"}}, "orchestrator": {}, "inference": {"vllm": engine}}
    stated = facts(prime_rl.read(data, "rl.toml").documents[0])
    assert (stated.get("rollout.data_parallel"), stated.get("rollout.expert_parallel")) == found


@pytest.mark.parametrize(("served", "said"), [(None, False), ("org/x", False), ("org/x-FP8", True)])
def test_a_model_that_is_served_instead_of_the_trained_one_is_said(served: str | None, *, said: bool) -> None:
    engine = {} if served is None else {"model": served}
    data = {"trainer": {"model": {"name": "org/x"}}, "orchestrator": {}, "inference": {"vllm": engine}}
    document = prime_rl.read(data, "rl.toml").documents[0]
    assert any(entry.key == "(another model is served)" for entry in document.statements) is said
