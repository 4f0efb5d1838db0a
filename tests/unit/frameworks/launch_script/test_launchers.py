"""What a command starts in the end, and on how many ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.frameworks.launch_script.launchers import remove_launchers
from tests.unit.frameworks.launch_script.written_commands import command, documents, ranks, resolved

GPUS, NODES, WORLD = "hardware.gpus_per_node", "hardware.nodes", "hardware.world_size"


@pytest.mark.parametrize(
    ("text", "program", "first", "known"),
    [
        ("torchrun --nproc_per_node 8 train.py --x 1", "train.py", "--x", {GPUS: 8, NODES: 1}),
        ("torchrun --nproc-per-node=4 --nnodes=2 -m pkg.train a=b", "pkg.train", "a=b", {GPUS: 4, NODES: 2}),
        ("lightning run model --devices=8 --num-nodes=2 train.py --x 1", "train.py", "--x", {GPUS: 8, NODES: 2}),
        ("fabric run --devices 0,1 train.py --x", "train.py", "--x", {GPUS: 2, NODES: 1}),
        ("fabric run --devices auto train.py --x", "train.py", "--x", {GPUS: None, NODES: 1}),
        ("torchrun --standalone train.py --x 1", "train.py", "--x", {GPUS: 1, NODES: 1}),
        ("torchrun --nproc_per_node gpu --nnodes 1:4 train.py --x", "train.py", "--x", {GPUS: None, NODES: None}),
        ("torchrun --nproc_per_node $N --nnodes 2 train.py --x", "train.py", "--x", {GPUS: None, NODES: 2}),
        ("torchrun $ARGS train.py --x", "train.py", "--x", {GPUS: None, NODES: None}),
        ("python -m torch.distributed.run --nproc_per_node 2 train.py -x", "train.py", "-x", {GPUS: 2, NODES: 1}),
        (
            "python3 -u -m torch.distributed.launch --use_env --nproc_per_node 2 t.py -x",
            "t.py",
            "-x",
            {GPUS: 2, NODES: 1},
        ),
        (
            "accelerate launch --num_processes 16 --num_machines 2 t.py --x",
            "t.py",
            "--x",
            {WORLD: 16, NODES: 2},
        ),
        ("accelerate launch --num_processes 8 t.py --x", "t.py", "--x", {WORLD: 8, NODES: 1}),
        ("accelerate launch --config_file a.yaml --num_processes 8 t.py --x", "t.py", "--x", {WORLD: 8}),
        ("accelerate launch t.py --x", "t.py", "--x", {WORLD: None}),
        ("accelerate launch -m pkg.train --x", "pkg.train", "--x", {WORLD: None}),
        ("deepspeed --num_gpus 4 t.py --x", "t.py", "--x", {GPUS: 4, NODES: 1}),
        ("deepspeed --num_gpus=8 --num_nodes 2 --hostfile h t.py --x", "t.py", "--x", {GPUS: 8, NODES: 2}),
        ("deepspeed --num_gpus 8 --hostfile hosts t.py --x", "t.py", "--x", {GPUS: 8, NODES: None}),
        ("deepspeed t.py --x", "t.py", "--x", {GPUS: None, NODES: 1}),
        ("deepspeed --include localhost:0,1,2 --master_port 2 t.py --x", "t.py", "--x", {GPUS: 3, NODES: 1}),
        ("deepspeed --include a:0,1@b:2,3 t.py --x", "t.py", "--x", {GPUS: 2, NODES: 2}),
        ("deepspeed --include a@b t.py --x", "t.py", "--x", {NODES: 2}),
        ("deepspeed --module pkg.train --x", "pkg.train", "--x", {GPUS: None, NODES: 1}),
        ("srun -N 4 --ntasks-per-node=8 python t.py --x", "t.py", "--x", {NODES: 4, WORLD: 32}),
        (
            "srun --nodes 2 --gres=gpu:8 torchrun --nnodes 2 --nproc_per_node 8 t.py --x",
            "t.py",
            "--x",
            {GPUS: 8, NODES: 2},
        ),
        ("mpirun --allow-run-as-root -np 8 -x NCCL_DEBUG python t.py --x", "t.py", "--x", {WORLD: 8}),
        (
            "ray job submit --no-wait --address=h -- python3 -m verl.trainer.main_ppo a.b=c",
            "verl.trainer.main_ppo",
            "a.b=c",
            {},
        ),
        ("nohup env A=1 uv run --with x python t.py --x", "t.py", "--x", {}),
        ("uv run t.py --x", "t.py", "--x", {}),
        ("conda run -n e python t.py --x", "t.py", "--x", {}),
        (
            "python -m accelerate.commands.launch --num_processes 2 t.py --x",
            "t.py",
            "--x",
            {WORLD: 2, NODES: 1},
        ),
        (
            "python mason.py --cluster c --gpus 8 -- accelerate launch --num_processes 8 t.py --x",
            "t.py",
            "--x",
            {WORLD: 8, NODES: 1},
        ),
        (r"uv run mason.py --gpus 8 -- source a.sh \&\& source b.sh \&\&python t.py --x", "t.py", "--x", {}),
        ("uv run python mason.py --gpus 8 -- uv run t.py --x", "t.py", "--x", {}),
        ("torchrun --nproc_per_node 2 $REPO/examples/t.py --x", "examples/t.py", "--x", {GPUS: 2, NODES: 1}),
    ],
)
def test_launchers_are_peeled_off(text: str, program: str, first: str, known: dict[str, Any]) -> None:
    launch = remove_launchers(command(text))
    assert launch is not None
    assert launch.program == program
    assert launch.arguments[0].text == first
    assert ranks(launch) == known


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("llamafactory-cli train a.yaml", "llamafactory-cli train"),
        ("axolotl train a.yml", "axolotl train"),
        ("swift sft --model m", "swift sft"),
        ("trl sft --config a.yaml", "trl sft"),
        ("tune run --nproc_per_node 4 full_finetune_distributed --config c", "tune run full_finetune_distributed"),
    ],
)
def test_tools_keep_their_word(text: str, program: str) -> None:
    launch = remove_launchers(command(text))
    assert launch is not None
    assert (launch.program, launch.kind) == (program, "tool")


@pytest.mark.parametrize(
    "text",
    [
        "ls -l",
        "pip install torch",
        "python -c 'print()'",
        "$PROGRAM x",
        "ray start --head",
        "git clone x",
        "uv pip install x",
        "torchrun ''",
    ],
)
def test_what_trains_nothing_is_no_launch(text: str) -> None:
    assert remove_launchers(command(text)) is None


def test_variables_of_the_command_and_of_the_ray_job_are_kept() -> None:
    job = """ray job submit --runtime-env-json='{"env_vars": {"B": "2"}}' -- env C=3 python t.py"""
    launch = remove_launchers(command(job, A="1"))
    assert launch is not None
    assert launch.variables == {"A": "1", "B": "2", "C": "3"}


def test_ranks_say_where_they_were_written() -> None:
    launch = remove_launchers(command("torchrun --nproc_per_node 8 t.py"))
    assert launch is not None
    (document,) = launch.documents
    assert document.is_command
    assert document.place("--nproc_per_node").line == 7


def test_options_of_accelerate_replace_those_of_its_file() -> None:
    text = (
        "accelerate launch --config_file a.yaml --mixed_precision bf16 "
        "--use_deepspeed --zero_stage 3 --deepspeed_config_file d.json t.py"
    )
    launch = remove_launchers(command(text))
    assert launch is not None
    settings, launcher = launch.documents
    assert {entry.fact: entry.value for entry in settings.statements} == {
        "training.mixed_precision": "bf16",
        "training.zero_stage": 3,
    }
    assert [entry.key for entry in settings.statements] == ["mixed_precision", "deepspeed_config.zero_stage"]
    assert settings.references == (("deepspeed", "d.json", "deepspeed_config_file"),)
    assert launcher.references == (("accelerate", "a.yaml", "--config_file"),)


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ("--use_deepspeed", {}),
        ("--use_deepspeed --zero_stage 3", {"training.zero_stage": 3}),
        ("--zero_stage 3", {}),
    ],
)
def test_the_launcher_reads_options_of_deepspeed_where_it_starts_it(options: str, stated: dict[str, object]) -> None:
    launch = remove_launchers(command(f"accelerate launch --num_processes 8 {options} t.py"))
    assert launch is not None
    settings = launch.documents[0]
    assert {entry.fact: entry.value for entry in settings.statements if entry.fact is not None} == stated
    section = any(entry.key.startswith("deepspeed_config.") for entry in settings.statements)
    assert section is ("--use_deepspeed" in options)  # its defaults hold then


@given(
    st.lists(
        st.sampled_from(
            [
                "torchrun",
                "accelerate",
                "launch",
                "deepspeed",
                "-m",
                "--",
                "--x=1",
                "-n",
                "2",
                "t.py",
                "$A",
                "srun",
                "env",
                "A=1",
                "ray",
                "job",
                "submit",
                "python",
                "mpirun",
                "-np",
                "tune",
                "run",
                "uv",
                "",
            ]
        ),
        max_size=12,
    )
)
def test_any_words_are_peeled_without_an_error(words: list[str]) -> None:
    launch = remove_launchers(command(" ".join(f"'{text}'" for text in words)))
    assert launch is None or launch.program


def test_what_deepspeeds_autotuner_chooses_is_open() -> None:
    found = documents("deepspeed --autotuning run --num_gpus 8 t.py --per_device_train_batch_size 4 --output_dir o")
    assert "training.zero_stage" in {one.fact for document in found for one in document.unresolved}


@pytest.mark.parametrize(
    ("text", "visible", "known"),
    [
        ("python train.py", "0", {GPUS: 1, WORLD: 1}),
        ("python train.py", "0,1", {}),
        ("python train.py", "$GPU", {}),
        ("torchrun --nproc_per_node 2 train.py", "0", {GPUS: 2, NODES: 1}),
    ],
)
def test_the_one_device_that_a_script_may_see_is_its_only_rank(text: str, visible: str, known: dict[str, Any]) -> None:
    launch = remove_launchers(command(text, CUDA_VISIBLE_DEVICES=visible))
    assert launch is not None
    assert {one.fact: one.value for document in launch.documents for one in document.statements} == known


_SFT = "-m trl.scripts.sft --model_name_or_path m --dataset_name d --output_dir o"


@pytest.mark.parametrize("file", ["$CFG", "'{{ cfg }}'"])
def test_all_that_a_file_of_accelerate_may_say_is_open_where_nobody_knows_which_it_is(file: str) -> None:
    found = documents(f"accelerate launch --config_file {file} {_SFT}")
    opened = frozenset().union(*(gap.facts or () for document in found for gap in document.gaps))
    assert {"training.gradient_accumulation_steps", "training.compile", "training.fsdp_version"} <= opened


def test_ranks_that_nobody_knows_may_be_one() -> None:
    run = "openrlhf.cli.train_sft --pretrain m --zero_stage 3"
    assert "hardware.single_rank" not in resolved(f"torchrun --nproc_per_node $N -m {run}")
    assert resolved(f"torchrun --nproc_per_node 8 -m {run}")["hardware.single_rank"] is False


@pytest.mark.parametrize("value", ['"$LENGTH"', "'{{ length }}'"])
def test_a_word_that_a_template_fills_in_is_not_known(value: str) -> None:
    found = resolved(f"torchrun --nproc_per_node 8 -m trl.scripts.sft --model_name_or_path m --loss_type {value}")
    assert "training.loss_type" not in found
