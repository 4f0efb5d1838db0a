"""The strongest statement wins, whatever the order the inputs came in; nothing that differs is dropped without a word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.document import AUTO, MISSING, Document, Statement, Unresolved
from compatcheck.core.source import Source
from compatcheck.resolution.merge import (
    CODE,
    DECLARED,
    FRAMEWORK,
    INSTALLED,
    LIBRARY,
    MEASURED,
    MODEL,
    ORIGIN_BY_RANK,
    SCRIPT,
    SETTING,
    Claim,
    claims_of,
    drop_stand_ins,
    merge,
)

FACT = "training.zero_stage"
READERS = {SCRIPT: ["script"], FRAMEWORK: ["hf_trainer", "trl"], LIBRARY: ["deepspeed", "accelerate"], MODEL: ["model"]}


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    rank = draw(st.sampled_from([SETTING, CODE, SCRIPT, FRAMEWORK, LIBRARY, DECLARED, MODEL, INSTALLED, MEASURED]))
    reader = draw(st.sampled_from(READERS.get(rank, ["other"])))
    value = draw(st.sampled_from([0, 1, 2, AUTO] if rank == LIBRARY else [0, 1, 2]))
    return Claim(rank, reader, value, Source(draw(st.sampled_from(["a.json", "b.json", "c.yaml"])), "key"))


def stage(*given_claims: Claim) -> Any:
    return merge({FACT: list(given_claims)})


@settings(max_examples=300)
@given(st.lists(claims(), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_order_decides_nothing_but_ties(stated: list[Claim], random: Any) -> None:
    shuffled = list(stated)
    random.shuffle(shuffled)
    first, second = merge({FACT: stated}), merge({FACT: shuffled})
    explicit = [claim for claim in stated if claim.value is not AUTO]
    assert (FACT in first.facts) == (FACT in second.facts) == bool(explicit)
    assert (FACT in first.automatic) == (FACT in second.automatic) == (not explicit)
    if not explicit:
        return
    best = min(claim.rank for claim in explicit)
    strongest = {claim.value for claim in explicit if claim.rank == best}
    for merged in (first, second):
        fact = merged.facts[FACT]
        assert fact.value in strongest
        assert fact.origin == ORIGIN_BY_RANK[best]
        told = {fact.value, *(value for value, _ in fact.alternatives)}
        assert told == {claim.value for claim in explicit}
        assert len(fact.sources) + len(fact.alternatives) == len(explicit)
    if len(strongest) == 1:
        assert first.facts[FACT].value == second.facts[FACT].value
        assert bool(first.conflicts) == bool(second.conflicts)


def test_precedence_from_set_to_measured() -> None:
    order = [SETTING, DECLARED, CODE, SCRIPT, FRAMEWORK, LIBRARY, MODEL, INSTALLED, MEASURED]
    for index, rank in enumerate(order[:-1]):
        weaker = [Claim(other, "r", 0, Source("w")) for other in order[index + 1 :]]
        assert stage(*weaker, Claim(rank, "r", 1, Source("s"))).facts[FACT].value == 1


@pytest.mark.parametrize("reader", ["hf_trainer", "trl", "accelerate"])
def test_a_program_that_compares_conflicts_with_a_deepspeed_file_that_differs(reader: str) -> None:
    rank = LIBRARY if reader == "accelerate" else FRAMEWORK
    merged = stage(Claim(rank, reader, 3, Source("t.yaml")), Claim(LIBRARY, "deepspeed", 2, Source("ds.json")))
    ((name, values, refused),) = merged.conflicts
    assert name == FACT
    assert {value for value, _ in values} == {2, 3}
    assert refused


def test_two_files_of_one_rank_disagree_and_nobody_refuses() -> None:
    merged = stage(Claim(FRAMEWORK, "verl", 3, Source("a.yaml")), Claim(FRAMEWORK, "verl", 2, Source("b.yaml")))
    assert [conflict.refused for conflict in merged.conflicts] == [False]


def test_equal_values_auto_overrides_and_weaker_inputs_are_no_conflicts() -> None:
    trainer = Claim(FRAMEWORK, "hf_trainer", 3, Source("t.yaml"))
    for other in (
        Claim(LIBRARY, "deepspeed", 3, Source("ds.json")),
        Claim(LIBRARY, "deepspeed", AUTO, Source("ds.json")),
        Claim(SETTING, "set", 2, Source("--set")),
        Claim(SCRIPT, "script", 2, Source("run.sh")),
        Claim(MODEL, "model", 2, Source("config.json")),
    ):
        assert stage(trainer, other).conflicts == ()


def test_none_is_a_value() -> None:
    merged = merge({"training.peft": [Claim(INSTALLED, "environment", None, Source("env"))]})
    assert merged.facts["training.peft"].value is None
    merged = merge(
        {
            "training.peft": [
                Claim(INSTALLED, "environment", None, Source("env")),
                Claim(FRAMEWORK, "trl", "lora", Source("t")),
            ]
        }
    )
    assert merged.facts["training.peft"].value == "lora"
    assert merged.facts["training.peft"].alternatives == ((None, Source("env")),)


def test_an_optimizer_section_of_deepspeed_replaces_the_trainers_choice() -> None:
    stated = [
        Claim(FRAMEWORK, "hf_trainer", "adafactor", Source("t.yaml")),
        Claim(LIBRARY, "deepspeed", "adamw", Source("ds.json")),
    ]
    for order in (stated, stated[::-1]):
        merged = merge({"training.optimizer": list(order)})
        assert merged.facts["training.optimizer"].value == "adamw"
        assert merged.conflicts == ()
    merged = merge({"training.optimizer": [*stated, Claim(SETTING, "set", "lion", Source("--set"))]})
    assert merged.facts["training.optimizer"].value == "lion"


def test_statements_become_claims_with_their_key_and_rank() -> None:
    documents = [
        Document(
            "deepspeed", Source("ds.json"), (Statement(FACT, "zero_optimization.stage", 3), Statement(None, "x", 1))
        ),
        Document("native", Source("f.yaml"), (Statement(FACT, "training.zero_stage", 2),)),
    ]
    ((name, found),) = claims_of(documents).items()
    assert name == FACT
    assert [(claim.rank, str(claim.source)) for claim in found] == [
        (LIBRARY, "ds.json (zero_optimization.stage)"),
        (FRAMEWORK, "f.yaml (training.zero_stage)"),
    ]


def test_a_file_beside_does_not_stand_for_one_that_is_named_and_missing() -> None:
    left_open = (Unresolved("training.zero_stage", "deepspeed", "stands in nosuch.json, which could not be read"),)
    missing = Document(MISSING, Source("ax.yaml"), (), unresolved=left_open)
    other = Document(
        "deepspeed", Source("zero3.json"), (Statement("training.zero_stage", "zero_optimization.stage", 3),)
    )
    assert drop_stand_ins((missing, other)) == [missing]
    assert drop_stand_ins((missing, other._replace(named=True))) == [missing, other._replace(named=True)]
    assert drop_stand_ins((other,)) == [other]
