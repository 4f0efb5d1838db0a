"""What is collected of a node: releases, variables, the code of editable installations, the files of the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.checking.request import Request
from compatcheck.core.node import Node, read_line, write_line
from compatcheck.fleet import dump
from compatcheck.fleet.dump import describe_node, digest_tree, name_node
from compatcheck.rules.locate import open_rules


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    info = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "verl-0.6.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.6.0\n")
    url = {"url": f"file://{tmp_path}/verl", "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(url))
    (tmp_path / "verl" / "verl").mkdir(parents=True)
    (tmp_path / "verl" / "verl" / "trainer.py").write_text("step = 1\n")
    return tmp_path / "env"


def collect(prefix: Path, **more: object) -> Node:
    environ = {"SLURMD_NODENAME": "node7", "NCCL_ALGO": "Ring", "SECRET": "x"}
    return describe_node(Request(prefix=str(prefix), **more), open_rules(()), environ)  # type: ignore[arg-type]


def test_code_counts_and_data_does_not(prefix: Path):
    before = collect(prefix)
    assert (before.name, before.environment.variables) == ("node7", {"NCCL_ALGO": "Ring"})
    assert read_line(write_line(before)) == before
    source = prefix.parent / "verl"
    (source / "verl" / "__pycache__").mkdir()
    for name in ("checkpoint.bin", "verl/__pycache__/trainer.py", ".hidden.txt"):
        (source / name).write_text("data")
    assert collect(prefix).editable == before.editable
    (source / "verl" / "trainer.py").write_text("step = 2\n")
    assert collect(prefix).editable["verl"].keys() == {"verl/trainer.py"}
    assert collect(prefix).editable != before.editable


def test_a_tree_that_is_gone_or_too_large_is_said(prefix: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dump, "MOST_FILES", 0)
    assert "more than 0 files" in str(collect(prefix).environment.skipped[0])
    (prefix.parent / "verl").rename(prefix.parent / "moved")
    node = collect(prefix)
    assert node.editable == {}
    assert "could not be read" in str(node.environment.skipped[0])


def test_files_of_the_run_are_told_by_their_content_and_missing_ones_too(prefix: Path, tmp_path: Path):
    training, missing = tmp_path / "ds.json", tmp_path / "none.json"
    training.write_text('{"zero_optimization": {"stage": 3}}')
    node = collect(prefix, training=(str(training), str(missing)))
    assert node.configuration.keys() == {str(training), str(missing)}
    assert node.configuration[str(missing)] is None
    training.write_text('{"zero_optimization": {"stage": 2}}')
    assert collect(prefix, training=(str(training),)).configuration[str(training)] != node.configuration[str(training)]


def test_a_tree_is_read_in_one_order(tmp_path: Path):
    for name in ("b.py", "a.py", "c/d.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert list(digest_tree(str(tmp_path))) == ["a.py", "b.py", "c/d.so"]


def test_a_node_is_called_as_its_scheduler_does():
    assert name_node({"SLURMD_NODENAME": "", "NODE_NAME": "gke-1"}) == "gke-1"
    assert name_node({})
