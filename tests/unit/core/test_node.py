"""A node is the same behind its line, and what is no line is said."""

from __future__ import annotations

import json

import pytest

from compatcheck.core.environment import Damage
from compatcheck.core.node import MARK, read_line, write_line
from compatcheck.core.source import Skipped, Source
from tests.unit.fleet.drawn_nodes import draw


def test_a_node_is_the_same_behind_its_line():
    node = draw(
        "node1", editable={"verl": {"verl/a.py": "0" * 12}}, configuration={"/ds.json": None}, devices_offered=8
    )
    environment = node.environment._replace(
        damage=(Damage("duplicated", "torch", "2.6 and 2.5", (Source("/a"),)),),
        skipped=(Skipped(Source("/b", line=3), "was not read"),),
        facts={"runtime.cxx11_abi": (True, Source("/c")), "runtime.torch_cuda": (None, Source("/d"))},
    )
    node = node._replace(environment=environment)
    line = write_line(node)
    assert line.startswith(MARK)
    assert line.count("\n") == 1
    assert read_line(line) == node
    assert read_line(f"{line.rstrip()} and what a launcher wrote behind it") == node


def test_a_line_that_is_cut_off_is_said():
    line = write_line(draw("node1"))
    for end in (len(MARK), len(line) // 2, len(line) - 2):
        with pytest.raises(ValueError, match="cut off"):
            read_line(line[:end])


def test_fields_of_a_later_release_are_passed_over():
    node = draw("node1")
    data = json.loads(write_line(node)) | {"later": 1}
    data["environment"]["later"] = {"more": []}
    assert read_line(json.dumps(data)) == node


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"name": "a", "tool": "1"},
        {"name": 1, "tool": "1", "environment": {"origin": "a", "packages": {}, "complete": True}},
        {"name": "a", "tool": "1", "environment": {"origin": "a", "packages": {"torch": "2.6"}, "complete": True}},
        {"name": "a", "tool": "1", "environment": {"origin": "a", "packages": {}, "complete": "yes"}},
        {"name": "a", "tool": "1", "environment": []},
    ],
)
def test_what_has_another_shape_is_no_node(data: dict[str, object]):
    with pytest.raises(ValueError, match="is no node"):
        read_line(json.dumps({"compatcheck_node": 1, **data}))
