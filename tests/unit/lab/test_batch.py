"""A machine that sees nothing of another's environment builds one of exactly the same releases, or says what it lacks."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from compatcheck.core.place import HERE
from compatcheck.lab.batch import ProbeBatch
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.environments.installer import UnbuildableError
from compatcheck.lab.environments.overlay import Overlays
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import Limits, make_task
from tests.unit.lab.local_packages import leaky
from tests.unit.lab.pack_wheel import pack


@pytest.fixture
def batch(overlays: Overlays, index: Path, probe: str) -> ProbeBatch:
    """A batch that was made on another machine, which sees other folders."""
    pack(index, "helper", "2.0", "MORE = 100\n")
    pack(index, "leaky", "1.0", leaky(2), ("helper",))
    made = overlays.open(["leaky==1.0"])
    pack(index, "helper", "3.0", "MORE = 500\n")  # since then
    tasks = tuple(make_task(find_probe(probe), {"factor": factor}) for factor in (1, 3))
    return ProbeBatch(
        tasks=tasks,
        interpreter=replace(made, paths=("/of/another/machine",)),
        limits=Limits(),
        choice=EnvironmentChoice(python=overlays.base.python),
    )


def measure(batch: ProbeBatch) -> list[Measurement]:
    found: list[tuple[int, Measurement]] = []
    HERE.do(batch, found.append, lambda: False)
    return [one for _, one in sorted(found, key=lambda result: result[0])]


def test_an_environment_that_is_not_seen_is_built_of_the_same_releases(batch: ProbeBatch) -> None:
    carried = pickle.loads(pickle.dumps(batch))
    adopted = carried.adopt()
    assert adopted.interpreter.fingerprint == batch.interpreter.fingerprint
    found = measure(adopted)
    assert [one.results["held_bytes"] for one in found] == [102, 306]
    assert [one.versions["leaky"] for one in found] == ["1.0", "1.0"]
    assert {one.environment for one in found} == {batch.interpreter.fingerprint}
    assert {one.probe_hash for one in found} == {batch.tasks[0].hash}


def test_a_probe_of_ones_own_goes_with_its_text(batch: ProbeBatch, probe: str) -> None:
    sent = pickle.dumps(batch.tasks[0].probe)
    Path(probe).unlink()
    carried = pickle.loads(sent)
    assert (carried.name, carried.title) == ("held_by_leaky", "Bytes that leaky holds, and that its helper adds.")
    assert pickle.loads(pickle.dumps(find_probe("masks"))).path == find_probe("masks").path


def test_another_torch_is_refused(batch: ProbeBatch) -> None:
    versions = {**batch.interpreter.versions, "torch": "2.12.0+cpu"}
    away = replace(batch, interpreter=replace(batch.interpreter, versions=versions))
    with pytest.raises(UnbuildableError, match=r"torch is 2\.13\.0\+cpu there and 2\.12\.0\+cpu here"):
        away.adopt()
