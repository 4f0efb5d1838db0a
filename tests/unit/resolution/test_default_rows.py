"""A default applies to a key that was left out of a document that is there, at a release that has it, and never else."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.document import Document, Statement
from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact
from compatcheck.core.source import Skipped, Source
from compatcheck.core.versions import compile_specifier
from compatcheck.resolution.defaults import apply_defaults, keys_of, reader_chain
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.compile import compile_database, open_compiled
from compatcheck.rules.database import RuleSet
from compatcheck.rules.syntax import parse

PACKING, COMPILE, STAGE = "training.packing", "training.compile", "training.zero_stage"


def row(fact: str, value: Any, key: str | None = "k", **more: Any) -> dict[str, Any]:
    when, expression = more.pop("when", None), more.pop("expression", None)
    return {
        "fact": fact,
        "key": key,
        "absent": more.pop("absent", []),
        "present": more.pop("present", []),
        "ranges": {name.replace("_", "-"): compile_specifier(text) for name, text in more.pop("affected", {}).items()},
        "when": None if when is None else parse(when),
        "value": value,
        "expression": None if expression is None else parse(expression),
        "forced": more.pop("forced", False),
    }


def document(reader: str = "hf_trainer", *keys: str, **facts: Any) -> Document:
    statements = [Statement(None, key, 1) for key in keys]
    statements += [Statement(name.replace("__", "."), name, value) for name, value in facts.items()]
    return Document(reader, Source("t.json"), tuple(statements))


def applied(
    rows: list[dict[str, Any]],
    *documents: Document,
    facts: dict[str, Any] | None = None,
    version: str | None = "4.48.0",
    **tables: list[dict[str, Any]],
) -> dict[str, Fact]:
    sections = {"defaults/hf_trainer": rows, "releases/transformers": ["4.40.0", "4.48.0", "5.0.0"]}
    sections.update({f"defaults/{name}": table for name, table in tables.items()})
    rules = RuleSet((open_compiled(compile_database([], sections, "d"), "d"),))
    packages = {}
    if version is not None:
        ranged = version[:1] in "<>="
        packages["transformers"] = Package(
            "transformers", None if ranged else version, Source("env"), version if ranged else None
        )
    known = {
        name: value if isinstance(value, Fact) else Fact(name, value, "configuration", (Source("t.json"),))
        for name, value in (facts or {}).items()
    }
    scope = FactScope(known, Environment("env", packages, complete=False), rules)
    apply_defaults([entry.reader for entry in documents], documents, scope, known)
    return known


def test_only_where_the_reader_has_a_document_that_leaves_the_key_out() -> None:
    rows = [row(PACKING, True)]
    assert applied(rows, document())[PACKING].value is True
    assert applied(rows, document())[PACKING].origin == "reader-default"
    assert PACKING not in applied(rows)
    assert PACKING not in applied(rows, document("accelerate"))
    assert PACKING not in applied(rows, document("hf_trainer", "k"))
    assert PACKING not in applied(rows, document("hf_trainer", "k.inner"))


def test_a_key_nobody_could_read_is_not_left_out() -> None:
    unread = document()._replace(unread=(("k", None),))
    broken = document()._replace(skipped=(Skipped(Source("t.json", "k"), "not understood"),))
    assert PACKING not in applied([row(PACKING, True)], unread)
    assert PACKING not in applied([row(PACKING, True)], broken)


def test_null_and_empty_sections_state_nothing() -> None:
    empty = document()._replace(statements=(Statement(None, "k", None), Statement(None, "j", {})))
    assert keys_of(empty) == set()
    assert keys_of(document("deepspeed", "deepspeed.zero_optimization.stage")) == {
        "zero_optimization",
        "zero_optimization.stage",
    }


def test_absent_and_present_keys() -> None:
    rows = [row(PACKING, True, absent=["other"]), row(COMPILE, True, key="j", present=["section"])]
    found = applied(rows, document("hf_trainer", "other", "section.x"))
    assert PACKING not in found
    assert found[COMPILE].value is True
    assert COMPILE not in applied(rows, document())


@pytest.mark.parametrize(
    ("version", "value"),
    [("4.40.0", 1), ("5.0.0", 2), (">=5", 2), (">=4", None), (None, None), ("5.0.0rc1", None), ("nonsense", None)],
)
def test_the_release_decides_or_nothing_is_said(version: str | None, value: int | None) -> None:
    rows = [row(STAGE, 1, affected={"transformers": "<5"}), row(STAGE, 2, affected={"transformers": ">=5"})]
    fact = applied(rows, document(), version=version).get(STAGE)
    assert (None if fact is None else fact.value) == value


def test_a_row_that_waits_for_one_of_no_certain_release_heeds_what_that_one_says() -> None:
    rows = [row(STAGE, 1, affected={"transformers": ">=4"}), row(PACKING, True, when=f"{STAGE} == 3", key="j")]
    for version in ("4.48.0", None):
        found = applied(rows, document(), version=version)
        assert found[STAGE].value == 1
        assert PACKING not in found


def test_rows_that_agree_need_no_release() -> None:
    rows = [row(STAGE, 1, affected={"transformers": "<5"}), row(STAGE, 1, affected={"transformers": ">=5"})]
    fact = applied(rows, document(), version=None)[STAGE]
    assert fact.value == 1
    assert "every release" in (fact.note or "")


def test_conditions_and_expressions_read_other_defaults() -> None:
    rows = [
        row(PACKING, None, when="training.compile", expression="training.zero_stage == 3"),
        row(COMPILE, True, key="j"),
        row(STAGE, 3, key="s"),
    ]
    assert applied(rows, document())[PACKING].value is True
    assert PACKING not in applied(rows, document(), facts={COMPILE: False})
    assert PACKING not in applied(rows[:1], document())


def test_a_stated_value_stays_unless_the_program_forces_its_own() -> None:
    assert applied([row(PACKING, True)], document(), facts={PACKING: False})[PACKING].value is False
    fact = applied([row(PACKING, True, forced=True)], document("hf_trainer", "k"), facts={PACKING: False})[PACKING]
    assert fact.value is True
    assert fact.alternatives == ((False, Source("t.json")),)


def test_a_condition_looks_at_what_another_row_fixes() -> None:
    rows = [row(PACKING, True, when="training.zero_stage == 1", forced=True), row(STAGE, 3, forced=True)]
    found = applied(rows, document("hf_trainer", "k"), facts={STAGE: 1})
    assert found[STAGE].value == 3
    assert PACKING not in found


@pytest.mark.parametrize(("affected", "value"), [(">=4.48", True), ("<4.48", False)])
def test_what_merely_follows_is_replaced_where_every_later_release_does_so(affected: str, *, value: bool) -> None:
    rows = [
        row(PACKING, True, forced=True, affected={"transformers": affected}),
        row(COMPILE, False, affected={"transformers": ">=4.40"}),
        row(PACKING, False, key="other", affected={"transformers": ">=4.40"}),
    ]
    known = {PACKING: Fact(PACKING, False, "derived", (Source("t.json"),), "as it follows")}
    written = document("hf_trainer", "k")
    assert applied(rows, written, facts=known, version=None)[PACKING].value is value


def test_an_open_default_of_a_program_is_not_replaced_by_the_one_beneath() -> None:
    trl = [row(PACKING, False, affected={"trl": "<1"}), row(PACKING, True, affected={"trl": ">=1"})]
    found = applied([row(PACKING, True), row(COMPILE, True, key="j")], document("trl"), trl=trl)
    assert PACKING not in found
    assert found[COMPILE].value is True


def test_programs_come_before_what_they_are_built_on_and_libraries_last() -> None:
    assert reader_chain(["deepspeed", "trl"], []) == ["trl", "hf_trainer", "deepspeed", "transformers"]
    assert reader_chain(["hf_trainer"], [document("hf_trainer", "fsdp")]) == [
        "hf_trainer_fsdp",
        "hf_trainer",
        "transformers",
    ]
    assert reader_chain(["accelerate"], [document("accelerate", "deepspeed_config.zero_stage")]) == [
        "accelerate_deepspeed",
        "accelerate",
    ]


def test_the_source_says_whose_default_at_which_release() -> None:
    rows = [row(PACKING, True, affected={"transformers": ">=4"})]
    fact = applied(rows, document())[PACKING]
    assert str(fact.sources[0]) == "default of the HF Trainer (transformers 4.48.0)"
