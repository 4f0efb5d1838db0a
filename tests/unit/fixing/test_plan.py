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
