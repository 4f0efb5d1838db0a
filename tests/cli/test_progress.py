"""How far long work is stands on a terminal's standard error, and nowhere else."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from compatcheck.cli import progress
from compatcheck.cli.__main__ import main
from tests import ROOT

CASE = str(ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show what takes less than a second, too."""
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_BETWEEN_SECONDS", 0.0)


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    with pytest.raises(SystemExit):
        main(list(arguments))
    return stream.getvalue()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rules", "lint", "rules/accelerate"), r"checking rules: 2 of \d+, about \d+ s left"),
        (("check", CASE, "-q"), "judging runs: 1 of 1.*planning changes: 1 of 1"),
        (("check", "fixtures/upgrade", "-q"), "reading files: 1"),
        (("estimate", CASE), "estimating runs: 1 of 1"),
        (("facts", CASE), "reading files: 1"),
        (("fix", CASE, "--offline"), "planning changes: 1 of 1"),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_a_terminal_shows_how_far_it_is(arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = shown(Terminal(), monkeypatch, *arguments)
    assert re.search(said, text, re.DOTALL), text
    assert "\r\x1b[K" in text
    assert "\n" not in text.rpartition("\r\x1b[K")[0], "the line is gone before anything else is said"
    assert shown(io.StringIO(), monkeypatch, *arguments).count("\x1b") == 0


def test_what_takes_no_second_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n")
    assert "\x1b[K" not in shown(Terminal(), monkeypatch, "check", str(tmp_path))
