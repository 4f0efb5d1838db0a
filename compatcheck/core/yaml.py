"""YAML of machines read as text: every scalar stays as it is written, every entry knows its line.

Lock files and SBOMs hold versions, and YAML 1.1 turns ``2.10`` into 2.1 and ``no`` into False; here a scalar is a string,
or None where it is empty or ``null``. The tree is built from the parser's events, without recursion, so that depth, number
of values and aliases are bounded before anything grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.core.textfile import advise_mending, decode_text, read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 16 << 20
"""Largest YAML file that is read; the largest public lock of conda or pixi that was looked at has 3 MiB."""
MAX_DEPTH = 64
MAX_VALUES = 1_500_000
"""Most values of a file, each alias counted with everything it stands for."""

_NULLS = {"", "~", "null", "Null", "NULL"}


class YamlMap(dict[str, "YamlValue"]):
    """A mapping; keys are text."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        """Start an empty mapping on a line, 1 for the first."""
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        """Line of each key."""


class YamlList(list["YamlValue"]):
    """A sequence."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        """Start an empty sequence on a line, 1 for the first."""
        super().__init__()
        self.line = line
        self.lines: list[int] = []
        """Line of each item."""


YamlValue = str | None | YamlMap | YamlList


class YamlFile(NamedTuple):
    """A parsed file."""

    path: str
    text: str
    root: YamlValue


def read_yaml(path: str) -> YamlFile:
    """Read and parse a YAML file of one document.

    Raises:
        InputError: it cannot be read, is no text, is larger than `MAX_BYTES`, or `parse_yaml` refuses it.
    """
    text = decode_text(read_bytes(path, limit=MAX_BYTES), path)
    return YamlFile(path, text, parse_yaml(text, path))


class _Open:
    """A collection that is not closed yet."""

    def __init__(self, value: YamlMap | YamlList, anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.size = 1
        self.key: str | None = None
        self.key_line = 0
        self.merged: set[str] = set()
        """Keys that came through ``<<`` and may be stated once more."""


def parse_yaml(text: str, path: str) -> YamlValue:
    """Parse one YAML document.

    Raises:
        InputError: with the line: syntax, duplicate keys, keys that are no text, several documents, deep nesting, aliases
            or merge keys that expand beyond `MAX_VALUES`, and aliases to what they stand in.
    """
    import yaml  # noqa: PLC0415 (costs 30 ms; only for YAML inputs)

    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    tree = _Tree(path)
    try:
        event: Any  # the classes of PyYAML's events share no typed attributes
        for event in yaml.parse(text, Loader=kind):
            name = type(event).__name__
            line = event.start_mark.line + 1
            if name == "ScalarEvent":
                plain = event.style is None or event.style == ""
                tree.add(None if plain and event.value in _NULLS else event.value, line, 1, event.anchor)
            elif name in {"MappingStartEvent", "SequenceStartEvent"}:
                tree.open(YamlMap(line) if name[0] == "M" else YamlList(line), event.anchor, line)
            elif name in {"MappingEndEvent", "SequenceEndEvent"}:
                tree.close(line)
            elif name == "AliasEvent":
                tree.alias(event.anchor, line)
            elif name == "DocumentStartEvent":
                tree.start_document(line)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        message = f"is not valid YAML: {problem}"
        source = Source(path, line=None if mark is None else mark.line + 1)
        raise InputError(
            message, source=source, hint=advise_mending(text, "mend it there; is the file complete?")
        ) from None
    return tree.root


class _Tree:
    """The tree while it is built."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.root: YamlValue = None
        self.documents = 0
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[YamlValue, int]] = {}
        self._open_anchors: set[str] = set()
        self._values = 0

    def start_document(self, line: int) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self._error("holds several documents", line, "put each document into a file of its own")

    def open(self, value: YamlMap | YamlList, anchor: str | None, line: int) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise self._error(
                f"is nested more than {MAX_DEPTH} levels deep", line, "check that this is the file you mean"
            )
        self._check_key(line)
        if anchor is not None:
            self._open_anchors.add(anchor)
        self._stack.append(_Open(value, anchor))

    def close(self, line: int) -> None:
        done = self._stack.pop()
        if done.anchor is not None:
            self._open_anchors.discard(done.anchor)
        self.add(done.value, getattr(done.value, "line", line), done.size, done.anchor)

    def alias(self, anchor: str, line: int) -> None:
        if anchor in self._open_anchors:
            raise self._error(f"the alias {anchor!r} refers to the value it stands in", line, "write the value out")
        if anchor not in self._anchors:
            raise self._error(f"the alias {anchor!r} has no anchor", line, "write the value out")
        value, size = self._anchors[anchor]
        self.add(value, line, size, None)

    def add(self, value: YamlValue, line: int, size: int, anchor: str | None) -> None:
        """Put a finished value where it belongs."""
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        self._values += 1
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        top.size += size
        if top.size > MAX_VALUES or self._values > MAX_VALUES:
            raise self._error(f"holds more than {MAX_VALUES} values", line, "check that this is the file you mean")
        if isinstance(top.value, YamlList):
            top.value.append(value)
            top.value.lines.append(line)
        elif top.key is None:
            if not isinstance(value, str | None):
                raise self._error("a key is a list or a mapping", line, "fill in templates such as {{ name }} first")
            top.key, top.key_line = value or "", line
        else:
            self._put(top, top.key, value, line)
            top.key = None

    def _put(self, top: _Open, key: str, value: YamlValue, line: int) -> None:
        mapping = top.value
        if not isinstance(mapping, YamlMap):
            return
        if key == "<<":
            for merged in value if isinstance(value, YamlList) else [value]:
                if not isinstance(merged, YamlMap):
                    raise self._error("merges what is no mapping", line, "write the keys out")
                for name, item in merged.items():
                    if name not in mapping:
                        mapping[name] = item
                        mapping.lines[name] = line
                        top.merged.add(name)
            return
        if key in mapping and key not in top.merged:
            raise self._error(f"has the key {key!r} twice", top.key_line, "keep one of the two")
        top.merged.discard(key)
        mapping[key] = value
        mapping.lines[key] = top.key_line

    def _check_key(self, line: int) -> None:
        if self._stack and isinstance(self._stack[-1].value, YamlMap) and self._stack[-1].key is None:
            raise self._error("a key is a list or a mapping", line, "fill in templates such as {{ name }} first")

    def _error(self, message: str, line: int, hint: str) -> InputError:
        return InputError(message, source=Source(self.path, line=line), hint=hint)


def table(value: object) -> Mapping[str, YamlValue]:
    """Return a mapping as it is, anything else as an empty one."""
    return value if isinstance(value, YamlMap) else {}
