"""Runs drawn from programs, models, releases and hardware, each as the files that a person would have."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

MODELS = ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-32B-Instruct")
GPUS = ("8xH100-80GB", "1xA100-40GB", "4xA100-80GB", "8xH200-141GB")
RELEASES = {
    "torch": ("2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.9.1"),
    "deepspeed": ("0.15.4", "0.16.2", "0.16.4", "0.16.7", "0.16.8", "0.17.5", "0.18.4"),
    "transformers": ("4.46.3", "4.48.3", "4.49.0", "4.51.3", "4.53.3", "4.56.2", "4.57.6"),
    "accelerate": ("1.2.1", "1.6.0", "1.10.1"),
    "peft": ("0.13.2", "0.15.2", "0.17.1"),
    "trl": ("0.15.2", "0.19.1", "0.22.2", "0.24.0"),
    "openrlhf": ("0.6.1", "0.7.5", "0.8.5"),
    "verl": ("0.4.1", "0.5.0", "0.6.1"),
    "vllm": ("0.8.5", "0.10.1"),
    "llamafactory": ("0.9.2", "0.9.3"),
}


class Run(NamedTuple):
    """One run."""

    name: str
    directory: Path
    gpu: str


def _requirements(draw: random.Random, *names: str) -> str:
    return "".join(f"{name}=={draw.choice(RELEASES[name])}\n" for name in names)


def _trainer(draw: random.Random, model: str) -> dict[str, str]:
    config = {
        "model_name_or_path": model,
        "per_device_train_batch_size": draw.choice((1, 4, 16)),
        "gradient_accumulation_steps": draw.choice((1, 8)),
        "max_length": draw.choice((1024, 4096, 16384)),
        "bf16": True,
        "gradient_checkpointing": draw.choice((True, False)),
        "gradient_checkpointing_kwargs": {"use_reentrant": draw.choice((True, False))},
        "deepspeed": "ds.json",
        "output_dir": "out",
    }
    offload = {"offload_optimizer": {"device": "cpu"}} if draw.random() < 0.3 else {}
    stage = {"zero_optimization": {"stage": draw.choice((2, 3)), **offload}}
    files = {"train.yaml": json.dumps(config), "ds.json": json.dumps({**stage, "bf16": {"enabled": True}})}
    return files | {"requirements.txt": _requirements(draw, "torch", "deepspeed", "transformers", "accelerate", "trl")}


def _llamafactory(draw: random.Random, model: str) -> dict[str, str]:
    config = {
        "model_name_or_path": model,
        "stage": draw.choice(("sft", "dpo")),
        "do_train": True,
        "finetuning_type": draw.choice(("lora", "full")),
        "lora_rank": 16,
        "cutoff_len": draw.choice((2048, 8192)),
        "per_device_train_batch_size": draw.choice((1, 8)),
        "gradient_accumulation_steps": 4,
        "bf16": True,
        "deepspeed": "ds.json",
        "dataset": "alpaca",
        "template": "qwen",
        "output_dir": "out",
    }
    ds = {"zero_optimization": {"stage": draw.choice((2, 3))}, "bf16": {"enabled": "auto"}}
    names = ("torch", "deepspeed", "transformers", "accelerate", "peft", "trl", "llamafactory")
    return {"run.yaml": json.dumps(config), "ds.json": json.dumps(ds), "requirements.txt": _requirements(draw, *names)}


def _openrlhf(draw: random.Random, model: str) -> dict[str, str]:
    script = (
        "deepspeed --module openrlhf.cli.train_sft \\\n"
        f"  --pretrain {model} --max_len {draw.choice((2048, 8192))} --zero_stage {draw.choice((2, 3))} --bf16 \\\n"
        f"  --micro_train_batch_size {draw.choice((1, 4))} --train_batch_size 64 "
        f"{draw.choice(('--gradient_checkpointing', ''))} {draw.choice(('--adam_offload', ''))}\n"
    )
    names = ("torch", "deepspeed", "transformers", "openrlhf")
    return {"train.sh": script, "requirements.txt": _requirements(draw, *names)}


def _verl(draw: random.Random, model: str) -> dict[str, str]:
    words = [
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo",
        "data.train_batch_size=256 data.max_prompt_length=1024",
        f"data.max_response_length={draw.choice((1024, 8192))}",
        f"actor_rollout_ref.model.path={model} actor_rollout_ref.model.enable_gradient_checkpointing=True",
        "actor_rollout_ref.actor.ppo_mini_batch_size=64",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={draw.choice((1, 8, 32))}",
        f"actor_rollout_ref.actor.use_kl_loss={draw.choice(('True', 'False'))}",
        f"actor_rollout_ref.actor.fsdp_config.param_offload={draw.choice(('True', 'False'))}",
        f"actor_rollout_ref.actor.fsdp_config.optimizer_offload={draw.choice(('True', 'False'))}",
        "actor_rollout_ref.rollout.name=vllm",
        f"actor_rollout_ref.rollout.gpu_memory_utilization={draw.choice((0.4, 0.6, 0.85))}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={draw.choice((4, 32))}",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8",
        f"actor_rollout_ref.rollout.tensor_model_parallel_size={draw.choice((1, 2))} actor_rollout_ref.rollout.n=8",
        "trainer.n_gpus_per_node=8 trainer.nnodes=1",
    ]
    names = ("torch", "transformers", "verl", "vllm")
    return {"run_grpo.sh": " \\\n  ".join(words) + "\n", "requirements.txt": _requirements(draw, *names)}


PROGRAMS = {"trainer": _trainer, "llamafactory": _llamafactory, "openrlhf": _openrlhf, "verl": _verl}


def draw_run(seed: int, directory: Path) -> Run:
    """Write the files of one run."""
    draw = random.Random(seed)
    program = tuple(PROGRAMS)[seed % len(PROGRAMS)]
    model = draw.choice(MODELS)
    gpu = "8xH100-80GB" if program == "verl" and draw.random() < 0.7 else draw.choice(GPUS)
    for name, text in PROGRAMS[program](draw, model).items():
        (directory / name).write_text(text)
    return Run(f"{seed}-{program}", directory, gpu)
