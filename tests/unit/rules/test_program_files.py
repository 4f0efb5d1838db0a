"""A malformed record is refused with its file, its line and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.core.errors import RuleError
from compatcheck.rules.program import read_programs
from compatcheck.rules.program_files import read_program_files

START = "label: One\npackages: [one, torch]\n"


def sections(folder: Path, **files: str) -> dict[str, object]:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return dict(read_program_files(folder))


def test_a_record_its_traits_its_rows_and_its_parts(tmp_path: Path) -> None:
    trait = '{fact: program.adapters, affected: {one: ">=2"}, value: false, note: why, source: one.py}'
    row = "{fact: training.packing, key: pack, value: true}"
    part = f"name: one_model\n    label: One's model\n    keys: [model]\n    rows: [{row}]"
    text = f"{START}resembles: {{reader: two, package: one, keys: [a]}}\ntraits: [{trait}]\nrows: [{row}]\nparts:\n  - {part}\n"
    found = sections(tmp_path, one=text, two="label: Two\npackages: []\nkind: library\n")
    assert found.keys() == {"programs", "traits/one", "defaults/one", "defaults/one_model"}
    records = found["programs"]
    assert isinstance(records, dict)
    one, two = read_programs(records).values()
    assert (one.packages, one.parts[0].keys, one.resembles.keys if one.resembles else None) == (
        ("one", "torch"),
        ("model",),
        ("a",),
    )
    assert (one.kind, two.kind) == ("program", "library")
    (compiled,) = found["traits/one"]  # type: ignore[misc]  # a list of one row
    assert (compiled["key"], compiled["note"], compiled["value"]) == (None, "why", False)


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("label: One\n", None, 1),
        ("packages: []\n", None, 1),
        (START + "kind: fork\n", "kind", 3),
        (START + "drops_auto: 1\n", "drops_auto", 3),
        (START + "name: other\n", "name", 3),
        (START + "packges: []\n", "packges", 3),
        (START + "engines: [1]\n", "engines", 3),
        (START + "resembles: {reeder: two}\n", "resembles.reeder", 3),
        (START + "inherits: nobody\n", "inherits", 3),
        (START + "read: {one: newest}\n", "read.one", 3),
        (START + "parts: [{name: x}]\n", "parts.0", 3),
        (START + "traits:\n  - {fact: program.adapters, value: true}\n", "traits.0", 4),
        (START + "traits:\n  - {fact: training.peft, value: true, source: a}\n", "traits.0.fact", 4),
        (START + "traits:\n  - {fact: program.adapters, key: a, value: true, source: a}\n", "traits.0.key", 4),
        (START + "rows:\n  - {fact: program.adapters, key: null, value: true}\n", "rows.0.fact", 4),
        (START + "rows:\n  - {fact: training.peft, key: a, valu: true}\n", "rows.0.valu", 4),
        (START + 'rows:\n  - {fact: training.peft, key: a, when: "a ("}\n', "rows.0", 4),
        (START + "rows:\n  - {fact: training.pft, key: a, value: 1}\n", "rows.0", 4),
        (START + 'rows:\n  - {fact: training.peft, key: a, value_expression: "model.pft"}\n', "rows.0", 4),
        (START + "keys: {a: {one: nonsense}}\n", "keys", 3),
        ("- a\n", None, 1),
    ],
)
def test_what_is_wrong_has_a_place(tmp_path: Path, text: str, key: str | None, line: int | None) -> None:
    with pytest.raises(RuleError) as caught:
        sections(tmp_path, one=text)
    source = caught.value.source
    assert source is not None
    assert (source.path, source.key, source.line) == (str(tmp_path / "one.yaml"), key, line)
