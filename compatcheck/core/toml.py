"""TOML read strictly, with the place of every error and the line of every entry."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_BYTES, decode_utf8, read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

_POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_HEADER = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_NAME = re.compile(r"""\s*name\s*=\s*["']([^"']*)["']""")
_VERSION = re.compile(r"""\s*version\s*=\s*["']([^"']*)["']""")


class TomlFile(NamedTuple):
    """A parsed file together with its text, which knows the lines."""

    path: str
    text: str
    data: Mapping[str, Any]


def read_toml(path: str, *, limit: int = MAX_BYTES) -> TomlFile:
    """Read and parse a TOML file.

    Raises:
        InputError: it cannot be read, is empty, is not UTF-8, or is not TOML (duplicate keys included).
    """
    text = decode_utf8(read_bytes(path, limit=limit), path)
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
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number of more digits than Python converts
        reason = str(error)
        match = _POSITION.search(reason)
        reason = reason[: match.start()] if match else reason
        if match and match.group(1):
            line, column = int(match.group(1)), f" at column {match.group(2)}"
        else:
            line, column = text.count("\n") + (not text.endswith("\n")), " at the end of the file (is it cut off?)"
        message = f"is not valid TOML: {reason[:1].lower()}{reason[1:]}{column}"
        hint = "mend this line; a lock file is made anew by the tool that wrote it"
        raise InputError(message, source=Source(path, line=line), hint=hint) from None
    except RecursionError:
        message = "is nested too deeply to be read"
        raise InputError(message, source=Source(path), hint="check that this is the file you mean") from None
    return data


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
            match = _HEADER.match(line)
            if match:
                inside, name = match.group(1) == header and line.lstrip().startswith("[["), None
                continue
        if not inside:
            continue
        if found := _NAME.match(line):
            name, at = found.group(1), number
            lines.setdefault((name, None), at)
        elif name is not None and (found := _VERSION.match(line)):
            lines.setdefault((name, found.group(1)), at)
    return lines


def locate_key(text: str, table: str, key: str, item: str | None = None) -> int | None:
    """Find the line of ``key = …`` in ``[table]``, or of the string ``item`` in that key's array.

    The array may stand on one line or on many. Returns None when the table is written in another way (inline, dotted).
    """
    current = ""
    at: int | None = None
    key_pattern = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*=""", re.IGNORECASE)
    quoted = None if item is None else (f'"{item}"', f"'{item}'", '"' + item.replace('"', '\\"') + '"')
    for number, line in enumerate(text.split("\n"), 1):
        match = _HEADER.match(line) if line.lstrip().startswith("[") else None
        if match:
            if at is not None:
                return at
            current = match.group(1)
        elif at is None and current == table and key_pattern.match(line):
            at = number
            if quoted is None:
                return at
        if at is not None and quoted is not None and any(form in line for form in quoted):
            return number
    return at
