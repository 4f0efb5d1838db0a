"""The built-in rules are opened wherever they are; a checkout is compiled once per change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from compatcheck.core.errors import RuleError
from compatcheck.rules import locate
from compatcheck.rules.compile import compile_database, compile_directory
from tests import ROOT
from tests.unit.rules.drawn_rules import rule

RULE = ROOT / "rules/deepspeed/zero3-params-kept-in-backward.yaml"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rules = tmp_path / "rules"
    (rules / "deepspeed").mkdir(parents=True)
    shutil.copy(RULE, rules / "deepspeed")
    monkeypatch.setattr(locate, "CHECKOUT", str(rules))
    monkeypatch.setattr(locate, "open_builtin", locate.open_builtin.__wrapped__)  # opened anew each time
    monkeypatch.setattr(locate, "COMPILED", str(tmp_path / "missing.jsonl"))
    return rules


def cached(checkout: Path) -> list[str]:
    return sorted(path.name for path in (checkout.parent / ".cache").iterdir())


def test_a_checkout_is_compiled_once_and_again_after_a_change(checkout: Path) -> None:
    first = locate.open_builtin()
    assert first.count == 1
    (before,) = cached(checkout)
    assert locate.open_builtin().id == first.id
    assert cached(checkout) == [before]
    path = checkout / "deepspeed" / RULE.name
    path.write_text(path.read_text(encoding="utf-8").replace("zero_stage == 3", "zero_stage == 2"), encoding="utf-8")
    assert locate.open_builtin().id != first.id
    (after,) = cached(checkout)
    assert after != before


def test_a_checkout_that_cannot_be_written_is_compiled_once(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout.parent / ".cache").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("COMPATCHECK_CACHE", str(tmp_path / "own"))
    first = locate.open_builtin().id
    monkeypatch.setattr("compatcheck.rules.compile.compile_directory", lambda _: pytest.fail("compiled again"))
    assert locate.open_builtin().id == first
    assert [path.suffix for path in (tmp_path / "own/rules").rglob("*.*")] == [".jsonl"]


def test_a_process_with_older_code_leaves_nothing_behind(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "_LOADED", [("what it was when the process began", 1, 1)])
    assert locate.open_builtin().count == 1
    assert not (checkout.parent / ".cache").exists()


def test_rules_that_change_while_they_are_compiled_are_not_kept(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_and_change(directory: Path) -> bytes:
        data = compile_directory(directory)
        shutil.copy(RULE, checkout / "deepspeed" / "another.yaml")
        return data

    monkeypatch.setattr("compatcheck.rules.compile.compile_directory", compile_and_change)
    assert locate.open_builtin().count == 1
    assert not (checkout.parent / ".cache").exists()


def test_code_that_compiles_is_part_of_the_key(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "code"
    code.mkdir()
    monkeypatch.setattr(locate, "_COMPILER", (str(code),))
    (code / "versions.py").write_text("old", encoding="utf-8")
    monkeypatch.setattr(locate, "_LOADED", locate._list_files(str(code)))
    locate.open_builtin()
    (before,) = cached(checkout)
    (code / "versions.py").write_text("newer", encoding="utf-8")
    locate.open_builtin()
    assert cached(checkout) == [before]  # this process still has the old code
    monkeypatch.setattr(locate, "_LOADED", locate._list_files(str(code)))
    locate.open_builtin()
    (after,) = cached(checkout)
    assert after != before


def test_what_was_opened_stays_readable_when_another_process_replaces_it(checkout: Path) -> None:
    opened = locate.open_builtin()
    shutil.rmtree(checkout.parent / ".cache")
    assert len(list(opened.all_rules())) == 1


def test_a_checkout_that_cannot_be_written_to_is_still_read(checkout: Path) -> None:
    (checkout.parent / ".cache").write_text("in the way", encoding="utf-8")
    assert locate.open_builtin().count == 1


def test_a_compiled_file_wins_over_a_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = checkout.parent / "db.jsonl"
    compiled.write_bytes(compile_database([rule(id="a/x"), rule(id="a/y")], {}, "2026-01-01"))
    monkeypatch.setattr(locate, "COMPILED", str(compiled))
    assert locate.open_builtin().count == 2


def test_without_any_rules_the_installation_is_broken(checkout: Path) -> None:
    shutil.rmtree(checkout)
    with pytest.raises(RuleError) as caught:
        locate.open_builtin()
    assert caught.value.hint == "reinstall compatcheck"


def test_a_directory_of_ones_own_is_added(checkout: Path, tmp_path: Path) -> None:
    assert checkout.is_dir()
    mine = tmp_path / "mine"
    (mine / "pkg").mkdir(parents=True)
    shutil.copy(RULE, mine / "pkg" / "other.yaml")
    opened = locate.open_rules((str(mine),))
    assert {found.id for found in opened.all_rules()} == {f"deepspeed/{RULE.stem}", "pkg/other"}
    for path in (os.path.join(mine, "nothing"), str(RULE)):
        with pytest.raises(RuleError):
            locate.open_rules((path,))
