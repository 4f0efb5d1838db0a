"""A training configuration inside an image reads as it does on disk, with the files it names."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.frameworks.lines import LineFinder
from compatcheck.frameworks.recognise import Reading, follow_references, read_configurations
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.unit.collectors.image.trees import make_tree

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.document import Document
    from compatcheck.core.source import Source

CONFIGS = ROOT / "fixtures/configs"


LAUNCH = """#SBATCH --nodes=2
torchrun --nproc-per-node 8 train.py --deepspeed zero3.json --model_name_or_path model --bf16 True --output_dir out
"""
SCRIPT = 'from transformers import TrainingArguments\nTrainingArguments("out", gradient_checkpointing=True)\n'


def _read(path: str, files: Files) -> tuple[Reading, ...] | str:
    try:
        readings = read_configurations(path, files, named=True)
        return tuple(  # the functions of a key table compare by identity
            reading._replace(documents=tuple(one._replace(table={}) for one in reading.documents))
            for reading in readings
        )
    except InputError as error:
        return str(error)


def _follow(readings: tuple[Reading, ...] | str, files: Files, rules: RuleSet) -> tuple[Document, ...]:
    documents = () if isinstance(readings, str) else tuple(one for reading in readings for one in reading.documents)
    followed = follow_references(documents, rules, {}, files)
    return tuple(one._replace(table={}) for one in followed)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy = tmp_path / "project"
    shutil.copytree(CONFIGS, copy)
    shutil.copy(CONFIGS / "axolotl/zero3.json", copy)
    (copy / "train.sh").write_text(LAUNCH)
    (copy / "train.py").write_text(SCRIPT)
    (copy / "facts.yaml").write_text("compatcheck: 1\ntraining: {zero_stage: 3}\n")
    (copy / "model").mkdir(exist_ok=True)
    (copy / "model/config.json").write_text('{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}')
    return copy


def test_a_configuration_reads_the_same_inside_an_image(project: Path) -> None:
    paths = sorted(
        str(path) for path in project.rglob("*") if path.suffix in {".json", ".yaml", ".yml", ".hjson", ".sh"}
    )
    on_disk = {path: _read(path, LOCAL) for path in paths}
    rules = open_rules()
    followed = {path: _follow(on_disk[path], LOCAL, rules) for path in paths}
    lines = LineFinder()
    places = [lines.with_line(source) for source in _sources(followed)]
    tree = make_tree({str(path): path.read_bytes() for path in project.rglob("*") if path.is_file()})
    shutil.rmtree(project)
    for path in paths:
        assert _read(path, tree) == on_disk[path]
        assert _follow(on_disk[path], tree, rules) == followed[path]
    lines = LineFinder(tree)
    assert [lines.with_line(source) for source in _sources(followed)] == places
    assert len({document.reader for documents in followed.values() for document in documents}) >= 12
    assert sum(place.line is not None for place in places) > 100


def _sources(followed: dict[str, tuple[Document, ...]]) -> list[Source]:
    return [
        document.place(statement.key)
        for documents in followed.values()
        for document in documents
        for statement in document.statements
    ]


def test_a_notebook_that_trains_nothing_is_said(tmp_path: Path) -> None:
    path = tmp_path / "my run.ipynb"
    path.write_text('{"cells": [], "nbformat": 4}', "utf-8")
    with pytest.raises(InputError, match="starts no training"):
        list(read_configurations(str(path), LOCAL, named=True))


def test_a_script_that_only_loads_a_model_is_no_run_beside_one_that_trains(tmp_path: Path) -> None:
    (tmp_path / "convert.py").write_text(
        "from transformers import AutoModelForCausalLM\n"
        "AutoModelForCausalLM.from_pretrained('gpt2').save_pretrained('out')\n"
    )
    (tmp_path / "prepare.py").write_text("train = load()['train']\nprint(train.map(len))\n")
    script = tmp_path / "run.sh"
    script.write_text(
        'eval "$(conda shell.bash hook)"\npython convert.py\npython prepare.py\n'
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=gpt2\n"
    )
    (reading,) = read_configurations(str(script), named=True)
    assert reading.documents[0].reader == "verl"


_GKD = "from trl import GKDConfig, GKDTrainer\nfrom transformers import AutoModelForCausalLM\n"
_TEACHERS = {
    "t.py": _GKD + "teacher = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-14B')\n"
    "GKDTrainer('Qwen/Qwen2.5-7B', teacher_model=teacher, args=GKDConfig('o')).train()\n",
    "u.py": _GKD + "args = GKDConfig('o', teacher_model_name_or_path='Qwen/Qwen2.5-14B')\n"
    "GKDTrainer('Qwen/Qwen2.5-7B', teacher_model=args.teacher_model_name_or_path, args=args).train()\n",
    "v.py": _GKD + "GKDTrainer('Qwen/Qwen2.5-7B', teacher_model='Qwen/Qwen2.5-14B', args=GKDConfig('o')).train()\n",
    "s.sh": "swift rlhf --rlhf_type gkd --model Qwen/Qwen2.5-7B --teacher_model Qwen/Qwen2.5-14B --max_length 1024\n",
}


def _teacher(name: str, text: str, directory: Path, of: str = "parameters") -> list[object]:
    (directory / name).write_text(text)
    readings = read_configurations(str(directory / name), LOCAL, named=True)
    documents = follow_references(
        tuple(one for reading in readings for one in reading.documents), open_rules(), {}, LOCAL
    )
    return [one.value for found in documents for one in found.statements if one.fact == f"training.teacher_{of}"]


@pytest.mark.parametrize("name", _TEACHERS)
def test_a_teacher_is_counted_beside_the_student(name: str, tmp_path: Path) -> None:
    assert _teacher(name, _TEACHERS[name], tmp_path) == [14_770_033_664]
    assert _teacher(name, _TEACHERS[name], tmp_path, "hidden_size") == [5120]
    assert _teacher(name, _TEACHERS[name], tmp_path, "num_hidden_layers") == [48]


@pytest.mark.parametrize("word", ["--teacher_deepspeed zero3", "--offload_teacher_model true"])
def test_a_teacher_that_is_sharded_or_waits_by_itself_is_left_open(word: str, tmp_path: Path) -> None:
    assert _teacher("s.sh", _TEACHERS["s.sh"].replace("--max", f"{word} --max"), tmp_path) == []
