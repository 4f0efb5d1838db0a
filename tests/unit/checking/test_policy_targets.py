"""Targets in a policy: the machines something will run on, and errors that name file, line, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.checking.policy import Policy, read_policy
from compatcheck.core.errors import UsageError


def _read(directory: Path, text: str, name: str = "compatcheck.toml") -> Policy:
    path = directory / name
    path.write_text(text)
    policy = read_policy(str(path))
    assert policy is not None
    return policy


def test_one_target_has_no_name(tmp_path: Path) -> None:
    policy = _read(tmp_path, '[target]\ngpu = "8xH100-80GB"\ndriver = "550.54.15"\nnodes = 2\n')
    (target,) = policy.targets
    assert (target.name, target.gpu, target.driver, target.nodes) == (None, "8xH100-80GB", "550.54.15", 2)
    assert target.sources["driver"].line == 3
    assert target.sources["gpu"].key == "target.gpu"


def test_a_list_of_devices_is_one_target_each(tmp_path: Path) -> None:
    policy = _read(
        tmp_path, '[tool.compatcheck.target]\ngpu = ["A100-80GB", "H100-80GB"]\ndriver = "550.1"\n', "pyproject.toml"
    )
    assert [(target.name, target.driver) for target in policy.targets] == [
        ("A100-80GB", "550.1"),
        ("H100-80GB", "550.1"),
    ]


def test_named_targets_keep_their_own_drivers(tmp_path: Path) -> None:
    text = '[targets.old]\ngpu = "A100-80GB"\ndriver = "535.1"\n[targets.new]\ngpu = "H100-80GB"\ndriver = "580.1"\n'
    assert [(target.name, target.driver) for target in _read(tmp_path, text).targets] == [
        ("old", "535.1"),
        ("new", "580.1"),
    ]


def test_a_run_may_be_for_some_targets(tmp_path: Path) -> None:
    text = '[targets.a]\ngpu = "A100-80GB"\n[targets.b]\ngpu = "H100-80GB"\n[runs.r]\npaths = "x"\ntarget = "b"\n'
    assert _read(tmp_path, text).runs[0].targets == ("b",)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[target]\ngpus = "A100"\n', 2, "did you mean 'gpu'"),
        ("[target]\ndriver = 550\n", 2, "expected a string"),
        ('[target]\ngpu = "A100-80GB"\nnodes = 0\n', 3, "at least 1"),
        ("[target]\n", 1, "gpu, nodes, driver"),
        ("[target]\ngpu = []\n", 2, "gpu, nodes, driver"),
        ('[target]\ngpu = ["A", "A"]\n', 2, "list each once"),
        ('[target]\ngpu = "A"\n[targets.b]\ngpu = "B"\n', 1, "[targets.NAME]"),
        ("[targets]\n", 1, "[targets.NAME]"),
        ('[targets.a]\ngpu = "A"\n[runs.r]\npaths = "x"\ntarget = "c"\n', 5, "targets: a"),
        ('[runs.r]\npaths = "x"\ntarget = "c"\n', 3, "[targets.c]"),
    ],
)
def test_what_makes_no_sense_is_said_with_its_place(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        _read(tmp_path, text)
    source = caught.value.source
    assert source is not None
    assert source.line == line
    assert words in (caught.value.hint or "")
