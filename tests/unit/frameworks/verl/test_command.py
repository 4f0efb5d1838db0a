"""verl's command lines: facts by role, meanings by release, forks by their marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compatcheck.checking import Request, gather
from compatcheck.core.document import Document
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.frameworks.verl import configuration as verl
from compatcheck.matching.engine import match
from compatcheck.resolution.defaults import keys_of
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.subject import Subject
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents, facts, resolved, runs

MAIN = "python3 -m verl.trainer.main_ppo "
A, M, R, F = (
    "actor_rollout_ref.actor.",
    "actor_rollout_ref.model.",
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.ref.",
)


def read(*words: str) -> Document:
    return documents(MAIN + " ".join(words))[0]


def subject(document: Document, **versions: str) -> Subject:
    packages = {name: Package(name, version, Source("env")) for name, version in versions.items()}
    environment = Environment("env", packages, complete=False) if packages else None
    return resolve("s", rules=open_rules(), environment=environment, documents=(document,))


def value(found: Subject, role: str, name: str) -> Any:
    fact = found.roles[role].get(name)
    return None if fact is None else fact.value


def test_grpo_has_no_critic_and_ppo_has_one() -> None:
    grpo = read("algorithm.adv_estimator=grpo", f"{A}use_kl_loss=True", "critic.ppo_micro_batch_size_per_gpu=4")
    assert {entry.role for entry in grpo.statements} == {None, "actor", "reference"}
    assert facts(grpo)["training.trainer"] == "grpo"
    ppo = read("critic.ppo_micro_batch_size_per_gpu=4", "critic.model.path=m")
    assert facts(ppo)["training.trainer"] == "ppo"
    assert facts(ppo, "critic")["training.micro_batch_size"] == 4
    assert ("model:critic", "m", "critic.model.path") in ppo.references


def test_search_r1s_kin_that_cut_no_first_prompt_append_to_a_whole_one() -> None:
    words = ("data.max_prompt_length=4096", "data.max_response_length=500", "do_search=true")
    assert facts(read(*words))["training.max_start_length"] == 4096
    assert "training.max_start_length" not in facts(read(*words[:2]))


def test_what_is_generated_at_once_may_be_more_than_a_batch() -> None:
    found = read("data.gen_batch_size=24", "data.train_batch_size=8", f"{A}ppo_mini_batch_size=8", f"{R}n=4")
    assert facts(found)["rollout.global_batch_size"] == 96
    assert facts(found, "actor")["training.global_batch_size"] == 32


def test_batches_of_steps_that_nobody_can_tell_are_said() -> None:
    found = read("data.train_batch_size=8", f"{A}ppo_mini_batch_size=$MINI", f"{R}n=4")
    assert ("training.global_batch_size", f"{A}ppo_mini_batch_size") in {
        (one.fact, one.key) for one in found.unresolved
    }


def test_a_teacher_scores_in_an_engine_of_its_own() -> None:
    section = "distillation.teacher_models.teacher_model."
    words = ("algorithm.adv_estimator=grpo", f"{R}name=vllm", f"{R}max_num_batched_tokens=4096")
    told = (f"{section}model_path=Qwen/Qwen2.5-7B", f"{section}inference.max_num_batched_tokens=16384")
    found = subject(read(*words, "distillation.enabled=True", *told), verl="0.9.1", vllm="0.20.2")
    assert value(found, "teacher", "rollout.prompt_logprobs") is True
    assert value(found, "teacher", "rollout.engine") == "vllm"
    assert value(found, "teacher", "rollout.max_num_batched_tokens") == 16384
    assert value(found, "teacher", "rollout.gpu_memory_utilization") == 0.5
    assert value(found, "actor", "rollout.max_num_batched_tokens") == 4096
    assert value(found, "actor", "rollout.prompt_logprobs") is None
    outcome = match(found, open_rules())
    assert {(one.rule_id, one.role) for one in outcome.findings if one.rule_id.startswith("vllm/prompt")} == {
        ("vllm/prompt-logprobs-outside-the-profile", "teacher")
    }
    assert {one.impact.phase for one in outcome.findings if one.role == "teacher" and one.impact} == {"rollout"}
    for off in ((), ("distillation.enabled=False",)):
        assert "teacher" not in subject(read(*words, *off, *told), verl="0.9.1").roles
    several = (*told, "+distillation.teacher_models.other.model_path=Qwen/Qwen2.5-7B")
    assert "teacher" not in subject(read(*words, "distillation.enabled=True", *several), verl="0.9.1").roles


def test_limits_in_tokens_that_are_left_out() -> None:
    stated = read(f"{A}use_dynamic_bsz=True", f"{A}ppo_max_token_len_per_gpu=24000", "algorithm.adv_estimator=grpo")
    assert facts(stated)["rollout.log_prob_micro_batch_tokens"] == 24000
    assert facts(stated, "reference")["training.micro_batch_tokens"] == 24000
    left = read(f"{A}use_dynamic_bsz=True", f"{R}log_prob_max_token_len_per_gpu=9000")
    assert facts(left, "actor")["training.micro_batch_tokens"] == 16384
    assert facts(left, "critic")["training.micro_batch_tokens"] == 32768
    assert facts(left)["rollout.log_prob_micro_batch_tokens"] == 9000
    assert "training.micro_batch_tokens" not in facts(read(f"{A}ppo_micro_batch_size_per_gpu=4"), "actor")


def test_a_batch_is_prompts_times_completions() -> None:
    found = read("data.train_batch_size=8", f"{A}ppo_mini_batch_size=2", f"{R}n=16")
    assert facts(found)["rollout.global_batch_size"] == 128
    assert facts(found, "actor")["training.global_batch_size"] == 32
    assert "rollout.global_batch_size" not in facts(read(f"{A}ppo_mini_batch_size=2", f"{R}n=16"))


def test_search_r1_trains_on_the_first_prompt_and_what_is_appended() -> None:
    found = read(
        "data.max_start_length=2048", "data.max_prompt_length=4096", "data.max_response_length=500", "do_search=true"
    )
    assert value(subject(found), "actor", "training.sequence_length") == 6144
    others = read("data.max_start_length=2048", "data.max_prompt_length=4096", "data.max_response_length=500")
    assert value(subject(others), "actor", "training.sequence_length") is None
    assert [one.key for one in others.unresolved] == ["data.max_start_length"]


def test_micro_batches_are_global_or_per_device_by_their_key() -> None:
    per_device = read(
        f"{A}ppo_micro_batch_size_per_gpu=2",
        f"{R}log_prob_micro_batch_size_per_gpu=8",
        f"{F}log_prob_micro_batch_size=64",
    )
    assert facts(per_device, "actor")["training.micro_batch_is_global"] is False
    assert facts(per_device, "reference")["training.micro_batch_is_global"] is True
    assert facts(per_device)["rollout.log_prob_micro_batch_is_global"] is False
    whole = read(f"{A}ppo_micro_batch_size=64")
    assert facts(whole, "actor") | {"training.micro_batch_size": 64, "training.micro_batch_is_global": True} == facts(
        whole, "actor"
    )


def test_dynamic_batches_count_tokens_and_not_sequences() -> None:
    found = read(
        f"{A}use_dynamic_bsz=True", f"{A}ppo_max_token_len_per_gpu=16384", f"{A}ppo_micro_batch_size_per_gpu=4"
    )
    assert facts(found, "actor")["training.micro_batch_tokens"] == 16384
    assert "training.micro_batch_size" not in facts(found, "actor")


def test_offload_parallelism_and_adapters() -> None:
    found = read(
        f"{A}fsdp_config.param_offload=True",
        f"{A}fsdp_config.optimizer_offload=False",
        f"{A}strategy=fsdp2",
        f"{M}lora_rank=32",
        f"{A}ulysses_sequence_parallel_size=4",
        f"{M}use_fused_kernels=True",
        f"{F}fsdp_config.param_offload=True",
    )
    actor = facts(found, "actor")
    assert actor["training.offload_param"] == "cpu"
    assert actor["training.offload_optimizer"] is None
    assert (actor["training.sharding"], actor["training.fsdp_version"]) == ("fsdp", 2)
    assert (actor["training.peft"], actor["training.lora_rank"]) == ("lora", 32)
    assert actor["training.context_parallel"] == 4
    assert actor["training.loss_implementation"] == "fused_linear"
    assert facts(found, "reference")["training.fsdp_version"] == 2


def test_the_configuration_that_is_chosen_settles_the_back_end() -> None:
    assert facts(read("data.max_prompt_length=1"), "actor")["training.sharding"] == "fsdp"
    assert facts(read("--config-name=ppo_megatron_trainer.yaml"), "actor")["training.sharding"] == "megatron"
    assert facts(read("model_engine=megatron"), "actor")["training.sharding"] == "megatron"
    assert "training.sharding" not in facts(read("--config-path=conf", "--config-name=mine"), "actor")


@pytest.mark.parametrize(
    ("mini", "batch", "n", "agents", "sequences"),
    [(256, 8, 32, None, 256), (256, 512, None, 5, 256), (64, 1024, 8, None, 512)],
)
def test_sequences_of_one_step(mini: int, batch: int, n: int | None, agents: int | None, sequences: int) -> None:
    more = [f"{R}n={n}"] if n else []
    more += [f"{R}n_agent={agents}"] if agents else []
    found = read(f"{A}ppo_mini_batch_size={mini}", f"data.train_batch_size={batch}", *more)
    assert facts(found, "actor")["training.global_batch_size"] == sequences


def test_forks_are_told_by_their_own_keys_or_projects() -> None:
    assert read(f"{R}n_agent=5").reader == "search-r1"
    assert read("retriever.topk=3").reader == "search-r1"
    assert read("max_turns=3", "data.max_start_length=1", "data.max_obs_length=1").reader == "verl"  # SimpleTIR's too
    assert read("trainer.project_name=GRPO_logic_KK", f"{A}ppo_micro_batch_size=64").reader == "logic-rl"
    assert read("trainer.project_name=TinyZero").reader == "tinyzero"
    assert read("trainer.project_name=TinyZero", f"{A}ppo_micro_batch_size_per_gpu=1").reader == "verl"
    assert read("data.max_prompt_length=1").reader == "verl"


def test_what_the_script_does_not_tell_is_listed_and_gets_no_default() -> None:
    found = read(
        "trainer.nnodes=$N",
        f"{A}use_kl_loss=True",
        f"{M}path=$MODEL",
        "trainer.project_name=$P",
        f"{R}gpu_memory_utilization=$U",
    )
    assert {(entry.fact, entry.key) for entry in found.unresolved} == {
        ("hardware.nodes", "trainer.nnodes"),
        ("model.name", f"{M}path"),
        (None, "trainer.project_name"),
        ("rollout.gpu_memory_utilization", f"{R}gpu_memory_utilization"),
    }
    facts_of = subject(found, verl="0.4.0")
    assert value(facts_of, "actor", "rollout.gpu_memory_utilization") is None
    assert ("hardware.nodes", "depends on $N, which the script does not tell") in {
        (name, why) for name, _, why in facts_of.unresolved
    }


def test_misspelt_keys_are_unread_and_known_ones_are_not() -> None:
    found = read(
        f"{A}ppo_micro_batch_size_per_gpus=1",
        "trainer.nnode=2",
        "trainer.save_freq=1",
        "+ray_kwargs.x=1",
        "algorithm.mine=2",
    )
    assert dict(found.unread) == {
        "algorithm.mine": None,
        f"{A}ppo_micro_batch_size_per_gpus": f"{A}ppo_micro_batch_size_per_gpu",
        "trainer.nnode": "trainer.nnodes",
    }


def test_a_key_of_a_section_that_verl_does_not_have_is_unread_whatever_its_name() -> None:
    own = f"{A}adaptive_entropy.enabled"
    found = read(f"{own}=True", f"{A}policy_loss.loss_mode=x", f"{A}optim.lr=1", f"{F}rollout.val_kwargs.top_p=1")
    assert [key for key, _ in found.unread] == [own]


def test_defaults_are_of_the_release_and_the_role() -> None:
    found = read("algorithm.adv_estimator=grpo", f"{A}use_kl_loss=True", f"{F}fsdp_config.param_offload=False")
    early, late = subject(found, verl="0.3.0.post1"), subject(found, verl="0.9.1")
    assert (value(early, "actor", "training.param_dtype"), value(early, "reference", "training.param_dtype")) == (
        "float32",
        "bfloat16",
    )
    assert value(late, "reference", "training.param_dtype") == "float32"
    assert value(early, "reference", "training.offload_param") == "cpu"
    assert value(early, "actor", "training.gradient_checkpointing") is True
    assert value(early, "reference", "training.gradient_checkpointing") is False
    assert value(early, "actor", "rollout.enforce_eager") is True
    assert value(late, "actor", "rollout.enforce_eager") is False


@pytest.mark.parametrize(
    ("words", "version", "there"),
    [
        ([], "0.3.0.post1", True),
        ([], "0.4.0", False),
        ([f"{A}use_kl_loss=True"], "0.9.1", True),
        ([f"{A}use_kl_loss=False", "algorithm.use_kl_in_reward=False"], "0.9.1", False),
        ([f"{A}use_kl_loss=False"], "0.2", True),
        ([f"{A}use_kl_loss=$K"], "0.9.1", True),
    ],
)
def test_the_reference_is_there_as_the_release_has_it(words: list[str], version: str, *, there: bool) -> None:
    found = subject(read("algorithm.adv_estimator=grpo", *words), verl=version)
    assert ("reference" in found.roles) == there


def test_supervised_training() -> None:
    words = (
        "data.micro_batch_size_per_gpu=4 data.max_length=2048 "
        "model.partial_pretrain=m model.lora_rank=8 use_remove_padding=true"
    )
    document, launcher = documents(f"torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer {words}")
    assert facts(document)["training.micro_batch_size"] == 4
    assert facts(document)["training.trainer"] == "sft"
    assert facts(launcher)["hardware.gpus_per_node"] == 8
    assert document.references == (("model", "m", "model.partial_pretrain"),)


def test_supervised_training_shards_float32_weights_and_counts_sequences_of_one_rank() -> None:
    run = "torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer "
    found = resolved(run + "data.micro_batch_size_per_gpu=4")
    assert found["training.micro_batch_is_global"] is False
    assert found["training.sharding"] == "fsdp"
    assert (found["training.param_dtype"], found["training.compute_dtype"]) == ("float32", "bfloat16")
    assert found["training.sequence_length"] == 1024
    left_out = resolved(run + "model.fsdp_config.model_dtype=bf16")
    assert left_out["training.micro_batch_size"] == 4
    assert left_out["training.micro_batch_is_global"] is False
    assert left_out["training.param_dtype"] == "bfloat16"
    whole = resolved(run + "data.micro_batch_size=64")
    assert (whole["training.micro_batch_size"], whole["training.micro_batch_is_global"]) == (64, True)


def test_supervised_training_of_unknown_ranks_is_not_one_rank() -> None:
    read = documents("torchrun --nproc_per_node=$n -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=4")
    assert all("hardware.world_size" not in facts(document) for document in read)
    assert facts(read[0])["training.sharding"] == "fsdp"


def test_a_configuration_file_is_read_like_a_command() -> None:
    data = {
        "data": {"max_prompt_length": 512, "train_batch_size": 16},
        "actor_rollout_ref": {
            "model": {"path": "m"},
            "actor": {
                "use_kl_loss": True,
                "ppo_mini_batch_size": 16,
                "ppo_micro_batch_size_per_gpu": 2,
                "ulysses_sequence_parallel_size": 2,
            },
            "ref": {"ulysses_sequence_parallel_size": "${actor_rollout_ref.actor.ulysses_sequence_parallel_size}"},
            "rollout": {"n": "${oc.select:missing.key,4}", "name": "vllm"},
        },
        "algorithm": {"adv_estimator": "grpo"},
    }
    document = verl.read(data, "grpo.yaml").documents[0]
    assert (document.reader, document.is_command) == ("verl", False)
    assert facts(document)["rollout.n"] == 4
    assert facts(document, "reference")["training.context_parallel"] == 2
    assert facts(document, "actor")["training.global_batch_size"] == 64
    assert document.references == (("model", "m", "actor_rollout_ref.model.path"),)


@pytest.mark.parametrize(
    "given", ["${oc.env:SHARE}", "${oc.env:SHARE,0.9}", "${eval:0.5+0.4}", "${oc.select:missing.key}9"]
)
def test_what_a_resolver_gives_is_open(given: str) -> None:
    key, fact = f"{R}gpu_memory_utilization", "rollout.gpu_memory_utilization"
    data = {"actor_rollout_ref": {"model": {"path": "m"}, "rollout": {"gpu_memory_utilization": given}}}
    for document in (read(f"'{key}={given}'"), verl.read(data, "grpo.yaml").documents[0]):
        assert fact not in facts(document)
        assert [one.why for one in document.unresolved if one.fact == fact] == [
            f"is {given}, which only the run resolves"
        ]


def test_a_key_that_a_release_does_not_know_is_one_of_a_fork_whose_defaults_are_not_known() -> None:
    found = subject(read(f"{A}ppo_micro_batch_size_per_gpu=2"), verl="0.1")
    assert value(found, "actor", "training.micro_batch_size") is None
    assert value(found, "actor", "rollout.gpu_memory_utilization") is None
    assert [gap.why for gap in found.gaps] == [
        "is unknown to verl 0.1: a fork or another release reads the command, and its defaults are not known"
    ]
    (skip,) = found.skipped
    assert (skip.reason, skip.source.line) == ("unknown to verl 0.1", 7)


@pytest.mark.parametrize(
    ("release", "vllm", "option", "sleeps"),
    [
        ("0.4.1", "0.8.5", "", True),
        ("0.4.1", "0.6.3", "", None),
        ("0.5.0", "0.10.0", "", True),
        ("0.5.0", "0.10.0", "actor_rollout_ref.rollout.free_cache_engine=False", False),
        ("0.6.1", "0.11.0", "", True),
        ("0.6.1", "0.11.0", "actor_rollout_ref.rollout.free_cache_engine=False", False),
        ("0.6.1", "0.11.0", f"{R}free_cache_engine=False {R}mode=async", True),
        ("0.6.1", "0.11.0", f"{R}free_cache_engine=False {R}mode=$MODE", None),
        ("0.7.0", "0.12.0", "", True),
        ("0.7.0", "0.12.0", "+actor_rollout_ref.rollout.enable_sleep_mode=False", False),
    ],
)
def test_the_engine_sleeps_by_default(tmp_path: Path, release: str, vllm: str, option: str, sleeps: object) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        f"python -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm {option}\n", encoding="utf-8"
    )
    (reading,) = read_configurations(str(script), named=True)
    place = Source("requirements.txt")
    packages = {"verl": Package("verl", release, place), "vllm": Package("vllm", vllm, place)}
    environment = Environment("requirements.txt", packages, complete=False)
    subject = resolve("it", rules=open_rules(()), environment=environment, documents=reading.documents)
    fact = next(iter(subject.roles.values())).get("rollout.sleep_mode")
    assert (None if fact is None else fact.value) == sleeps


def test_a_strategy_replaces_that_of_the_engine_chosen() -> None:
    words = "engine=fsdp engine.strategy=fsdp2 engine.ulysses_sequence_parallel_size=8 model.path=m"
    document = documents(f"torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer {words}")[0]
    assert {entry.value for entry in document.statements if entry.fact == "training.fsdp_version"} == {2}
    assert facts(document)["training.context_parallel"] == 8
    chosen = documents("torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer engine=fsdp2 model.path=m")[0]
    assert facts(chosen)["training.fsdp_version"] == 2


def test_a_batch_in_sequences_that_does_not_count_is_not_left_out() -> None:
    words = "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_micro_batch_size=8"
    document = documents(f"python3 -m verl.trainer.main_ppo {words}")[0]
    assert "actor_rollout_ref.actor.ppo_micro_batch_size" in keys_of(document)
    assert "training.micro_batch_size" not in facts(document, "actor")
    unknown = documents(f"python3 -m verl.trainer.main_ppo {words.replace('=8', '=$B')}")[0]
    assert [entry.fact for entry in unknown.unresolved] == [None]


def alone(program: str, *words: str) -> Document:
    return documents(f"python3 -m {program} {' '.join(words)}")[0]


def test_what_a_worker_forces_stands_over_what_is_written_whatever_the_program_composes_from() -> None:
    stated = f"{F}fsdp_config.param_offload=False"
    forced = subject(alone("recipe.prime.main_prime", stated), verl="0.4.0")
    assert value(forced, "reference", "training.sharding") == "fsdp"  # Megatron's configurations have no such section
    assert value(forced, "reference", "training.offload_param") == "cpu"
    unknown = subject(alone("recipe.prime.main_prime", stated, f"{A}strategy=$S"), verl="0.4.0")
    assert "training.offload_param" not in unknown.roles["reference"]
    chosen = subject(read(f"{A}strategy=$S", f"{A}use_kl_loss=True"), verl="0.6.1")
    assert "training.sharding" not in chosen.roles["reference"]


@pytest.mark.parametrize(
    ("program", "words", "shared"),
    [
        ("verl.trainer.main_ppo", "", True),
        ("recipe.fully_async_policy.fully_async_main", "", False),
        ("recipe.one_step_off_policy.main_ppo", "", False),
        ("recipe.prime.main_prime", "", None),
        ("recipe.one_step_off_policy.main_ppo", "actor_rollout_ref.hybrid_engine=False", False),
        ("verl.trainer.main_ppo", "trainer.v1.trainer_mode=separate_async", False),
        ("verl.trainer.main_ppo", "trainer.v1.trainer_mode=sync actor_rollout_ref.hybrid_engine=True", True),
        ("verl.trainer.main_ppo", "trainer.v1.trainer_mode=$MODE", None),
    ],
)
def test_only_a_program_that_shares_its_devices_with_the_engine_is_said_to(
    program: str, words: str, shared: object
) -> None:
    found = subject(alone(program, f"{M}path=m", words), verl="0.9.1" if "v1" in words else "0.6.1")
    assert value(found, "actor", "rollout.colocated") is shared


@pytest.mark.parametrize(
    ("program", "together", "ranks"),
    [
        ("verl.trainer.main_ppo", False, 8),
        ("recipe.one_step_off_policy.main_ppo", False, 8),
        ("verl.trainer.main_ppo_async", True, 8),
        ("verl.trainer.main_ppo_async", False, None),
    ],
)
def test_which_devices_train_is_open_where_a_program_of_its_own_splits_them(
    program: str, together: object, ranks: object
) -> None:
    words = f"trainer.n_gpus_per_node=8 trainer.nnodes=1 actor_rollout_ref.hybrid_engine={together}"
    assert value(subject(alone(program, f"{M}path=m", words)), "actor", "hardware.world_size") == ranks


def test_a_reward_model_is_trained_where_the_program_says_so() -> None:
    words = ("reward_model.enable=True", "reward_model.model.path=m", f"{M}path=m")
    assert "program.keeps_graph" not in facts(alone("recipe.prime.main_prime", *words), "reward")
    assert facts(read(*words), "reward")["program.keeps_graph"] is False


def test_a_key_that_a_switch_makes_dead_has_no_default() -> None:
    limits = (f"{A}use_dynamic_bsz=True", f"{A}ppo_max_token_len_per_gpu=32768")
    for words in (limits, (*limits, "trainer.project_name=TinyZero"), (*limits, f"{R}n_agent=5")):
        found = subject(read(*words), verl="0.1")
        assert value(found, "actor", "training.micro_batch_tokens") == 32768
        for name in ("training.micro_batch_size", "rollout.log_prob_micro_batch_size"):
            assert value(found, "actor", name) is None
        assert value(found, "actor", "rollout.gpu_memory_utilization") == 0.5
    open_ = subject(read(f"{A}use_dynamic_bsz=$D"), verl="0.1")
    assert value(open_, "actor", "training.micro_batch_size") is None
    assert "training.micro_batch_size" in {name for name, _, _ in open_.unresolved}
    assert value(subject(read(f"{A}use_dynamic_bsz=False"), verl="0.1"), "actor", "training.micro_batch_size") == 64


def test_every_model_has_a_switch_and_a_limit_of_its_own() -> None:
    found = read(
        f"{A}use_dynamic_bsz=True",
        f"{R}log_prob_use_dynamic_bsz=False",
        f"{R}log_prob_micro_batch_size_per_gpu=8",
        "critic.use_dynamic_bsz=False",
        "critic.ppo_micro_batch_size_per_gpu=2",
        "reward_model.enable=True",
        "reward_model.use_dynamic_bsz=True",
        "reward_model.micro_batch_size_per_gpu=4",
        "critic.forward_max_token_len_per_gpu=9000",
    )
    assert facts(found, "actor")["training.micro_batch_tokens"] == 16384
    assert facts(found)["rollout.log_prob_micro_batch_size"] == 8
    assert "rollout.log_prob_micro_batch_tokens" not in facts(found)
    assert facts(found, "critic")["training.micro_batch_size"] == 2
    assert facts(found, "reward")["training.micro_batch_tokens"] == 9000
    assert "training.micro_batch_size" not in facts(found, "reward")


OVERRIDE = f"+{A}optim.override_optimizer_config."


@pytest.mark.parametrize(
    ("words", "offload"),
    [
        ((), "none"),
        ((f"{OVERRIDE}optimizer_cpu_offload=True",), "unknown"),
        ((f"{OVERRIDE}optimizer_cpu_offload=True", f"{OVERRIDE}optimizer_offload_fraction=0.5"), "unknown"),
        (
            (
                f"{OVERRIDE}optimizer_cpu_offload=True",
                f"{OVERRIDE}optimizer_offload_fraction=1",
                f"{A}megatron.optimizer_offload=False",
            ),
            "cpu",
        ),
        ((f"{OVERRIDE}optimizer_cpu_offload=False", f"{OVERRIDE}optimizer_offload_fraction=1"), "none"),
        ((f"{OVERRIDE}optimizer_cpu_offload=$C", f"{OVERRIDE}optimizer_offload_fraction=1"), "unknown"),
        ((f"{A}megatron.optimizer_offload=True",), "cpu"),
    ],
)
def test_megatron_offloads_its_optimizer_by_settings_of_its_own(words: tuple[str, ...], offload: str) -> None:
    found = subject(read("--config-name=ppo_megatron_trainer", *words), verl="0.6.1").roles["actor"]
    fact = found.get("training.offload_optimizer")
    assert ("unknown" if fact is None else fact.value or "none") == offload


def test_defaults_of_fsdp_are_not_told_of_megatron() -> None:
    words = ("--config-name=ppo_megatron_trainer", f"{M}enable_gradient_checkpointing=True", "data.max_prompt_length=1")
    found = subject(read(*words), verl="0.6.1").roles["actor"]
    assert not {"training.fsdp_offload_params", "training.fsdp_reshard_after_forward", "training.use_reentrant"} & set(
        found
    )
    assert found["training.gradient_checkpointing"].value is False  # Megatron's workers never read that key
    assert found["training.tensor_parallel"].value == 1
    assert all("fsdp" not in str(source.key) for fact in found.values() for source in fact.sources)


def test_settings_passed_on_are_plain_only_where_none_of_the_programs_own_says_the_same() -> None:
    found = read(
        f"+{R}engine_kwargs.vllm.disable_mm_preprocessor_cache=True",
        f"+{R}engine_kwargs.vllm.max_num_seqs=8",
        f"+{A}megatron.override_transformer_config.moe_grouped_gemm=True",
        f"+{A}megatron.override_transformer_config.context_parallel_size=2",
    )
    assert {key.rpartition(".")[2] for key, _ in found.unread} == {"max_num_seqs", "context_parallel_size"}


def test_a_file_of_defaults_that_nobody_read_leaves_them_open() -> None:
    for words in ("model_engine=veomni", "model_engine=$E", "actor@actor_rollout_ref.actor=mlite_actor"):
        found = subject(read(words, f"{M}path=m"), verl="0.9.1")
        assert value(found, "actor", "training.entropy_coefficient") is None
        assert [gap.source.key for gap in found.gaps] == [words.partition("=")[0]]
    assert not subject(read("model_engine=dp", f"{M}path=m"), verl="0.9.1").gaps
    found = subject(alone("verl.trainer.sft_trainer", "model.path=m", "engine=veomni"), verl="0.9.1")
    assert [gap.source.key for gap in found.gaps] == ["engine"]
    assert value(found, "train", "training.offload_param") is None
    assert "training.gradient_checkpointing" not in found.roles["train"]


def test_how_the_entropy_is_computed() -> None:
    found = read(
        f"{A}entropy_checkpointing=True", f"{A}entropy_from_logits_with_chunking=True", f"{F}entropy_checkpointing=True"
    )
    told = subject(found, verl="0.6.1")
    assert value(told, "actor", "training.entropy_checkpointing") is True
    assert value(told, "actor", "training.entropy_chunking") is True
    assert value(told, "actor", "training.entropy_compile") is True
    assert facts(found, "reference")["training.entropy_checkpointing"] is True


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (f"'{R}cudagraph_capture_sizes=[1,2,8,4]'", 8),
        (f"'+{R}engine_kwargs.vllm.compilation_config.cudagraph_capture_sizes=[16]'", 16),
        (f"{R}cudagraph_capture_sizes=null", None),
    ],
)
def test_sizes_of_cuda_graphs(words: str, size: int | None) -> None:
    assert facts(read(words)).get("rollout.max_cudagraph_capture_size") == size


def test_engines_of_supervised_training_on_megatron() -> None:
    run = "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer engine=megatron model.path=m "
    found = subject(documents(run)[0], verl="0.7.0").roles["train"]
    assert found["training.gradient_checkpointing"].value is False
    assert "training.use_reentrant" not in found
    override = "engine.override_transformer_config.recompute_granularity=full optim.override_optimizer_config."
    stated = documents(
        run + override + "optimizer_cpu_offload=True optim.override_optimizer_config.optimizer_offload_fraction=1.0"
    )
    assert facts(stated[0])["training.gradient_checkpointing"] is True
    assert facts(stated[0])["training.offload_optimizer"] == "cpu"


def composed(tmp_path: Path, text: str, *words: str) -> Subject:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "mine.yaml").write_text(text, encoding="utf-8")
    script = tmp_path / "train.sh"
    given = " ".join((f"--config-path={tmp_path}/conf", "--config-name=mine", *words))
    script.write_text(f"python3 -m recipe.mine.main {given}\n", encoding="utf-8")
    (command,) = read_configurations(str(script), named=True)
    (file,) = read_configurations(str(tmp_path / "conf" / "mine.yaml"), named=True)
    environment = Environment("env", {"verl": Package("verl", "0.6.1", Source("env"))}, complete=False)
    found = (*command.documents, *(one for one in file.documents if one not in command.documents))
    rules = open_rules()
    return resolve("s", rules=rules, environment=environment, documents=follow_references(found, rules, {}))


GRPO = "algorithm.adv_estimator=grpo", f"{A}use_kl_loss=False", "algorithm.use_kl_in_reward=False"


def test_a_file_that_a_command_composes_from_says_which_back_end_there_is(tmp_path: Path) -> None:
    text = "defaults: [ppo_megatron_trainer, _self_]\nactor_rollout_ref: {rollout: {n: 4}}\n"
    found = composed(tmp_path, text, *GRPO)
    assert set(found.roles) == {"actor"}  # of a critic that the file alone would have, the command says otherwise
    assert value(found, "actor", "training.sharding") == "megatron"
    assert value(found, "actor", "training.gradient_checkpointing") is False
    assert value(found, "actor", "training.use_remove_padding") is True
    assert value(found, "actor", "rollout.n") == 4


def test_what_a_file_composes_from_and_nobody_read_may_set_anything(tmp_path: Path) -> None:
    text = "defaults: [ours, _self_]\nactor_rollout_ref: {rollout: {n: 4}}\n"
    found = composed(tmp_path, text, *GRPO)
    assert value(found, "actor", "rollout.gpu_memory_utilization") is None
    assert "names 'ours.yaml', which could not be read" in [gap.why for gap in found.gaps]


def test_a_file_that_a_command_leaves_the_algorithm_to_has_the_last_word(tmp_path: Path) -> None:
    text = "defaults: [ppo_trainer, _self_]\nalgorithm: {adv_estimator: grpo}\nactor_rollout_ref: {rollout: {n: 4}}\n"
    found = composed(tmp_path, text, f"{A}use_kl_loss=False", "algorithm.use_kl_in_reward=False")
    assert set(found.roles) == {"actor"}


@pytest.mark.parametrize(
    ("defaults", "sharding"),
    [
        ([{"actor@actor_rollout_ref.actor": "dp_actor"}, "reward_manager@reward_manager", "_self_"], "fsdp"),
        ([{"model_engine": "dp"}, {"actor@actor_rollout_ref.actor": "${model_engine}_actor"}, "_self_"], "fsdp"),
        ([{"actor@actor_rollout_ref.actor": "megatron_actor"}, "_self_"], "megatron"),
    ],
)
def test_verls_own_files_compose_from_parts_for_one_back_end(defaults: list[Any], sharding: str) -> None:
    document = verl.read({"defaults": defaults, "actor_rollout_ref": {"rollout": {"n": 4}}}, "c.yaml").documents[0]
    assert facts(document, "actor")["training.sharding"] == sharding
    assert not document.gaps


CRITIC = """
actor_rollout_ref: {model: {path: Qwen/Qwen2.5-7B}, actor: {ppo_mini_batch_size: 16, ppo_max_token_len_per_gpu: 9000}}
data: {train_batch_size: 32}
critic: {ppo_micro_batch_size_per_gpu: 4, model: {path: Qwen/Qwen2.5-1.5B, enable_gradient_checkpointing: false}}
"""


def followed(tmp_path: Path, text: str, *words: str, both: bool = False) -> Subject:
    """Read a command that composes from a file; ``both`` where the person names the file as well."""
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    script = tmp_path / "train.sh"
    script.write_text(f"{MAIN}--config-path=. --config-name=mine {' '.join(words)}\n", encoding="utf-8")
    paths = (script, *([tmp_path / "mine.yaml"] if both else []))
    found = [
        one for path in paths for reading in read_configurations(str(path), named=True) for one in reading.documents
    ]
    environment = Environment("env", {"verl": Package("verl", "0.7.0", Source("env"))}, complete=False)
    documents_ = follow_references(tuple(found), open_rules(), {})
    return resolve("s", rules=open_rules(), environment=environment, documents=documents_)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(
    ("file", "words", "there"),
    [
        ("gae", "", True),
        ("gae", "algorithm.adv_estimator=grpo", False),
        ("grpo", "", False),
        ("grpo", "algorithm.adv_estimator=gae", True),
        ("grpo", "critic.enable=True", True),
        ("gae", "critic.enable=False", False),
    ],
)
def test_the_value_in_force_decides_whether_there_is_a_critic(
    tmp_path: Path, file: str, words: str, *, there: bool, both: bool
) -> None:
    found = followed(tmp_path, f"algorithm: {{adv_estimator: {file}}}{CRITIC}", words, both=both)
    assert ("critic" in found.roles) == there
    if there:
        assert value(found, "critic", "training.micro_batch_size") == 4
        assert value(found, "critic", "training.gradient_checkpointing") is False
        assert value(found, "critic", "model.name") == "Qwen/Qwen2.5-1.5B"
        assert value(found, "actor", "training.gradient_checkpointing") is True


def test_what_keys_of_a_command_and_its_file_say_together(tmp_path: Path) -> None:
    text = CRITIC.replace("critic: {", "critic: {ppo_max_token_len_per_gpu: '${actor_rollout_ref.actor.limit}', ")
    found = followed(tmp_path, text, f"{A}use_dynamic_bsz=True", f"{R}n=4", f"+{A}limit=7000")
    assert value(found, "actor", "training.micro_batch_tokens") == 9000
    assert value(found, "critic", "training.micro_batch_tokens") == 7000
    assert value(found, "critic", "training.micro_batch_size") is None
    assert value(found, "actor", "training.global_batch_size") == 64
    assert value(found, "actor", "rollout.global_batch_size") == 128


def test_words_of_a_command_that_nobody_knows_leave_open_what_its_file_leaves_out(tmp_path: Path) -> None:
    assert "critic" in followed(tmp_path, "defaults: [ppo_trainer]\nactor_rollout_ref: {rollout: {n: 4}}\n").roles
    text = "defaults: [ppo_trainer]\nactor_rollout_ref: {rollout: {n: 4}}\n"
    assert "critic" not in followed(tmp_path, text, "$EXTRA").roles


@pytest.mark.parametrize(
    ("program", "reader"),
    [
        ("verl.trainer.sft_trainer", "verl-sft-engine"),
        ("verl.trainer.sft_trainer_ray", "verl-sft-engine"),
        ("verl.trainer.fsdp_sft_trainer", "verl-sft"),
        ("verl.trainer.main_ppo_sync", "verl"),
        ("verl.trainer.main_generation_server", None),
        ("verl.trainer.main_generation", None),
        ("verl.trainer.main_eval", None),
        ("recipe.dance_grpo.main_dance", None),
    ],
)
def test_programs_of_verl(program: str, reader: str | None) -> None:
    words = f"{M}path=m" if "ppo" in program or "server" in program or "dance" in program else "model.path=m"
    for start in (f"python3 -m {program}", f"python3 {program.replace('.', '/')}.py"):
        found = [one for run in runs(f"{start} {words}") for one in run.documents if one.reader.startswith("verl")]
        assert [one.reader for one in found] == ([] if reader is None else [reader])
        assert not any(one.gaps for one in found)


@pytest.mark.parametrize(("program", "read"), [("main_gkd", False), ("main_dance", False), ("main_own", True)])
def test_a_program_of_other_roles_is_not_read_by_the_configuration_beside_it(
    tmp_path: Path, program: str, *, read: bool
) -> None:
    (tmp_path / "mine.yaml").write_text("actor_rollout_ref: {rollout: {n: 4}}\n", encoding="utf-8")
    script = tmp_path / "train.sh"
    script.write_text(f"python3 -m {program} --config-path=. --config-name=mine {M}path=m\n", encoding="utf-8")
    if program == "main_own":
        script.write_text(
            f"python3 -m {program} --config-path=. --config-name=mine trainer.nnodes=2\n", encoding="utf-8"
        )
    if not read:
        with pytest.raises(InputError, match="starts no training program"):
            read_configurations(str(script), named=True)
        return
    found = [one for reading in read_configurations(str(script), named=True) for one in reading.documents]
    assert any(one.reader.startswith("verl") for one in found)


def test_ray_starts_the_ranks_of_one_trainer_and_torchrun_those_of_the_other() -> None:
    words = "model.path=m", "trainer.n_gpus_per_node=8", "trainer.nnodes=2", "model.lora.rank=16"
    started = facts(alone("verl.trainer.sft_trainer_ray", *words))
    assert (started["hardware.gpus_per_node"], started["hardware.nodes"]) == (8, 2)
    assert (started["training.peft"], started["training.lora_rank"]) == ("lora", 16)
    assert "hardware.gpus_per_node" not in facts(alone("verl.trainer.sft_trainer", *words))


def test_defaults_of_the_engines_hold_in_the_newest_release() -> None:
    for release in ("0.7.1", "0.8.0", "0.9.1"):
        sft = subject(alone("verl.trainer.sft_trainer", "model.path=m", "data.use_dynamic_bsz=False"), verl=release)
        assert value(sft, "train", "training.gradient_checkpointing") is True
        assert value(sft, "train", "training.use_remove_padding") is True
        assert value(sft, "train", "training.sharding") == "fsdp"
        assert value(sft, "train", "training.micro_batch_size") == 4
        found = subject(read("--config-name=ppo_megatron_trainer", f"{M}path=m"), verl=release)
        assert value(found, "actor", "training.gradient_checkpointing") is False
        assert value(found, "actor", "training.optimizer") == "adam"
        assert value(found, "critic", "training.context_parallel") == 1
        assert value(found, "actor", "training.use_remove_padding") is True


@pytest.mark.parametrize(
    "words",
    [
        f"+{R}engine_kwargs='{{vllm: {{max_num_seqs: 8, compilation_config: {{cudagraph_mode: NONE}}}}}}'",
        f"+{R}engine_kwargs.vllm='{{max_num_seqs: 8, compilation_config: {{cudagraph_mode: NONE}}}}'",
        f"+{R}engine_kwargs.vllm.max_num_seqs=8 +{R}engine_kwargs.vllm.compilation_config='{{cudagraph_mode: NONE}}'",
    ],
)
def test_a_section_given_as_one_value_is_read_key_by_key(words: str) -> None:
    found = read(words)
    assert [key for key, _ in found.unread] == [f"{R}engine_kwargs.vllm.max_num_seqs"]
    assert facts(found)["rollout.cuda_graphs"] is False
    told = subject(found, verl="0.7.0")
    assert value(told, "actor", "rollout.max_num_seqs") is None
    assert value(told, "actor", "rollout.gpu_memory_utilization") == 0.5


def test_settings_of_the_engine_in_a_file_are_listed() -> None:
    engine = {"vllm": {"max_num_seqs": 8, "swap_space": None}, "sglang": {}}
    rollout = {"n": 4, "engine_kwargs": engine}
    data = {"actor_rollout_ref": {"rollout": rollout, "model": {"override_config": {"num_hidden_layers": 2}}}}
    document = verl.read(data, "c.yaml").documents[0]
    assert [key for key, _ in document.unread] == [f"{R}engine_kwargs.vllm.max_num_seqs"]
    assert 2 in [one.value for one in document.statements if one.fact == "model.num_hidden_layers"]


@pytest.mark.parametrize(
    ("words", "share", "sequences"),
    [
        (f"+{R}new_thing=1", 0.5, 1024),
        (f"{R}new_thing=1", None, None),
        (f"++{R}new_thing=1", None, None),
        (f"{R}new_thing=$N", None, None),
        (f"+{R}another_max_num_seqs=1", 0.5, None),
        (f"+{R}engine_kwargs.vllm=$KW", None, None),
        (f"+{R}engine_kwargs=$KW", None, None),
        ("+new_thing=1", 0.5, 1024),
        (f"+{R}engine_kwargs.vllm.disable_mm_preprocessor_cache=$D +{R}new_thing=1", 0.5, 1024),
    ],
)
def test_a_key_that_is_added_is_no_other_name_of_one_that_is_there(
    words: str, share: float | None, sequences: int | None
) -> None:
    found = subject(read(words), verl="0.7.0")
    assert value(found, "actor", "rollout.gpu_memory_utilization") == share
    assert value(found, "actor", "rollout.max_num_seqs") == sequences
    assert found.gaps


@pytest.mark.parametrize(
    ("release", "words", "mode"),
    [("0.3.0.post1", "", "sync"), ("0.6.1", "", "sync"), ("0.7.0", "", "async"), ("0.7.0", f"{R}mode=sync", "sync")],
)
def test_whether_the_engine_is_called_or_a_server(release: str, words: str, mode: str) -> None:
    found = subject(read(words, f"{M}path=m"), verl=release)
    assert value(found, "actor", "rollout.mode") == mode
    assert value(found, "actor", "rollout.colocated") is True


def test_forks_on_megatron_have_defaults_of_their_own() -> None:
    for words in ("trainer.project_name=TinyZero", f"{R}n_agent=5"):
        found = subject(read("--config-name=ppo_megatron_trainer", f"{M}path=m", words))
        assert value(found, "critic", "training.micro_batch_size") == 2
        assert value(found, "actor", "rollout.log_prob_micro_batch_size") == 2
        assert value(found, "actor", "training.use_remove_padding") is True
        assert value(found, "actor", "training.optimizer") == "adam"
        assert value(found, "actor", "model.attn_implementation") is None
        assert value(subject(read(f"{M}path=m", words)), "critic", "training.micro_batch_size") == 64


INNER = f"{A}fsdp_config."


@pytest.mark.parametrize(
    ("release", "words", "ranks", "recomputed"),
    [
        ("0.9.1", f"{INNER}ulysses_sequence_parallel_size=4 {INNER}entropy_checkpointing=True", 4, True),
        ("0.9.1", f"{INNER}ulysses_sequence_parallel_size=4 {A}ulysses_sequence_parallel_size=1", 4, False),
        ("0.9.1", f"{INNER}ulysses_sequence_parallel_size=4 {A}ulysses_sequence_parallel_size=8", 8, False),
        ("0.7.0", f"{INNER}ulysses_sequence_parallel_size=4 {INNER}entropy_checkpointing=True", 1, False),
        ("0.7.0", f"{A}ulysses_sequence_parallel_size=8 {A}entropy_checkpointing=True", 8, True),
    ],
)
def test_settings_of_the_engine_in_its_own_section(release: str, words: str, ranks: int, *, recomputed: bool) -> None:
    found = subject(read(words, f"{M}path=m"), verl=release)
    assert value(found, "actor", "training.context_parallel") == ranks
    assert value(found, "actor", "training.entropy_checkpointing") is recomputed


def test_keys_of_megatron_tell_the_back_end_where_the_configuration_is_not_at_hand() -> None:
    words = f"--config-name=mine algorithm.adv_estimator=grpo {A}megatron.param_offload=True {A}ppo_micro_batch_size_per_gpu=1"
    document = documents(f"python3 -m verl.trainer.main_ppo {words}")[0]
    stated = {one.role: one.value for one in document.statements if one.fact == "training.sharding"}
    assert stated == {"actor": "megatron", "reference": "megatron"}


@pytest.mark.parametrize("folder", ["recipe/dapo", "dapo"])
def test_a_recipe_composes_from_the_file_beside_it(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder / "config").mkdir(parents=True)
    config = "defaults:\n  - ppo_megatron_trainer\n  - _self_\nactor_rollout_ref: {rollout: {n: 7}}\n"
    (tmp_path / folder / "config/dapo_megatron_trainer.yaml").write_text(config, encoding="utf-8")
    script = tmp_path / folder / "run.sh"
    words = "--config-name=dapo_megatron_trainer actor_rollout_ref.model.path=Qwen/Qwen3-8B"
    script.write_text(f"python3 -m recipe.dapo.main_dapo {words}\n", encoding="utf-8")
    (subject,) = gather(Request(paths=(str(script),), here=False), open_rules(), {}).subjects
    found = subject.roles["actor"]
    assert (found["rollout.n"].value, found["training.sharding"].value) == (7, "megatron")
    assert "configuration.unread" not in found


@pytest.mark.parametrize(
    ("version", "more", "expands"),
    [
        ("0.5.0", "", False),
        ("0.6.0", "", True),
        ("0.9.1", "actor_rollout_ref.actor.strategy=fsdp2", True),
        ("0.7.0", "actor_rollout_ref.hybrid_engine=False", False),
    ],
)
def test_from_0_6_on_segments_expand_while_models_are_trained(version: str, more: str, *, expands: bool) -> None:
    run = f"python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.name=vllm {more}"
    found = resolved(run, "actor", verl=version)
    assert found["program.trains_with_expandable_segments"] is expands
    assert "allocator.expandable_segments" not in found  # no variable asks for them
    assert "program.turns_off_expandable_segments" not in found or not found["program.turns_off_expandable_segments"]


def test_a_reward_model_of_megatrons_file_is_megatrons() -> None:
    words = ("reward_model.enable=True", "reward_model.model.path=m", f"{M}path=m", "reward_model.param_offload=True")
    found = subject(
        read("--config-name=ppo_megatron_trainer", *words, f"{A}megatron.tensor_model_parallel_size=4"), verl="0.2"
    )
    names = ("training.sharding", "training.param_dtype", "training.sequence_parallel", "training.offload_param")
    assert [value(found, "reward", name) for name in names] == ["megatron", "bfloat16", True, "cpu"]
    assert value(found, "reward", "training.use_reentrant") is None
    assert value(subject(read(*words), verl="0.2"), "reward", "training.sharding") == "fsdp"


@pytest.mark.parametrize(
    ("words", "release", "targets"),
    [
        ((f"{M}lora.rank=32",), "0.9.0", ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")),
        ((f"{M}lora.rank=32", f"{M}lora.target_modules=[linear_qkv]"), "0.7.0", ("linear_qkv",)),
        ((f"{M}path=m",), "0.9.0", None),
    ],
)
def test_adapters_on_megatron_lie_in_all_linears(words: tuple[str, ...], release: str, targets: object) -> None:
    found = subject(read("model_engine=megatron", *words), verl=release).roles["actor"]
    known = found.get("training.lora_target_modules")
    assert (None if known is None else known.value) == targets


def test_files_that_a_file_composes_from_lie_beside_it_or_where_hydra_looks(tmp_path: Path) -> None:
    own = "actor_rollout_ref: {model: {path: '${model_path}'}, rollout: {n: 8}}\n"
    searched = "hydra: {searchpath: ['file://../shared']}\n"
    for name, text in (
        ("conf/main.yaml", f"{searched}defaults: [base]\ntrainer: {{nnodes: 2}}\n"),
        ("conf/base.yaml", f"defaults: [ppo_trainer, envs, rollouts]\nmodel_path: other\nseed: {{train: 1}}\n{own}"),
        ("conf/envs.yaml", "custom: {a: 1, b: 2}\n"),
        ("shared/rollouts.yaml", "actor_rollout_ref: {rollout: {gpu_memory_utilization: 0.7, n: 2}}\n"),
        ("go.py", "import hydra\n@hydra.main(config_path='conf', config_name='base')\ndef main(config):\n    pass\n"),
        ("go.sh", "python go.py --config-name main model_path=Qwen/Qwen2.5-7B trainer.n_gpus_per_node=4\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (command,) = read_configurations(str(tmp_path / "go.sh"), named=True)
    rules = open_rules()
    found = resolve(
        "s",
        rules=rules,
        environment=Environment("env", {}, complete=False),
        documents=follow_references(command.documents, rules, {}),
    )
    told = {fact: value(found, "actor", fact) for fact in ("model.name", "rollout.n", "rollout.gpu_memory_utilization")}
    assert told == {"model.name": "Qwen/Qwen2.5-7B", "rollout.n": 8, "rollout.gpu_memory_utilization": 0.7}
    assert {place.key for place, *_ in found.unread} == {"custom", "seed"}
