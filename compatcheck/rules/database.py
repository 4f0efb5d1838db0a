"""The compiled database: one file, indexed by package, of which only what a run needs is read.

Layout: a first line of JSON (id, date, counts and offsets), then chunks of JSON. A chunk holds the matching part of all
rules about one package: a line of ranges, for each a line of the rules that say nothing of releases outside of it, and behind
them the ranges and expressions that these name by the number of a line, so that what many rules ask is read, and decided, once.
Texts stand apart and are read only for findings; tables, programs with their defaults, releases, pins and models are sections
read by name. A rule about a package that is not there costs nothing, one about other releases of it next to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from compatcheck.core.errors import RuleError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.versions import Bounds, contains, judge
from compatcheck.rules.release_bits import ReleaseBits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

    from compatcheck.core.versions import Membership, Verdict
    from compatcheck.rules.expression import Code

FORMAT = 7
INDEPENDENT = "*"
"""Index key of rules that depend on no package."""
INACTIVE = "#inactive"
"""Index key of drafts and withdrawn rules: listed and explained, never matched."""

Ranges = Mapping[str, "Any"]
"""Package → bounds (see `compatcheck.core.versions`), ``"present"`` or ``"absent"``."""


Excludes = Callable[[str, Bounds], bool]
"""Tells of a package and a range whether the package certainly lies outside of it."""


class CompiledClause(NamedTuple):
    """One alternative of a rule's ``affected``."""

    packages: Ranges
    when: Code | None


class CompiledRule(NamedTuple):
    """The part of a rule that matching needs."""

    id: str
    title: str
    kind: str
    status: str
    confidence: str
    clauses: tuple[CompiledClause, ...]
    unverified: Ranges
    when: Code | None
    unless: Code | None
    effect: str
    memory: str
    scope: str
    phase: str
    debunks: tuple[str, ...]
    former_ids: tuple[str, ...]
    text: str
    """Offset and length, both in bytes, of the texts in the file the rule came from."""
    database: int = 0
    """Which database of a `RuleSet` it came from."""


class Sizes(NamedTuple):
    """What a rule says of bytes."""

    expected: Code | None
    low: Code | None
    high: Code | None
    passing: Code | None
    """Share of it that is taken only while one block is computed."""


class Texts(NamedTuple):
    """The part of a rule that a finding needs."""

    what: str
    why: str
    known_problems: str | None
    row: str | None
    affected: tuple[tuple[Mapping[str, str], str | None], ...]
    """The clauses as the rule writes them: package → specifier, and the clause's own condition."""
    unverified: Mapping[str, str]
    checked_through: Mapping[str, str]
    verifiable: tuple[str, ...]
    remedies: tuple[Mapping[str, Any], ...]
    """``{"verb", "target", "safety", "note", "when"}``; the last is code."""
    references: tuple[Mapping[str, str | None], ...]
    """``{"type", "url", "date"}``."""
    probe: Mapping[str, Any] | None
    """``{"name", "parameters", "metric", "baseline"}``; a metric of None is the probe's own."""
    evidence: tuple[str, ...]
    reason: str | None
    when: str | None
    """Condition as the rule writes it."""
    unless: str | None
    formula: str | None
    """Size as the rule writes it, in bytes."""
    sizes: Sizes
    measured: Mapping[str, Any] | None
    """``{"package", "metric", "probe", "backend", "parameters", "points"}``: bytes over releases, the oldest first."""


class Database:
    """A compiled database."""

    def __init__(self, connect: Callable[[], BinaryIO], name: str) -> None:
        """Read the header.

        Raises:
            RuleError: the file is not a database of this format.
        """
        self.name = name
        """The file or directory it was opened from, as the person named it."""
        self._connect = connect
        self._sections: dict[str, Any] = {}
        self._chunks: dict[str, tuple[list[Bounds | None], list[bytes], _Places]] = {}
        self._shared: dict[bytes, Any] = {}
        self._rules: dict[tuple[str, int], tuple[CompiledRule, ...]] = {}
        self._by_id: dict[str, CompiledRule] = {}
        self._texts: dict[str, Texts] = {}
        try:
            with connect() as stream:
                self._header = json.loads(stream.readline())
                self._start = stream.tell()
            known = self._header["format"] == FORMAT
        except (OSError, ValueError, KeyError, TypeError):
            known = False
        if not known:
            raise RuleError(
                "not a rule database of this release",
                source=Source(name),
                hint="reinstall compatcheck",
            ) from None
        self.id: str = self._header["id"]
        """First 12 hex digits of the SHA-256 of the rules and data it was compiled from."""
        self.date: str = self._header["date"]
        """Day the data was last reviewed, ``2026-11-21``."""
        self.count: int = self._header["rules"]
        """Number of active rules."""
        self.packages: Mapping[str, list[int]] = self._header["packages"]

    @classmethod
    def open(cls, path: str) -> Database:
        """Open a database file."""
        return cls(lambda: open(path, "rb"), path)

    def read_all(self) -> bytes:
        """Return the database as a file of an installation holds it."""
        with self._connect() as stream:
            return stream.read()

    def _read(self, span: Iterable[int]) -> bytes:
        offset, length = span
        with self._connect() as stream:
            stream.seek(self._start + offset)
            return stream.read(length)

    def rules_about(self, names: Iterable[str], excludes: Excludes = lambda *_: False) -> Iterator[CompiledRule]:
        """Yield the active rules about any of these packages or components, and those about none, once each.

        Args:
            names: packages and components.
            excludes: tells whether a package certainly lies outside of a range; of rules about such a range alone none is read.
        """
        seen: set[str] = set()
        for name in (INDEPENDENT, *names):
            for rule in self._rules_of(name, excludes) if name in self.packages else ():
                if rule.id not in seen:
                    seen.add(rule.id)
                    yield rule

    def all_rules(self) -> Iterator[CompiledRule]:
        """Yield every rule once, drafts and withdrawn ones included."""
        return self.rules_about(self.packages)

    def find(self, rule_id: str) -> CompiledRule | None:
        """Return the rule with this id or former id."""
        if rule_id not in self._by_id:
            return next((rule for rule in self.all_rules() if rule_id in (rule.id, *rule.former_ids)), None)
        return self._by_id[rule_id]

    def _rules_of(self, name: str, excludes: Excludes) -> list[CompiledRule]:
        """Read the rules about a package, each range once."""
        if name not in self._chunks:
            head, *lines = self._read(self.packages[name]).split(b"\n")
            ranges = _JSON.decode(head.decode())
            self._chunks[name] = ranges, lines, _Places(ranges, lines, self._shared)
        ranges, lines, places = self._chunks[name]
        found: list[CompiledRule] = []
        for index, bounds in enumerate(ranges):
            if bounds is not None and excludes(name, bounds):
                continue
            if (name, index) not in self._rules:
                rules = self._rules[name, index] = tuple(map(_rule, places.read(lines[index])))
                self._by_id.update((rule.id, rule) for rule in rules)
            found += self._rules[name, index]
        return sorted(found, key=lambda rule: rule.id)

    def texts(self, rule: CompiledRule) -> Texts:
        """Read what people read of a rule."""
        if rule.text not in self._texts:
            record = json.loads(self._read(map(int, rule.text.split())))
            record[4] = tuple((packages, when) for packages, when in record[4])
            for index in (7, 8, 9, 11):
                record[index] = tuple(record[index])
            record[_SIZES] = Sizes(*record[_SIZES])
            self._texts[rule.text] = Texts._make(record)
        return self._texts[rule.text]

    def section(self, name: str) -> Any:  # noqa: ANN401 (JSON)
        """Return a data section, ``tables/sdpa-support`` or ``releases/deepspeed``, or None when there is none."""
        if name not in self._sections:
            span = self._header["sections"].get(name)
            self._sections[name] = None if span is None else json.loads(self._read(span))
        return self._sections[name]

    def sections(self, prefix: str) -> list[str]:
        """List the section names that start with ``prefix``."""
        return [name for name in self._header["sections"] if name.startswith(prefix)]


_SIZES = Texts._fields.index("sizes")
_JSON = json.JSONDecoder()


class _Places(dict[str, "Any"]):
    """What rules about a package name by the number of a line: its ranges, and what is read when it is first named."""

    def __init__(self, ranges: list[Bounds | None], lines: list[bytes], shared: dict[bytes, Any]) -> None:
        """Take a chunk, and what was read of any: the same line is the same object everywhere."""
        super().__init__(zip(map(str, range(len(ranges))), ranges, strict=False))
        self._lines = lines
        self._shared = shared
        self._decode = json.JSONDecoder(parse_int=self.__getitem__).decode

    def __missing__(self, place: str) -> Any:  # noqa: ANN401 (bounds or code)
        line = self._lines[int(place)]
        if line not in self._shared:
            self._shared[line] = _JSON.raw_decode(line.decode())[0]
        self[place] = found = self._shared[line]
        return found

    def read(self, line: bytes) -> list[list[Any]]:
        """Read rules, in which every number is a place."""
        return self._decode(line.decode())  # type: ignore[no-any-return]  # as it was written


def _rule(record: list[Any]) -> CompiledRule:
    record[5] = tuple([CompiledClause(packages, when) for packages, when in record[5]])
    record[13:15] = map(tuple, record[13:15])
    return CompiledRule(*record)


class RuleSet:
    """The built-in database and the person's own rule directories, read as one."""

    def __init__(self, databases: tuple[Database, ...]) -> None:
        """Take the databases; data sections of a later one win."""
        self.databases = databases
        self._judged: dict[tuple[str, str, int], tuple[Bounds, Verdict]] = {}
        self._known: dict[str, ReleaseBits] = {}
        self._contained: dict[tuple[str, int], tuple[Bounds, Membership]] = {}
        self._unions: dict[tuple[int, ...], tuple[tuple[Bounds, ...], Bounds]] = {}
        self._dates: dict[str, Mapping[str, str]] = {}
        self._rows: dict[str, dict[str, list[Mapping[str, Any]]]] = {}

    @property
    def id(self) -> str:
        """Identity of the data, for cache keys and reports."""
        return "+".join(database.id for database in self.databases)

    @property
    def date(self) -> str:
        """Newest review date."""
        return max(database.date for database in self.databases)

    @property
    def count(self) -> int:
        """Number of active rules."""
        return sum(database.count for database in self.databases)

    @property
    def packages(self) -> set[str]:
        """Packages and components that rules are about, with the one name that stands for none of them."""
        return set().union(*(database.packages for database in self.databases))

    def rules_about(self, names: Iterable[str], excludes: Excludes = lambda *_: False) -> Iterator[CompiledRule]:
        """Yield the active rules about any of these packages, and those about none, as `Database.rules_about`."""
        names = tuple(names)
        for index, database in enumerate(self.databases):
            for rule in database.rules_about(names, excludes):
                yield rule._replace(database=index) if index else rule

    def all_rules(self) -> Iterator[CompiledRule]:
        """Yield every rule."""
        for index, database in enumerate(self.databases):
            for rule in database.all_rules():
                yield rule._replace(database=index)

    def find(self, rule_id: str) -> CompiledRule | None:
        """Return the rule with this id or former id; that of a later database wins."""
        for index in reversed(range(len(self.databases))):
            rule = self.databases[index].find(rule_id)
            if rule is not None:
                return rule._replace(database=index)
        return None

    def texts(self, rule: CompiledRule) -> Texts:
        """Read what people read of a rule."""
        return self.databases[rule.database].texts(rule)

    def section(self, name: str) -> Any:  # noqa: ANN401 (JSON)
        """Return a data section by name, or None."""
        for database in reversed(self.databases):
            value = database.section(name)
            if value is not None:
                return value
        return None

    def rows_about(self, section: str, fact: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a section of defaults or traits that are about one fact, in their order."""
        if section not in self._rows:
            by_fact: dict[str, list[Mapping[str, Any]]] = {}
            for row in self.section(section) or ():
                by_fact.setdefault(row["fact"], []).append(row)
            self._rows[section] = by_fact
        return self._rows[section].get(fact, ())

    def releases(self, package: str) -> tuple[str, ...]:
        """Return the known releases of a package that were not yanked, oldest first; empty when there is no snapshot."""
        data = self.section(f"releases/{package}")
        return () if data is None else tuple(data)

    def judge(self, bounds: Bounds, package: str, specifier: str) -> Verdict:
        """Tell how many of the known releases of a package that a requirement allows lie in a range, as `versions.judge`.

        Many subjects ask the same, and many ranges share their bounds.

        Raises:
            InvalidSpecifierError: ``specifier`` is not PEP 440.
        """
        known = self.known(package).judge(bounds, specifier)
        if known is not None:
            return known
        key = package, specifier, id(bounds)
        kept = self._judged.get(key)
        if kept is None:
            kept = self._judged[key] = bounds, judge(bounds, specifier, self.releases(package))
        return kept[1]

    def contains(self, bounds: Bounds, version: str) -> Membership:
        """Tell whether a range holds a version, as `versions.contains`; kept as by `judge`."""
        kept = self._contained.get((version, id(bounds)))
        if kept is None:
            kept = self._contained[version, id(bounds)] = bounds, contains(bounds, version)
        return kept[1]

    def union(self, several: Sequence[Bounds]) -> Bounds:
        """Return the range that holds what one of several holds; kept, as what `judge` is asked of it is kept with it."""
        key = tuple(map(id, several))
        if key not in self._unions:
            self._unions[key] = tuple(several), [clauses for bounds in several for clauses in bounds]
        return self._unions[key][1]

    def held(self, bounds: Bounds | str, package: str) -> int:
        """Return the known releases of a package that lie in a range, the oldest as the lowest bit."""
        known = self.known(package)
        return known.every if isinstance(bounds, str) else known.split(bounds)[0]

    def known(self, package: str) -> ReleaseBits:
        """Return the known releases of a package as bits."""
        known = self._known.get(package)
        if known is None:
            known = self._known[package] = ReleaseBits(self.releases(package))
        return known

    def dates(self, package: str) -> Mapping[str, str]:
        """Return release → ISO date of its first upload, as far as the snapshot knows them."""
        if package not in self._dates:
            dates = self.section(f"dates/{package}") or {}
            self._dates[package] = {version: str(date) for version, date in dates.items() if date}
        return self._dates[package]

    def look_up(self, table: str, keys: tuple[object, ...]) -> object:
        """Return the cell of a table; a row with a star is about every key that has none of its own.

        Raises:
            KeyError: the keys are not in the table.
            RuleError: there is no such table, or it has more or fewer keys.
        """
        cells = self.section(f"tables/{table}")
        if cells is None:
            raise RuleError(f"there is no table {table!r}")
        for key in keys:
            if not isinstance(cells, dict):
                raise RuleError(f"table {table!r} has fewer than {len(keys)} keys")
            cells = cells["*"] if "*" in cells and cell_key(key) not in cells else cells[cell_key(key)]
        if isinstance(cells, dict):
            raise RuleError(f"table {table!r} has more than {len(keys)} keys")
        return tuple(cells) if isinstance(cells, list) else cells


def cell_key(key: object) -> str:
    """Write a table key the way the compiled table does."""
    if isinstance(key, bool) or key is None:
        return str(key).lower()
    return str(int(key)) if isinstance(key, float) and key.is_integer() else str(key)
