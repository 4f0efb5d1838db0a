"""JSON read strictly: in any encoding of Unicode, no key twice, bounded depth, and the lines of what it holds."""

from __future__ import annotations

import json
import re

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_DEPTH, advise_mending, echo, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAX_BYTES = 32 << 20
"""Largest JSON file that is read; parsed, such a file takes half a gigabyte and five seconds."""

_KEY = lazy_compile(r'"(?P<text>(?:[^"\\\n]|\\.)*)"(?P<colon>\s*:)?|[{}\[\]]')


class JsonFile(NamedTuple):
    """A parsed file together with its text, which knows the lines."""

    path: str
    text: str
    data: Any


class _DuplicateKeyError(ValueError):
    """An object states the key that is the text of this error twice."""


def read_json(path: str, files: Files = LOCAL) -> JsonFile:
    """Read and parse a JSON file.

    Raises:
        InputError: it cannot be read, is empty, is not text, or `parse_json` refuses it.
    """
    text = read_text(path, files, limit=MAX_BYTES)
    if not text.strip():
        message = "is empty"
        raise InputError(message, source=Source(path), hint="name the file that lists the packages")
    return JsonFile(path, text, parse_json(text, path))


def parse_json(text: str, path: str) -> Any:  # noqa: ANN401 (JSON)
    """Parse JSON.

    Raises:
        InputError: it is not JSON, states a key twice in one object or nests more than `MAX_DEPTH` levels deep; with the line.
    """
    source, hint = Source(path), "check that this is the file you mean"
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except _DuplicateKeyError as error:
        raise _locate_duplicate(text, path, str(error)) from None
    except json.JSONDecodeError as error:
        message = f"is not valid JSON: {error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
        cut_off = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        mend = "mend it there; plain JSON has no comments and no comma before a closing bracket"
        hint = advise_mending(text, "is the file complete?" if cut_off else mend)
        raise InputError(message, source=Source(path, line=error.lineno), hint=hint) from None
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError:  # Python's limit on the digits of an integer
        message = "holds an integer of thousands of digits"
        raise InputError(message, source=source, hint=hint) from None
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _children(value) if isinstance(item, dict | list)]
        if not level:
            return data
    raise _too_deep(source)


def _too_deep(source: Source) -> InputError:
    message = f"is nested more than {MAX_DEPTH} levels deep"
    return InputError(message, source=source, hint="check that this is the file you mean")


def _locate_duplicate(text: str, path: str, key: str) -> InputError:
    """Find the repeated key; the Hjson parser keeps positions and refuses duplicates too."""
    from compatcheck.core.hjson import parse_hjson  # noqa: PLC0415 (only on the way to an error)

    try:
        parse_hjson(text, path)
    except InputError as error:
        if error.source is not None and error.source.key is not None:
            return error
    message = f"has the key {echo(key)} twice"
    return InputError(message, source=Source(path, key), hint="keep one of the two")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return data


def _children(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


class Lines:
    """The lines on which a key has each of its texts; the n-th question about one text gives its n-th line."""

    def __init__(self, text: str, *keys: str) -> None:
        """Look through a JSON text once for ``"key": "value"``."""
        self._lines: dict[str, list[int]] = {}
        names = "|".join(map(re.escape, keys))
        at = line = 0
        for match in re.finditer(rf'"(?:{names})"\s*:\s*"((?:[^"\\]|\\.)*)"', text):
            line += text.count("\n", at, match.start(1))
            at = match.start(1)
            value = match[1]
            if "\\" in value:
                try:
                    value = json.loads(f'"{value}"')
                except ValueError:
                    continue
            self._lines.setdefault(value, []).append(line + 1)
        for lines in self._lines.values():
            lines.reverse()

    def next(self, value: object) -> int | None:
        """Return the line of the next entry with this text; None where there is none."""
        lines = self._lines.get(value) if isinstance(value, str) else None
        if not lines:
            return None
        return lines.pop() if len(lines) > 1 else lines[0]


def locate_members(text: str) -> Mapping[tuple[str, str], int]:
    """Find the line of every key of the objects inside the outermost object: by (outer key, key), as written."""
    lines: dict[tuple[str, str], int] = {}
    depth = 0
    outer = ""
    line, counted = 1, 0
    for match in _KEY.finditer(text):
        token = match.group(0)
        if token in {"{", "["}:
            depth += 1
        elif token in {"}", "]"}:
            depth -= 1
        elif match.group("colon"):
            if depth == 1:
                outer = match.group("text")
            elif depth == 2:
                line += text.count("\n", counted, match.start())
                counted = match.start()
                lines.setdefault((outer, match.group("text")), line)
    return lines
