"""Plans that left a run unread, changed what it computes, or stopped before what would have made it fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.cases.test_review_cases import require, words, write
from tests.cli.run_cli import run

PPO = """\
python3 -m verl.trainer.main_ppo data.train_files=a.parquet data.val_files=b.parquet \\
    data.train_batch_size=1024 data.max_prompt_length=2048 data.max_response_length=8192 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 actor_rollout_ref.actor.entropy_coeff=0 \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    critic.model.path=Qwen/Qwen2.5-7B-Instruct critic.ppo_micro_batch_size_per_gpu=8 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=1
"""
SFT = """\
torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.train_files=a.parquet \\
    data.train_batch_size=256 data.micro_batch_size_per_gpu=8 data.max_length=8192 model.partial_pretrain=Qwen/Qwen2.5-14B \\
    model.enable_gradient_checkpointing=True
"""
CAPPED = (
    "model_name_or_path: google/gemma-2-27b-it\ntorch_dtype: bfloat16\nattn_implementation: eager\nbf16: true\n"
    "dataset_name: a\nmax_seq_length: 8192\npacking: true\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n"
    "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\noutput_dir: o\n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plan(*options: str) -> dict[str, Any]:
    (found,) = json.loads(run("fix", ".", "--offline", *options, "--format", "json").out)["plans"]
    return found


def test_a_plan_leaves_no_key_of_the_run_unread() -> None:
    require(verl="0.2.0", torch="2.4.0", vllm="0.6.3", transformers="4.47.1", ray="2.40.0")
    write("run.sh", PPO)
    found = plan("--gpu", "8xA100-40GB")
    assert "0.1" not in {change["after"] for change in found["changes"] if change["name"] == "verl"}
    assert [one["verdict"] for one in found["outcomes"]] == ["marginal"]


def test_every_phase_that_needs_too_much_is_a_step_of_its_own() -> None:
    """Scoring, update and critic need too much at once: none of their batches helps by itself."""
    require(verl="0.2.0", torch="2.4.0", vllm="0.6.3", transformers="4.47.1", ray="2.40.0")
    write("run.sh", PPO)
    run("fix", ".", "--offline", "--gpu", "8xA100-40GB", "--apply", "--unsafe")
    script = Path("run.sh").read_text("utf-8")
    assert "critic.ppo_micro_batch_size_per_gpu=1 " in script
    assert "log_prob_micro_batch_size_per_gpu=1 " in script
    assert "max_response_length=8192" in script
    (after,) = json.loads(run("estimate", ".", "--gpu", "8xA100-40GB", "--format", "json").out)["subjects"]
    assert after["estimate"]["needed_bytes"]["expected"] < 40 << 30


def test_the_batch_of_supervised_training_by_verl_is_a_lever() -> None:
    require(verl="0.5.0", torch="2.7.1", transformers="4.53.2", tensordict="0.9.1")
    write("run.sh", SFT)
    written = [line for change in plan("--gpu", "8xH100-80GB")["changes"] for line in change["written"]]
    assert "data.micro_batch_size_per_gpu=1" in written


def test_scores_that_a_model_caps_are_not_given_to_sdpa_as_the_same_result() -> None:
    require(trl="0.15.2", transformers="4.49.0", torch="2.5.1", accelerate="1.4.0", deepspeed="0.15.4")
    write("sft.yaml", CAPPED)
    write("ds.json", '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}')
    write("run.sh", "deepspeed --num_gpus 8 trl/scripts/sft.py --config sft.yaml --deepspeed ds.json\n")
    run("fix", ".", "--offline", "--gpu", "8xH100-80GB", "--apply")
    assert "sdpa" not in Path("sft.yaml").read_text("utf-8")


def test_a_remedy_says_which_key_its_release_does_not_know() -> None:
    require(trl="0.15.2", transformers="4.49.0", torch="2.5.1", accelerate="1.4.0")
    write("sft.yaml", CAPPED.replace("gemma-2-27b-it", "gemma-2-2b"))
    write("run.sh", "accelerate launch --num_processes 1 trl/scripts/sft.py --config sft.yaml\n")
    said = words(run("check", ".", "--gpu", "1xH100-80GB"))
    assert "upgrade trl to 1." in said
    assert "(max_seq_length) is unknown to trl 1." in said


TRAINER = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1")\n'
    'Trainer(model=model, args=TrainingArguments(output_dir="o", bf16=True)).train()\n'
)


@pytest.mark.parametrize(("gpu", "code"), [("A100-80GB", 1), ("MI355X", 1)])
def test_what_fits_at_no_length_fails_though_none_is_stated(gpu: str, code: int) -> None:
    require(torch="2.4.1", transformers="4.45.2", accelerate="0.34.2")
    write("train.py", TRAINER)
    ran = run("check", ".", "--gpu", f"1x{gpu}")
    assert ran.code == code
    if gpu == "A100-80GB":
        assert "at least that, with sequences of one token: nobody states training.sequence_length" in words(ran)
    else:
        assert "no estimate: it needs --set training.sequence_length" in words(ran)


def test_what_only_preferences_take_is_no_doubt_of_supervised_training() -> None:
    require(**{"ms-swift": "3.7.0"}, torch="2.7.1", transformers="4.54.1", peft="0.16.0")
    options = "--task_type seq_cls --num_labels 1 --train_type lora --torch_dtype bfloat16 --max_length 2048"
    write(
        "run.sh",
        f"CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-0.5B {options} --per_device_train_batch_size 16\n",
    )
    said = words(run("check", ".", "--gpu", "1xRTX4090"))
    assert "fits: needs 5.8" in said
    assert "dpo" not in said


ENGINE = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + PPO.replace("=16 ", "=32 ", 1)


def test_what_a_script_asks_of_the_allocator_is_planned_and_advised_where_it_stands() -> None:
    require(verl="0.7.0", torch="2.9.0", vllm="0.12.0", transformers="4.57.1", tensordict="0.10.0")
    write("run.sh", ENGINE)
    found = plan("--gpu", "8xH100-80GB")
    assert "vllm" not in {change["name"] for change in found["changes"]}
    written = {line for change in found["changes"] for line in change["written"]}
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False" in written
    said = words(run("check", ".", "--gpu", "8xH100-80GB"))
    assert (
        "set expandable_segments:False in PYTORCH_CUDA_ALLOC_CONF (allocator.expandable_segments) at run.sh:1" in said
    )
    run("fix", ".", "--offline", "--gpu", "8xH100-80GB", "--apply")
    assert Path("run.sh").read_text("utf-8").startswith("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\n")


DPO = (
    "model_name_or_path: Qwen/Qwen3-8B\ndtype: bfloat16\ndataset_name: a\nbf16: true\nmax_length: 8192\n"
    "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\noutput_dir: o\n"
)
FSDP2 = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
    "  fsdp_reshard_after_forward: true\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
)


def test_a_remedy_names_every_file_that_states_a_setting_in_its_own_word() -> None:
    require(trl="0.29.0", transformers="5.2.0", torch="2.9.1", accelerate="1.12.0")
    write("dpo.yaml", DPO)
    write("fsdp2.yaml", FSDP2)
    write("run.sh", "accelerate launch --config_file fsdp2.yaml trl/scripts/dpo.py --config dpo.yaml\n")
    advised = 'set bf16: false at dpo.yaml:4 and mixed_precision: "no" at fsdp2.yaml:6 (training.mixed_precision)'
    assert advised in words(run("check", ".", "--gpu", "8xH100-80GB"))
    write("dpo.yaml", DPO.replace("bf16: true", "bf16: false"))
    assert "fsdp-mixed-precision-upcasts-weights" in run("check", ".", "--gpu", "8xH100-80GB").out
    write("fsdp2.yaml", FSDP2.replace("mixed_precision: bf16", 'mixed_precision: "no"'))
    assert "fsdp-mixed-precision-upcasts-weights" not in run("check", ".", "--gpu", "8xH100-80GB").out


def test_the_files_of_ms_swift_that_offload_are_levers() -> None:
    require(
        **{"ms-swift": "3.3.0"},
        torch="2.6.0",
        transformers="4.51.3",
        deepspeed="0.16.5",
        accelerate="1.6.0",
        trl="0.16.1",
    )
    command = "swift sft --model Qwen/Qwen2.5-14B-Instruct --train_type full --torch_dtype bfloat16"
    options = "--per_device_train_batch_size 4 --gradient_accumulation_steps 4 --max_length 8192"
    write("run.sh", f"NPROC_PER_NODE=4 {command} {options} --deepspeed zero3\n")
    written = {line for change in plan("--gpu", "4xA100-40GB")["changes"] for line in change["written"]}
    assert "--deepspeed zero3_offload" in written
    run("fix", ".", "--offline", "--gpu", "4xA100-40GB", "--apply")
    (after,) = json.loads(run("estimate", ".", "--gpu", "4xA100-40GB", "--format", "json").out)["subjects"]
    assert after["estimate"]["verdict"] == "fits"


def test_a_remedy_moves_along_what_no_installer_takes_beside_it() -> None:
    require(openrlhf="0.7.2", deepspeed="0.16.7", torch="2.6.0", transformers="4.51.3")
    command = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B"
    write("run.sh", f"{command} --zero_stage 3 --bf16 --gradient_checkpointing --micro_train_batch_size 1\n")
    said = words(run("check", ".", "--gpu", "8xA100-80GB"))
    assert "pip install 'deepspeed==0.16.8' 'openrlhf==0.8.1'" in said
    assert "pip install 'deepspeed==0.16.8' " not in said.replace("'deepspeed==0.16.8' 'openrlhf==0.8.1'", "")


def test_an_edit_of_one_model_is_not_given_as_options_that_set_it_of_all() -> None:
    require(verl="0.7.0", torch="2.9.0", vllm="0.12.0", transformers="4.57.1", tensordict="0.10.0")
    write("run.sh", PPO)
    ran = run("estimate", ".", "--suggest", "--gpu", "4xA100-80GB", "--format", "json")
    (subject,) = json.loads(ran.out)["subjects"]
    options = {
        (change["words"], text): change["options"]
        for one in subject["suggestions"]
        for change in one["changes"]
        for text in change["written"]
    }
    own = [said for (_, text), said in options.items() if text.startswith(("critic.", "actor_rollout_ref.actor."))]
    assert own
    assert not any(own)
    shared = [said for (_, text), said in options.items() if text.startswith("actor_rollout_ref.rollout.")]
    assert all(shared)
    assert shared


def test_a_section_is_added_to_a_file_of_one_line() -> None:
    require(torch="2.3.1", transformers="4.46.3", deepspeed="0.16.0", accelerate="1.1.1")
    write(
        "train.yaml",
        "model_name_or_path: meta-llama/Meta-Llama-3-70B\nbf16: true\nper_device_train_batch_size: 2\n"
        "gradient_accumulation_steps: 4\ngradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n"
        "deepspeed: ds.json\nmax_seq_length: 4096\noutput_dir: out\n",
    )
    write("ds.json", '{"bf16":{"enabled":true},"zero_optimization":{"stage":3,"overlap_comm":true}}')
    ran = run("fix", ".", "--offline", "--gpu", "8xH100-80GB", "--nodes", "2", "--apply")
    assert ran.code == 0
    assert json.loads(Path("ds.json").read_text("utf-8"))["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    assert run("check", ".", "--gpu", "8xH100-80GB", "--nodes", "2").code == 0


SFT_YAML = (
    "model_name_or_path: Qwen/Qwen2.5-7B\ntorch_dtype: bfloat16\nbf16: true\ndataset_name: a\nmax_seq_length: 8192\n"
    "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\ngradient_checkpointing: true\noutput_dir: o\n"
)


@pytest.mark.parametrize("listed", [False, True])
def test_a_plan_says_what_has_to_be_installed_and_costs_what_the_suggestion_costs(*, listed: bool) -> None:
    require(trl="0.15.2", transformers="4.49.0", torch="2.5.1", accelerate="1.4.0", deepspeed="0.15.4")
    if listed:
        Path("requirements.txt").write_text(Path("requirements.txt").read_text() + "liger-kernel==0.5.3\n")
    write("sft.yaml", SFT_YAML)
    write("ds.json", '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}')
    write("run.sh", "deepspeed --num_gpus 8 trl/scripts/sft.py --config sft.yaml --deepspeed ds.json\n")
    (change,) = (one for one in plan("--gpu", "8xH100-80GB")["changes"] if "training.use_liger_kernel" in one["facts"])
    assert change["installs"] == ([] if listed else ["liger-kernel"])
    assert change["effect"] == "same result"
    said = run("fix", ".", "--offline", "--gpu", "8xH100-80GB").out
    assert ("+liger-kernel" in said.splitlines()) is not listed


def test_the_first_screen_keeps_to_its_width_and_says_what_a_verdict_hangs_on() -> None:
    require(verl="0.7.0", torch="2.9.0", vllm="0.12.0", transformers="4.57.1", tensordict="0.10.0")
    write("run.sh", PPO)
    screen = run("check", ".", "--gpu", "4xA100-80GB").out.partition("\n\n")[0]
    assert max(map(len, screen.splitlines())) <= 80
    case = ROOT / "fixtures" / "cases" / "qwen1.5-32b-8xa800"
    said = "nobody says whether activations are checkpointed: if they are, 80.0 GiB"
    assert said in words(run("check", str(case))).partition("ADVICE")[0]


def test_no_remedy_for_a_little_makes_a_run_need_more_than_there_is() -> None:
    require(trl="0.18.0", transformers="4.52.3", torch="2.6.0", accelerate="1.4.0", deepspeed="0.16.8")
    write("ds.json", '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}')
    write(
        "train.yaml",
        "model_name_or_path: Qwen/Qwen2.5-32B-Instruct\nbf16: true\ngradient_checkpointing: true\nmax_length: 2048\n"
        "gradient_checkpointing_kwargs: {use_reentrant: false}\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 1\n"
        "use_liger_kernel: true\noutput_dir: o\ndeepspeed: ds.json\n",
    )
    out = json.loads(run("check", ".", "--gpu", "8xH100-80GB", "--format", "json").out)
    (finding,) = (one for one in out["findings"] if one["rule_id"] == "deepspeed/zero3-reuse-window-stays-gathered")
    assert finding["remedies"]
    assert not any("to 2 " in remedy["text"] for remedy in finding["remedies"])
    write("ds.json", '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}')
    assert run("check", ".", "--gpu", "8xH100-80GB").code == 1


def test_a_key_inside_an_option_is_named_as_the_command_states_it() -> None:
    """The Trainer has no option ``--use_reentrant``; what stands in ``--gradient_checkpointing_kwargs`` is changed there."""
    require(torch="2.6.0", transformers="4.56.2", trl="0.24.0", deepspeed="0.16.8", accelerate="1.10.0", peft="0.17.1")
    write("ds.json", json.dumps({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}))
    write(
        "run.sh",
        "torchrun --nproc_per_node 8 -m trl.scripts.sft --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x --bf16 \\\n"
        "  --deepspeed ds.json --per_device_train_batch_size 2 --gradient_checkpointing --max_length 4096 --use_peft \\\n"
        "  --lora_r 16 --gradient_checkpointing_kwargs '{\"use_reentrant\": false}'\n",
    )
    out = json.loads(run("check", ".", "--gpu", "8xA100-80GB", "--format", "json").out)
    (finding,) = (one for one in out["findings"] if one["status"] == "affected" and one["severity"] == "critical")
    texts = [one["text"] for one in finding["remedies"]]
    assert any(
        "set gradient_checkpointing_kwargs.use_reentrant to true (training.use_reentrant) at run.sh:3" in text
        for text in texts
    ), texts


def test_a_package_that_moves_along_costs_what_its_own_move_costs() -> None:
    """A rule calls ms-swift 4.5 no safe upgrade: that it follows a major release of another package makes it no safer."""
    require(**{"torch": "2.8.0", "transformers": "4.57.6", "ms-swift": "4.4.2", "trl": "0.24.0", "deepspeed": "0.17.4"})
    write(
        "run.sh",
        "NPROC_PER_NODE=8 swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B-Instruct --tuner_type full --dataset a \\\n"
        "  --torch_dtype bfloat16 --per_device_train_batch_size 1 --max_length 65536 --sequence_parallel_size 4 \\\n"
        "  --attn_impl flash_attn --deepspeed zero3 --output_dir out\n",
    )
    found = plan("--gpu", "8xA100-80GB")
    assert [(change["name"], change["after"]) for change in found["changes"]] == [("ms-swift", "4.5.0")]


def test_of_changes_that_cost_alike_the_one_that_moves_fewer_packages_is_made() -> None:
    """vLLM's next patch release would take torch and transformers along; transformers alone is enough."""
    require(verl="0.7.0", torch="2.8.0", vllm="0.11.0", transformers="5.0.0", ray="2.50.0")
    write("run.sh", PPO)
    found = plan("--gpu", "8xH100-80GB", "--select", "vllm/reads-removed-tokenizer-attribute")
    assert [(change["name"], change["after"]) for change in found["changes"]] == [("transformers", "4.57.6")]


@pytest.mark.parametrize(("gpu", "each"), [("16xH100-80GB", 8), ("8xH100-80GB", 8)])
def test_devices_of_all_nodes_are_no_more_than_the_launcher_starts(gpu: str, each: int) -> None:
    require(trl="0.20.0", accelerate="1.10.0")
    write("acc.yaml", "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\nfsdp_config: {fsdp_version: 2}\n")
    write(
        "run.sh", "accelerate launch --config_file acc.yaml -m trl.scripts.sft --model_name_or_path Qwen/Qwen2.5-7B\n"
    )
    found = json.loads(run("facts", ".", "--gpu", gpu, "--format", "json").out)
    facts = {one["name"]: one["value"] for one in found["subjects"][0]["facts"]}
    assert (facts["hardware.world_size"], facts["hardware.gpus_per_node"]) == (16, each)
