"""`compatcheck fleet` and `env --dump`: from nodes to an answer, a list to leave out, and an exit code."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from compatcheck.core.node import MARK, Node, read_line, write_line
from tests import ROOT
from tests.cli.run_cli import run
from tests.unit.fleet.drawn_nodes import draw


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    folder = tmp_path / "dumps"
    folder.mkdir()
    nodes = [draw(f"node{number}") for number in range(9)]
    nodes.append(draw("node9", {"nvidia-nccl-cu12": "2.20.5", "pytest": "8.1"}, {"NCCL_ALGO": "Ring"}))
    for node in nodes:
        (folder / f"{node.name}.json").write_text(write_line(node))
    (folder / "node10.json").write_text("")
    return folder


def test_most_odd_and_silent_nodes_are_named_in_80_columns(dumps: Path, tmp_path: Path):
    ran = run("fleet", "merge", dumps, "--no-policy", "--exclude-file", tmp_path / "nodes.txt")
    assert ran.code == 1
    assert "10 nodes of 2 kinds, 1 more said nothing; 2 differences that matter" in ran.out
    assert "  component nccl\n    2.21.5: 9 of 10 nodes\n    2.20.5: node9\n" in ran.out
    assert "1 more that matters to no rank; -v lists it" in ran.out
    assert "not read node10:" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert (tmp_path / "nodes.txt").read_text() == "node10\nnode9\n"


def test_json_has_the_report_and_every_difference(dumps: Path):
    ran = run("fleet", "merge", dumps, "--no-policy", "--format", "json")
    data = json.loads(ran.out)
    jsonschema.validate(data, json.loads((ROOT / "compatcheck/reporters/report.schema.json").read_text()))
    assert data["summary"]["exit_code"] == ran.code == 1
    assert [row["name"] for row in data["fleet"]["differences"]] == ["nccl", "NCCL_ALGO", "pytest"]
    assert [row["matters"] for row in data["fleet"]["differences"]] == [True, True, False]
    assert data["fleet"]["differences"][0]["majority"] == "2.21.5"
    assert data["fleet"]["excluded"] == ["node10", "node9"]


def test_markdown_and_chinese(dumps: Path):
    ran = run("fleet", "merge", dumps, "--no-policy", "--format", "markdown")
    assert "| component nccl | 2.20.5 | node9 | ranks run one stack |" in ran.out
    ran = run("fleet", "merge", dumps, "--no-policy", "--lang", "zh", "-v")
    assert "个节点" in ran.out


def test_what_one_node_writes_can_be_checked_and_compared(dumps: Path):
    assert run("check", dumps / "node1.json", "--no-policy").code == 0
    ran = run("diff", dumps / "node1.json", dumps / "node9.json", "--no-policy", "-v")
    assert "nvidia-nccl-cu12  2.21.5 → 2.20.5" in ran.out


def test_this_machine_writes_a_node_and_is_a_fleet_of_one(tmp_path: Path):
    info = tmp_path / "lib" / "python3.12" / "site-packages" / "torch-2.6.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n")
    ran = run("env", "--dump", "--prefix", tmp_path)
    assert (ran.code, ran.out.count("\n")) == (0, 1)
    assert ran.out.startswith(MARK)
    assert read_line(ran.out).environment.packages["torch"].version == "2.6.0"
    ran = run("fleet", "env", "--prefix", tmp_path, "--no-policy")
    assert ran.code == 0
    assert ran.out.startswith("1 node, alike in what matters\n")


def test_no_dump_is_nothing_to_check(tmp_path: Path):
    assert run("fleet", "merge", tmp_path, "--no-policy").code == 3


def test_where_all_are_silent_each_is_named_and_to_be_left_out(tmp_path: Path):
    folder = tmp_path / "dumps"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.json").write_text("")
    ran = run("fleet", "merge", folder, "--no-policy", "--exclude-file", tmp_path / "nodes.txt")
    assert ran.code == 3
    assert "a holds no node: it is empty; b holds no node: it is empty" in " ".join(ran.err.split())
    assert (tmp_path / "nodes.txt").read_text() == "a\nb\n"


def write_dumps(folder: Path, *nodes: Node) -> Path:
    folder.mkdir()
    for node in nodes:
        with (folder / f"{node.name}.json").open("a") as file:
            file.write(write_line(node))
    return folder


@pytest.mark.parametrize("options", [(), ("--format", "markdown")])
def test_another_release_of_the_tool_is_named_unasked(tmp_path: Path, options: tuple[str, ...]):
    folder = write_dumps(tmp_path / "dumps", draw("a"), draw("b"), draw("older")._replace(tool="0.0.9"))
    ran = run("fleet", "merge", folder, "--no-policy", *options)
    assert ran.code == 0
    (line,) = (line for line in ran.out.splitlines() if "0.0.9" in line)
    assert "older" in line


def test_the_list_of_nodes_to_leave_out_has_names_of_nodes_alone(tmp_path: Path):
    odd = draw("n1", {"nvidia-nccl-cu12": "2.20.5"})
    folder = write_dumps(tmp_path / "dumps", draw("n1"), odd, draw("n2"), draw("n3"))
    names = ("n4\nn2", "n5,n2", "n6 (copy)", "n[7-9]", "#n10", "-n11", "n12")
    for name in names:
        (folder / f"{name}.json").write_text("")
    ran = run("fleet", "merge", folder, "--no-policy", "--exclude-file", tmp_path / "nodes.txt", "--format", "json")
    assert (tmp_path / "nodes.txt").read_text() == "n12\nn1\n"
    said = " ".join(ran.err.split())
    assert "for no scheduler has nodes of such a name: " in said
    assert all(repr(name) in said for name in names[:-1])
    assert set(json.loads(ran.out)["fleet"]["excluded"]) == {"n1", "n12"}
    assert set(json.loads(ran.out)["fleet"]["unnamable"]) == set(names[:-1])


def test_a_hundred_nodes_cost_less_than_two_seconds_of_cpu(tmp_path: Path):
    releases: dict[str, str | None] = {f"package-{number}": "1.0" for number in range(155)}
    odd = draw("node99", {**releases, "nvidia-nccl-cu12": "2.20.5"})
    folder = write_dumps(tmp_path / "dumps", *(draw(f"node{number}", releases) for number in range(99)), odd)
    command = [sys.executable, "-m", "compatcheck", "fleet", "merge", str(folder), "--no-policy", "--format", "json"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False)  # compiles the rules of a checkout
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [len(kind["nodes"]) for kind in json.loads(done.stdout)["fleet"]["kinds"]] == [99, 1]
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2
