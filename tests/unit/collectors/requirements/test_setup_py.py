"""`setup.py`: literals are read, the rest is said as unread, and nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.collectors.recognise import recognise
from compatcheck.collectors.requirements.setup_py import read_setup_py
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Choice


def read(tmp_path: Path, text: str) -> Environment:
    path = tmp_path / "setup.py"
    path.write_text(text, encoding="utf-8")
    return read_setup_py(str(path))


def specifiers(environment: Environment) -> dict[str, str | None]:
    return {name: package.version or package.specifier for name, package in environment.packages.items()}


def reasons(environment: Environment) -> list[tuple[int | None, str]]:
    return [(entry.source.line, entry.reason) for entry in environment.skipped]


def test_list_literals_are_read_with_their_lines(tmp_path: Path) -> None:
    environment = read(
        tmp_path,
        "from setuptools import setup\n\nsetup(\n    name='x',\n    install_requires=[\n        'torch>=2.1',\n"
        "        \"deepspeed==0.16.4; sys_platform == 'linux'\",\n    ],\n)\n",
    )
    assert specifiers(environment) == {"torch": ">=2.1", "deepspeed": "0.16.4"}
    assert environment.packages["deepspeed"].source.line == 7
    assert environment.skipped == ()
    assert not environment.complete


@pytest.mark.parametrize(
    "text",
    [
        "import setuptools\nsetuptools.setup(install_requires=('torch==2.5.1',))",
        "setup(install_requires='torch==2.5.1')",
        "setup(install_requires='''\n  torch==2.5.1\n  # why\n''')",
        "NEEDS = ['torch' '==2.5.1']\nsetup(install_requires=NEEDS)",
        "NEEDS: list[str] = ['torch==2.5.1']\nif __name__ == '__main__':\n    setup(install_requires=NEEDS)",
        "A = ['torch==2.5.1']\nsetup(install_requires=A + [])",
        "setup(install_requires=[*['torch==2.5.1']])",
    ],
)
def test_other_ways_to_write_a_literal(text: str, tmp_path: Path) -> None:
    environment = read(tmp_path, text + "\n")
    assert specifiers(environment) == {"torch": "2.5.1"}
    assert environment.skipped == ()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("setup(install_requires=open('requirements.txt').read().splitlines())", 1, "install_requires is computed"),
        ("setup(install_requires=['torch', 'a==' + VERSION])", 1, "an entry of install_requires is computed"),
        ("setup(install_requires=['torch',\n f'a=={version}'])", 2, "an entry of install_requires is computed"),
        ("setup(install_requires=fetch(),\n extras_require={'x': []})", 1, "install_requires is computed"),
        ("A = ['a']\nA.append('b')\nsetup(install_requires=A)", 3, "install_requires is computed"),
        ("A = ['a']\nA += ['b']\nsetup(install_requires=A)", 3, "install_requires is computed"),
        ("A = ['a']\nA[0] = 'b'\nsetup(install_requires=A)", 3, "install_requires is computed"),
        ("A = ['a']\nif x:\n    A = ['b']\nsetup(install_requires=A)", 4, "install_requires is computed"),
        ("A = B\nB = A\nsetup(install_requires=A)", 3, "install_requires is computed"),
        ("def f(A):\n    setup(install_requires=A)\nA = ['a']", 2, "install_requires is computed"),
        ("setup(**options)", 1, "arguments of setup() are computed"),
        ("setup(extras_require=extras())", 1, "extras_require is computed"),
        ("setup(extras_require={'x': extra(), **more})", 1, "extras_require"),
        ("setup(install_requires=['torch =2'])", 1, "is not a requirement"),
        ("setup(install_requires=[1])", 1, "an entry of install_requires is computed"),
        ("print('hello')", None, "calls no setup()"),
        ("setup(name='x')", None, "states no requirements"),
    ],
)
def test_what_is_no_literal_is_said(text: str, line: int | None, words: str, tmp_path: Path) -> None:
    found = reasons(read(tmp_path, text + "\n"))
    assert any(at == line and words in reason for at, reason in found), found
    assert all(entry.hint for entry in read(tmp_path, text + "\n").skipped)


def test_literals_beside_what_is_computed_count(tmp_path: Path) -> None:
    environment = read(tmp_path, "setup(install_requires=['torch==2.5.1', *more()] + ['deepspeed'] + rest)\n")
    assert specifiers(environment) == {"torch": "2.5.1", "deepspeed": ""}
    assert len(environment.skipped) == 1


def test_extras_are_possible_and_those_with_a_marker_alone_required(tmp_path: Path) -> None:
    environment = read(
        tmp_path,
        "extras = {'gpu': ['deepspeed>=0.15'], 'old:python_version<\"3\"': ['six'],\n"
        "  ':sys_platform==\"linux\"': ['triton; python_version<\"9\"']}\n"
        "setup(install_requires=['torch'], extras_require=extras, python_requires='>=3.9')\n",
    )
    assert specifiers(environment) == {"torch": "", "triton": "", "deepspeed": ">=0.15"}
    assert environment.packages["deepspeed"].is_optional
    assert environment.packages["deepspeed"].brought_by == (Choice("extra", "gpu"),)
    assert not environment.packages["triton"].is_optional


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    read(tmp_path, f"open({str(mark)!r}, 'w')\nsetup(install_requires=[open({str(mark)!r}, 'w') and 'a'])\n")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"setup(install_requires=[", 1),
        (b"x = 1\nprint 'python 2'\n", 2),
        (b"\xff\xfe\x00", None),
        (b"a = '\xff'\n", None),
        (b"# coding: klingon\n", None),
        (b"x = " + b"(" * 5000 + b")" * 5000, None),
        (b"\0", None),
    ],
)
def test_what_is_no_python_is_an_error(content: bytes, line: int | None, tmp_path: Path) -> None:
    path = tmp_path / "setup.py"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_setup_py(str(path))
    assert caught.value.hint
    assert caught.value.source is not None
    assert line is None or caught.value.source.line == line


def test_only_a_file_that_states_requirements_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "setup.py"
    path.write_text("from setuptools import setup\nsetup()\n")
    assert recognise(str(path)) is None
    path.write_text("from setuptools import setup\nsetup(install_requires=[])\n")
    assert recognise(str(path)) == "setup_py"


@pytest.mark.parametrize(
    "table",
    [
        '{"trl": "trl[vllm]==0.18.0", "huggingface-hub": "huggingface-hub>=0.30"}',
        # as many projects make one of a list
        '{b: a for a, b in (re.findall(r"^(([^!=<>~ ]+)(?:[!=<>~ ].*)?$)", x)[0] for x in _deps)}',
    ],
)
def test_entries_of_a_table_of_requirements_are_read(table: str, tmp_path: Path) -> None:
    environment = read(
        tmp_path,
        f"""
import re
from setuptools import setup
_deps = ["huggingface_hub>=0.30", "trl[vllm]==0.18.0", "trl-extra==1.0"]
deps = {table}
install_requires = [deps["trl"], deps["huggingface-hub"], deps["unknown"]]
setup(name="x", install_requires=install_requires)
""",
    )
    assert specifiers(environment) == {"huggingface-hub": ">=0.30", "trl": "0.18.0"}
    assert [words for _, words in reasons(environment)] == [
        "an entry of install_requires is computed, and nothing is run"
    ]


def test_a_table_that_is_changed_later_is_computed(tmp_path: Path) -> None:
    text = """
from setuptools import setup
deps = {"trl": "trl==0.18.0"}
deps["trl"] = "trl==0.19.0"
setup(name="x", install_requires=[deps["trl"], "torch"])
"""
    assert specifiers(read(tmp_path, text)) == {"torch": ""}


@pytest.mark.parametrize(
    "later",
    [
        "try:\n    1 / 0\nexcept Exception as r:\n    pass",
        "match ['torch==2.7.0']:\n    case r:\n        pass",
        "match ['torch==2.7.0']:\n    case [*r]:\n        pass",
        "match {}:\n    case {**r}:\n        pass",
        "def r():\n    pass",
        "class r:\n    pass",
        "other = r\nother.append('deepspeed==0.16.4')",
        "q = r\nother = q\nother += ['deepspeed==0.16.4']",
        "if (other := r):\n    other[0] = 'torch==2.7.0'",
    ],
)
def test_a_name_that_something_else_binds_or_changes_is_computed(later: str, tmp_path: Path) -> None:
    text = f"from setuptools import setup\nr = ['torch==2.6.0']\n{later}\nsetup(install_requires=r)\n"
    environment = read(tmp_path, text)
    assert specifiers(environment) == {}
    assert "install_requires is computed" in environment.skipped[0].reason


@pytest.mark.parametrize(
    ("table", "version"),
    [
        ("{'torch': 'torch==2.6.0', 'torch': 'torch==2.7.0'}", "2.7.0"),
        ("{'torch': 'torch==2.6.0', **others}", None),
        ("{'torch': 'torch==2.6.0', 'tor' + 'ch': 'torch==2.7.0'}", None),
        ("{**others, 'torch': 'torch==2.7.0'}", "2.7.0"),
        ("{x.split('==')[0]: x for x in ['torch==2.6.0', 'torch==2.7.0']}", "2.7.0"),
        ("{x.split('==')[0]: x.split('==')[0] for x in ['torch==2.6.0']}", None),
    ],
)
def test_an_entry_of_a_table_is_the_one_that_python_takes(table: str, version: str | None, tmp_path: Path) -> None:
    text = f"from setuptools import setup\ndeps = {table}\nsetup(install_requires=[deps['torch']])\n"
    environment = read(tmp_path, text)
    assert specifiers(environment) == ({} if version is None else {"torch": version})
    assert bool(environment.skipped) is (version is None)


@pytest.mark.parametrize("made", ["r + ['b']", "[*r, 'b']", "['b'] + r"])
def test_a_list_that_stands_in_itself_is_said(tmp_path: Path, made: str) -> None:
    environment = read(tmp_path, f"from setuptools import setup\nr = {made}\nsetup(install_requires=r)\n")
    assert "more than 50,000 parts" in environment.skipped[-1].reason


def test_lists_that_double_one_another_are_said(tmp_path: Path) -> None:
    doubled = "".join(f"a{n} = a{n - 1} + a{n - 1}\n" for n in range(1, 60))
    environment = read(tmp_path, f"a0 = ['torch==2.6.0']\n{doubled}setup(install_requires=a59)\n")
    assert set(environment.packages) == {"torch"}
    assert "more than 50,000 parts" in environment.skipped[-1].reason
