"""Values of a script's variables: text in pieces, some of which are unknown and named."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    return tuple(piece._replace(many=False) for piece in value) if is_many(value) else value


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
    return None, ()


def absence(name: str) -> str:
    """Spell the assumption that nobody sets a variable or gives an argument."""
    return f"{name} is not given" if name[1:2].isdigit() or name[1:2] in {"@", "*", "#"} else f"{name} is not set"


def same(first: Value, second: Value) -> bool:
    """Tell whether two values are equal, wherever they were written; what is unknown under one name counts as equal."""
    if first == second:
        return True
    one, two = text_of(first), text_of(second)
    if one is not None or two is not None:
        return one == two
    return [piece[:1] + piece[2:] for piece in first] == [piece[:1] + piece[2:] for piece in second]
