"""Fields of the model's configuration that a script lays over config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.frameworks.python_script.read import read
from tests.unit.frameworks.stated_facts import facts

if TYPE_CHECKING:
    from pathlib import Path

TRAINS = "Trainer(model=m, args=TrainingArguments(output_dir='o'), train_dataset=ds).train()\n"
LOADS = "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-30B-A3B'"
FACT = "model.output_router_logits"


def take(body: str, tmp_path: Path) -> tuple[dict[str, object], set[str | None]]:
    path = tmp_path / "train.py"
    path.write_text(
        "from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments\n" + body + TRAINS
    )
    documents = read(str(path))
    unresolved = {one.fact for document in documents for one in document.unresolved}
    return {name: value for document in documents for name, value in facts(document).items()}, unresolved


@pytest.mark.parametrize(
    "body",
    [
        f"{LOADS}, output_router_logits=True)\n",
        f"{LOADS})\nm.config.output_router_logits = True\n",
        f"{LOADS})\nm.config.update({{'output_router_logits': True}})\n",
        f"{LOADS})\nm.config.text_config.output_router_logits = True\n",
        f"{LOADS}, output_router_logits=False)\nm.config.output_router_logits = True\n",
        f"c = AutoConfig.from_pretrained('x', output_router_logits=True)\n{LOADS}, config=c)\n",
        f"config = AutoConfig.from_pretrained('x')\nconfig.output_router_logits = True\n{LOADS}, config=config)\n",
        f"{LOADS})\nconfig = m.config\nconfig.output_router_logits = True\nconfig.output_router_logits = False\n",
    ],
)
def test_what_is_laid_over_config_json_counts(body: str, tmp_path: Path) -> None:
    stated, unresolved = take(body, tmp_path)
    assert stated.get(FACT) is True
    assert FACT not in unresolved


@pytest.mark.parametrize(
    "body",
    [
        f"{LOADS}, **more())\n",
        f"{LOADS})\nif some():\n    m.config.output_router_logits = True\n",
        f"{LOADS}, output_router_logits=False)\nif some():\n    m.config.output_router_logits = True\n",
    ],
)
def test_what_may_be_laid_over_it_is_left_open(body: str, tmp_path: Path) -> None:
    stated, unresolved = take(body, tmp_path)
    assert FACT not in stated
    assert FACT in unresolved


def test_settings_for_generation_are_not_the_models(tmp_path: Path) -> None:
    stated, _ = take(f"{LOADS})\nm.generation_config.use_cache = True\n", tmp_path)
    assert "model.use_cache" not in stated


def test_another_size_leaves_the_count_open(tmp_path: Path) -> None:
    stated, unresolved = take(f"{LOADS}, num_hidden_layers=2)\n", tmp_path)
    assert stated["model.num_hidden_layers"] == 2
    assert {"model.parameters", "model.parameters_in_blocks"} <= unresolved
