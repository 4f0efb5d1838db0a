"""TOML read strictly, with the place of every error and the line of every entry."""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.integers import may_be_long, refuse_long
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_DEPTH, advise_mending, read_utf8
from compatcheck.core.units import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_POSITION = lazy_compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_HEADER = lazy_compile(r"\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?")
_KEY = lazy_compile(r"""\s*(?:([\w.-]+)|"([^"]*)"|'([^']*)')\s*=""")
_STRING = lazy_compile(r'"((?:[^"\\]|\\.?)*)(?:"|$)|\'([^\']*)\'')
"""One that is not closed, as a line of a longer text may hold, goes to the end: it would be tried from each of its quotes."""
_NAME = lazy_compile(r"""\s*name\s*=\s*["']([^"']*)["']""")
_VERSION = lazy_compile(r"""\s*version\s*=\s*["']([^"']*)["']""")
_DEEP_KEY = rf"""(?<![\w-])(?:(?:[\w-]+|"[^"]*"|'[^']*')\s*\.\s*){{{MAX_DEPTH}}}"""

MAX_TOML_BYTES = 32 * MIB
"""Largest TOML file that is read, in bytes: the parser of the standard library takes 18 s for it; locks are below 5 MB."""


class TomlFile(NamedTuple):
    """A parsed file together with its text, which knows the lines."""

    path: str
    text: str
    data: Mapping[str, Any]


def read_toml(path: str, files: Files = LOCAL) -> TomlFile:
    """Read and parse a TOML file.

    Raises:
        InputError: it cannot be read, is empty, is not UTF-8, or is not TOML (duplicate keys included).
    """
    text = read_utf8(path, files, limit=MAX_TOML_BYTES)
    if not text.strip():
        message = "is empty"
        raise InputError(message, source=Source(path), hint="name the file that lists the packages")
    return TomlFile(path, text, parse_toml(text, path))


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        InputError: with line, column and what stands there.
    """
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 (only for TOML files)
    else:
        import tomli as tomllib  # noqa: PLC0415 (only for TOML files)
    _check_depth(text, path)
    try:
        data: dict[str, Any] = tomllib.loads(text)
        if may_be_long(text):
            _refuse_long(data)
    except ValueError as error:  # TOMLDecodeError, or a number of more digits than Python converts
        reason = str(error)
        match = _POSITION.search(reason)
        reason = reason[: match.start()] if match else reason
        if match and match.group(1):
            line, column = int(match.group(1)), f" at column {match.group(2)}"
        else:
            line, column = text.count("\n") + (not text.endswith("\n")), " at the end of the file (is it cut off?)"
        message = f"is not valid TOML: {reason[:1].lower()}{reason[1:]}{column}"
        hint = advise_mending(text, "mend this line; a lock file is made anew by the tool that wrote it")
        raise InputError(message, source=Source(path, line=line), hint=hint) from None
    except RecursionError:
        message = "is nested too deeply to be read"
        raise InputError(message, source=Source(path), hint="check that this is the file you mean") from None
    return data


def _refuse_long(data: object) -> None:
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, dict | list):
            pending += value.values() if isinstance(value, dict) else value
        refuse_long(value)


def _check_depth(text: str, path: str) -> None:
    """Refuse a dotted key of more levels than are read: the parser keeps each of its beginnings."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") >= MAX_DEPTH and re.search(_DEEP_KEY, line):
            message = f"has a key of more than {MAX_DEPTH} levels, which is not read"
            raise InputError(message, source=Source(path, line=number), hint="check that this is the file you mean")


def locate_entries(text: str, header: str) -> dict[tuple[str, str | None], int]:
    """Find the line of ``name = "…"`` in every ``[[header]]`` table.

    Returns:
        The first line by (name, version), and by (name, None); names as written.
    """
    lines: dict[tuple[str, str | None], int] = {}
    inside = False
    name: str | None = None
    at = 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("["):
            match = _HEADER.fullmatch(line.strip())
            if match:
                inside, name = match.group(1).strip() == header and line.lstrip().startswith("[["), None
                continue
        if not inside:
            continue
        if found := _NAME.match(line):
            name, at = found.group(1), number
            lines.setdefault((name, None), at)
        elif name is not None and (found := _VERSION.match(line)):
            lines.setdefault((name, found.group(1)), at)
    return lines


def locate_lines(text: str) -> dict[str, int]:
    """Find the line of every table and of every ``key = …`` in it, by dotted path; an inline table is found as a whole."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        header = _HEADER.fullmatch(line.strip()) if line.lstrip().startswith("[") else None
        stated = None if header else _KEY.match(line)
        if header:
            table = header.group(1).strip()
            lines.setdefault(table, number)
        elif stated:
            key = next(name for name in stated.groups() if name is not None)
            lines.setdefault(f"{table}.{key}" if table else key, number)
    return lines


def locate_key(text: str, table: str, key: str, item: str | None = None) -> int | None:
    """Find the line of ``key = …`` in ``[table]``, or of the string ``item`` in that key's array.

    The array may stand on one line or on many. Returns None when the table is written in another way (inline, dotted).
    """
    lines = _index_strings(text)
    return lines.get((table, key.lower(), item), lines.get((table, key.lower(), None)))


@lru_cache(maxsize=2)  # a file is asked for the line of every requirement in it
def _index_strings(text: str) -> Mapping[tuple[str, str, str | None], int]:
    """Find the first line of every key, and of every string in its value, by (table, lower-case key, string or None)."""
    lines: dict[tuple[str, str, str | None], int] = {}
    table, key = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        header = _HEADER.fullmatch(line.strip()) if line.lstrip().startswith("[") else None
        if header:
            table, key = header.group(1).strip(), ""
            continue
        stated = _KEY.match(line)
        if stated:
            key = next(name for name in stated.groups() if name is not None).lower()
            lines.setdefault((table, key, None), number)
        if key:
            for match in _STRING.finditer(line, stated.end() if stated else 0):
                item = match.group(2) if match.group(1) is None else match.group(1).replace('\\"', '"')
                lines.setdefault((table, key, item), number)
    return lines
