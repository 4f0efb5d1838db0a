"""What a program composes its configuration from, by the decorator of Hydra."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.frameworks.python_script.composed import find_composed
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = (
    '@hydra.main(config_path="config", config_name="own_trainer", version_base=None)\ndef main(config): run(config)\n'
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PROGRAM, ("config", "own_trainer")),
        (PROGRAM.replace('"config"', "PLACE"), None),
        (PROGRAM + PROGRAM.replace("own", "other"), None),
        ("def main(config): run(config)\n", None),
        ("def (", None),
    ],
)
def test_literals_of_one_decorator_are_found(tmp_path: Path, text: str, found: tuple[str, str] | None) -> None:
    (tmp_path / "main.py").write_text(text, encoding="utf-8")
    assert find_composed(str(tmp_path / "main.py")) == found


def write(directory: Path, words: str = "") -> str:
    (directory / "recipe" / "own").mkdir(parents=True)
    (directory / "recipe" / "own" / "main_own.py").write_text(PROGRAM, encoding="utf-8")
    script = directory / "recipe" / "own" / "run.sh"
    script.write_text(
        f"python3 -m recipe.own.main_own actor_rollout_ref.model.path=m data.train_batch_size=8 {words}\n"
    )
    return str(script)


def test_a_command_without_a_configuration_has_that_of_its_program(tmp_path: Path) -> None:
    (reading,) = read_configurations(write(tmp_path), named=True)
    first = reading.documents[0]
    assert ("config", "config/own_trainer.yaml", "--config-name") in first.references
    assert first.gaps == ()


def test_a_configuration_that_adds_little_to_that_of_verl_is_one_of_verl(tmp_path: Path) -> None:
    script = write(tmp_path)
    file = tmp_path / "recipe" / "own" / "config" / "own_trainer.yaml"
    file.parent.mkdir()
    file.write_text("defaults: [ppo_trainer, _self_]\ndata: {gen_batch_size: 8}\ntrainer: {project_name: p}\n")
    (reading,) = read_configurations(script, named=True)
    followed = follow_references(reading.documents, open_rules(()), {})
    told = {entry.fact: entry.value for document in followed for entry in document.statements if entry.role == "actor"}
    assert told["training.sharding"] == "fsdp"
    assert [gap for document in followed for gap in document.gaps] == []


def test_a_command_that_names_one_keeps_it(tmp_path: Path) -> None:
    (reading,) = read_configurations(write(tmp_path, "--config-name=ppo_trainer"), named=True)
    assert [kind for kind, _, _ in reading.documents[0].references if kind == "config"] == []


def test_a_directory_is_relative_to_the_program_wherever_the_command_stands(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "recipe" / "own" / "config").mkdir()
    (tmp_path / "recipe" / "own" / "config" / "other_trainer.yaml").write_text("defaults: [ppo_trainer, _self_]\n")
    (tmp_path / "recipe" / "elsewhere").mkdir()
    script = tmp_path / "recipe" / "elsewhere" / "run.sh"
    for words in ("--config-path=config --config-name=other_trainer.yaml", "--config-name other_trainer"):
        script.write_text(f"python3 -m recipe.own.main_own {words} actor_rollout_ref.model.path=m\n")
        (reading,) = read_configurations(str(script), named=True)
        names = [name for kind, name, _ in reading.documents[0].references if kind == "config"]
        assert [name.partition("own/")[2] for name in names] == ["config/other_trainer.yaml"]
