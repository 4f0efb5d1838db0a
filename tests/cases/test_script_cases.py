"""Launch scripts of public projects: no value is told that no script states and no program of theirs takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.cli.run_cli import run

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B"
GRPO = f"algorithm.adv_estimator=grpo {MODEL}"
PPO = "python3 -m verl.trainer.main_ppo"
EASY_R1 = """\
data:
  max_prompt_length: 2048
algorithm:
  adv_estimator: grpo
worker:
  actor:
    model:
      model_path: Qwen/Qwen2.5-7B
  rollout:
    n: 5
"""


class Told(NamedTuple):
    """What is told of a script."""

    facts: Mapping[str, Mapping[str, Any]]
    """Values by role and fact."""
    sources: Mapping[str, str]
    """Where each fact of the first role comes from."""
    not_read: str
    """What is said to be open or not read."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(script: str, **versions: str) -> None:
    Path("requirements.txt").write_text("".join(f"{name}=={at}\n" for name, at in versions.items()), "utf-8")
    Path("run.sh").write_text(script + "\n", "utf-8")


def tell(script: str, **versions: str) -> Told:
    """Return what is told of a script beside these releases."""
    write(script, **versions)
    answer = json.loads(run("facts", "requirements.txt", "run.sh", "--format", "json").out)
    (subject,) = answer["subjects"]
    facts: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for one in subject["facts"]:
        facts.setdefault(one["role"], {})[one["name"]] = one["value"]
        sources.setdefault(one["name"], one["source"])
    assert "training.framework" in sources  # a script that is not read at all would tell nothing wrong either
    return Told(facts, sources, json.dumps([subject["unresolved"], subject["not_read"], answer["skipped"]]))


def test_supervised_training_of_verl_has_the_defaults_of_its_own_configuration() -> None:
    run_of = "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=4"
    train = tell(f"{run_of} model.partial_pretrain=Qwen/Qwen2.5-7B", verl="0.4.0").facts["train"]
    assert train["training.gradient_checkpointing"] is False
    assert not [name for name in train if name.startswith("rollout.")]


def test_the_engine_of_supervised_training_is_read() -> None:
    words = "engine=fsdp engine.strategy=fsdp2 engine.ulysses_sequence_parallel_size=8 model.use_remove_padding=true"
    run_of = f"torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer {words} model.path=Qwen/Qwen3-8B"
    told = tell(f"{run_of} data.max_token_len_per_gpu=8192", verl="0.6.1", torch="2.8.0")
    stated = {
        "training.context_parallel": 8,
        "training.use_remove_padding": True,
        "training.sharding": "fsdp",
        "training.fsdp_version": 2,
        "training.micro_batch_tokens": 8192,
    }
    train = told.facts["train"]
    assert train == train | stated
    assert told.sources["model.name"] == "run.sh:1 (model.path)"
    said = run("estimate", "requirements.txt", "run.sh", "--gpu", "8xH100-80GB").out
    assert "FSDP" in said
    assert "DDP" not in said


def test_a_model_below_an_unknown_directory_is_told_by_its_name() -> None:
    told = tell(f"{PPO} actor_rollout_ref.model.path=${{MODEL:-$HOME/models/Qwen2.5-7B}}", verl="0.5.0")
    assert told.facts["actor"]["model.hidden_size"] == 3584
    assert "the dimensions of the well-known model qwen2.5-7b are assumed" in told.not_read


@pytest.mark.parametrize("critic", ["someone/critic-3b", "$CRITIC", "$HOME/critic"])
def test_the_model_of_one_role_is_not_that_of_another(critic: str) -> None:
    told = tell(f"{PPO} {MODEL} critic.model.path={critic}", verl="0.5.0")
    assert told.facts["actor"]["model.hidden_size"] == 3584
    assert "model.hidden_size" not in told.facts["critic"]
    assert told.facts["critic"].get("model.name", critic) == critic
    assert critic.removesuffix("/critic") in told.not_read
    said = run("estimate", "requirements.txt", "run.sh", "--gpu", "8xH100-80GB").out
    assert "was not read; taken to be as large as the policy's model" in " ".join(said.split())


def test_megatron_has_the_defaults_of_its_own_configuration() -> None:
    words = "--config-name=ppo_megatron_trainer.yaml algorithm.adv_estimator=gae critic.model.path=Qwen/Qwen2.5-7B"
    told = tell(f"{PPO} {words} {MODEL}", verl="0.4.0").facts
    assert {told[role]["training.sharding"] for role in ("actor", "critic")} == {"megatron"}
    assert {told[role]["training.gradient_checkpointing"] for role in ("actor", "critic")} == {False}


@pytest.mark.parametrize("program", ["recipe.spin.main_spin", "recipe.prime.main_prime"])
def test_a_recipe_with_a_configuration_of_its_own_has_no_defaults_of_another(program: str) -> None:
    told = tell(f"python3 -m {program} data.train_batch_size=512 {MODEL}", verl="0.4.0")
    for known in told.facts.values():
        wrong = {"rollout.engine", "rollout.gpu_memory_utilization", "rollout.tensor_parallel", "rollout.n"}
        assert wrong.isdisjoint(known)
        assert "training.micro_batch_size" not in known
    assert "composes from a configuration of its own" in told.not_read


@pytest.mark.parametrize("program", ["verl.trainer.main_ppo", "recipe.fully_async_policy.fully_async_main"])
def test_a_batch_of_no_prompts_is_no_size(program: str) -> None:
    words = "data.train_batch_size=0 actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.rollout.n=8"
    told = tell(f"python3 -m {program} {words} {GRPO}", verl="0.6.1").facts
    assert {known["rollout.n"] for known in told.values()} == {8}
    for known in told.values():
        assert 0 not in {known.get("training.global_batch_size"), known.get("rollout.global_batch_size")}


@pytest.mark.parametrize(("sign", "limit"), [("", None), ("++", None), ("+", 8192)])
def test_a_fork_that_kept_the_version_has_none_of_the_limits_of_that_release(sign: str, limit: int | None) -> None:
    """One whose configuration has a key of its own; a key that is added is not in it (`resolution.gaps`)."""
    words = f"{GRPO} actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8"
    told = tell(f"{PPO} {words} {sign}actor_rollout_ref.rollout.async_engine=True", verl="0.1")
    for known in told.facts.values():
        assert known.get("rollout.max_num_batched_tokens") == limit
        assert known["rollout.n"] == 8
    assert "actor_rollout_ref.rollout.async_engine" in told.not_read


def test_tinyzero_counts_tokens_where_batches_are_dynamic() -> None:
    sizes = ("actor_rollout_ref.actor.ppo_micro_batch_size=8", "critic.ppo_micro_batch_size=8")
    words = f"actor_rollout_ref.actor.use_dynamic_bsz=True {' '.join(sizes)} trainer.project_name=TinyZero"
    told = tell(f"{PPO} {words} critic.model.path=Qwen/Qwen2.5-3B {MODEL}", verl="0.1").facts
    for role in ("actor", "critic"):
        assert "training.micro_batch_size" not in told[role]
        assert told[role]["training.micro_batch_tokens"] > 1024


@pytest.mark.parametrize(
    "words",
    [
        "deepspeed --module openrlhf.cli.train_sft --max_len 2048",
        "python3 -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 8 --use_dynamic_batch",
    ],
)
def test_accumulation_of_openrlhf_follows_from_ranks_and_is_not_one(words: str) -> None:
    sizes = "--zero_stage 3 --micro_train_batch_size 1 --train_batch_size 128 --pretrain Qwen/Qwen2.5-7B"
    told = tell(f"{words} {sizes}", openrlhf="0.8.11", deepspeed="0.17.2")
    assert all("training.gradient_accumulation_steps" not in known for known in told.facts.values())
    assert "follows from the number of ranks and the micro batch" in told.not_read


def test_batches_in_sequences_are_not_told_where_newer_options_make_them_dynamic() -> None:
    words = "--rollout.micro_batch_size 8 --train.micro_batch_size 8 --train.dynamic_batch_enable --ds.zero_stage 3"
    run_of = f"python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen2.5-7B {words}"
    for known in tell(run_of, openrlhf="0.11.0", deepspeed="0.18.0").facts.values():
        assert {"rollout.log_prob_micro_batch_size", "training.micro_batch_size"}.isdisjoint(known)
        assert "training.gradient_accumulation_steps" not in known


def test_frozen_models_of_deepspeed_chat_are_sharded_like_what_they_stand_beside() -> None:
    models = "--actor_model_name_or_path facebook/opt-13b --critic_model_name_or_path facebook/opt-350m"
    told = tell(f"deepspeed main.py {models} --actor_zero_stage 3 --critic_zero_stage 3", deepspeed="0.17.2").facts
    assert {role: known["training.zero_stage"] for role, known in told.items()} == dict.fromkeys(
        ("actor", "critic", "reference", "reward"), 3
    )


def test_a_reference_that_verl_always_offloads_is_offloaded_whatever_is_asked() -> None:
    words = "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.ref.fsdp_config.param_offload=False"
    told = tell(f"{PPO} {words} {GRPO}", verl="0.4.0").facts
    assert told["reference"]["training.offload_param"] == "cpu"


@pytest.mark.parametrize(("words", "there"), [("algorithm.disable_kl=true", False), ("", True)])
def test_easyr1_has_no_reference_where_kl_is_disabled(words: str, *, there: bool) -> None:
    Path("c.yaml").write_text(EASY_R1, "utf-8")
    told = tell(f"python3 -m verl.trainer.main config=c.yaml {words} trainer.n_gpus_per_node=8", verl="0.3.2").facts
    assert ("reference" in told) == there


@pytest.mark.parametrize(("words", "dtype"), [("", "float32"), ("worker.actor.fsdp.torch_dtype=bf16", "bfloat16")])
def test_easyr1_keeps_float32_weights_unless_told_otherwise(words: str, dtype: str) -> None:
    Path("c.yaml").write_text(EASY_R1, "utf-8")
    told = tell(f"python3 -m verl.trainer.main config=c.yaml {words} trainer.n_gpus_per_node=8", verl="0.3.2").facts
    assert told["actor"]["training.param_dtype"] == dtype


def test_devices_that_stand_in_a_comment_are_not_those_of_the_run() -> None:
    told = tell(f"# 4 nodes of 8 H100\n# trainer.nnodes=4\n{PPO} {GRPO}  # trainer.n_gpus_per_node=8", verl="0.6.1")
    for known in told.facts.values():
        assert {"hardware.nodes", "hardware.gpus_per_node", "hardware.world_size"}.isdisjoint(known)


def test_recomputation_of_megatron_is_read() -> None:
    key = "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity"
    told = tell(f"{PPO} --config-name=ppo_megatron_trainer +{key}=full {GRPO}", verl="0.6.1").facts
    assert told["actor"]["training.gradient_checkpointing"] is True


@pytest.mark.parametrize("program", ["open_instruct/dpo.py", "open_instruct/grpo.py"])
def test_scripts_on_olmo_core_are_not_read_as_those_on_accelerate(program: str) -> None:
    words = "--model_name_or_path allenai/OLMo-2-1124-7B --max_seq_length 16384 --fsdp_shard_degree 4"
    write(f"torchrun --nproc_per_node=8 {program} {words} --per_device_train_batch_size 16", torch="2.10.0")
    said = " ".join(run("check", "requirements.txt", "run.sh", "--gpu", "8xA100-80GB").out.split())
    assert f"starts {program}, which trains with OLMo-core; its options are not read" in said
    assert "does not fit" not in said
