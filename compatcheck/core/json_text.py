"""JSON read strictly, with the place of every error and the line of every key of an object of objects."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_BYTES, advise_mending, echo, read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = re.compile(r'"(?P<text>(?:[^"\\\n]|\\.)*)"(?P<colon>\s*:)?|[{}\[\]]')


class JsonFile(NamedTuple):
    """A parsed file together with its text, which knows the lines."""

    path: str
    text: str
    data: Any


class _DuplicateKeyError(ValueError):
    """One object states one key twice."""


def read_json(path: str, *, limit: int = MAX_BYTES) -> JsonFile:
    """Read and parse a JSON file in any of the encodings of Unicode, with or without a byte order mark.

    Raises:
        InputError: it cannot be read, is empty, is not text, or is not JSON (keys stated twice included).
    """
    data = read_bytes(path, limit=limit)
    try:
        text = data.decode(json.detect_encoding(data)).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"is not {error.encoding}"
        raise InputError(message, source=Source(path, line=line), hint="save the file as UTF-8") from None
    if not text.strip():
        message = "is empty"
        raise InputError(message, source=Source(path), hint="name the file that lists the packages")
    return JsonFile(path, text, parse_json(text, path))


def parse_json(text: str, path: str) -> Any:  # noqa: ANN401 (JSON is what the file says)
    """Parse JSON.

    Raises:
        InputError: with the line and what is wrong there.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        message = f"is not valid JSON: {error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
        hint = advise_mending(text, "mend this line; a lock file is made anew by the tool that wrote it")
        raise InputError(message, source=Source(path, line=error.lineno), hint=hint) from None
    except _DuplicateKeyError as error:
        raise InputError(str(error), source=Source(path), hint="keep the one that is meant") from None
    except ValueError:  # a number of more digits than Python converts
        message = "holds a number of more digits than can be read"
        raise InputError(message, source=Source(path), hint="check that this is the file you mean") from None
    except RecursionError:
        message = "is nested too deeply to be read"
        raise InputError(message, source=Source(path), hint="check that this is the file you mean") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                message = f"states the key {echo(key)} twice in one object"
                raise _DuplicateKeyError(message)
            seen.add(key)
    return found


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
