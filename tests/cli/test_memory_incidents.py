"""Runs that were priced or judged wrongly once, as people run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import run

GRPO = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size={batch} data.max_prompt_length=512"
    " data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct"
    " actor_rollout_ref.actor.ppo_mini_batch_size={batch} actor_rollout_ref.actor.use_kl_loss=True"
    " actor_rollout_ref.actor.strategy=fsdp actor_rollout_ref.rollout.name=vllm"
    " actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16"
    " actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 trainer.n_gpus_per_node=8 trainer.nnodes=1{more}"
)
FIXED = " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16"
GIB = 2**30


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


def packages(**releases: str) -> None:
    Path("requirements.txt").write_text("".join(f"{name}=={release}\n" for name, release in releases.items()))


def found(*arguments: str) -> dict[str, dict[str, Any]]:
    """Return findings of a check by rule; of several roles the first."""
    report = json.loads(run("check", "requirements.txt", *arguments, "--format", "json").out)
    findings: dict[str, dict[str, Any]] = {}
    for finding in report["findings"]:
        findings.setdefault(finding["rule_id"], finding)
    return findings


def affected(*arguments: str) -> set[str]:
    return {name for name, finding in found(*arguments).items() if finding["status"] == "affected"}


def estimate(*arguments: str) -> dict[str, Any]:
    (subject,) = json.loads(run("estimate", *arguments, "--format", "json").out)["subjects"]
    return {**(subject["estimate"] or {}), "needs": subject["needs"]}


def write_facts(training: str, hardware: str = "{gpu: A100-80GB, world_size: 1}", **more: str) -> str:
    sections = {"model": "llama-2-7b", "training": training, "hardware": hardware, **more}
    Path("facts.yaml").write_text("compatcheck: 1\n" + "".join(f"{name}: {text}\n" for name, text in sections.items()))
    return "facts.yaml"


def parts(priced: dict[str, Any], phase: str) -> dict[str, int]:
    components = next(entry["components"] for entry in priced["phases"] if entry["name"] == phase)
    return {part["name"]: part["bytes"]["expected"] for part in components}


@pytest.mark.parametrize("transformers", ["4.48.3", "4.51.3", "4.55.4"])
@pytest.mark.parametrize("model", ["meta-llama/Meta-Llama-3-8B", "Qwen/Qwen2.5-7B", "google/gemma-2-9b"])
def test_nothing_of_training_is_certain_of_a_model_alone(transformers: str, model: str) -> None:
    packages(torch="2.6.0", transformers=transformers)
    result = run("check", "requirements.txt", "--model", model)
    assert result.code in {0, 4}
    assert not affected("--model", model)


@pytest.mark.parametrize("transformers", ["4.36.2", "4.38.0", "4.44.2", "4.46.3", "5.3.0"])
def test_no_eager_attention_is_certain_of_a_model_alone(transformers: str) -> None:
    packages(torch="2.6.0", transformers=transformers)
    for model in ("google/gemma-2-9b", "microsoft/Phi-3-mini-4k-instruct", "bigcode/starcoder2-7b"):
        assert not affected("--model", model)


@pytest.mark.parametrize("transformers", ["4.48.3", "4.51.3", "4.53.3", "4.55.4"])
def test_a_reference_that_only_scores_keeps_nothing(transformers: str) -> None:
    packages(torch="2.6.0", transformers=transformers, verl="0.6.1")
    Path("run.sh").write_text(GRPO.format(batch=256, more=FIXED))
    rules = found("run.sh", "--gpu", "8xH100-80GB")
    assert "transformers/attention-output-kept-twice" not in rules
    assert "transformers/sliding-mask-copied-per-layer" not in rules


def test_a_program_that_passes_no_labels_runs_no_loss_of_the_model() -> None:
    packages(torch="2.5.1", transformers="4.46.3", openrlhf="0.6.1", deepspeed="0.15.4")
    Path("sft.sh").write_text(
        "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B --train_batch_size 64 --micro_train_batch_size 4"
        " --max_len 4096 --zero_stage 2 --bf16\n"
    )
    rules = found("sft.sh", "--gpu", "8xA100-80GB")
    assert "transformers/loss-shift-copies-logits" not in rules
    assert "transformers/loss-newly-in-float32" not in rules


def test_pages_that_nobody_writes_to_are_no_finding() -> None:
    packages(torch="2.6.0", transformers="4.48.3")
    assert "transformers/tied-projection-allocated-while-loading" not in found("--model", "google/gemma-2-9b")


def test_with_adapters_verl_has_no_reference() -> None:
    packages(torch="2.6.0", transformers="4.51.3", verl="0.5.0", vllm="0.8.5")
    lora = " actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.lora_alpha=32"
    Path("run.sh").write_text(GRPO.format(batch=256, more=FIXED + lora))
    priced = estimate("requirements.txt", "run.sh", "--gpu", "8xH100-80GB")
    assert priced["phases"]
    assert not [phase for phase in priced["phases"] if phase["role"] == "reference"]


def test_without_ray_all_models_of_ppo_are_in_every_process() -> None:
    packages(torch="2.5.1", transformers="4.46.3", openrlhf="0.5.9", deepspeed="0.15.4")
    Path("ppo.sh").write_text(
        "deepspeed --num_gpus 4 --module openrlhf.cli.train_ppo --pretrain meta-llama/Meta-Llama-3-8B"
        " --reward_pretrain OpenRLHF/Llama-3-8b-rm --critic_pretrain meta-llama/Meta-Llama-3-8B --zero_stage 2 --bf16"
        " --adam_offload --micro_train_batch_size 1 --train_batch_size 64 --micro_rollout_batch_size 1 --rollout_batch_size 64"
        " --prompt_max_len 1024 --generate_max_len 1024 --gradient_checkpointing --init_kl_coef 0.01\n"
    )
    known = json.loads(run("facts", "requirements.txt", "ppo.sh", "--format", "json").out)["subjects"][0]["facts"]
    assert {fact["value"] for fact in known if fact["name"] == "rollout.colocated"} == {True}


def test_batches_filled_by_tokens_end_where_short_sequences_do() -> None:
    packages(torch="2.6.0", transformers="4.51.3", verl="0.5.0", vllm="0.8.5")
    filled = (
        " actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000"
        " actor_rollout_ref.model.use_remove_padding=True"
    )
    Path("run.sh").write_text(GRPO.format(batch=128, more=filled))
    few = estimate("requirements.txt", "run.sh", "--gpu", "8xH100-80GB")
    update = next(phase for phase in few["phases"] if (phase["name"], phase["role"]) == ("backward", "actor"))
    Path("run.sh").write_text(GRPO.format(batch=1024, more=filled))
    many = estimate("requirements.txt", "run.sh", "--gpu", "8xH100-80GB")
    full = next(phase for phase in many["phases"] if (phase["name"], phase["role"]) == ("backward", "actor"))
    assert update["bytes"]["low"] < full["bytes"]["low"] - GIB
    assert update["bytes"]["expected"] == pytest.approx(full["bytes"]["expected"], rel=1e-3)


MIXED = (
    "{{framework: {framework}, sharding: fsdp, fsdp_version: 1, fsdp_use_orig_params: true, fsdp_wraps_frozen_apart: false,"
    " param_dtype: bfloat16, compute_dtype: bfloat16, peft: lora, lora_rank: 8, lora_target_modules: [q_proj, v_proj],"
    " micro_batch_size: 1, sequence_length: 512, gradient_accumulation_steps: 4, gradient_checkpointing: false, optimizer: adamw,"
    " fsdp_offload_params: false{more}}}"
)


def test_frozen_parameters_in_mixed_units_decide_a_run() -> None:
    pair = "{gpu: A100-40GB, world_size: 2}"
    unsynchronised = MIXED.format(framework="lightning", more=", sync_each_batch: false")
    whole = estimate(write_facts(unsynchronised, pair, model="llama-2-13b", packages='{torch: "2.2.0"}'))
    assert whole["verdict"] == "marginal"
    assert parts(whole, "backward")["gradients of frozen parameters"] / GIB == pytest.approx(23.6, abs=0.1)
    synchronised = MIXED.format(framework="lightning", more=", sync_each_batch: true")
    split = estimate(write_facts(synchronised, pair, model="llama-2-13b", packages='{torch: "2.2.0"}'))
    assert parts(split, "backward")["gradients of frozen parameters"] / GIB == pytest.approx(11.8, abs=0.1)
    unsaid = estimate(write_facts(MIXED.format(framework="lightning", more=""), pair, model="llama-2-13b"))
    assert unsaid["needed_bytes"]["high"] >= whole["needed_bytes"]["expected"]
    assert unsaid["verdict"] == "marginal"


def test_a_rule_about_mixed_units_counts_what_adapters_train() -> None:
    packages(torch="2.2.0")
    write_facts(
        MIXED.format(framework="lightning", more=", sync_each_batch: false"), "{world_size: 2}", model="llama-2-13b"
    )
    finding = found("facts.yaml")["torch/fsdp1-mixes-frozen-and-trainable"]
    assert finding["status"] == "affected"
    assert finding["impact"]["expected_bytes"] / GIB == pytest.approx(23.6, abs=0.1)


PLAIN = "micro_batch_size: 2, sequence_length: 1024, param_dtype: bfloat16, gradient_checkpointing: false, peft: null"


def test_a_loop_that_nobody_read_widens_the_range_and_is_named() -> None:
    lora = "peft: lora, lora_rank: 8, lora_target_modules: [q_proj, v_proj]"
    plain = PLAIN.replace("peft: null", lora)
    read = estimate(write_facts(f"{{framework: hf_trainer, trainer: causal_lm, {plain}}}"))
    own = estimate(write_facts(f"{{framework: custom, trainer: causal_lm, {plain}}}"))
    assert "training loop" in {entry["name"] for entry in own["unmodelled"]}
    assert "training loop" not in {entry["name"] for entry in read["unmodelled"]}

    def width(priced: dict[str, Any]) -> float:
        size = priced["needed_bytes"]
        return float((size["high"] - size["low"]) / size["expected"])

    assert width(own) > width(read)


def test_outputs_of_a_loop_of_ones_own_are_taken_as_kept_and_said() -> None:
    batch = "micro_batch_size: 1, sequence_length: 8192, param_dtype: bfloat16, gradient_checkpointing: true"
    lora = "peft: lora, lora_rank: 8, lora_target_modules: [q_proj, v_proj]"
    loop = f"{{framework: custom, trainer: causal_lm, {batch}, {lora}}}"
    own = estimate(write_facts(loop))
    assert {entry["fact"]: entry["value"] for entry in own["assumptions"]}["run.outputs_kept"] is True
    freed = estimate(write_facts(loop, run="{outputs_kept: false}"))
    logits = 2 * 8192 * 32000
    assert parts(own, "backward")["logits and loss"] - parts(freed, "backward")["logits and loss"] == logits


def test_under_fsdp_the_dtype_of_the_states_is_asked_for() -> None:
    plain = (
        "framework: accelerate, sharding: fsdp, fsdp_version: 1, micro_batch_size: 1, sequence_length: 1024, peft: null"
    )
    assert estimate(write_facts(f"{{{plain}}}", "{gpu: A100-80GB, world_size: 8}"))["needs"] == [
        "training.mixed_precision"
    ]
    told = estimate(write_facts(f"{{{plain}, mixed_precision: bf16}}", "{gpu: A100-80GB, world_size: 8}"))
    assert told["needs"] == []


def test_autocast_keeps_no_copy_of_a_frozen_base_under_checkpointing() -> None:
    lora = "framework: custom, peft: lora, lora_rank: 8, lora_target_modules: [q_proj, v_proj], mixed_precision: bf16"
    batch = (
        "param_dtype: float32, micro_batch_size: 1, sequence_length: 1024, gradient_checkpointing: true, sharding: none"
    )
    priced = estimate(write_facts(f"{{{lora}, {batch}}}"))
    copies = parts(priced, "backward").get("16-bit weights of autocast", 0)
    assert copies <= 2 * 6_738_415_616 / 32


def test_a_composed_activation_keeps_its_pieces_and_a_kernel_none() -> None:
    phi = (
        "{model_type: phi, hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 24, num_attention_heads: 32,"
        " vocab_size: 51200, parameters: 1418270720, hidden_act: %s}"
    )
    training = f"{{framework: hf_trainer, trainer: causal_lm, {PLAIN}}}"
    composed = parts(estimate(write_facts(training, model=phi % "gelu_new")), "backward")["activations"]
    kernel = parts(estimate(write_facts(training, model=phi % "gelu")), "backward")["activations"]
    assert composed - kernel == 3 * 2 * 8192 * 2 * 1024 * 24


def test_fused_experts_that_are_not_quantised_are_in_the_estimate() -> None:
    trinity = (
        "{model_type: afmoe, hidden_size: 1024, intermediate_size: 3072, num_hidden_layers: 56, num_attention_heads: 8,"
        " num_key_value_heads: 2, head_dim: 128, vocab_size: 200192, parameters: 6200000000, expert_parameters: 5640000000,"
        " quantization: nf4}"
    )
    training = (
        "{framework: axolotl, trainer: sft, peft: qlora, lora_rank: 8, lora_target_modules: [q_proj, v_proj],"
        " micro_batch_size: 1, sequence_length: 1024, gradient_checkpointing: true, quantize_moe_experts: false,"
        " mixed_precision: bf16}"
    )

    def need(transformers: str) -> int:
        installed = f'{{transformers: "{transformers}", bitsandbytes: "0.49.0", axolotl: "0.15.0", torch: "2.9.0"}}'
        return sum(parts(estimate(write_facts(training, model=trinity, packages=installed)), "backward").values())

    assert need("5.4.0") - need("5.3.0") == pytest.approx(1.46 * 5.64e9, rel=0.1)


def test_a_device_is_found_with_its_size() -> None:
    packages(torch="2.6.0")
    assert run("check", "requirements.txt", "--gpu", "RTX3090-24GB").code in {0, 4}
    refused = run("check", "requirements.txt", "--gpu", "RTX3090-48GB")
    assert refused.code == 2
    assert "RTX-3090" in refused.err


@pytest.mark.parametrize("text", ["training.framework: trl\n", "training:\n  framework: trl\n"])
def test_a_facts_file_without_its_first_line_is_told_so(text: str) -> None:
    Path("facts.yaml").write_text(text)
    result = run("facts", "facts.yaml")
    assert "`compatcheck: 1`" in result.out + result.err
    assert "lacks the key `compatcheck`" in result.out + result.err
    Path("facts.yaml").write_text(f"compatcheck: 1\n{text}")
    assert "training.framework = trl" in run("facts", "facts.yaml").out
