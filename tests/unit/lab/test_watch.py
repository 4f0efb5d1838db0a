"""A look at what is new: each release beside the one before, from an index of local wheels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from compatcheck.core.errors import UsageError
from compatcheck.lab.environments.overlay import Base
from compatcheck.lab.evidence.files import write_whole
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.release_series import Series, SeriesChange
from compatcheck.lab.releases import Axis
from compatcheck.lab.watch import MOST_TRIES, PACKAGES, State, choose_pairs, choose_tasks, is_growth
from compatcheck.rules.load import load_rule
from tests import ROOT
from tests.cli.run_cli import Ran, run
from tests.unit.lab.local_packages import leaky
from tests.unit.lab.pack_wheel import pack

KIB = 1024


def publish(index: Path, *releases: tuple[str, int, str]) -> None:
    """Write releases of leaky (version, bytes held, helper) and the page of a simple index that lists all of them."""
    for version, held, helper in releases:
        pack(index, "leaky", version, leaky(held), (f"helper=={helper}",))
    page = index.parent / "nothing" / "leaky" / "index.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text("".join(f'<a href="{one.as_uri()}">{one.name}</a>' for one in sorted(index.glob("leaky-*"))))


Watch = Callable[..., Ran]


@pytest.fixture
def watch(base: Base, index: Path, probe: str, tmp_path: Path) -> Watch:  # noqa: ARG001 (the index is what is asked)
    def look(*arguments: str) -> Ran:
        options = ("--state", tmp_path / "state.json", "--output", tmp_path / "out", "--exclude-newer", "never", "-q")
        return run("watch", probe, "--package", "leaky", "--python", base.python, *options, *arguments)

    return look


def test_a_growth_of_the_packages_own_is_flagged_drafted_and_written_up(
    watch: Watch, index: Path, tmp_path: Path
) -> None:
    pack(index, "helper", "2.0", f"MORE = {64 * KIB}\n")
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 24 * KIB, "2.0"))
    ran = watch()
    assert ran.code == 1, ran.err
    assert "held_by_leaky (defaults) held_bytes: 8.00 KiB -> 24.0 KiB\n" in ran.out, "64 KiB are helper's"
    (draft,) = (tmp_path / "out" / "rules" / "leaky").iterdir()
    assert load_rule(draft, tmp_path / "out" / "rules").status == "draft"
    page = (tmp_path / "out" / "reports" / "leaky-2.0.md").read_text(encoding="utf-8")
    text, _, script = page.partition("<details>")
    assert "helper 1.0 → 2.0 moved, too; with those of 1.0 on both sides 8.00 KiB → 24.0 KiB" in text
    assert len(text.splitlines()) < 60
    assert "held_bytes of (defaults) grew by 200 %" in text
    assert f"return int(value > {(8 + 24) / 2 * KIB})" in script
    compile(script.partition("```python")[2].partition("```")[0], "script", "exec")
    drawn = (tmp_path / "out" / "memory.html").read_text(encoding="utf-8")
    assert "1 of 1 numbers changed." in drawn
    assert "held_by_leaky" in drawn


def test_what_a_neighbour_did_is_no_flag(watch: Watch, index: Path, tmp_path: Path) -> None:
    pack(index, "helper", "2.0", f"MORE = {64 * KIB}\n")
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 8 * KIB, "2.0"))
    ran = watch()
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert not (tmp_path / "out" / "reports").exists()


def test_what_a_neighbour_gives_back_hides_nothing(watch: Watch, index: Path, tmp_path: Path) -> None:
    pack(index, "helper", "2.0", f"MORE = {64 * KIB}\n")
    publish(index, ("1.0", 8 * KIB, "2.0"), ("2.0", 72 * KIB, "1.0"))
    ran = watch()
    assert ran.code == 1, ran.err
    assert "leaky 1.0 -> 2.0: held_by_leaky (defaults) held_bytes: 72.0 KiB -> 136.0 KiB\n" in ran.out
    kept = read_measurements(str(tmp_path / "out" / "measurements" / "leaky" / "leaky-2.0.jsonl"))
    assert [one.results for one in kept] == [{"held_bytes": 72 * KIB}] * 2, (
        "as they are beside the packages of their days"
    )


def test_what_grew_by_a_neighbour_and_by_a_trifle_of_its_own_is_no_flag(watch: Watch, index: Path) -> None:
    pack(index, "helper", "2.0", f"MORE = {64 * KIB}\n")
    publish(index, ("1.0", 100 * KIB, "1.0"), ("2.0", 101 * KIB, "2.0"))
    ran = watch()
    assert (ran.code, ran.out) == (0, ""), ran.err


def test_what_grew_beside_a_release_that_cannot_be_measured_is_flagged_against_the_one_before_it(
    watch: Watch, index: Path, tmp_path: Path
) -> None:
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 8 * KIB, "9.9"), ("3.0", 24 * KIB, "1.0"))
    ran = watch()
    assert ran.code == 1, ran.err
    assert "leaky 1.0 -> 3.0: held_by_leaky (defaults) held_bytes: 8.00 KiB -> 24.0 KiB\n" in ran.out
    (draft,) = (tmp_path / "out" / "rules" / "leaky").iterdir()
    assert 'unverified: {leaky: ">1.0,<3.0"}' in draft.read_text(encoding="utf-8")


def test_what_grew_and_cannot_be_told_from_a_neighbour_is_printed_and_no_draft(
    watch: Watch, index: Path, tmp_path: Path
) -> None:
    pack(index, "helper", "2.0", "MORE = 0\nNEW = True\n")
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 24 * KIB, "2.0"))
    for version, helper, wants in (("1.0", "1.0", "not hasattr(helper, 'NEW')"), ("2.0", "2.0", "helper.NEW")):
        module = leaky({"1.0": 8, "2.0": 24}[version] * KIB) + f"\nassert {wants}\n"
        pack(index, "leaky", version, module, (f"helper=={helper}",))
    ran = watch()
    assert ran.code == 1, ran.err
    assert "leaky 1.0 -> 2.0: held_by_leaky (defaults) held_bytes: 8.00 KiB -> 24.0 KiB; not known whose\n" in ran.out
    assert not (tmp_path / "out" / "rules").exists()


def test_a_second_look_measures_what_is_new_alone(watch: Watch, index: Path, tmp_path: Path) -> None:
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 8 * KIB, "1.0"))
    assert watch().code == 0
    assert json.loads((tmp_path / "state.json").read_text())["looked"] == {"leaky": "2.0"}
    assert watch().code == 0
    publish(index, ("3.0", 24 * KIB, "1.0"))
    assert "leaky: 3.0; 1 measurements of each" in watch("--dry-run").out
    ran = watch()
    assert ran.code == 1, ran.err
    assert "leaky 2.0 -> 3.0" in ran.out
    kept = sorted(path.name for path in (tmp_path / "out" / "measurements" / "leaky").iterdir())
    assert kept == ["leaky-2.0.jsonl", "leaky-3.0.jsonl"]
    assert {one.versions["leaky"] for one in read_measurements(str(tmp_path / "out/measurements/leaky" / kept[1]))} == {
        "2.0",
        "3.0",
    }
    assert watch("--dry-run").out == "leaky: nothing new; 1 measurements of each\n"


def test_pre_releases_are_looked_at_where_they_are_asked_for(watch: Watch, index: Path) -> None:
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0.dev20261101", 8 * KIB, "1.0"), ("2.0rc1", 24 * KIB, "1.0"))
    assert watch("--dry-run").out == "leaky: nothing new; 1 measurements of each\n"
    ran = watch("--pre")
    assert ran.code == 1, ran.err
    assert "leaky 2.0.dev20261101 -> 2.0rc1: held_by_leaky (defaults) held_bytes: 8.00 KiB -> 24.0 KiB\n" in ran.out
    publish(index, ("2.0", 24 * KIB, "1.0"))
    assert watch("--pre", "--dry-run").out == "leaky: 2.0; 1 measurements of each\n"
    ran = watch()
    assert ran.code == 1, "without them the release stands beside the release before"
    assert "leaky 1.0 -> 2.0: " in ran.out


def test_a_threshold_of_ones_own_bisects_what_goes_from_bad_to_worse(base: Base, index: Path, probe: str) -> None:
    publish(index, ("1.0", 4, "1.0"), ("1.1", 4, "1.0"), ("1.2", 8, "1.0"))
    options = ("--package", "leaky", "--python", base.python, "--exclude-newer", "never", "-q", "--format", "json")
    found = json.loads(run("bisect", probe, *options, "--threshold", "5").out)
    assert [(one["kind"], one["before"], one["after"]) for one in found["transitions"]] == [
        ("introduced", "1.1", "1.2")
    ]
    assert json.loads(run("bisect", probe, *options).out)["transitions"] == [], "every release is bad by the prediction"


def test_new_releases_that_cannot_be_measured_are_exit_3(watch: Watch, index: Path) -> None:
    publish(index, ("1.0", 8, "1.0"), ("2.0", 8, "9.9"))
    assert watch().code == 3


@pytest.mark.parametrize(
    ("looked", "since", "pairs"),
    [
        (None, None, [("1.1", "2.0")]),
        (None, "2025-02-01", [("1.0", "1.1"), ("1.1", "2.0")]),
        ("1.1", "2025-01-01", [("1.1", "2.0")]),
        ("2.0", None, []),
    ],
)
def test_new_is_what_came_after_the_last_look(
    looked: str | None, since: str | None, pairs: list[tuple[str, str]]
) -> None:
    axis = Axis(("1.0", "1.1", "2.0"), {"1.0": "2025-01-01", "1.1": "2025-02-01", "2.0": "2025-03-01"})
    assert choose_pairs(axis, looked, since) == pairs


def test_a_late_release_of_an_older_minor_version_is_new_once() -> None:
    days = {"1.0": "2025-01-01", "1.1": "2025-03-02", "2.0": "2025-02-01", "2.1": "2025-03-01", "2.2": "2025-03-03"}
    names = tuple(sorted(days))
    assert choose_pairs(Axis(names, days), "2.0", None) == [("2.0", "2.1"), ("1.0", "1.1"), ("2.1", "2.2")]
    assert choose_pairs(Axis(names, days), "1.1", None) == [("2.1", "2.2")]
    assert choose_pairs(Axis(names, days), "2.2", None) == []
    assert choose_pairs(Axis(names, {}), "2.1", None) == [("2.1", "2.2")]


def test_a_release_that_could_not_be_installed_is_tried_again(watch: Watch, index: Path, tmp_path: Path) -> None:
    """Also when a newer one came out meanwhile."""
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 24 * KIB, "2.0"))
    ran = watch()
    assert ran.code == 3
    assert "leaky 1.0 -> 2.0: nothing was compared; 2.0: could not be installed: " in ran.err
    assert "the next look tries it again" in ran.err
    publish(index, ("3.0", 8 * KIB, "1.0"))
    assert watch().code == 0
    state = State(str(tmp_path / "state.json"))
    assert (state.looked, state.failed) == ({"leaky": "3.0"}, {"leaky": {"2.0": 2}})
    pack(index, "helper", "2.0", "MORE = 0\n")
    ran = watch()
    assert ran.code == 1, ran.err
    assert "leaky 1.0 -> 2.0: held_by_leaky (defaults) held_bytes: 8.00 KiB -> 24.0 KiB\n" in ran.out
    state = State(str(tmp_path / "state.json"))
    assert (state.looked, state.failed) == ({"leaky": "3.0"}, {})


def test_a_release_that_can_never_be_installed_is_given_up(watch: Watch, index: Path) -> None:
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 24 * KIB, "2.0"))
    assert [watch().code for _ in range(MOST_TRIES + 1)] == [*[3] * MOST_TRIES, 0]


def test_a_release_in_which_nothing_runs_is_said(watch: Watch, index: Path) -> None:
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 8 * KIB, "1.0"))
    pack(index, "leaky", "2.0", "raise RuntimeError('broken')\n", ("helper==1.0",))
    ran = watch()
    assert ran.code == 3
    assert "leaky 1.0 -> 2.0: nothing was compared; 2.0: RuntimeError: broken" in " ".join(ran.err.split())


def test_runs_that_a_release_ends_are_said(watch: Watch, index: Path, probe: str, tmp_path: Path) -> None:
    publish(index, ("1.0", 8 * KIB, "1.0"), ("2.0", 8 * KIB, "1.0"))
    pack(index, "leaky", "1.0", leaky(8 * KIB) + "hold_more = hold\n", ("helper==1.0",))
    other = tmp_path / "more_of_leaky.py"
    text = Path(probe).read_text(encoding="utf-8")
    other.write_text(text.replace("leaky.hold()", "leaky.hold_more()"), encoding="utf-8")
    ran = watch(str(other))
    assert ran.code == 0, ran.err
    said = " ".join(ran.err.split())
    assert "leaky 1.0 -> 2.0: 1 of 2 runs end there and did not before; AttributeError: " in said


def test_an_index_that_does_not_answer_is_exit_3(watch: Watch, index: Path) -> None:
    publish(index, ("1.0", 8 * KIB, "1.0"))
    (index.parent / "nothing" / "leaky" / "index.html").unlink()
    ran = watch()
    assert ran.code == 3
    assert "the package index did not answer" in ran.err


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"looked": {"leaky": 5}}',
        '{"looked": {"leaky": "new"}}',
        '{"looked": []}',
        '{"looked": {}, "failed": {"leaky": ["2.0"]}}',
        '{"looked": ' * 100_000,
        None,
    ],
    ids=["list", "number", "word", "wrong", "failed", "deeper than Python recurses", "pipe"],
)
def test_a_state_of_another_program_is_refused(watch: Watch, tmp_path: Path, text: str | None) -> None:
    os.mkfifo(tmp_path / "state.json") if text is None else (tmp_path / "state.json").write_text(text)
    assert watch().code == 4
    assert State(str(tmp_path / "missing")).looked == {}


def test_a_day_that_is_none_is_a_usage_error(watch: Watch) -> None:
    ran = watch("--since", "yesterday")
    assert ran.code == 2
    assert "--since 'yesterday' is no date" in ran.err


@pytest.mark.parametrize(
    ("metric", "before", "after", "grew"),
    [
        ("growth_bytes_per_step", -180_544.0, 0.0, False),
        ("growth_bytes_per_step", -180_544.0, 180_544.0, True),
        ("growth_bytes_per_step", 0.0, 180_544.0, True),
        ("left_bytes", 0.0, 4095.0, False),
        ("forward.peak_allocated_bytes", 1e6, 1.02e6, False),
        ("forward.peak_allocated_bytes", 1e6, 1.03e6, True),
        ("implementation", 0.0, 1.0, True),
    ],
)
def test_what_comes_back_to_nothing_from_below_does_not_grow(
    metric: str, before: float, after: float, *, grew: bool
) -> None:
    values = {"1.0": before, "2.0": after}
    series = Series(probe="p", parameters={}, backend="cpu", metric=metric, predicted=None, values=values)
    assert is_growth(SeriesChange(series=series, before="1.0", after="2.0")) is grew


def test_nothing_is_written_through_a_link_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("mine")
    monkeypatch.chdir(tmp_path)
    for name in ("state.json.new", f"state.json.{os.getpid()}.part", "page.md"):
        (tmp_path / name).symlink_to(".git/config")
    with pytest.raises(UsageError):
        State("state.json").keep("leaky", "2.0", Axis(("1.0", "2.0"), {}), installed=True)
    with pytest.raises(UsageError, match="leads there"):
        write_whole("page.md", "theirs")
    assert (tmp_path / ".git/config").read_text() == "mine"


def test_the_packages_that_probes_use_are_those_that_the_page_names() -> None:
    used = {
        backend: [name for name in PACKAGES if choose_tasks([], name, backend, {})[0]] for backend in ("cpu", "cuda")
    }
    page = " ".join((ROOT / "docs" / "measuring.md").read_text(encoding="utf-8").split())
    assert f"Ten of the thirty are used by probes that run on a CPU: {', '.join(used['cpu'])};" in page
    assert used["cuda"] == [*used["cpu"][:8], "flash-attn"]
    assert (len(PACKAGES), len(used["cpu"]), len(used["cuda"])) == (30, 10, 9)
