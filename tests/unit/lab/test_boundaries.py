"""Boundaries of a rule's ranges, and which of them a pair of measurements spans."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.lab.boundaries import count_coverage, find_boundaries
from compatcheck.rules.locate import open_rules
from compatcheck.rules.rule import Clause, Comparison, EvidenceSelection
from tests.unit.rules.drawn_rules import rule

if TYPE_CHECKING:
    from pathlib import Path

FILE = "fixtures/measurements/kv_cache/releases.jsonl"
RANGE = {"transformers": ">=4.46.0,<4.48.0"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with measurements of two types in several releases."""
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    lines: list[dict[str, Any]] = [
        {
            "probe": "kv_cache",
            "backend": "cpu",
            "accounting": "storages",
            "device": "CPU",
            "probe_hash": "unknown",
            "status": "ok",
            "parameters": {
                "model_type": model_type,
                "training": False,
                "layers": 2,
                "batch": 2,
                "length": 32,
                "kv_heads": 2,
            },
            "versions": {"transformers": release},
            "results": {"cache_bytes": 1},
        }
        for model_type in ("llama", "gpt2")
        for release in ("4.45.0", "4.45.2", "4.46.1", "4.47.1", "4.48.0", "4.49.0")
    ]
    path.write_text(
        "\n".join(map(json.dumps, [{"compatcheck_measurements": 1, "common": {}}, *lines])), encoding="utf-8"
    )
    return tmp_path


def pair(bad: str, good: str, model_type: str = "llama") -> Comparison:
    """Return a comparison of two releases."""
    suspect, baseline = (
        EvidenceSelection(file=FILE, versions={"transformers": one}, parameters={"model_type": model_type})
        for one in (bad, good)
    )
    return Comparison(metric="cache_bytes", suspect=suspect, baseline=baseline, facts={})


def boundaries(root: Path, *pairs: Comparison, when: str | None = None, **changes: Any) -> list[tuple[str, str, bool]]:
    """Return releases on both sides of each boundary of a rule, and whether it was measured."""
    changed = {"clauses": (Clause(packages=RANGE, when=when),), "comparisons": pairs, "unverified": {}, **changes}
    return [(one.bad, one.good, one.measured) for one in find_boundaries(rule(**changed), open_rules(()), root)]


def test_a_boundary_is_measured_where_a_pair_has_a_release_on_either_side(root: Path) -> None:
    assert boundaries(root) == [("4.46.1", "4.45.2", False), ("4.47.1", "4.48.0", False)]
    assert boundaries(root, pair("4.46.1", "4.45.2")) == [("4.46.1", "4.45.2", True), ("4.47.1", "4.48.0", False)]
    assert [measured for *_, measured in boundaries(root, pair("4.46.1", "4.49.0"))] == [False, True]
    assert [measured for *_, measured in boundaries(root, pair("4.46.1", "4.47.1"))] == [False, False]


def test_a_run_that_the_release_before_does_not_support_is_the_other_side(root: Path) -> None:
    path = root / FILE
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace('"status": "ok"', '"status": "unsupported"', 2), encoding="utf-8"
    )  # llama until 4.45.2
    one = pair("4.46.1", "4.48.0")
    assert [measured for *_, measured in boundaries(root, one, evidence=(FILE,))] == [True, True]
    assert [measured for *_, measured in boundaries(root, pair("4.46.1", "4.48.0", "gpt2"), evidence=(FILE,))] == [
        False,
        True,
    ]


def test_no_pair_spans_two_boundaries(root: Path) -> None:
    assert [measured for *_, measured in boundaries(root, pair("4.45.2", "4.48.0"))] == [False, False]


def test_a_pair_of_a_run_that_the_clause_leaves_out_measures_nothing(root: Path) -> None:
    both = (pair("4.46.1", "4.45.2"), pair("4.47.1", "4.48.0", "gpt2"))
    assert [measured for *_, measured in boundaries(root, *both, when="model.model_type == 'gpt2'")] == [False, True]


def test_what_nobody_read_is_no_boundary(root: Path) -> None:
    assert boundaries(root, unverified={"transformers": "<4.46.0"}) == [("4.47.1", "4.48.0", False)]


def test_regressions_alone_are_counted(root: Path) -> None:
    clauses = (Clause(packages=RANGE),)
    whole = (pair("4.46.1", "4.45.2"), pair("4.47.1", "4.48.0"))
    drawn = [
        rule(kind=kind, status="active", clauses=clauses, comparisons=pairs, unverified={}, verifiable=verifiable)
        for kind, pairs, verifiable in (
            ("regression", whole, ("cpu",)),
            ("regression", whole[:1], ("cpu",)),
            ("regression", (), ("cuda",)),
            ("regression", (), ("cpu",)),
            ("pitfall", whole, ("cpu",)),
        )
    ]
    assert count_coverage(drawn, open_rules(()), root) == (4, 1, 1, 1)
