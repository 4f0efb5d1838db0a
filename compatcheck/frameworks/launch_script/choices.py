"""A command some of whose words depend on a condition that is not known: what every way to write it says alike is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Gap, Statement, Unresolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.command import Command, Word

_MAX_WAYS = 32


def spread(command: Command) -> tuple[Command, ...]:
    """Return a command in the ways it may run: with the first choice everywhere, with one other choice, with the last ones.

    A key that differs between any two of all combinations differs between two of these, but for words that undo each other.
    """
    places = [place for place, word in enumerate(command.words) if word.choices]
    last = {place: len(command.words[place].choices) - 1 for place in places}
    ways = [{}, *({place: n} for place in places for n in range(1, last[place] + 1)), last]
    if not places or len(ways) > _MAX_WAYS:
        return (command,)
    unique = {tuple(_choose(command.words, way)): None for way in ways}
    return tuple(command._replace(words=words) for words in unique)


def _choose(words: Sequence[Word], way: dict[int, int]) -> Iterator[Word]:
    for place, word in enumerate(words):
        if word.choices:
            yield from word.choices[way.get(place, 0)]
        else:
            yield word


def unite(ways: Sequence[tuple[Document, ...]], command: Command) -> tuple[Document, ...]:
    """Return what a command says in every way; what differs is unresolved."""
    if len(ways) == 1:
        return ways[0]
    words = ", ".join(dict.fromkeys(word.written for word in command.words if word.choices))
    why = f"depends on {words}, which the script sets under a condition that is not known"
    readers = dict.fromkeys(document.reader for documents in ways for document in documents)
    united: list[Document] = []
    for reader in readers:
        found = [[document for document in documents if document.reader == reader] for documents in ways]
        most = max(map(len, found))
        united += [_unite_one([one[n] if n < len(one) else None for one in found], why) for n in range(most)]
    return tuple(united)


def _unite_one(ways: Sequence[Document | None], why: str) -> Document:
    known = [document for document in ways if document is not None]
    first = known[0]
    statements: dict[Statement, None] = {}
    for document in known:
        statements.update(dict.fromkeys(map(_freeze, document.statements)))
    everywhere = set(statements) if len(known) == len(ways) else set()
    for document in known:
        everywhere &= set(map(_freeze, document.statements))
    differing = [one for one in statements if one not in everywhere]
    unsure = {(one.fact, one.role) for one in differing}
    kept = [one for one in statements if one in everywhere and (one.fact is None or (one.fact, one.role) not in unsure)]
    kept += [one for one in differing if one.fact is None and one.role is None]
    unresolved = [Unresolved(one.fact, one.key, why, one.role) for one in differing if one.fact is not None]
    references = dict.fromkeys(entry for document in known for entry in document.references)
    shared = [entry for entry in references if all(entry in document.references for document in known)]
    gaps: list[Gap] = []
    for kind, _, key in references.keys() - dict.fromkeys(shared).keys():
        if kind.startswith("model"):
            unresolved.append(Unresolved("model.name", key, why, kind.partition(":")[2] or None))
        else:
            gaps.append(Gap(first.place(key), f"{why}, and names a file"))
    return first._replace(
        statements=tuple(kept),
        unread=tuple(dict.fromkeys(entry for document in known for entry in document.unread)),
        skipped=tuple(dict.fromkeys(entry for document in known for entry in document.skipped)),
        references=tuple(shared),
        lines={key: line for document in reversed(known) for key, line in document.lines.items()},
        uses={key: line for document in reversed(known) for key, line in document.uses.items()},
        unresolved=tuple(dict.fromkeys([*(one for way in known for one in way.unresolved), *unresolved])),
        gaps=tuple(dict.fromkeys([*(gap for document in known for gap in document.gaps), *gaps])),
    )


def _freeze(statement: Statement) -> Statement:
    """Return a statement that can stand in a set, whatever its raw value is."""
    try:
        hash(statement.value)
    except TypeError:
        return statement._replace(value=repr(statement.value))
    return statement
