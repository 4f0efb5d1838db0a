"""Runs that passed, or were given a number, for what nobody had read or stated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.test_review_cases import TRAIN, VERL, affected, findings, install_sft, require, words, write
from tests.cli.run_cli import run

PPO = (
    "deepspeed --num_gpus 4 --module openrlhf.cli.train_ppo --pretrain meta-llama/Meta-Llama-3-8B"
    " --reward_pretrain meta-llama/Meta-Llama-3-8B --critic_pretrain meta-llama/Meta-Llama-3-8B --zero_stage 2 --bf16"
    " --adam_offload --micro_train_batch_size 2 --train_batch_size 128 --micro_rollout_batch_size 4"
    " --rollout_batch_size 1024 --prompt_max_len 1024 --generate_max_len 1024 --gradient_checkpointing --init_kl_coef 0.01\n"
)
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB. GPU 0 has a total capacity of 79.10 GiB"
    " of which 3.02 GiB is free.\n"
)
WORKER_DIED = (
    "A worker died or was killed while executing a task by an unexpected system error. There are some potential root"
    " causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.\n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_hook_fails_where_the_run_does_not_fit() -> None:
    install_sft("0.16.8")
    write("train.yaml", TRAIN)
    policy = 'lock = "requirements.txt"\ntraining = "train.yaml"\ngpu = "8xH100-80GB"\n'
    write("compatcheck.toml", f"[runs.train]\n{policy}")
    hook = run("check", "--hook", "requirements.txt")
    assert hook.code == run("check").code == 1
    assert "_stack/run-does-not-fit" in hook.out
    assert "train: requirements.txt" in hook.out


def test_no_cuda_is_called_older_than_the_one_that_is_here() -> None:
    write("requirements.txt", "torch==2.6.0+cu124\n")
    said = words(run("check", "requirements.txt", "--driver", "470.57"))
    assert "driver-older-than-cuda" in said
    assert "cu126" not in said
    assert "cu128" not in said


@pytest.mark.parametrize("model", [(), ("--model", "Qwen/Qwen2.5-7B")])
def test_a_stage_alone_states_no_other_setting_of_deepspeed(model: tuple[str, ...]) -> None:
    require(deepspeed="0.18.4")
    write("log.txt", MESSAGE)
    asked = ("requirements.txt", *model, "--set", "training.zero_stage=3")
    assert not affected(*asked)
    assert "(affected)" not in words(run("oom", "log.txt", *asked))


def test_ppo_without_ray_is_no_run_that_fits_small_devices() -> None:
    require(torch="2.5.1", transformers="4.46.3", openrlhf="0.5.9", deepspeed="0.15.4")
    write("ppo.sh", PPO)
    asked = ("requirements.txt", "ppo.sh", "--gpu", "4xA40")
    ran = run("estimate", *asked, "--format", "json")
    (subject,) = json.loads(ran.out)["subjects"]
    assert subject["estimate"]["verdict"] == "does_not_fit"
    assert ran.code == run("check", *asked).code == 1


def test_a_word_that_two_lines_were_joined_to_is_no_default() -> None:
    require(verl="0.3.0.post1", torch="2.6.0", transformers="4.51.3")
    script = VERL.format(before="", model="Qwen/Qwen2.5-7B")
    for blank in ("data.train_batch_size=256 ", "ppo_micro_batch_size_per_gpu=4 "):
        assert blank in script
        script = script.replace(blank, f"{blank.strip()}\\\n")
    write("run.sh", script)
    asked = ("requirements.txt", "run.sh", "--gpu", "8xH100-80GB")
    said = words(run("check", *asked))
    assert "a blank is missing" in said
    assert " fits" not in said
    assert run("estimate", *asked).code == 3


def test_the_label_of_a_build_of_nvidia_tells_its_cuda() -> None:
    write("pip.txt", "Package Version\n------- -------\ntorch 2.9.0a0+145a3a7bda.nv25.10\n")
    asked = ("pip.txt", "--driver", "535.104")
    assert "nvidia/driver-older-than-cuda" in affected(*asked)
    assert run("check", *asked).code == 1


def test_adapters_are_not_float32_where_the_precision_is_chosen_by_a_program_that_is_not_listed() -> None:
    require(peft="0.13.2", transformers="4.45.2", torch="2.4.1")
    adapters = "adapter: lora\nlora_r: 32\nlora_alpha: 16\nlora_target_linear: true\n"
    write(
        "config.yml",
        f"base_model: meta-llama/Meta-Llama-3-8B\n{adapters}sequence_len: 4096\nmicro_batch_size: 2\nbf16: auto\n",
    )
    assert "peft/adapters-cast-to-float32" not in affected("requirements.txt", "config.yml", "--gpu", "8xH100-80GB")


def test_batches_of_a_program_from_a_checkout_are_read() -> None:
    require(torch="2.6.0", transformers="4.51.3")
    write("run.sh", VERL.format(before="", model="Qwen/Qwen2.5-7B"))
    (subject,) = json.loads(run("facts", "requirements.txt", "run.sh", "--format", "json").out)["subjects"]
    values = {fact["value"] for fact in subject["facts"] if fact["name"] == "training.micro_batch_size"}
    assert 4 in values


@pytest.mark.parametrize("label", ["cpu", "rocm6.4"])
def test_builds_for_no_gpu_of_nvidia_have_no_finding_about_one(label: str) -> None:
    write("requirements.txt", f"torch==2.9.1+{label}\ntransformers==4.46.3\n")
    gpu = ("--gpu", "1xMI300X") if label != "cpu" else ()
    found = findings("requirements.txt", *gpu)
    assert not {rule for rule, one in found.items() if one["status"] == "affected"}
    assert not [rule for rule in found if "fsdp" in rule or "ampere" in rule or "kernels" in rule]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (
            "Error out of memory at line 380 in file /src/csrc/pythonInterface.c\n",
            "it may fail with device memory free",
        ),
        (WORKER_DIED, "has no evidence for"),
        ("subprocess ended with exitcode -9\n", "look into dmesg"),
    ],
)
def test_a_message_without_evidence_names_no_cause(text: str, form: str) -> None:
    write("log.txt", text)
    ran = run("oom", "log.txt")
    assert ran.code == 0
    assert form in words(ran)
    assert "the device was full" not in words(ran)


def test_words_about_memory_are_not_called_none() -> None:
    write("log.txt", "the run is out of memory at step 3\n")
    ran = run("oom", "log.txt")
    assert ran.code == 3
    assert "no message about memory" not in ran.out + ran.err
    assert "log.txt:1" in ran.err


@pytest.mark.parametrize(("optimizer", "said"), [("adamw_torch", False), ("ademamix", True)])
def test_a_file_says_which_program_runs(optimizer: str, said: bool) -> None:  # noqa: FBT001
    require(bitsandbytes="0.45.0", triton="3.2.0", torch="2.6.0", peft="0.14.0", llamafactory="0.9.2")
    sft = "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\ndo_train: true\nfinetuning_type: full\noutput_dir: out\n"
    write("train.yaml", f"{sft}bf16: true\nper_device_train_batch_size: 1\noptim: {optimizer}\n")
    assert ("bitsandbytes/imports-removed-triton-module" in affected("requirements.txt", "train.yaml")) is said
