"""Read ``rules/_programs``, one file per program, strictly: what is wrong is named with file, line and key.

A file holds the fields of `compatcheck.rules.program.Program`, and beside them ``rows``, the defaults of keys left out,
``traits``, what its code does whatever the keys, ``keys``, which releases know a key, and ``parts``, each with rows of its own.
The columns of rows are explained in ``rules/_programs/hf_trainer.yaml`` and `compatcheck.resolution.defaults`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import RuleError
from compatcheck.core.facts import TRAITS
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier
from compatcheck.rules.expression import fact_names
from compatcheck.rules.program import KINDS, SECTION, Part, Program, Resemblance
from compatcheck.rules.strict_yaml import StrictFile
from compatcheck.rules.syntax import parse
from compatcheck.rules.vocabulary import vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_DATA = {"rows", "traits", "keys", "parts"}
"""Keys of a file that are sections of their own, or hold them."""
_COLUMNS = {
    *("fact", "key", "absent", "present", "affected", "when"),
    *("value", "value_expression", "follows", "raw", "forced", "role", "source"),
}
_TRAIT_COLUMNS = {"fact", "affected", "when", "value", "value_expression", "note", "source"}


def read_program_files(directory: Path) -> Iterator[tuple[str, Any]]:
    """Yield the sections that a directory of records compiles to.

    Raises:
        RuleError: a file is malformed; naming file, line and key.
    """
    files = {path.stem: _File(path) for path in sorted(directory.glob("*.yaml"))}
    records = {name: file.record() for name, file in files.items()}
    for name, file in files.items():
        for key in ("inherits", "runs_as"):
            if records[name].get(key, name) not in records:
                raise file.error(f"{records[name][key]!r} has no record", key)
        yield from file.sections(name)
    if records:
        yield SECTION, records


class _File(StrictFile):
    """One file of a program."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.mapping(self.data)

    def record(self) -> dict[str, Any]:
        """Return the fields of the record."""
        fields = {key: value for key, value in self.data.items() if key not in _DATA}
        self.check(fields, Program, ())
        for key in ("label", "packages"):
            if key not in fields:
                raise self.error(f"missing key {key!r}")
        if fields.get("kind", "program") not in KINDS:
            raise self.error(f"{fields['kind']!r} is not one of {', '.join(KINDS)}", "kind")
        if "resembles" in fields:
            self.check(fields["resembles"], Resemblance, ("resembles",))
        for name, releases in fields.get("read", {}).items():
            try:
                compile_specifier(releases)
            except InvalidSpecifierError as error:
                raise self.error(str(error), "read", name) from error
        parts = self.sequence(self.data.get("parts", []), "parts")
        return {**fields, "parts": [self.part(part, index) for index, part in enumerate(parts)]}

    def part(self, part: Any, index: int) -> dict[str, Any]:  # noqa: ANN401 (YAML)
        if not isinstance(part, dict) or not {"name", "label", "rows"} <= part.keys():
            raise self.error("a part has a name, a label and rows", "parts", index)
        fields = {key: value for key, value in part.items() if key != "rows"}
        self.check(fields, Part, ("parts", index))
        return fields

    def check(self, fields: Any, record: type, where: tuple[str | int, ...]) -> None:  # noqa: ANN401 (YAML)
        """Refuse keys that the record has not, and values of another type."""
        types = {name: str(kind) for name, kind in record.__annotations__.items() if where or name != "name"}
        for key, value in fields.items():
            if key not in types:
                raise self.error(f"unknown key {key!r}", *where, key)
            wanted = next(kind for word, kind in _TYPES if word in types[key])
            words = value if isinstance(value, list) else ()
            if not isinstance(value, wanted) or not all(isinstance(word, str) for word in words):
                raise self.error(f"expected {_WORDS[wanted]}", *where, key)

    def sections(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield the rows, traits and keys of the program and the rows of its parts."""
        if "rows" in self.data:
            yield f"defaults/{name}", self.rows(self.data, "rows")
        if "traits" in self.data:
            yield f"traits/{name}", self.rows(self.data, "traits")
        if "keys" in self.data:
            yield f"keys/{name}", self.releases_of_keys()
        for index, part in enumerate(self.data.get("parts", ())):
            yield f"defaults/{part['name']}", self.rows(part, "rows", "parts", index)

    def rows(self, data: Mapping[str, Any], key: str, *where: str | int) -> list[dict[str, Any]]:
        rows = self.sequence(data[key], *where, key)
        return [self.row(row, key, *where, key, index) for index, row in enumerate(rows)]

    def row(self, row: Any, kind: str, *where: str | int) -> dict[str, Any]:  # noqa: ANN401 (YAML)
        """Compile one row; a trait has no key, and is about a fact of the program."""
        is_trait = kind == "traits"
        try:
            unknown = sorted(row.keys() - (_TRAIT_COLUMNS if is_trait else _COLUMNS))
            if unknown:
                raise self.error(f"unknown key {unknown[0]!r}", *where, unknown[0])
            if is_trait != row["fact"].startswith(TRAITS):
                raise self.error(f"traits, and traits alone, are facts {TRAITS}*", *where, "fact")
            if is_trait and not row.get("source"):
                raise self.error("a trait names its source", *where)
            when, expression = (
                None if row.get(column) is None else parse(row[column]) for column in ("when", "value_expression")
            )
            named = {
                row["fact"],
                *(name for code in (when, expression) if code is not None for name in fact_names(code)),
            }
            for name in sorted(named - vocabulary().keys()):
                raise self.error(f"unknown fact {name!r}", *where)
            return {
                "fact": row["fact"],
                "key": None if is_trait else row["key"],
                "absent": row.get("absent", []),
                "present": row.get("present", []),
                "ranges": {name: compile_specifier(text) for name, text in (row.get("affected") or {}).items()},
                "when": when,
                "value": row.get("value"),
                "expression": expression,
                "follows": row.get("follows"),
                "forced": bool(row.get("forced")),
                "role": row.get("role"),
                **{column: row[column] for column in ("note", "raw") if column in row},
            }
        except RuleError as error:
            if error.source is not None and error.source.path == self.path:
                raise
            raise self.error(f"malformed row: {error.message}", *where) from None
        except (KeyError, TypeError, AttributeError, InvalidSpecifierError) as error:
            raise self.error(f"malformed row: {error}", *where) from None

    def releases_of_keys(self) -> dict[str, dict[str, Any]]:
        """Compile which releases have a key: specifier and bounds by package; see `compatcheck.resolution.known_keys`."""
        try:
            return {
                key: {package: [specifier, compile_specifier(specifier)] for package, specifier in ranges.items()}
                for keys, ranges in self.data["keys"].items()
                for key in keys.split()
            }
        except (TypeError, AttributeError, InvalidSpecifierError) as error:
            raise self.error(f"malformed releases of a key: {error}", "keys") from None


_TYPES = (("tuple", list), ("Mapping", dict), ("Resemblance", dict), ("bool", bool), ("int", int), ("str", str))
_WORDS = {list: "a list of words", dict: "a mapping", bool: "true or false", int: "a whole number", str: "text"}
