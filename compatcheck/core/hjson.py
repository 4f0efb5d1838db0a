"""Hjson as DeepSpeed reads its configuration: JSON with comments, unquoted keys and strings, optional commas.

DeepSpeed parses with the ``hjson`` package and rejects duplicate keys, so a file with comments is legal there and illegal
for the HF Trainer, which parses JSON. The positions of keys are kept: they also serve to find the line of a fact in a plain
JSON file.
"""

from __future__ import annotations

import json
import re
from typing import Any

from compatcheck.core.errors import InputError
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_DEPTH, Place, echo

_SPACE = lazy_compile(r"(?:[ \t\r\n]+|#[^\n]*|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_BARE_KEY = lazy_compile(r"[^\s,:\[\]{}'\"]+")
_NUMBER = lazy_compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
_END_OF_WORD = lazy_compile(r"[ \t]*(?:[,\]}\n]|#|//|/\*|\Z)")


def parse_hjson(text: str, path: str) -> Any:  # noqa: ANN401 (JSON)
    """Parse Hjson.

    Raises:
        InputError: with line and remedy; duplicate keys are refused, as DeepSpeed does.
    """
    return _Parser(text, path).document()


def locate_keys(text: str, path: str) -> dict[str, Place]:
    """Find every key by its dotted path.

    Raises:
        InputError: as `parse_hjson` does.
    """
    parser = _Parser(text, path)
    parser.document()
    return parser.places


class _Parser:
    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.at = 0
        self.places: dict[str, Place] = {}
        self.counted = (0, 0)
        """How far line ends were counted, and how many there were."""

    def error(self, message: str, at: int | None = None) -> InputError:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        hint = "is the file complete?" if at >= len(self.text.rstrip()) else "mend it there"
        return InputError(
            f"is not valid JSON: {message} at column {column}",
            source=Source(self.path, None, line),
            hint=hint,
        )

    def space(self) -> str:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def document(self) -> Any:  # noqa: ANN401 (JSON)
        first = self.space()
        value = self.value("", 0) if first in {"{", "["} else self.members("", 0, closing="")
        self.space()
        if self.at != len(self.text):
            raise self.error("unexpected text after the end")
        return value

    def value(self, where: str, depth: int) -> Any:  # noqa: ANN401 (JSON)
        if depth > MAX_DEPTH:
            message = f"is nested more than {MAX_DEPTH} levels deep"
            line = self.text.count("\n", 0, self.at) + 1
            raise InputError(message, source=Source(self.path, None, line), hint="check that this is the file you mean")
        char = self.space()
        if char == "{":
            self.at += 1
            return self.members(where, depth, closing="}")
        if char == "[":
            self.at += 1
            return self.items(where, depth)
        if self.text.startswith("'''", self.at):
            return self.multiline()
        if char in {'"', "'"}:
            return self.quoted()
        return self.bare()

    def members(self, where: str, depth: int, *, closing: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while True:
            char = self.space()
            if char == closing:
                self.at += len(closing)
                return result
            if not char:
                raise self.error(f"expected {closing!r}")
            start = self.at
            key = self.quoted() if char in {'"', "'"} else self.bare_key()
            dotted = f"{where}.{key}" if where else key
            if key in result:
                message = f"has the key {echo(key)} twice"
                line = self.text.count("\n", 0, start) + 1
                raise InputError(
                    message,
                    source=Source(self.path, dotted, line),
                    hint="keep one of the two; DeepSpeed refuses such a file, others take the last",
                )
            if self.space() != ":":
                raise self.error(f"expected ':' after {key!r}")
            self.at += 1
            self.counted = (start, self.counted[1] + self.text.count("\n", self.counted[0], start))
            line = self.counted[1] + 1
            self.space()
            begin = self.at
            result[key] = self.value(dotted, depth + 1)
            self.places[dotted] = Place(line, start, begin, begin + len(self.text[begin : self.at].rstrip()))
            if self.space() == ",":
                self.at += 1

    def items(self, where: str, depth: int) -> list[Any]:
        result: list[Any] = []
        while True:
            char = self.space()
            if char == "]":
                self.at += 1
                return result
            if not char:
                raise self.error("expected ']'")
            result.append(self.value(f"{where}[{len(result)}]", depth + 1))
            if self.space() == ",":
                self.at += 1

    def bare_key(self) -> str:
        match = _BARE_KEY.match(self.text, self.at)
        if match is None:
            raise self.error("expected a key")
        self.at = match.end()
        return match.group()

    def quoted(self) -> str:
        quote = self.text[self.at]
        end = self.at + 1
        while end < len(self.text) and self.text[end] != quote:
            if self.text[end] == "\n":
                raise self.error("string is not closed")
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.error("string is not closed")
        raw = self.text[self.at + 1 : end]
        try:
            value: str = json.loads(
                f'"{raw}"' if quote == '"' else '"' + raw.replace("\\'", "'").replace('"', '\\"') + '"',
            )
        except ValueError:
            raise self.error("bad escape in string") from None
        self.at = end + 1
        return value

    def multiline(self) -> str:
        end = self.text.find("'''", self.at + 3)
        if end < 0:
            raise self.error("multi-line string is not closed")
        indent = self.at - (self.text.rfind("\n", 0, self.at) + 1)
        lines = self.text[self.at + 3 : end].split("\n")
        self.at = end + 3
        if not lines[0].strip():
            lines = lines[1:]
        stripped = [line[indent:] if not line[:indent].strip() else line.lstrip() for line in lines]
        return "\n".join(stripped).removesuffix("\n")

    def bare(self) -> Any:  # noqa: ANN401 (JSON)
        for pattern, convert in ((_NUMBER, json.loads), (re.compile("true|false|null"), _WORDS.__getitem__)):
            match = pattern.match(self.text, self.at)
            if match and _END_OF_WORD.match(self.text, match.end()):
                try:
                    value = convert(match.group())
                except ValueError:  # Python's limit on the digits of an integer
                    raise self.error("an integer of thousands of digits") from None
                self.at = match.end()
                return value
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        word = self.text[self.at : end].strip()
        if not word or word[0] in "{}[],:":
            raise self.error("expected a value")
        self.at = end
        return word
