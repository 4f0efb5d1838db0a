"""``echo`` and ``printf``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.shell.expand import decode_ansi
from compatcheck.shell.limits import MAX_CHARACTERS, LimitError
from compatcheck.shell.values import Piece, Value, assumptions_of, from_text, names_of, text_of, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORMAT = re.compile(r"%(?P<flags>[-+ 0]*)(?P<width>\d{0,9})(?:\.(?P<precision>\d{1,9}))?(?P<kind>[sdib%])|%|[^%]+")
_MAX_WIDTH = 1000


def interpret_echo(arguments: list[Value], line: int) -> Value:
    """Return what ``echo`` prints."""
    end, escapes, rest = "\n", False, list(arguments)
    while rest:
        option = text_of(rest[0])
        if option is None or not re.fullmatch(r"-[neE]+", option):
            break
        rest.pop(0)
        end = "" if "n" in option else end
        escapes = escapes if not set(option) & {"e", "E"} else option.rfind("e") > option.rfind("E")
    pieces: list[Piece] = []
    for n, value in enumerate(rest):
        if n:
            pieces.append(Piece(" ", line))
        pieces.extend(value)
    if escapes:
        pieces = [
            piece if piece.text is None or "\\" not in piece.text else piece._replace(text=_unescape(piece.text))
            for piece in pieces
        ]
    return (*pieces, Piece(end, line)) if end else tuple(pieces)


def _unescape(text: str) -> str:
    r"""Read what ``echo -e`` and a format of ``printf`` know: ``\0NNN`` is octal."""
    text = re.sub(r"\\0([0-7]{1,3})", r"\\\1", text)
    return re.sub(r"(?:\\\\|\\['\"?]|[^\\]|\\(?!['\"?]))+", _decode_part, text, flags=re.DOTALL)


def _decode_part(match: re.Match[str]) -> str:
    return decode_ansi(match.group())


def format_printf(arguments: list[Value], line: int) -> Value:
    """Return what ``printf`` prints; the format is used again while arguments are left."""
    hidden = unknown("$(printf)", line)
    template = text_of(arguments[0]) if arguments else ""
    if template is None:
        return hidden
    if re.search(r"\\[c'\"?]", template):
        return hidden
    parts = list(_FORMAT.finditer(template))
    rest = list(arguments[1:])
    result: list[Piece] = []
    if any(match.group() == "%" for match in parts):
        return hidden
    takes = any(match["kind"] and match["kind"] != "%" for match in parts)
    while True:
        for match in parts:
            if match["kind"] is None:
                result.extend(from_text(_unescape(match.group()), line))
            elif match["kind"] == "%":
                result.append(Piece("%", line))
            else:
                value = rest.pop(0) if rest else None
                result.extend(_convert(match, value, line))
        if not rest or not takes:
            break
        if sum(len(piece.text or "") for piece in result) > MAX_CHARACTERS:
            raise LimitError(f"a value is longer than {MAX_CHARACTERS} characters")
    return _known(result)


def _known(pieces: Iterable[Piece]) -> Value:
    return tuple(piece for piece in pieces if piece.text != "")


def _convert(match: re.Match[str], value: Value | None, line: int) -> Value:
    text = "" if value is None else text_of(value)
    assumes = assumptions_of(value or ())
    kind, flags, precision = match["kind"], match["flags"], match["precision"]
    width = int(match["width"] or 0)
    if kind == "s" and not (match["width"] or precision) and value is not None:
        return value
    hidden = unknown((*names_of(value or ()), "$(printf)")[0], line)
    if text is None or width > _MAX_WIDTH or (kind == "b" and "\\" in text):
        return hidden
    if kind in "di":
        if not re.fullmatch(r"-?(0|[1-9]\d{0,17})?", text) or precision:
            return hidden
        text = str(int(text or 0))
        if "+" in flags or " " in flags:
            return hidden
    elif precision is not None:
        text = text[: int(precision)]
    if "-" in flags:
        text = text.ljust(width)
    elif "0" in flags and kind in "di":
        text = text.zfill(width)
    else:
        text = text.rjust(width)
    return from_text(text, line, assumes)
