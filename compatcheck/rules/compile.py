"""Compile ``rules/`` into the database file (see `compatcheck.rules.database` for its layout)."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import fields
from itertools import chain
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import RuleError
from compatcheck.core.source import Source
from compatcheck.core.versions import Bounds, InvalidSpecifierError, compile_specifier
from compatcheck.rules.database import FORMAT, INACTIVE, INDEPENDENT, Database, cell_key
from compatcheck.rules.expression import fact_names
from compatcheck.rules.load import load_rules
from compatcheck.rules.measured import read_series
from compatcheck.rules.program_files import read_program_files
from compatcheck.rules.strict_yaml import StrictFile
from compatcheck.rules.syntax import parse
from compatcheck.rules.vocabulary import nearest, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from compatcheck.rules.expression import Code
    from compatcheck.rules.rule import ProbeUse, Reference, Rule


_NUMBER = (int, float)
_DEVICE: Mapping[str, type | tuple[type, ...]] = {
    "gib": _NUMBER,
    "mib": (*_NUMBER, type(None)),
    "cc": (*_NUMBER, type(None)),
    "sms": (int, type(None)),
    "architecture": str,
    "aliases": list,
}
"""What a row of a device holds."""
_PROVENANCE_OF_DEVICES = frozenset({"source", "unverified"})


def compile_directory(directory: Path) -> bytes:
    """Compile a rule directory: its rules and, where present, tables, programs, releases, pins, models, devices and instances.

    Raises:
        RuleError: a file is malformed; naming file, line and key.
    """
    rules = tuple(load_rules(directory))
    measured = {rule.id: read_series(rule, directory.parent) for rule in rules if rule.comparisons}
    return compile_database(rules, dict(_sections(directory)), _date(directory), measured)


class _DataFile(StrictFile):
    """A data file that has certain keys."""

    def __init__(self, path: Path, *keys: str) -> None:
        super().__init__(path)
        for key in keys:
            if not isinstance(self.data, dict) or self.data.get(key) is None:
                raise RuleError(f"missing key {key!r}", source=Source(self.path))

    def named_rows(self, kinds: Mapping[str, type | tuple[type, ...]]) -> dict[str, dict[str, Any]]:
        """Return a file that is rows by name, each with values of these kinds."""
        for name, row in self.mapping(self.data).items():
            self.require(row, kinds, name)
        return dict(self.data)

    def require(self, row: object, kinds: Mapping[str, type | tuple[type, ...]], *where: str | int) -> None:
        """Check that a row has values of these kinds, in lists texts; one that may be nothing may be left out."""
        row = self.mapping(row, *where)
        for key, kind in kinds.items():
            value = row.get(key)
            if not isinstance(value, kind) or (
                isinstance(value, list) and not all(isinstance(one, str) for one in value)
            ):
                raise self.error(f"{key!r} is missing or does not fit", *where, *((key,) if key in row else ()))

    def rows(self, key: str) -> list[Any]:
        value = self.data[key]
        if not isinstance(value, list) and not (key == "releases" and isinstance(value, dict)):
            raise RuleError("expected a list", source=Source(self.path, key))
        return list(value)


def compile_database(
    rules: Iterable[Rule], sections: Mapping[str, Any], date: str, measured: Mapping[str, object] | None = None
) -> bytes:
    """Compile rules and data sections, and what was measured of rules by id, into the bytes of a database file."""
    body = io.BytesIO()

    def write(*values: object) -> list[int]:
        data = "\n".join(json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in values).encode()
        start = body.tell()
        body.write(data + b"\n")
        return [start, len(data)]

    chunks: dict[str, _Chunk] = {}
    active = 0
    for rule in sorted(rules, key=lambda rule: rule.id):
        texts = write([*_text_part(rule), (measured or {}).get(rule.id)])
        record = [*_matching_part(rule), " ".join(map(str, texts))]
        active += rule.status == "active"
        for key, bounds in _index(rule).items():
            chunks.setdefault(key, _Chunk()).add(bounds, record)
    header = {
        "format": FORMAT,
        "date": date,
        "rules": active,
        "packages": {name: write(*chunk.lines()) for name, chunk in sorted(chunks.items())},
        "sections": {name: write(value) for name, value in sorted(sections.items())},
    }
    header["id"] = hashlib.sha256(body.getvalue()).hexdigest()[:12]
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + body.getvalue()


class _Chunk:
    """The rules about one package by range, and what several of them say alike."""

    def __init__(self) -> None:
        self._rules: dict[str, tuple[Bounds | None, list[list[Any]]]] = {}

    def add(self, bounds: Bounds | None, record: list[Any]) -> None:
        """File the matching part of a rule under a range."""
        self._rules.setdefault(str(bounds), (bounds, []))[1].append(record)

    def lines(self) -> Iterator[object]:
        """Yield the ranges, the rules of each, and behind them what these refer to by its place, a range or an expression."""
        places = {text: place for place, text in enumerate(self._rules)}
        shared: list[object] = []

        def refer(value: Any) -> int:  # noqa: ANN401 (bounds or code)
            place = places.setdefault(str(value), len(places))
            if place == len(self._rules) + len(shared):
                shared.append(value)
            return place

        def split(code: Code | None) -> Code | int | None:
            if code is None or code[0] not in {"and", "or"}:
                return None if code is None else refer(code)
            return [code[0], *map(split, code[1:])]

        def ranges(packages: Mapping[str, Any]) -> dict[str, object]:
            return {name: one if isinstance(one, str) else refer(one) for name, one in packages.items()}

        yield [bounds for bounds, _ in self._rules.values()]
        for _, records in self._rules.values():
            yield [
                [
                    *record[:5],
                    [[ranges(packages), split(when)] for packages, when in record[5]],
                    ranges(record[6]),
                    *map(split, record[7:9]),
                    *record[9:],
                ]
                for record in records
            ]
        yield from shared


def open_compiled(data: bytes, name: str) -> Database:
    """Open compiled bytes without a file."""
    return Database(lambda: io.BytesIO(data), name)


def _index(rule: Rule) -> dict[str, Bounds | None]:
    """Return what a rule is filed under; where that is one package, with the range outside of which all of it is silent."""
    if rule.status != "active":
        return {INACTIVE: None}
    clauses = (*(clause.packages for clause in rule.clauses), *([rule.unverified] if rule.unverified else []))
    names = [next((name for name, text in one.items() if text != "absent"), INDEPENDENT) for one in clauses]
    compiled = [_ranges(rule, one).get(name) for name, one in zip(names, clauses, strict=True)]
    ranges = [bounds for bounds in compiled if isinstance(bounds, list)]
    if len(set(names)) == 1 and len(ranges) == len(names):
        return {names[0]: list(chain.from_iterable(ranges))}
    return dict.fromkeys(names)


def _matching_part(rule: Rule) -> list[object]:
    impact = rule.impact
    return [
        rule.id,
        rule.title,
        rule.kind,
        rule.status,
        rule.confidence,
        [[_ranges(rule, clause.packages), _code(rule, "affected", clause.when)] for clause in rule.clauses],
        _ranges(rule, rule.unverified),
        _code(rule, "when", rule.when),
        _code(rule, "unless", rule.unless),
        impact.effect,
        impact.memory,
        impact.scope,
        impact.phase,
        rule.debunks,
        rule.former_ids,
    ]


def _code(rule: Rule, key: str, text: str | None) -> Code | None:
    if text is None:
        return None
    try:
        code = parse(text)
    except RuleError as error:
        raise RuleError(error.message, source=Source(rule.path, key), hint=error.hint) from None
    for name in sorted(fact_names(code)):
        if name not in vocabulary():
            near = nearest(name, list(vocabulary()))
            hint = (f"did you mean {near!r}? " if near else "") + "`compatcheck facts --names` has them all"
            msg = f"unknown fact {name!r}"
            raise RuleError(msg, source=Source(rule.path, key), hint=hint)
    return code


def _text_part(rule: Rule) -> list[object]:
    impact = rule.impact
    return [
        rule.what,
        rule.why,
        rule.known_problems,
        rule.row,
        [[dict(clause.packages), clause.when] for clause in rule.clauses],
        dict(rule.unverified),
        dict(rule.checked_through),
        rule.verifiable,
        [
            {
                "verb": remedy.verb,
                "target": remedy.target,
                "safety": remedy.safety,
                "note": remedy.note,
                "when": _code(rule, f"remedies.{index}.when", remedy.when),
            }
            for index, remedy in enumerate(rule.remedies)
        ],
        list(map(_as_mapping, rule.references)),
        None if rule.probe is None else _as_mapping(rule.probe),
        rule.evidence,
        rule.reason,
        rule.when,
        rule.unless,
        impact.expected,
        [
            _code(rule, "impact.bytes", impact.expected),
            _code(rule, "impact.low", impact.low),
            _code(rule, "impact.high", impact.high),
            _code(rule, "impact.passing", impact.passing),
        ],
    ]


def _as_mapping(part: Reference | ProbeUse) -> dict[str, object]:
    return {field.name: getattr(part, field.name) for field in fields(part)}


def _ranges(rule: Rule, packages: Mapping[str, str]) -> dict[str, Bounds | str]:
    result: dict[str, Bounds | str] = {}
    for name, specifier in packages.items():
        if specifier in {"present", "absent"}:
            result[name] = specifier
            continue
        try:
            result[name] = compile_specifier(specifier)
        except InvalidSpecifierError as error:
            raise RuleError(str(error), source=Source(rule.path, f"affected.{name}")) from None
    return result


def _date(directory: Path) -> str:
    path = directory / "_database.yaml"
    if not path.exists():
        return "0000-00-00"
    return str(_DataFile(path, "date").data["date"])


def _sections(directory: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted((directory / "_tables").glob("*.yaml")):
        yield f"tables/{path.stem}", _compile_table(path)
    yield from read_program_files(directory / "_programs")
    for path in sorted((directory / "_releases").glob("*.yaml")):
        file = _DataFile(path, "releases")
        dates = file.mapping(file.data["releases"], "releases")
        yield f"releases/{path.stem}", _compile_releases(file)
        yield f"dates/{path.stem}", {str(version): date for version, date in dates.items()}
    for path in sorted((directory / "_pins").glob("*.yaml")):
        file = _DataFile(path, "rows")
        rows = file.rows("rows")
        for index, row in enumerate(rows):
            file.require(row, {"versions": list, "requires": dict}, "rows", index)
        pins = [[row["versions"], row["requires"], row.get("source", "wheel"), row.get("extras", {})] for row in rows]
        yield f"pins/{path.stem}", pins
    if (directory / "_models.yaml").exists():
        yield "models", _compile_models(directory / "_models.yaml")
    gpus: dict[str, Any] = {}
    if (directory / "_gpus.yaml").exists():
        gpus = _without_provenance(_DataFile(directory / "_gpus.yaml").named_rows(_DEVICE))
        yield "gpus", gpus
    if (directory / "_instances.yaml").exists():
        yield "instances", _compile_instances(directory / "_instances.yaml", gpus)


def _without_provenance(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return devices or instances without where their values are from, which only readers of the YAML file need."""
    return {
        name: {key: value for key, value in row.items() if key not in _PROVENANCE_OF_DEVICES}
        for name, row in rows.items()
    }


def _compile_models(path: Path) -> dict[str, Any]:
    """Return well-known models with every id that has their dimensions among the aliases."""
    models = _DataFile(path).named_rows({"aliases": list, "config": dict, "finetunes": (list, type(None))})
    return {name: {**row, "aliases": [*row["aliases"], *row.get("finetunes", ())]} for name, row in models.items()}


def _compile_instances(path: Path, gpus: Mapping[str, Any]) -> dict[str, Any]:
    """Compile the instances, each with a whole number of devices that are known.

    Raises:
        RuleError: a row has another device or number; naming file, line and key.
    """
    file = _DataFile(path)
    rows = file.named_rows({"cloud": str, "gpu": str, "host_gib": (int, float, type(None))})
    for name, row in rows.items():
        source = Source(str(path), name, file.lines.get((name,)))
        if row.get("gpu") not in gpus:
            near = nearest(str(row.get("gpu")), list(gpus))
            raise RuleError(
                f"device {row.get('gpu')!r} is not in _gpus.yaml",
                source=source,
                hint=f"did you mean {near!r}?" if near else None,
            )
        if not isinstance(row.get("gpus"), int) or row["gpus"] < 1:
            raise RuleError("gpus is not a whole number of devices from 1 on", source=source)
    return _without_provenance(rows)


def _compile_table(path: Path) -> dict[str, Any]:
    file = _DataFile(path, "keys", "rows")
    width = len(file.rows("keys"))
    table: dict[str, Any] = {}
    for index, row in enumerate(file.rows("rows")):
        if not isinstance(row, list) or len(row) != width + 1:
            raise file.error(f"a row needs {width} keys and a value", "rows", index)
        level = table
        for key in row[: width - 1]:
            level = level.setdefault(cell_key(key), {})
        if cell_key(row[width - 1]) in level:
            raise RuleError(
                f"duplicate row {row[:width]}", source=Source(file.path, None, file.lines.get(("rows", index)))
            )
        level[cell_key(row[width - 1])] = row[width]
    return table


def _compile_releases(file: _DataFile) -> list[str]:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 (build time)

    versions = []
    for text in map(str, file.rows("releases")):
        if text in (file.data.get("yanked") or ()):
            continue
        try:
            versions.append((Version(text), text))
        except InvalidVersion:
            continue
    return [text for _, text in sorted(versions)]
