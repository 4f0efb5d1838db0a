"""From the keys of a configuration to statements in the vocabulary, by key table; keys nobody understands are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import AUTO, TAKEN_AS_IDLE, Document, Gap, Statement, Unresolved, enclosing_keys
from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import redact
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.conversions import LEAVE, OPEN
from compatcheck.frameworks.keys import ANYTHING
from compatcheck.rules.values import parse_value
from compatcheck.rules.vocabulary import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from compatcheck.frameworks.keys import Key

_MAX_GUESSES = 100
"""Unread keys of one file or command for which the nearest known key is searched, in a fraction of a millisecond each."""


def guess_unread(names: Iterable[str], known: Collection[str]) -> tuple[tuple[str, str | None], ...]:
    """Return names that nobody understands, the first `_MAX_GUESSES` with the known one each is most like."""
    near = list(known)
    return tuple((name, nearest(name, near) if at < _MAX_GUESSES else None) for at, name in enumerate(names))


class Translation(NamedTuple):
    """The keys of one document, translated."""

    statements: tuple[Statement, ...]
    unread: tuple[tuple[str, str | None], ...]
    skipped: tuple[Skipped, ...]
    table: Mapping[str, tuple[Key, ...]] = {}
    """By which they were translated."""
    unresolved: tuple[Unresolved, ...] = ()
    """Keys that decide a fact in a way that no reader follows."""
    gaps: tuple[Gap, ...] = ()
    """Keys that may change what no fact tells."""


def flatten(data: Mapping[str, Any], prefix: str = "", stop: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every leaf as a dotted key and its value; a key in ``stop`` is a leaf whatever it holds."""
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and key not in stop:
            yield from flatten(value, f"{key}.", stop)
        else:
            yield key, value


def quote_dotted(data: Mapping[str, Any]) -> dict[str, Any]:
    """Quote the names in a file that have a dot, so that none is taken for a section and an entry of it."""
    return {
        f'"{name}"' if "." in name else name: quote_dotted(value)
        if isinstance(value, Mapping) and all(isinstance(one, str) for one in value)
        else value
        for name, value in data.items()
    }


def translate(
    leaves: Iterator[tuple[str, Any]],
    table: Mapping[str, tuple[Key, ...]],
    *,
    irrelevant: Callable[[str], bool],
    source: Source,
    names: Collection[str] = (),
    auto: bool = False,
) -> Translation:
    """Translate dotted keys.

    Args:
        leaves: dotted keys with their values.
        table: what keys mean.
        irrelevant: tells whether a key is known and has no bearing on memory.
        source: the file.
        names: keys without bearing that a misspelt one may have meant, where none of the table is near.
        auto: whether the word ``auto`` stands for "filled in later".
    """
    statements: list[Statement] = []
    unread: list[tuple[str, str | None]] = []
    skipped: list[Skipped] = []
    unresolved: list[Unresolved] = []
    gaps: list[Gap] = []
    sections: set[str] = set()
    for key, value in leaves:
        entry = table.get(key)
        if entry is None:
            sections = sections or {outer for name in table for outer in enclosing_keys(name)}
            misplaced = _misplaced(key, value, table, sections)
            if misplaced is not None:
                name, wanted = misplaced
                skip = not_understood(source, name, wanted)
                if skip not in skipped:
                    skipped.append(skip)
                continue
            if irrelevant(key) or value == {}:  # an empty section states nothing
                statements.append(Statement(None, key, value))
            else:
                guesses = len(unread) < _MAX_GUESSES
                unread.append((key, nearest(key, list(table)) or nearest(key, list(names)) if guesses else None))
            continue
        for meaning in entry:
            if auto and value == "auto":
                statements.append(Statement(meaning.fact, key, AUTO, meaning.role))
                continue
            try:
                converted = value if meaning.convert is None else meaning.convert(value)
                if converted is OPEN and meaning.fact != ANYTHING:
                    unresolved.append(
                        Unresolved(
                            meaning.fact,
                            key,
                            "decides it in a way that was not read",
                            meaning.role,
                            without=meaning.without,
                        )
                    )
                    continue
                if converted is OPEN:
                    gaps.append(
                        Gap(source._replace(key=key), f"may change what the run needs; {TAKEN_AS_IDLE}", assumed=True)
                    )
                if converted is LEAVE or meaning.fact == ANYTHING:
                    statements.append(Statement(None, key, value, meaning.role))
                    continue
                parsed = parse_value(meaning.fact, converted, source._replace(key=key))
            except (UsageError, ValueError, TypeError, AttributeError, LookupError) as error:
                hint = error.hint if isinstance(error, UsageError) else str(error) or None
                reason = f"value {_short(value)} of {key} is not understood"
                skipped.append(Skipped(source._replace(key=key), reason, hint, fact=meaning.fact))
                continue
            statements.append(Statement(meaning.fact, key, parsed, meaning.role, meaning.without))
    return Translation(tuple(statements), tuple(unread), tuple(skipped), table, tuple(unresolved), tuple(gaps))


def not_understood(source: Source, key: str, wanted: str) -> Skipped:
    """Say that the value of a key is not one this release knows."""
    return Skipped(source._replace(key=key), f"value of {key} is not understood", f"expected {wanted}")


def _misplaced(
    key: str, value: object, table: Mapping[str, object], sections: Collection[str]
) -> tuple[str, str] | None:
    """Find a section written as one value, or a value written as a section; return its key and what is expected."""
    if value and not isinstance(value, Mapping) and key in sections:
        return key, "a mapping of keys"
    parent = key
    while "." in parent:
        parent = parent.rpartition(".")[0]
        if table.get(parent) and parent not in sections:
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
    return Document(
        reader,
        source,
        translation.statements,
        translation.unread,
        translation.skipped,
        references,
        unresolved=translation.unresolved,
        gaps=translation.gaps,
        table=translation.table,
    )
