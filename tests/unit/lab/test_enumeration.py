"""Runs of every option that configuration classes declare."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compatcheck.lab import enumeration
from compatcheck.lab.enumeration import EXCLUDED, KINDS, Kind, enumerate_runs
from compatcheck.lab.measurement import Measurement, PhaseMemory
from compatcheck.lab.pairwise import join_pairs
from compatcheck.lab.probes.runner import Task

BASE = "from dataclasses import dataclass\n@dataclass\nclass Base:\n    inherited: bool = False\n"
CLASSES = """
from __future__ import annotations
import enum
from dataclasses import dataclass, field
from typing import Literal, Optional, Union
import base_package

class Kind(enum.Enum):
    ONE = "one"
    TWO = "two"

@dataclass
class Config(base_package.Base):
    flag: bool = True
    maybe: Optional[bool] = None
    count: int = 1
    none: int | None = None
    share: float = 0.0
    size: int = 512
    text: str = "x"
    kind: Union[Kind, str] = "one"
    literal: Literal["a", "b"] = "a"
    stated: str = field(default="p", metadata={"choices": ["p", "q"]})
    table: dict = field(default_factory=dict)
    unknown: NotThere = None
"""


def test_a_class_is_asked_for_the_fields_of_its_own_package_and_values_other_than_the_default(tmp_path: Path) -> None:
    (tmp_path / "base_package.py").write_text(BASE)
    (tmp_path / "config_package.py").write_text(CLASSES)
    script = Path(enumeration.__file__).with_name("probes") / "worker" / "fields.py"
    name = "config_package:Nothing,config_package:Config"
    command = [sys.executable, str(script), name, "not_there:Config"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        name: {
            "flag": [False],
            "maybe": [False, True],
            "count": [2],
            "none": [2],
            "share": [0.1],
            "size": [],
            "text": [],
            "kind": ["two"],
            "literal": ["b"],
            "stated": ["q"],
            "table": [],
            "unknown": [],
        },
        "not_there:Config": {},
    }


def test_every_wanted_pair_stands_together_in_few_groups_and_a_name_once() -> None:
    values = [(f"n{index}", value) for index in range(8) for value in (1, 2)]
    groups = join_pairs(values, lambda one, other: one[1] == 2 or other[1] == 2, most=4)
    assert all(len({name for name, _ in group}) == len(group) <= 4 for group in groups)
    found = {pair for group in groups for pair in combinations(group, 2)}
    wanted = {(a, b) for a, b in combinations(values, 2) if a[0] != b[0] and 2 in (a[1], b[1])}
    assert wanted <= found
    assert len(groups) < len(wanted) / 3


class Laboratory:
    """Has releases whose runs take as many bytes as their options say."""

    package = "trl"

    def __init__(self, takes: dict[str, float | None]) -> None:
        self.takes = takes
        self.asked: list[str] = []

    def interpreter(self, version: str) -> SimpleNamespace:
        return SimpleNamespace(version=version)

    def measure(self, version: str, tasks: list[Task]) -> list[Measurement]:
        self.asked.append(version)
        return [self._measure(task) for task in tasks]

    def _measure(self, task: Task) -> Measurement:
        takes = [self.takes.get(one, 0.0) for one in task.parameters["options"].split("+")]
        fails = None in takes
        peak = int(1e6 + sum(one or 0.0 for one in takes))
        phase = PhaseMemory(name="forward", peak_allocated_bytes=peak, live_bytes=0)
        return Measurement(
            probe=task.probe.name,
            probe_hash=task.hash,
            backend="cpu",
            accounting="allocator",
            parameters=dict(task.parameters),
            versions={},
            device="x86_64 CPU",
            status="failed" if fails else "ok",
            reason="ValueError" if fails else None,
            phases=() if fails else (phase,),
        )


def test_pairs_are_of_what_runs_alone_and_tells_and_a_new_option_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind("trl:SFTConfig", {"trainer": "sft"})
    older: dict[str, list[Any]] = {
        "packing": [True],
        "loss_type": ["dft"],
        "quiet": [True],
        "still": [True],
        "fails": [True],
    }
    newer = {**older, "loss_type": ["dft", "chunked"], "fresh": [True], "hub_token": [True]}
    monkeypatch.setattr(enumeration, "KINDS", {"trl": (kind,)})
    monkeypatch.setattr(
        enumeration,
        "read_fields",
        lambda interpreter, _kinds: {kind.classes: older if interpreter.version == "1.0" else newer},
    )
    laboratory: Any = Laboratory({"packing:true": 1e5, "fails:true": None})
    found = enumerate_runs(laboratory, "1.0", "2.0", "cpu")
    assert found.new == ("SFTConfig.loss_type=chunked", "SFTConfig.fresh=true")
    assert [one.parameters["options"] for one in found.failed] == ["fails:true"]
    told = [task.parameters["options"] for task in found.tasks]
    assert told[:5] == ["", "packing:true", "loss_type:dft", "quiet:true", "still:true"]
    assert told[5:] == ["packing:true+loss_type:dft+quiet:true+still:true"], (
        "of those that tell nothing no pair is wanted"
    )
    assert laboratory.asked == ["2.0"]


def test_a_class_that_the_older_release_has_not_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind("trl:SFTConfig", {"trainer": "sft"})
    monkeypatch.setattr(enumeration, "KINDS", {"trl": (kind,)})
    fields = {"1.0": {}, "2.0": {kind.classes: {"packing": [True]}}}
    monkeypatch.setattr(enumeration, "read_fields", lambda interpreter, _kinds: fields[interpreter.version])
    laboratory: Any = Laboratory({})
    found = enumerate_runs(laboratory, "1.0", "2.0", "cpu")
    assert found.new == ("SFTConfig",)
    assert not found.tasks


def test_options_go_where_the_probe_takes_them() -> None:
    adapter, zero = KINDS["peft"][0], KINDS["deepspeed"][0]
    assert (
        enumeration._task(adapter, (("use_dora", True), ("r", 2)), "cpu").parameters["adapter"]
        == "lora+use_dora:true+r:2"
    )
    assert enumeration._task(zero, (("stage", 3),), "cpu").parameters["options"] == "zero_optimization.stage:3"
    assert all(EXCLUDED.values())
