from pathlib import Path

import pytest

from compatcheck.frameworks.python_script.environ import find_variables
from compatcheck.frameworks.recognise import read_configurations


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('os.environ["A"] = "1"', {"A": "1", "B": "given"}),
        ('environ["A"] = "1"', {"A": "1", "B": "given"}),
        ('os.environ["B"] = "1"', {"B": "1"}),
        ('os.environ.setdefault("B", "1")', {"B": "given"}),
        ('os.environ.setdefault("A", "1")', {"A": "1", "B": "given"}),
        ('if x:\n    os.environ["A"] = "1"', {"B": "given"}),
        ('os.environ["A"] = value', {"B": "given"}),
        ('settings["A"] = "1"  # os.environ', {"B": "given"}),
        ("os.environ[", {"B": "given"}),
    ],
)
def test_a_script_sets_variables_of_its_own(line: str, found: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import os\n{line}\n")
    assert find_variables(str(script), {"B": "given"}) == found


TRAINING = (
    'import os\nos.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"\n'
    "from transformers import Trainer, TrainingArguments\n"
    'Trainer("Qwen/Qwen3-8B", TrainingArguments("out")).train()\n'
)


@pytest.mark.parametrize("named", ["train.py", "run.sh"])
def test_they_are_those_of_the_run_by_itself_and_where_a_command_starts_it(named: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "run.sh").write_text("export OTHER=1\npython train.py\n")
    (reading,) = read_configurations(str(tmp_path / named), named=True)
    assert reading.variables["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
