"""`-` reads one input from standard input, recognised by what it holds as files are by name."""

from __future__ import annotations

import io
import json

import pytest
from run_cli import Ran, run

from compatcheck.configs import lines

DEEPSPEED = '{\n  "zero_optimization": {"stage": 3},\n  "bf16": {"enabled": true}\n}\n'
PYLOCK = 'lock-version = "1.0"\ncreated-by = "t"\n[[packages]]\nname = "deepspeed"\nversion = "0.16.4"\n'
UV_LOCK = """version = 1
requires-python = ">=3.10"

[[package]]
name = "deepspeed"
version = "0.16.4"
source = { registry = "https://packages.example/simple" }

[[package]]
name = "x"
version = "0.1"
source = { virtual = "." }
dependencies = [{ name = "deepspeed" }]
"""
PYPROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["deepspeed==0.16.4"]\n'
FACTS = 'compatcheck: 1\npackages:\n  deepspeed: "0.16.4"\n'
MODEL = (
    '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "vocab_size": 99}'
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Forget the lines of the test before: a process has but one standard input."""
    lines._lines.cache_clear()


def give(monkeypatch: pytest.MonkeyPatch, content: str, *arguments: str) -> Ran:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode()), encoding="utf-8"))
    return run(*arguments)


@pytest.mark.parametrize(
    "content",
    ["deepspeed==0.16.4\n", "# pinned\ndeepspeed==0.16.4 \\\n  --hash=sha256:00\n", PYLOCK, UV_LOCK, PYPROJECT, FACTS],
)
def test_packages_are_read_whatever_lists_them(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = give(monkeypatch, content, "check", "-", "--format", "json", "--fail-on", "never")
    assert ran.code == 0, ran.out + ran.err
    (subject,) = json.loads(ran.out)["subjects"]
    assert subject["id"] == "<stdin>"
    package = next(entry for entry in subject["environment"]["packages"] if entry["name"] == "deepspeed")
    assert package["version"] == "0.16.4"
    assert package["source"].startswith("<stdin>")


@pytest.mark.parametrize(
    ("content", "name", "value"),
    [
        (DEEPSPEED, "training.zero_stage", 3),
        (MODEL, "model.hidden_size", 4096),
        ("# stage 3\nzero_optimization:\n  stage: 3\n", "training.zero_stage", 3),
        ("{\n// hjson\nzero_optimization: {\nstage: 3\n}\n}", "training.zero_stage", 3),
        ("per_device_train_batch_size: 2\nlearning_rate: 1.0e-5\noutput_dir: out\n", "training.micro_batch_size", 2),
    ],
)
def test_configurations_are_read(content: str, name: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = give(monkeypatch, content, "facts", "-", "--format", "json")
    (subject,) = json.loads(ran.out)["subjects"]
    fact = next(fact for fact in subject["facts"] if fact["name"] == name)
    assert fact["value"] == value
    assert fact["source"].startswith("<stdin>")


def test_a_key_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = give(monkeypatch, DEEPSPEED, "facts", "-", "--format", "json")
    facts = json.loads(ran.out)["subjects"][0]["facts"]
    source = next(fact["source"] for fact in facts if fact["name"] == "training.zero_stage")
    assert source == "<stdin>:2 (zero_optimization.stage)"


def test_it_goes_together_with_files(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("ds.json", "w", encoding="utf-8") as file:
        file.write(DEEPSPEED)
    ran = give(monkeypatch, "deepspeed==0.16.4\n", "check", "-", "ds.json", "--format", "json", "--fail-on", "never")
    (subject,) = json.loads(ran.out)["subjects"]
    assert subject["id"] == "<stdin> + ds.json"


@pytest.mark.parametrize("format_name", ["text", "sarif", "junit", "markdown"])
def test_every_format_names_it(format_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = give(monkeypatch, "deepspeed==0.16.4\n", "check", "-", "--format", format_name, "--fail-on", "never")
    assert ran.code == 0, ran.err
    assert "stdin" in ran.out


def test_named_twice_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = give(monkeypatch, "deepspeed==0.16.4\n", "check", "-", "-")
    assert ran.code == 2
    assert "standard input is named twice" in ran.err


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_an_empty_one_is_nothing_to_check(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = give(monkeypatch, content, "check", "-")
    assert (ran.code, ran.out) == (3, "")
    assert "<stdin>" in ran.err
    assert "empty" in ran.err


def test_an_empty_one_beside_a_file_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("requirements.txt", "w", encoding="utf-8") as file:
        file.write("deepspeed==0.15.4\n")
    ran = give(monkeypatch, "", "check", "-", "requirements.txt")
    assert ran.code == 0
    assert "<stdin>: standard input is empty" in ran.out


def test_what_is_no_known_kind_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = give(monkeypatch, '{"a": ', "check", "-")
    assert ran.code == 4
    assert "<stdin>:1" in ran.out


def test_a_closed_one_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    ran = run("check", "-")
    assert ran.code == 4
    assert "closed" in ran.out
