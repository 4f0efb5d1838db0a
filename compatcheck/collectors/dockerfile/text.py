"""The text of a Dockerfile: instructions with their lines, here-documents, and variables.

https://docs.docker.com/reference/dockerfile/ : parser directives, line continuation, comments, here-documents, and the
substitution that the builder itself does (``$NAME``, ``${NAME:-word}``, ``${NAME#pattern}``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.shell import expand_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(\S+)\s*$")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_.]*)\1")
"""What begins a here-document, with the word that ends it."""
_TAKES_HEREDOC = {"RUN", "COPY", "ADD"}
INSTRUCTIONS = frozenset(
    {"FROM", "ARG", "ENV", "RUN", "COPY", "ADD", "WORKDIR", "SHELL", "CMD", "ENTRYPOINT", "LABEL", "MAINTAINER"}
    | {"EXPOSE", "VOLUME", "USER", "ONBUILD", "STOPSIGNAL", "HEALTHCHECK"}
)
"""What a builder takes; it refuses the whole file for any other."""
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)", re.ASCII)
_NO_VARIABLE = re.compile(r"(?<!\\)\$(?!\{?[A-Za-z_])")
_LINE_END = re.compile(r"\r\n?|\n")
_FIRST_WORD = re.compile(r"[\t\v\f ]*([^\t\v\f ]+)(?:[\t\v\f ]+|$)")
"""https://github.com/moby/buildkit/blob/33e66816a41d/frontend/dockerfile/parser/split_command.go splits at no other blank."""
MAX_VALUE = 4_096
"""Most characters that variables may add to a text: each can hold those before it several times over."""
MAX_VARIABLES = 2_000
"""Most variables of a stage that are followed."""


class Text(NamedTuple):
    """A piece of a file that was joined from several lines."""

    content: str
    starts: tuple[tuple[int, int], ...]
    """Offset at which a line begins → its number, in order."""

    def line(self, offset: int) -> int:
        """Return the line an offset stands in."""
        low, high = 0, len(self.starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.starts[middle][0] <= offset else (low, middle)
        return self.starts[low][1]


class Instruction(NamedTuple):
    """One instruction, continued lines joined."""

    name: str
    """Upper case: ``RUN``; of a line that is none, what stands in the place of one."""
    text: Text
    """What stands behind the name."""
    line: int
    """Line it begins in."""
    documents: tuple[Text, ...] = ()
    """Its here-documents."""


def read_instructions(text: str) -> Iterator[Instruction]:
    """Split a Dockerfile into instructions; those whose name is none of `INSTRUCTIONS` are lines that a builder refuses."""
    lines = _LINE_END.split(text)
    escape = _escape(lines)
    number = 0
    while number < len(lines):
        line = lines[number]
        if not line.strip() or line.lstrip().startswith("#"):
            number += 1
            continue
        pieces: list[tuple[str, int]] = []
        while number < len(lines):
            line = lines[number]
            number += 1
            if pieces and (line.lstrip().startswith("#") or not line.strip()):
                continue  # comments and empty lines between continued ones are left out
            stripped = line.rstrip()
            continued = stripped.endswith(escape)
            pieces.append((stripped[:-1] if continued else line, number))
            if not continued:
                break
        joined = _join(pieces)
        match = _FIRST_WORD.match(joined.content)
        if match is None:
            continue  # a continued line that holds nothing
        name = match[1].upper()
        documents: list[Text] = []
        if name in _TAKES_HEREDOC:
            for marker in HEREDOC.finditer(joined.content):
                body: list[tuple[str, int]] = []
                while number < len(lines):
                    line = lines[number]
                    number += 1
                    if line.strip("\t") == marker[2] or line == marker[2]:
                        break
                    body.append((line, number))
                documents.append(_join(body, "\n"))
        yield Instruction(name, _cut(joined, match.end()), pieces[0][1], tuple(documents))


def _escape(lines: list[str]) -> str:
    """Return the character that continues a line: a directive at the very top may change it."""
    for line in lines:
        match = _DIRECTIVE.match(line.strip())
        if match is None:
            break
        if match[1].lower() == "escape" and match[2] == "`":
            return "`"
    return "\\"


def _join(pieces: list[tuple[str, int]], between: str = "") -> Text:
    starts, length = [], 0
    for content, number in pieces:
        starts.append((length, number))
        length += len(content) + len(between)
    return Text(between.join(content for content, _ in pieces), tuple(starts) or ((0, 1),))


def _cut(text: Text, start: int) -> Text:
    """Return a text from an offset on."""
    first = text.line(start)
    later = tuple((offset - start, number) for offset, number in text.starts if offset > start)
    return Text(text.content[start:], ((0, first), *later))


def substitute(text: str, value: Callable[[str], str | None]) -> str | None:
    """Replace the variables of a text as the builder does: those of the shell, but no commands and no arithmetic.

    Args:
        text: an argument of an instruction.
        value: returns what a variable holds, None where that is not known.

    Returns:
        The text, or None where a variable in it is not known or the result grows beyond all measure.
    """
    if "{{" in text:  # a template that is not filled in
        return None
    if "$" not in text:
        return text
    if _NO_VARIABLE.search(text):
        return None
    known = {name: held for name in set(_NAME.findall(text)) if (held := value(name)) is not None}
    replaced = expand_text(re.sub(r"\\(?!\$)|`", r"\\\g<0>", text), known)
    return None if replaced is None or len(replaced) > len(text) + MAX_VALUE else replaced


def unquote(text: str) -> str:
    """Remove the quotes around a value of ``ENV`` and ``ARG``."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


_OPTIONS = re.compile(r"(?:--\w+=\S+\s+)*")
_SHELL = re.compile(r"\s*(?:ba|z|da)?sh\b")


def split_options(text: str) -> int:
    """Return where the command of ``RUN --mount=… command`` begins."""
    match = _OPTIONS.match(text)
    return match.end() if match else 0


def reads_documents(instruction: Instruction) -> tuple[bool, bool]:
    """Tell whether the words of ``RUN`` are a command, and whether its here-documents are text of a shell."""
    body = instruction.text.content[split_options(instruction.text.content) :]
    if not instruction.documents:
        return True, False
    alone = body.lstrip().startswith("<<")
    return not alone, alone or _SHELL.match(body) is not None


_ASSIGNMENT = re.compile(r"([A-Za-z_][\w.-]*)=((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|[^\s\"'\\])*)")


def read_assignments(text: str) -> list[tuple[str, str]]:
    """Read the pairs of ``ENV`` and ``LABEL``: ``A=1 B="2 3"``, or the old form ``A 1``."""
    pairs = [(match[1], match[2]) for match in _ASSIGNMENT.finditer(text)]
    name, blank, rest = text.strip().partition(" ")
    if blank and "=" not in name:
        return [(name, rest.strip())]
    return [(key, re.sub(r"\\(.)", r"\1", unquote(value))) for key, value in pairs]
