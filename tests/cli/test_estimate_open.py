"""What a script leaves to a variable or to a file that is not there is asked for and never assumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compatcheck.checking import fit as pricing
from compatcheck.core.errors import UsageError
from tests import ROOT
from tests.cli.run_cli import run

SFT = (
    "sft.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size {batch} --max_length 2048 --bf16 True "
    "--gradient_checkpointing True{more}"
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


def write(launcher: str, batch: object = 1, more: str = "") -> None:
    Path("train.sh").write_text(f"{launcher} {SFT.format(batch=batch, more=more)}\n")


def facts(*options: str) -> tuple[dict[str, Any], dict[str, str]]:
    (subject,) = json.loads(run("facts", "train.sh", "--format", "json", *options).out)["subjects"]
    known = {fact["name"]: fact["value"] for fact in subject["facts"]}
    return known, {entry["fact"]: entry["reason"] for entry in subject["unresolved"]}


def test_nodes_of_the_script_stay_when_the_device_is_named() -> None:
    write("torchrun --nproc_per_node 8 --nnodes 4")
    known, _ = facts("--gpu", "8xH100-80GB")
    assert (known["hardware.nodes"], known["hardware.world_size"]) == (4, 32)
    known, _ = facts("--gpu", "8xH100-80GB", "--nodes", "2")
    assert (known["hardware.nodes"], known["hardware.world_size"]) == (2, 16)


def test_nodes_left_to_a_variable_are_not_one() -> None:
    write("torchrun --nproc_per_node 8 --nnodes $NNODES")
    known, unresolved = facts("--gpu", "8xH100-80GB")
    assert "hardware.world_size" not in known
    assert "hardware.nodes" in unresolved


def test_more_processes_than_the_declared_devices_are_a_contradiction() -> None:
    write("accelerate launch --num_processes 32")
    known, _ = facts("--gpu", "8xH100-80GB")
    assert known["hardware.world_size"] == 32
    assert known["configuration.conflicts"] == ["hardware.world_size"]
    write("accelerate launch --num_processes 4")
    known, _ = facts("--gpu", "8xH100-80GB")
    assert (known["hardware.world_size"], known["configuration.conflicts"]) == (8, [])


@pytest.mark.parametrize(
    ("launcher", "more", "opened"),
    [
        ("accelerate launch --config_file nothere.yaml", "", {"hardware.world_size", "training.sharding"}),
        ("accelerate launch", "", {"hardware.world_size"}),
        ("torchrun --nproc_per_node 8", " --deepspeed nothere.json", {"training.zero_stage", "training.sharding"}),
    ],
)
def test_what_a_missing_file_decides_is_open(launcher: str, more: str, opened: set[str]) -> None:
    write(launcher, more=more)
    known, unresolved = facts()
    assert opened <= unresolved.keys()
    assert not opened & known.keys()


def test_a_file_given_beside_the_script_settles_what_the_missing_one_left_open() -> None:
    write("torchrun --nproc_per_node 8", more=" --deepspeed nothere.json")
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    report = json.loads(run("facts", "train.sh", "ds.json", "--format", "json").out)["subjects"][0]
    assert {fact["name"]: fact["value"] for fact in report["facts"]}["training.zero_stage"] == 3


def test_a_rank_of_lora_beside_a_key_nobody_understood_leaves_adapters_open() -> None:
    write("torchrun --nproc_per_node 8", more=" --lora_r 8 --lora_switch_of_mine True")
    known, unresolved = facts()
    assert "training.peft" not in known
    assert "lora_switch_of_mine" in unresolved["training.peft"]
    write("torchrun --nproc_per_node 8", more=" --lora_r 8 --use_peft_lora True --use_4bit_quantization True")
    known, _ = facts()
    assert (known["training.peft"], known["model.quantization"]) == ("lora", "nf4")


GPU = ("--gpu", "8xH100-80GB")


@pytest.mark.parametrize(
    ("launcher", "batch", "more", "asked"),
    [
        ("torchrun --nproc_per_node 8", "$BS", "", "training.micro_batch_size"),
        ("accelerate launch --config_file nothere.yaml", 1, "", "hardware.world_size"),
        ("accelerate launch", 1, "", "hardware.world_size"),
        ("torchrun --nproc_per_node 8", 1, " --deepspeed nothere.json", "training.sharding"),
        ("torchrun --nproc_per_node 8 --nnodes $N", 1, "", "hardware.world_size"),
    ],
)
def test_what_is_open_is_asked_for(launcher: str, batch: object, more: str, asked: str) -> None:
    write(launcher, batch, more)
    ran = run("estimate", "train.sh")
    assert f"--set {asked}=" in ran.out
    assert "unresolved: " in ran.out
    (subject,) = json.loads(run("estimate", "train.sh", "--format", "json").out)["subjects"]
    assert subject["estimate"] is None
    assert asked in subject["needs"]
    assert subject["unresolved"]


def test_a_value_that_is_not_understood_is_asked_for() -> None:
    write("torchrun --nproc_per_node 8", 0)
    ran = run("estimate", "train.sh", *GPU)
    assert "--set training.micro_batch_size=" in ran.out
    assert "value 0 of per_device_train_batch_size is not understood" in ran.err
    assert "no estimate" not in run("estimate", "train.sh", *GPU, "--set", "training.micro_batch_size=1").out


def test_what_was_open_can_be_stated() -> None:
    write("torchrun --nproc_per_node 8", "$BS")
    ran = run("estimate", "train.sh", *GPU, "--set", "training.micro_batch_size=1")
    assert "no estimate" not in ran.out
    assert "unresolved" not in ran.out


def test_keys_nobody_understood_that_sound_like_memory_are_named() -> None:
    write("torchrun --nproc_per_node 8", more=" --my_offload_depth 3 --my_colour red")
    ran = run("estimate", "train.sh", *GPU)
    assert "my_offload_depth (`compatcheck facts` shows all)" in " ".join(ran.out.split())
    assert "my_colour" not in ran.out


def test_a_contradiction_of_ranks_is_said() -> None:
    write("accelerate launch --num_processes 32")
    assert "conflict: hardware.world_size: 32" in run("estimate", "train.sh", *GPU).out


@pytest.mark.parametrize("launcher", ["torchrun --nproc_per_node 4", "accelerate launch --num_processes 4"])
def test_a_declared_device_that_overrules_the_launcher_is_said(launcher: str) -> None:
    write(launcher)
    ran = " ".join(run("estimate", "train.sh", *GPU).out.split())
    assert "= 8: as --gpu says; train.sh:1" in ran
    assert "says 4" in ran
    write(launcher.replace("4", "8"))
    assert "as --gpu says" not in run("estimate", "train.sh", *GPU).out


def test_a_reward_model_that_cannot_be_read_is_an_assumption() -> None:
    Path("train.sh").write_text(
        "python3 -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Meta-Llama-3-8B --reward_pretrain some/reward "
        "--colocate_all_models --vllm_num_engines 8 --vllm_gpu_memory_utilization 0.5 --micro_train_batch_size 1 "
        "--train_batch_size 8 --zero_stage 3 "
        "--prompt_max_len 512 --generate_max_len 512 --actor_num_nodes 1 --actor_num_gpus_per_node 8\n"
    )
    ran = " ".join(run("estimate", "train.sh", *GPU).out.split())
    for role in ("reward", "critic"):
        assert f"model ({role}) = the policy's: some/reward (reward_pretrain) was not read" in ran


def test_a_sweep_of_nothing_is_a_usage_error() -> None:
    write("torchrun --nproc_per_node 8")
    ran = run("estimate", "train.sh", *GPU, "--sweep", ",")
    assert ran.code == 2
    assert "names no setting" in ran.err


def test_a_subject_that_makes_no_sense_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    price = pricing.estimate_job

    def refuse(roles: Any, environment: Any) -> Any:
        if roles["train"]["training.micro_batch_size"].value == 3:
            msg = "training.micro_batch_size cannot be 3"
            raise UsageError(msg)
        return price(roles, environment)

    monkeypatch.setattr(pricing, "estimate_job", refuse)
    write("torchrun --nproc_per_node 8")
    Path("bad").mkdir()
    Path("bad/train.sh").write_text(f"torchrun --nproc_per_node 8 {SFT.format(batch=3, more='')}\n")
    ran = run("estimate", ".", *GPU)
    assert "GiB" in ran.out
    place = "bad/train.sh:1 (per_device_train_batch_size): training.micro_batch_size cannot be 3"
    assert f"not estimated: bad/train.sh: {place}" in ran.err
    alone = run("estimate", "bad", *GPU)
    assert (alone.code, alone.err.splitlines()[0]) == (2, f"error: {place}")


def test_json_names_the_file_of_each_subject() -> None:
    write("torchrun --nproc_per_node 8")
    Path("second").mkdir()
    Path("second/train.sh").write_text(Path("train.sh").read_text())
    subjects = json.loads(run("estimate", ".", *GPU, "--format", "json").out)["subjects"]
    assert len({subject["id"] for subject in subjects}) == 2
    assert all("train.sh" in subject["id"] for subject in subjects)


def test_a_plot_that_cannot_be_written_is_a_usage_error() -> None:
    write("torchrun --nproc_per_node 8")
    ran = run("estimate", "train.sh", *GPU, "--plot", "nope/x.svg")
    assert (ran.code, ran.out) == (2, "")
    assert "nope" in ran.err


CASE = ROOT / "fixtures/cases/openrlhf-llama3-70b"


def test_a_regression_that_the_run_meets_is_named_and_decides() -> None:
    ran = run("estimate", CASE)
    assert ran.code == 1
    out = " ".join(ran.out.split())
    assert "does not fit: needs 142.5 GiB" in out
    assert "deepspeed/zero3-params-kept-in-backward +127.5 GiB in backward" in out
    assert "without it: fits, needs 73.7 GiB" in out
    assert "logsumexp" not in out  # a formula has it
    (subject,) = json.loads(run("estimate", CASE, "--format", "json").out)["subjects"]
    found = subject["estimate"]
    assert [one["rule"] for one in found["regressions"]] == ["deepspeed/zero3-params-kept-in-backward"]
    assert found["verdict"] == "does_not_fit"
    assert found["without_regressions"]["verdict"] == "fits"
    backward = next(phase for phase in found["phases"] if phase["name"] == "backward")
    reserve = sum(part["bytes"]["expected"] for part in backward["components"] if part["kind"] == "reserve")
    assert found["needed_bytes"]["expected"] == backward["bytes"]["expected"] - reserve


def test_a_switch_of_adapters_that_nobody_understood_leaves_adapters_open() -> None:
    write("torchrun --nproc_per_node 8", more=" --lora_everywhere True")
    ran = run("estimate", "train.sh", *GPU)
    assert "--set training.peft=" in ran.out
    assert "lora_everywhere was not understood" in " ".join(ran.out.split())
