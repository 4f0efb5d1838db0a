"""Command lines of scripts on the HF Trainer: which facts, which ranks, what is no such script."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.document import Document
from tests.unit.frameworks.launch_script.written_commands import documents, facts, runs

HF = "--model_name_or_path m --output_dir o --per_device_train_batch_size 4 --learning_rate 1e-5 "


def read(text: str, **variables: str) -> Document:
    return documents(text, **variables)[0]


def test_a_script_on_the_trainer() -> None:
    found = read(
        f"torchrun --nproc_per_node 8 finetune.py {HF} --bf16 True "
        "--gradient_checkpointing --deepspeed ds.json --no_full_determinism"
    )
    assert (found.reader, found.is_command) == ("hf_trainer", True)
    assert facts(found) == {
        "training.micro_batch_size": 4,
        "training.gradient_checkpointing": True,
        "training.mixed_precision": "bf16",
        "training.full_determinism": False,
        "training.learning_rate": 1e-5,
    }
    assert set(found.references) == {
        ("model", "m", "model_name_or_path"),
        ("deepspeed", "ds.json", "deepspeed"),
        ("program", "finetune.py", "(program)"),
    }


def test_switches_that_say_nothing_of_memory_are_turned_off_like_others() -> None:
    found = read(f"torchrun --nproc_per_node 8 finetune.py {HF} --no_remove_unused_columns --no_such_switch")
    assert [key for key, _ in found.unread] == ["no_such_switch"]


def test_values_nobody_knows_are_listed() -> None:
    found = read(
        f"python train.py {HF} --gradient_accumulation_steps $STEPS --deepspeed $DS --bf16 $B --run_name $R $MORE"
    )
    assert {(entry.fact, entry.key) for entry in found.unresolved} == {
        ("training.gradient_accumulation_steps", "gradient_accumulation_steps"),
        (None, "deepspeed"),
        ("training.zero_stage", "deepspeed"),
        ("training.mixed_precision", "bf16"),
        (None, "run_name"),
    }


def test_ranks_of_python_alone_and_of_tools() -> None:
    def world(text: str, **variables: str) -> dict[str, Any]:
        return {key: value for document in documents(text, **variables)[1:] for key, value in facts(document).items()}

    assert world(f"python train.py {HF}") == {"hardware.world_size": 1}
    assert world("llamafactory-cli train c.yaml", CUDA_VISIBLE_DEVICES="0,1") == {
        "hardware.gpus_per_node": 2,
        "hardware.nodes": 1,
    }
    assert world("llamafactory-cli train c.yaml") == {"hardware.nodes": 1}
    assert world("swift sft --model m --train_type lora", NPROC_PER_NODE="4") == {
        "hardware.gpus_per_node": 4,
        "hardware.nodes": 1,
    }
    assert world("swift sft --model m --train_type lora") == {"hardware.world_size": 1}
    assert world("swift sft --model m --train_type lora", NPROC_PER_NODE="4", NNODES="$N") == {
        "hardware.gpus_per_node": 4
    }


@pytest.mark.parametrize(
    "text",
    [
        (
            "accelerate launch run_no_trainer.py --output_dir o --learning_rate 1 "
            "--max_train_steps 3 --checkpointing_steps 1 --report_to x"
        ),
        "deepspeed train.py --deepspeed_config d.json --learning_rate 1 --output_dir o --per_device_train_batch_size 2",
    ],
)
def test_a_loop_of_its_own_gets_no_defaults_of_the_trainer(text: str) -> None:
    assert read(text).reader == "script"


def test_commands_that_train_nothing_are_passed_over() -> None:
    texts = [
        "python eval.py --model m",
        "swift infer --model m",
        "llamafactory-cli chat c.yaml",
        "trl vllm-serve --model m",
        "python -m http.server",
    ]
    assert [run.launch.program for run in runs(*texts) if run.documents[0].reader != "script"] == []


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--bf16 --fp16", ["--fp16"]),
        ("--bf16 True --fp16 False", []),
        ("--bf16", []),
        ("--deepspeed ds.json --fsdp full_shard", ["--deepspeed"]),
        ("--deepspeed ds.json --fsdp ''", []),
    ],
)
def test_options_the_trainer_refuses_together_are_said(words: str, refused: list[str]) -> None:
    found = read(f"torchrun --nproc_per_node 8 finetune.py {HF} {words}")
    said = [entry.source.key for entry in found.skipped if "refuses" in entry.reason]
    assert said == refused


@pytest.mark.parametrize("option", ["--use_lora True", "--use_lora 1", "--lora_enable True", "--use_peft"])
def test_switches_of_scripts_of_their_own_turn_adapters_on(option: str) -> None:
    start = (
        "torchrun --nproc_per_node=8 train.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --output_dir o"
    )
    assert facts(documents(f"{start} {option} --lora_r 8")[0])["training.peft"] == "lora"
    off = documents(f"{start} --use_lora False")[0]
    assert facts(off)["training.peft"] is None
    assert off.unread == ()


def test_sharding_of_fairscale_is_open() -> None:
    words = "torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 4 --output_dir o"
    assert "training.sharding" in {one.fact for one in documents(f"{words} --sharded_ddp zero_dp_2")[0].unresolved}
    assert "training.sharding" not in {one.fact for one in documents(words)[0].unresolved}


def test_examples_whose_models_end_in_labels_make_no_logits() -> None:
    words = "--model_name_or_path bert-base-uncased --per_device_train_batch_size 4 --output_dir o"
    for script, made in (("text-classification/run_glue.py", False), ("language-modeling/run_clm.py", None)):
        assert facts(documents(f"torchrun --nproc_per_node 8 {script} {words}")[0]).get("program.makes_logits") is made


@pytest.mark.parametrize(
    ("words", "variable", "strategy"),
    [
        ("auto_wrap", "2", "shard_grad_op"),
        ("auto_wrap", "HYBRID_SHARD", "hybrid_shard"),
        ("'full_shard auto_wrap'", "2", "full_shard"),
        ("auto_wrap", "9", None),
        ("''", "2", None),
    ],
)
def test_a_strategy_of_fsdp_is_left_to_the_environment(words: str, variable: str, strategy: str | None) -> None:
    text = f"torchrun --nproc_per_node 2 t.py --output_dir o --per_device_train_batch_size 1 --fsdp {words}"
    found = facts(documents(text, FSDP_SHARDING_STRATEGY=variable)[0])
    assert found.get("training.fsdp_sharding_strategy") == strategy
