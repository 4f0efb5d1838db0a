"""Dumps are found among what launchers write, and a file without one is a node that said nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.node import MARK, write_line
from compatcheck.fleet.dumps import read_dumps
from tests.unit.fleet.drawn_nodes import draw


def test_lines_are_found_behind_labels_and_greetings(tmp_path: Path):
    a, b = draw("a"), draw("b")
    text = (
        f"Last login: Monday\n0: {write_line(a)}[pod/b/train] {write_line(b)}c: bash: compatcheck: command not found\n"
    )
    (tmp_path / "all.txt").write_text(text)
    found = read_dumps([str(tmp_path / "all.txt")])
    assert found.nodes == (a, b)
    assert [entry.source.line for entry in found.unread] == [1, 4]
    assert "command not found" in str(found.unread[1])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("slurmstepd: error: execve(): compatcheck: No such file or directory\n", "No such file"),
        (write_line(draw("c"))[:200], "cut off"),
        ('{"compatcheck_node": 9, "name": "c"}\n', "another release"),
    ],
)
def test_a_file_without_a_node_is_a_node_that_said_nothing(tmp_path: Path, text: str, why: str):
    (tmp_path / "a.json").write_text(write_line(draw("a")))
    (tmp_path / "c.json").write_text(text)
    found = read_dumps([str(tmp_path)])
    ((name, reason),) = found.lost
    assert ([node.name for node in found.nodes], name) == (["a"], "c")
    assert why in reason


@pytest.mark.parametrize("kind", ["pipe", "link that leads nowhere", "link to itself", "device", "directory"])
def test_what_is_no_file_is_a_node_that_said_nothing(tmp_path: Path, kind: str):
    (tmp_path / "a.json").write_text(write_line(draw("a")))
    place = tmp_path / "c.json"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    else:
        place.symlink_to({"device": "/dev/zero", "link to itself": place}.get(kind, tmp_path / "gone"))
    found = read_dumps([str(tmp_path)])
    assert ([node.name for node in found.nodes], [name for name, _ in found.lost]) == (["a"], ["c"])


def test_nodes_of_the_list_that_wrote_nothing_are_missed(tmp_path: Path):
    (tmp_path / "a.json").write_text(write_line(draw("a.cluster.example")))
    (tmp_path / "b.json").write_text("")
    expected = tmp_path.parent / "nodes.txt"
    expected.write_text("a\nb\nc\n")
    assert [name for name, _ in read_dumps([str(tmp_path)], str(expected)).lost] == ["b", "c"]


def test_addresses_are_names_of_their_own(tmp_path: Path):
    (tmp_path / "a.json").write_text(write_line(draw("10.0.0.1")))
    expected = tmp_path.parent / "addresses.txt"
    expected.write_text("10.0.0.1 10.0.0.2 fd00::3\n")
    assert [name for name, _ in read_dumps([str(tmp_path)], str(expected)).lost] == ["10.0.0.2", "fd00::3"]


def test_a_node_that_a_launcher_names_and_that_wrote_none_is_lost(tmp_path: Path):
    lines = (
        f"n1: {write_line(draw('n1'))}",
        f"n2: {write_line(draw('n2'))}",
        "n3: bash: no compatcheck\n",
        "bash: x\n",
    )
    (tmp_path / "pdsh.txt").write_text("".join(lines))
    found = read_dumps([str(tmp_path / "pdsh.txt")])
    assert [node.name for node in found.nodes] == ["n1", "n2"]
    assert found.lost == (("n3", "wrote no node: 'n3: bash: no compatcheck'"),)
    assert [entry.source.line for entry in found.unread] == [4]


def test_lines_that_srun_breaks_and_mixes_are_put_together(tmp_path: Path):
    """Slurm 22.05 starts a line of its own after 1,024 bytes of what it labels, and pads the numbers of ten tasks and more."""
    nodes = [draw(f"n{number}", {f"package-{count}": "1.0" for count in range(40)}) for number in range(11)]
    pieces = []
    for number, node in enumerate(nodes):
        line = write_line(node).rstrip("\n")
        pieces += [(at, f"{number:>2}: {line[at : at + 1024]}\n") for at in range(0, len(line), 1024)]
    assert len(pieces) > 3 * len(nodes)
    mixed = [piece for _, piece in sorted(pieces)]
    (tmp_path / "all.txt").write_text("".join(mixed))
    found = read_dumps([str(tmp_path / "all.txt")])
    assert (sorted(found.nodes, key=lambda node: int(node.name[1:])), found.unread, found.lost) == (nodes, (), ())
    (tmp_path / "all.txt").write_text(
        "".join(piece for piece in mixed if not piece.startswith(" 7: ") or MARK in piece)
    )
    found = read_dumps([str(tmp_path / "all.txt")])
    assert "n7" not in {node.name for node in found.nodes}
    assert "cut off" in str(found.unread[0])


def test_numbers_of_tasks_are_no_names_of_nodes(tmp_path: Path):
    """`srun --label` writes those in front."""
    lines = f"0: {write_line(draw('n1'))}1: {write_line(draw('n2'))}2: bash: no compatcheck\n"
    (tmp_path / "all.txt").write_text(lines)
    ((name, _),) = read_dumps([str(tmp_path / "all.txt")]).lost
    assert name == f"what {tmp_path / 'all.txt'} labels 2"
    (tmp_path / "nodes.txt").write_text("n1\nn2\nn3\n")
    assert "n3" in dict(read_dumps([str(tmp_path / "all.txt")], str(tmp_path / "nodes.txt")).lost)


def test_files_that_are_called_by_numbers_of_tasks_are_no_names_of_nodes(tmp_path: Path):
    """`srun --output=dumps/%n.json` writes those."""
    (tmp_path / "dumps").mkdir()
    for number, text in enumerate((write_line(draw("n1")), write_line(draw("n2")), "")):
        (tmp_path / "dumps" / f"{number}.json").write_text(text)
    silent = f"file {tmp_path / 'dumps' / '2.json'}"
    assert [name for name, _ in read_dumps([str(tmp_path / "dumps")]).lost] == [silent]
    (tmp_path / "nodes.txt").write_text("n1\nn2\nn3\n")
    found = read_dumps([str(tmp_path / "dumps")], str(tmp_path / "nodes.txt"))
    assert [name for name, _ in found.lost] == [silent, "n3"]


def test_nodes_are_called_as_the_list_calls_them(tmp_path: Path):
    (tmp_path / "dumps").mkdir()
    for name in ("a.cluster.example", "b", "c.other.example"):
        (tmp_path / "dumps" / name).write_text(write_line(draw(name)))
    (tmp_path / "nodes.txt").write_text("a\nb.cluster.example\nc.cluster.example\n")
    found = read_dumps([str(tmp_path / "dumps")], str(tmp_path / "nodes.txt"))
    assert [node.name for node in found.nodes] == ["a", "b.cluster.example", "c.other.example"]


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        read_dumps([str(tmp_path / "dumps")])


def test_nodes_on_one_line_are_all_read(tmp_path: Path):
    """What `$(…)` takes has no end of a line, and `cat` puts several together."""
    a, b, c = (write_line(draw(name)).rstrip("\n") for name in "abc")
    (tmp_path / "all.txt").write_text(a + b + c[:200] + a)
    found = read_dumps([str(tmp_path / "all.txt")])
    assert [node.name for node in found.nodes] == ["a", "b", "a"]
    assert "cut off" in str(found.unread[0])


def test_nodes_that_call_themselves_otherwise_are_called_as_the_list_and_their_files_do(tmp_path: Path):
    """`for node in $(cat nodes.txt); do ssh $node … > dumps/$node.json` with addresses, aliases or machines of one image."""
    names = ["10.0.0.1", "10.0.0.2", "gpu3", "gpu4"]
    (tmp_path / "dumps").mkdir()
    for name in names[:3]:
        (tmp_path / "dumps" / f"{name}.json").write_text(write_line(draw("vm")))
    (tmp_path / "nodes.txt").write_text("\n".join(names))
    found = read_dumps([str(tmp_path / "dumps")], str(tmp_path / "nodes.txt"))
    assert ([node.name for node in found.nodes], [name for name, _ in found.lost]) == (names[:3], names[3:])
    (tmp_path / "pdsh.txt").write_text("".join(f"{name}: {write_line(draw('vm'))}" for name in names[:3]))
    assert read_dumps([str(tmp_path / "pdsh.txt")], str(tmp_path / "nodes.txt"))[:2] == found[:2]


def test_files_of_other_names_with_nodes_of_one_name_are_said(tmp_path: Path):
    for name in ("gpu1", "gpu2", "gpu3"):
        (tmp_path / f"{name}.json").write_text(write_line(draw("vm")))
    (entry,) = read_dumps([str(tmp_path)]).unread
    assert "3 files (gpu1, gpu2, gpu3, …) hold a node that calls itself vm" in entry.reason
    assert entry.passes
    for name in ("vm-0", "vm-1"):
        (tmp_path / "tasks" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "tasks" / name).write_text(write_line(draw("vm")))
    assert read_dumps([str(tmp_path / "tasks")]).unread == ()


def test_a_hostfile_is_a_list_of_nodes(tmp_path: Path):
    (tmp_path / "a.json").write_text(write_line(draw("a")))
    expected = tmp_path.parent / "hostfile"
    expected.write_text("# of the job\na slots=8\nb slots=8 # the new one\n")
    assert [name for name, _ in read_dumps([str(tmp_path / "a.json")], str(expected)).lost] == ["b"]


@pytest.mark.parametrize(
    ("text", "why"), [("", "names no node"), ("node[001-005,007]\n", r"ranges of names, as 'node\[001-005'")]
)
def test_a_list_without_names_is_refused(tmp_path: Path, text: str, why: str):
    (tmp_path / "a.json").write_text(write_line(draw("a")))
    (tmp_path / "nodes.txt").write_text(text)
    with pytest.raises(InputError, match=why):
        read_dumps([str(tmp_path / "a.json")], str(tmp_path / "nodes.txt"))


def test_nodes_that_the_list_does_not_name_are_said(tmp_path: Path):
    (tmp_path / "dumps").mkdir()
    for name in ("a", "old1", "old2"):
        (tmp_path / "dumps" / f"{name}.json").write_text(write_line(draw(name)))
    (tmp_path / "nodes.txt").write_text("a\n")
    (entry,) = read_dumps([str(tmp_path / "dumps")], str(tmp_path / "nodes.txt")).unread
    assert "does not name old1, old2, whose dumps are there" in entry.reason
