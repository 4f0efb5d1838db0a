"""What is compiled is what is read back, and the index leaves nothing out."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import RuleError
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.rules.compile import compile_database, open_compiled
from compatcheck.rules.database import Database, RuleSet, cell_key
from compatcheck.rules.rule import Clause, Rule
from compatcheck.rules.syntax import parse
from tests.unit.rules.drawn_rules import PACKAGES, drawn_rules, rule, rule_set


def compiled_range(text: str) -> object:
    return text if text in {"present", "absent"} else compile_specifier(text)


@settings(max_examples=100)
@given(drawn_rules)
def test_rules_come_back_as_they_were_written(rules: list[Rule]) -> None:
    opened = rule_set(*rules)
    found = {compiled.id: compiled for compiled in opened.all_rules()}
    assert sorted(found) == sorted(rule.id for rule in rules)
    assert opened.count == sum(rule.status == "active" for rule in rules)
    for written in rules:
        compiled, texts = found[written.id], opened.texts(found[written.id])
        assert (compiled.title, compiled.kind, compiled.status) == (written.title, written.kind, written.status)
        assert compiled.when == (None if written.when is None else parse(written.when))
        assert compiled.unless == (None if written.unless is None else parse(written.unless))
        assert [dict(clause.packages) for clause in compiled.clauses] == [
            {name: compiled_range(text) for name, text in clause.packages.items()} for clause in written.clauses
        ]
        assert [clause.when for clause in compiled.clauses] == [
            None if clause.when is None else parse(clause.when) for clause in written.clauses
        ]
        assert compiled.former_ids == written.former_ids
        assert (texts.what, texts.why, texts.when, texts.unless) == (
            written.what,
            written.why,
            written.when,
            written.unless,
        )
        assert [dict(packages) for packages, _ in texts.affected] == [dict(c.packages) for c in written.clauses]
        assert texts.references[0]["url"] == written.references[0].url
        assert texts.remedies[0]["target"] == dict(written.remedies[0].target)


@settings(max_examples=200)
@given(drawn_rules, st.sets(st.sampled_from(PACKAGES)))
def test_the_index_finds_every_rule_that_could_match_and_none_about_other_packages(
    rules: list[Rule], names: set[str]
) -> None:
    found = [compiled.id for compiled in rule_set(*rules).rules_about(names)]
    assert len(found) == len(set(found))
    for written in rules:
        alternatives = [
            {name for name, text in packages.items() if text != "absent"}
            for packages in (*(clause.packages for clause in written.clauses), *filter(None, [written.unverified]))
        ]
        could_match = written.status == "active" and any(needed <= names for needed in alternatives)
        mentions = written.status == "active" and any(needed & names or not needed for needed in alternatives)
        assert not could_match or written.id in found
        assert mentions or written.id not in found


def test_the_identity_changes_with_the_rules_and_only_with_them() -> None:
    first, same = rule_set(rule()), rule_set(rule())
    other = rule_set(rule(when="training.zero_stage == 2"))
    assert first.id == same.id != other.id


def test_a_former_id_finds_the_rule() -> None:
    opened = rule_set(rule(former_ids=("deepspeed/old-name",)))
    found = opened.find("deepspeed/old-name")
    assert found is not None
    assert found.id == "deepspeed/bad-pattern"
    assert opened.find("deepspeed/unheard-of") is None


def test_of_two_rules_of_one_name_that_of_the_later_database_is_found() -> None:
    first, second = rule_set(rule(), rule(id="a/x")), rule_set(rule(id="b/new", former_ids=("a/x",)), rule(what="mine"))
    both = RuleSet((*first.databases, *second.databases))
    found, own = both.find("a/x"), both.find("deepspeed/bad-pattern")
    assert found is not None
    assert own is not None
    assert (found.id, both.texts(own).what) == ("b/new", "mine")


def test_a_rule_that_was_read_is_found_without_reading_the_others() -> None:
    data = compile_database([rule(), rule(id="a/x", clauses=(Clause(packages={"torch": ""}),))], {}, "2026-01-01")
    opened: list[int] = []

    def connect() -> io.BytesIO:
        opened.append(1)
        return io.BytesIO(data)

    database = Database(connect, "counted")
    (known,) = database.rules_about(["deepspeed"])
    before = len(opened)
    assert database.find(known.id) is known
    assert len(opened) == before


def test_two_databases_read_as_one_and_the_later_wins_for_data() -> None:
    first, second = (
        rule_set(rule(id="a/x"), **{"tables/t": {"k": 1}}),
        rule_set(rule(id="a/y", what="mine"), **{"tables/t": {"k": 2}}),
    )
    both = RuleSet((*first.databases, *second.databases))
    found = {compiled.id: both.texts(compiled).what for compiled in both.rules_about(["deepspeed"])}
    assert found == {"a/x": "what", "a/y": "mine"}
    assert both.count == 2
    assert both.look_up("t", ("k",)) == 2
    assert both.id == f"{first.id}+{second.id}"


def test_tables() -> None:
    opened = rule_set(**{"tables/t": {"9": {"true": "x", "none": ["a", "b"]}}, "tables/flat": {"a": None}})
    assert opened.look_up("t", (9.0, True)) == "x"
    assert opened.look_up("t", (9, True)) == "x"
    assert opened.look_up("t", (9, "none")) == ("a", "b")
    assert opened.look_up("flat", ("a",)) is None
    with pytest.raises(KeyError):
        opened.look_up("t", (9, "other"))
    usual = rule_set(**{"tables/t": {"*": 1, "a": 2}})
    assert (usual.look_up("t", ("a",)), usual.look_up("t", ("other",))) == (2, 1)
    for table, keys in (("unheard-of", (1,)), ("t", (9,)), ("t", (9, True, 1)), ("flat", ("a", "b"))):
        with pytest.raises(RuleError):
            opened.look_up(table, keys)


def test_keys_of_tables_do_not_depend_on_how_a_number_is_written() -> None:
    assert cell_key(9) == cell_key(9.0) == "9"
    assert cell_key(8.6) == "8.6"
    assert cell_key(True) == "true"
    assert cell_key(None) == "none"


def test_releases_and_sections() -> None:
    opened = rule_set(rule())
    assert opened.releases("deepspeed")[0] == "0.15.0"
    assert opened.releases("torch") == ()
    assert opened.section("models") is None
    assert opened.databases[0].sections("releases/") == ["releases/deepspeed"]


def test_a_range_is_held_against_a_requirement_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def judge(bounds: object, specifier: str, _: object) -> str:
        asked.append(specifier)
        return "some" if bounds else "unknown"

    monkeypatch.setattr("compatcheck.rules.database.judge", judge)
    rules = rule_set(rule())
    wide, none = compile_specifier(">=1"), compile_specifier("")[:0]
    assert [rules.judge(wide, "deepspeed", ">=2") for _ in range(3)] == ["some"] * 3
    assert rules.judge(none, "deepspeed", ">=2") == "unknown"
    assert rules.judge(wide, "torch", ">=2") == "some"
    assert asked == [">=2"] * 3


@pytest.mark.parametrize(
    "text", ["", ">=0.15.1,<0.16.5", ">0.15.0,!=0.16.*", "<0.15.2 || >=0.16.4", "===0.16.0", ">=0.16.0rc1", "<0"]
)
def test_a_range_holds_the_releases_that_lie_in_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = rule_set(rule())
    names = ("0.15.0", "0.15.0.post1", "0.15.1", "0.15.2", "0.16.0rc1", "0.16.0", "0.16.4", "0.16.5.dev0", "0.16.5")
    monkeypatch.setattr(opened, "releases", lambda _: names)
    bounds = compile_specifier(text)
    held = opened.held(bounds, "deepspeed")
    assert [name for place, name in enumerate(names) if held >> place & 1] == [
        name for name in names if contains(bounds, name) == "yes"
    ]
    assert opened.held("present", "deepspeed") == (1 << len(names)) - 1


def test_a_rule_about_an_absent_package_is_not_even_read() -> None:
    data = compile_database([rule(clauses=(Clause(packages={"torch": ">=1"}),))], {}, "2026-01-01")
    reads: list[int] = []

    class Counting(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            reads.append(size or 0)
            return super().read(size)

    database = Database(lambda: Counting(data), "counted")
    assert list(database.rules_about(["deepspeed"])) == []
    assert reads == []


@pytest.mark.parametrize("data", [b"", b"{}\n", b"[]\n", b"not json\n", b'{"format": 0}\n', b"\xff\n"])
def test_other_files_are_refused_with_a_remedy(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        open_compiled(data, "file")
    assert caught.value.hint
    with pytest.raises(RuleError):
        Database.open(str(tmp_path / "missing.jsonl"))


def test_what_rules_ask_alike_is_read_once() -> None:
    asked = "training.zero_stage == 3"
    rules = [
        rule(id="a/one", clauses=(Clause(packages={"torch": "<2"}),), when=f"{asked} and model.num_experts > 1"),
        rule(
            id="a/two",
            clauses=(Clause(packages={"torch": "<2"}, when=asked), Clause(packages={"peft": ">=1"})),
            when=None,
        ),
        rule(
            id="a/three",
            clauses=(Clause(packages={"peft": "<2"}),),
            when=None,
            unless=f"{asked} or model.num_experts > 1",
        ),
    ]
    one, three, two = sorted(rule_set(*rules).rules_about(["torch", "peft"]), key=lambda found: found.id)
    assert one.when is not None
    assert three.unless is not None
    assert one.when[1] == parse(asked)
    assert one.when[1] is two.clauses[0].when is three.unless[1]
    assert one.when[2] is three.unless[2]
    assert one.clauses[0].packages["torch"] == compile_specifier("<2")
