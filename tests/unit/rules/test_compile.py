"""A rule directory is compiled whole, or the first malformed file is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.core.errors import RuleError
from compatcheck.rules.compile import compile_database, compile_directory, open_compiled
from compatcheck.rules.rule import Clause, Impact
from tests.unit.rules.drawn_rules import rule


def directory(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_data_sections(tmp_path: Path) -> None:
    database = open_compiled(
        compile_directory(
            directory(
                tmp_path,
                _tables__t="description: d\nkeys: [a, b]\nrows:\n  - [x, 9.0, yes-sir]\n  - [x, true, null]\n",
                _programs__deepspeed=(
                    "label: DeepSpeed\npackages: [deepspeed]\n"
                    "rows:\n  - {fact: training.zero_stage, key: zero_optimization.stage, value: 0}\n"
                    '  - {fact: training.packing, key: null, value_expression: "training.zero_stage == 0", '
                    'when: "training.zero_stage >= 0", affected: {deepspeed: ">=1"}, forced: true}\n'
                ),
                _releases__deepspeed=(
                    'releases: {"1.10": "2024-02-01", "1.9": null, nonsense: null, 1.9rc1: null, "1.8": null}\n'
                    'yanked: ["1.8"]\n'
                ),
                _database='date: "2026-11-21"\n',
            )
        ),
        "d",
    )
    assert database.date == "2026-11-21"
    assert database.section("tables/t") == {"x": {"9": "yes-sir", "true": None}}
    assert database.section("releases/deepspeed") == ["1.9rc1", "1.9", "1.10"]
    first, second = database.section("defaults/deepspeed")
    assert (first["value"], first["expression"], first["forced"], first["absent"]) == (0, None, False, [])
    assert second["when"] == [">=", ["fact", "training.zero_stage"], ["value", 0]]
    assert (second["key"], second["forced"], second["ranges"]) == (None, True, {"deepspeed": [[[">=", "1"]]]})
    assert database.count == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_tables__t", "keys: [a]\nrows:\n  - [x]\n"),
        ("_tables__t", "keys: [a]\nrows:\n  - [x, 1]\n  - [x, 2]\n"),
        ("_tables__t", "keys: [a]\n"),
        ("_tables__t", "rows: []\n"),
        ("_tables__t", "- a\n"),
        ("_tables__t", ""),
        ("_tables__t", "keys: [a]\nrows: x\n"),
        ("_programs__d", "label: d\npackages: []\nrows:\n  - {fact: a}\n"),
        ("_programs__d", "label: d\npackages: []\nrows:\n  - a\n"),
        ("_programs__d", "label: d\npackages: []\nrows: {}\n"),
        ("_programs__d", 'label: d\npackages: []\nrows:\n  - {fact: a, key: b, affected: {c: "nonsense"}}\n'),
        ("_programs__d", 'label: d\npackages: []\nrows:\n  - {fact: a, key: b, when: "a ("}\n'),
        ("_programs__d", "label: d\npackages: []\nrows:\n  - {fact: a, key: b, affected: [c]}\n"),
        ("_programs__d", "label: d\npackages: []\nrows:\n  - {fact: a, key: b, forced: False}\n"),
        ("_releases__d", "a: 1\n"),
        ("_releases__d", "releases: 1\n"),
        ("_database", "a: 1\n"),
        ("pkg__rule", "title: a\n"),
    ],
)
def test_a_malformed_file_is_a_rule_error_that_names_it(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(RuleError) as caught:
        compile_directory(directory(tmp_path, **{name: text}))
    assert caught.value.source is not None
    assert caught.value.source.path == str(tmp_path / f"{name.replace('__', '/')}.yaml")


def test_an_empty_directory_compiles_to_no_rules(tmp_path: Path) -> None:
    database = open_compiled(compile_directory(tmp_path), "empty")
    assert (database.count, list(database.all_rules()), database.sections("")) == (0, [], [])


@pytest.mark.parametrize(
    "changes",
    [
        {"when": "a ("},
        {"unless": "len(a.b)"},
        {"clauses": (Clause(packages={"deepspeed": "0.16"}),)},
        {"clauses": (Clause(packages={}, when="1j"),)},
        {"unverified": {"deepspeed": "~1"}},
        {"impact": Impact(effect="memory", memory="device", scope="rank", phase="whole", expected="[1]")},
    ],
)
def test_expressions_and_ranges_are_checked_and_the_rule_named(changes: dict[str, object]) -> None:
    with pytest.raises(RuleError) as caught:
        compile_database([rule(**changes)], {}, "2026-01-01")
    assert caught.value.source is not None
    assert caught.value.source.path == "rules/deepspeed/bad-pattern.yaml"


def test_compiling_twice_gives_the_same_bytes() -> None:
    rules = [rule(id="b/x"), rule(id="a/y")]
    assert compile_database(rules, {}, "d") == compile_database(reversed(rules), {}, "d")


GPU = "X1: {gib: 8, cc: 9.0, sms: null, architecture: Test, aliases: [], source: [s]}\n"


def test_instances_refer_to_devices(tmp_path: Path) -> None:
    row = "x.large: {cloud: C, gpu: X1, gpus: 2, host_gib: 64, source: [s], unverified: [nvlink]}\n"
    database = open_compiled(compile_directory(directory(tmp_path, _gpus=GPU, _instances=row)), "d")
    assert database.section("instances") == {"x.large": {"cloud": "C", "gpu": "X1", "gpus": 2, "host_gib": 64}}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{cloud: C, gpu: X2, gpus: 2}", "'X2' is not in _gpus.yaml"),
        ("{cloud: C, gpu: X1, gpus: 0}", "gpus is not"),
        ("{cloud: C, gpu: X1}", "gpus is not"),
    ],
)
def test_an_instance_of_another_device_or_of_none_is_refused(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(RuleError, match=message) as caught:
        compile_directory(directory(tmp_path, _gpus=GPU, _instances=f"# one\nx.large: {row}\n"))
    assert (caught.value.source.key, caught.value.source.line) == ("x.large", 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_gpus.yaml", "a: b\n"),
        ("_gpus.yaml", "- a\n"),
        ("_gpus.yaml", "a: {gib: 1, cc: 8.0, architecture: x}\n"),
        ("_gpus.yaml", "a: {gib: 1, cc: 8.0, architecture: x, aliases: [1]}\n"),
        ("_models.yaml", "a: null\n"),
        ("_models.yaml", "a: {aliases: x, config: {}}\n"),
        ("_instances.yaml", "a: [1]\n"),
        ("_releases/torch.yaml", "releases: [a]\n"),
        ("_pins/torch.yaml", "rows: [a]\n"),
        ("_pins/torch.yaml", "rows:\n  - {versions: x, requires: {}}\n"),
        ("_database.yaml", "[]\n"),
        ("_tables/x.yaml", "keys: x\nrows: x\n"),
    ],
)
def test_data_of_another_shape_is_refused_with_its_place(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(RuleError) as caught:
        compile_directory(tmp_path)
    assert name.rpartition("/")[2] in str(caught.value)


def test_a_directory_of_anything_is_not_walked_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compatcheck.rules.load._MOST", 3)
    for number in range(4):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(RuleError, match="holds more than 3"):
        compile_directory(tmp_path)
