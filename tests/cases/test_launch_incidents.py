"""The five incidents as launch scripts of our own with the keys that were reported: facts by role, and where each was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compatcheck.checking import Request, gather
from compatcheck.core.facts import Fact
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules

SEARCH_R1 = """
export BASE_MODEL='Qwen/Qwen2.5-32B'
N_NODES=4
export VLLM_ATTENTION_BACKEND=XFORMERS
ray job submit --address=$RAY_DASHBOARD_ADDRESS --runtime-env=verl/trainer/runtime_env.yaml --no-wait -- \\
    python3 -m verl.trainer.main_ppo \\
    data.train_batch_size=512 data.max_prompt_length=4096 data.max_response_length=500 \\
    data.max_start_length=2048 data.max_obs_length=500 algorithm.adv_estimator=grpo \\
    actor_rollout_ref.model.path=$BASE_MODEL \\
    actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.model.use_remove_padding=True \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size=64 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=false \\
    actor_rollout_ref.actor.fsdp_config.grad_offload=false \\
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=false \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size=128 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \\
    actor_rollout_ref.ref.log_prob_micro_batch_size=128 actor_rollout_ref.ref.fsdp_config.param_offload=false \\
    actor_rollout_ref.rollout.n_agent=5 +trainer.val_only=false \\
    trainer.n_gpus_per_node=8 trainer.nnodes=$N_NODES 2>&1 | tee run.log
"""

SMALL = """
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    data.train_batch_size=128 data.max_prompt_length=4096 data.max_response_length=1000 \\
    data.max_start_length=2048 data.max_obs_length=500 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B actor_rollout_ref.model.enable_gradient_checkpointing=true \\
    actor_rollout_ref.model.use_remove_padding=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size=16 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=true actor_rollout_ref.actor.fsdp_config.grad_offload=true \\
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=true \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size=32 actor_rollout_ref.ref.log_prob_micro_batch_size=32 \\
    trainer.n_gpus_per_node=2 trainer.nnodes=1 retriever.topk=3
"""
RETRIEVER = "python search_r1/search/retrieval_server.py --index_path i --corpus_path c --topk 3 --faiss_gpu\n"

LOGIC = """
MODEL_PATH=Qwen/Qwen2.5-7B
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    data.train_batch_size=8 data.max_prompt_length=400 data.max_response_length=2048 \\
    actor_rollout_ref.model.path=$MODEL_PATH\\
    actor_rollout_ref.model.use_remove_padding=True actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size=64 \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size=160 actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    actor_rollout_ref.rollout.n=16 actor_rollout_ref.ref.log_prob_micro_batch_size=160 \\
    actor_rollout_ref.ref.fsdp_config.param_offload=True trainer.project_name='GRPO_logic_KK' \\
    trainer.n_gpus_per_node=4 trainer.nnodes=1 $@
"""

OPENRLHF = """
ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \\
    --ref_num_nodes 4 --ref_num_gpus_per_node 8 --actor_num_nodes 4 --actor_num_gpus_per_node 8 \\
    --vllm_num_engines 1 --vllm_tensor_parallel_size 8 --remote_rm_url http://localhost:5000/get_reward \\
    --pretrain meta-llama/Meta-Llama-3-70B --micro_train_batch_size 1 --train_batch_size 128 --micro_rollout_batch_size 2 \\
    --rollout_batch_size 256 --prompt_max_len 1024 --generate_max_len 1024 --zero_stage 3 --bf16 \\
    --advantage_estimator group_norm --n_samples_per_prompt 4 --packing_samples --adam_offload --flash_attn \\
    --gradient_checkpointing --init_kl_coef 0.01
"""

QWEN = """
GPUS_PER_NODE=8
NNODES=1
MODEL="Qwen/Qwen1.5-32B"
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes $NNODES
"
cat > ds_config_zero3.json <<EOF
{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "overlap_comm": true},
 "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto"}
EOF
torchrun $DISTRIBUTED_ARGS finetune.py --model_name_or_path $MODEL --data_path $DATA --bf16 True --output_dir out \\
    --num_train_epochs 5 --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --learning_rate 1e-5 \\
    --model_max_length 4096 --gradient_checkpointing True --deepspeed ds_config_zero3.json
"""


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


def read(rules: RuleSet, directory: Path, **scripts: str) -> Subject:
    paths = []
    for name, text in scripts.items():
        path = directory / f"{name}.sh"
        path.write_text(text, encoding="utf-8")
        paths.append(str(path))
    gathered = gather(Request(paths=tuple(paths)), rules, {})
    (subject,) = gathered.subjects
    assert [entry for entry in (*gathered.skipped, *subject.skipped) if entry.named] == []
    return subject


def values(subject: Subject, role: str, names: dict[str, Any]) -> dict[str, Any]:
    facts = subject.roles[role]
    return {name: facts[name].value if name in facts else "unknown" for name in names}


def check(subject: Subject, role: str, expected: dict[str, Any]) -> None:
    assert values(subject, role, expected) == expected


def fact(subject: Subject, role: str, name: str) -> Fact:
    return subject.roles[role][name]


def test_search_r1_on_four_nodes(rules: RuleSet, tmp_path: Path) -> None:
    subject = read(rules, tmp_path, train_grpo_multinode_32b=SEARCH_R1)
    assert list(subject.roles) == ["actor", "reference"]
    shared = {
        "training.framework": "search-r1",
        "training.trainer": "grpo",
        "model.parameters": 32_763_876_352,
        "model.attn_implementation": "flash_attention_2",
        "hardware.world_size": 32,
        "training.sharding": "fsdp",
        "training.fsdp_sharding_strategy": "full_shard",
        "training.compute_dtype": "bfloat16",
        "training.use_remove_padding": True,
        "training.max_prompt_length": 4096,
        "training.max_response_length": 500,
        "training.num_generations": 5,
        "training.micro_batch_is_global": True,
        "rollout.engine": "vllm",
        "rollout.n": 1,
        "rollout.tensor_parallel": 2,
        "rollout.gpu_memory_utilization": 0.5,
        "rollout.enforce_eager": True,
        "rollout.free_cache_engine": True,
        "rollout.log_prob_micro_batch_size": 128,
        "rollout.colocated": True,
    }
    check(subject, "actor", shared)
    check(subject, "reference", shared)
    actor = {
        "training.micro_batch_size": 64,
        "training.global_batch_size": 256,
        "training.gradient_checkpointing": True,
        "training.param_dtype": "float32",
        "training.offload_param": None,
        "training.offload_optimizer": None,
        "training.optimizer": "adamw",
        "training.reference_model": True,
        "training.kl_coefficient": 0.001,
        "training.entropy_coefficient": 0.001,
    }
    check(subject, "actor", actor)
    frozen = {
        "training.micro_batch_size": 128,
        "training.gradient_checkpointing": False,
        "training.param_dtype": "bfloat16",
        "training.offload_param": None,
        "model.trainable_parameters": 0,
    }
    check(subject, "reference", frozen)
    assert fact(subject, "actor", "training.micro_batch_size").sources[0].line == 13
    assert fact(subject, "actor", "training.micro_batch_size").origin == "script"
    assert subject.environment is not None
    assert dict(subject.environment.variables or {})["VLLM_ATTENTION_BACKEND"] == "XFORMERS"


def test_search_r1_beside_a_retriever_on_the_devices(rules: RuleSet, tmp_path: Path) -> None:
    alone = read(rules, tmp_path, train_grpo=SMALL)
    expected = {
        "training.framework": "search-r1",
        "training.micro_batch_size": 16,
        "training.global_batch_size": 64,
        "training.offload_param": "cpu",
        "training.offload_optimizer": "cpu",
        "rollout.log_prob_micro_batch_size": 32,
        "hardware.world_size": 2,
        "training.max_response_length": 1000,
        "run.retriever_on_gpu": "unknown",
    }
    check(alone, "actor", expected)
    check(alone, "reference", {"training.micro_batch_size": 32, "training.micro_batch_is_global": True})


def test_a_retriever_is_read_from_its_own_script(rules: RuleSet, tmp_path: Path) -> None:
    path = tmp_path / "retrieval_launch.sh"
    path.write_text(RETRIEVER, encoding="utf-8")
    training = tmp_path / "train.sh"
    training.write_text(SMALL, encoding="utf-8")
    gathered = gather(Request(paths=(str(training),), training=(str(path),)), rules, {})
    check(gathered.subjects[0], "actor", {"run.retriever_on_gpu": True, "training.micro_batch_size": 16})


def test_logic_rl_multiplies_its_micro_batches(rules: RuleSet, tmp_path: Path) -> None:
    subject = read(rules, tmp_path, main_grpo=LOGIC)
    expected = {
        "training.framework": "logic-rl",
        "training.micro_batch_size": 64,
        "training.micro_batch_is_global": True,
        "training.global_batch_size": 128,
        "training.max_response_length": 2048,
        "training.offload_optimizer": "cpu",
        "training.param_dtype": "float32",
        "rollout.n": 16,
        "rollout.tensor_parallel": 1,
        "rollout.gpu_memory_utilization": 0.6,
        "rollout.log_prob_micro_batch_size": 160,
        "rollout.enforce_eager": True,
        "hardware.world_size": 4,
    }
    check(subject, "actor", expected)
    check(subject, "reference", {"training.micro_batch_size": 160, "training.offload_param": "cpu"})


def test_openrlhf_gives_each_model_its_devices(rules: RuleSet, tmp_path: Path) -> None:
    subject = read(rules, tmp_path, train=OPENRLHF)
    assert list(subject.roles) == ["actor", "reference"]
    actor = {
        "training.framework": "openrlhf",
        "training.trainer": "grpo",
        "training.zero_stage": 3,
        "training.sharding": "zero",
        "training.gradient_checkpointing": True,
        "training.offload_optimizer": "cpu",
        "training.param_dtype": "bfloat16",
        "training.packing": True,
        "training.micro_batch_size": 1,
        "training.global_batch_size": 128,
        "training.sequence_length": 2048,
        "training.kl_coefficient": 0.01,
        "model.attn_implementation": "flash_attention_2",
        "rollout.engine": "vllm",
        "rollout.tensor_parallel": 8,
        "rollout.n": 4,
        "hardware.world_size": 32,
    }
    check(subject, "actor", actor)
    frozen = {
        "training.zero_stage": 3,
        "training.gradient_checkpointing": False,
        "training.offload_optimizer": None,
        "training.micro_batch_size": 2,
        "training.param_dtype": "bfloat16",
        "hardware.world_size": 32,
    }
    check(subject, "reference", frozen)


def test_qwen_on_one_node(rules: RuleSet, tmp_path: Path) -> None:
    subject = read(rules, tmp_path, finetune_ds=QWEN)
    assert list(subject.roles) == ["train"]
    expected = {
        "model.parameters": 32_512_218_112,
        "hardware.gpus_per_node": 8,
        "hardware.nodes": 1,
        "hardware.world_size": 8,
        "training.zero_stage": 3,
        "training.overlap_comm": True,
        "training.micro_batch_size": 1,
        "training.gradient_accumulation_steps": 16,
        "training.global_batch_size": 128,
        "training.sequence_length": 4096,
        "training.gradient_checkpointing": True,
        "training.mixed_precision": "bf16",
        "training.param_dtype": "bfloat16",
    }
    check(subject, "train", expected)
    assert fact(subject, "train", "training.zero_stage").sources[0].path.endswith("(ds_config_zero3.json)")
