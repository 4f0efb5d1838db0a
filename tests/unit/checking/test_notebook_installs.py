"""What the cells of a notebook install is its environment, with what its output says that it had."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.run_cli import run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TRAINS = """from trl import SFTConfig, SFTTrainer
args = SFTConfig(per_device_train_batch_size=2, max_length=2048, bf16=True)
SFTTrainer(model="Qwen/Qwen2.5-7B", args=args, train_dataset=data).train()
"""


def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installs: str, output: str = "") -> dict[str, str]:
    def cell(text: str) -> dict[str, object]:
        outputs = [{"output_type": "stream", "text": output.splitlines(keepends=True)}] if text is TRAINS else []
        return {"cell_type": "code", "outputs": outputs, "source": text.splitlines(keepends=True)}

    notebook = {"cells": [cell(installs), cell(TRAINS)], "nbformat": 4, "metadata": {}}
    (tmp_path / "n.ipynb").write_text(json.dumps(notebook, indent=1), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = run("facts", "n.ipynb", "--format", "json")
    assert done.code == 0, done.err
    (subject,) = json.loads(done.out)["subjects"]
    return {one["name"]: one["version"] for one in subject["packages"]}


def test_pins_of_cells_are_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = "if old:\n    !pip install accelerate==1.0.0\n!pip install -q trl==0.22.2 peft\n%pip install transformers==4.56.2\n"
    assert packages(tmp_path, monkeypatch, cells) == {
        "accelerate": "1.0.0", "trl": "0.22.2", "peft": "", "transformers": "4.56.2",
    }  # fmt: skip


def test_an_output_says_what_was_there_and_a_pin_what_the_next_run_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    banner = "==((====))==  Unsloth 2025.9.1: Fast Qwen2 patching. Transformers: 4.55.4.\n   \\\\   /|    Tesla T4\n"
    found = packages(tmp_path, monkeypatch, "!pip install trl==0.22.2 unsloth transformers\n", banner)
    assert (found["transformers"], found["trl"], found["unsloth"]) == ("4.55.4", "0.22.2", "2025.9.1")
    found = packages(tmp_path, monkeypatch, "!pip install transformers==4.56.2\n", banner)
    assert found == {"transformers": "4.56.2"}
    said = " ".join(run("check", "n.ipynb").out.split())
    assert (
        "transformers 4.55.4 is in the recorded output, and the cells install 4.56.2: the releases of the output are"
        in said
    )


def test_what_python_fills_in_is_said_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages(tmp_path, monkeypatch, "!pip install {xformers} trl==0.22.2\n") == {"trl": "0.22.2"}
    said = run("check", "n.ipynb")
    assert "'$xformers' holds something that is known only where it runs" in " ".join(said.out.split())
    assert said.code in {0, 1}
