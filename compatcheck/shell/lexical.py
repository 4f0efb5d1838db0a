"""Where words, quotes, expansions and brackets end."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

MAX_DEPTH = 40
"""Expansions and statements inside one another."""

BLANKS = " \t"
META = " \t\n;&|()<>"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[(?:[^\]]|\](?=[^=+]))*\])?(\+?)=")
OPERATOR = re.compile(r"<<<|<<-?|<&|<>|<|>>|>&|>\||>|&>>|&>")
_PLAIN = re.compile(r"[^ \t\n;&|()<>\\'\"$`]+")
_PLAIN_IN_QUOTES = re.compile(r"[^\"\\$`]+")
_PARAMETER = re.compile(r"!?(?:[A-Za-z_0-9]+|[@*#?$!-])(?:\[[^\]]{0,256}\])?")
"""With the index of an array, which is not looked for to the end of the text for each that is not closed."""
_SPECIAL = "@*#?-$!_0123456789"


class UnclosedError(ValueError):
    """A quote, an expansion or an array has no end."""

    def __init__(self, offset: int, what: str) -> None:
        """Keep where it starts, and what it is."""
        super().__init__(f"{what} is not closed")
        self.offset = offset


class TooDeepError(UnclosedError):
    """Expansions and statements stand in one another deeper than is read."""

    def __init__(self, offset: int) -> None:
        """Keep where the reading ends."""
        ValueError.__init__(self, f"is nested more than {MAX_DEPTH} levels deep")
        self.offset = offset


class Lexer(ABC):
    """Find the ends of things in one text."""

    def __init__(self, text: str, depth: int = 0) -> None:
        """Look at a text that stands ``depth`` expansions deep."""
        self.text = text
        self.depth = depth
        self._dollars: dict[tuple[int, bool], int | UnclosedError] = {}

    def single(self, i: int) -> int:
        """Return the end of ``'…'``."""
        end = self.text.find("'", i + 1)
        if end < 0:
            raise UnclosedError(i, "a single quote")
        return end + 1

    def ansi(self, i: int) -> int:
        """Return the end of ``$'…'``, given its quote."""
        return self._escaped(i, "a $'…' quote")

    def double(self, i: int) -> int:
        """Return the end of ``"…"``."""
        at = i + 1
        while at < len(self.text):
            char = self.text[at]
            if char == '"':
                return at + 1
            if char == "\\":
                at += 2
            elif char in "$`":
                at = self.expansion(at, quoted=True)
            else:
                plain = _PLAIN_IN_QUOTES.match(self.text, at)
                at = plain.end() if plain else at + 1
        raise UnclosedError(i, "a double quote")

    def backtick(self, i: int) -> int:
        """Return the end of a command in back ticks."""
        return self._escaped(i, "a back tick")

    def _escaped(self, i: int, name: str) -> int:
        """Return the end of what the mark here opens and the next one closes that stands behind no backslash."""
        at = i + 1
        while at < len(self.text):
            if self.text[at] == self.text[i]:
                return at + 1
            at += 2 if self.text[at] == "\\" else 1
        raise UnclosedError(i, name)

    def enter(self, i: int) -> None:
        """Go one level deeper.

        Raises:
            TooDeepError: that is deeper than is read.
        """
        if self.depth >= MAX_DEPTH:
            raise TooDeepError(i)
        self.depth += 1

    def expansion(self, i: int, *, quoted: bool = False) -> int:
        """Return the end of what starts with ``$`` or a back tick."""
        if self.text[i] == "`":
            return self.backtick(i)
        key = i, quoted
        if key not in self._dollars:
            self.enter(i)
            try:
                self._dollars[key] = self._dollar(i, quoted=quoted)
            except UnclosedError as error:
                self._dollars[key] = error
            finally:
                self.depth -= 1
        end = self._dollars[key]
        if isinstance(end, UnclosedError):
            raise end
        return end

    def _dollar(self, i: int, *, quoted: bool) -> int:
        following = self.text[i + 1 : i + 2]
        match following:
            case "'" if not quoted:
                return self.ansi(i + 1)
            case '"' if not quoted:
                return self.double(i + 1)
            case "(":
                end = self.arithmetic(i + 3) if self.text.startswith("((", i + 1) else None
                return end or self.commands(i + 2)
            case "{":
                return self.braces(i + 2, quoted=quoted)
            case "[":
                return self.brackets(i + 2)
            case _:
                name = NAME.match(self.text, i + 1)
                return name.end() if name else i + 2 if following and following in _SPECIAL else i + 1

    def arithmetic(self, i: int) -> int | None:
        """Return the end of ``…))``, or None when the parentheses are not those of arithmetic."""
        depth = 0
        while i < len(self.text):
            char = self.text[i]
            if char == "(":
                depth += 1
            elif char == ")" and not depth:
                return i + 2 if self.text.startswith("))", i) else None
            elif char == ")":
                depth -= 1
            try:
                i = self._quoted(i) or i + 1
            except UnclosedError:
                return None
        return None

    def _quoted(self, i: int) -> int | None:
        """Return the end of the quoted text or expansion at an offset, None if there is none."""
        match self.text[i]:
            case "\\":
                return i + 2
            case "'":
                return self.single(i)
            case '"':
                return self.double(i)
            case "$" | "`":
                return self.expansion(i)
            case _:
                return None

    @abstractmethod
    def commands(self, i: int) -> int:
        """Return the end of the commands in ``$( … )`` or ``<( … )``, given their inside."""

    def braces(self, i: int, *, quoted: bool) -> int:
        """Return the end of ``${ … }``."""
        start = i
        head = _PARAMETER.match(self.text, i)
        operator = self.text[head.end() : head.end() + 1] if head else ""
        literal = quoted and operator not in set("#%/^,")
        while i < len(self.text):
            char = self.text[i]
            if char == "}":
                return i + 1
            i = i + 1 if char == "'" and literal else self._quoted(i) or i + 1
        raise UnclosedError(start - 2, "${")

    def brackets(self, i: int) -> int:
        """Return the end of ``[ … ]``, given its inside."""
        start, depth = i, 0
        while i < len(self.text):
            if self.text[i] == "]" and not depth:
                return i + 1
            depth += {"[": 1, "]": -1}.get(self.text[i], 0)
            i = self._quoted(i) or i + 1
        raise UnclosedError(start - 1, "[")

    def array(self, i: int) -> int:
        """Return the end of an array's ``( … )``."""
        start = i
        i = self.skip_space(i + 1)
        while i < len(self.text):
            if self.text[i] == ")":
                return i + 1
            i = self.skip_space(max(self.word(i), i + 1))
        raise UnclosedError(start, "an array")

    def skip_space(self, i: int) -> int:
        """Pass over blanks, ends of lines, continuations and comments."""
        while i < len(self.text):
            if self.text[i] in " \t\n":
                i += 1
            elif self.text.startswith("\\\n", i):
                i += 2
            elif self.text[i] == "#":
                end = self.text.find("\n", i)
                i = len(self.text) if end < 0 else end
            else:
                break
        return i

    def group(self, i: int) -> int:
        """Return the end of the parentheses of a pattern: ``@(a|b)``."""
        start, depth = i, 0
        while i < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.text[i], 0)
            if self.text[i] == ")" and not depth:
                return i + 1
            i = self._quoted(i) or i + 1
        raise UnclosedError(start, "(")

    def test(self, i: int) -> int:
        """Return the end of ``[[ … ]]``."""
        start = i
        i += 2
        while i < len(self.text):
            if (
                self.text.startswith("]]", i)
                and self.text[i - 1] in " \t\n"
                and self.text[i + 2 : i + 3] in ("", *META)
            ):
                return i + 2
            i = self._quoted(i) or i + 1
        raise UnclosedError(start, "[[")

    def word(self, i: int) -> int:
        """Return the end of the word at an offset: the offset itself if an operator stands there."""
        start = i
        while i < len(self.text):
            char = self.text[i]
            if char in "<>" and self.text[i + 1 : i + 2] == "(":
                self.enter(i)
                i = self.commands(i + 2)
                self.depth -= 1
            elif char == "(" and ASSIGNMENT.fullmatch(self.text, start, i):
                i = self.array(i)
            elif char == "(" and i > start and self.text[i - 1] in "?*+@!":
                i = self.group(i)
            elif char in META:
                break
            elif plain := _PLAIN.match(self.text, i):
                i = plain.end()
            else:
                i = self._quoted(i) or i + 1
        return min(i, len(self.text))


def remove_quotes(word: str) -> str:
    """Return a word that is not expanded, without its quotes: the delimiter of a here-document."""
    return re.sub(r"\\\n|\\(.)|'([^']*)'|\$?\"([^\"]*)\"", lambda m: m[1] or m[2] or m[3] or "", word, flags=re.DOTALL)
