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
    from pathlib import Path


MAX_BYTES = 1 << 20
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_RISKY = re.compile(
    r"[-+]?(\d[\d_]*\.[\d_]*|\.\d+)([eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+|0[xob]?[0-9a-fA-F]+|\d{4}-\d\d-\d\d.*|"
    r"(?i:yes|no|on|off|y|n|\.inf|\.nan|-\.inf)",
)


_MAX_DEPTH = 32
_MAX_DIGITS = 20
_MAX_OPENINGS = 10_000
"""Lists and mappings of one file: the C parser recurses, and some ten thousand levels would crash it."""


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

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if text.count("[") + text.count("{") + text.count("- ") + text.count("? ") > _MAX_OPENINGS:
        msg = f"opens more than {_MAX_OPENINGS} lists and mappings, which no rule does"
        raise RuleError(msg, source=Source(path), hint="is this a rule file?")
    try:
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        msg = f"not YAML: {getattr(error, 'problem', error)}"
        raise RuleError(msg, source=Source(path, None, line)) from None
    lines = Lines()
    seen: set[int] = set()
    return (None if node is None else _construct(node, (), lines, path, seen)), lines


def _construct(node: Any, where: tuple[str | int, ...], lines: Lines, path: str, seen: set[int]) -> Any:  # noqa: ANN401
    lines[where] = node.start_mark.line + 1
    if len(where) > _MAX_DEPTH:
        msg = f"is nested more than {_MAX_DEPTH} levels deep"
        raise _error(msg, node, where[:2], path)
    if id(node) in seen:
        msg = "anchors and aliases are not used in rule files"
        raise _error(msg, node, where, path)
    seen.add(id(node))
    if node.id == "scalar":
        return _scalar(node, where, path)
    if node.id == "sequence":
        return [_construct(item, (*where, index), lines, path, seen) for index, item in enumerate(node.value)]
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = key_node.value if key_node.id == "scalar" else None
        if not isinstance(key, str):
            msg = "keys must be plain words"
            raise _error(msg, key_node, where, path)
        if key in result:
            msg = f"duplicate key {key!r}"
            raise _error(msg, key_node, (*where, key), path)
        result[key] = _construct(value_node, (*where, key), lines, path, seen)
    return result


def _scalar(node: Any, where: tuple[str | int, ...], path: str) -> str | int | float | bool | None:  # noqa: ANN401 (a YAML node)
    text: str = node.value
    if node.style in {"'", '"', "|", ">"}:
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


def _error(message: str, node: Any, where: tuple[str | int, ...], path: str) -> RuleError:  # noqa: ANN401 (a YAML node)
    key = ".".join(str(part) for part in where) or None
    return RuleError(message, source=Source(path, key, node.start_mark.line + 1))
