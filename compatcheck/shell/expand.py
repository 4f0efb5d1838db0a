"""Expansion of words: quotes, parameters, arithmetic, commands, splitting, in bash's order; unknown parts stay named."""

from __future__ import annotations

import re
from itertools import groupby, repeat
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.shell.arithmetic import Arithmetic, UnknownNumberError
from compatcheck.shell.braces import expand_braces
from compatcheck.shell.grammar import Parser
from compatcheck.shell.lexical import NAME, UnclosedError
from compatcheck.shell.limits import MAX_CHARACTERS, MAX_WORDS, MAX_WORK, LimitError
from compatcheck.shell.parameters import NO_ARGUMENTS, Found, Parameters, change, describe
from compatcheck.shell.state import State, Variable
from compatcheck.shell.values import (
    Piece,
    Value,
    absence,
    assumptions_of,
    choose,
    from_text,
    is_empty,
    names_of,
    single,
    text_of,
    unknown,
)
from compatcheck.shell.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from compatcheck.shell.statements import Raw

ANSI = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_BRACED = re.compile(
    r"(?P<indirect>!)?(?P<length>#(?=[A-Za-z_0-9@*?$!-]))?(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])", re.ASCII
)
_OPERATOR = re.compile(r":?[-=?+]|##|#|%%|%|//|/#|/%|/|\^\^|\^|,,|,|:|@")
_LITERAL = re.compile(r"[\w./:@%+,=-]+", re.ASCII)
"""A word in which nothing stands for anything else."""
_EVERY_ARGUMENT = frozenset({"$@", '"$@"', "${@}", '"${@}"'})
_EVERY_ELEMENT = re.compile(r'"\$\{([A-Za-z_]\w*)\[@\]\}"', re.ASCII)
_GLOB = re.compile(r"[*?]|\A[^\[]*\[.*\]", re.DOTALL)
_LIST_EXPRESSION = re.compile(r"(?:\(*\[[\d, ]*\](?:\)*\*\d+)*\)*\+?)+")
"""Lists of numbers, repeated and joined, as Megatron-LM takes patterns of layers: ``([1]*3+[0]*1)*3``."""
_USER = re.compile(r"~[a-z_][a-z0-9_-]*(?=/|$)|~[+-]?(?=/|$)")


class Segment(NamedTuple):
    """A part of a word on its way to becoming fields."""

    piece: Piece | None
    """None is the border between two elements of ``"$@"``."""
    quoted: bool
    expanded: bool = False
    """Whether it came from an expansion without quotes, so that it is split."""


_BORDER = Segment(None, quoted=True)


class Expander:
    """Expand words in the state the script has reached."""

    def __init__(
        self, get_state: Callable[[], State], substitute: Callable[[str, int, int], Value], *, slurm: bool
    ) -> None:
        """Take where to look things up.

        Args:
            get_state: gives the present state.
            substitute: runs the text of ``$( … )`` (with its line and depth), and gives its output.
            slurm: whether the script is a batch job, which surely has ``SLURM_*`` variables.
        """
        self.get_state = get_state
        self.substitute = substitute
        self.parameters = Parameters(get_state, slurm=slurm)
        self.depth = 0
        self.done = 0
        """What `work` has counted."""
        self.closed = False
        """Whether nothing is given from outside: what is not set is empty."""
        self.assumed: list[str] = []
        """What the last decisions rested on; the reader of a condition empties it."""
        self.outside = {NO_ARGUMENTS}
        """Those of it that nothing in the script says: what is not set here is given from outside, or not."""

    # Words -------------------------------------------------------------------------------------------------------

    def fields(self, raw: str, line: int) -> list[Value]:
        """Expand a word of a command: to no value, to one or to several."""
        if _LITERAL.fullmatch(raw):
            self.check(len(raw))
            self.work(1)
            return [from_text(raw, line)]
        if (plain := self._plain_list(raw)) is not None:
            return plain
        result: list[Value] = []
        for word in expand_braces(raw, Parser):
            result.extend(self._split(self.segments(word, line, tilde=True), line))
            if len(result) > MAX_WORDS:
                raise LimitError(f"a word stands for more than {MAX_WORDS} words")
        return result

    def _plain_list(self, raw: str) -> list[Value] | None:
        """Return all arguments, or the elements of an array, where expansion leaves each as it is.

        A script may hand a list on with one word more, line after line.
        """
        state, quoted = self.get_state(), raw[:1] == '"'
        listed: Sequence[Value] = ()
        if raw in _EVERY_ARGUMENT:
            listed = state.arguments or ()
        elif (match := _EVERY_ELEMENT.fullmatch(raw)) and (variable := state.variables.get(match[1])) is not None:
            listed = () if variable.elements is None or variable.associative else [*variable.elements.values()]
        if not listed or len(listed) > MAX_WORDS or not (quoted or self._separators() == " \t\n"):
            return None
        for value in listed:
            if len(value) != 1:
                return None
            text, rest = value[0].text, value[0].many and not value[0].choices
            if not (rest if text is None else quoted or _LITERAL.fullmatch(text)):
                return None
        self.work(len(listed))
        return list(listed)

    def one(self, raw: str, line: int) -> Value:
        """Expand the right side of an assignment, the word of ``case``, a here-string: not split."""
        return self._glue(self.segments(raw, line, tilde=True, assignment=True), line)

    def document(self, raw: str, line: int) -> Value:
        """Expand the text of a here-document."""
        return self._glue(self.segments(raw, line, quoted=True, heredoc=True), line)

    def elements(self, inside: Raw) -> list[Raw]:
        """Return the words of an array's ``( … )``, as written."""
        return Parser(inside.text, self.depth, inside.line).words()

    def work(self, amount: int) -> None:
        """Count what grows with the script and with what it has set so far.

        Raises:
            LimitError: it is more than is done for one script.
        """
        self.done += amount
        if self.done > MAX_WORK:
            raise LimitError(f"its variables and values have more than {MAX_WORK} parts in all, each time they are set")

    def check_length(self, value: Value) -> None:
        """Refuse a value that is too long.

        Raises:
            LimitError: it is.
        """
        self.work(len(value))
        if len(value) > MAX_WORDS:
            raise LimitError(f"a value is longer than {MAX_WORDS} parts")
        self.check(sum(len(piece.text or "") for piece in value))

    @staticmethod
    def check(length: int) -> None:
        """Refuse a length that no value has.

        Raises:
            LimitError: it is too long.
        """
        if length > MAX_CHARACTERS:
            raise LimitError(f"a value is longer than {MAX_CHARACTERS} characters")

    def pattern(self, raw: str, line: int) -> tuple[list[tuple[str, bool]], tuple[str, ...]]:
        """Expand a pattern; return its texts and whether each is quoted, and what is unknown in it."""
        segments = self.segments(raw, line, tilde=True)
        pieces = [(segment.piece, segment.quoted) for segment in segments if segment.piece is not None]
        self.assumed.extend(assumptions_of(piece for piece, _ in pieces))
        names = names_of(piece for piece, _ in pieces)
        return [(piece.text, quoted) for piece, quoted in pieces if piece.text is not None], names

    def number(self, raw: str, line: int) -> tuple[int | None, tuple[str, ...], tuple[str, ...]]:
        """Evaluate arithmetic; return the number, what is unknown, and what it rests on."""
        value = self.document(raw.replace('"', ""), line)
        text = text_of(value)
        if text is None:
            self._forget_assigned(raw, line)
            return None, names_of(value), ()
        assumes = list(assumptions_of(value))
        try:
            number = Arithmetic(
                text,
                lambda name, index: self._read_number(name, index, line, assumes),
                lambda name, index, number: self.parameters.assign(name, index, from_text(str(number), line), line),
            ).evaluate()
        except (UnknownNumberError, RecursionError) as error:
            self._forget_assigned(raw, line)
            return None, getattr(error, "names", ()) or (f"$(({raw.strip()}))",), ()
        return number, (), tuple(assumes)

    def _read_number(self, name: str, index: int | None, line: int, assumes: list[str]) -> str:
        found = self.parameters.find(name, None if index is None else str(index), line)
        value = found.values[0] if found.values else ()
        text = text_of(value)
        if text is None:
            raise UnknownNumberError(*names_of(value))
        assumes.extend(assumptions_of(value))
        return text

    def _forget_assigned(self, raw: str, line: int) -> None:
        for match in re.finditer(r"(?<!\w)([A-Za-z_]\w*)\s*(?:\[[^\[\]]*\])?\s*(?:[-+*/%|&^]|<<|>>)?=(?!=)|"
                                 r"(?<!\w)([A-Za-z_]\w*)\s*(?:\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)", raw):  # fmt: skip
            name = match[1] or match[2] or match[3]
            self.parameters.assign(name, None, unknown(f"${name}", line), line)

    # Segments ----------------------------------------------------------------------------------------------------

    def segments(  # noqa: PLR0913 (what surrounds a text, by keyword)
        self,
        text: str,
        line: int,
        *,
        quoted: bool = False,
        heredoc: bool = False,
        tilde: bool = False,
        assignment: bool = False,
        expanded: bool = False,
    ) -> list[Segment]:
        """Read a text into literal and expanded parts.

        Args:
            text: as written.
            line: where it starts.
            quoted: it stands in double quotes.
            heredoc: it stands in a here-document, where double quotes are plain.
            tilde: a ``~`` in front is a home directory.
            assignment: so is one after a colon.
            expanded: it is the word in ``${X:-word}``, so that what is not quoted in it is split.
        """
        lexer = Parser(text, self.depth)
        result: list[Segment] = []
        i = counted = 0
        here = line
        while i < len(text):
            char = text[i]
            here += text.count("\n", counted, i)
            counted = i
            if char == "\\":
                following = text[i + 1 : i + 2]
                i += 2
                if following == "\n":
                    continue
                if not following:
                    continue  # bash drops a backslash at the end of the file
                plain = "$`\\}" if expanded else "$`\\" if heredoc else '$`"\\'
                keeps = quoted and following not in plain
                result.append(Segment(Piece("\\" + following if keeps else following, here), quoted=True))
            elif char in "$`":
                end = lexer.expansion(i, quoted=quoted)
                result.extend(self._dollar(text[i:end], here, quoted=quoted, lexer=lexer))
                i = end
            elif char == "'" and not quoted:
                end = lexer.single(i)
                # A piece ends with its line, so that every word split from it knows its own.
                lines = text[i + 1 : end - 1].split("\n")
                result.extend(
                    Segment(Piece(part + "\n" * (n + 1 < len(lines)), here + n), quoted=True)
                    for n, part in enumerate(lines)
                )
                i = end
            elif char == '"' and not (quoted and heredoc):
                end = lexer.double(i)
                result.extend(self._double(text[i + 1 : end - 1], here))
                i = end
            elif char in "<>" and text[i + 1 : i + 2] == "(" and not quoted:
                end = lexer.commands(i + 2)
                self.substitute(text[i + 2 : end - 1], here, self.depth + 1)
                result.append(Segment(Piece(None, here, text[i:end]), quoted=True))
                i = end
            elif char == "~" and tilde and not quoted and (i == 0 or (assignment and text[i - 1] in ":=")):
                match = _USER.match(text, i)
                name = match.group() if match else ""
                result.append(Segment(Piece(None if name else "~", here, name), quoted=bool(name)))
                i += len(name) or 1
            else:
                end = self._literal_end(text, i, quoted=quoted, colon=assignment)
                result.append(Segment(Piece(text[i:end], here), quoted=quoted, expanded=expanded and not quoted))
                i = end
        return result

    @staticmethod
    def _literal_end(text: str, i: int, *, quoted: bool, colon: bool) -> int:
        i += 1
        while i < len(text) and text[i - 1] != "\n":
            char = text[i]
            if char in '\\$`"' or (not quoted and (char in "'<>" or (char == "~" and colon))):
                break
            i += 1
        return i

    def _double(self, inside: str, line: int) -> list[Segment]:
        """Read what stands in double quotes: an empty word, unless it is nothing but an empty ``"$@"``."""
        result = self.segments(inside, line, quoted=True)
        if not result and not re.fullmatch(r"(\$@|\$\{[^}]*@[^}]*\})+", inside):
            result.append(Segment(Piece("", line), quoted=True))
        return result

    def _dollar(self, text: str, line: int, *, quoted: bool, lexer: Parser) -> list[Segment]:
        """Expand what starts with ``$`` or a back tick."""
        following = text[1:2]
        if text[0] == "`":
            inside = re.sub(r"\\([$`\\])" if not quoted else r"\\([$`\\\"])", r"\1", text[1:-1])
            return self._mark(self.substitute(inside, line, lexer.depth + 1), quoted=quoted)
        if following == "'" and not quoted:
            return [Segment(Piece(decode_ansi(text[2:-1]), line), quoted=True)]
        if following == '"' and not quoted:
            return self._double(text[2:-1], line)
        if text.startswith("$((") and Parser(text).arithmetic(3) == len(text):
            return self._mark(self._numeric(text[3:-2], line, text), quoted=quoted)
        if following == "(":
            return self._mark(self.substitute(text[2:-1], line, lexer.depth + 1), quoted=quoted)
        if following == "[":
            return self._mark(self._numeric(text[2:-1], line, text), quoted=quoted)
        if following == "{":
            self.depth += 1
            try:
                return self._braced(text, line, quoted=quoted)
            finally:
                self.depth -= 1
        if len(text) == 1:
            return [Segment(Piece("$", line), quoted=quoted)]
        return self._mark_found(self.parameters.find(text[1:], None, line), quoted=quoted)

    def _numeric(self, raw: str, line: int, written: str) -> Value:
        number, names, assumes = self.number(raw, line)
        if number is None:
            return unknown(names[0] if len(names) == 1 else written, line)
        return from_text(str(number), line, assumes)

    # Parameters --------------------------------------------------------------------------------------------------

    def _braced(self, text: str, line: int, *, quoted: bool) -> list[Segment]:
        inside = text[2:-1]
        if inside == "#":
            return self._mark_found(self.parameters.find("#", None, line), quoted=quoted)
        head = _BRACED.match(inside)
        if head is None:
            return self._mark(unknown(text, line), quoted=quoted)
        name, at, subscript = head["name"], head.end(), None
        if inside[at : at + 1] == "[":
            try:
                end = Parser(inside).brackets(at + 1)
            except UnclosedError:
                return self._mark(unknown(text, line), quoted=quoted)
            subscript, at = inside[at + 1 : end - 1], end
        rest = inside[at:]
        if head["indirect"]:
            return self._indirect(name, subscript, rest, text, line, quoted=quoted)
        found = self._find(name, subscript, line)
        if head["length"]:
            count = self.parameters.count(name) if found.several else None
            if count is not None and not rest:
                return self._mark(from_text(str(count), line), quoted=quoted)
            return self._mark(self._length(found, text, line) if not rest else unknown(text, line), quoted=quoted)
        if not rest:
            return self._mark_found(found, quoted=quoted)
        return self._operate(found, rest, text, line, quoted=quoted)

    def _find(self, name: str, subscript: str | None, line: int) -> Found:
        if subscript is None or subscript in {"@", "*"}:
            return self.parameters.find(name, subscript, line)
        if self.parameters.is_associative(name):
            key = text_of(self.one(subscript, line))
        else:
            number, _, _ = self.number(subscript, line)
            key = None if number is None else str(number)
        if key is None:
            return Found([unknown(f"${{{name}[{subscript}]}}", line)])
        return self.parameters.find(name, key, line)

    def _indirect(
        self, name: str, subscript: str | None, rest: str, text: str, line: int, *, quoted: bool
    ) -> list[Segment]:
        if subscript in {"@", "*"} and not rest:
            return self._mark_found(self.parameters.keys(name, line, star=subscript == "*"), quoted=quoted)
        found = self._find(name, subscript, line)
        target = text_of(found.values[0]) if found.values else None
        match = target and re.fullmatch(r"([A-Za-z_]\w*|[0-9]+|[@*])(?:\[(.+)\])?", target)
        if rest in {"*", "@"} or not match:
            return self._mark(unknown(text, line), quoted=quoted)
        found = self._find(match[1], match[2], line)
        return self._operate(found, rest, text, line, quoted=quoted) if rest else self._mark_found(found, quoted=quoted)

    @staticmethod
    def _length(found: Found, text: str, line: int) -> Value:
        if found.several:
            return unknown(text, line) if found.open else from_text(str(len(found.values)), line)
        value = found.values[0] if found.values else ()
        known = text_of(value)
        return unknown(text, line) if known is None else from_text(str(len(known)), line, assumptions_of(value))

    def _operate(self, found: Found, rest: str, text: str, line: int, *, quoted: bool) -> list[Segment]:
        match = _OPERATOR.match(rest)
        operator = match.group() if match else ""
        operand = rest[len(operator) :]
        if operator in {":-", "-", ":=", "=", ":?", "?", ":+", "+"}:
            return self._default(found, operator, operand, line, quoted=quoted)
        if operator == ":":
            return self._slice(found, operand, text, line, quoted=quoted)
        if operator in {"@", ""}:
            return self._mark(unknown(text, line), quoted=quoted)
        values = []
        for value in found.values:
            known = text_of(value)
            changed = None if known is None else self._change(known, operator, operand, line)
            hidden = describe(text, names_of(value))
            values.append(unknown(hidden, line) if changed is None else from_text(changed, line, assumptions_of(value)))
        return self._mark_found(found._replace(values=values), quoted=quoted)

    def _change(self, text: str, operator: str, operand: str, line: int) -> str | None:
        """Apply an operator on text; None where a pattern is unknown."""
        replacement = ""
        if operator[0] == "/":
            cut = self._slash(operand, start=operator == "//" and operand.startswith("/"))
            operand, replaced = operand[:cut], operand[cut + 1 :]
            parts, names = self.pattern(replaced, line)
            # Releases since 5.2 read an unquoted & as what matched.
            if names or any("&" in part and not quoted for part, quoted in parts):
                return None
            replacement = "".join(part for part, _ in parts)
        parts, names = self.pattern(operand, line)
        return None if names else change(text, operator, parts, replacement)

    def _slash(self, operand: str, *, start: bool) -> int:
        """Return the offset of the slash between pattern and replacement; one at the start may be the pattern."""
        lexer, i = Parser(operand, self.depth), int(start)
        while i < len(operand):
            match operand[i]:
                case "/":
                    return i
                case "\\":
                    i += 2
                case "'":
                    i = lexer.single(i)
                case '"':
                    i = lexer.double(i)
                case "$" | "`":
                    i = lexer.expansion(i)
                case _:
                    i += 1
        return len(operand)

    def _default(self, found: Found, operator: str, operand: str, line: int, *, quoted: bool) -> list[Segment]:
        """``${X:-d}``, ``${X:=d}``, ``${X:+a}``, ``${X:?}``, and without colon."""
        value = tuple(piece for one in found.values for piece in one)
        colon = operator[0] == ":"
        absent, assumes = self._is_absent(found, value, colon=colon)
        kind = operator[-1]
        if absent is None or kind == "?":
            if kind == "+":
                return self._mark(unknown(f"${{{found.name}{operator}{operand}}}", line), quoted=quoted)
            if kind == "?" and absent and value:
                value = tuple(piece._replace(implicit=False) for piece in value)
            return self._mark_found(found if kind != "?" or not absent else Found([value]), quoted=quoted)
        if (kind == "+") == absent:
            if kind == "+" and assumes and self.closed:
                return self._mark((), quoted=quoted)
            if kind != "+" or not assumes:
                return [] if kind == "+" else self._mark_found(found, quoted=quoted)
            written = f"${{{found.name}{operator}{operand}}}"
            given = self._glue(self.segments(operand, line, quoted=quoted, tilde=True), line)
            return self._mark(choose(written, line, ((), (given,)), many=False), quoted=quoted)
        if kind != "+" and (not absent or (assumes and not operand and not self.closed)):
            return self._mark_found(found, quoted=quoted)
        result = self.segments(operand, line, quoted=quoted, tilde=True, expanded=True)
        result = [
            part if part.piece is None else part._replace(piece=part.piece._replace(assumes=(*part.piece.assumes, *assumes)))
            for part in result
        ]  # fmt: skip
        if not result:
            result = [Segment(Piece("", line, assumes=assumes), quoted=quoted, expanded=not quoted)]
        if kind == "=" and NAME.fullmatch(found.name):
            self.parameters.assign(found.name, None, self._glue(result, line), line)
        return result

    @staticmethod
    def _is_absent(found: Found, value: Value, *, colon: bool) -> tuple[bool | None, tuple[str, ...]]:
        if found.several and found.open and found.values:
            return is_empty(value)
        if not colon:
            implicit = (
                bool(value) and all(piece.text is None and piece.implicit for piece in value) and not found.is_set
            )
            return (True, tuple(absence(piece.name) for piece in value)) if implicit else (not found.values, ())
        return is_empty(value)

    def _slice(self, found: Found, operand: str, text: str, line: int, *, quoted: bool) -> list[Segment]:
        """``${X:offset:length}``, of text or of a list."""
        first, _, second = _split_colon(operand)
        offset, _, _ = self.number(first, line)
        length, _, _ = self.number(second, line) if second is not None else (None, (), ())
        if offset is None or (second is not None and length is None) or (found.several and found.open):
            if found.name in {"@", "*"} and offset and all(piece.implicit for value in found.values for piece in value):
                return self._mark_found(found, quoted=quoted)  # "${@:2}" of a script that is given nothing
            hidden = unknown(describe(text, names_of(found.values[0]) if found.open else ()), line, many=found.several)
            return self._mark_found(found._replace(values=[hidden]), quoted=quoted)
        if found.several:
            values = found.values
            if found.name in {"@", "*"}:
                if offset < 0 and -offset <= len(values):
                    offset += len(values) + 1
                if offset <= 0:  # $0 is counted
                    return self._mark_found(found._replace(values=[unknown(text, line, many=True)]), quoted=quoted)
                offset -= 1
            start = offset if offset >= 0 else max(len(values) + offset, 0)
            taken = values[start:] if length is None else values[start : start + max(length, 0)]
            return self._mark_found(found._replace(values=taken), quoted=quoted)
        value = found.values[0] if found.values else ()
        known = text_of(value)
        if known is None:
            return self._mark(unknown(describe(text, names_of(value)), line), quoted=quoted)
        start = offset if offset >= 0 else len(known) + offset
        if start < 0 or start > len(known):
            cut = ""
        else:
            end = len(known) if length is None else start + length if length >= 0 else len(known) + length
            cut = known[start:end] if end >= start else ""
        return self._mark(from_text(cut, line, assumptions_of(value)), quoted=quoted)

    # Fields ------------------------------------------------------------------------------------------------------

    def _mark_found(self, found: Found, *, quoted: bool) -> list[Segment]:
        if not found.several:
            return self._mark(found.values[0] if found.values else (), quoted=quoted)
        if found.star and quoted:
            separators = self._separators()
            separator = " " if separators is None else separators[:1]
            joined: list[Piece] = []
            for n, value in enumerate(found.values):
                joined.extend([*([Piece(separator, found.line)] if n else []), *single(value)])
            self.work(len(joined))
            return self._mark(tuple(joined), quoted=True)
        result: list[Segment] = []
        for n, value in enumerate(found.values):
            if n:
                result.append(_BORDER)
            pieces = value or (Piece("", found.line),)
            result.extend(Segment(piece, quoted=quoted, expanded=not quoted) for piece in pieces)
        return result

    @staticmethod
    def _mark(value: Value, *, quoted: bool) -> list[Segment]:
        pieces = single(value) if quoted else value
        if quoted and not pieces:
            pieces = (Piece("", 0),)
        return [Segment(piece, quoted=quoted, expanded=not quoted) for piece in pieces]

    def _glue(self, segments: Iterable[Segment], line: int) -> Value:
        pieces = tuple(Piece(" ", line) if part.piece is None else part.piece for part in segments)
        self.check_length(pieces)
        return compact(single(pieces))

    def _separators(self) -> str | None:
        """Return IFS; None if it is unknown."""
        if "IFS" not in self.get_state().variables:
            return " \t\n"
        found = self.parameters.find("IFS", None, 1)
        return text_of(found.values[0]) if found.values else " \t\n"

    def _split(self, segments: Iterable[Segment], line: int) -> list[Value]:
        separators = self._separators()
        fields: list[list[Segment]] = []
        current: list[Segment] | None = None
        after_space = False
        length = 0
        for part in segments:
            if part.piece is not None and part.piece.text is not None:
                length += len(part.piece.text)
                self.check(length)
            if part.piece is None:
                if current is not None:
                    fields.append(current)
                current = None
            elif not part.expanded:
                current = [] if current is None else current
                current.append(part)
                after_space = False
            elif part.piece.text is None or separators is None:
                piece = part.piece if part.piece.text is None else part.piece._replace(text=None, name="$IFS")
                current = [] if current is None else current
                choices = () if separators is None else tuple(map(self._resplit, piece.choices, repeat(line)))
                current.append(part._replace(piece=piece._replace(many=True, choices=choices)))
                after_space = False
            else:
                current, after_space = _split_text(part, separators, fields, current, after_space=after_space)
            if len(fields) > MAX_WORDS:
                raise LimitError(f"a word stands for more than {MAX_WORDS} words")
        if current is not None:
            fields.append(current)
        self.work(len(fields))  # a list that a loop goes through is put together anew in each round of those around it
        return [self._finish(field, line) for field in fields]

    def _resplit(self, words: tuple[Value, ...], line: int) -> tuple[Value, ...]:
        """Split what an unknown part may stand for as what is known is split."""
        split = (self._split((Segment(piece, quoted=False, expanded=True) for piece in word), line) for word in words)
        return tuple(field for fields in split for field in fields)

    def _finish(self, field: list[Segment], line: int) -> Value:
        """Make a value of a field; a pattern of file names in it is unknown, for no directory is looked at."""
        value = compact(tuple(part.piece for part in field if part.piece is not None))
        bare = "".join(part.piece.text or "" if not part.quoted else "\0" for part in field if part.piece is not None)
        if "f" in self.get_state().options or not _GLOB.search(bare):
            return value
        text = text_of(value)
        if text is None:
            return value
        if "=" in text or not ("*" in bare or "?" in bare) or _LIST_EXPRESSION.fullmatch(text):
            # `data.files=[a,b]` and `[0]*3+[1]*89` are patterns too, and no file is named like that.
            return from_text(
                text, next((piece.line for piece in value), line), (*assumptions_of(value), f"no file matches {text}")
            )
        return unknown(text, next((piece.line for piece in value), line), many=True)


def expand_text(text: str, variables: Mapping[str, str]) -> str | None:
    """Replace the parameters of a text as in a here-document; None where one without a default is not known.

    Args:
        text: ``$NAME``, ``${NAME:-word}`` and the like; quotes are plain.
        variables: what is known; any other counts as not set where a default asks.
    """
    state = State(Versions({name: Variable(from_text(value, 1)) for name, value in variables.items()}))
    expander = Expander(lambda: state, lambda written, line, _: unknown(f"$({written})", line), slurm=False)
    expander.closed = True
    try:
        return text_of(expander.document(text, 1))
    except (UnclosedError, LimitError, RecursionError):
        return None


def compact(value: Value) -> Value:
    """Drop empty pieces that carry nothing, keeping the empty text as no piece, and put known ones of one line together."""
    if len(value) < 2:
        return tuple(piece for piece in value if piece.text != "" or piece.assumes)
    found: list[Piece] = []
    for key, group in groupby(value, key=_merging):
        pieces = [piece for piece in group if piece.text != "" or piece.assumes]
        if key is not None and len(pieces) > 1:
            pieces = [pieces[0]._replace(text="".join(piece.text or "" for piece in pieces))]
        found.extend(pieces)
    return tuple(found)


def _merging(piece: Piece) -> tuple[object, ...] | None:
    """Return what known pieces have in common that are one where they stand side by side; None for an unknown piece."""
    return None if piece.text is None else (piece.line, *piece[2:])


def decode_ansi(text: str) -> str:
    r"""Decode what stands in ``$'…'``: ``\n``, ``\x41``, ``\101``, ``\u00e9``."""

    def decode(match: re.Match[str]) -> str:
        for group in (1, 2, 3):
            if match[group]:
                code = int(match[group], 16)
                return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "?"
        if match[4]:
            return chr(int(match[4], 8) & 0xFF)
        if match[5]:
            return chr(ord(match[5].upper()) & 0x1F)
        return ANSI.get(match[6], match[6] if match[6] in "\\'\"?" else "\\" + match[6])

    return _ANSI_ESCAPE.sub(decode, text)


def _split_colon(operand: str) -> tuple[str, str, str | None]:
    """Split ``offset:length`` at the colon that is not inside an expansion or a condition."""
    lexer, i, questions, depth = Parser(operand), 0, 0, 0
    while i < len(operand):
        char = operand[i]
        if char == ":" and not questions and not depth:
            return operand[:i], ":", operand[i + 1 :]
        questions += {"?": 1, ":": -1}.get(char, 0)
        depth += {"(": 1, ")": -1}.get(char, 0)
        i = lexer.expansion(i) if char in "$`" else i + 1
    return operand, "", None


def _split_text(
    part: Segment, separators: str, fields: list[list[Segment]], current: list[Segment] | None, *, after_space: bool
) -> tuple[list[Segment] | None, bool]:
    """Split one expanded text into fields; return the field it leaves open, and whether white space came last."""
    piece = part.piece
    if piece is None or piece.text is None:
        return current, after_space
    text = piece.text
    spaces = "".join(char for char in separators if char in " \t\n")
    if not text:
        # Nothing, unless something else is in the same word: then what it rests on stays with that.
        if current is not None:
            current.append(part)
        return current, after_space
    i = 0
    while i < len(text):
        char = text[i]
        if char in spaces:
            if current is not None:
                fields.append(current)
                after_space = True
            current = None
            i += 1
        elif char in separators:
            if current is not None or not after_space:
                fields.append(current if current is not None else [Segment(Piece("", piece.line), quoted=True)])
            current, after_space = None, False
            i += 1
        else:
            border = re.compile(f"[{re.escape(separators)}]").search(text, i) if separators else None
            end = border.start() if border else len(text)
            current = [] if current is None else current
            current.append(part._replace(piece=piece._replace(text=text[i:end])))
            after_space = False
            i = end
    return current, after_space
