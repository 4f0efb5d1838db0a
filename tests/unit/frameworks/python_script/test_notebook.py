"""Notebooks: their cells as one script, each line where it stands in the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL
from compatcheck.frameworks.python_script.notebook import find_installs, read_source
from compatcheck.frameworks.recognise import read_configurations
from tests.unit.frameworks.stated_facts import facts

if TYPE_CHECKING:
    from pathlib import Path

CODE = """%%capture
!pip install "trl" \\
    'ünits'
files = !ls
from trl import SFTConfig, SFTTrainer
if True:
    %matplotlib inline
arguments = SFTConfig(
    per_device_train_batch_size = 3,
    gradient_checkpointing = True,
)
SFTTrainer(model="Qwen/Qwen3-0.6B", args=arguments).train()
"""


def write(directory: Path, *cells: dict[str, object], indent: int | None = 1) -> str:
    path = directory / "n.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}, indent=indent), encoding="utf-8")
    return str(path)


def code(text: str) -> dict[str, object]:
    return {"cell_type": "code", "outputs": [{"text": ["arguments = 1\n"]}], "source": text.splitlines(keepends=True)}


@pytest.mark.parametrize("indent", [1, None])
def test_cells_are_read_as_a_script(tmp_path: Path, indent: int | None) -> None:
    cells = ({"cell_type": "markdown", "source": ["SFTConfig(per_device_train_batch_size=64)\n"]}, code(CODE))
    path = write(tmp_path, *cells, code("%%bash\nrm -rf x\n"), {"cell_type": "raw"}, indent=indent)
    (reading,) = read_configurations(path, named=True)
    (document,) = reading.documents
    assert {"training.micro_batch_size": 3, "training.gradient_checkpointing": True}.items() <= facts(document).items()
    if indent:
        (line,) = {
            entry.value: document.place(entry.key).line for entry in document.statements if entry.value == 3
        }.values()
        assert "per_device_train_batch_size = 3" in (tmp_path / "n.ipynb").read_text().splitlines()[(line or 0) - 1]


def test_what_ipython_alone_takes_is_left_out(tmp_path: Path) -> None:
    lines = read_source(write(tmp_path, code(CODE)), LOCAL).splitlines()
    first, command, assigned, *others = [line for line in lines if line][:6]
    assert [first, *others] == ["pass", "from trl import SFTConfig, SFTTrainer", "if True:", "    pass"]
    assert command.startswith("get_ipython().system(")  # what is handed to a shell
    assert assigned.startswith("files =get_ipython().system(")


@pytest.mark.parametrize("text", ["[]", "{}", '{"cells": 1}'])
def test_another_form_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "n.ipynb").write_text(text)
    with pytest.raises(InputError, match="no notebook that can be read"):
        read_source(str(tmp_path / "n.ipynb"), LOCAL)


def test_installing_lines_of_cells_are_found_with_their_lines(tmp_path: Path) -> None:
    cells = (
        code(
            "%%capture\nimport os\nif 'COLAB_' in os.environ:\n    !pip install unsloth\n!pip install \\\n  trl==0.22.2\n"
        ),
        code("# !pip install a\nx = 'pip install b'\n%pip install -q c\n!uv pip uninstall d\n!pip list\n"),
        code("%%writefile setup.sh\n!pip install e\n"),
    )
    path = write(tmp_path, *cells)
    text = (tmp_path / "n.ipynb").read_text("utf-8")
    found = list(find_installs(path, text))
    assert [command for _, command in found] == [
        "    pip install unsloth",
        "pip install   trl==0.22.2",
        "pip install -q c",
        "uv pip uninstall d",
    ]
    assert ["pip install \\" in text.splitlines()[line - 1] for line, _ in found] == [False, True, False, False]
