"""What a Python script gives its Trainer and nobody can tell leaves open what it may set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.python_script import read as python_script
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.document import Document
    from compatcheck.resolution.subject import Subject

RELEASES = {"transformers": "4.51.3", "trl": "0.17.0", "peft": "0.15.2", "accelerate": "1.6.0", "torch": "2.6.0"}
MADE = "args = TrainingArguments(output_dir='o', bf16=True)"
LOADED = "json.load(open('x'))"


def resolved(documents: tuple[Document, ...]) -> Subject:
    known = {name: Package(name, version, Source("env")) for name, version in RELEASES.items()}
    return resolve(
        "s", rules=open_rules(()), environment=Environment("env", known, complete=False), documents=documents
    )


def read(directory: Path, text: str) -> Subject:
    path = directory / "t.py"
    path.write_text(text, encoding="utf-8")
    return resolved(python_script.read(str(path)))


@pytest.mark.parametrize(
    "text",
    [
        f"{MADE}\nfor k, v in {LOADED}.items():\n    setattr(args, k, v)",
        f"def fill(config, d):\n    for k in d:\n        setattr(config, k, d[k])\n{MADE}\nfill(args, {LOADED})",
        f"{MADE}\nargs.update({LOADED})",
        f"{MADE}\nargs.patch(sys.argv[1:])",
        f"{MADE}\nargs.__dict__.update({LOADED})",
        f"{MADE}\nvars(args)[sys.argv[1]] = 1",
        f"{MADE}\nargs = dataclasses.replace(args, **{LOADED})",
        f"{MADE}\nargs.set_training(batch_size=64)",
        f"{MADE}\nexec(open('configurator.py').read())",
        f"{MADE}\nother = args\nfor k in sys.argv:\n    setattr(other, k, 1)",
        "cfg = OmegaConf.merge(OmegaConf.load('a'), OmegaConf.from_cli())\nargs = TrainingArguments('o', **cfg)",
        f"cfg = dict(output_dir='o')\ncfg.update({LOADED})\nargs = TrainingArguments(**cfg)",
        "cfg = dict(output_dir='o')\ncfg[sys.argv[1]] = True\nargs = TrainingArguments(**cfg)",
        "args = make_args()",
        "class Mine(TrainingArguments): pass\nargs = Mine(output_dir='o', gradient_checkpointing=True)",
    ],
)
def test_arguments_that_are_set_by_name_have_no_defaults(tmp_path: Path, text: str) -> None:
    subject = read(tmp_path, f"{text}\nTrainer(model=m, args=args)\n")
    facts = subject.roles["train"]
    assert not {"training.gradient_checkpointing", "training.micro_batch_size", "training.optimizer"} & facts.keys()
    assert [gap.key for gap in subject.gaps]
    assert all(gap.source.line for gap in subject.gaps)


@pytest.mark.parametrize(
    "text",
    [
        f"{MADE}\nif len(sys.argv) > 1:\n    args.gradient_checkpointing = True",
        f"{MADE}\nsetattr(args, 'gradient_checkpointing', len(sys.argv) > 1)",
        "cfg = dict(output_dir='o')\ncfg['gradient_checkpointing'] = True\nargs = TrainingArguments(**cfg)",
    ],
)
def test_one_argument_that_nobody_can_tell_is_open_alone(tmp_path: Path, text: str) -> None:
    subject = read(tmp_path, f"{text}\nTrainer(model=m, args=args)\n")
    facts = subject.roles["train"]
    assert "training.gradient_checkpointing" not in facts
    assert facts["training.micro_batch_size"].value == 8
    assert {name for name, _, _ in subject.unresolved} == {"training.gradient_checkpointing"}


def test_one_argument_that_is_set_by_its_name_is_read(tmp_path: Path) -> None:
    subject = read(tmp_path, f"{MADE}\nsetattr(args, 'gradient_checkpointing', True)\nTrainer(m, args)\n")
    assert subject.roles["train"]["training.gradient_checkpointing"].value is True
    assert not subject.gaps


def test_what_is_asked_of_arguments_changes_nothing(tmp_path: Path) -> None:
    asks = "args.to_dict()\nargs.get_warmup_steps(10)\nvars(args).items()\nm.config.update({'use_cache': False})"
    subject = read(tmp_path, f"{MADE}\n{asks}\nTrainer(m, args)\n")
    assert subject.roles["train"]["training.micro_batch_size"].value == 8
    assert not subject.gaps


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("SFTTrainer('m', args=SFTConfig(), peft_config=LoraConfig(**more))", "training.lora_rank"),
        ("SFTTrainer('m', args=SFTConfig(), **more)", "training.peft"),
        ("SFTTrainer('m', args=SFTConfig(), peft_config=mk())", "training.peft"),
        (
            "m = AutoModelForCausalLM.from_pretrained('m', **more)\nTrainer(m, TrainingArguments('o'))",
            "model.load_dtype",
        ),
        ("Trainer(m, TrainingArguments('o', fsdp=os.environ['F']))", "training.sharding"),
    ],
)
def test_further_arguments_of_a_call_leave_open_what_it_decides(tmp_path: Path, text: str, opened: str) -> None:
    subject = read(tmp_path, text)
    assert opened in {name for name, _, _ in subject.unresolved}
    assert opened not in subject.roles["train"]


def test_what_is_set_after_loading_replaces_what_nobody_can_tell(tmp_path: Path) -> None:
    load = "m = AutoModelForCausalLM.from_pretrained('m', **more)"
    text = f"{load}\nm.config.use_cache = False\nTrainer(m, {MADE[7:]})\nm.config.use_cache = True"
    assert read(tmp_path, text).roles["train"]["model.use_cache"].value is False


def test_what_is_set_after_training_says_nothing(tmp_path: Path) -> None:
    load = "m = AutoModelForCausalLM.from_pretrained('m')\na = TrainingArguments('o')\nt = Trainer(m, a)\n"
    later = "t.model.config.use_cache = True\na.per_device_train_batch_size = 77\n"
    train = read(tmp_path, f"{load}t.train()\n{later}").roles["train"]
    assert "model.use_cache" not in train
    assert train["training.micro_batch_size"].value != 77
    assert read(tmp_path, f"{load}{later}t.train()\n").roles["train"]["training.micro_batch_size"].value == 77


PARSED = """
options = dict(torch_dtype=model_args.torch_dtype, attn_implementation=model_args.attn_implementation)
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, **options)
SFTTrainer(model=model, args=training_args, peft_config=get_peft_config(model_args))
"""


@pytest.mark.parametrize("loop", ["", "for k, v in json.load(open('x')).items():\n    setattr(training_args, k, v)\n"])
def test_what_a_command_fills_is_as_it_says(tmp_path: Path, loop: str) -> None:
    parser = "training_args, model_args = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()\n"
    (tmp_path / "sft.py").write_text(parser + loop + PARSED, encoding="utf-8")
    path = tmp_path / "run.sh"
    words = "--model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --bf16 true"
    path.write_text(f"accelerate launch --num_processes 8 sft.py {words}\n", encoding="utf-8")
    (reading,) = read_configurations(str(path), named=True)
    facts = resolved(follow_references(reading.documents, open_rules(()), {})).roles["train"]
    assert ("training.peft" in facts) is not bool(loop)
    assert ("training.gradient_checkpointing" in facts) is not bool(loop)
