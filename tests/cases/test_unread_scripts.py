"""Training scripts part of which is not read: no verdict rests on a default that this part may set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run_cli import run

REQUIREMENTS = """\
torch==2.6.0
transformers==4.51.3
trl==0.17.0
accelerate==1.6.0
peft==0.15.2
bitsandbytes==0.45.5
"""
SCRIPT = """\
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")
args = SFTConfig(output_dir="o", per_device_train_batch_size=2, bf16=True, max_length=4096, gradient_checkpointing=True)
{before}
trainer = {trainer}
{after}
trainer.train()
"""
TRAINER = "SFTTrainer(model=model, args=args, train_dataset=ds)"
OWN = "class T(SFTTrainer):\n    def create_optimizer(self):\n        self.optimizer = mine(self.model.parameters())"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(*, before: str = "", trainer: str = TRAINER, after: str = "") -> None:
    Path("requirements.txt").write_text(REQUIREMENTS, encoding="utf-8")
    Path("train.py").write_text(SCRIPT.format(before=before, trainer=trainer, after=after), encoding="utf-8")


def test_the_script_alone_does_not_fit() -> None:
    write()
    assert "does not fit" in run("check", ".", "--gpu", "8xH100-80GB").out


@pytest.mark.parametrize(
    "parts",
    [
        {"before": "from mylib import add_lora\nmodel = add_lora(model)"},
        {"before": "model.requires_grad_(False)\nmodel.lm_head.requires_grad_(True)"},
        {"before": "from peft import PeftModel\nmodel = PeftModel.from_pretrained(model, 'ck', is_trainable=True)"},
        {"trainer": f"{TRAINER[:-1]}, optimizers=(make(1), None))"},
        {"trainer": f"{TRAINER[:-1]}, callbacks=[Freeze()])"},
        {"before": OWN, "trainer": TRAINER.replace("SFTTrainer", "T")},
        {"after": "trainer.optimizer = make(1)"},
    ],
)
def test_no_verdict_rests_on_what_may_be_set(parts: dict[str, str]) -> None:
    write(**parts)
    ran = run("check", ".", "--gpu", "8xH100-80GB")
    assert "may not fit" in ran.out
    assert ran.code == 0
    assert "not read" in ran.out.partition("\n\n")[0]


def test_an_earlier_literal_is_assumed_and_no_fact() -> None:
    write(before="args.set_training(batch_size=1)")
    told = json.loads(run("facts", ".", "--format", "json").out)["subjects"][0]
    assert "training.micro_batch_size" not in {one["name"] for one in told["facts"]}
    stated = ("--set", "training.peft=null", "--set", "training.sharding=ddp")
    said = " ".join(run("estimate", ".", "--gpu", "8xH100-80GB", *stated).out.split())
    assert "training.micro_batch_size = 2: as train.py:4 (per_device_train_batch_size) says, unless" in said


DECLARED = ("--gpu", "8xA100-80GB", "--model", "llama-3-8b", "--set", "training.sequence_length=4096")


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --num_processes 8 --mixed_precision bf16 mine.py --model llama-3-8b --batch_size 4",
        "torchrun --nproc_per_node 8 mine.py --batch_size 4",
        "python mine.py --deepspeed ds.json",
    ],
)
def test_no_verdict_rests_on_defaults_of_a_program_nobody_read(command: str) -> None:
    Path("train.sh").write_text(f"{command}\n", encoding="utf-8")
    Path("ds.json").write_text('{"bf16": {"enabled": true}}', encoding="utf-8")
    ran = run("check", "train.sh", *DECLARED, "--set", "training.micro_batch_size=4")
    assert "mine.py, not read, may set" in " ".join(ran.out.split())
    assert "CRITICAL _stack/run-does-not-fit" not in ran.out


def test_no_run_surely_fits_whose_program_nobody_read() -> None:
    write()
    Path("train.sh").write_text("torchrun --nproc_per_node 8 mine.py --batch_size 4\n", encoding="utf-8")
    stated = ("--gpu", "8xH200", *DECLARED[2:], "--set", "training.micro_batch_size=1")
    said = " ".join(run("check", "train.sh", *stated).out.split())
    assert "may not fit: needs" in said
    assert "a device; nobody read the code of mine.py: programs have needed up to 3.8 times" in said
    assert "没有读过 mine.py 的代码" in "".join(run("--lang", "zh", "check", "train.sh", *stated).out.split("\n    "))
    Path("train.sh").write_text("torchrun --nproc_per_node 8 train.py\n", encoding="utf-8")
    assert " fits: needs" in run("check", "train.sh", "--gpu", "8xH200", "--set", "training.micro_batch_size=1").out


def test_what_the_options_of_an_unread_program_seem_to_say_is_offered() -> None:
    Path("train.sh").write_text(
        "torchrun --nproc_per_node 8 mine.py --model-name a/b --seq_len 4096 --bs $X\n", encoding="utf-8"
    )
    ran = run("estimate", "train.sh", "--gpu", "8xA100-80GB")
    assert "if their names say it: --model a/b --set training.sequence_length=4096)" in ran.err


@pytest.mark.parametrize("command", ["accelerate launch --num_processes 8 -m pkg.train", "python -m pkg.train"])
def test_a_module_that_lies_here_is_read_as_the_script_that_it_is(command: str) -> None:
    write()
    Path("pkg").mkdir()
    Path("train.py").rename("pkg/train.py")
    Path("train.sh").write_text(f"{command}\n", encoding="utf-8")
    assert "does not fit" in run("check", "train.sh", "requirements.txt", "--gpu", "8xH100-80GB").out
