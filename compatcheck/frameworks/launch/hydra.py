"""Hydra's command line: ``a.b=c``, ``+a.b=c``, ``++a.b=c``, ``~a.b``, and the values its grammar knows.

The grammar is that of ``hydra/grammar/OverrideParser.g4`` (1.1 to 1.3), without sweeps and functions, which no single run has.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import DEFAULTS, Gap, enclosing_keys
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks.launch.values import MAX_DIGITS, Argument, explain, unknown_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from compatcheck.core.command import Word
    from compatcheck.core.source import Source

_KEY = lazy_compile(r"(\+\+|\+|~)?([A-Za-z_][\w./@\-]*)(?:=(.*))?$", re.DOTALL)
_OPTIONS = {
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
    "--config-dir",
    "-cd",
    "--multirun",
    "-m",
    "--package",
    "-p",
}


class Overrides(NamedTuple):
    """What a Hydra command line says."""

    values: dict[str, Argument]
    """By dotted key; the last one of a key counts. What one that is taken out with ``~`` becomes is not known."""
    groups: dict[str, Argument]
    """Choices of configuration groups: ``model_engine=megatron``, ``actor@actor_rollout_ref.actor=dp_actor``."""
    added: frozenset[str]
    """Keys behind a single ``+``: Hydra refuses one that the configuration has with a value, but for a section."""
    config_path: Argument | None
    config_name: Argument | None
    unknown: tuple[Word, ...]
    """Words that may hold any override."""
    refused: tuple[tuple[Word, str], ...]
    """Words that Hydra would refuse, and why."""


def parse_overrides(words: Iterable[Word]) -> Overrides:
    """Take a Hydra command line apart; a key with a ``/`` or ``@``, or without a dot, may be the choice of a group."""
    values: dict[str, Argument] = {}
    groups: dict[str, Argument] = {}
    options: dict[str, Argument] = {}
    added: set[str] = set()
    unknown: list[Word] = []
    refused: list[tuple[Word, str]] = []
    pending: str | None = None
    removed: dict[str, int] = {}
    given_at: dict[str, int] = {}
    for place, word in enumerate(words):
        text = word.text if word.text is not None else word.written.strip("\"'")
        if pending is not None:
            options[pending] = _given(word, word.text)
            pending = None
            continue
        option, equals, inline = text.partition("=")
        if option in _OPTIONS:
            name = option.lstrip("-")
            if equals:
                options[name] = _given(word, None if word.text is None else inline)
            elif option not in {"-m", "--multirun"}:
                pending = name
            continue
        match = _KEY.match(text)
        if match is None or "$" in match[2]:
            (unknown.append(word) if word.text is None else refused.append((word, "is no override of Hydra")))
            continue
        sign, key, value = match.groups()
        is_group = "/" in key or "@" in key
        if sign == "~":
            taken = Argument(None, word.source.line, f"takes {key} out of the configuration", word.source.used)
            (groups if is_group else values)[key] = taken
            removed[key] = place
        elif value is None:
            unknown.append(word) if word.text is None else refused.append((word, "has no equals sign"))
        else:
            argument = _read(word, value)
            if isinstance(argument, str):
                refused.append((word, argument))
            elif is_group:
                groups[key] = argument
            else:
                given = dict(_part(key, argument))
                values |= given
                given_at.update(dict.fromkeys(given, place))
                (added.update if sign == "+" else added.difference_update)(given)
    gone = {key for key, at in given_at.items() if any(removed.get(outer, -1) > at for outer in enclosing_keys(key))}
    values = {key: one for key, one in values.items() if key not in gone}
    path = options.get("config-path") or options.get("cp") or options.get("config-dir") or options.get("cd")
    chosen = options.get("config-name") or options.get("cn")
    return Overrides(values, groups, frozenset(added), path, chosen, tuple(unknown), tuple(refused))


def name_defaults(data: Mapping[str, object]) -> Iterator[str]:
    """Yield the files beside a file that it composes from, what wins last: it wins over them all.

    Choices of groups, what stands in other packages and what comes behind ``_self_`` are not among them (Hydra 1.3.2
    ``defaults_list.py``: ``_self_`` is the last where it is left out).
    """
    listed = data.get(DEFAULTS)
    for one in listed if isinstance(listed, list) else ():
        if one == "_self_":
            return
        if isinstance(one, str) and re.fullmatch(r"/?[\w.-]+", one):
            yield one.lstrip("/").removesuffix(".yaml")


def gaps_of_choices(data: Mapping[str, object], source: Source, known: Container[str]) -> tuple[Gap, ...]:
    """Return the gaps that a file's own list leaves beside `name_defaults`: ``- override rollout@actor.rollout: mine``.

    Args:
        data: the file.
        source: the file.
        known: choices that are what is there without one.
    """
    place, gaps = source._replace(key=DEFAULTS), list[Gap]()
    listed = data.get(DEFAULTS)
    left = [one for one in listed if one != "_self_"] if isinstance(listed, list) else []
    beside = {*name_defaults(data)}
    left = [one for one in left if not isinstance(one, str) or one.lstrip("/").removesuffix(".yaml") not in beside]
    for one in left:
        groups = one if isinstance(one, dict) else {str(one): str(one).partition("@")[0].rpartition("/")[2]}
        for group, choice in groups.items():
            package, key = _package_of(
                str(group) if isinstance(one, dict) or "@" in group else group.rpartition("/")[0]
            )
            for name in choice if isinstance(choice, list) else [choice]:
                if name is not None and name not in known and not package.startswith("hydra"):
                    where = f" for {package}" if key is not None else ""
                    gaps.append(Gap(place, f"chooses the defaults of {name}{where}, which nobody read", key))
    return tuple(gaps)


def _package_of(group: str) -> tuple[str, str | None]:
    """Return where what a group chooses comes to lie, and the key of what it may set there; None where that may be any."""
    written, at, package = group.removeprefix("optional ").removeprefix("override ").strip().partition("@")
    package = package if at else written.strip("/").replace("/", ".")
    return package, None if package.startswith("_") or not package else f"{package}.{DEFAULTS}"


def name_searched(data: Mapping[str, object]) -> tuple[str, ...]:
    """Return the directories in which Hydra looks for files, too: ``hydra.searchpath``, packages by where their sources are."""
    own = data.get("hydra")
    listed = own.get("searchpath") if isinstance(own, dict) else None
    found = (str(one).partition("://") for one in listed) if isinstance(listed, list) else ()
    return tuple(
        path.replace(".", "/") if kind == "pkg" else path for kind, _, path in found if kind in {"file", "pkg"} and path
    )


def gaps_of_groups(overrides: Overrides, source: Source) -> tuple[Gap, ...]:
    """Return the gaps that choices of groups leave, whose files of defaults nobody read; Hydra's own are about nothing else."""
    return tuple(
        Gap(
            source._replace(key=key, line=choice.line),
            choice.why or f"chooses the defaults of {choice.value}, which nobody read",
            _package_of(key)[1],
        )
        for key, choice in overrides.groups.items()
        if not key.startswith("hydra/")
    )


def _part(key: str, argument: Argument) -> Iterator[tuple[str, Argument]]:
    """Yield what a value says key by key: a section is merged with the one that is there (``a={b: 1}`` is ``a.b=1``)."""
    if not isinstance(argument.value, dict) or not argument.value:
        yield key, argument
        return
    for name, value in argument.value.items():
        yield from _part(f"{key}.{name}", argument._replace(value=value))


def _given(word: Word, text: str | None) -> Argument:
    return Argument(text, word.source.line, explain(word) if text is None else None, word.source.used)


def _read(word: Word, text: str) -> Argument | str:
    if word.text is None:
        return unknown_argument(word, text)
    try:
        return Argument(parse_value(text), word.source.line, None, word.source.used)
    except ValueError as error:
        return str(error)


def parse_value(text: str) -> object:
    """Parse a value of Hydra's grammar.

    Raises:
        ValueError: brackets or quotes that do not close; Hydra refuses such a word.
    """
    value, rest = _parse(text.strip(), 0, top=True)
    if rest < len(text.strip()):
        msg = f"has {text.strip()[rest:]!r} after its value, which Hydra refuses"
        raise ValueError(msg)
    return value


_MAX_DEPTH = 64


def _parse(text: str, at: int, *, top: bool, depth: int = 0) -> tuple[object, int]:
    if depth > _MAX_DEPTH:
        msg = "is nested too deeply"
        raise ValueError(msg)
    start = text[at : at + 1]
    if start in {"'", '"'}:
        return _quoted(text, at)
    if start == "[":
        return _list(text, at, depth)
    if start == "{":
        return _mapping(text, at, depth)
    end = len(text) if top else _end_of_bare(text, at)
    return _bare(text[at:end].strip()), end


def _quoted(text: str, at: int) -> tuple[str, int]:
    quote, place, found = text[at], at + 1, []
    while place < len(text):
        char = text[place]
        if char == "\\" and text[place + 1 : place + 2] in {quote, "\\"}:
            found.append(text[place + 1])
            place += 2
        elif char == quote:
            return "".join(found), place + 1
        else:
            found.append(char)
            place += 1
    msg = "has a quote that does not close"
    raise ValueError(msg)


def _end_of_bare(text: str, at: int) -> int:
    inner = 0
    for place in range(at, len(text)):
        if text.startswith("${", place):
            inner += 1
        elif text[place] == "}" and inner:
            inner -= 1
        elif text[place] in ",]}:" and not inner:
            return place
    return len(text)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _list(text: str, at: int, depth: int) -> tuple[list[object], int]:
    values: list[object] = []

    def read_value(at: int) -> int:
        value, at = _parse(text, at, top=False, depth=depth + 1)
        values.append(value)
        return at

    return values, _read_items(text, at, "]", read_value)


def _mapping(text: str, at: int, depth: int) -> tuple[dict[str, object], int]:
    values: dict[str, object] = {}

    def read_pair(at: int) -> int:
        key, at = _parse(text, at, top=False, depth=depth + 1)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            return len(text)
        values[str(key)], at = _parse(text, _skip(text, at + 1), top=False, depth=depth + 1)
        return at

    return values, _read_items(text, at, "}", read_pair)


def _read_items(text: str, at: int, close: str, read_item: Callable[[int], int]) -> int:
    """Read what stands between brackets, with commas between; return where it ends."""
    at = _skip(text, at + 1)
    if text[at : at + 1] == close:
        return at + 1
    while at < len(text):
        at = _skip(text, read_item(at))
        if text[at : at + 1] == close:
            return at + 1
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    msg = f"has a {'bracket' if close == ']' else 'brace'} that does not close"
    raise ValueError(msg)


_INTEGER = lazy_compile(r"[+-]?(0|[1-9](_?\d)*)$")
_FLOAT = lazy_compile(r"[+-]?(\d(_?\d)*\.(\d(_?\d)*)?|\.\d(_?\d)*|\d(_?\d)*)([eE][+-]?\d(_?\d)*)?$")


def _bare(text: str) -> object:
    lowered = text.lower()
    if lowered == "null":
        return None
    if lowered in {"true", "false"}:
        return lowered == "true"
    if _INTEGER.match(text) and len(text) < MAX_DIGITS:
        return int(text)
    if _FLOAT.match(text) and ("." in text or "e" in lowered):
        return float(text)
    return text
