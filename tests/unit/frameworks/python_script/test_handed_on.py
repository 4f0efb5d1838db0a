"""Scripts that only start a function of a module beside them, as LLaVA's and FastChat's ``train_mem.py`` do."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from compatcheck.frameworks.python_script import read as python_script
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.document import Document

TRAIN = """
import transformers
from dataclasses import dataclass, field
from peft import LoraConfig, get_peft_model

@dataclass
class TrainingArguments(transformers.TrainingArguments):
    lora_r: int = 64

def train(attn_implementation=None, dtype="auto"):
    parser = transformers.HfArgumentParser((TrainingArguments,))
    (training_args,) = parser.parse_args_into_dataclasses()
    model = transformers.LlamaForCausalLM.from_pretrained(
        "meta-llama/Llama-3.1-8B", attn_implementation=attn_implementation, torch_dtype=dtype
    )
    model = get_peft_model(model, LoraConfig(r=training_args.lora_r, target_modules=["q_proj", "o_proj"]))
    transformers.Trainer(model=model, args=training_args).train()

if __name__ == "__main__":
    train("eager")
"""


def write(root: Path, script: str, train: str = TRAIN) -> Path:
    folder = root / "llava" / "train"
    folder.mkdir(parents=True)
    (root / ".git").mkdir()
    (folder / "train.py").write_text(train)
    (folder / "train_mem.py").write_text(script)
    launch = root / "scripts" / "run.sh"
    launch.parent.mkdir()
    launch.write_text("torchrun --nproc_per_node 2 llava/train/train_mem.py --bf16 True --output_dir o\n")
    return launch


def follow(launch: Path) -> tuple[Document, ...]:
    (reading,) = read_configurations(str(launch), named=True)
    return follow_references(reading.documents, open_rules(), {})


def state(documents: tuple[Document, ...]) -> dict[str | None, object]:
    return {one.fact: one.value for document in documents for one in document.statements}


@pytest.mark.parametrize(
    "script",
    [
        'from llava.train.train import train\nif __name__ == "__main__":\n    train(attn_implementation="sdpa")\n',
        'import sys\nfrom .train import train as start\nsys.exit(start("sdpa"))\n',
        'import llava.train.train\nHOW = "sdpa"\nllava.train.train.train(HOW)\n',
        'from train import train\nresult = train("sdpa", dtype="auto")\n',
    ],
)
def test_what_the_module_does_is_read_as_the_script_calls_it(tmp_path: Path, script: str) -> None:
    documents = follow(write(tmp_path, script))
    facts = state(documents)
    assert facts["training.lora_target_modules"] == ("o_proj", "q_proj")
    assert facts["training.lora_rank"] == 64
    assert (
        facts["model.attn_implementation"] == "sdpa"
    )  # as given, and not what the module gives where it is the script
    assert facts["model.name"] == "meta-llama/Llama-3.1-8B"
    assert not any(gap.source.path.endswith("train_mem.py") for one in documents for gap in one.gaps)


def test_what_the_script_patches_before_stays_said(tmp_path: Path) -> None:
    """FastChat's patches the attention of Llama, in a module of its own."""
    patches = "from llava.train.patch import replace_attn\nreplace_attn()\n"
    documents = follow(write(tmp_path, f"{patches}from llava.train.train import train\ntrain()\n"))
    (gap,) = (gap for one in documents for gap in one.gaps if gap.source.path.endswith("train_mem.py"))
    assert gap.source.line == 2
    assert gap.facts is not None
    assert "model.attn_implementation" in gap.facts


def test_a_parameter_given_no_literal_or_called_twice_is_not_told(tmp_path: Path) -> None:
    script = "import os\nfrom train import train\ntrain(os.environ['ATTN'])\n"
    documents = follow(write(tmp_path / "a", script))
    assert "model.attn_implementation" in {one.fact for document in documents for one in document.unresolved}
    twice = TRAIN.replace('    train("eager")', '    train("eager")\nelse:\n    pass\ndef other():\n    train("eager")')
    facts = state(follow(write(tmp_path / "b", "from train import train\ntrain('sdpa')\n", twice)))
    assert "model.attn_implementation" not in facts


def test_a_module_that_is_not_here_or_trains_nothing_says_nothing(tmp_path: Path) -> None:
    launch = write(
        tmp_path, "from elsewhere import train\nfrom train import setup\ntrain()\nsetup()\n", "def setup(): ...\n"
    )
    script = launch.parent.parent / "llava" / "train" / "train_mem.py"
    assert python_script.read(str(script), named=False) == ()


def test_all_that_is_called_of_a_module_counts(tmp_path: Path) -> None:
    """Whichever function of it comes first: a script sets up its logs before it trains."""
    module = f"{TRAIN}\ndef prepare(level): ...\n"
    documents = follow(write(tmp_path, "from train import prepare, train\nprepare(1)\ntrain('sdpa')\n", module))
    assert state(documents)["model.attn_implementation"] == "sdpa"
    assert not any(gap.source.path.endswith("train_mem.py") for one in documents for gap in one.gaps)


def test_a_module_is_read_once_however_often_and_by_whatever_name_it_is_called(tmp_path: Path) -> None:
    script = "from train import f\nfrom same import f as g\n" + "f()\ng()\n" * 50
    launch = write(tmp_path, script, "def f(): ...\n")
    folder = launch.parent.parent / "llava" / "train"
    (folder / "same.py").symlink_to("train.py")
    with patch.object(python_script, "read_source", wraps=python_script.read_source) as reads:
        assert python_script.read(str(folder / "train_mem.py"), named=False) == ()
    assert reads.call_count == 2
