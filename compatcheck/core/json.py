"""JSON of machines read strictly: bounded depth, no key twice, and the line of an entry by one of its texts."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.core.textfile import advise_mending, decode_utf8, read_bytes

MAX_BYTES = 32 << 20
"""Largest JSON file that is read; parsed, such a file takes half a gigabyte and five seconds."""
MAX_DEPTH = 100
"""Most levels of lists and objects: SBOMs nest components in components, a few levels deep."""


class JsonFile(NamedTuple):
    """A parsed file together with its text, which knows the lines."""

    path: str
    text: str
    data: Any


class _DuplicateKeyError(ValueError):
    """An object repeats a key."""


def read_json(path: str, *, limit: int = MAX_BYTES) -> JsonFile:
    """Read and parse a JSON file; UTF-16 with a byte order mark, as PowerShell writes it, is understood too.

    Raises:
        InputError: it cannot be read, is not JSON, repeats a key or nests more than `MAX_DEPTH` levels deep.
    """
    raw = read_bytes(path, limit=limit)
    is_utf_16 = raw[:2] in {b"\xff\xfe", b"\xfe\xff"}
    text = raw.decode("utf-16", "replace") if is_utf_16 else decode_utf8(raw, path)
    return JsonFile(path, text, parse_json(text, path))


def parse_json(text: str, path: str) -> Any:  # noqa: ANN401 (JSON)
    """Parse JSON.

    Raises:
        InputError: see `read_json`.
    """
    hint = "check that this is the file you mean"
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except _DuplicateKeyError as error:
        message = f"has the key {str(error)[:100]!r} twice in one object"
        raise InputError(message, source=Source(path), hint="keep one of the two") from None
    except json.JSONDecodeError as error:
        message = f"is not valid JSON: {error.msg} (column {error.colno})"
        mending = advise_mending(text, "is the file complete?")
        raise InputError(message, source=Source(path, line=error.lineno), hint=mending) from None
    except RecursionError:
        message = f"is nested more than {MAX_DEPTH} levels deep"
        raise InputError(message, source=Source(path), hint=hint) from None
    except ValueError:  # Python's limit on the digits of an integer
        message = "holds an integer of thousands of digits"
        raise InputError(message, source=Source(path), hint=hint) from None
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _children(value) if isinstance(item, dict | list)]
        if not level:
            return data
    message = f"is nested more than {MAX_DEPTH} levels deep"
    raise InputError(message, source=Source(path), hint=hint)


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
