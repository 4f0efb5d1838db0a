"""What a training script sets behind the parser of its command line holds, whatever the command says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.frameworks.python_script.read import find_parsed
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.resolution.subject import Subject

PARSED = """\
import dataclasses, torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
{}
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
Trainer(model=model, args=args).train()
"""
OPTIONS = "--gradient_checkpointing True --bf16 --output_dir o --per_device_train_batch_size 1 --deepspeed two.json"
CHECKPOINTING, MICRO, PRECISION = (
    "training.gradient_checkpointing",
    "training.micro_batch_size",
    "training.mixed_precision",
)


def launched(folder: Path, script: str, options: str = OPTIONS) -> Subject:
    (folder / "t.py").write_text(script, encoding="utf-8")
    for stage, name in ((2, "two"), (3, "three")):
        (folder / f"{name}.json").write_text(f'{{"zero_optimization": {{"stage": {stage}}}}}', encoding="utf-8")
    (folder / "r.sh").write_text(f"torchrun --nproc_per_node 8 t.py {options}\n", encoding="utf-8")
    rules = open_rules(())
    (reading,) = read_configurations(str(folder / "r.sh"), named=True)
    return resolve("s", rules=rules, documents=follow_references(reading.documents, rules, {}))


@pytest.mark.parametrize(
    ("statement", "fact", "value"),
    [
        ("args.gradient_checkpointing = False", CHECKPOINTING, False),
        ("setattr(args, 'gradient_checkpointing', False)", CHECKPOINTING, False),
        ("args.gradient_checkpointing: bool = False", CHECKPOINTING, False),
        ("args.report_to, args.gradient_checkpointing = 'none', False", CHECKPOINTING, False),
        ("vars(args)['gradient_checkpointing'] = False", CHECKPOINTING, False),
        ("args = dataclasses.replace(args, gradient_checkpointing=False)", CHECKPOINTING, False),
        ("args.per_device_train_batch_size = 16", MICRO, 16),
        ("args.bf16 = False", PRECISION, "no"),
        ("args.gradient_checkpointing_kwargs = {'use_reentrant': False}", "training.use_reentrant", False),
        ("args.deepspeed = 'three.json'", "training.zero_stage", 3),
        ("args.per_device_train_batch_size = args.per_device_train_batch_size", MICRO, 1),  # as the command has it
        (
            "n = args.n\nargs.gradient_checkpointing_kwargs = dict(use_reentrant=False, n=n)",
            "training.use_reentrant",
            False,
        ),
        ("args.bf16 = getattr(args, 'bf16')", PRECISION, "bf16"),
    ],
)
def test_an_assignment_behind_the_parser_ranks_above_the_command(
    tmp_path: Path, statement: str, fact: str, *, value: Any
) -> None:
    subject = launched(tmp_path, PARSED.format(statement))
    assert subject.roles["train"][fact].value == value
    assert subject.conflicts == ()


@pytest.mark.parametrize(
    ("statement", "fact"),
    [
        ("args.per_device_train_batch_size *= 4", MICRO),
        ("args.per_device_train_batch_size = min(args.per_device_train_batch_size, 8)", MICRO),
        ("if args.local_rank == 0:\n    args.gradient_checkpointing = False", CHECKPOINTING),
        ("try:\n    import fast\nexcept ImportError:\n    args.gradient_checkpointing = False", CHECKPOINTING),
        ("args.bf16 = torch.cuda.is_bf16_supported()", PRECISION),
        ("other = dataclasses.replace(args, gradient_checkpointing=False)", CHECKPOINTING),
    ],
)
def test_what_nobody_can_tell_of_it_is_open(tmp_path: Path, statement: str, fact: str) -> None:
    subject = launched(tmp_path, PARSED.format(statement))
    assert fact not in subject.roles["train"]
    assert fact in {name for name, _, _ in subject.unresolved}


def test_a_literal_of_a_constructor_is_out_of_the_command_s_reach(tmp_path: Path) -> None:
    made = "args = TrainingArguments('o', per_device_train_batch_size=8, gradient_checkpointing=own.gradient_checkpointing)"
    facts = launched(tmp_path, PARSED.format(f"own = args\n{made}")).roles["train"]
    assert facts[MICRO].value == 8
    assert [value for value, _ in facts[MICRO].alternatives] == [1]
    assert facts[CHECKPOINTING].value is True  # handed on from the command


def test_the_model_that_code_loads_is_the_one(tmp_path: Path) -> None:
    facts = launched(tmp_path, PARSED.format(""), f"{OPTIONS} --model_name_or_path gpt2").roles["train"]
    assert facts["model.name"].value == "meta-llama/Llama-3.1-8B"
    assert facts["model.model_type"].value == "llama"


@pytest.mark.parametrize("options", ["--bf16 --output_dir o", "--fp16", ""])
def test_a_launch_with_few_options_is_read_by_the_parser_of_its_script(tmp_path: Path, options: str) -> None:
    subject = launched(tmp_path, PARSED.format(""), options)
    assert subject.roles["train"][MICRO].value == 8
    assert not subject.skipped
    assert subject.roles["train"][PRECISION].value == (options[2:6] or "no")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HfArgumentParser(TrainingArguments)", "hf_trainer"),
        ("HfArgumentParser((Own, transformers.TrainingArguments))", "hf_trainer"),
        ("CLASSES = (Own, TrainingArguments)\nHfArgumentParser(CLASSES)", "hf_trainer"),
        ("class Mine(TrainingArguments): pass\nHfArgumentParser(Mine)", "hf_trainer"),
        ("TrlParser((Own, SFTConfig))", "trl"),
        ("from trl.experimental.gold import GOLDConfig, GOLDTrainer\nTrlParser((Own, GOLDConfig))", "trl"),
        ("from mine import GOLDConfig, GOLDTrainer\nTrlParser((Own, GOLDConfig))", None),
        ("from trl import ModelConfig, TrlParser\nTrlParser(ModelConfig)", None),
        ("HfArgumentParser(Own)", None),
        ("argparse.ArgumentParser()\nTrainingArguments()", None),
    ],
)
def test_a_script_is_asked_which_arguments_it_parses(tmp_path: Path, text: str, expected: str | None) -> None:
    (tmp_path / "t.py").write_text(text, encoding="utf-8")
    assert find_parsed(str(tmp_path / "t.py")) == expected


@pytest.mark.parametrize("options", ["", "--num_generations 8"])
def test_a_trainer_of_trl_that_nobody_read_is_trls_and_open(tmp_path: Path, options: str) -> None:
    script = (
        "from trl import TrlParser\nfrom trl.experimental.gold import GOLDConfig, GOLDTrainer\n"
        "args, = TrlParser((GOLDConfig,)).parse_args_into_dataclasses()\n"
        "GOLDTrainer(model='gpt2', args=args).train()\n"
    )
    command = f"--per_device_train_batch_size 2 --teacher_model_name_or_path gpt2-xl {options}"
    subject = launched(tmp_path, script, command)
    facts = subject.roles["train"]
    assert facts["training.framework"].value == "trl"
    assert facts[MICRO].value == 2
    assert facts["training.unpriced"].value == ("distillation",)
    assert "training.trainer" not in facts
    assert "training.trainer" in {fact for fact, *_ in subject.unresolved}


OWN = PARSED.replace("{}", "").replace(
    "args, =",
    """\
from dataclasses import dataclass, field
import transformers
@dataclass
class TrainingArguments(transformers.TrainingArguments):
    cache_dir: str = field(default=None)
    {}
args, =""",
)


@pytest.mark.parametrize(
    ("field", "fact", "value"),
    [
        ("gradient_checkpointing: bool = True", CHECKPOINTING, True),
        ("gradient_checkpointing: bool = field(default=True, metadata={'help': 'h'})", CHECKPOINTING, True),
        ("bf16: bool = dataclasses.field(default=True)", PRECISION, "bf16"),
        ("per_device_train_batch_size: int = 2", MICRO, 2),
        ("deepspeed: str = field(default='three.json')", "training.zero_stage", 3),
        (
            "gradient_checkpointing_kwargs: dict = field(default_factory=lambda: {'use_reentrant': False})",
            "training.use_reentrant",
            False,
        ),
    ],
)
def test_a_default_of_the_scripts_own_class_holds_where_the_command_says_nothing(
    tmp_path: Path, field: str, fact: str, *, value: Any
) -> None:
    script = OWN.replace("{}", field)
    assert launched(tmp_path, script, "--output_dir o").roles["train"][fact].value == value
    asked = "--output_dir o --gradient_checkpointing False --bf16 False --per_device_train_batch_size 4 --deepspeed two.json"
    given = {CHECKPOINTING: False, PRECISION: "no", MICRO: 4, "training.zero_stage": 2}
    assert launched(tmp_path, script, asked).roles["train"][fact].value == given.get(fact, value)


@pytest.mark.parametrize(
    "use", ["", "from data import load\nload(args)", "len(args.max_seq_length)", "{'max_seq_length': 1}"]
)
def test_a_field_of_an_own_class_that_nothing_asks_for_says_nothing(tmp_path: Path, use: str) -> None:
    (tmp_path / "data.py").write_text("def load(args):\n    return args.max_seq_length\n", encoding="utf-8")
    script = OWN.replace("{}", "max_seq_length: int = 32768") + f"{use}\n"
    facts = launched(tmp_path, script, "--output_dir o").roles["train"]
    length = facts.get("training.sequence_length")
    assert (length and length.value) == (32768 if use else None)


def test_a_script_that_hands_its_run_on_leaves_it_open(tmp_path: Path) -> None:
    script = """\
from transformers import HfArgumentParser, TrainingArguments
from lib.runner import Runner
def main():
    args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    Runner(args=args).run()
main()
"""
    subject = launched(tmp_path, script)
    assert [gap.why for gap in subject.gaps] == ["hands its run on to code that was not read"]
    facts = subject.roles["train"]
    assert facts[MICRO].value == 1
    assert not facts.keys() & {"program.makes_logits", "training.peft", "model.load_dtype"}
    idle = "from transformers import Trainer, TrainingArguments, HfArgumentParser\n"
    assert launched(tmp_path, idle).roles["train"]["program.makes_logits"].value is True


@pytest.mark.parametrize(
    "line", ["from own import TrainingArguments", "from .own import TrainingArguments", "import own"]
)
def test_a_class_of_arguments_in_a_module_beside_the_script_is_read(tmp_path: Path, line: str) -> None:
    own = """\
import transformers
class TrainingArguments(transformers.TrainingArguments):
    gradient_checkpointing: bool = True
"""
    (tmp_path / "own.py").write_text(own, encoding="utf-8")
    script = PARSED.format("").replace("args, =", f"{line}\nargs, =")
    if line == "import own":
        script = script.replace("HfArgumentParser(", "HfArgumentParser(own.")
    assert launched(tmp_path, script, "--output_dir o").roles["train"][CHECKPOINTING].value is True


def test_a_default_that_is_no_literal_is_open(tmp_path: Path) -> None:
    script = OWN.replace("{}", "gradient_checkpointing: bool = os.environ.get('CHECKPOINTING') == '1'")
    subject = launched(tmp_path, script, "--output_dir o")
    assert CHECKPOINTING not in subject.roles["train"]
    assert CHECKPOINTING in {name for name, _, _ in subject.unresolved}
    assert launched(tmp_path, script, "--gradient_checkpointing True").roles["train"][CHECKPOINTING].value is True


OF_ANOTHER_MODULE = """\
from transformers import AutoModelForCausalLM, HfArgumentParser
from own import Own{}
from parts import Model
model_args, args = HfArgumentParser((Model, Own)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(model_args.model_id, attn_implementation="sdpa" if model_args.plain else "eager")
kwargs = {{}}
if model_args.bits == 4:
    kwargs.update(dict(load_in_4bit=True))
OwnTrainer(model=model, args=args).train()
"""
OWN_MODULE = """\
from dataclasses import dataclass, field
import transformers as hf
from trl import GRPOConfig
@dataclass
class Own(hf.TrainingArguments):
    gradient_checkpointing: bool = True
    per_device_train_batch_size: int = 2
@dataclass
class Other(GRPOConfig):
    beta: float = 0.4
    per_device_train_batch_size: int = 16
"""
PARTS = """\
from dataclasses import dataclass
from base import Base as _Base
@dataclass
class Model(_Base):
    plain: bool = False
    bits: int = 16
"""
BASE = """\
from dataclasses import dataclass
@dataclass
class Base:
    model_id: str = "meta-llama/Llama-3.1-8B"
"""


def of_another_module(
    folder: Path, options: str, trainer: str = "\nfrom transformers import Trainer as OwnTrainer"
) -> Subject:
    for name, text in (("own", OWN_MODULE), ("parts", PARTS), ("base", BASE)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return launched(folder, OF_ANOTHER_MODULE.format(trainer), options)


def test_classes_of_other_modules_are_those_that_the_parser_fills_and_no_more(tmp_path: Path) -> None:
    subject = of_another_module(tmp_path, "--plain True --output_dir o")
    facts = subject.roles["train"]
    assert (facts[CHECKPOINTING].value, facts[MICRO].value) == (True, 2)
    assert "training.kl_coefficient" not in facts
    assert facts["training.framework"].value == "hf_trainer"
    assert facts["model.name"].value == "meta-llama/Llama-3.1-8B"
    assert facts["model.attn_implementation"].value == "sdpa"
    assert facts["model.quantization"].value is None
    assert {key for document in subject.documents for key, _ in document.unread} == set()
    given = of_another_module(
        tmp_path, "--model_id Qwen/Qwen2.5-7B --per_device_train_batch_size 4 --output_dir o"
    ).roles["train"]
    assert (given["model.name"].value, given[MICRO].value) == ("Qwen/Qwen2.5-7B", 4)
    assert given["model.attn_implementation"].value == "eager"


def test_a_trainer_of_another_module_is_said(tmp_path: Path) -> None:
    subject = of_another_module(tmp_path, "--output_dir o", "\nfrom own_trainer import OwnTrainer")
    assert ("training.trainer", "OwnTrainer") in {(name, source.key) for name, source, _ in subject.unresolved}
    plain = of_another_module(tmp_path, "--output_dir o")
    assert "training.trainer" not in {name for name, _, _ in plain.unresolved}


@pytest.mark.parametrize("parser", ["H4ArgumentParser", "HfArgumentParser"])
def test_a_file_of_arguments_wins_over_fields_of_a_class_of_another_module(tmp_path: Path, parser: str) -> None:
    (tmp_path / "own.py").write_text(OWN_MODULE, encoding="utf-8")
    (tmp_path / "train.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 8\noutput_dir: o\n", encoding="utf-8"
    )
    script = f"""\
from alignment import {parser}
from own import Own
from own_trainer import OwnTrainer
parser = {parser}((Own,))
(args,) = parser.parse()
OwnTrainer(model="m", args=args).train()
"""
    (tmp_path / "run_train.py").write_text(script, encoding="utf-8")
    (tmp_path / "r.sh").write_text("torchrun --nproc_per_node 8 run_train.py train.yaml\n", encoding="utf-8")
    rules = open_rules(())
    (reading,) = read_configurations(str(tmp_path / "r.sh"), named=True)
    subject = resolve("s", rules=rules, documents=follow_references(reading.documents, rules, {}))
    assert subject.roles["train"][MICRO].value == 8
    assert subject.roles["train"][CHECKPOINTING].value is True
    assert [conflict for conflict in subject.conflicts if conflict.fact == MICRO] == []


def test_all_but_some_of_a_mapping_of_data_is_about_data(tmp_path: Path) -> None:
    words = "args=args, **{k: v for k, v in data_module.items() if k != 'predict_dataset'})"
    script = PARSED.format("").replace("args=args)", words)
    whole = launched(tmp_path, script)
    assert not [gap for gap in whole.gaps if "no literals" in gap.why]
    other = launched(tmp_path, script.replace("data_module", "more"))
    assert [gap for gap in other.gaps if "no literals" in gap.why]


def test_a_class_of_a_library_is_the_librarys_also_in_its_own_checkout(tmp_path: Path) -> None:
    (tmp_path / "transformers").mkdir()
    text = "class Base: ...\nclass TrainingArguments(Base):\n    per_device_train_batch_size: int = 3\n"
    (tmp_path / "transformers" / "__init__.py").write_text(text, encoding="utf-8")
    assert launched(tmp_path, PARSED.format(""), "--output_dir o").roles["train"][MICRO].value == 8


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("model = AutoModelForSequenceClassification.from_pretrained('m', num_labels=1)", False),
        ("model = AutoModelForCausalLM.from_pretrained('m')", True),
        (
            "model = AutoModelForCausalLM.from_pretrained('m')\nr = AutoModelForSequenceClassification.from_pretrained('r')",
            True,
        ),
    ],
)
def test_a_head_of_labels_makes_no_logits(tmp_path: Path, line: str, *, made: bool) -> None:
    script = PARSED.format("").replace('model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")', line)
    facts = launched(tmp_path, script).roles["train"]
    assert facts["program.makes_logits"].value is made
