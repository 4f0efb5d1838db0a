"""Translate the keys of a configuration to the vocabulary by table, and find the ones nobody understands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from compatcheck.core.document import AUTO, Document, Statement
from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.redaction import redact
from compatcheck.core.source import Skipped, Source
from compatcheck.rules.vocabulary import nearest, parse_value

Convert = Callable[[Any], Any]


class Key(NamedTuple):
    """What one key of a configuration means."""

    fact: str
    convert: Convert | None = None
    """Turns the file's value into one `parse_value` accepts; None takes it as it is. May raise ValueError."""
    role: str | None = None
    """The model it is about in reinforcement learning; None for all of them."""


_MAX_GUESSES = 100
"""Unread keys of one file for which the nearest known key is searched; each search takes a fraction of a millisecond."""

LEAVE = object()
"""What a conversion returns when the value states nothing about the fact."""


class Translation(NamedTuple):
    """The keys of one document, translated."""

    statements: tuple[Statement, ...]
    unread: tuple[tuple[str, str | None], ...]
    skipped: tuple[Skipped, ...]


def flatten(data: Mapping[str, Any], prefix: str = "", stop: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every leaf as a dotted key and its value; a key in ``stop`` is a leaf whatever it holds."""
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and key not in stop:
            yield from flatten(value, f"{key}.", stop)
        else:
            yield key, value


def translate(
    leaves: Iterator[tuple[str, Any]],
    table: Mapping[str, Key | tuple[Key, ...]],
    *,
    irrelevant: Callable[[str], bool],
    source: Source,
    auto: bool = False,
) -> Translation:
    """Translate dotted keys.

    Args:
        leaves: dotted keys with their values.
        table: what keys mean.
        irrelevant: tells whether a key is known and has no bearing on memory.
        source: the file.
        auto: whether the word ``auto`` stands for "filled in later".
    """
    statements: list[Statement] = []
    unread: list[tuple[str, str | None]] = []
    skipped: list[Skipped] = []
    for key, value in leaves:
        entry = table.get(key)
        if entry is None:
            misplaced = _misplaced(key, value, table)
            if misplaced is not None:
                name, wanted = misplaced
                skip = not_understood(source, name, wanted)
                if skip not in skipped:
                    skipped.append(skip)
                continue
            if irrelevant(key):
                statements.append(Statement(None, key, value))
            else:
                unread.append((key, nearest(key, list(table)) if len(unread) < _MAX_GUESSES else None))
            continue
        for meaning in meanings_of(entry):
            if auto and value == "auto":
                statements.append(Statement(meaning.fact, key, AUTO, meaning.role))
                continue
            try:
                converted = value if meaning.convert is None else meaning.convert(value)
                if converted is LEAVE:
                    statements.append(Statement(None, key, value, meaning.role))
                    continue
                parsed = parse_value(meaning.fact, converted, source._replace(key=key))
            except (UsageError, ValueError, TypeError, AttributeError, LookupError) as error:
                hint = error.hint if isinstance(error, UsageError) else str(error) or None
                reason = f"value {_short(value)} of {key} is not understood"
                skipped.append(Skipped(source._replace(key=key), reason, hint, fact=meaning.fact))
                continue
            statements.append(Statement(meaning.fact, key, parsed, meaning.role))
    return Translation(tuple(statements), tuple(unread), tuple(skipped))


def meanings_of(entry: Key | tuple[Key, ...]) -> tuple[Key, ...]:
    """Return what one key of a table means."""
    return (entry,) if isinstance(entry, Key) else entry


def not_understood(source: Source, key: str, wanted: str) -> Skipped:
    """Say that the value of a key is not one this release knows."""
    return Skipped(source._replace(key=key), f"value of {key} is not understood", f"expected {wanted}")


def _misplaced(key: str, value: object, table: Mapping[str, object]) -> tuple[str, str] | None:
    """Find a section written as one value, or a value written as a section; return its key and what is expected."""
    if value and not isinstance(value, Mapping) and any(name.startswith(f"{key}.") for name in table):
        return key, "a mapping of keys"
    parent = key
    while "." in parent:
        parent = parent.rpartition(".")[0]
        if table.get(parent) and not any(name.startswith(f"{parent}.") for name in table):
            return parent, "one value, not a mapping"
    return None


def _short(value: object) -> str:
    text = redact(repr(value))
    return text if len(text) <= 40 else text[:37] + "…"


def make_document(
    reader: str,
    source: Source,
    translation: Translation,
    references: tuple[tuple[str, str, str], ...] = (),
) -> Document:
    """Assemble a document; a file in which no key at all was understood is not one of this reader.

    Raises:
        InputError: nothing in the file was understood.
    """
    if not translation.statements and not translation.skipped and translation.unread:
        first = ", ".join(key for key, _ in translation.unread[:3])
        msg = f"none of its keys is known ({first})"
        raise InputError(msg, source=source, hint="is this the file you meant?")
    return Document(reader, source, translation.statements, translation.unread, translation.skipped, references)


def none_when_zero(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read 0, false and empty text as "none"."""
    return None if value in (0, False, "", "none", "None") else value


def stated(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a key that states nothing when it is null."""
    return LEAVE if value is None else value


def positive(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a number that states nothing unless it is whole and above 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else LEAVE


def lower_case(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a word whose case does not matter."""
    return str(value).lower()


def constant(value: object, _: object) -> object:
    """Return the first argument, whatever the key's own value; bind the first argument."""
    return value


def only_true(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a switch that says something only when it is on."""
    return True if value is True or str(value).lower() == "true" else LEAVE
