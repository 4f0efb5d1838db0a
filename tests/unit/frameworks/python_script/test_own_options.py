"""Options of a script's own are what the real ``argparse`` makes of the same command, or not told."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from compatcheck.core.command import Word
from compatcheck.core.source import Source
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.python_script import own_options
from compatcheck.frameworks.python_script.own_options import find_own_options
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.rules.locate import open_rules
from tests.effort import at_most

if TYPE_CHECKING:
    from pathlib import Path

DEFINITIONS = """
import argparse
def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-id", "-m", default="gpt2")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--rate", type=float, default="1e-3")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--bf16", type=bool, default=True)
    parser.add_argument("--four-bits", type=bool, default=False)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--no-eval", dest="evaluates", action="store_false")
    group = parser.add_argument_group("more")
    group.add_argument("--urls", nargs="+", default=["a"])
    group.add_argument("--sizes", nargs="*", type=int, default=[1, 2])
    return parser.parse_args()
"""


def tell(text: str, words: list[str]) -> dict[str, object]:
    place = Source("run.sh")
    flags = parse_flags(Word(word, place, word) for word in words)
    found = find_own_options(tuple(ast.walk(ast.parse(text))), flags.options)
    return {} if found is None else dict(found.values)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--model-id", "Qwen/Qwen3-8B", "--batch-size=2"],
        ["--lora", "--no-eval", "--steps", "7", "--rate", "0.5"],
        ["--bf16", "False", "--four-bits=True"],
        ["--bf16", "", "--four-bits", "0"],
        ["--urls", "b", "c", "--sizes", "3"],
        ["--urls", "b", "--sizes"],
        ["--model_id", "no such option"],
        ["--batch", "2"],  # argparse takes the beginning of a name
        ["--model-id", "1"],
        ["--batch-size", "2", "--batch-size", "3"],
    ],
)
def test_values_are_those_of_argparse_or_not_told(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, object] = {}
    exec(DEFINITIONS, scope)  # noqa: S102 (the text above)
    monkeypatch.setattr("sys.argv", ["train.py", *words])
    told = tell(DEFINITIONS, words)
    try:
        real = vars(scope["parse_args"]())  # type: ignore[operator]  # the function above
    except SystemExit:
        return
    assert {key: real[key] for key in told} == told
    assert len(told) >= len(real) - 1 - ("--sizes" in words)


@pytest.mark.parametrize(
    "change",
    [
        ("return parser.parse_args()", "return parser.parse_known_args()[0]"),
        ("return parser.parse_args()", "parser.set_defaults(lora=True)\n    return parser.parse_args()"),
        ("return parser.parse_args()", "return parser.parse_args(['--lora'])"),
        ("argparse.ArgumentParser()", "argparse.ArgumentParser(parents=[base()])"),
        ("import argparse", "import argparse\nother = argparse.ArgumentParser()"),
    ],
)
def test_what_a_definition_alone_does_not_decide_is_not_told(change: tuple[str, str]) -> None:
    assert tell(DEFINITIONS.replace(*change), []) == {}


TRAINING = """
from trl import SFTConfig, SFTTrainer
def main(args):
    peft = None
    if args.lora:
        peft = LoraConfig(r=8)
    SFTTrainer(
        model=args.model_id,
        args=SFTConfig(per_device_train_batch_size=args.batch_size or len(args.urls)),
        peft_config=peft,
    ).train()
if __name__ == "__main__":
    main(parse_args())
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", {"model.name": "gpt2", "training.micro_batch_size": 4, "training.peft": None}),
        ("--batch-size 0 --urls a b c", {"training.micro_batch_size": 3}),
        ("--lora --model-id Qwen/Qwen3-8B", {"model.name": "Qwen/Qwen3-8B", "training.peft": "lora"}),
        ("$MORE", {"training.micro_batch_size": None}),
    ],
)
def test_a_script_is_read_with_what_its_command_gives(tmp_path: Path, words: str, told: dict[str, object]) -> None:
    (tmp_path / "train.py").write_text(DEFINITIONS + TRAINING, encoding="utf-8")
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --nproc_per_node 8 train.py {words}\n", encoding="utf-8")
    (reading,) = read_configurations(str(script), named=True)
    followed = follow_references(reading.documents, open_rules(()), {})
    stated = {entry.fact: entry.value for document in followed for entry in document.statements}
    models = [name for document in followed for kind, name, _ in document.references if kind == "model"]
    stated |= dict.fromkeys(["model.name"][: len(models)], models[-1] if models else None)
    assert {fact: stated.get(fact) for fact in told} == told


@pytest.mark.parametrize(("words", "quantized"), [("--use_bnb", True), ("", False)])
def test_a_branch_that_the_command_decides_replaces_what_stands_before_it(
    tmp_path: Path, words: str, *, quantized: bool
) -> None:
    text = """import argparse
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer
def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--use_bnb", action="store_true")
    return parser.parse_args()
def main(args):
    bnb_config = None
    if args.use_bnb:
        bnb_config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    model = AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=bnb_config)
    SFTTrainer(model=model, args=SFTConfig("o")).train()
if __name__ == "__main__":
    main(get_args())
"""
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    script = tmp_path / "run.sh"
    script.write_text(f"python train.py {words}\n", encoding="utf-8")
    (reading,) = read_configurations(str(script), named=True)
    documents = follow_references(reading.documents, open_rules(()), {})
    stated = {
        (one.fact, one.value) for document in documents for one in document.statements if one.key == "load_in_4bit"
    }
    assert stated == ({("model.quantization", "nf4")} if quantized else set())
    assert not any("model.quantization" in (gap.facts or ()) for document in documents for gap in document.gaps)


def test_a_script_by_itself_is_taken_to_be_given_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(DEFINITIONS + TRAINING, encoding="utf-8")
    (reading,) = read_configurations(str(path), named=True)
    gaps = [gap for document in reading.documents for gap in document.gaps]
    assert [(gap.why, gap.assumed) for gap in gaps] == [
        ("parses options of its own; assumed: no arguments are given", True)
    ]


def test_an_option_that_the_script_sets_anew_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    anew = TRAINING.replace("    peft = None", "    args.batch_size = 3 * world()\n    peft = None")
    path.write_text(DEFINITIONS + anew, encoding="utf-8")
    (reading,) = read_configurations(str(path), named=True)
    stated = {entry.fact: entry.value for document in reading.documents for entry in document.statements}
    assert "training.micro_batch_size" not in stated


FIELDS = """
from dataclasses import dataclass, field
from typing import List, Optional
import transformers
@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adamw_torch")
    use_lora: bool = False
@dataclass
class LoraArguments:
    lora_r: int = 64
    lora_target_modules: List[str] = field(default_factory=lambda: ["c_attn", "w1"])
    rate: Optional[float] = None
    q_lora: bool = False
    named: str = field(default=None, metadata={"help": "any"})
    rest: list = field(default_factory=list)
    needed: int
def train():
    parser = transformers.HfArgumentParser((TrainingArguments, LoraArguments))
    training_args, lora_args = parser.parse_args_into_dataclasses()
    is_chat = "chat" in lora_args.named.lower()
    if training_args.use_lora:
        if lora_args.q_lora or is_chat:
            more = None
        else:
            more = ["wte"]
        config = LoraConfig(r=lora_args.lora_r, target_modules=lora_args.lora_target_modules, modules_to_save=more)
        model = get_peft_model(model, config)
    Trainer(model=model, args=training_args).train()
    trainer.model_wrapped._zero3_consolidated_16bit_state_dict()
if __name__ == "__main__":
    train()
"""
_DEFAULTS = {
    "optim": "adamw_torch", "use_lora": False, "lora_r": 64, "lora_target_modules": ["c_attn", "w1"], "rate": None,
    "q_lora": False, "named": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("", {}),
        ("--use_lora --q_lora False --lora_r 8 --rate 1e-3", {"use_lora": True, "lora_r": 8, "rate": 0.001}),
        ("--lora_target_modules wte w2 --needed 3", {"lora_target_modules": ["wte", "w2"], "needed": 3}),
        ("--q_lora 1 --named Qwen --per_device_train_batch_size 2", {"q_lora": True, "named": "Qwen"}),
        ("--q_lora perhaps", {"q_lora": ...}),
        ("--no_q_lora", {"q_lora": ...}),
    ],
)
def test_fields_that_hf_argument_parser_fills_are_told(words: str, changed: dict[str, object]) -> None:
    place = Source("run.sh")
    flags = parse_flags(Word(word, place, word) for word in words.split())
    nodes = tuple(ast.walk(ast.parse(FIELDS)))
    found = find_own_options(nodes, flags.options, launched=True)
    assert found is not None
    assert found.values == {key: value for key, value in (_DEFAULTS | changed).items() if value is not ...}
    assert find_own_options(nodes, flags.options) is None


@pytest.mark.parametrize(
    "change",
    [
        ("parse_args_into_dataclasses()", "parse_args_into_dataclasses(args=more)"),
        ("parser = ", "transformers.HfArgumentParser(Other).parse_json_file(name)\n    parser = "),
        ("training_args, lora_args =", "lora_args ="),
    ],
)
def test_fields_filled_in_another_way_are_not_told(change: tuple[str, str]) -> None:
    assert find_own_options(tuple(ast.walk(ast.parse(FIELDS.replace(*change)))), {}, launched=True) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--use_lora --named Qwen/Qwen-7B", {"training.lora_rank": 64, "training.lora_modules_to_save": ("wte",)}),
        ("--use_lora --named Qwen-Chat --lora_r 8", {"training.lora_rank": 8, "training.lora_modules_to_save": None}),
        ("--named Qwen/Qwen-7B", {"training.lora_rank": None, "training.lora_target_modules": None}),
    ],
)
def test_adapters_of_a_script_have_its_fields(tmp_path: Path, words: str, told: dict[str, object]) -> None:
    (tmp_path / "train.py").write_text(FIELDS.replace("    needed: int\n", ""), encoding="utf-8")
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --nproc_per_node 8 train.py {words}\n", encoding="utf-8")
    (reading,) = read_configurations(str(script), named=True)
    followed = follow_references(reading.documents, open_rules(()), {})
    stated = {entry.fact: entry.value for document in followed for entry in document.statements}
    assert {fact: stated.get(fact) for fact in told} == told
    assert {key for document in followed for key, _ in document.unread} == set()


def test_a_parser_is_handed_on_through_some_functions_and_a_row_of_thousands_ends() -> None:
    def row(length: int) -> str:
        functions = "".join(f"def g{n}(): return g{n + 1}()\n" for n in range(length))
        return f"{DEFINITIONS}{functions}def g{length}(): return parse_args()\nargs = g0()\n"

    def names(length: int) -> frozenset[str]:
        found = find_own_options(tuple(ast.walk(ast.parse(row(length)))), {})
        assert found is not None
        return found.namespaces

    assert "args" in names(3)
    with at_most(50):
        assert "args" not in names(3_000)


def test_fields_of_a_large_class_are_looked_through_once() -> None:
    fields = "".join(f"    f{n}: int = {n}\n" for n in range(3_000))
    text = f"class A:\n{fields}(a,) = HfArgumentParser((A,)).parse_args_into_dataclasses()\n"
    with patch.object(own_options, "defaults_of", wraps=own_options.defaults_of) as looked:
        found = find_own_options(tuple(ast.walk(ast.parse(text))), {}, launched=True)
    assert found is not None
    assert (found.values["f2999"], looked.call_count) == (2999, 1)


_JSON = """\
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        training_args, lora_args = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
    else:
        """


def test_a_branch_for_one_file_of_arguments_is_not_taken_where_options_are_given() -> None:
    before, name, after = FIELDS.partition("training_args, lora_args =")
    text = f"{before.rstrip(' ')}{_JSON}{name}{after}"
    place = Source("run.sh")
    flags = parse_flags(Word(word, place, word) for word in ("--lora_r", "8"))
    nodes = tuple(ast.walk(ast.parse(text)))
    found = find_own_options(nodes, flags.options, launched=True)
    assert found is not None
    assert found.values["lora_r"] == 8
    assert find_own_options(nodes, {}, launched=True) is None


def test_words_that_remain_are_no_class() -> None:
    rest = FIELDS.replace("parse_args_into_dataclasses()", "parse_args_into_dataclasses(return_remaining_strings=True)")
    assert find_own_options(tuple(ast.walk(ast.parse(rest))), {}, launched=True) is None
    found = find_own_options(
        tuple(ast.walk(ast.parse(rest.replace("training_args, lora_args =", "training_args, lora_args, more =")))),
        {},
        launched=True,
    )
    assert found is not None
    assert found.values["lora_r"] == 64


@pytest.mark.parametrize("given", ["(A,)", "A"])
def test_the_one_class_that_is_filled_may_be_taken_out_of_the_answer(given: str) -> None:
    text = f"class A:\n    lora_r: int = 64\nargs = HfArgumentParser({given}).parse_args_into_dataclasses()[0]\n"
    found = find_own_options(tuple(ast.walk(ast.parse(text))), {}, launched=True)
    assert found is not None
    assert (found.namespaces, found.values) == ({"args"}, {"lora_r": 64})
    second = text.replace("[0]", "[1]")
    assert find_own_options(tuple(ast.walk(ast.parse(second))), {}, launched=True) is None


@pytest.mark.parametrize(("words", "said"), [("--name m --lr 1e-4", False), ("--name m --other 3", True)])
def test_a_script_whose_options_are_all_read_is_not_said_to_have_others(
    tmp_path: Path, words: str, *, said: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "rm.py").write_text(
        "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "class A:\n    name: str = 'gpt2'\n    lr: float = 1e-5\n"
        "given = HfArgumentParser(A).parse_args_into_dataclasses()[0]\n"
        "model = AutoModelForCausalLM.from_pretrained(given.name)\n"
        "Trainer(model=model, args=TrainingArguments('o', learning_rate=given.lr)).train()\n"
    )
    (tmp_path / "run.sh").write_text(f"accelerate launch rm.py {words}\n")
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    documents = follow_references(reading.documents, open_rules(), {})
    assert any("does not read" in skip.reason for one in documents for skip in one.skipped) is said
    if not said:
        assert {one.value for document in documents for one in document.statements} >= {"m", 1e-4}


JOINED = """\
from dataclasses import dataclass
import argparse, torch, transformers
@dataclass
class ModelArguments:
    bits: int = 8
    quant_type: str = "fp4"
@dataclass
class TrainingArguments(transformers.Seq2SeqTrainingArguments):
    lora_r: int = 16
def load(args):
    return transformers.AutoModelForCausalLM.from_pretrained("gpt2", load_in_4bit=args.bits == 4,
        quantization_config=transformers.BitsAndBytesConfig(load_in_4bit=args.bits == 4, bnb_4bit_quant_type=args.quant_type))
def train():
    parser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    args = argparse.Namespace(**vars(model_args), **vars(training_args){})
    transformers.Seq2SeqTrainer(model=load(args), args=training_args).train()
train()
"""


@pytest.mark.parametrize(("more", "told"), [("", "nf4"), (", bits=16", None), (", **read_more()", None)])
def test_options_of_several_classes_may_be_joined(tmp_path: Path, more: str, told: str | None) -> None:
    (tmp_path / "train.py").write_text(JOINED.replace("{}", more), encoding="utf-8")
    (tmp_path / "run.sh").write_text("python train.py --bits 4 --quant_type nf4 --output_dir o\n", encoding="utf-8")
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    followed = follow_references(reading.documents, open_rules(()), {})
    stated = [
        entry.value for document in followed for entry in document.statements if entry.fact == "model.quantization"
    ]
    assert [one for one in stated if one is not None] == ([told] if told else [])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("os.environ['PROJECT'] = self.project", True),
        ("self.rows = 3", False),
        ("self.names.append('q_proj')", False),
        ("setattr(self, 'rows', 3)", False),
        ("super().__post_init__()", False),
    ],
)
def test_what_a_class_does_when_it_is_filled_may_leave_its_fields_alone(line: str, *, told: bool) -> None:
    text = f"class A:\n    rows: int = 2\n    def __post_init__(self):\n        {line}\n"
    text += "parser = HfArgumentParser((A,))\nargs, = parser.parse_args_into_dataclasses()\n"
    found = find_own_options(tuple(ast.walk(ast.parse(text))), {}, launched=True)
    assert found is not None
    assert ("rows" in found.values) is told


@pytest.mark.parametrize(
    ("words", "adds", "told"),
    [
        ("--deepspeed --deepspeed_config ds.json", "deepspeed.add_config_arguments(parser)", True),
        ("--deepspeed_config=ds.json", "deepspeed.add_config_arguments(parser)", True),
        ("--deepspeed_config ds.json", "add_own_arguments(parser)", False),
    ],
)
def test_the_file_that_deepspeed_takes_from_the_options_is_read(
    tmp_path: Path, words: str, adds: str, *, told: bool
) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "train.py").write_text(
        f"import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser = {adds}\nargs = parser.parse_args()\n"
        "engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())\n"
        "engine.backward(loss)\nengine.step()\n"
    )
    (tmp_path / "run.sh").write_text(f"deepspeed --num_gpus 8 train.py {words}\n")
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    found = follow_references(reading.documents, open_rules(), {})
    assert any(one.unresolved or one.skipped for one in found) is not told
    assert any(one.fact == "training.zero_stage" for document in found for one in document.statements)
