"""YAML as the rule files use it: no surprising scalars, no tags, no aliases, and a line for every key.

Only ``true``, ``false``, ``null``, plain integers and decimals are special. A number that YAML would change (``2.10``, ``1e3``),
the words ``yes``/``no``/``on``/``off``, dates and tags are refused unless quoted, because in a rule file each is a mistake.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError, RuleError
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_utf8
from compatcheck.core.yaml import MAX_BYTES, Scalars, TagError, YamlList, YamlMap, parse_yaml

if TYPE_CHECKING:
    from pathlib import Path

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_RISKY = re.compile(
    r"[-+]?(\d[\d_]*\.[\d_]*|\.\d+)([eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+|0[xob]?[0-9a-fA-F]+|\d{4}-\d\d-\d\d.*|"
    r"True|TRUE|False|FALSE|Null|NULL|(?i:yes|no|on|off|y|n|\.nan|[-+]?\.inf)",
)
_MAX_DIGITS = 20


class Lines(dict[tuple[str | int, ...], int]):
    """Line of every key and item by its path, first line 1."""


class _Strict(Scalars):
    """Scalars that say what they seem to say."""

    has_aliases = False

    def read(self, text: str, tag: str | None, *, plain: bool) -> str | float | bool | None:
        """See `Scalars`."""
        if tag is not None:
            self.check_tag(tag)
        if not plain:
            return text
        if text in {"true", "false"}:
            return text == "true"
        if text in {"null", "~", ""}:
            return None
        if _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS:
            return int(text)
        if _DECIMAL.fullmatch(text) and repr(float(text)) == text:
            return float(text)
        if _RISKY.fullmatch(text):
            raise ValueError(f"{text} must be quoted: YAML would change it")
        return text

    def read_key(self, text: str, tag: str | None, *, plain: bool) -> str:
        """See `Scalars`; a key is a word, whatever it looks like."""
        del plain
        if tag is not None:
            self.check_tag(tag)
        return text

    def check_tag(self, tag: str) -> None:
        """See `Scalars`."""
        raise TagError(f"has the tag {tag!r}; tags are not used in rule files")


_STRICT = _Strict()


def load_strict(path: Path) -> tuple[Any, Lines]:
    """Read one YAML file.

    Returns:
        The data (dicts, lists, strings, integers, booleans, None) and the line of every path in it.

    Raises:
        RuleError: naming file, line and key.
    """
    try:
        text = read_utf8(str(path), limit=MAX_BYTES)
    except InputError as error:
        raise RuleError(error.message, source=error.source, hint=error.hint) from None
    return parse_strict(text, str(path))


def parse_strict(text: str, path: str) -> tuple[Any, Lines]:
    """Parse YAML text; see `load_strict`."""
    try:
        data = parse_yaml(text, path, _STRICT)
    except InputError as error:
        raise RuleError(error.message, source=error.source, hint=error.hint) from None
    lines = Lines()
    if isinstance(data, YamlMap | YamlList):
        lines[()] = data.line
        _note_lines(data, (), lines)
    return data, lines


class StrictFile:
    """One file of data, and errors that name it with line and key."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.data, self.lines = load_strict(path)

    def error(self, message: str, *where: str | int, hint: str | None = None) -> RuleError:
        """Name the line of the innermost key that has one."""
        places = (where[:length] for length in range(len(where), -1, -1))
        line = next((self.lines[place] for place in places if place in self.lines), None)
        return RuleError(message, source=Source(self.path, ".".join(map(str, where)) or None, line), hint=hint)

    def mapping(self, value: Any, *where: str | int) -> dict[str, Any]:  # noqa: ANN401 (YAML)
        """Return what must be a mapping."""
        if not isinstance(value, dict):
            raise self.error("expected a mapping", *where)
        return value

    def sequence(self, value: Any, *where: str | int) -> list[Any]:  # noqa: ANN401 (YAML)
        """Return what must be a list."""
        if not isinstance(value, list):
            raise self.error("expected a list", *where)
        return value


def _note_lines(value: YamlMap | YamlList, where: tuple[str | int, ...], lines: Lines) -> None:
    entries = value.items() if isinstance(value, YamlMap) else enumerate(value)
    for key, item in entries:
        path = (*where, key)
        lines[path] = value.lines[key]  # type: ignore[index]
        if isinstance(item, YamlMap | YamlList):
            _note_lines(item, path, lines)
