"""Trainers of a project that stand in other modules than the script that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.document import Document

TRAIN = """
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import ModelConfig, GRPOConfig, TrlParser
from .trainer import OwnTrainer

grpo_config, model_config = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.bfloat16)
OwnTrainer(args=grpo_config, model=model, reward_funcs=[len]).train()
"""
TRAINER = """
from trl import GRPOTrainer

class OwnTrainer(GRPOTrainer):
    def __init__(self, model, args=None, **more):
        super().__init__(model=model, args=args, **more)
        self.steps = 3

    def compute_loss(self, model, inputs):
        return model(**inputs).loss
"""
COMMAND = (
    "torchrun --nproc_per_node 2 src/train.py --attn_implementation flash_attention_2 --bf16 --num_generations 4\n"
)


def follow(root: Path, trainer: str, command: str = COMMAND) -> tuple[Document, ...]:
    (root / ".git").mkdir()
    (root / "src").mkdir()
    (root / "src" / "train.py").write_text(TRAIN)
    (root / "src" / "trainer.py").write_text(trainer)
    (root / "run.sh").write_text(command)
    (reading,) = read_configurations(str(root / "run.sh"), named=True)
    return follow_references(reading.documents, open_rules(), {})


def words(documents: tuple[Document, ...]) -> set[str]:
    return {gap.why.partition(":")[0] for one in documents for gap in one.gaps}


@pytest.mark.parametrize("started", ["src/train.py", "-m src.train"])
def test_one_that_hands_on_what_it_is_given_is_its_base(tmp_path: Path, started: str) -> None:
    documents = follow(tmp_path, TRAINER, COMMAND.replace("src/train.py", started))
    assert words(documents) == {"OwnTrainer has a compute_loss of its own"}
    assert "run.no_grad_forward_between" in set().union(*(gap.facts or () for one in documents for gap in one.gaps))
    (script,) = [one for one in documents if one.source.path.endswith("train.py") and one.of_code is not None]
    stated = {one.fact: one.value for one in script.statements}
    assert (stated["training.trainer"], stated["model.load_dtype"]) == ("grpo", "bfloat16")


@pytest.mark.parametrize(
    "change",
    [
        ("super().__init__(model=model,", "super().__init__(model=wrap(model),"),
        ("self.steps = 3", "self.model = None"),
        ("self.steps = 3", "model.half()"),
        ("(GRPOTrainer)", "(Unknown)"),
    ],
)
def test_one_that_may_do_more_may_change_the_model(tmp_path: Path, change: tuple[str, str]) -> None:
    assert "may change the model" in words(follow(tmp_path, TRAINER.replace(*change)))


def test_what_nobody_hands_on_to_the_model_is_none_of_its_settings(tmp_path: Path) -> None:
    assert any("attn_implementation" in (one.of_code or ()) for one in follow(tmp_path, TRAINER))


def test_a_class_of_another_library_is_none_of_trl_whatever_it_is_called(tmp_path: Path) -> None:
    text = """
from lib.images.ppo import PPOTrainer as Base

class PPOTrainer(Base):
    def init_datasets(self):
        self.loader = None

PPOTrainer(cfgs=1).train()
"""
    path = tmp_path / "ppo.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="starts no training"):
        read_configurations(str(path), named=True)


CHOSEN = """
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser
from .trainer import OwnTrainer

args, model_args = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()
trainer_cls = {choice}
trainer = trainer_cls(model=model_args.model_name_or_path, args=args, reward_funcs=[len])
trainer.train()
"""
WHOLE = "from transformers import Trainer\n\nclass OwnTrainer(Trainer):\n    def __init__(self, model):\n        make(model)\n"


@pytest.mark.parametrize(
    ("choice", "trainer", "foreign"),
    [
        ("OwnTrainer if args.use_vllm else GRPOTrainer", WHOLE, True),
        ("OwnTrainer", WHOLE, True),
        ("OwnTrainer", TRAINER, False),
        ("GRPOTrainer", WHOLE, False),
    ],
)
def test_a_class_may_be_made_by_another_name(tmp_path: Path, choice: str, trainer: str, *, foreign: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(CHOSEN.format(choice=choice))
    (tmp_path / "src" / "trainer.py").write_text(trainer)
    (tmp_path / "run.sh").write_text(COMMAND)
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    documents = follow_references(reading.documents, open_rules(), {})
    stated = {one.fact: one.value for document in documents for one in document.statements}
    gaps = [gap for document in documents for gap in document.gaps if gap.key is None and gap.facts is not None]
    assert stated.get("program.unread_release") == ("OwnTrainer" if foreign else None)
    assert any("model.load_dtype" in (gap.facts or ()) for gap in gaps) is foreign
    assert ("training.trainer" in stated) is True  # the command's options are those of one of TRL's


def test_a_package_whose_name_begins_like_trls_is_none_of_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "trl_own.py").write_text(WHOLE.replace("OwnTrainer", "GRPOTrainer"))
    text = (
        CHOSEN.format(choice="GRPOTrainer")
        .replace(", GRPOTrainer,", ",")
        .replace("from .trainer import OwnTrainer", "from trl_own import GRPOTrainer")
    )
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "run.sh").write_text(COMMAND.replace("src/", ""))
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    documents = follow_references(reading.documents, open_rules(), {})
    assert any(one.fact == "program.unread_release" for document in documents for one in document.statements)


OWN_MODEL = """
import transformers
{line}
model = {name}.from_pretrained("lmsys/vicuna-7b-v1.5")
transformers.Trainer(model=model, args=transformers.TrainingArguments(output_dir="o")).train()
"""


@pytest.mark.parametrize(
    ("line", "name", "is_own"),
    [
        ("from lib.model import LlavaLlamaForCausalLM", "LlavaLlamaForCausalLM", True),
        ("from lib.model import *", "LlavaLlamaForCausalLM", True),
        ("import lib.model as m", "m.LlavaLlamaForCausalLM", True),
        ("class MineForCausalLM(transformers.LlamaForCausalLM): pass", "MineForCausalLM", True),
        ("", "transformers.LlamaForCausalLM", False),
        ("from transformers import *", "LlamaForCausalLM", False),
        ("from modelscope import AutoModelForCausalLM", "AutoModelForCausalLM", False),
    ],
)
def test_a_model_of_a_class_of_the_project_is_said(tmp_path: Path, line: str, name: str, *, is_own: bool) -> None:
    (tmp_path / "train.py").write_text(OWN_MODEL.format(line=line, name=name))
    (reading,) = read_configurations(str(tmp_path / "train.py"), named=True)
    (document, *_) = reading.documents
    told = [one.value for one in document.statements if one.fact == "program.unread_release"]
    last = name.rpartition(".")[2]
    assert told == ([last] if is_own else [])
    assert [gap.source.key for gap in document.gaps] == ([last] if is_own else [])


FIELDS = """
from dataclasses import dataclass
from transformers import HfArgumentParser, TrainingArguments
from .trainer import OwnTrainer

@dataclass
class OwnArguments(TrainingArguments):
    max_length: int = 20
    gradient_checkpointing: bool = True

(args,) = HfArgumentParser((OwnArguments,)).parse_args_into_dataclasses()
print(args.max_length)
OwnTrainer(args=args).train()
"""


@pytest.mark.parametrize(("trainer", "counts"), [("from transformers import Trainer as OwnTrainer", True), ("", False)])
def test_a_trainer_that_was_not_read_may_not_cut_by_lengths_of_fields(
    tmp_path: Path, trainer: str, *, counts: bool
) -> None:
    (tmp_path / "train.py").write_text(
        FIELDS.replace("from .trainer import OwnTrainer", trainer) if trainer else FIELDS
    )
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 2 train.py --bf16\n")
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    fields = [one for one in follow_references(reading.documents, open_rules(), {}) if one.of_fields]
    stated = {one.fact: one.value for document in fields for one in document.statements}
    doubtful = {one.fact: one.value for document in fields for one in document.doubtful}
    assert stated["training.gradient_checkpointing"] is True
    assert (stated if counts else doubtful)["training.sequence_length"] == 20
    assert "training.sequence_length" not in (doubtful if counts else stated)


LOOP = """
import argparse
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="gpt2")
parser.add_argument("--rows", type=int, default=1)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model)
accelerator = Accelerator(mixed_precision="bf16")
for batch in loader(args.rows):
    accelerator.backward(model(**batch).loss)
"""


def loop(root: Path, words: str, text: str = LOOP) -> tuple[Document, ...]:
    (root / "sft.py").write_text(text)
    (root / "run.sh").write_text(f"torchrun --nproc_per_node 2 sft.py {words}\n")
    (reading,) = read_configurations(str(root / "run.sh"), named=True)
    return follow_references(reading.documents, open_rules(), {})


def test_a_loop_of_its_own_is_no_trainer_whatever_its_options_are_called(tmp_path: Path) -> None:
    words = "--model gpt2 --weight_decay 0.1 --warmup_ratio 0.1 --gradient_checkpointing --lr_scheduler_type cosine"
    assert "hf_trainer" not in {one.reader for one in loop(tmp_path, words) if one.is_command}
    trained = LOOP.replace("accelerator.backward(model(**batch).loss)", "step(model)")
    trained += "\nfrom transformers import Trainer\nTrainer(model).train()\n"
    assert "hf_trainer" in {one.reader for one in loop(tmp_path, words, trained) if one.is_command}


@pytest.mark.parametrize(("words", "said"), [("--model gpt2", False), ("--model gpt2 --rows 4", True)])
def test_options_that_nothing_read_takes_are_not_passed_over(tmp_path: Path, words: str, *, said: bool) -> None:
    skipped = [entry for one in loop(tmp_path, words) if one.is_command for entry in one.skipped]
    assert any("whose options this release does not read" in entry.reason for entry in skipped) is said


def test_a_loop_of_its_own_says_its_optimizer_its_engines_and_what_it_loads_twice(tmp_path: Path) -> None:
    text = LOOP.replace(
        "accelerator = ",
        "reference = AutoModelForCausalLM.from_pretrained(args.model)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
        "engine = LLM(args.model, gpu_memory_utilization=0.3, max_model_len=args.rows)\naccelerator = ",
    )
    (script,) = [one for one in loop(tmp_path, "", f"import torch\nfrom vllm import LLM\n{text}") if one.own_loop]
    stated = {one.fact: one.value for one in script.statements}
    assert stated["training.optimizer"] == "adamw"
    assert (stated["rollout.engine"], stated["rollout.gpu_memory_utilization"]) == ("vllm", 0.3)
    assert stated["rollout.max_model_len"] == 1
    assert {"training.reference_model", "rollout.colocated"} <= {one.fact for one in script.unresolved}


def test_an_engine_that_a_script_of_a_trainer_starts_is_no_rollout(tmp_path: Path) -> None:
    text = FIELDS.replace(
        "from .trainer import OwnTrainer", "from transformers import Trainer as OwnTrainer\nfrom vllm import LLM"
    )
    documents = loop(tmp_path, "--bf16", f"{text}\nLLM('gpt2')\n")
    assert "rollout.engine" not in {one.fact for document in documents for one in document.statements}


ENGINE = """
import deepspeed
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2")
config = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": rows(), "bf16": {"enabled": True}}
engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
other, *_ = deepspeed.initialize(model=model, config={"bf16": {"enabled": True}})
engine.backward(engine(batch).loss)
"""


def test_a_configuration_of_deepspeed_that_is_written_out_is_read_as_far_as_it_is_told(tmp_path: Path) -> None:
    documents = loop(tmp_path, "", ENGINE)
    stated = {one.fact: one.value for document in documents for one in document.statements}
    assert (stated["training.zero_stage"], stated["training.mixed_precision"]) == (2, "bf16")
    assert "training.micro_batch_size" not in stated
    unresolved = {one.fact: one.key for document in documents for one in document.unresolved}
    assert unresolved["training.micro_batch_size"] == "deepspeed.train_micro_batch_size_per_gpu"


def test_constants_of_a_project_are_what_they_are_imported_from(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(
        "NAME = 'gpt2'\nMODEL = {'name': NAME, 'rows': 2 * 4}\nSEEN = open('x')\nSTEPS = 1\nSTEPS = 2\n"
    )
    text = """
from config import MODEL, SEEN, STEPS
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(MODEL["name"], max_memory=SEEN)
accelerator = Accelerator(gradient_accumulation_steps={steps})
accelerator.backward(model(batch).loss)
"""
    steps = {}
    for word in ("MODEL['rows']", "STEPS"):
        documents = loop(tmp_path, "", text.format(steps=word))
        assert ("model", "gpt2", "from_pretrained") in {one for document in documents for one in document.references}
        stated = {one.fact: one.value for document in documents for one in document.statements}
        steps[word] = stated.get("training.gradient_accumulation_steps")
    assert steps == {"MODEL['rows']": 8, "STEPS": None}
