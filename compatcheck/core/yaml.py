"""YAML read once for everybody: bounded, no key twice, nothing constructed by a tag, and the place of every entry.

What a scalar means is the reader's choice (`Scalars`): text for lock files, where YAML 1.1 would turn ``2.10`` into 2.1 and
``no`` into False; `YAML_1_1` for configurations, as the training programs read them; rule files have a stricter one. The tree
is built from the parser's events, without recursion, so that depth, number of values and aliases are bounded before anything
grows: composing nodes recurses in C, and tens of thousands of levels crash it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.integers import refuse_long
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_DEPTH, Place, advise_mending, echo, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_BYTES = 16 << 20
"""Largest YAML file that is read; the largest public lock of conda or pixi that was looked at has 3 MiB."""
MAX_VALUES = 1_000_000
"""Most values of a file, each alias counted with everything it stands for; a lock of `MAX_BYTES` has some 700,000."""

_MOST_SIXTIETHS = 100
"""Parts of a number such as ``190:20:30``, which PyYAML multiplies in time that grows with their square; a time has three."""

_NULLS = {"", "~", "null", "Null", "NULL"}
_WRONG_FILE = "check that this is the file you mean"
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
_TEMPLATE = "a template such as {{ name }} has to be filled in first"


class YamlMap(dict[str, Any]):
    """A mapping; keys are text, except as `YAML_1_1` reads them."""

    __slots__ = ("line", "lines", "spans")

    def __init__(self, line: int) -> None:
        """Start an empty mapping on a line, 1 for the first."""
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        """Line of each key; of one that ``<<`` brings, the line of the ``<<``."""
        self.spans: dict[str, Place] = {}
        """Where its own keys and their values stand; only filled for `locate_keys`."""


class YamlList(list[Any]):
    """A sequence."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        """Start an empty sequence on a line, 1 for the first."""
        super().__init__()
        self.line = line
        self.lines: list[int] = []
        """Line of each item."""


YamlValue = str | None | YamlMap | YamlList
"""A value as `TEXT` reads it."""


class YamlFile(NamedTuple):
    """A parsed file."""

    path: str
    text: str
    root: YamlValue


class Scalars:
    """What a scalar means: the text as it is written, None where it is empty or ``null``; tags say nothing."""

    has_aliases = True
    """Whether anchors and aliases are followed."""

    def read(self, text: str, tag: str | None, *, plain: bool) -> Any:  # noqa: ANN401 (a scalar)
        """Return the value of a scalar.

        Args:
            text: as the parser gives it, escapes resolved.
            tag: as written; None without one.
            plain: whether it is not quoted.

        Raises:
            ValueError: it has none; the text of the error says why.
        """
        del tag
        return None if plain and text in _NULLS else text

    def read_key(self, text: str, tag: str | None, *, plain: bool) -> Any:  # noqa: ANN401 (a scalar)
        """Return what a key is called."""
        return self.read(text, tag, plain=plain) or ""

    def check_tag(self, tag: str) -> None:
        """Refuse a list or mapping with a tag that would change what it is.

        Raises:
            TagError: as `read`.
        """


class TagError(ValueError):
    """A tag that is not read."""


class _Yaml11(Scalars):
    """Scalars of YAML 1.1, as PyYAML's safe loader constructs them."""

    _KINDS = frozenset(
        f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "binary", "timestamp", "str")
    )
    _COLLECTIONS = frozenset({"!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})

    @cached_property
    def _loader(self) -> Any:  # noqa: ANN401 (the class of PyYAML)
        import yaml  # noqa: PLC0415 (imported already by the parser)

        return yaml.SafeLoader

    def read(self, text: str, tag: str | None, *, plain: bool) -> Any:  # noqa: ANN401 (a scalar)
        """See `Scalars`."""
        if tag in {None, "!"}:
            tag = self._resolve(text) if plain else None
        if tag is None:
            return text
        if tag not in self._KINDS:
            raise TagError(f"has the tag {tag!r}, which is not read")
        if tag.endswith((":int", ":float")) and text.count(":") > _MOST_SIXTIETHS:
            raise ValueError(f"is not valid YAML: a number has more than {_MOST_SIXTIETHS} parts to the base of sixty")
        import yaml  # noqa: PLC0415 (imported already by the parser)

        try:
            value = self._loader.yaml_constructors[tag](yaml.constructor.SafeConstructor(), yaml.ScalarNode(tag, text))
            refuse_long(value)
        except (ValueError, ArithmeticError, LookupError, AttributeError, yaml.YAMLError) as error:
            # A date that does not exist, an integer of thousands of digits, or a tag that the text does not fit.
            reason = (
                str(error).partition(";")[0] if isinstance(error, ValueError) else f"{echo(text)} does not fit {tag!r}"
            )
            raise ValueError(f"is not valid YAML: {reason}") from None
        return value

    read_key = read

    def _resolve(self, text: str) -> str | None:
        """Return the tag that YAML 1.1 gives a plain scalar; None for text."""
        for tag, pattern in self._loader.yaml_implicit_resolvers.get(text[:1], ()):
            if pattern.match(text):
                return str(tag)
        return None

    def check_tag(self, tag: str) -> None:
        """See `Scalars`."""
        if tag not in self._COLLECTIONS:
            raise TagError(f"has the tag {tag!r}, which is not read")


TEXT = Scalars()
YAML_1_1: Scalars = _Yaml11()


def read_yaml(path: str, files: Files = LOCAL) -> YamlFile:
    """Read and parse a YAML file of one document.

    Raises:
        InputError: it cannot be read, is no text, is larger than `MAX_BYTES`, or `parse_yaml` refuses it.
    """
    text = read_text(path, files, limit=MAX_BYTES)
    return YamlFile(path, text, parse_yaml(text, path))


def parse_yaml(text: str, path: str, scalars: Scalars = TEXT) -> Any:  # noqa: ANN401 (YAML)
    """Parse one YAML document.

    Returns:
        `YamlMap`, `YamlList` or a scalar; None for an empty document.

    Raises:
        InputError: with line and key: syntax, duplicate keys, keys that are no text, several documents, deep nesting, scalars
            and tags that are not read, aliases or merge keys that expand beyond `MAX_VALUES`, and aliases to what they stand in.
    """
    return _build(text, path, _Tree(path, scalars))


def locate_keys(text: str, path: str) -> dict[str, Place]:
    """Find every key that leads from the root through mappings alone, by its dotted path; of two paths, the first.

    Raises:
        InputError: as `parse_yaml`.
    """
    places: dict[str, Place] = {}
    pending: list[tuple[str, Any]] = [("", _build(text, path, _Tree(path, TEXT, spans=True)))]
    while pending:
        prefix, value = pending.pop()
        if isinstance(value, YamlMap):
            for key, place in value.spans.items():
                places.setdefault(f"{prefix}{key}", place)
                pending.append((f"{prefix}{key}.", value[key]))
    return places


def _build(text: str, path: str, tree: _Tree) -> Any:  # noqa: ANN401 (YAML)
    import yaml  # noqa: PLC0415 (costs 30 ms; only for YAML inputs)

    handlers: Mapping[type, Callable[[Any], None]] = {
        yaml.ScalarEvent: tree.add_scalar,
        yaml.MappingStartEvent: tree.open_mapping,
        yaml.SequenceStartEvent: tree.open_sequence,
        yaml.MappingEndEvent: tree.close,
        yaml.SequenceEndEvent: tree.close,
        yaml.AliasEvent: tree.add_alias,
        yaml.DocumentStartEvent: tree.start_document,
    }
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            handler = handlers.get(event.__class__)
            if handler is not None:
                handler(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        place = Source(path, line=None if mark is None else mark.line + 1)
        if "maximum nesting" in problem:  # newer scanners read ahead of the events and refuse it themselves
            raise InputError(_TOO_DEEP, source=place, hint=_WRONG_FILE) from None
        raise InputError(
            f"is not valid YAML: {problem}",
            source=place,
            hint=advise_mending(text, "mend it there; check indentation, quotes and brackets: is the file complete?"),
        ) from None
    return tree.root


class _Open:
    """A collection that is not closed yet."""

    __slots__ = ("anchor", "brought", "key", "key_mark", "merged", "named", "size", "start", "value")

    def __init__(self, value: YamlMap | YamlList, anchor: str | None, start: Any) -> None:  # noqa: ANN401 (a mark)
        self.value = value
        self.anchor = anchor
        self.start = start
        self.size = 1
        self.named = False
        """Whether a key waits for its value."""
        self.key: Any = None
        self.key_mark: Any = None
        self.brought: dict[Any, Any] = {}
        """What the merge keys before the present one bring."""
        self.merged: list[tuple[YamlMap, int]] = []
        """What ``<<`` brings, what wins last, with its line."""


_MERGE = object()
"""Stands for the key ``<<``, which another key may be called in quotes."""


class _Tree:
    """The tree while it is built from the classes of PyYAML's events, which share no typed attributes."""

    def __init__(self, path: str, scalars: Scalars, *, spans: bool = False) -> None:
        self.path = path
        self.scalars = scalars
        self.spans = spans
        self.root: Any = None
        self._documents = 0
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._open_anchors: set[str] = set()
        self._values = 0

    def start_document(self, event: Any) -> None:  # noqa: ANN401
        self._documents += 1
        if self._documents > 1:
            raise self._error("holds several documents", event.start_mark, "put each document into a file of its own")

    def open_mapping(self, event: Any) -> None:  # noqa: ANN401
        self._open(YamlMap(event.start_mark.line + 1), event)

    def open_sequence(self, event: Any) -> None:  # noqa: ANN401
        self._open(YamlList(event.start_mark.line + 1), event)

    def _open(self, value: YamlMap | YamlList, event: Any) -> None:  # noqa: ANN401
        if len(self._stack) >= MAX_DEPTH:
            raise self._error(_TOO_DEEP, event.start_mark, _WRONG_FILE)
        if self._stack and isinstance(self._stack[-1].value, YamlMap) and not self._stack[-1].named:
            raise self._error("a key is a list or a mapping", event.start_mark, _TEMPLATE)
        if event.tag is not None:
            try:
                self.scalars.check_tag(event.tag)
            except ValueError as error:
                raise self._refuse(error, event) from None
        if event.anchor is not None:
            self._note_anchor(event)
            self._open_anchors.add(event.anchor)
        self._stack.append(_Open(value, event.anchor, event.start_mark))

    def close(self, event: Any) -> None:  # noqa: ANN401
        done = self._stack.pop()
        if done.anchor is not None:
            self._open_anchors.discard(done.anchor)
            self._anchors[done.anchor] = done.value, done.size
        if done.merged and isinstance(done.value, YamlMap):
            _merge(done.value, done.merged)
        self._add(done.value, done.start, event.end_mark, done.size)

    def add_alias(self, event: Any) -> None:  # noqa: ANN401
        anchor = event.anchor
        self._note_anchor(event)
        if anchor in self._open_anchors:
            raise self._error(
                f"the alias {anchor!r} refers to the value it stands in", event.start_mark, "write the value out"
            )
        if anchor not in self._anchors:
            raise self._error(f"the alias {anchor!r} has no anchor", event.start_mark, "write the value out")
        value, size = self._anchors[anchor]
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, YamlMap) and not top.named:
            if isinstance(value, YamlMap | YamlList):
                raise self._error("a key is a list or a mapping", event.start_mark, _TEMPLATE)
            self._name(top, value, event)
        else:
            self._add(value, event.start_mark, event.end_mark, size)

    def _note_anchor(self, event: Any) -> None:  # noqa: ANN401
        if not self.scalars.has_aliases:
            raise self._error(
                "has an anchor or an alias, which are not used here", event.start_mark, "write the value out"
            )

    def add_scalar(self, event: Any) -> None:  # noqa: ANN401
        text, plain = event.value, not event.style
        top = self._stack[-1] if self._stack else None
        is_key = top is not None and isinstance(top.value, YamlMap) and not top.named
        if top is not None and is_key and text == "<<" and plain:
            self._name(top, _MERGE, event)
            return
        read = self.scalars.read_key if is_key else self.scalars.read
        try:
            value = read(text, event.tag, plain=plain)
        except ValueError as error:
            raise self._refuse(error, event) from None
        if event.anchor is not None:
            self._note_anchor(event)
            self._anchors[event.anchor] = value, 1
        if top is not None and is_key:
            self._name(top, value, event)
        else:
            self._add(value, event.start_mark, event.end_mark, 1)

    def _name(self, top: _Open, key: Any, event: Any) -> None:  # noqa: ANN401
        """Take a key, whose value is next."""
        top.named, top.key, top.key_mark = True, key, event.start_mark
        self._values += 1
        if key is not _MERGE and key in top.value:
            raise self._error(f"has the key {str(key)!r} twice", event.start_mark, "keep one of the two")

    def _add(self, value: Any, start: Any, end: Any, size: int) -> None:  # noqa: ANN401
        """Put a finished value where it belongs."""
        self._values += 1
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        top.size += size
        if top.size > MAX_VALUES or self._values > MAX_VALUES:
            raise self._error(f"holds more than {MAX_VALUES} values, aliases expanded", start, _WRONG_FILE)
        if isinstance(top.value, YamlList):
            top.value.append(value)
            top.value.lines.append(start.line + 1)
            return
        top.named = False
        mark = top.key_mark
        if top.key is _MERGE:
            self._take_merged(top, value, start)
            return
        top.value[top.key] = value
        top.value.lines[top.key] = mark.line + 1
        if self.spans:
            top.value.spans[top.key] = Place(mark.line + 1, mark.index, start.index, end.index)

    def _take_merged(self, top: _Open, value: Any, start: Any) -> None:  # noqa: ANN401
        brought: dict[Any, Any] = {}
        for merged in reversed(value) if isinstance(value, YamlList) else [value]:  # the first of a list wins
            if not isinstance(merged, YamlMap):
                raise self._error("merges what is no mapping", start, "write the keys out")
            for key, item in merged.items():
                if key in top.brought and item is not top.brought[key] and item != top.brought[key]:
                    message = f"merges {str(key)!r} twice, and which one wins depends on the release of PyYAML"
                    raise self._error(message, start, "merge one list, whose first wins: <<: [*a, *b]")
            brought.update(merged)
            top.merged.append((merged, start.line + 1))
        top.brought.update(brought)

    def _refuse(self, error: ValueError, event: Any) -> InputError:  # noqa: ANN401
        tagged = isinstance(error, TagError)
        hint = "tags would run code or are unknown; write the plain value" if tagged else "quote the value, or mend it"
        return self._error(str(error), event.start_mark, hint)

    def _error(self, message: str, mark: Any, hint: str) -> InputError:  # noqa: ANN401
        """Say what is wrong at a mark: with the line, and the dotted path of the key."""
        names = [
            str(len(top.value)) if isinstance(top.value, YamlList) else "<<" if top.key is _MERGE else str(top.key)
            for top in self._stack
            if top.named or isinstance(top.value, YamlList)
        ]
        return InputError(message, source=Source(self.path, ".".join(names) or None, mark.line + 1), hint=hint)


def _merge(mapping: YamlMap, merged: list[tuple[YamlMap, int]]) -> None:
    """Put what ``<<`` brings before a mapping's own keys, which win."""
    own, lines = dict(mapping), dict(mapping.lines)
    mapping.clear()
    for other, line in merged:
        mapping.update(other)
        mapping.lines.update(dict.fromkeys(other, line))
    mapping.update(own)
    mapping.lines.update(lines)
