"""`compatcheck rules`: list, show, lint and start rules."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tests import ROOT
from tests.cli.run_cli import run

RULE = "deepspeed/zero3-params-kept-in-backward"


def test_list() -> None:
    everything, active = run("rules", "list", "--all", "--format", "json"), run("rules", "list", "--format", "json")
    assert everything.code == active.code == 0
    rows = json.loads(active.out)
    assert RULE in [row["id"] for row in rows]
    assert {row["status"] for row in rows} == {"active"}
    assert len(json.loads(everything.out)) >= len(rows)
    only = json.loads(run("rules", "list", "deepspeed/*", "--format", "json").out)
    assert {row["id"].partition("/")[0] for row in only} == {"deepspeed"}
    assert RULE in run("rules", "list").out


def test_show() -> None:
    ran = run("rules", "show", RULE)
    assert ran.code == 0
    for part in (">=0.16.0,<0.16.8", "training.zero_stage == 3", "https://"):
        assert part in ran.out
    assert run("rules", "show", "deepspeed/unheard-of").code == 2


def test_new_writes_through_no_link_of_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    checkout = tmp_path / "checkout"
    (checkout / ".git").mkdir(parents=True)
    (checkout / "rules").mkdir()
    (checkout / "rules" / "deepspeed").symlink_to(tmp_path / "outside")
    ran = run("rules", "new", "deepspeed/bad-pattern", "--directory", checkout / "rules")
    assert ran.code == 2
    assert not list((tmp_path / "outside").iterdir())


def test_new_then_lint(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    ran = run("rules", "new", "deepspeed/bad-pattern", "--directory", rules)
    assert ran.code == 0
    assert Path(ran.out.strip()) == rules / "deepspeed/bad-pattern.yaml"
    assert run("rules", "new", "deepspeed/bad-pattern", "--directory", rules).code == 2
    assert run("rules", "new", "bad pattern", "--directory", rules).code == 2
    assert run("rules", "new", "../../etc/passwd", "--directory", rules).code == 2
    assert run("rules", "new", f"deepspeed/{'a' * 300}", "--directory", rules).code == 2
    ran = run("rules", "lint", rules)
    assert ran.code == 1
    assert "1 rule, " in ran.err
    keys = re.findall(r"bad-pattern\.yaml:\d+ \((\w+)\): the skeleton's placeholder stands here: \w", ran.out)
    texts = ["title", "affected", "checked_through", "when", "impact", "what", "why", "known_problems", "remedies"]
    assert keys == [*texts, "references", "examples", "examples"]
    filled = re.sub(r"TODO:?", "", Path(f"{rules}/deepspeed/bad-pattern.yaml").read_text(encoding="utf-8"))
    (rules / "deepspeed/bad-pattern.yaml").write_text(filled, encoding="utf-8")
    assert run("rules", "lint", rules).code == 0


def test_lint_of_ones_own_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules/mine/copied.yaml"
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / f"rules/{RULE}.yaml", path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("training.zero_stage == 3 and", "training.zero_stgae == 3 and"), encoding="utf-8")
    ran = run("rules", "lint", path)
    assert ran.code == 1
    assert "copied.yaml (when): unknown fact 'training.zero_stgae' (did you mean 'training.zero_stage'?" in ran.out
    path.write_text(text.replace("kind: regression", "kind: regresion"), encoding="utf-8")
    ran = run("rules", "lint", path)
    assert ran.code == 1
    assert "copied.yaml:" in ran.out
    assert run("rules", "lint", tmp_path / "nothing").code == 2


def _copy(directory: Path, name: str = RULE, change: tuple[str, str] = ("", "")) -> Path:
    path = directory / f"{name}.yaml"
    path.parent.mkdir(parents=True)
    text = (ROOT / f"rules/{RULE}.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace(*change), encoding="utf-8")
    return path


def test_a_rule_with_the_id_of_a_built_in_one_is_refused(tmp_path: Path) -> None:
    path = _copy(tmp_path / "mine")
    Path("requirements.txt").write_text("deepspeed==0.16.4\n")
    commands = (("check", "requirements.txt"), ("rules", "list"), ("rules", "show", RULE), ("explain", RULE))
    for command in commands:
        ran = run(*command, "--rules", tmp_path / "mine")
        assert ran.code == 2, command
        assert str(path) in ran.err
        assert f"rules/{RULE}.yaml" in ran.err.replace(str(path), "")
        assert "--ignore" in ran.err


def test_two_directories_with_one_id_are_refused(tmp_path: Path) -> None:
    first, second = _copy(tmp_path / "a", "deepspeed/own"), _copy(tmp_path / "b", "deepspeed/own")
    ran = run("rules", "list", "--rules", tmp_path / "a", "--rules", tmp_path / "b")
    assert ran.code == 2
    assert str(first) in ran.err
    assert str(second) in ran.err


def test_a_directory_named_twice_is_read_once(tmp_path: Path) -> None:
    _copy(tmp_path / "a", "deepspeed/own")
    ran = run("rules", "list", "deepspeed/own", "--rules", tmp_path / "a", "--rules", tmp_path / "a" / ".." / "a")
    assert ran.code == 0, ran.err
    assert "1 rule " in ran.err


def test_the_former_id_of_a_built_in_rule_is_taken_too(tmp_path: Path) -> None:
    _copy(tmp_path / "a", "deepspeed/own")
    _copy(tmp_path / "b", "deepspeed/newer", ("status: active", "status: active\nformer_ids: [deepspeed/own]"))
    ran = run("rules", "list", "--rules", tmp_path / "b", "--rules", tmp_path / "a")
    assert ran.code == 2
    assert "former id" in ran.err


def test_a_changed_copy_of_a_built_in_rule_is_linted_as_it_is(tmp_path: Path) -> None:
    path = _copy(tmp_path / "rules", change=("<0.16.8", "<0.16.7"))
    ran = run("rules", "lint", path)
    assert ran.code == 1
    assert "no match at deepspeed 0.16.6" in ran.out
