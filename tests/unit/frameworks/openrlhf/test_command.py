"""OpenRLHF's options in both spellings, by role."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.document import Document
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents, facts, resolved

OLD = (
    "--actor_num_nodes 4 --actor_num_gpus_per_node 8 --ref_num_nodes 2 "
    "--ref_num_gpus_per_node 8 --pretrain m --zero_stage 3 --bf16 "
    "--adam_offload --gradient_checkpointing --micro_train_batch_size 1 "
    "--train_batch_size 128 --micro_rollout_batch_size 2 "
    "--prompt_max_len 1024 --generate_max_len 512 --packing_samples "
    "--flash_attn --n_samples_per_prompt 4 --vllm_num_engines 1 "
    "--vllm_tensor_parallel_size 8 --advantage_estimator group_norm "
    "--init_kl_coef 0.01 --vllm_enable_sleep --enforce_eager"
)
NEW = (
    "--actor.num_nodes 4 --actor.num_gpus_per_node 8 --ref.num_nodes 2 --ref.num_gpus_per_node 8 --actor.model_name_or_path m "
    "--ds.zero_stage 3 --ds.param_dtype bf16 --ds.adam_offload --actor.gradient_checkpointing_enable --train.micro_batch_size 1 "
    "--train.batch_size 128 --rollout.micro_batch_size 2 --rollout.max_new_tokens 512 --ds.packing_samples "
    "--ds.attn_implementation flash_attention_2 "
    "--rollout.n_samples_per_prompt 4 --vllm.num_engines 1 --vllm.tensor_parallel_size 8 "
    "--algo.advantage.estimator group_norm --algo.kl.init_coef 0.01 --vllm.enable_sleep --vllm.enforce_eager"
)


def read(options: str, program: str = "train_ppo_ray") -> Document:
    return documents(f"ray job submit -- python3 -m openrlhf.cli.{program} {options}")[0]


@pytest.mark.parametrize("options", [OLD, NEW], ids=["until 0.10.1", "from 0.10.2"])
def test_reinforcement_learning_in_both_spellings(options: str) -> None:
    found = read(options)
    assert found.reader == "openrlhf"
    assert found.unread == found.skipped == found.gaps == ()
    assert [entry.fact for entry in found.unresolved] == ["training.gradient_accumulation_steps"]
    actor, reference = facts(found, "actor"), facts(found, "reference")
    shared = {
        "training.trainer": "grpo",
        "rollout.n": 4,
        "rollout.engine": "vllm",
        "rollout.tensor_parallel": 8,
        "rollout.sleep_mode": True,
        "rollout.enforce_eager": True,
        "rollout.log_prob_micro_batch_size": 2,
        "training.max_response_length": 512,
        "training.packing": True,
        "model.attn_implementation": "flash_attention_2",
    }
    expected_actor: dict[str, Any] = {
        "hardware.nodes": 4,
        "hardware.gpus_per_node": 8,
        "training.zero_stage": 3,
        "training.mixed_precision": "bf16",
        "training.offload_optimizer": "cpu",
        "training.gradient_checkpointing": True,
        "training.micro_batch_size": 1,
        "training.global_batch_size": 128,
        "training.kl_coefficient": 0.01,
    }
    expected_reference: dict[str, Any] = {
        "hardware.nodes": 2,
        "training.zero_stage": 3,
        "training.mixed_precision": "bf16",
        "training.offload_optimizer": None,
        "training.gradient_checkpointing": False,
        "training.micro_batch_size": 2,
    }
    assert actor == actor | shared | expected_actor
    assert reference == reference | shared | expected_reference
    assert {entry.role for entry in found.statements} == {None, "actor", "reference"}
    assert [(kind, name) for kind, name, _ in found.references] == [("model", "m")]


@pytest.mark.parametrize(
    ("more", "attention"),
    [
        ("", None),
        ("--packing_samples", "flash_attention_2"),
        ("--packing_samples --attn_implementation flash_attention_3", "flash_attention_3"),
        ("--ds.packing_samples", "flash_attention_2"),
    ],
)
def test_packing_turns_flash_attention_on(more: str, attention: str | None) -> None:
    assert facts(read(f"--pretrain m --zero_stage 3 {more}"), "actor").get("model.attn_implementation") == attention


def test_a_frozen_model_keeps_stage_3_and_no_other() -> None:
    assert facts(read("--pretrain m --zero_stage 2"), "reference")["training.zero_stage"] == 0
    assert facts(read("--pretrain m"), "reference")["training.zero_stage"] == 0
    assert "training.zero_stage" not in facts(read("--pretrain m --zero_stage $Z"), "reference")


def test_models_are_there_as_the_options_have_it() -> None:
    roles = {
        entry.role
        for entry in read("--pretrain m --reward_pretrain r --critic_pretrain c --critic_num_nodes 1").statements
    }
    assert roles >= {"actor", "critic", "reference", "reward"}
    found = read("--pretrain m --reward_pretrain r --critic_pretrain c --remote_rm_url u --advantage_estimator rloo")
    assert {entry.role for entry in found.statements} == {None, "actor", "reference"}
    assert facts(found)["training.trainer"] == "rloo"
    assert [kind for kind, _, _ in found.references] == ["model"]
    told = resolved("ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --pretrain m", "actor")
    assert (told["training.trainer"], told["training.reference_model"]) == ("ppo", True)


def test_dynamic_batches_count_tokens() -> None:
    found = read("--pretrain m --use_dynamic_batch --train_max_tokens_per_gpu 8192 --micro_train_batch_size 4")
    assert facts(found, "actor")["training.micro_batch_tokens"] == 8192
    assert "training.micro_batch_size" not in facts(found, "actor")


@pytest.mark.parametrize(("ranks", "tokens"), [("--ds_tensor_parallel_size 2", 16384), ("--ring_attn_size 2", 8192)])
def test_ranks_of_tensors_fill_a_batch_together_and_each_has_all_of_it(ranks: str, tokens: int) -> None:
    found = read(f"--pretrain m --use_dynamic_batch --train_max_tokens_per_gpu 8192 {ranks}")
    assert facts(found, "actor")["training.micro_batch_tokens"] == tokens


@pytest.mark.parametrize(
    ("program", "trainer"), [("train_sft", "sft"), ("train_dpo", "dpo"), ("train_rm", "reward"), ("train_kto", "kto")]
)
def test_programs_with_one_model(program: str, trainer: str) -> None:
    text = (
        f"deepspeed --num_gpus 8 --module openrlhf.cli.{program} --pretrain m "
        "--max_len 2048 --zero_stage 2 --lora_rank 16 --load_in_4bit"
    )
    document, launcher = documents(text)
    assert facts(document)["training.trainer"] == trainer
    assert facts(document)["training.peft"] == "lora"
    assert facts(document)["model.quantization"] == "nf4"
    assert facts(document)["training.sequence_length"] == 2048
    assert {entry.role for entry in document.statements} == {None}
    assert facts(launcher)["hardware.gpus_per_node"] == 8


def test_misspelt_options_are_unread() -> None:
    assert dict(read("--pretrain m --zero_stages 3 --actor.adam.lr 1e-6 --use_wandb $W").unread) == {
        "zero_stages": "zero_stage"
    }


def test_devices_that_are_left_out_are_the_programs_own_under_ray() -> None:
    def world(text: str) -> dict[str, Any]:
        packages = {"openrlhf": Package("openrlhf", "0.6.1", Source("e"))}
        environment = Environment("e", packages, complete=False)
        subject = resolve("s", rules=open_rules(), environment=environment, documents=documents(text))
        return {
            role: facts["hardware.world_size"].value
            for role, facts in subject.roles.items()
            if "hardware.world_size" in facts
        }

    ray = "ray job submit -- python -m openrlhf.cli.train_ppo_ray --pretrain m --advantage_estimator rloo"
    assert world(f"{ray} --actor_num_nodes 4") == {"actor": 32, "reference": 8}
    assert world("deepspeed --module openrlhf.cli.train_ppo --pretrain m --advantage_estimator rloo") == {}


def test_a_critic_starts_from_the_reward_model() -> None:
    found = read("--pretrain m --reward_pretrain r1,r2")
    assert ("model:critic", "r1", "reward_pretrain") in found.references


@pytest.mark.parametrize(
    "options",
    [
        "--colocate_actor_ref --deepspeed_enable_sleep --rollout_batch_size 256 --n_samples_per_prompt 4",
        "--train.colocate_actor_ref --ds.enable_sleep --rollout.batch_size 256 --rollout.n_samples_per_prompt 4",
    ],
)
def test_who_shares_devices_and_sleeps(options: str) -> None:
    found = read(f"{options} --pretrain m --micro_train_batch_size 1")
    assert found.unread == ()
    assert facts(found, "reference")["training.colocated_with"] == "actor"
    assert "training.colocated_with" not in facts(found, "actor")
    assert facts(found, "actor")["training.sleeps_while_idle"] is True
    assert facts(found)["rollout.global_batch_size"] == 1024


def test_engines_of_asynchronous_training_are_elsewhere() -> None:
    found = read("--pretrain m --micro_train_batch_size 1 --colocate_all_models --async_train --init_kl_coef 0.01")
    assert facts(found)["rollout.colocated"] is False
    assert facts(found, "reference")["training.colocated_with"] == "actor"
    together = read("--pretrain m --micro_train_batch_size 1 --colocate_all_models --init_kl_coef 0.01")
    assert facts(together)["rollout.colocated"] is True
    assert "training.colocated_with" not in facts(together, "reference")


@pytest.mark.parametrize("given", ["--micro_rollout_batch_size 8 --micro_train_batch_size 4", ""])
def test_batches_in_sequences_have_no_default_where_batches_are_dynamic(given: str) -> None:
    run = "python3 -m openrlhf.cli.train_ppo_ray --pretrain m --advantage_estimator rloo --use_dynamic_batch " + given
    versions = Environment("r.txt", {"openrlhf": Package("openrlhf", "0.8.11", Source("r.txt"))}, complete=False)
    subject = resolve("x", rules=open_rules(()), environment=versions, documents=documents(run))
    for known in subject.roles.values():
        assert {"rollout.log_prob_micro_batch_size", "training.micro_batch_size"}.isdisjoint(known)


def test_muon_is_deepspeeds_own() -> None:
    found = read("--pretrain m --actor.optim muon --critic.optim adam --advantage_estimator gae")
    assert facts(found, "actor")["training.optimizer_by_deepspeed"] is True
    assert "training.optimizer_by_deepspeed" not in facts(found, "critic")


@pytest.mark.parametrize("option", ["--deepcompile", "--ds.deepcompile"])
def test_compiles_where_deepcompile_is_on(option: str) -> None:
    """OpenRLHF 0.8.5 ``utils/deepspeed/deepspeed.py`` ``_ds_init_train_model()``: ``engine.compile()``."""
    actor = facts(read(f"--pretrain m --zero_stage 3 --bf16 {option}", "train_sft"))
    assert actor["training.deepcompile"] is actor["training.compile"] is True
    assert "training.compile" not in facts(read("--pretrain m --zero_stage 3 --bf16", "train_sft"))
