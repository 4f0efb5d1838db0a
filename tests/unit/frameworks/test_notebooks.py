"""Notebooks that a person names, or that are only found: what they train themselves, start or write is read or said."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL
from compatcheck.frameworks.recognise import find_unread_launch, read_configurations
from tests.unit.frameworks.launch_script.test_unread_launches import notebook

TRAINS = """from transformers import Trainer, TrainingArguments
Trainer(model=m, args=TrainingArguments(output_dir="o", per_device_train_batch_size=4)).train()
"""
STARTS = {
    "!torchrun --nproc_per_node 8 train.py --lr 1\n": "starts a training in a way that is not read: train.py",
    "import subprocess\nsubprocess.run(['torchrun', 'train.py', '--lr', '1'])\n": (
        "starts a training in a way that is not read: train.py"
    ),
    **{
        f"%%{head}\n{TRAINS}": "writes train.py, which trains and is not read"
        for head in ("writefile train.py", "file train.py", "writefile --append 'train.py'", 'file -a "train.py"')
    },
}


@pytest.mark.parametrize("cell", STARTS)
@pytest.mark.parametrize("trains", [True, False])
def test_what_a_notebook_starts_is_said(tmp_path: Path, cell: str, trains: bool) -> None:  # noqa: FBT001
    path = tmp_path / "a.ipynb"
    path.write_text(notebook(TRAINS if trains else "x = 1\n", cell))
    found = find_unread_launch(str(path), LOCAL)
    assert found is not None
    assert found.reason == STARTS[cell]
    if not trains:
        with pytest.raises(InputError, match=STARTS[cell]):
            read_configurations(str(path), named=True)
        return
    (reading,) = read_configurations(str(path), named=True)
    assert [skip.reason for document in reading.documents for skip in document.skipped] == [STARTS[cell]]
    assert any(one.fact == "training.micro_batch_size" for document in reading.documents for one in document.statements)


@pytest.mark.parametrize(
    "cell", ["%%writefile data.py\nx = 1\n", "%%file 'data.py'\nx = 1\n", "print(1)\n", "!pip install torch\n"]
)
def test_what_starts_nothing_is_not_said(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(notebook(cell))
    assert find_unread_launch(str(path), LOCAL) is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_script_of_windows_is_looked_through_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.ps1"
    path.write_bytes("# \xe4\r\ntorchrun --nproc_per_node 8 train.py --lr 1\r\n".encode(encoding))
    found = find_unread_launch(str(path), LOCAL)
    assert found is not None
    assert found.source.line == 2
