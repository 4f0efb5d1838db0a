"""SkyRL's command lines; values are those of the dataclasses that its own parser makes of the words (0.3.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking import Request, gather
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents, facts, runs

if TYPE_CHECKING:
    from pathlib import Path

RL = "uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base"
SFT = "uv run --isolated --extra megatron python -m skyrl.train.main_sft"
WORDS = (
    "trainer.policy.model.path=Qwen/Qwen3-8B trainer.placement.policy_num_gpus_per_node=8 "
    "trainer.placement.ref_num_gpus_per_node=8 trainer.policy_mini_batch_size=32 generator.n_samples_per_prompt=4 "
    "trainer.micro_train_batch_size_per_gpu=2 trainer.micro_forward_batch_size_per_gpu=8"
)


def states(text: str, role: str) -> dict[str, object]:
    """Resolve a command; return a model's facts with defaults."""
    found = resolve("x", rules=open_rules(), documents=documents(text)).roles
    return {name: fact.value for name, fact in found[role].items()}


@pytest.mark.parametrize(
    ("program", "reader"),
    [
        ("uv run -m skyrl.train.entrypoints.main_base", "skyrl"),
        ("uv run --extra megatron -m examples.train.algorithms.dapo.main_dapo", "skyrl"),
        ("python examples/train/visgym/entrypoint.py --env_variant sft", "skyrl"),
        ("uv run -m skyrl_train.entrypoints.main_base", "skyrl-train"),
    ],
)
def test_programs_with_its_keys_are_its_own(program: str, reader: str) -> None:
    (document,) = documents(f"{program} trainer.policy.model.path=m trainer.placement.colocate_all=true")
    assert document.reader == reader
    assert ("model", "m", "trainer.policy.model.path") in document.references
    assert not document.unread


@pytest.mark.parametrize("program", ["-m skyrl.train.entrypoints.main_base", "-m skyrl.train.main_sft", "my/main.py"])
def test_an_option_that_no_program_has_is_said(program: str) -> None:
    """The programs take words alone, and what no option is of a known example's is said of every one of them."""
    words = "trainer.policy.model.path=m trainer.placement.colocate_all=true"
    (document,) = documents(f"python {program} --zzz 1 --env_variant=sft --yyy=2 {words}")
    assert [key for key, _ in document.unread if key.startswith("--")] == ["--zzz", "--yyy"]


@pytest.mark.parametrize(
    "program", ["skyrl.train.entrypoints.serve", "skyrl.train.entrypoints.main_generate", "skyrl.tinker.api"]
)
def test_what_only_generates_is_no_training(program: str) -> None:
    assert not runs(f"uv run -m {program} trainer.policy.model.path=m trainer.placement.colocate_all=true")


def test_models_and_batches() -> None:
    (document,) = documents(f"{RL} {WORDS} trainer.train_batch_size=128")
    actor, reference = facts(document, "actor"), facts(document, "reference")
    assert (actor["training.micro_batch_size"], reference["training.micro_batch_size"]) == (2, 8)
    assert (actor["training.global_batch_size"], actor["rollout.global_batch_size"]) == (128, 512)
    assert actor["rollout.log_prob_micro_batch_size"] == 8
    assert reference["program.keeps_graph"] is False
    assert not facts(document, "critic").get("training.micro_batch_size")


def test_what_is_left_out_is_as_the_dataclasses_have_it() -> None:
    actor = states(f"{RL} trainer.policy.model.path=m trainer.placement.colocate_all=true", "actor")
    wanted = {
        "training.sharding": "fsdp", "training.micro_batch_size": 1, "training.global_batch_size": 1280,
        "rollout.global_batch_size": 5120, "training.max_prompt_length": 512, "training.max_response_length": 1024,
        "rollout.gpu_memory_utilization": 0.8, "rollout.tensor_parallel": 1, "hardware.gpus_per_node": 1, "rollout.n": 5,
        "training.param_dtype": "float32", "training.compute_dtype": "bfloat16", "training.reference_model": True,
        "training.gradient_checkpointing": True, "training.peft": None, "training.sleeps_while_idle": True,
    }  # fmt: skip
    assert {name: actor[name] for name in wanted} == wanted
    assert "rollout.enforce_eager" not in actor  # true before 0.3
    assert documents(f"{RL} trainer.placement.colocate_all=true")[0].references == (
        ("model", "Qwen/Qwen2.5-1.5B-Instruct", "trainer.policy.model.path (left out)"),
    )


@pytest.mark.parametrize(
    ("model", "words", "kernel"),
    [
        ("openai/gpt-oss-20b", "trainer.flash_attn=false", "flex_attention"),  # patched in, whatever is said
        ("Qwen/Qwen3-8B", "trainer.flash_attn=false", "sdpa"),
        ("Qwen/Qwen3-8B", "", "flash_attention_2"),
    ],
)
def test_attention_of_a_patched_model_is_that_of_the_patch(tmp_path: Path, model: str, words: str, kernel: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{RL} {WORDS.replace('Qwen/Qwen3-8B', model)} {words}\n", encoding="utf-8")
    (subject,) = gather(Request(paths=(str(script),), here=False), open_rules(), {}).subjects
    actor = subject.roles["actor"]
    assert (actor["model.attn_implementation"].value, actor["program.compiles_flex_attention"].value) == (kernel, True)


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        ("", {"actor", "reference"}),
        ("trainer.algorithm.use_kl_loss=false", {"actor"}),
        ("trainer.algorithm.use_kl_loss=false trainer.algorithm.use_kl_in_reward=true", {"actor", "reference"}),
        ("trainer.critic.model.path=m", {"actor", "reference", "critic"}),
        ("trainer.critic.model.path=null", {"actor", "reference"}),
    ],
)
def test_which_models_there_are(words: str, roles: set[str]) -> None:
    found = resolve("x", rules=open_rules(), documents=documents(f"{RL} {WORDS} {words}")).roles
    assert set(found) - {"rollout"} == roles


def test_models_that_share_devices_take_turns_on_them() -> None:
    together, apart = (
        states(f"{RL} {WORDS} trainer.placement.colocate_all={word}", "actor") for word in ("true", "false")
    )
    assert (together["training.offload_param"], together["training.sleeps_while_idle"]) == ("cpu", True)
    assert together["rollout.sleep_mode"] is True
    assert (apart["training.offload_param"], apart["training.sleeps_while_idle"]) == ("cpu", True)  # with the reference
    alone = states(f"{RL} {WORDS} trainer.placement.colocate_all=false trainer.algorithm.use_kl_loss=false", "actor")
    assert (alone["training.offload_param"], alone["training.sleeps_while_idle"]) == (None, False)
    words = "trainer.policy.fsdp_config.cpu_offload=true trainer.policy.optimizer_config.offload_after_step=true"
    kept = states(f"{RL} {WORDS} {words}", "actor")
    assert (kept["training.fsdp_offload_params"], kept["training.offload_param"]) == (True, None)
    assert kept["training.sleeps_while_idle"] is False


def test_devices_of_a_critic_that_has_its_own() -> None:
    words = (
        "trainer.placement.colocate_all=false trainer.critic.model.path=m trainer.placement.critic_num_gpus_per_node=2"
    )
    assert states(f"{RL} {WORDS} {words}", "actor")["hardware.gpus_per_node"] == 8
    assert states(f"{RL} {WORDS} {words}", "critic")["hardware.gpus_per_node"] == 2
    assert states(f"{RL} {WORDS} {words}", "reference")["hardware.gpus_per_node"] == 8


def test_megatron() -> None:
    words = (
        "trainer.strategy=megatron trainer.policy.megatron_config.tensor_model_parallel_size=4 "
        "trainer.policy.megatron_config.expert_model_parallel_size=8 "
        "trainer.policy.megatron_config.expert_tensor_parallel_size=null "
        "trainer.ref.megatron_config.tensor_model_parallel_size=2 trainer.policy.sequence_parallel_size=1 "
        "trainer.policy.megatron_config.optimizer_config_kwargs.optimizer_cpu_offload=true "
        "trainer.policy.megatron_config.optimizer_config_kwargs.optimizer_offload_fraction=1.0"
    )
    actor, reference = (states(f"{RL} {WORDS} {words}", role) for role in ("actor", "reference"))
    wanted = {
        "training.sharding": "megatron", "training.tensor_parallel": 4, "training.expert_parallel": 8,
        "training.param_dtype": "bfloat16", "training.grad_accum_dtype": "float32", "training.optimizer": "adam",
        "training.checkpointing_policy": "full", "training.offload_optimizer": "cpu", "training.sleeps_while_idle": True,
        "program.code": "parallel-chunks", "training.context_parallel": 1,
    }  # fmt: skip
    assert {name: actor[name] for name in wanted} == wanted
    assert "training.expert_tensor_parallel" not in actor
    assert reference["training.tensor_parallel"] == 2


def test_recomputation_of_other_parts_is_not_known() -> None:
    section = "trainer.policy.megatron_config.transformer_config_kwargs"
    words = f"trainer.strategy=megatron {section}.recompute_granularity=selective"
    assert states(f"{RL} {WORDS} {words}", "actor")["training.checkpointing_policy"] == "core_attention"
    (document,) = documents(f"{RL} {WORDS} {words} {section}.recompute_modules=[moe]")
    assert "training.checkpointing_policy" in {one.fact for one in document.unresolved}
    off = f"{words} trainer.gradient_checkpointing=false"
    assert states(f"{RL} {WORDS} {off}", "actor")["training.gradient_checkpointing"] is False


def test_a_limit_in_tokens_counts_what_ranks_of_a_sequence_hold_together() -> None:
    words = "trainer.max_tokens_per_microbatch=16384 trainer.policy.sequence_parallel_size=4"
    (document,) = documents(f"{RL} {WORDS} {words}")
    assert facts(document, "actor")["training.micro_batch_tokens"] == 4096
    assert facts(document, "reference")["training.micro_batch_tokens"] == 16384
    assert "training.micro_batch_size" not in facts(document, "actor")


def test_turns_lengthen_a_sequence_up_to_the_longest_input() -> None:
    words = "trainer.max_prompt_length=2048 generator.max_input_length=8192"
    for turns, prompt in ((1, 2048), (4, 8192)):
        assert (
            states(f"{RL} {WORDS} {words} generator.max_turns={turns}", "actor")["training.max_prompt_length"] == prompt
        )


def test_a_program_with_a_generator_of_its_own_decides_about_lengths() -> None:
    (document,) = documents(f"python -m my.main_rl {WORDS} trainer.max_prompt_length=512")
    assert "training.max_prompt_length" not in facts(document, "actor")
    assert [one.fact for one in document.unresolved] == ["training.sequence_length"]


def test_keys_of_before_engines_had_a_section() -> None:
    words = (
        "generator.gpu_memory_utilization=0.7 generator.inference_engine_tensor_parallel_size=2 generator.backend=vllm"
    )
    actor = states(f"uv run -m skyrl_train.entrypoints.main_base {WORDS} {words}", "actor")
    assert (actor["rollout.gpu_memory_utilization"], actor["rollout.tensor_parallel"]) == (0.7, 2)
    assert "rollout.enforce_eager" not in actor
    usual = states("uv run -m skyrl_train.entrypoints.main_base trainer.placement.colocate_all=true", "reference")
    wanted = {
        "hardware.gpus_per_node": 4,
        "rollout.tensor_parallel": 4,
        "training.fsdp_offload_params": True,
        "training.fsdp_version": 2,
    }
    assert {name: usual[name] for name in wanted} == wanted


def test_supervised_training() -> None:
    found = states(
        f"{SFT} strategy=fsdp max_length=512 batch_size=8 micro_train_batch_size_per_gpu=2 model.lora.rank=32", "train"
    )
    wanted = {
        "training.trainer": "sft", "training.sharding": "fsdp", "training.sequence_length": 512, "training.global_batch_size": 8,
        "training.peft": "lora", "training.lora_rank": 32, "hardware.gpus_per_node": 4, "training.param_dtype": "float32",
        "training.framework": "skyrl", "program.code": "skyrl", "training.gradient_checkpointing": True,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted
    usual = states(f"{SFT} max_length=512", "train")
    assert (usual["training.sharding"], usual["training.tensor_parallel"], usual["training.pipeline_parallel"]) == (
        "megatron",
        2,
        2,
    )


def test_graphs_of_the_engine_are_read() -> None:
    kwargs = "generator.inference_engine.engine_init_kwargs"
    words = (
        f"{kwargs}.compilation_config.cudagraph_mode=NONE {kwargs}.compilation_config.cudagraph_capture_sizes=[1,8,4]"
    )
    found = facts(documents(f"{RL} {WORDS} {words}")[0])
    assert (found["rollout.cuda_graphs"], found["rollout.max_cudagraph_capture_size"]) == (False, 8)


def test_packed_batches_are_filled_up_to_a_number_of_tokens() -> None:
    words = "max_length=4096 use_sequence_packing=true micro_train_batch_size_per_gpu=6"
    assert facts(documents(f"{SFT} {words}")[0])["training.micro_batch_tokens"] == 4096
    found = facts(documents(f"{SFT} {words} max_tokens_per_microbatch=8192")[0])
    assert found["training.micro_batch_tokens"] == 8192
    assert "training.micro_batch_size" not in found


@pytest.mark.parametrize(("limit", "each"), [("", 2048), ("max_tokens_per_microbatch=8192", 4096)])
def test_ranks_of_a_sequence_share_a_packed_batch(limit: str, each: int) -> None:
    words = "max_length=4096 use_sequence_packing=true megatron_config.context_parallel_size=2"
    assert facts(documents(f"{SFT} {words} {limit}")[0])["training.micro_batch_tokens"] == each


@pytest.mark.parametrize(
    ("words", "drafts"), [("", None), ("trainer.mtp.enabled=false", None), ("trainer.mtp.enabled=true", True)]
)
def test_heads_that_are_trained_propose_tokens_in_the_engine(words: str, *, drafts: bool | None) -> None:
    document = documents(f"{RL} {WORDS} trainer.strategy=megatron {words}")[0]
    assert facts(document).get("rollout.speculation") is drafts
