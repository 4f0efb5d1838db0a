"""What a Python script gives its Trainer and nobody can tell leaves open what it may set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.frameworks.python_script import read as python_script

if TYPE_CHECKING:
    from pathlib import Path


def test_further_arguments_and_adapters_that_nobody_can_tell(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    call = "SFTConfig(output_dir='x', per_device_train_batch_size=8, **json.load(open('a.json')))"
    trainer = f"SFTTrainer(model='m', args={call}, peft_config=mk())"
    path.write_text(f"import json\nfrom trl import SFTConfig, SFTTrainer\n{trainer}\n", encoding="utf-8")
    document = python_script.read(str(path))[0]
    assert [gap.key for gap in document.gaps] == [None]
    assert "training.peft" in {one.fact for one in document.unresolved}
