"""Where quotes, expansions, words and here-documents end, and a script's bare outline for the grammar.

The grammar of statements is tree-sitter's. It is given an outline: every word, quoted text, array, test and here-document
is replaced by letters of the same length, and so is a redirection in a simple command; comments, continued lines and the
redirections of a compound command are replaced by blanks. So what it has to know is keywords and operators, and every offset
still fits the script. (Given redirections, tree-sitter-bash 0.25.1 reads ``a > b | c``, an end of line and ``d > e | f`` as one
pipeline.)
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_DEPTH = 40
"""Expansions inside one another."""

BLANKS = " \t"
META = " \t\n;&|()<>"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[(?:[^\]]|\](?=[^=+]))*\])?(\+?)=")
OPERATOR = re.compile(r"<<<|<<-?|<&|<>|<|>>|>&|>\||>|&>>|&>")
_OPENING = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{"})
_CLOSING = frozenset({"fi", "done", "}"})
_SPECIAL = "@*#?-$!_0123456789"


class UnclosedError(ValueError):
    """A quote, an expansion or an array has no end."""

    def __init__(self, offset: int, what: str) -> None:
        """Keep where it starts, and what it is."""
        super().__init__(f"{what} is not closed")
        self.offset = offset
        self.what = what


class Heredoc(NamedTuple):
    """Text of a here-document."""

    start: int
    end: int
    quoted: bool
    """Whether its delimiter was quoted, so that nothing in it is expanded."""
    tabs: bool
    """Whether leading tabs are dropped (``<<-``)."""


class Lexer:
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
        at = i + 1
        while at < len(self.text):
            if self.text[at] == "'":
                return at + 1
            at += 2 if self.text[at] == "\\" else 1
        raise UnclosedError(i, "a $'…' quote")

    def double(self, i: int) -> int:
        """Return the end of ``"…"``."""
        at = i + 1
        while at < len(self.text):
            char = self.text[at]
            if char == '"':
                return at + 1
            at = at + 2 if char == "\\" else self.expansion(at, quoted=True) if char in "$`" else at + 1
        raise UnclosedError(i, "a double quote")

    def backtick(self, i: int) -> int:
        """Return the end of a command in back ticks."""
        at = i + 1
        while at < len(self.text):
            if self.text[at] == "`":
                return at + 1
            at += 2 if self.text[at] == "\\" else 1
        raise UnclosedError(i, "a back tick")

    def expansion(self, i: int, *, quoted: bool = False) -> int:
        """Return the end of what starts with ``$`` or a back tick."""
        if self.text[i] == "`":
            return self.backtick(i)
        key = i, quoted
        if key not in self._dollars:
            if self.depth >= MAX_DEPTH:
                raise UnclosedError(i, f"an expansion more than {MAX_DEPTH} levels deep")
            self.depth += 1
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

    def commands(self, i: int) -> int:
        """Return the end of the commands in ``$( … )`` or ``<( … )``."""
        outline = Outline(self.text, self.depth)
        outline._dollars = self._dollars  # noqa: SLF001 (the same text: what was found there need not be found again)
        return outline.run(i, closing=True)

    def braces(self, i: int, *, quoted: bool) -> int:
        """Return the end of ``${ … }``."""
        start = i
        head = re.compile(r"!?(?:[A-Za-z_0-9]+|[@*#?$!-])(?:\[[^\]]*\])?").match(self.text, i)
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

    def skip_blanks(self, i: int) -> int:
        """Pass over blanks and continuations."""
        while i < len(self.text):
            if self.text[i] in BLANKS:
                i += 1
            elif self.text.startswith("\\\n", i):
                i += 2
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
                self.depth += 1
                if self.depth > MAX_DEPTH:
                    raise UnclosedError(i, f"an expansion more than {MAX_DEPTH} levels deep")
                i = self.commands(i + 2)
                self.depth -= 1
            elif char == "(" and ASSIGNMENT.fullmatch(self.text, start, i):
                i = self.array(i)
            elif char == "(" and i > start and self.text[i - 1] in "?*+@!":
                i = self.group(i)
            elif char in META:
                break
            else:
                i = self._quoted(i) or i + 1
        return min(i, len(self.text))


class Outline(Lexer):
    """A script's statements without its words."""

    def __init__(self, text: str, depth: int = 0) -> None:
        """Start with the text itself."""
        super().__init__(text, depth)
        self.mask = list(text)
        self.heredocs: dict[int, Heredoc] = {}
        """By the offset of the ``<<``."""
        self.errors: list[tuple[int, str]] = []
        """What bash would refuse and the grammar would not, by offset."""
        self._pending: list[tuple[int, str, bool]] = []
        self._command = True
        """Whether a keyword may stand here."""
        self._closed = False
        """Whether a compound command has just ended."""
        self._header = ""
        """``for``, ``case`` or ``function`` after which a name is expected, then ``for in`` or ``case in``."""
        self._nest: list[str] = []

    def run(self, i: int = 0, *, closing: bool = False) -> int:
        """Outline the text from an offset; with ``closing``, until the parenthesis that ends it."""
        start = i
        while True:
            i = self._blank(i)
            if i >= len(self.text):
                break
            char = self.text[i]
            operator = OPERATOR.match(self.text, i)
            if char == "\n":
                i = self._newline(i)
            elif char == ")":
                if closing and not self._nest:
                    return i + 1
                self._close()
                i += 1
            elif operator and self.text[i : i + 2] not in {"<(", ">("}:
                i = self._redirection(i, operator.group())
            elif char in ";&|":
                i = self._separator(i)
            elif char == "(":
                i = self._parenthesis(i)
            else:
                i = self._word(i)
        if closing:
            raise UnclosedError(start - 2, "$(")
        self._read_heredocs(len(self.text))
        return i

    def _put(self, start: int, end: int, char: str) -> None:
        end = min(end, len(self.mask))
        self.mask[start:end] = char * (end - start)

    def _blank(self, i: int) -> int:
        while i < len(self.text):
            if self.text[i] in BLANKS:
                i += 1
            elif self.text.startswith("\\\n", i):
                self._put(i, i + 2, " ")
                i += 2
            elif self.text[i] == "#":
                end = self.text.find("\n", i)
                end = len(self.text) if end < 0 else end
                self._put(i, end, " ")
                i = end
            else:
                break
        return i

    def _newline(self, i: int) -> int:
        self._command, self._closed = True, False
        self._header = self._header if self._header == "for in" else ""
        return self._read_heredocs(i + 1)

    def _read_heredocs(self, i: int) -> int:
        for offset, written, tabs in self._pending:
            delimiter = remove_quotes(written)
            start = i
            while i < len(self.text):
                end = self.text.find("\n", i)
                end = len(self.text) if end < 0 else end
                line = self.text[i:end]
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                i = end + 1
            body_end = min(i, len(self.text))
            self.heredocs[offset] = Heredoc(start, body_end, delimiter != written, tabs)
            end = self.text.find("\n", i)
            i = len(self.text) if end < 0 else end + 1
            self._put(start, i, " ")
        self._pending = []
        return i

    def _separator(self, i: int) -> int:
        self._command, self._closed = True, False
        if self._header != "for in":
            self._header = ""
        end = i
        while end < len(self.text) and self.text[end] in ";&|" and self.text[i : end + 1] in _SEPARATORS:
            end += 1
        if self.text[i:end] in {";;", ";&", ";;&"} and self._nest[-1:] == ["case"]:
            self._nest[-1] = "pattern"
        return end

    def _close(self) -> None:
        self._command, self._closed = True, self._nest[-1:] == ["("]
        if self._nest[-1:] == ["("]:
            self._nest.pop()
        elif self._nest[-1:] == ["pattern"]:
            self._nest[-1] = "case"

    def _parenthesis(self, i: int) -> int:
        if self.text.startswith("((", i) and (self._command or self._header == "for"):
            end = self.arithmetic(i + 2)
            if end is not None:
                self._put(i, end, "x")
                if self._header == "for":
                    self.mask[i : i + 5] = "x in "
                self._command, self._header = False, ""
                return end
        if self._nest[-1:] != ["pattern"]:
            self._nest.append("(")
        self._command, self._closed = True, False
        return i + 1

    def _redirection(self, i: int, operator: str) -> int:
        start = self._blank(i + len(operator))
        end = self.word(start)
        if end == start:
            self.errors.append((i, f"{operator} has no file after it"))
        self._put(i, end, " " if self._closed else "x")
        self._command = False
        if operator in {"<<", "<<-"}:
            self._pending.append((i, self.text[start:end], operator == "<<-"))
        return end

    def _word(self, i: int) -> int:
        if self._command and self.text.startswith("[[", i) and self.text[i + 2 : i + 3] in {" ", "\t", "\n"}:
            end = self.test(i)
            self._put(i, end, "x")
            self._command = False
            return end
        end = max(self.word(i), i + 1)
        word = self.text[i:end]
        if word.isdigit() and self.text[end : end + 1] in {"<", ">"} and self.text[end : end + 2] not in {"<(", ">("}:
            self._put(i, end, " " if self._closed else "x")
            return end
        self._closed = False
        if not self._keyword(word, i, end):
            self._put(i, end, "x")
            self._command = False
        return end

    def _keyword(self, word: str, start: int, end: int) -> bool:  # noqa: C901, PLR0912 (one branch per keyword)
        if self._nest[-1:] == ["pattern"] and not self._header:
            if word == "esac":
                self._nest.pop()
                self._command, self._closed = False, True
            return word == "esac"
        if self._header in {"for", "case"}:
            self._header += " in"
            return False
        if self._header == "function":
            self._header = ""
            self._put(start, end, "x")
            self._command = True
            return True
        if self._header and word == "in":
            if self._header == "case in":
                self._nest.append("pattern")
            self._header = ""
            return True
        if self._header == "for in" and word == "do":
            self._header = ""
            if self.mask[start - 1] == " ":
                self.mask[start - 1] = ";"  # `for x do`, which the grammar does not know
            self._command = True
            return True
        if not self._command:
            return False
        if word in _OPENING:
            self._header = ""
        elif word == "time":
            self._put(start, end, " ")
        elif word in {"for", "select", "case", "function"}:
            self._header = "for" if word == "select" else word
            self._command = False
        elif word in _CLOSING:
            self._command, self._closed = False, True
        elif word == "esac":
            if self._nest[-1:] == ["case"]:
                self._nest.pop()
            self._command, self._closed = False, True
        else:
            return False
        return True


_SEPARATORS = frozenset({";", ";;", ";&", ";;&", "&", "&&", "|", "||", "|&"})


def remove_quotes(word: str) -> str:
    """Return a word that is not expanded, without its quotes: the delimiter of a here-document."""
    return re.sub(r"\\\n|\\(.)|'([^']*)'|\$?\"([^\"]*)\"", lambda m: m[1] or m[2] or m[3] or "", word, flags=re.DOTALL)
