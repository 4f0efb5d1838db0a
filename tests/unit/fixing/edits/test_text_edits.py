"""One value changes, and nothing else of a file."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.fix import FileChange
from compatcheck.core.requirement import parse_requirement
from compatcheck.core.source import Source
from compatcheck.fixing.edits.configuration_text import add_value, change_option, change_value, describe_edit
from compatcheck.fixing.edits.requirement_text import find_statement
from compatcheck.fixing.edits.text import apply_edits, read_exact, unified_diff, write_changes
from compatcheck.fixing.files import compile_command


def move(text: str, requirement: str, line: int, specifier: str, key: str | None = None) -> str:
    parsed = parse_requirement(requirement, Source("f", key, line))
    found = find_statement(text, parsed)
    assert found is not None
    return apply_edits({"f": text}, [found.edit(specifier, text)])["f"]


@pytest.mark.parametrize(
    ("text", "requirement", "line", "specifier", "expected"),
    [
        ("torch\ndeepspeed==0.16.4  # why\n", "deepspeed==0.16.4", 2, "==0.16.8", "torch\ndeepspeed==0.16.8  # why\n"),
        (
            "Flash_Attn [x] == 2.5.0 ; python_version > '3.8'\r\n",
            "flash-attn[x]==2.5.0",
            1,
            "==2.5.8",
            "Flash_Attn [x] == 2.5.8 ; python_version > '3.8'\r\n",
        ),
        (
            "torch-geometric==1\ntorch >=2.0, <2.2\n",
            "torch>=2.0,<2.2",
            2,
            ">=2.1.1,<2.2",
            "torch-geometric==1\ntorch >=2.1.1, <2.2\n",
        ),
        (
            'deps = ["torchvision==0.1", "torch<2.2,>=2.0"]',
            "torch>=2.0,<2.2",
            1,
            ">=2.1,<2.2",
            'deps = ["torchvision==0.1", "torch<2.2,>=2.1"]',
        ),
        ("peft\n", "peft", 1, ">=0.14.0", "peft>=0.14.0\n"),
        (
            "RUN pip install 'a==1' \\\n  deepspeed==0.16.4\n",
            "deepspeed==0.16.4",
            1,
            "==0.16.8",
            "RUN pip install 'a==1' \\\n  deepspeed==0.16.8\n",
        ),
        (
            "dependencies:\n  - deepspeed=0.16.4\n",
            "deepspeed==0.16.4",
            2,
            "==0.16.8",
            "dependencies:\n  - deepspeed=0.16.8\n",
        ),
    ],
)
def test_versions_change_in_place(text: str, requirement: str, line: int, specifier: str, expected: str) -> None:
    assert move(text, requirement, line, specifier) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('deepspeed = "^0.16.4"\n', 'deepspeed = "^0.16.8"\n'),
        (
            'deepspeed = {version = "^0.16.4", optional = true}\n',
            'deepspeed = {version = "^0.16.8", optional = true}\n',
        ),
    ],
)
def test_poetry_keeps_its_operator(text: str, expected: str) -> None:
    assert move(text, "deepspeed>=0.16.4,<0.17", 1, ">=0.16.8,<0.17", "tool.poetry.dependencies.deepspeed") == expected


def test_hashes_and_addresses_are_told_apart() -> None:
    text = "deepspeed==0.16.4 \\\n    --hash=sha256:abc\ntorch @ file:///x.whl\n"
    found = find_statement(text, parse_requirement("deepspeed==0.16.4", Source("f", None, 1)))
    assert found is not None
    assert found.hashed
    assert find_statement(text, parse_requirement("torch @ file:///x.whl", Source("f", None, 3))) is None


JSON = '{\n\t"a": {"stage": 3, // why\n\t\t"pin": true},\n\t"b": "auto"\n}'


@pytest.mark.parametrize(
    ("path", "text", "key", "value", "expected"),
    [
        ("d.json", JSON, "a.pin", False, JSON.replace("true", "false")),
        ("d.json", "\ufeff" + JSON, "b", 5, "\ufeff" + JSON.replace('"auto"', "5")),
        ("t.yaml", "a: 1\r\nb:\r\n  c: 'x' # why\r\n", "b.c", "y", "a: 1\r\nb:\r\n  c: 'y' # why\r\n"),
        ("t.yaml", "größe: ä\nb: true # why\n", "b", False, "größe: ä\nb: false # why\n"),
        ("t.yaml", "b: x\n", "b", "no", 'b: "no"\n'),
        (
            "r.sh",
            "python t.py \\\n  --use_cache True \\\n  --x 1\n",
            "use_cache",
            False,
            "python t.py \\\n  --use_cache False \\\n  --x 1\n",
        ),
        ("r.sh", "python -m verl a.b=8 a.bc=9\n", "a.b", 4, "python -m verl a.b=4 a.bc=9\n"),
        ("r.sh", "A=(--a 1 --b 8)\n", "b", 4, "A=(--a 1 --b 4)\n"),
        ("r.sh", "python t.py 'a.b=8' a.c=1\n", "a.b", 4, "python t.py 'a.b=4' a.c=1\n"),
        ("r.sh", "python t.py --a 'x y' --b 1\n", "a", "z", "python t.py --a 'z' --b 1\n"),
    ],
)
def test_values_change_in_place(path: str, text: str, key: str, value: object, expected: str) -> None:
    edit = change_value(path, text, key, value, 1)  # type: ignore[arg-type]
    assert edit is not None
    assert apply_edits({path: text}, [edit])[path] == expected


@pytest.mark.parametrize("text", ["A=(--a 8 --b 1)\n", "A=( --b 1 --a 8 )\n", "A=(--b 1 --a 8)\n"])
def test_an_edit_of_an_array_is_told_by_its_option_alone(text: str) -> None:
    edit = change_value("r.sh", text, "a", 4, 1)
    assert edit is not None
    assert describe_edit(text, edit) == "--a 4"


@pytest.mark.parametrize(
    ("path", "text", "key", "expected"),
    [
        ("d.json", '{\n  "a": {\n    "b": 1\n  }\n}\n', "a.c", '{\n  "a": {\n    "b": 1,\n    "c": true\n  }\n}\n'),
        ("t.yaml", "a: 1\nb: 2  # two\n", "c", "a: 1\nb: 2  # two\nc: true\n"),
        ("t.yaml", "a:\n  b: 1\nd: 2", "a.c", "a:\n  b: 1\n  c: true\nd: 2"),
        ("t.yaml", "a: 1", "c", "a: 1\nc: true"),
        ("t.yaml", "a:\n  b: 1\n\nd: 2\n", "a.c", "a:\n  b: 1\n  c: true\n\nd: 2\n"),
        ("t.yaml", "a: 1\nd:\n  - x\n  - y\n", "c", "a: 1\nd:\n  - x\n  - y\nc: true\n"),
        ("t.yaml", "a: 1\n", "x.y", "a: 1\nx: {y: true}\n"),
        (
            "d.json",
            '{\n  "a": {\n    "b": 1\n  }\n}\n',
            "x.y",
            '{\n  "a": {\n    "b": 1\n  },\n  "x": {"y": true}\n}\n',
        ),
        ("d.json", '{"a": 1}', "b", '{"a": 1, "b": true}'),
        ("d.json", '{"s":{"a":[1],"c":{"d":2}},"e":3}', "s.x.y", '{"s":{"a":[1],"c":{"d":2},"x": {"y": true}},"e":3}'),
        ("t.yaml", "{a: 1}\n", "b", "{a: 1, b: true}\n"),
        ("t.yaml", "s: {a: 1}\nt: 2\n", "s.b", "s: {a: 1, b: true}\nt: 2\n"),
    ],
)
def test_keys_are_added_beside_their_neighbours(path: str, text: str, key: str, expected: str) -> None:
    edit = add_value(path, text, key, value=True)
    assert edit is not None
    assert apply_edits({path: text}, [edit])[path] == expected


@pytest.mark.parametrize(
    ("path", "text", "key"),
    [
        ("t.yaml", "a: 1\n", "a"),
        ("r.sh", "python t.py --a 1\n", "b"),
    ],
)
def test_what_cannot_be_added_safely_is_left(path: str, text: str, key: str) -> None:
    assert add_value(path, text, key, value=True) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\r\nb\r\n", "a\r\nc\r\n"),
        ("\ufeffa\nb", "\ufeffc\nb"),
        ("a\nb", "a\nc"),
        ("x = 1\n" * 40 + "y\x0cz\u2028w\n", "x = 1\n" * 20 + "x = 2\n" + "x = 1\n" * 19 + "y\x0cz\u2028w\n"),
    ],
)
def test_git_applies_the_diff(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "sub dir").mkdir()
    place = tmp_path / "sub dir" / "f.txt"
    place.write_bytes(before.encode())
    diff = unified_diff([FileChange("sub dir/f.txt", before, after)])
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=diff.encode(), check=True)
    assert place.read_bytes() == after.encode()


def test_a_name_is_no_part_of_the_diff(tmp_path: Path) -> None:
    name = 'x"\\\n+++ b.txt'
    diff = unified_diff([FileChange(name, "a\n", "b\n")])
    assert [line[:3] for line in diff.splitlines()] == ["---", "+++", "@@ ", "-a", "+b"]
    (tmp_path / name).write_text("a\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=diff, text=True, check=True)
    assert (tmp_path / name).read_text() == "b\n"


@pytest.mark.parametrize(
    ("header", "command"),
    [
        ("# pip-compile --generate-hashes a.in", "pip-compile --generate-hashes a.in"),
        ("#    uv pip compile --python='3.11' a.in", "uv pip compile --python='3.11' a.in"),
        ("# uv pip compile a.in; touch x #", "uv pip compile 'my list.in' --generate-hashes -o 'my list.txt'"),
        ("# uv pip compile $(touch x)", "uv pip compile 'my list.in' --generate-hashes -o 'my list.txt'"),
        ("# uv pip compile-x", "uv pip compile 'my list.in' --generate-hashes -o 'my list.txt'"),
    ],
)
def test_a_header_is_one_command_or_none(header: str, command: str) -> None:
    assert compile_command(f"{header}\ntorch==2.5.0\n", "lists/my list.txt", "-U") == f"{command} -U"


def test_writing_keeps_mode_and_links(tmp_path: Path) -> None:
    place, link = tmp_path / "f.txt", tmp_path / "link.txt"
    place.write_bytes(b"\xef\xbb\xbfa\r\n")
    place.chmod(0o640)
    link.symlink_to(place)
    before = read_exact(str(link))
    write_changes([FileChange(str(link), before, before.replace("a", "b"))], lambda _: True)
    assert place.read_bytes() == b"\xef\xbb\xbfb\r\n"
    assert place.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["f.txt", "link.txt"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root writes files of others")
def test_writing_keeps_the_owner(tmp_path: Path) -> None:
    place = tmp_path / "a.txt"
    place.write_text("a\n")
    os.chown(place, 12345, 23456)
    write_changes([FileChange(str(place), "a\n", "b\n")], lambda _: True)
    assert (place.read_text(), place.stat().st_uid, place.stat().st_gid) == ("b\n", 12345, 23456)


def test_a_file_that_changed_meanwhile_is_not_written_nor_any_other(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("a\n")
    second.write_text("changed\n")
    with pytest.raises(InputError, match="nothing was written"):
        write_changes([FileChange(str(first), "a\n", "b\n"), FileChange(str(second), "b\n", "c\n")], lambda _: True)
    assert first.read_text() == "a\n"


@pytest.mark.parametrize(
    "line",
    [
        "export {} && python t.py",
        "{} python t.py",
        "env {} python t.py",
        'export PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128,expandable_segments:True"',
        'ray job submit --env=\'{{"env_vars": {{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}}}\' -- t',
    ],
)
def test_an_option_within_a_variable_is_changed_alone(line: str) -> None:
    text = line.format("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True") + "\n"
    (edit,) = change_option("r.sh", text, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments", value=False)
    assert apply_edits({"r.sh": text}, [edit])["r.sh"] == text.replace("segments:True", "segments:False")


def test_lines_are_counted_once_for_all_statements_of_a_file() -> None:
    def spend(count: int) -> float:
        text = "".join(f"torch=={n}\n" for n in range(count))
        started = time.process_time()
        for n in range(count):
            found = find_statement(text, parse_requirement(f"torch=={n}", Source("r.txt", None, n + 1)))
            assert found is not None
            assert found.line == n + 1
        return time.process_time() - started

    # eight times the lines; counting them anew for each would cost sixty-four times
    assert min(spend(8_000) for _ in range(2)) < 20 * min(spend(1_000) for _ in range(3))
