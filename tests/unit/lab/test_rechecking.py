"""What grew in a tiny run is looked at a second time: with longer rows, and by options that both releases know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatcheck.lab.environments.overlay import Base
from compatcheck.lab.measurement_files import read_measurements
from tests.cli.run_cli import Ran, run
from tests.unit.lab.local_packages import PROBE
from tests.unit.lab.pack_wheel import pack

ROWS = (
    PROBE.replace('{"factor": 1}', '{"length": 32, "options": "fresh.wide:true"}')
    .replace('return {"held_bytes": 2 * parameters["factor"]}', "return {}")
    .replace('leaky.hold() * parameters["factor"]', 'leaky.hold(parameters["length"], parameters["options"])')
)
KIB = 1024


def publish(index: Path, *releases: tuple[str, str]) -> None:
    """Write releases of leaky: version, and what it holds of ``length`` tokens with ``options``."""
    for version, held in releases:
        pack(index, "leaky", version, f"def hold(length, options):\n    return {held}\n", ("helper==1.0",))
    page = index.parent / "nothing" / "leaky" / "index.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text("".join(f'<a href="{one.as_uri()}">{one.name}</a>' for one in sorted(index.glob("leaky-*"))))


Tool = Callable[..., Ran]


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """The file of a probe whose runs have rows and options, and no prediction."""
    path = tmp_path / "rows_of_leaky.py"
    path.write_text(ROWS, encoding="utf-8")
    return str(path)


@pytest.fixture
def watch(base: Base, index: Path, rows: str, tmp_path: Path) -> Tool:  # noqa: ARG001 (the index is what is asked)
    def look(*arguments: str) -> Ran:
        options = ("--state", tmp_path / "state.json", "--output", tmp_path / "out", "--exclude-newer", "never", "-q")
        return run("watch", rows, "--package", "leaky", "--python", base.python, *options, *arguments)

    return look


def test_a_chunk_larger_than_the_rows_is_no_flag(watch: Tool, index: Path, tmp_path: Path) -> None:
    publish(index, ("1.0", "1024 * length"), ("2.0", "1024 * 128"))
    ran = watch()
    assert ran.code == 0, ran.err
    assert ran.out == (
        "leaky 1.0 -> 2.0: rows_of_leaky (defaults) held_bytes: 32.0 KiB -> 128.0 KiB; "
        "no flag: with rows 8 times as long 256.0 KiB → 128.0 KiB: the change does not last\n"
    )
    assert not (tmp_path / "out" / "rules").exists()
    assert not (tmp_path / "out" / "reports").exists()
    kept = read_measurements(str(tmp_path / "out" / "measurements" / "leaky" / "leaky-2.0.held.jsonl"))
    assert {one.parameters["length"] for one in kept} == {256}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("1024 * length + 8192", "256.0 KiB → 264.0 KiB"),
        ("2048 * length", "256.0 KiB → 512.0 KiB"),
        ("1024 * length + 8192 // (length <= 32)", "256.0 KiB → failed"),
    ],
)
def test_what_stays_with_weights_grows_with_tokens_or_cannot_be_tried_is_a_flag(
    watch: Tool, index: Path, tmp_path: Path, after: str, said: str
) -> None:
    publish(index, ("1.0", "1024 * length"), ("2.0", after))
    ran = watch()
    assert ran.code == 1, ran.err
    assert "no flag" not in ran.out
    page = (tmp_path / "out" / "reports" / "leaky-2.0.md").read_text(encoding="utf-8")
    assert f"- And with rows 8 times as long {said}.\n" in page


@pytest.mark.parametrize(
    ("before", "after", "code", "said"),
    [
        ("1024", "8192 * (1 + ('fresh.wide:true' in options))", 0, "1.0 knows no fresh, wide and ran without"),
        ("1024 * len(['fresh', 'wide'])", "8192 * (1 + ('fresh.wide:true' in options))", 1, ""),
        ("1024", "8192", 1, ""),
    ],
)
def test_an_option_that_the_older_release_reads_over_makes_another_run(
    watch: Tool, index: Path, before: str, after: str, code: int, said: str
) -> None:
    publish(index, ("1.0", before), ("2.0", after))
    ran = watch()
    assert ran.code == code, ran.err
    assert said in ran.out
    assert ("no flag" in ran.out) is (code == 0)


def test_what_is_not_told_from_a_neighbour_is_looked_at_twice_too(watch: Tool, index: Path) -> None:
    pack(index, "helper", "2.0", "NEW = True\n")
    publish(index, ("1.0", "1024 * length"), ("2.0", "1024 * 128"))
    for version, held, helper, wants in (
        ("1.0", "1024 * length", "1.0", "not hasattr(helper, 'NEW')"),
        ("2.0", "1024 * 128", "2.0", "helper.NEW"),
    ):
        module = f"import helper\nassert {wants}\n\ndef hold(length, options):\n    return {held}\n"
        pack(index, "leaky", version, module, (f"helper=={helper}",))
    ran = watch()
    assert ran.code == 0, ran.err
    assert "no flag: with rows 8 times as long 256.0 KiB → 128.0 KiB: the change does not last" in ran.out


def test_a_sweep_says_it_and_drafts_nothing(base: Base, index: Path, rows: str, tmp_path: Path) -> None:
    publish(index, ("1.0", "1024 * length"), ("2.0", "1024 * 128"))
    arguments = ("sweep", rows, "--package", "leaky", "--python", base.python, "--exclude-newer", "never", "-q")
    ran = run(*arguments, "--drafts", tmp_path / "drafts")
    assert "with rows 8 times as long 256.0 KiB → 128.0 KiB: the change does not last" in " ".join(ran.out.split())
    assert not (tmp_path / "drafts").exists()
    (change,) = json.loads(run(*arguments, "--format", "json").out)["changes"]
    assert (change["attribution"]["cause"], change["lasts"]) == ("package", False)
    assert "| leaky's own; with rows 8 times as long" in run(*arguments, "--format", "markdown").out


def test_what_a_prediction_judges_is_measured_once(base: Base, index: Path, rows: str, tmp_path: Path) -> None:
    publish(index, ("1.0", "1024 * length"), ("2.0", "1024 * 128"))
    Path(rows).write_text(ROWS.replace("return {}", 'return {"held_bytes": 0}', 1), encoding="utf-8")
    options = ("--state", tmp_path / "state.json", "--output", tmp_path / "out", "--exclude-newer", "never", "-q")
    ran = run("watch", rows, "--package", "leaky", "--python", base.python, *options)
    assert ran.code == 1, ran.err
    assert not (tmp_path / "out" / "measurements" / "leaky" / "leaky-2.0.held.jsonl").exists()
