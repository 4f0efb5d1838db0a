"""A valid file changed at any place is read, read in part, or refused with a place and a remedy: never an exception."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatcheck.collectors.read import read_environments
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from tests import ROOT
from tests.effort import at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENVIRONMENTS = ROOT / "fixtures" / "environments"
FILES = {
    "poetry_lock": "poetry-project/poetry.lock",
    "pdm_lock": "pdm-project/pdm.lock",
    "pipfile_lock": "pipenv-project/Pipfile.lock",
    "pipfile": "pipenv-project/Pipfile",
    "uv_lock": "uv-project/uv.lock",
    "pylock": "uv-project/pylock.toml",
    "pyproject": "poetry-project/pyproject.toml",
    "pip_inspect": "listed/pip-inspect.json",
}
UNITS = 50
"""What a hostile file may take here; each takes below one second when the machine is idle."""


def _load(kind: str) -> Any:
    text = ENVIRONMENTS.joinpath(FILES[kind]).read_text()
    return json.loads(text) if kind in {"pipfile_lock", "pip_inspect"} else tomllib.loads(text)


def _dump(value: object) -> str:
    """Write a value as inline TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value).lower()


def _write(kind: str, data: Any) -> str:
    if kind in {"pipfile_lock", "pip_inspect"}:
        return json.dumps(data, indent=1)
    return "".join(f"{json.dumps(key)} = {_dump(value)}\n" for key, value in data.items())


def _places(data: object) -> Iterator[tuple[Any, Any]]:
    """List every (container, key) of nested data."""
    pending = [data]
    while pending:
        one = pending.pop()
        items = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for key, value in items:
            yield one, key
            pending.append(value)


ODD = st.one_of(
    st.sampled_from(
        [0, -1, True, 1.5, "", "x", "==", ">=1,<0", "||", "1 || 2", "^", "*", "\\", "a" * 5000, "${X}", "[[", "é\t"]
    ),
    st.sampled_from(
        [[], {}, [[]], [{}], [1, "a"], {"a": {"b": [{}]}}, {"name": 1}, {"version": []}, [["a"]], [None]]
    ).map(lambda value: json.loads(json.dumps(value).replace("null", "0"))),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
)


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_file_is_read_or_refused(kind: str, tmp_path: Path, data: st.DataObject) -> None:
    content = _load(kind)
    for _ in range(data.draw(st.integers(1, 4))):
        places = list(_places(content))
        if not places:
            break
        container, key = data.draw(st.sampled_from(places))
        if data.draw(st.booleans()):
            container[key] = data.draw(ODD)
        else:
            del container[key]
    path = tmp_path / Path(FILES[kind]).name
    path.write_text(_write(kind, content), encoding="utf-8")
    _read(str(path), kind)


@pytest.mark.parametrize("kind", [*FILES, "requirements", "pip_list", "script"])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_and_damaged_bytes_are_read_or_refused(kind: str, tmp_path: Path, data: st.DataObject) -> None:
    files = {
        **FILES,
        "requirements": "listed/pip-freeze.txt",
        "pip_list": "listed/pip-list.txt",
        "script": "script/train.py",
    }
    source = ENVIRONMENTS.joinpath(files[kind])
    content = source.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    path = tmp_path / source.name
    path.write_bytes(content[:start] + data.draw(st.binary(max_size=8)) + content[end:])
    _read(str(path), kind)


def _read(path: str, kind: str) -> None:
    try:
        found = read_environments(path, kind)
    except InputError as error:
        assert error.source is not None
        assert error.hint
        return
    for environment in found:
        assert isinstance(environment, Environment)
        assert all(entry.reason for entry in environment.skipped)
        for name, package in environment.packages.items():
            assert package.name == name
            assert package.version is None or isinstance(package.version, str)
            assert (package.version is None) == (package.specifier is not None) or package.specifier is None


SPACES = " " * 300_000
ENTRY = "[[package]]\nname='a'\nversion='1'\n"
POETRY = "[metadata]\nlock-version='2.0'\n"
HOSTILE = {
    "poetry_lock": [
        ENTRY * 20_000 + POETRY,
        "a = " + "[" * 50_000 + "]" * 50_000,
        ENTRY + f"[package.dependencies]\nb = '{SPACES}|'\n[package.extras]\nx = ['b{SPACES}!']\n" + POETRY,
        ENTRY + f"description = '''\n[{SPACES}x{SPACES}\n'''\n" + POETRY,
        ENTRY + "dependencies.a = {version='1', extras=['a']}\nextras.a = [" + "'a[a]'," * 50_000 + "]\n" + POETRY,
    ],
    "pdm_lock": [
        "[metadata]\nlock_version = '4.5'\n[[package]]\nname = 'a'\nversion = '1'\ndependencies = ['"
        + "(" * 5000
        + "']\n",
        "[metadata]\nlock_version = '4.5'\n[[metadata.targets]]\nrequires_python = '" + "|" * 5000 + "'\n",
        "[metadata]\nlock_version = '4.5'\n[[package]]\nname = 'a'\nversion = '" + "9" * 100_000 + "'\n",
    ],
    "pipfile_lock": [
        '{"_meta": {"pipfile-spec": 6}, "default": {' + ",".join(f'"p{n}": {{}}' for n in range(50_000)) + "}}",
        '{"_meta": {"pipfile-spec": ' + "9" * 10_000 + "}}",
        '{"_meta": {"pipfile-spec": 6}, "default": {"a": {"version": "==1", "markers": "' + "(" * 10_000 + '"}}}',
        '{"_meta":' * 100_000,
    ],
    "pipfile": ["[packages]\n" + "".join(f"p{n} = '*'\n" for n in range(20_000))],
    "pyproject": [
        "[project]\ndependencies = [" + "".join(f"'p{n}',\n" for n in range(8_000)) + "]\n",
        "[project]\ndependencies = [" + "'p>1', 'p<1',\n" * 20_000 + "]\n",
        "[tool.poetry.dependencies]\np = [" + "{version = '1 || 2 || 3'},\n" * 5_000 + "]\n",
    ],
    "requirements": [
        "a" + SPACES + "#" + SPACES + "\n",
        SPACES + "x\n",
        "-e " * 100_000,
        "[" * 100_000 + "]",
        "a==1 " + "--hash=sha256:aa " * 20_000,
        "a>1\na<1\n" * 20_000,
        "# Editable install with no " + "a " * 100_000,
    ],
    "pip_list": [
        "Package Version\n--- ---\n" + "a" + SPACES + "1" + SPACES + "\n",
        "a (" + "(" * 200_000,
        "[" * 200_000,
    ],
    "script": ["# /// script\n# dependencies = [\n" + "#  'a',\n" * 5_000 + "# ]\n# ///\n"],
}


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, number) for kind, texts in HOSTILE.items() for number in range(len(texts))]
)
def test_hostile_files_end_soon(tmp_path: Path, kind: str, number: int) -> None:
    path = tmp_path / "input"
    path.write_text(HOSTILE[kind][number])
    with at_most(UNITS):
        _read(str(path), kind)


@pytest.mark.parametrize("kind", [*FILES, "requirements", "pip_list", "script"])
def test_a_file_of_100_megabytes_is_refused_unread(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "input"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    with at_most(10), pytest.raises(InputError, match="at most"):
        read_environments(str(path), kind)
