"""What probes and measurements say about rules comes from their own parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.core.errors import CompatcheckError, InputError
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.proof import as_example, make_proof, measured_facts
from tests.unit.rules.drawn_rules import rule_set

VERSIONS = {"deepspeed": "0.16.4", "python": "3.11.7"}


def measured(probe: str = "zero3_release", **parameters: object) -> Measurement:
    return Measurement(
        probe=probe,
        probe_hash="unknown",
        backend="cpu",
        accounting="allocator",
        parameters=parameters,
        versions=VERSIONS,
        device="CPU",
        status="ok",
    )


def test_facts_are_those_of_the_probe() -> None:
    complete = find_probe("zero3_release").complete({"layers": 4})
    facts = measured_facts(measured(**complete))
    assert facts["training.zero_stage"] == 3
    assert measured_facts(measured(layers=4)) == {}
    assert make_proof(rule_set()).facts(measured("of_another_time")) == {}


def test_sizes_are_evaluated_as_in_an_example() -> None:
    proof = make_proof(rule_set())
    formulas = ["2 * model.parameters", '1 if installed("deepspeed", "<0.16.4") else 3', "model.vocab_size + 1"]
    assert proof.sizes(formulas, {"model.parameters": 21}, VERSIONS) == [42.0, 3.0, ("model.vocab_size",)]
    with pytest.raises(CompatcheckError, match="vocabulary"):
        proof.sizes(["1"], {"model.paramters": 21}, VERSIONS)
    assert as_example({"model.parameters": 1}, VERSIONS) == {
        "packages": {"deepspeed": "0.16.4"},
        "model": {"parameters": 1},
    }


def test_the_catalogue_is_asked() -> None:
    proof = make_proof(rule_set())
    assert "zero3_release" in proof.probes
    proof.complete("zero3_release", {"layers": 4})
    with pytest.raises(CompatcheckError, match="layres"):
        proof.complete("zero3_release", {"layres": 4})


def test_a_file_is_read_again_after_a_change(tmp_path: Path) -> None:
    proof = make_proof(rule_set())
    path = tmp_path / "m.json"
    with pytest.raises(InputError):
        proof.read(path)
    path.write_text(json.dumps({"probe": "a", "backend": "cpu", "device": "CPU", "status": "ok"}), encoding="utf-8")
    assert [one.probe for one in proof.read(path)] == ["a"]
