"""What every probe of the catalogue keeps to, and that what is stored is measured again the same."""

from __future__ import annotations

import ast
import random
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from compatcheck.lab.evidence.files import measurement_files
from compatcheck.lab.measurement import UNKNOWN, Measurement
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.backends import BACKENDS
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.probes.runner import make_task, run_tasks
from compatcheck.lab.probes.script import make_script
from compatcheck.rules.load import load_rules
from compatcheck.rules.locate import open_rules
from compatcheck.rules.vocabulary import vocabulary
from tests import ROOT

if TYPE_CHECKING:
    from compatcheck.lab.environments.overlay import Overlays


FIXTURES = ROOT / "fixtures" / "measurements"
NAMES = probe_names()
AGAIN = 3
"""So many stored measurements are made again, other ones each time."""
SLACK = 0.02
"""A release's dependencies may be others today, which shifts a peak by small tensors."""


def test_there_are_at_least_25() -> None:
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_says_what_it_measures_and_derives_it(name: str) -> None:
    probe = find_probe(name)
    assert probe.title.endswith((".", "?"))
    assert len(probe.documentation) > 300, "the docstring does not derive the prediction: 300 characters at least"
    assert set(probe.module.BACKENDS) <= set(BACKENDS)
    assert probe.module.ACCOUNTING in {"storages", "allocator"}


@pytest.mark.parametrize("name", NAMES)
def test_a_release_that_decides_comes_from_the_metadata(name: str) -> None:
    """trl 0.22.0 calls itself "unknown"; in a text that a reader gets that does no harm."""
    tree = ast.parse(Path(find_probe(name).path).read_text(encoding="utf-8"))
    texts = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "__version__" and id(node) not in texts:
            assert ast.unparse(node.value) == "torch"


def test_several_ranks_copy_the_weights_that_they_read_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Copied(Exception):  # noqa: N818 (ends the run there)
        pass

    def copy() -> None:
        raise Copied

    probe: Any = find_probe("configured_run").module
    monkeypatch.setattr(probe, "_copy_what_is_read", copy)
    for start in (probe.prepare, lambda parameters: probe.run(parameters, None)):
        with pytest.raises(Copied):
            start({**probe.DEFAULTS, "world_size": 2})


@pytest.mark.parametrize("name", NAMES)
def test_predictions_facts_and_sizes_fit_together(name: str) -> None:
    probe = find_probe(name)
    sizes: tuple[Any, ...] = ({}, *probe.module.SIZES)
    for size in sizes:
        parameters = probe.complete(size)
        assert probe.module.METRIC in probe.module.predict(parameters)
        assert probe.module.tolerance(parameters) >= 0
        variables = {fact for fact in probe.module.facts(parameters) if fact.startswith("env.")}
        assert set(probe.module.facts(parameters)) - variables <= set(vocabulary())
    if "cpu" in probe.module.BACKENDS:
        assert len(probe.module.SIZES) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_can_be_taken_out_as_one_file(name: str) -> None:
    text = make_script(make_task(find_probe(name), {}))
    compile(text, name, "exec")
    assert "import compatcheck" not in text.replace("from compatcheck.lab.probes.worker.recorder import Recorder", "")


def is_current(one: Measurement) -> bool:
    """Tell whether the code that its setting runs is today's."""
    return one.probe_hash == find_probe(one.probe).hash_for(one.parameters)


def stored() -> list[Measurement]:
    """Return the measurements of today's probes that a CPU can make again.

    Those of releases beside the packages of others' days are left out: no resolver puts some of them together.
    """
    return [
        one
        for name in NAMES
        if (FIXTURES / name).exists()
        for file in measurement_files(str(FIXTURES / name))
        if not file.endswith("held.jsonl")
        for one in read_measurements(file)
        if (one.backend, one.status) == ("cpu", "ok") and is_current(one)
    ]


def compared(one: Measurement) -> tuple[str, ...]:
    """Return what rules compare with formulas beside the probe's headline: the peak, where phases were measured."""
    return tuple(
        name for name in ("peak_allocated_bytes", "forward.peak_allocated_bytes") if one.metric(name) is not None
    )


def current_then(packages: tuple[str, ...], one: Measurement) -> str | None:
    """Return the day after the last of its releases came out: trl does not run with the newest of everything."""
    rules = open_rules()
    days = [rules.dates(name).get(one.versions.get(name, "")) for name in packages]
    last = max((day for day in days if day), default=None)
    return None if last is None else (date.fromisoformat(last) + timedelta(days=1)).isoformat()


@pytest.mark.versions
@pytest.mark.ci
def test_a_random_few_of_the_stored_measurements_come_out_the_same(overlays: Overlays) -> None:
    chosen = random.sample(stored(), AGAIN)
    for one in chosen:
        packages = find_probe(one.probe).module.PACKAGES
        # torch is the base that the others are laid over.
        requirements = [
            f"{name}=={one.versions[name]}" for name in packages if name in one.versions and name != "torch"
        ]
        again: list[Measurement] = []
        task = replace(make_task(find_probe(one.probe), one.parameters, one.backend), accounting=one.accounting)
        interpreter = overlays.open(requirements, exclude_newer=current_then(packages, one))
        run_tasks([task], interpreter, keep=lambda _, result, again=again: again.append(result))
        assert again[0].status == "ok", (one.command, requirements, again[0].reason)
        metric = find_probe(one.probe).module.METRIC
        allowed = find_probe(one.probe).module.tolerance(one.parameters)
        difference = abs((again[0].metric(metric) or 0) - (one.metric(metric) or 0))
        assert difference <= allowed, (one.command, requirements, again[0].results, one.results)
        if one.accounting == "storages":
            for name in compared(one):
                assert again[0].metric(name) == pytest.approx(one.metric(name), rel=SLACK), (
                    name,
                    one.command,
                    requirements,
                )


@pytest.mark.versions
@pytest.mark.ci
@pytest.mark.parametrize(("version", "verdict"), [("0.16.7", "bad"), ("0.16.8", "good")])
def test_the_deepspeed_incident_comes_out(overlays: Overlays, version: str, verdict: str) -> None:
    kept: list[Measurement] = []
    probe = find_probe("zero3_release")
    run_tasks([make_task(probe, {})], overlays.open([f"deepspeed=={version}"]), keep=lambda _, one: kept.append(one))
    assert probe.judge(kept[0])[0] == verdict, kept[0].reason
    if kept[0].accounting == "allocator" and verdict == "bad":
        blocks = probe.module.facts(probe.complete({}))["model.parameters_in_blocks"]
        assert kept[0].metric("alive_after_backward_bytes") == pytest.approx(2 * blocks, abs=64)


def test_every_rule_s_evidence_can_be_made_again() -> None:
    names = {name for rule in load_rules(ROOT / "rules") for name in rule.evidence}
    assert len(names) > 40
    for name in sorted(names):
        for one in read_measurements(str(ROOT / name)):
            find_probe(one.probe).complete(one.parameters)
            assert one.probe_hash != UNKNOWN, name
            assert one.command is not None, name
            assert set(find_probe(one.probe).needs(one.parameters)) <= set(one.versions), name


def test_most_of_what_is_stored_was_measured_with_the_probes_of_today() -> None:
    files = [file for name in NAMES if (FIXTURES / name).exists() for file in measurement_files(str(FIXTURES / name))]
    ok = [one for file in files for one in read_measurements(file) if one.backend == "cpu" and one.succeeded]
    assert len(stored()) > 0.5 * len(ok), "measure again: CI makes none of the others again"


def test_releases_of_stored_measurements_are_releases() -> None:
    for one in stored():
        for text in one.versions.values():
            Version(text)


def test_committed_evidence_is_of_todays_probes() -> None:
    """A probe that changed measures something else: what supports rules and tables is measured again, by its own command."""
    stale = Counter(
        measurement.probe
        for path in sorted(FIXTURES.glob("*/*.json*"))
        if path.parent.name in probe_names()
        for measurement in read_measurements(str(path))
        if not is_current(measurement)
    )
    assert not stale, f"measured with earlier texts of these probes, to be measured again: {dict(stale)}"
