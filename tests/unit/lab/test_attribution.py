"""What a neighbour did is never put down to the package under test, and what the package did is found beside any neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.lab.attribution import Attribution
from compatcheck.lab.confirmation import Confirmation
from compatcheck.lab.drafts import write_drafts
from compatcheck.lab.environments.overlay import Overlays
from compatcheck.lab.evidence.store import EvidenceStore
from compatcheck.lab.history import Wanted, find_history
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.measuring import Laboratory
from compatcheck.lab.pairs import Trial
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import Task, make_task
from compatcheck.lab.release_series import SeriesChange
from compatcheck.lab.reporters import sweep as reporter
from compatcheck.lab.sweep import attribute_changes, collect_series, find_changes, group_changes
from compatcheck.lab.trials import attribute_confirmation
from tests.unit.lab.local_packages import leaky
from tests.unit.lab.pack_wheel import pack


def plant(index: Path, *releases: tuple[str, int, str]) -> None:
    """Write releases of leaky: version, bytes held, release of the helper that it needs."""
    for version, held, helper in releases:
        pack(index, "leaky", version, leaky(held), (f"helper=={helper}",))


def sweep(
    overlays: Overlays, file: str, versions: list[str], store: EvidenceStore | None = None
) -> tuple[list[SeriesChange], dict[str, list[Measurement]], Task]:
    task = make_task(find_probe(file), {})
    laboratory = Laboratory(overlays=overlays, package="leaky", store=store)
    results = dict(laboratory.measure_all({version: [task] for version in versions}))
    changes = find_changes(collect_series([task], results, every_metric=False))
    return attribute_changes(changes, [task], laboratory), results, task


def whose(change: SeriesChange) -> Attribution:
    assert change.attribution is not None
    return change.attribution


@pytest.mark.parametrize("stored", [False, True])
def test_a_planted_change_in_a_neighbour_is_never_the_packages(
    overlays: Overlays, index: Path, probe: str, tmp_path: Path, *, stored: bool
) -> None:
    pack(index, "helper", "2.0", "MORE = 100\n")
    plant(index, ("1.0", 2, "1.0"), ("2.0", 2, "2.0"))
    store = EvidenceStore(str(tmp_path / "store")) if stored else None
    (change,), results, _ = sweep(overlays, probe, ["1.0", "2.0"], store)
    assert change.difference == 100
    assert whose(change).cause == "neighbours"
    assert whose(change).moved == {"helper": ("1.0", "2.0")}
    text = reporter.format_text("leaky", [change.series], [[change]], results)
    assert (
        "helper 1.0 → 2.0 moved, too; with those of 1.0 on both sides 2 B → 2 B; "
        "with those of 2.0 on both sides 102 B → 102 B; the change is not leaky's" in " ".join(text.split())
    )
    assert write_drafts(str(tmp_path / "drafts"), "leaky", [change], results, ["1.0", "2.0"]) == []


def test_a_neighbour_s_neighbour_and_a_new_one_are_neighbours(overlays: Overlays, index: Path, probe: str) -> None:
    for version, held in (("1.0", 0), ("2.0", 100)):
        pack(index, "deep_er", version, f"MORE = {held}\n")
        pack(index, "helper", f"1.{version}", "from deep_er import MORE\n", (f"Deep.er=={version}",))
    plant(index, ("1.0", 2, "1.1.0"), ("2.0", 2, "1.2.0"))
    together = (
        leaky(2)
        .replace("import helper\n", "import importlib.util\nimport helper\n")
        .replace("+ helper.MORE", "+ 100 * bool(importlib.util.find_spec('extra'))")
    )
    pack(index, "extra", "1.0", "")
    pack(index, "leaky", "3.0", together, ("helper==1.1.0",))
    pack(index, "leaky", "4.0", together, ("helper==1.1.0", "extra"))
    for pair in (["1.0", "2.0"], ["3.0", "4.0"]):
        (change,), _, _ = sweep(overlays, probe, pair)
        assert (change.difference, whose(change).cause) == (100, "neighbours")


def test_a_change_of_the_packages_own_is_found_behind_one_of_a_neighbour(
    overlays: Overlays, index: Path, probe: str, tmp_path: Path
) -> None:
    pack(index, "helper", "2.0", "MORE = 100\n")
    plant(index, ("1.0", 2, "1.0"), ("2.0", 8, "2.0"))
    (change,), results, _ = sweep(overlays, probe, ["1.0", "2.0"])
    assert whose(change).cause == "package"
    assert [
        (one.beside, one.before.metric("held_bytes"), one.after.metric("held_bytes")) for one in whose(change).held
    ] == [
        ("1.0", 2, 8),
        ("2.0", 102, 108),
    ]
    (rule,) = write_drafts(str(tmp_path), "leaky", [change], results, ["1.0", "2.0"])
    assert "with helper held" in Path(rule).read_text(encoding="utf-8")


def test_a_change_that_takes_both_is_nobodys_own(overlays: Overlays, index: Path, probe: str) -> None:
    pack(index, "helper", "2.0", "MORE = 100\n")
    together = leaky(2).replace("helper.MORE", "helper.MORE * 2")
    pack(index, "leaky", "1.0", leaky(2).replace(" + helper.MORE", ""), ("helper==1.0",))
    pack(index, "leaky", "2.0", together, ("helper==2.0",))
    (change,), _, _ = sweep(overlays, probe, ["1.0", "2.0"])
    assert whose(change).cause == "both"


def test_where_neither_runs_beside_the_others_neighbours_nothing_is_said(
    overlays: Overlays, index: Path, probe: str
) -> None:
    pack(index, "helper", "2.0", "PLUS = 100\n")
    plant(index, ("1.0", 2, "1.0"))
    pack(index, "leaky", "2.0", leaky(2).replace("helper.MORE", "helper.PLUS"), ("helper==2.0",))
    (change,), results, _ = sweep(overlays, probe, ["1.0", "2.0"])
    assert whose(change).cause == "unknown"
    assert "not known whether leaky's" in reporter.format_text("leaky", [change.series], [[change]], results)


def test_a_neighbour_that_an_index_rewrote_under_its_number_is_not_put_down_to_the_package(
    overlays: Overlays, index: Path, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(index, ("1.0", 2, "1.0"), ("2.0", 2, "1.0"))
    overlays.open(["leaky==1.0"])
    pack(index, "helper", "1.0", "MORE = 100\n")
    monkeypatch.setenv("UV_CACHE_DIR", str(index.parent / "another"))
    (change,), results, _ = sweep(overlays, probe, ["1.0", "2.0"])
    assert (change.difference, whose(change).cause) == (100, "unknown")
    text = " ".join(reporter.format_text("leaky", [change.series], [[change]], results).split())
    assert "helper 1.0 → 1.0 with other files moved, too; not known whether leaky's" in text


def test_nothing_is_measured_again_where_nothing_else_moved(overlays: Overlays, index: Path, probe: str) -> None:
    plant(index, ("1.0", 2, "1.0"), ("2.0", 8, "1.0"))
    (change,), results, _ = sweep(overlays, probe, ["1.0", "2.0"])
    assert whose(change) == Attribution(cause="package", moved={})
    assert len(group_changes([change])) == 1
    assert "too;" not in reporter.format_text("leaky", [change.series], [[change]], results)


def test_a_bisection_says_whose_its_transition_is(overlays: Overlays, index: Path, probe: str) -> None:
    pack(index, "helper", "2.0", "MORE = 100\n")
    plant(index, ("1.0", 2, "1.0"), ("1.1", 2, "2.0"), ("1.2", 8, "2.0"))
    laboratory = Laboratory(overlays=overlays, package="leaky")
    task = make_task(find_probe(probe), {})
    found = find_history(task, laboratory, ["1.0", "1.1", "1.2"], Wanted(), depth="all")
    (transition,) = found.bisection.transitions
    assert (transition.after, transition.attribution and transition.attribution.cause) == ("1.1", "neighbours")
    assert not found.is_own
    worse = find_history(task, laboratory, ["1.0", "1.1", "1.2"], Wanted(threshold=105), depth="all")
    assert [one.after for one in worse.bisection.transitions] == ["1.2"]
    assert worse.is_own
    ends = find_history(task, laboratory, ["1.1", "1.2"], Wanted("1.1", "1.2"), depth="all")
    assert [(one.before, one.after) for one in ends.bisection.transitions] == [("1.1", "1.2")]
    assert ends.bisection.criterion == "bad is what differs from 102 B, as the good end measures"


@pytest.mark.parametrize(
    ("held", "verdict", "said"),
    [(2, "inconclusive", "not leaky's"), (8, "confirmed", "where it should; helper 1.0 → 2.0 moved, too")],
)
def test_what_a_neighbour_did_confirms_no_rule(
    overlays: Overlays, index: Path, probe: str, held: int, verdict: str, said: str
) -> None:
    pack(index, "helper", "2.0", "MORE = 100\n")
    plant(index, ("1.0", 2, "1.0"), ("2.0", held, "2.0"))
    task = make_task(find_probe(probe), {})
    trial = Trial(task.probe, "held_bytes", "leaky", "2.0", "1.0", task.parameters, task.parameters)
    found = Confirmation(rule_id="leaky/holds", verdict="confirmed", reason="where it should")
    laboratory = Laboratory(overlays=overlays, package="leaky")
    judged = attribute_confirmation(found, trial, laboratory, task)
    assert judged.verdict == verdict
    assert said in judged.reason
