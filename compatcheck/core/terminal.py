"""Text from inputs that nobody vouches for, made harmless to a terminal: names in an image or a paste may hold commands to it."""

from __future__ import annotations

import re

from compatcheck.core.redaction import redact

_CONTROL = r"\x1b|\r(?!\n)|[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
"""Signs that move the cursor, turn the direction of writing or begin a command."""
_COLOUR = r"\x1b(?=\[(?:[012]|1;31|3[1236])m)"
"""How the colours of reports themselves begin."""


def make_harmless(text: str, *, coloured: bool = False) -> str:
    """Write what would command a terminal as the escapes of JSON; lines stay, and where a report has colours, these.

    Every report passes here on its way out, whatever formats it: credentials that a reader left in a text end here.
    """
    text = redact(text)
    if text.replace("\n", "").isprintable():  # as most are; the pattern takes longer to compile than a report to read
        return text
    return re.sub(rf"(?!{_COLOUR})(?:{_CONTROL})" if coloured else _CONTROL, _escape, text)


def escape_name(text: str) -> str:
    """Write every control character of a name as the escape of JSON, so that it stays in its line."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", _escape, text)


def escape_lines(text: str) -> str:
    """Write every control character of a text without colours as the escape of JSON, but for its line breaks."""
    return "\n".join(map(escape_name, text.split("\n")))


def disarm(text: str) -> str:
    """Write what a runner of GitHub would take for a command so that it takes it for none: the name of a file may be one."""
    return re.sub(r"(?m)^([^\S\n]*):(?=:)", r"\1: ", text).replace("##[", "# #[")


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def printable(text: str, encoding: str, *, coloured: bool = False) -> str:
    """Write as escapes what an encoding cannot hold, and what would command the terminal; both come in names of files.

    In JSON these escapes mean the very characters.
    """
    text = make_harmless(text, coloured=coloured)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        from json import dumps  # noqa: PLC0415 (rare)

        kept = text.encode(encoding, "ignore").decode(encoding)
        escapes = {ord(sign): dumps(sign)[1:-1] for sign in set(text) - set(kept)}
        return text.translate(escapes)
    return text
