"""What pip and uv print about an environment is read, from a file or pasted with their remarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.collectors.requirements.pip_list import read_pip_inspect, read_pip_list
from compatcheck.core.errors import InputError
from tests import ROOT

LISTED = ROOT / "fixtures" / "environments" / "listed"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_columns(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "list.txt"
    path.write_text(LISTED.joinpath("pip-list.txt").read_text(), encoding=encoding)
    environment = read_pip_list(str(path))
    assert environment.complete
    assert {name: package.version for name, package in environment.packages.items()} == {
        "deepspeed": "0.16.4",
        "flash-attn": "2.7.4.post1",
        "my-project": "0.1.0",
        "nvidia-nccl-cu12": "2.21.5",
        "torch": "2.6.0+cu124",
    }
    assert environment.packages["my-project"].details == {"editable": "true", "direct_url": "/home/me/my project"}
    assert environment.packages["torch"].source.line == 7


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_json(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(LISTED.joinpath("pip-list.json").read_text(), encoding=encoding)
    environment = read_pip_list(str(path))
    assert environment.complete
    assert environment.packages["torch"].version == "2.6.0+cu124"
    assert environment.packages["my-project"].details["editable"] == "true"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch (2.6.0)\nmine (0.1, /src/mine)\n", {"torch": "2.6.0", "mine": "0.1"}),
        ("$ pip list\nPackage Version\n------- -------\ntorch   2.6.0\n", {"torch": "2.6.0"}),
        ("Package Version Location Installer\n--- --- --- ---\ntorch 2.6.0 /lib pip\n", {"torch": "2.6.0"}),
        ("WARNING: Ignoring invalid distribution ~orch\nPackage Version\n--- ---\ntorch 2.6.0\n", {"torch": "2.6.0"}),
    ],
)
def test_other_forms(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    path = tmp_path / "list.txt"
    path.write_text(text)
    environment = read_pip_list(str(path))
    assert {name: package.version for name, package in environment.packages.items()} == found
    assert environment.complete


def test_uv_names_the_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("Using Python 3.12.1 environment at: .venv\nPackage Version\n--- ---\ntorch 2.6.0\n")
    environment = read_pip_list(str(path))
    assert (environment.python, set(environment.packages)) == ("3.12.1", {"torch"})


def test_what_is_not_a_list_of_everything_is_not_complete(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("Package Version Latest Type\n--- --- --- ---\ntorch 2.6.0 2.7.0 wheel\n")
    assert not read_pip_list(str(path)).complete
    path.write_text("Package Version\n--- ---\ntorch 2.6.0\nsomething else entirely, cut off\nodd x!y\n")
    environment = read_pip_list(str(path))
    assert [entry.source.line for entry in environment.skipped] == [4, 5]
    assert environment.packages["odd"].version is None
    path.write_text('[{"name": "torch"}, 1, {"name": "a", "version": "1", "latest_version": "2"}]')
    environment = read_pip_list(str(path))
    assert set(environment.packages) == {"a"}
    assert len(environment.skipped) == 3


def test_inspect_report() -> None:
    report = json.loads(LISTED.joinpath("pip-inspect.json").read_text())
    environment = read_pip_inspect(str(LISTED / "pip-inspect.json"))
    assert environment.complete
    assert environment.python == report["environment"]["python_full_version"]
    stated = [(entry["metadata"]["name"], entry["metadata"]["version"]) for entry in report["installed"]]
    assert [(name, package.version) for name, package in environment.packages.items()] == stated
    first, second = list(environment.packages.values())[:2]
    assert first.details["direct_url"] == "https://[redacted]@git.example/training.git"
    assert first.details["revision"] == "v1"
    assert second.details["editable"] == "true"


@pytest.mark.parametrize("text", ["{}", '{"version": "2", "installed": []}', '{"version": "1", "installed": 1}', "[]"])
def test_other_json_is_no_inspect_report(tmp_path: Path, text: str) -> None:
    path = tmp_path / "inspect.json"
    path.write_text(text)
    with pytest.raises(InputError, match="no report of pip inspect"):
        read_pip_inspect(str(path))
