"""What belongs together is planned together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from click.testing import CliRunner

from compatcheck.cli.group import group
from compatcheck.fixing.plan import Group, group_by_files

if TYPE_CHECKING:
    from pathlib import Path


def test_subjects_that_share_a_file_are_one_group() -> None:
    files = {"a": ["r.txt", "a.yaml"], "b": ["s.txt"], "c": ["r.txt"], "d": ["s.txt", "t.txt"], "e": ["t.txt"]}
    assert group_by_files(files) == [("a", "c"), ("b", "d", "e")]


def test_a_subject_that_joins_two_groups_makes_them_one() -> None:
    assert group_by_files({"a": ["r.txt"], "b": ["s.txt"], "c": ["s.txt", "r.txt"]}) == [("a", "b", "c")]


def test_what_a_search_comes_back_to_is_evaluated_once(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\ntransformers==4.51.3\nvllm==0.6.3\n")
    evaluated: Counter[tuple[Any, ...]] = Counter()
    blame = Group._blame

    def note(self: Group, changes: Any) -> Any:
        evaluated[self.at_worst, self.shortage, tuple(changes)] += 1
        return blame(self, changes)

    with patch.object(Group, "_blame", note):
        CliRunner().invoke(group, ["check", str(tmp_path / "requirements.txt")])
    assert len(evaluated) > 1
    assert set(evaluated.values()) == {1}


def test_a_release_that_is_only_too_old_is_no_pin_in_the_way(tmp_path: Path) -> None:
    """Of trl 0.14 nothing is known beside a torch of a year later: no release of trl "allows" one of trl."""
    (tmp_path / "requirements.txt").write_text(
        "torch==2.9.1\ntransformers==5.14.1\naccelerate==1.13.0\ntrl==1.13.0\npeft==0.18.1\n"
    )
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    (tmp_path / "train.py").write_text(
        "import torch\nfrom transformers import AutoModelForCausalLM\nfrom trl.experimental.bco import BCOConfig, BCOTrainer\n"
        "from peft import LoraConfig\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B-Instruct', torch_dtype=torch.float32)\n"
        "args = BCOConfig(output_dir='out', bf16=True, per_device_train_batch_size=1, max_length=2048)\n"
        "BCOTrainer(model=model, args=args, peft_config=LoraConfig(r=16, target_modules=['q_proj'])).train()\n"
    )
    told = " ".join(CliRunner().invoke(group, ["fix", str(tmp_path), "--offline", "--no-policy"]).output.split())
    assert "trl/logsumexp-gradients-of-float32-logits" in told
    assert "no known release of trl allows trl" not in told


def test_a_switch_that_is_turned_off_is_dropped_from_its_command(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("vllm==0.21.0\n")
    (tmp_path / "run.sh").write_text("vllm serve Qwen/Qwen3-30B-A3B --enable-sleep-mode --tensor-parallel-size 2\n")
    told = CliRunner().invoke(group, ["fix", str(tmp_path), "--offline", "--no-policy", "--gpu", "2xB200"]).output
    assert "+vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size 2\n" in told
    assert "without --enable-sleep-mode" in told
    assert "free_cache_engine" not in told


def test_a_setting_that_a_program_has_no_word_for_is_said(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        "roll==0.3.0\ntransformers==4.57.1\nmegatron-core==0.14.0\ntransformer-engine==2.8.0\ntorch==2.8.0\nflash-attn==2.8.3\n"
    )
    (tmp_path / "roll.yaml").write_text(
        "pretrain: Qwen/Qwen2.5-1.5B\nadv_estimator: grpo\nnum_gpus_per_node: 8\nrollout_batch_size: 64\n"
        "actor_train:\n  training_args: {per_device_train_batch_size: 2}\n  model_args: {dtype: bf16}\n"
        "  strategy_args: {strategy_name: megatron_train, strategy_config: {}}\n  device_mapping: list(range(0,8))\n"
    )
    said = "ROLL has no known setting for model.attn_implementation sdpa"
    for command in (["check"], ["fix", "--offline"]):
        options = [str(tmp_path), "--no-policy", "--set", "hardware.compute_capability=7.5"]
        told = " ".join(CliRunner().invoke(group, [*command, *options]).output.split())
        assert said in told
        assert "no remedy is known" not in told


def test_what_a_release_keeps_out_is_said_beside_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.57.1\naccelerate==1.11.0\ntorch==2.1.0\n")
    (tmp_path / "acc.yaml").write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\nnum_processes: 8\n")
    (tmp_path / "run.sh").write_text("accelerate launch --config_file acc.yaml train.py\n")
    (tmp_path / "train.py").write_text(
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
        "args = TrainingArguments(output_dir='out', bf16=True, gradient_accumulation_steps=1)\n"
        "Trainer(model=model, args=args).train()\n"
    )
    facts = ("training.fsdp_wraps_frozen_apart=false", "training.peft=lora", "model.trainable_parameters=20971520")
    options = [str(tmp_path), "--no-policy", "--offline", *(word for one in facts for word in ("--set", one))]
    told = " ".join(CliRunner().invoke(group, ["fix", *options]).output.split())
    assert "accelerate 1.11.0 → 1.14.0" in told
    assert "(without it accelerate/fsdp2-embedding-and-head-stay-gathered would come in)" in told
