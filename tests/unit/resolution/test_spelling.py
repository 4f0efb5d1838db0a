"""A fact is written with the keys of the program that reads the file, the ones its release has."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.resolution.scope import FactScope
from compatcheck.resolution.spelling import find_spellings, is_own_code
from compatcheck.rules.locate import open_rules
from tests.unit.fixing.test_evaluation import read

LLAMAFACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: full
template: qwen
cutoff_len: 2048
output_dir: out
"""
VERL = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-3B trainer.nnodes=1\n"
TRAINER = "torchrun --nproc_per_node 4 train.py --bf16 True --per_device_train_batch_size 4 --output_dir out\n"
OPENRLHF = "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-3B --max_len 2048 --zero_stage 2\n"

TEXTS = {"t.yaml": LLAMAFACTORY, "verl.sh": VERL, "openrlhf.sh": OPENRLHF, "hf.sh": TRAINER}
CHECKPOINTING, FSDP = "gradient_checkpointing", "actor_rollout_ref.actor.fsdp_config"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("file", "release", "fact", "value", "role", "expected"),
    [
        ("t.yaml", "llamafactory==0.9.3", "use_liger_kernel", True, "train", ("enable_liger_kernel", True)),
        ("t.yaml", "llamafactory==0.8.3", "use_reentrant", False, "train", None),
        ("t.yaml", "llamafactory==0.9.3", "gradient_checkpointing", False, "train", (f"disable_{CHECKPOINTING}", True)),
        ("t.yaml", "llamafactory==0.8.3", "use_liger_kernel", True, "train", ("use_liger_kernel", True)),
        ("t.yaml", "llamafactory==0.9.3", "loss_implementation", "chunked", "train", None),
        ("verl.sh", "verl==0.6.0", "offload_optimizer", "cpu", "actor", (f"{FSDP}.optimizer_offload", True)),
        ("openrlhf.sh", "openrlhf==0.8.1", "offload_optimizer", "cpu", "train", ("adam_offload", True)),
        ("hf.sh", "torch==2.0.1", "gradient_checkpointing", True, "train", ("gradient_checkpointing", True)),
        ("hf.sh", "torch==2.0.1", "use_reentrant", False, "train", None),
        ("hf.sh", "torch==2.0.1", "use_liger_kernel", True, "train", None),
        ("openrlhf.sh", "openrlhf==0.6.1", "use_liger_kernel", True, "train", None),
        ("openrlhf.sh", "openrlhf==0.8.1", "loss_implementation", "fused_linear", "train", None),
    ],
)
def test_the_key_is_the_program_s_own(
    file: str, release: str, fact: str, value: object, role: str, expected: tuple[str, object] | None
) -> None:
    Path(file).write_text(TEXTS[file])
    transformers = "4.31.0" if file == "hf.sh" else "4.51.3"  # the older one has rows of no key
    Path("requirements.txt").write_text(f"{release}\ntransformers=={transformers}\n")
    subject = read("requirements.txt", file)
    scope = FactScope(subject.roles[role], subject.environment, open_rules(()))
    found = next(find_spellings(subject.documents, f"training.{fact}", value, role, scope), None)
    assert (None if found is None else (found.key, found.value)) == expected


@pytest.mark.parametrize(("release", "expected"), [("4.49.0", ("optim", "adamw_hf")), ("4.50.0", None)])
def test_a_value_that_the_release_does_not_take_is_none(release: str, expected: tuple[str, object] | None) -> None:
    Path("hf.sh").write_text(TRAINER)
    Path("requirements.txt").write_text(f"transformers=={release}\n")
    subject = read("requirements.txt", "hf.sh")
    scope = FactScope(subject.roles["train"], subject.environment, open_rules(()))
    found = find_spellings(subject.documents, "training.optimizer_implementation", "for_loop", "train", scope)
    assert next(((one.key, one.value) for one in found), None) == expected


def test_a_script_may_set_what_no_key_states() -> None:
    Path("t.yaml").write_text(LLAMAFACTORY)
    Path("t.py").write_text('from transformers import TrainingArguments\nTrainingArguments("out", bf16=True)\n')
    assert is_own_code(read("t.py").documents)
    assert not is_own_code(read("t.yaml").documents)


@pytest.mark.parametrize(
    ("script", "fact", "value", "expected"),
    [
        ("", "gradient_checkpointing", True, ("gradient_checkpointing", "True")),
        ("", "use_reentrant", False, ("gradient_checkpointing_kwargs", '{"use_reentrant": False}')),
        (", optim='adamw_torch_fused'", "optimizer_implementation", "foreach", ("optim", '"adamw_torch"')),
        (", fsdp_config={'fsdp_version': 2}", "optimizer", "adafactor", ("optim", '"adafactor"')),
    ],
)
def test_code_is_written_as_python(script: str, fact: str, value: object, expected: tuple[str, str]) -> None:
    Path("t.py").write_text(f"Trainer(args=TrainingArguments(output_dir='o', bf16=True{script}))\n")
    Path("requirements.txt").write_text("transformers==4.51.3\n")
    subject = read("requirements.txt", "t.py")
    scope = FactScope(subject.roles["train"], subject.environment, open_rules(()))
    found = next(find_spellings(subject.documents, f"training.{fact}", value, "train", scope))
    assert found.written == expected


def test_what_a_constructor_takes_is_no_option_of_the_command() -> None:
    Path("t.py").write_text("own = argparse.parse_args()\nTrainer(args=TrainingArguments(output_dir='o', bf16=True))\n")
    Path("run.sh").write_text("torchrun --nproc_per_node 4 t.py --bf16 --per_device_train_batch_size 1\n")
    Path("requirements.txt").write_text("transformers==4.51.3\n")
    subject = read("requirements.txt", "run.sh")
    scope = FactScope(subject.roles["train"], subject.environment, open_rules(()))
    found = find_spellings(subject.documents, "training.use_liger_kernel", True, "train", scope)
    assert {(one.document.source.path, one.document.place(one.key).line) for one in found} == {("t.py", 2)}
