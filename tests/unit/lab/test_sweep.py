import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from compatcheck.lab.attribution import Attribution
from compatcheck.lab.bisection import Bisection, Outcome, Transition
from compatcheck.lab.confirmation import Confirmation
from compatcheck.lab.drafts import find_end, write_drafts
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.environments.installer import UnbuildableError
from compatcheck.lab.environments.interpreter import Interpreter
from compatcheck.lab.environments.overlay import Base
from compatcheck.lab.measurement import Measurement, PhaseMemory
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.measuring import Laboratory, unbuildable
from compatcheck.lab.pairs import TrialRequest
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.release_series import Series
from compatcheck.lab.reporters import bisection, confirmation, sweep
from compatcheck.lab.sweep import collect_series, find_changes, group_changes, vary
from compatcheck.rules.load import load_rule

PROBE = find_probe("zero3_release")
TASKS = [make_task(PROBE, {"layers": layers}) for layers in (4, 6)]
BASE = Measurement(
    probe=PROBE.name,
    probe_hash=TASKS[0].hash,
    backend="cpu",
    accounting="storages",
    parameters=TASKS[0].parameters,
    versions={"deepspeed": "0", "torch": "2.13.0"},
    device="x86_64 CPU",
    status="ok",
)
VALUES = {"0.15.4": 4.0, "0.16.0": 1000.0, "0.16.7": 1000.0, "0.16.8": 4.0}


def measured(value, task, version):
    phases = (PhaseMemory(name="backward", peak_allocated_bytes=int(value) + 10, live_bytes=int(value)),)
    return replace(
        BASE,
        parameters=task.parameters,
        versions={"deepspeed": version, "torch": "2.13.0"},
        results={"alive_after_backward_bytes": value},
        phases=phases,
    )


RESULTS = {
    version: [measured(value * factor, task, version) for factor, task in zip((1, 2), TASKS, strict=True)]
    for version, value in VALUES.items()
}


def test_vary_combines_every_value():
    assert vary({"a": [1, 2], "b": ["x"]}) == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    assert vary({}) == [{}]


def test_changes_of_one_cause_are_one_group():
    series = collect_series(TASKS, RESULTS, every_metric=False)
    assert [one.parameters["layers"] for one in series] == [4, 6]
    groups = group_changes(find_changes(series))
    assert [(group[0].before, group[0].after, len(group)) for group in groups] == [
        ("0.15.4", "0.16.0", 2),
        ("0.16.7", "0.16.8", 2),
    ]
    assert groups[0][0].ratio == 250


def test_every_metric_takes_phases_too():
    names = {one.metric for one in collect_series(TASKS, RESULTS, every_metric=True)}
    assert names == {"alive_after_backward_bytes", "backward.peak_allocated_bytes", "backward.live_bytes"}


def test_a_release_without_a_result_is_left_out_and_said():
    results = {**RESULTS, "0.16.0": [replace(one, status="failed", reason="it crashed") for one in RESULTS["0.16.0"]]}
    series = collect_series(TASKS, results, every_metric=False)
    assert "0.16.0" not in series[0].values
    text = sweep.format_text("deepspeed", series, group_changes(find_changes(series)), results)
    assert "zero3_release: failed: it crashed (0.16.0)" in text
    assert "0.15.4 -> 0.16.7" in text


def test_half_a_percent_is_no_change():
    results = {
        "1": [measured(1000, TASKS[0], "1")],
        "2": [measured(1004, TASKS[0], "2")],
        "3": [measured(1010, TASKS[0], "3")],
    }
    assert find_changes(collect_series(TASKS[:1], results, every_metric=False))[0].after == "3"


def test_drafts_carry_range_evidence_and_numbers(tmp_path):
    series = collect_series(TASKS, RESULTS, every_metric=False)
    changes = [replace(change, attribution=Attribution(cause="package", moved={})) for change in find_changes(series)]
    (path,) = write_drafts(str(tmp_path), "deepspeed", changes, RESULTS, list(RESULTS))
    rule = load_rule(tmp_path / path, tmp_path / "rules")
    assert rule.status == "draft"
    assert rule.clauses[0].packages["deepspeed"] == ">=0.16.0,<0.16.8"
    (evidence,) = rule.evidence
    kept = read_measurements(str(tmp_path / evidence))
    assert {one.versions["deepspeed"] for one in kept} == {"0.15.4", "0.16.0", "0.16.8"}


def test_a_growth_that_lasts_has_no_end():
    results = {version: measured for version, measured in RESULTS.items() if version != "0.16.8"}
    (change, _) = find_changes(collect_series(TASKS, results, every_metric=False))
    assert find_end(change) is None


@pytest.mark.parametrize("format_name", ["text", "markdown", "json"])
def test_sweeps_are_reported(format_name):
    series = collect_series(TASKS, RESULTS, every_metric=False)
    groups = group_changes(find_changes(series))
    written = getattr(sweep, f"format_{format_name}")("deepspeed", series, groups, RESULTS)
    if format_name == "json":
        data = json.loads(written)
        assert len(data["changes"]) == 4
        assert data["changes"][0]["difference"] == 996
    else:
        assert "0.16.0–0.16.7" in written
        assert "layers=4" in written


def test_what_was_asked_for_is_not_called_defaults():
    """One value is told apart from nothing, and is no default for that."""
    task = make_task(PROBE, {"layers": 6}, "cpu")
    (one, *_) = collect_series([task], {version: found[:1] for version, found in RESULTS.items()}, every_metric=False)
    text = sweep.format_text("deepspeed", [one], [], RESULTS)
    assert "zero3_release layers=6 alive" in text
    assert "(defaults)" not in text


def test_what_differs_between_probes_does_not_tell_series_of_one_apart():
    series = collect_series(TASKS, RESULTS, every_metric=False)
    other = replace(series[0], probe="another", parameters={"layers": 1}, changed=())
    text = sweep.format_text("deepspeed", [*series, other], [], RESULTS)
    assert "another (defaults) alive" in text
    assert "zero3_release layers=6 alive" in text


FOUND = Bisection(
    probe="zero3_release",
    package="deepspeed",
    metric="alive_after_backward_bytes",
    predicted=0,
    tolerance=64,
    tested=(
        Outcome(version="0.15.4", verdict="good", value=4),
        Outcome(version="0.15.5", verdict="skipped", reason="could not be installed"),
        Outcome(version="0.16.0", verdict="bad", value=8_392_708),
    ),
    intervals=(),
    transitions=(Transition(kind="introduced", before="0.15.4", after="0.16.0", between=("0.15.5",)),),
    untested=("0.16.3",),
    older="0.11.0 could not be tested, so nothing older was tried",
)


def test_a_bisection_says_what_it_did_not_look_at():
    text = bisection.format_text(FOUND)
    assert "introduced in 0.16.0 (0.15.4 is good), or in 0.15.5, which could not be tested" in text
    flat = " ".join(text.split())
    assert "1 release between two of the same verdict was not tested: a change" in flat
    assert "2 releases between two of the same verdict were not tested: a change" in " ".join(
        bisection.format_text(replace(FOUND, untested=("0.16.3", "0.16.5"))).split()
    )
    assert max(map(len, text.splitlines())) <= 80
    assert "0.11.0 could not be tested" in text
    assert bisection.to_json(FOUND)["transitions"][0]["kind"] == "introduced"


def report(found=FOUND, measurements=None, **given):
    sides = {"0.15.4": RESULTS["0.15.4"][0], "0.16.0": RESULTS["0.16.0"][0]} if measurements is None else measurements
    given = {"repository": None, "script": "print(1)\n", **given}
    return bisection.format_upstream(found, title="A title", measurements=sides, **given)


def test_the_report_for_upstream_is_a_page_and_a_folded_script():
    text = report(repository="https://github.com/x/deepspeed")
    page, _, folded = text.partition("<details>")
    assert "| 0.16.0 | 8,392,708 B (8.00 MiB) | bad |" in page
    assert "| 0.16.0 | backward |" in page
    assert "https://github.com/x/deepspeed/compare/v0.15.4...v0.16.0" in page
    assert "Measured with deepspeed 0.16.0" in page
    assert "could not be installed" not in page
    assert len(page.splitlines()) <= 40
    assert "```python\nprint(1)\n```" in folded


def test_the_report_for_upstream_says_what_else_moved():
    attribution = Attribution(cause="package", moved={"transformers": ("4.1", "4.2")})
    (transition,) = FOUND.transitions
    text = report(replace(FOUND, transitions=(replace(transition, attribution=attribution),)))
    assert "- 0.16.0: transformers 4.1 → 4.2 moved, too; the change is deepspeed's own." in text


def test_the_report_for_upstream_has_no_empty_table_of_phases():
    without = replace(RESULTS["0.16.0"][0], phases=())
    text = report(measurements={"0.16.0": without})
    assert "| phase |" not in text
    assert "Measured with deepspeed 0.16.0" in text


def test_a_confirmation_shows_both_sides_and_the_formula():
    found = Confirmation(
        rule_id="deepspeed/x",
        verdict="confirmed",
        reason="the difference lies where the rule's formula puts it",
        probe="zero3_release",
        metric="alive_after_backward_bytes",
        suspect=RESULTS["0.16.0"][0],
        baseline=RESULTS["0.16.8"][0],
        measured_bytes=996,
        predicted_bytes=1000,
        low_bytes=900,
        high_bytes=1100,
    )
    text = confirmation.format_text(found)
    assert "deepspeed 0.16.0\n" in text
    other = replace(RESULTS["0.16.0"][0], parameters={**TASKS[0].parameters, "checkpointing": "reentrant"})
    text = confirmation.format_text(replace(found, baseline=other))
    assert "deepspeed 0.16.0 checkpointing=non-reentrant\n" in text
    assert "deepspeed 0.16.0 checkpointing=reentrant\n" in text
    assert "996 B" in text
    assert "900 B to" in text
    assert confirmation.to_json(found)["measured_bytes"] == 996


class Overlays:
    """Environments that need not be built: the laboratory's own decisions are what is looked at."""

    def __init__(self):
        self.opened = []

    def open(self, requirements, *, exclude_newer=None):
        self.opened.append((tuple(requirements), exclude_newer))
        if requirements[0] == "deepspeed==0.1":
            raise UnbuildableError("no such release")
        return Interpreter(python="none", versions={"deepspeed": "0.16.4", "torch": "2"}, requested=("deepspeed",))


class Store:
    def __init__(self, known=None):
        self.known = known
        self.asked = []

    def add(self, measurement):
        raise AssertionError(measurement)

    def find(self, **wanted):
        self.asked.append(wanted)
        return self.known


def test_what_was_measured_before_is_not_measured_again():
    store = Store(BASE)
    laboratory = Laboratory(
        overlays=Overlays(), package="deepspeed", store=store, dates={"0.16.4": "2025-03-26"}, beside=("x==1",)
    )
    assert [replace(one, command=BASE.command) for one in laboratory.measure("0.16.4", TASKS)] == [BASE, BASE]
    assert store.asked[0]["versions"] == {"deepspeed": "0.16.4", "torch": "2"}
    assert laboratory.overlays.opened == [(("deepspeed==0.16.4", "x==1"), "2025-03-26")]


@pytest.mark.parametrize("release", ["0.16.4", "0.1"])
def test_the_command_that_runs_it_again_names_the_interpreter_that_was_asked_for(release):
    chosen = EnvironmentChoice(python="/my envs/python", torch="2.13.0+cpu", beside=(), installer=None)
    kept = replace(BASE, command="compatcheck probe run zero3_release --backend cpu")
    laboratory = Laboratory(overlays=Overlays(), choice=chosen, package="deepspeed", store=Store(kept))
    assert laboratory.measure(release, TASKS[:1])[0].command == (
        f"{kept.command} --python '/my envs/python' --torch 2.13.0+cpu --with deepspeed=={release}"
    )


def test_what_was_asked_of_a_confirmation_can_be_asked_again():
    assert TrialRequest("0.16.4", None, {"layers": 4}).options == " --suspect 0.16.4 --param layers=4"
    assert TrialRequest().options == ""


def test_a_release_that_cannot_be_installed_is_a_result_that_is_not_kept():
    seen = []
    laboratory = Laboratory(
        overlays=Overlays(),
        package="deepspeed",
        store=Store(),
        progress=lambda version, one: seen.append((version, one.status)),
    )
    (one, _) = laboratory.measure("0.1", TASKS)
    assert one.status == "failed"
    assert "could not be installed: no such release" in one.reason
    assert seen == [("0.1", "failed")] * 2
    assert one == unbuildable(TASKS[0], {"deepspeed": "0.1"}, one.reason)


def test_several_releases_at_a_time_come_in_their_order():
    laboratory = Laboratory(overlays=Overlays(), package="deepspeed", store=Store(BASE), jobs=3)
    assert [version for version, _ in laboratory.measure_all(dict.fromkeys(["1", "2", "3", "4"], TASKS))] == [
        "1",
        "2",
        "3",
        "4",
    ]


def test_two_at_once_measure_the_same_once(monkeypatch, tmp_path):
    class Kept(Store):
        def add(self, measurement):
            self.known = measurement

    class Slow:
        ran = 0

        def do(self, work, keep, _cancelled):
            self.ran += len(work.tasks)
            time.sleep(0.5)
            keep((0, BASE))

    monkeypatch.setenv("COMPATCHECK_CACHE", str(tmp_path))
    store, place = Kept(), Slow()
    with ThreadPoolExecutor(2) as pool:
        laboratories = [Laboratory(overlays=Overlays(), package="deepspeed", store=store, place=place) for _ in "ab"]
        found = list(pool.map(lambda one: one.measure("0.16.4", TASKS[:1]), laboratories))
    assert place.ran == 1
    assert [one.results for (one,) in found] == [BASE.results] * 2


@pytest.mark.parametrize(("has", "asked", "good"), [("2.13.0+cpu", "2.13.0", True), ("2.13.0", "2.9.1", False)])
def test_torch_is_the_interpreters_own_and_no_other_release_is_laid_over_it(has, asked, good):
    class WithBase(Overlays):
        base = Base.__new__(Base)

        def open(self, requirements, **_options):
            self.opened.append(tuple(requirements))
            return Interpreter(python="none", versions={"torch": has})

    WithBase.base.versions = {"torch": has}
    laboratory = Laboratory(overlays=WithBase(), package="torch", store=Store(BASE), beside=("x==1",))
    if good:
        assert [replace(one, command=BASE.command) for one in laboratory.measure(asked, TASKS)] == [BASE, BASE]
        assert laboratory.overlays.opened == [("x==1",)]
    else:
        (one, _) = laboratory.measure(asked, TASKS)
        assert one.status == "failed"
        assert "this one has torch 2.13.0" in one.reason
        assert laboratory.overlays.opened == []


def test_each_release_of_torch_has_a_base_of_its_own():
    class WithBase(Overlays):
        def __init__(self, has):
            super().__init__()
            self.has = has
            self.base = Base.__new__(Base)
            self.base.versions = {"torch": has}

        def open(self, _requirements, **_options):
            return Interpreter(python="none", versions={"torch": self.has})

    asked = []

    def build(version):
        asked.append(version)
        return WithBase(f"{version}+cpu")

    laboratory = Laboratory(overlays=WithBase("2.13.0+cpu"), package="torch", bases=build)
    found = [laboratory.interpreter(version).versions["torch"] for version in ("2.12.0", "2.13.0", "2.12.0")]
    assert found == ["2.12.0+cpu", "2.13.0+cpu", "2.12.0+cpu"]
    assert asked == ["2.12.0"]


def test_a_run_of_equal_values_says_where_it_has_holes():
    one = Series(probe="p", parameters={}, backend="cpu", metric="bytes", predicted=None, values={"1": 1, "4": 1})
    text = sweep.format_text("trl", [one], [], {version: [] for version in ("1", "2", "3", "4")})
    assert "1–4 (2 of 4) 1" in text


OWN = Attribution(cause="package", moved={})


def draft(tmp_path, values, known):
    results = {version: [measured(value, TASKS[0], version)] for version, value in values.items()}
    changes = [
        replace(one, attribution=OWN) for one in find_changes(collect_series(TASKS[:1], results, every_metric=False))
    ]
    paths = write_drafts(str(tmp_path), "deepspeed", changes, results, known)
    return [load_rule(tmp_path / path, tmp_path / "rules") for path in paths]


def test_what_was_not_measured_on_the_way_to_a_growth_is_unverified(tmp_path):
    known = ["0.15.4", "0.16.0", "0.16.1", "0.16.2", "0.16.7", "0.16.8"]
    (rule,) = draft(tmp_path, {"0.15.4": 4, "0.16.2": 1000, "0.16.8": 4}, known)
    assert rule.clauses[0].packages == {"deepspeed": ">=0.16.2,<=0.16.2"}
    assert rule.unverified == {"deepspeed": ">0.15.4,<0.16.2 || >0.16.2,<0.16.8"}


def test_what_was_high_from_the_first_release_on_has_a_draft(tmp_path):
    (rule,) = draft(tmp_path, {"0.15.4": 1000, "0.16.0": 1000, "0.16.8": 4}, ["0.15.4", "0.16.0", "0.16.8"])
    assert rule.clauses[0].packages == {"deepspeed": ">=0.15.4,<0.16.8"}
    assert "already in 0.15.4, the oldest release measured" in rule.title


def test_an_end_that_is_not_the_packages_own_ends_nothing(tmp_path):
    results = {version: [measured(value, TASKS[0], version)] for version, value in VALUES.items()}
    found = find_changes(collect_series(TASKS[:1], results, every_metric=False))
    changes = [
        replace(found[0], attribution=OWN),
        replace(found[1], attribution=Attribution(cause="neighbours", moved={})),
    ]
    (path,) = write_drafts(str(tmp_path), "deepspeed", changes, results, list(VALUES))
    assert load_rule(tmp_path / path, tmp_path / "rules").clauses[0].packages == {"deepspeed": ">=0.16.0"}


def test_that_there_was_no_gpu_is_not_remembered():
    task = make_task(find_probe("cuda_context"), {})
    without = replace(BASE, backend="cuda", status="unsupported", reason="torch sees no CUDA device")
    interpreter = Interpreter(python="none", versions={"torch": "2.13.0"})
    for known, remembered in ((without, False), (replace(without, status="ok"), True)):
        laboratory = Laboratory(overlays=Overlays(), package="deepspeed", store=Store(known))
        assert (laboratory._known(task, interpreter) is known) is remembered


def test_a_count_that_was_taken_beside_a_mode_is_taken_again():
    """Under a mode autograd adds gradients out of place; a count of the allocator that names an operator had one beside it."""
    task = TASKS[0]
    for accounting, operator, remembered in (
        ("allocator", "aten.add.Tensor", False),
        ("allocator", None, True),
        ("cuda", "aten.add.Tensor", False),
        ("storages", "aten.add.Tensor", True),
    ):
        phases = (PhaseMemory(name="backward", peak_allocated_bytes=9, live_bytes=1, peak_operator=operator),)
        known = replace(BASE, accounting=accounting, phases=phases)
        laboratory = Laboratory(overlays=Overlays(), package="deepspeed", store=Store(known))
        assert (
            laboratory._known(task, Interpreter(python="none", versions={"torch": "2.13.0"})) is known
        ) is remembered


@pytest.mark.parametrize(
    ("metric", "before", "after", "found"),
    [
        ("bytes_per_logit", -0.0004456, 0.0, False),
        ("bytes_per_logit", 0.0, 0.0021, False),
        ("bytes_per_logit", 4.0, 4.999, True),
        ("bytes_per_logit", 0.0, 1.0, True),
        ("live_bytes", 0.0, 512.0, True),
        ("copies", 0.0, 0.25, True),
    ],
)
def test_what_the_slope_of_peaks_leaves_of_rounding_is_no_change(metric, before, after, found):
    values = {"1.14.0": before, "1.15.0": after}
    one = Series(probe="p", parameters={}, backend="cpu", metric=metric, predicted=None, values=values)
    assert bool(find_changes([one])) is found


@pytest.mark.parametrize(
    ("before", "after", "ratio"), [(-1.0, 4.0, None), (4.0, 0.0, None), (0.0, 4.0, None), (2.0, 4.0, 2)]
)
def test_a_ratio_is_of_two_sizes(before, after, ratio):
    one = Series(
        probe="p",
        parameters={},
        backend="cpu",
        metric="bytes_per_logit",
        predicted=None,
        values={"1": before, "2": after},
    )
    (change,) = find_changes([one])
    assert change.ratio == ratio
    assert ("(x" in sweep.format_text("trl", [one], [[change]], {})) is (ratio is not None)
