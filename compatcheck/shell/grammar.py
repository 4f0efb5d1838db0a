"""The grammar of bash: its statements, with every word and where it stands.

What is wrong is noted and read over: a list ends at whatever word or operator one of the lists around it waits for, and one
that nothing waits for is passed. A quote or bracket that is not closed ends the reading, for nobody knows where it should.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from compatcheck.shell.lexical import BLANKS, META, OPERATOR, Lexer, UnclosedError, remove_quotes
from compatcheck.shell.statements import (
    Arithmetic,
    Branch,
    Case,
    Chain,
    Clause,
    Count,
    Definition,
    For,
    Group,
    HereDocument,
    If,
    Negation,
    Parsed,
    Pipeline,
    Problem,
    Raw,
    Redirection,
    Simple,
    Statement,
    Subshell,
    Test,
    While,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compatcheck.shell.statements import Kind

_END = r"(?=[ \t\n;&|()<>]|$)"
_CLOSING = re.compile(rf"(?:then|elif|else|fi|do|done|esac|\}}){_END}|;;&|;;|;&|\)|;|&&|\|\||\|&|&(?!>)|\|")
"""What no statement begins with."""
_OPENING = re.compile(rf"(?:if|for|select|while|until|case|function|\{{){_END}")
_COPROC = r"coproc(?:[ \t]+[A-Za-z_]\w*(?=[ \t]+(?:[{(]|(?:if|for|while|until|case|select)[ \t])))?"
_PREFIX = re.compile(rf"(!|time(?:[ \t]+-p)?|{_COPROC})(?=[ \t\n;&|(]|$)")
_PARENTHESES = re.compile(r"[ \t]*\([ \t]*\)")
_DESCRIPTOR = re.compile(r"[0-9]{1,9}(?=[<>])|\{[A-Za-z_]\w*\}(?=[<>])")
_NAMED = 10
"""Stands for the descriptor bash chooses in ``{name}>file``: none of the standard ones."""
_BREAKS = frozenset({";;", ";&", ";;&"})
_SHOWN = 60


class Parser(Lexer):
    """Read the statements of one text."""

    def __init__(self, text: str, depth: int = 0, line: int = 1, place: Callable[[int], int] | None = None) -> None:
        """Stand at the beginning of a text.

        Args:
            text: the text.
            depth: how many expansions deep it stands.
            line: the script's line of its first line.
            place: gives the line of an offset, where the text was joined from lines that are not its own.
        """
        super().__init__(text, depth)
        self._line = line
        self._place = place
        self._ends: list[int] | None = None
        self._at = 0
        self._end = 0
        """Where the last word, keyword or bracket ended."""
        self._problems: list[tuple[int, str]] = []
        self._doubtful: int | None = None
        """Offset from which on bash would have stopped reading."""
        self._pending: list[HereDocument] = []
        self._awaited: list[frozenset[str]] = []
        """What ends the lists of statements that are open."""

    def parse(self) -> Parsed:
        """Read all of it."""
        statements: list[Statement] = []
        try:
            self._list(statements, frozenset())
        except UnclosedError as error:
            self._problems.append((error.offset, f"{error}; the rest is not read"))
        problems = sorted(self._problems, key=lambda problem: problem[0])
        return Parsed(tuple(statements), tuple(Problem(self.line(offset), reason) for offset, reason in problems))

    def commands(self, i: int) -> int:
        """Return the end of the commands in ``$( … )`` or ``<( … )``, given their inside."""
        outer = self._at, self._end, self.depth, self._problems, self._doubtful, self._pending, self._awaited
        self._at, self._problems, self._doubtful, self._pending, self._awaited = i, [], None, [], []
        try:
            if self._list([], frozenset({")"})) != ")":
                raise UnclosedError(i - 2, "$(")
            end, found = self._at + 1, self._problems
        finally:
            self._at, self._end, self.depth, self._problems, self._doubtful, self._pending, self._awaited = outer
        for offset, reason in found:
            self._report(offset, reason)
        return end

    def words(self) -> list[Raw]:
        """Read the words of an array, given its inside as the text."""
        result: list[Raw] = []
        i = self.skip_space(0)
        while i < len(self.text):
            end = max(self.word(i), i + 1)
            result.append(Raw(self.text[i:end], self.line(i)))
            i = self.skip_space(end)
        return result

    def line(self, offset: int) -> int:
        """Return the script's line of an offset."""
        if self._place is not None:
            return self._place(offset)
        if self._ends is None:
            self._ends = [match.start() for match in re.finditer("\n", self.text)]
        return self._line + bisect_right(self._ends, offset - 1)

    # Tokens ------------------------------------------------------------------------------------------------------

    def _report(self, offset: int, reason: str) -> None:
        self._problems.append((offset, reason))
        self._doubtful = offset if self._doubtful is None else min(offset, self._doubtful)

    def _refuse(self) -> None:
        """Note that what stands here is not understood."""
        written = self.text[self._at : self._at + _SHOWN].strip().partition("\n")[0]
        self._report(self._at, f"is not understood: {written}")

    def _skip(self, *, lines: bool = False) -> str:
        """Pass over blanks and comments, and with ``lines`` over ends of lines; return the character that follows."""
        text, i = self.text, self._at
        while i < len(text):
            char = text[i]
            if char in BLANKS:
                i += 1
            elif char == "\n" and lines:
                i = self._read_documents(i + 1)
            elif char == "#":
                end = text.find("\n", i)
                i = len(text) if end < 0 else end
            elif char == "\\" and text.startswith("\\\n", i):
                i += 2
            else:
                self._at = i
                return char
        self._at = i
        return ""

    def _read_documents(self, i: int) -> int:
        """Read the here-documents that begin at an offset; return where they end."""
        for document in self._pending:
            start = i
            while i < len(self.text):
                end = self.text.find("\n", i)
                end = len(self.text) if end < 0 else end
                line = self.text[i:end]
                if (line.lstrip("\t") if document.tabs else line) == document.delimiter:
                    break
                i = end + 1
            text = self.text[start : min(i, len(self.text))]
            document.text = re.sub(r"(?m)^\t+", "", text) if document.tabs else text
            document.line = self.line(start)
            end = self.text.find("\n", i)
            i = len(self.text) if end < 0 else end + 1
        self._pending = []
        return i

    def _take(self, length: int) -> None:
        self._at += length
        self._end = self._at

    def _take_word(self) -> Raw | None:
        self._skip()
        start, end = self._at, self.word(self._at)
        if end == start:
            return None
        self._at = self._end = end
        return Raw(self.text[start:end], self.line(start))

    def _keyword(self, word: str) -> bool:
        """Take a keyword if it stands here."""
        end = self._at + len(word)
        if not self.text.startswith(word, self._at) or self.text[end : end + 1] not in ("", *META):
            return False
        self._take(len(word))
        return True

    def _close(self, word: str, opening: str, start: int) -> bool:
        """Take the word that a compound statement needs here, or say that it is missing."""
        if word == ")" and self.text.startswith(")", self._at):
            self._take(1)
            return True
        if self._keyword(word):
            return True
        if self._at < len(self.text):
            self._report(self._at, f"{word} is missing, for the {opening} of line {self.line(start)}")
        else:
            self._report(start, f"{opening} is not closed: {word} is missing")
        return False

    # Lists and pipelines -----------------------------------------------------------------------------------------

    def _list(self, into: list[Statement], ends: frozenset[str]) -> str:
        """Read statements until what ends this list or one around it; return that, and the empty text at the end."""
        self._awaited.append(ends)
        while self._skip(lines=True):
            closing = _CLOSING.match(self.text, self._at)
            if closing is None:
                self._complete(into)
            elif any(closing.group() in awaited for awaited in self._awaited):
                self._awaited.pop()
                return closing.group()
            else:
                self._report(self._at, f"{closing.group()} ends nothing")
                self._take(len(closing.group()))
        self._awaited.pop()
        return ""

    def _complete(self, into: list[Statement]) -> None:
        """Read a statement and what separates it from the next."""
        statement = self._chain()
        char = self._skip()
        background = char == "&"
        if char and char in ";&" and self.text[self._at : self._at + 2] not in _BREAKS:
            self._at += 1
        elif char != "\n" and char and _CLOSING.match(self.text, self._at) is None:
            self._refuse()
        into.append(replace(statement, background=True) if background else statement)

    def _make(self, kind: Kind, start: int, redirections: Sequence[Redirection] = ()) -> Statement:
        """Make a statement that begins at an offset and ends here."""
        doubt = None if self._doubtful is None else self.line(min(start, self._doubtful))
        return Statement(kind, self.line(start), self.text, start, self._end, tuple(redirections), doubt=doubt)

    def _body(self, ends: frozenset[str]) -> tuple[tuple[Statement, ...], str]:
        into: list[Statement] = []
        self.enter(self._at)
        end = self._list(into, ends)
        self.depth -= 1
        return tuple(into), end

    def _chain(self) -> Statement:
        start, first = self._at, self._pipeline()
        rest: list[tuple[str, Statement]] = []
        while self._skip() and (operator := self.text[self._at : self._at + 2]) in {"&&", "||"}:
            if not self._follow(operator):
                break
            rest.append((operator, self._pipeline()))
        return self._make(Chain(first, tuple(rest)), start) if rest else first

    def _follow(self, operator: str) -> bool:
        """Take an operator, and tell whether a statement follows it."""
        place = self._at
        self._at += len(operator)
        if self._skip(lines=True) and _CLOSING.match(self.text, self._at) is None:
            return True
        self._report(place, f"{operator} has nothing after it")
        return False

    def _pipeline(self) -> Statement:
        start, negated = self._at, False
        while prefix := _PREFIX.match(self.text, self._at):
            negated ^= prefix.group() == "!"
            self._take(prefix.end() - self._at)
            self._skip()
            start = start if prefix.group() == "!" else self._at
        inner, parts = self._at, [self._command()]
        while self._skip() == "|" and self.text[self._at + 1 : self._at + 2] != "|":
            if not self._follow("|&" if self.text.startswith("|&", self._at) else "|"):
                break
            parts.append(self._command())
        pipeline = self._make(Pipeline(tuple(parts)), inner) if len(parts) > 1 else parts[0]
        return self._make(Negation(pipeline), start) if negated else pipeline

    # Commands ----------------------------------------------------------------------------------------------------

    def _command(self) -> Statement:
        start, kind = self._at, self._compound()
        if kind is None:
            return self._simple()
        end, redirections = self._end, []
        while self._skip() and (found := self._redirection()):
            redirections.append(found)
        self._end = end
        return self._make(kind, start, redirections)

    def _compound(self) -> Kind | None:
        """Read a compound command; None where none begins."""
        text, start = self.text, self._at
        if text.startswith("(", start):
            end = self.arithmetic(start + 2) if text.startswith("((", start) else None
            if end is not None:
                self._take(end - start)
                return Arithmetic(Raw(text[start + 2 : end - 2], self.line(start)))
            self._take(1)
            body, _ = self._body(frozenset({")"}))
            self._close(")", "(", start)
            return Subshell(body)
        if text.startswith("[[", start) and text[start + 2 : start + 3] in {" ", "\t", "\n"}:
            end = self.test(start)
            self._take(end - start)
            return Test(Raw(text[start + 2 : end - 2], self.line(start)))
        opening = _OPENING.match(text, start)
        if opening is None:
            return None
        self._take(opening.end() - start)
        match opening.group():
            case "if":
                return self._if(start)
            case "while" | "until" as word:
                tests, _ = self._body(frozenset({"do", "done"}))
                return While(word == "until", tests, self._do(word, start))
            case "case":
                return self._case(start)
            case "function":
                name = self._take_word()
                if name is not None and (parentheses := _PARENTHESES.match(text, self._at)):
                    self._take(parentheses.end() - self._at)
                return self._define(name)
            case "{":
                body, _ = self._body(frozenset({"}"}))
                self._close("}", "{", start)
                return Group(body)
            case word:
                return self._for(word, start)

    def _if(self, start: int) -> If:
        branches: list[Branch] = []
        end = "if"
        while end in {"if", "elif"}:
            if end == "elif":
                self._take(len(end))
            tests, end = self._body(frozenset({"then", "elif", "else", "fi"}))
            body: tuple[Statement, ...] = ()
            if self._close("then", "if", start):
                body, end = self._body(frozenset({"elif", "else", "fi"}))
            elif not end:
                return If((*branches, Branch(tests, ())), None)
            branches.append(Branch(tests, body))
        otherwise = None
        if end == "else":
            self._take(len(end))
            otherwise, _ = self._body(frozenset({"fi"}))
        self._close("fi", "if", start)
        return If(tuple(branches), otherwise)

    def _do(self, word: str, start: int) -> tuple[Statement, ...]:
        """Read ``do … done``."""
        if not self._close("do", word, start) and self._at >= len(self.text):
            return ()
        body, _ = self._body(frozenset({"done"}))
        self._close("done", word, start)
        return body

    def _for(self, word: str, start: int) -> Kind:
        header: Raw | None = None
        words: list[Raw] | None = None
        name: Raw | None = None
        if self._skip() == "(" and (end := self.arithmetic(self._at + 2)) is not None:
            header = Raw(self.text[self._at + 2 : end - 2], self.line(self._at))
            self._take(end - self._at)
        else:
            name = self._take_word()
            if name is None:
                self._refuse()
            self._skip(lines=True)
            if self._keyword("in"):
                words = []
                while one := self._take_word():
                    words.append(one)
        if self._skip() == ";":
            self._at += 1
        brace = self._skip(lines=True) == "{"
        if brace:
            self._take(1)
            body, _ = self._body(frozenset({"}"}))
            self._close("}", word, start)
        else:
            body = self._do(word, start)
        if header is not None:
            return Count(header, body)
        return For(name or Raw("", self.line(start)), None if words is None else tuple(words), body)

    def _case(self, start: int) -> Case:
        word = self._take_word()
        if word is None:
            self._refuse()
            word = Raw("", self.line(start))
        self._skip(lines=True)
        clauses: list[Clause] = []
        closed = not self._close("in", "case", start)
        while not closed:
            if self._skip(lines=True) and self._keyword("esac"):
                break
            clause = self._clause()
            if clause is None:
                closed = not self._close("esac", "case", start)
                break
            clauses.append(clause)
        return Case(word, tuple(clauses))

    def _clause(self) -> Clause | None:
        """Read ``pattern | pattern) … ;;``; None where none begins."""
        place = self._at
        if self._skip() == "(":
            self._at += 1
            self._skip()
        start = self._at
        patterns: list[Raw] = []
        while pattern := self._take_word():
            patterns.append(pattern)
            if self._skip() != "|":
                break
            self._at += 1
        if not patterns or self._skip() != ")":
            self._at = place
            return None
        written = self.text[start : self._at].strip()
        self._take(1)
        body, end = self._body(frozenset({*_BREAKS, "esac"}))
        if end in _BREAKS:
            self._take(len(end))
        return Clause(tuple(patterns), written, body, end == ";&", end == ";;&")

    def _define(self, name: Raw | None) -> Kind:
        """Read a function's body."""
        if name is None or not self._skip(lines=True) or _CLOSING.match(self.text, self._at):
            self._report(self._at, "a function has no body")
            return Simple(())
        self.enter(self._at)
        body = self._command()
        self.depth -= 1
        return Definition(name.text, body)

    def _simple(self) -> Statement:
        start = self._at
        words: list[Raw] = []
        redirections: list[Redirection] = []
        while self._skip():
            if found := self._redirection():
                redirections.append(found)
            elif (word := self._take_word()) is None:
                break
            else:
                words.append(word)
                if len(words) == 1 and not redirections and (match := _PARENTHESES.match(self.text, self._at)):
                    self._take(match.end() - self._at)
                    return self._make(self._define(word), start)
        return self._make(Simple(tuple(words)), start, redirections)

    def _redirection(self) -> Redirection | None:
        text, start = self.text, self._at
        if text[start] not in "<>&{0123456789":
            return None
        descriptor = _DESCRIPTOR.match(text, start)
        operator = OPERATOR.match(text, descriptor.end() if descriptor else start)
        if operator is None or (operator.group() in {"<", ">"} and text.startswith("(", operator.end())):
            return None
        self._take(operator.end() - start)
        target = self._take_word()
        if target is None:
            self._report(operator.start(), f"{operator.group()} has no file after it")
            target = Raw("", self.line(self._at))
        document = None
        if operator.group() in {"<<", "<<-"}:
            delimiter = remove_quotes(target.text)
            document = HereDocument(delimiter, delimiter != target.text, operator.group() == "<<-")
            self._pending.append(document)
        number = descriptor.group() if descriptor else ""
        own = int(number) if number.isdigit() else _NAMED if number else None
        return Redirection(own, operator.group(), target, document)


@lru_cache(maxsize=64)
def parse(text: str, line: int = 1, depth: int = 0) -> Parsed:
    """Read the statements of a text that stands inside of a script: of ``$( … )`` and ``eval``.

    Args:
        text: the text.
        line: the script's line of its first line.
        depth: how many expansions deep it stands.
    """
    return Parser(text, depth, line).parse()
