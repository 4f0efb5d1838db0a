"""YAML as the rule files use it: no duplicate keys, no surprising scalars, and a line for every key.

Only ``true``, ``false``, ``null``, plain integers and decimals are special. A number that YAML would change (``2.10``, ``1e3``),
the words ``yes``/``no``/``on``/``off``, dates and tags are refused unless quoted, because in a rule file each is a mistake.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError, RuleError
from compatcheck.core.source import Source
from compatcheck.core.textfile import decode_utf8, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


MAX_BYTES = 1 << 20
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_RISKY = re.compile(
    r"[-+]?(\d[\d_]*\.[\d_]*|\.\d+)([eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+|0[xob]?[0-9a-fA-F]+|\d{4}-\d\d-\d\d.*|"
    r"True|TRUE|False|FALSE|Null|NULL|(?i:yes|no|on|off|y|n|\.nan|[-+]?\.inf)",
)


_MAX_DEPTH = 32
_MAX_DIGITS = 20
_MAX_OPENINGS = 10_000
"""Lists and mappings of one file: the C parser recurses, and some ten thousand levels would crash it."""
_QUOTED = {"'", '"', "|", ">"}
_TEXT, _SEQUENCE, _MAPPING = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


class Lines(dict[tuple[str | int, ...], int]):
    """Line of every key and item by its path, first line 1."""


def load_strict(path: Path) -> tuple[Any, Lines]:
    """Read one YAML file.

    Returns:
        The data (dicts, lists, strings, integers, booleans, None) and the line of every path in it.

    Raises:
        RuleError: naming file, line and key.
    """
    try:
        text = decode_utf8(read_bytes(str(path), limit=MAX_BYTES), str(path))
    except InputError as error:
        raise RuleError(error.message, source=error.source, hint=error.hint) from None
    return parse_strict(text, str(path))


def parse_strict(text: str, path: str) -> tuple[Any, Lines]:
    """Parse YAML text; see `load_strict`."""
    import yaml  # noqa: PLC0415 (costs 30 ms; only on the way to rule files)

    if text.count("[") + text.count("{") + text.count("- ") + text.count("? ") > _MAX_OPENINGS:
        msg = f"opens more than {_MAX_OPENINGS} lists and mappings, which no rule does"
        raise RuleError(msg, source=Source(path), hint="is this a rule file?")
    lines = Lines()
    loader = None
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # the one without libyaml reads right here
        node = loader.get_single_node()
        return (None if node is None else _Reader(lines, path, loader.resolve).construct(node, ())), lines
    except RecursionError:
        msg = "is nested too deeply"
        raise RuleError(msg, source=Source(path)) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        msg = f"not YAML: {getattr(error, 'problem', error)}"
        raise RuleError(msg, source=Source(path, None, line)) from None
    finally:
        if loader is not None:
            loader.dispose()


class _Reader:
    """Turns the nodes of one file into data."""

    def __init__(self, lines: Lines, path: str, resolve: Callable[[Any, str, tuple[bool, bool]], str]) -> None:
        self.lines = lines
        self.path = path
        self.resolve = resolve
        self.seen: set[int] = set()

    def construct(self, node: Any, where: tuple[str | int, ...]) -> Any:  # noqa: ANN401 (YAML)
        self.lines[where] = node.start_mark.line + 1
        if len(where) > _MAX_DEPTH:
            msg = f"is nested more than {_MAX_DEPTH} levels deep"
            raise _error(msg, node, where[:2], self.path)
        if id(node) in self.seen:
            msg = "anchors and aliases are not used in rule files"
            raise _error(msg, node, where, self.path)
        self.seen.add(id(node))
        if node.id == "scalar":
            self.check_tag(node, where)
            return _scalar(node, where, self.path)
        if node.tag not in {_SEQUENCE, _MAPPING}:
            raise _tagged(node, where, self.path)
        if node.id == "sequence":
            return [self.construct(item, (*where, index)) for index, item in enumerate(node.value)]
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if key_node.id == "scalar" else None
            if not isinstance(key, str):
                msg = "keys must be plain words"
                raise _error(msg, key_node, where, self.path)
            if key in result:
                msg = f"duplicate key {key!r}"
                raise _error(msg, key_node, (*where, key), self.path)
            result[key] = self.construct(value_node, (*where, key))
        return result

    def check_tag(self, node: Any, where: tuple[str | int, ...]) -> None:  # noqa: ANN401 (a YAML node)
        """Refuse a tag that was written out: it would change what the scalar means."""
        plain = node.style not in _QUOTED
        if node.tag != (self.resolve(type(node), node.value, (True, False)) if plain else _TEXT):
            raise _tagged(node, where, self.path)


def _scalar(node: Any, where: tuple[str | int, ...], path: str) -> str | int | float | bool | None:  # noqa: ANN401 (a YAML node)
    text: str = node.value
    if node.style in _QUOTED:
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
        msg = f"{text} must be quoted: YAML would change it"
        raise _error(msg, node, where, path)
    return text


def _tagged(node: Any, where: tuple[str | int, ...], path: str) -> RuleError:  # noqa: ANN401 (a YAML node)
    return _error("tags are not used in rule files", node, where, path)


def _error(message: str, node: Any, where: tuple[str | int, ...], path: str) -> RuleError:  # noqa: ANN401 (a YAML node)
    key = ".".join(str(part) for part in where) or None
    return RuleError(message, source=Source(path, key, node.start_mark.line + 1))
