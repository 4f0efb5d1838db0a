"""`compatcheck rules export`: what is written where, and what is refused."""

from __future__ import annotations

import json
import os
import zipfile

import pytest

from tests.cli.run_cli import run

RULE = "deepspeed/zero3-params-kept-in-backward"
NAME = "x_COMPATCHECK-deepspeed.zero3-params-kept-in-backward"


def test_records_go_to_standard_output() -> None:
    done = run("rules", "export", "--format", "osv", "--select", RULE)
    assert done.code == 0
    assert [record["id"] for record in json.loads(done.out)] == [NAME]


def test_all_rules_are_written_with_their_conditions() -> None:
    done = run("rules", "export", "--format", "osv")
    assert len(json.loads(done.out)) > 100
    assert "left out: _stack/" in done.err
    assert done.err.count("\n") < 20


def test_records_are_written_as_list_archive_and_directory(tmp_path) -> None:
    places = [tmp_path / "all.json", tmp_path / "all.zip", tmp_path / "folder"]
    for place in places:
        done = run("rules", "export", "--format", "osv", "--select", "deepspeed/*", "--output", place)
        assert (done.code, done.out) == (0, "")
    listed = {record["id"]: record for record in json.loads(places[0].read_text(encoding="utf-8"))}
    assert NAME in listed
    with zipfile.ZipFile(places[1]) as archive:
        assert {name: json.loads(archive.read(name)) for name in archive.namelist()} == {
            f"{name}.json": record for name, record in listed.items()
        }
    assert {path.name: json.loads(path.read_text(encoding="utf-8")) for path in places[2].iterdir()} == {
        f"{name}.json": record for name, record in listed.items()
    }
    first = places[1].read_bytes()
    run("rules", "export", "--format", "osv", "--select", "deepspeed/*", "--output", places[1])
    assert places[1].read_bytes() == first


def test_stale_records_are_not_mixed_in(tmp_path) -> None:
    assert run("rules", "export", "--format", "osv", "--select", "trl/*", "--output", tmp_path / "out").code == 0
    done = run("rules", "export", "--format", "osv", "--select", "deepspeed/*", "--output", tmp_path / "out")
    assert done.code == 2
    assert "not among these rules" in done.err
    assert not list((tmp_path / "out").glob("*deepspeed*"))


@pytest.mark.parametrize("form", ["constraints", "uv", "uv-overrides", "renovate"])
def test_conditions_that_cannot_be_said_must_be_chosen(form, tmp_path) -> None:
    done = run("rules", "export", "--format", form)
    assert (done.code, done.out) == (2, "")
    assert "--select" in done.err
    path = tmp_path / "out"
    done = run("rules", "export", "--format", form, "--select", RULE, "--output", path)
    assert (done.code, done.out) == (0, "")
    text = path.read_text(encoding="utf-8")
    assert "!=0.16.0,!=0.16.1,!=0.16.2,!=0.16.3,!=0.16.4,!=0.16.5,!=0.16.6,!=0.16.7" in text
    assert RULE in text


def test_what_has_no_range_is_said() -> None:
    done = run("rules", "export", "--format", "constraints", "--select", "deepspeed/zero3-reuse*")
    assert done.code == 2
    assert "is about every release of deepspeed" in done.err
    done = run("rules", "export", "--format", "osv", "--select", "_stack/s*")
    assert done.code == 2
    assert "_stack/settings-disagree is about no package" in done.err
    assert run("rules", "export", "--format", "osv", "--select", "nonsense/*").code == 2


def test_place_that_cannot_be_written_is_said(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("missing/all.json", "missing/all.zip", "file/folder"):
        done = run("rules", "export", "--format", "osv", "--select", RULE, "--output", tmp_path / place)
        assert done.code == 2
        assert "cannot be written" in done.err
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        assert run("rules", "export", "--format", "osv", "--output", tmp_path / "closed" / "all.json").code == 2
