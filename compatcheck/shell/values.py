"""Values of a script's variables: text in pieces, some of which are unknown and named."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Piece(NamedTuple):
    """A part of a value."""

    text: str | None
    """None is unknown."""
    line: int
    """Where it was written; first line is 1, and 0 what came from outside."""
    name: str = ""
    """What is unknown, as the script spells it: ``$N_NODES``, ``$(hostname)``."""
    implicit: bool = False
    """Whether the script never sets it, so that it is empty unless the environment or an argument says otherwise."""
    many: bool = False
    """Whether it may be no word or several."""
    assumes: tuple[str, ...] = ()
    """What the text rests on: ``$NNODES is not set``."""
    choices: tuple[tuple[Value, ...], ...] = ()
    """Lists of words one of which an unknown piece stands for, where every way to it is known."""


Value = tuple[Piece, ...]
"""A value is the concatenation of its pieces; no piece is the empty text."""


def from_text(text: str, line: int, assumes: tuple[str, ...] = ()) -> Value:
    """Make a known value."""
    return (Piece(text, line, assumes=assumes),)


def unknown(name: str, line: int, *, many: bool = False, implicit: bool = False) -> Value:
    """Make an unknown value."""
    return (Piece(None, line, name, implicit, many),)


def text_of(value: Iterable[Piece]) -> str | None:
    """Return the text of a value, or None if a piece is unknown."""
    texts = []
    for piece in value:
        if piece.text is None:
            return None
        texts.append(piece.text)
    return "".join(texts)


def names_of(value: Iterable[Piece]) -> tuple[str, ...]:
    """Return what is unknown in a value, each name once."""
    return tuple(dict.fromkeys(piece.name for piece in value if piece.text is None))


def assumptions_of(value: Iterable[Piece]) -> tuple[str, ...]:
    """Return what a value rests on, each assumption once."""
    return tuple(dict.fromkeys(assumption for piece in value for assumption in piece.assumes))


def show(value: Iterable[Piece]) -> str:
    """Spell a value with the names of what is unknown in it."""
    return "".join(piece.name if piece.text is None else piece.text for piece in value)


def is_many(value: Iterable[Piece]) -> bool:
    """Tell whether a value may be no word or several."""
    return any(piece.many for piece in value)


def single(value: Value) -> Value:
    """Return a value that is one word whatever it holds: it stood in quotes."""
    return tuple(piece._replace(many=False, choices=()) if piece.many else piece for piece in value)


def cut(value: Iterable[Piece], start: int, end: int) -> Value:
    """Return a part of a known value, each piece of it with its own line."""
    found, at = [], 0
    for piece in value:
        text = piece.text or ""
        part = text[max(start - at, 0) : max(end - at, 0)]
        at += len(text)
        if part:
            found.append(piece._replace(text=part))
    return tuple(found)


def drop(value: Value, count: int) -> Value:
    """Return a value without its first characters, which are known."""
    for n, piece in enumerate(value):
        if not count:
            return value[n:]
        text = piece.text or ""
        if len(text) > count:
            return (piece._replace(text=text[count:]), *value[n + 1 :])
        count -= len(text)
    return ()


def enter(here: Value, target: Value, line: int) -> Value:
    """Return the directory that a path names from another one."""
    text, base = text_of(target), text_of(here)
    if text is not None and (base is not None or posixpath.isabs(text)):
        return from_text(posixpath.normpath(posixpath.join(base or "", text)), line)
    if not target or target[0].text is None or posixpath.isabs(target[0].text):
        return single(target)
    return (*single(here), Piece("/", line), *single(target))


def known_end(directory: Value) -> str:
    """Return a directory, with a slash in front where only its end is known; nothing for the one it is started in."""
    text = text_of(directory)
    if text is not None:
        return "" if text in {"", "."} else posixpath.normpath(text)
    last = max(n for n, piece in enumerate(directory) if piece.text is None)
    _, slash, rest = show(directory[last + 1 :]).partition("/")
    end = posixpath.normpath(f"/./{rest}") if slash and not posixpath.normpath(rest).startswith("..") else "/"
    return "" if end == "/" else end


def line_of(value: Value, default: int) -> int:
    """Return the line of the first piece that has text and stands in the script."""
    return next((piece.line for piece in value if piece.text != "" and piece.line), default)


def is_empty(value: Value) -> tuple[bool | None, tuple[str, ...]]:
    """Tell whether a value is empty, and what the answer rests on; None is unknown."""
    if any(piece.text for piece in value):
        return False, assumptions_of(value)
    hidden = [piece for piece in value if piece.text is None]
    if not hidden:
        return True, assumptions_of(value)
    if all(piece.implicit for piece in hidden):
        return True, tuple(dict.fromkeys([*assumptions_of(value), *(absence(piece.name) for piece in hidden)]))
    for piece in hidden:
        answers = [is_empty(tuple(part for word in choice for part in word)) for choice in piece.choices]
        if answers and all(answer is False for answer, _ in answers):
            return False, tuple(dict.fromkeys(one for _, assumes in answers for one in assumes))
    return None, ()


def absence(name: str) -> str:
    """Spell the assumption that nobody sets a variable or gives an argument."""
    return f"{name} is not given" if name[1:2].isdigit() or name[1:2] in {"@", "*", "#"} else f"{name} is not set"


def choose(name: str, line: int, ways: Iterable[tuple[Value, ...]], *, many: bool) -> Value:
    """Make a value of which it is only known that it is one of several; one that is too many of them is unknown."""
    found: list[tuple[Value, ...]] = []
    for way in ways:
        for choice in _spread(way):
            if not any(len(choice) == len(other) and all(map(same, choice, other)) for other in found):
                found.append(choice)
    known = tuple(found) if len(found) <= _MAX_CHOICES and sum(map(len, found)) <= _MAX_WORDS else ()
    return (Piece(None, line, name, many=many, choices=known),)


_MAX_CHOICES, _MAX_WORDS = 8, 2000


def _spread(way: tuple[Value, ...]) -> Iterator[tuple[Value, ...]]:
    """Yield the choices of a list that is itself one of several."""
    if len(way) == 1 and len(way[0]) == 1 and way[0][0].choices:
        yield from way[0][0].choices
    else:
        yield way


def same(first: Value, second: Value) -> bool:
    """Tell whether two values are equal, wherever they were written; what is unknown under one name counts as equal."""
    if first == second:
        return True
    one, two = text_of(first), text_of(second)
    if one is not None or two is not None:
        return one == two
    return [piece[:1] + piece[2:] for piece in first] == [piece[:1] + piece[2:] for piece in second]
