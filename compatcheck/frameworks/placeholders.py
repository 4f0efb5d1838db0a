"""Values of a configuration that something fills in before the program reads it (``fsdp: ${F}``): what they state is open."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from compatcheck.core.document import Gap, Unresolved
from compatcheck.core.errors import InputError
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks.conversions import ByWords
from compatcheck.frameworks.translation import flatten, quote_dotted
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from compatcheck.core.document import Document
    from compatcheck.frameworks.keys import Key
    from compatcheck.frameworks.launch.values import Argument
    from compatcheck.frameworks.reader import Composer, ConfigurationReader, Reading

_PLACEHOLDER = lazy_compile(r"\$(?:\{|\([^()]*\)|[A-Z_]\w*)|\{\{[^{}]*\}\}")
"""``${NAME}``, ``$NAME``, ``$(command)`` or ``{{ name }}``, alone or as a part of a text."""
_INTERPOLATION = lazy_compile(r"\$\{\s*(?:(?P<resolver>[A-Za-z_][\w.]*):|(?P<section>\w+|(?=\.)))")

_BECAUSE = "is {value}, which is filled in before the file is read"


def read_filled_in(
    reader: ConfigurationReader,
    data: Mapping[str, Any],
    path: str,
    because: str = _BECAUSE,
) -> Reading:
    """Read a parsed file; what a value that is filled in later would state is unresolved.

    Args:
        reader: of the program that the file is for.
        data: the parsed file.
        path: of the file.
        because: why such a value is not known; ``{value}`` stands for what is written in its place.

    Raises:
        InputError: nothing in the file was understood.
    """
    if not find_program(reader.READER).takes_dotted_keys:
        data = quote_dotted(data)
    reading = reader.read(data, path)
    found = [(key, value) for key, value in flatten(data) if _is_filled_in(value)]
    if not found or not reading.documents:
        return reading
    first = reading.documents[0]
    if first.options:  # what it composes from may fill them in
        made = compose_filled_in(cast("Composer", reader), first, because=because)
        return reading._replace(documents=(*made, *reading.documents[1:]))
    silent = {one.key for one in first.statements if one.fact is None and one.key not in reader.TABLE}
    named = [name for _, name, _ in first.references]
    later = {key: because.replace("{value}", str(value)) for key, value in found if value not in named}
    hidden = {key: why for key, why in later.items() if key not in silent}
    try:
        reading = reader.read(_leave_out(data, hidden, reader.TABLE), path)
    except InputError:
        return reading
    first, *others = reading.documents
    unresolved = [  # of every role: what is said of one model may hold for those that follow it
        Unresolved(meaning.fact, key, why) for key, why in hidden.items() for meaning in reader.TABLE.get(key, ())
    ]
    gaps = [Gap(first.place(key), why, key) for key, why in hidden.items() if not reader.TABLE.get(key)]
    document = first._replace(unresolved=(*first.unresolved, *unresolved), gaps=(*first.gaps, *gaps))

    def read_with(key: str, value: object) -> tuple[Document, ...]:
        filled = _fill_in(data, key.split("."), value)
        return reader.read(_leave_out(filled, hidden.keys() - {key}, reader.TABLE), path).documents

    return reading._replace(documents=_try_others((document, *others), hidden | later, reader.TABLE, read_with))


def compose_filled_in(reader: Composer, *documents: Document, because: str = _BECAUSE) -> tuple[Document, ...]:
    """Compose documents, what wins first; what is filled in later is unknown, and hides what stands below it."""
    names = {key.partition(".")[0] for document in documents for key in document.options}

    def leave_open(argument: Argument) -> Argument:
        if not _is_filled_in(argument.value) or _is_interpolated(argument.value, names):
            return argument
        return argument._replace(value=None, why=because.replace("{value}", str(argument.value)))

    opened = [one._replace(options={key: leave_open(value) for key, value in one.options.items()}) for one in documents]

    def compose_with(key: str, value: object) -> tuple[Document, ...]:
        return reader.compose(*(_replace_unknown(document, key, value) for document in opened))

    unknown = {key: one.why for document in opened for key, one in document.options.items() if one.why is not None}
    table = cast("ConfigurationReader", reader).TABLE
    made = _try_others(reader.compose(*opened), unknown, table, compose_with)
    return tuple(one._replace(options=before.options) for one, before in zip(made, documents, strict=True))


_TRIED = (False, True, 2, 4)
"""Values that are tried in the place of one that nobody knows, with the words that the table of its program has for its key."""
_MOST_TRIES = 60
"""Configurations that are read for it, each in some milliseconds."""


def _try_others(
    made: tuple[Document, ...],
    unknown: Mapping[str, str],
    table: Mapping[str, tuple[Key, ...]],
    read: Callable[[str, object], Iterable[Document]],
) -> tuple[Document, ...]:
    """Leave open what a configuration says otherwise where a value that nobody knows is another one.

    What follows from several keys takes such a value for left out.

    Args:
        made: what it says without them.
        unknown: keys with such values, and why these are not known.
        table: what keys mean.
        read: reads it with a value for a key.
    """
    said, left = _say(made), _MOST_TRIES
    found: dict[tuple[str, str | None], Unresolved] = {}
    for key, why in unknown.items():
        words = (
            word
            for meaning in table.get(key, ())
            if isinstance(meaning.convert, ByWords)
            for word in meaning.convert.words
        )
        for value in (*_TRIED, *words):
            if left == 0:
                break
            left -= 1
            with suppress(InputError, TypeError, ValueError, AttributeError, LookupError):  # no value of this key
                other = _say(read(key, value))
                for name in (name for name in said.keys() | other.keys() if said.get(name) != other.get(name)):
                    found.setdefault(name, Unresolved(name[0], key, why, name[1]))
    if not found:
        return made
    told = {(one.fact, one.role) for document in made for one in document.unresolved}
    fresh = tuple(one for name, one in found.items() if name not in told)
    return tuple(
        document._replace(
            statements=tuple(one for one in document.statements if (one.fact, one.role) not in found),
            unresolved=(*document.unresolved, *(fresh if document is made[0] else ())),
        )
        for document in made
    )


def _say(documents: Iterable[Document]) -> dict[tuple[str, str | None], list[object]]:
    """Return what documents state, by fact and role."""
    said: dict[tuple[str, str | None], list[object]] = {}
    for document in documents:
        for one in document.statements:
            if one.fact is not None:
                said.setdefault((one.fact, one.role), []).append(one.value)
    return said


def _fill_in(data: Mapping[str, Any], parts: Sequence[str], value: object) -> dict[str, Any]:
    """Return the data with another leaf."""
    first, *others = parts
    return {**data, first: _fill_in(data[first], others, value) if others else value}


def _replace_unknown(document: Document, key: str, value: object) -> Document:
    argument = document.options.get(key)
    if argument is None or argument.why is None:
        return document
    return document._replace(options={**document.options, key: argument._replace(value=value, why=None)})


def _is_filled_in(value: object) -> bool:
    """Tell whether a value, or one inside of a list, has a place for what is filled in."""
    if isinstance(value, list):
        return any(map(_is_filled_in, value))
    if isinstance(value, Mapping):
        return any(map(_is_filled_in, value.values()))
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def _is_interpolated(value: object, names: Collection[str]) -> bool:
    """Tell whether the program itself may fill a text in from its configuration, whose sections have these names."""
    found = _INTERPOLATION.finditer(value) if isinstance(value, str) else ()
    return any(
        one["section"] in {"", *names} if one["resolver"] is None else one["resolver"] not in _ENVIRONMENT
        for one in found
    )


_ENVIRONMENT = {"env", "oc.env"}


def _leave_out(
    data: Mapping[str, Any], hidden: Container[str], table: Mapping[str, object], prefix: str = ""
) -> dict[str, Any]:
    """Return the data without some leaves; a section around them stays, unless it would mean something if it were empty."""
    kept: dict[str, Any] = {}
    for name, value in data.items():
        key = f"{prefix}{name}"
        if key not in hidden:
            is_section = isinstance(value, Mapping) and bool(value)
            inner = _leave_out(value, hidden, table, f"{key}.") if is_section else value
            if inner or not is_section or not table.get(key):
                kept[name] = inner
    return kept
