"""What a probe accepts as parameters, and the Python it is written in."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from compatcheck.core.errors import UsageError
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import find_probe, probe_names
from tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


PROBES = ROOT / "compatcheck" / "lab" / "probes"
OPEN = {
    ("allocator_configuration", "setting"),
    *(("configured_run", name) for name in ("options", "adapter", "quantization", "frozen", "model_type")),
    ("cublas_workspace", "config"),
    ("router_loss", "model_type"),
    ("trl_sft_loss", "loss_type"),
}
"""Texts without a closed set: settings of torch and of cuBLAS, types of experts of a release of transformers, losses of trl,
what runs are told."""


@pytest.mark.parametrize(
    ("probe", "name", "value", "message", "hint"),
    [
        ("masks", "mask", "padded", "cannot be padded", "did you mean 'padding'?"),
        ("masks", "mask", "x", "cannot be x", "it is none, ones or padding"),
        ("masks", "model_type", "lama", "cannot be lama", "did you mean 'llama'?"),
        ("masks", "use_cache", 1, "is true or false, not 1", "its default is false"),
        ("masks", "batch", None, "is a whole number, not null", "its default is 2"),
        ("masks", "batch", -1, "is 1 or more, not -1", "its default is 2"),
        ("masks", "layers", 0, "is 1 or more, not 0", "its default is 4"),
        ("entropy", "chunk", -1, "is 0 or more, not -1", "its default is 0"),
        ("zero12_offload_step", "zero_stage", 3, "cannot be 3", "it is 1 or 2"),
        ("zero12_offload_step", "zero_stage", True, "cannot be true", "it is 1 or 2"),
        ("checkpointing_effectiveness", "use_reentrant", "no", "cannot be no", "it is null, false or true"),
        ("masks", "leyers", 1, "has no parameter 'leyers'", "did you mean 'layers'?"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(
    probe: str,
    name: str,
    value: Any,
    message: str,
    hint: str,
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        find_probe(probe).complete({name: value})
    assert caught.value.hint == hint


def test_a_probe_that_lacks_what_probes_offer_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(find_probe("masks").module, "facts")
    with pytest.raises(UsageError, match=r"masks does not define facts$"):
        find_probe("masks")


def test_zero_has_a_meaning_where_it_is_the_default() -> None:
    assert find_probe("entropy").complete({"chunk": 0})["chunk"] == 0
    assert find_probe("peft_dora").complete({"dropout": 0})["dropout"] == 0.0


@pytest.mark.parametrize("name", probe_names())
def test_every_closed_set_is_stated(name: str) -> None:
    probe = find_probe(name)
    for parameter, default in probe.module.DEFAULTS.items():
        if isinstance(default, str) and (name, parameter) not in OPEN:
            assert default in probe.choices[parameter], parameter
        if default is None:
            assert None in probe.choices[parameter], parameter
    for size in probe.module.SIZES:
        probe.complete(size)


@pytest.mark.parametrize("name", probe_names())
def test_every_choice_has_a_prediction_and_facts(name: str) -> None:
    probe = find_probe(name)
    for parameter, values in probe.choices.items():
        for value in values:
            parameters = probe.complete({parameter: value})
            assert isinstance(probe.module.predict(parameters), dict)
            assert isinstance(probe.module.facts(parameters), dict)


def _used() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parameters of rules and of evidence that was taken with a probe of the catalogue."""
    names = set(probe_names())
    for path in (ROOT / "rules").rglob("*.yaml"):
        rule = yaml.safe_load(path.read_text(encoding="utf-8"))
        probe = rule.get("probe") if isinstance(rule, dict) else None
        if isinstance(probe, dict):
            yield probe["name"], {**probe.get("parameters", {}), **probe.get("baseline", {})}
    for path in (ROOT / "fixtures" / "measurements").rglob("*.jsonl"):
        for one in read_measurements(str(path)):
            if one.probe in names and one.probe_hash != "unknown":
                yield one.probe, dict(one.parameters)


def test_what_rules_and_evidence_use_is_accepted() -> None:
    used = {(name, json.dumps(parameters, sort_keys=True)) for name, parameters in _used()}
    assert len(used) > 100
    for name, parameters in used:
        find_probe(name).complete(json.loads(parameters))


@pytest.mark.parametrize(
    "path", sorted([*(PROBES / "catalog").glob("*.py"), *(PROBES / "worker").glob("*.py")]), ids=lambda path: path.stem
)
def test_what_runs_in_foreign_interpreters_is_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
