"""``[ … ]`` and ``[[ … ]]`` in three values: files are never looked at, so what asks for them is unknown."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from compatcheck.shell.grammar import Parser
from compatcheck.shell.patterns import PatternError, matches, translate
from compatcheck.shell.values import (
    Value,
    absence,
    assumptions_of,
    from_text,
    is_empty,
    is_many,
    text_of,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from compatcheck.shell.expand import Expander

_FILES = frozenset(f"-{letter}" for letter in "abcdefghkprstuwxGLNOSRo")
_TEXTS = {"=", "==", "!=", "<", ">"}
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_OTHERS = {"-nt", "-ot", "-ef"}
_BINARY = {*_TEXTS, *_NUMBERS, *_OTHERS}
_MAX_REGEX = 500
_MAX_DEPTH = 30


def negate(answer: bool | None) -> bool | None:  # noqa: FBT001 (three values)
    """Return the opposite."""
    return None if answer is None else not answer


def both(one: bool | None, two: bool | None) -> bool | None:  # noqa: FBT001
    """Return whether both hold."""
    return False if one is False or two is False else None if one is None or two is None else True


def either(one: bool | None, two: bool | None) -> bool | None:  # noqa: FBT001
    """Return whether one of two holds."""
    return negate(both(negate(one), negate(two)))


def _read_integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text, re.ASCII) else None


class Conditions:
    """Evaluate tests with one expander; what an answer rests on goes into ``expander.assumed``."""

    def __init__(self, expander: Expander) -> None:
        """Take what expands words."""
        self.expander = expander

    def is_empty(self, value: Value) -> bool | None:
        """Tell whether a value is empty, noting what the answer rests on."""
        answer, assumes = is_empty(value)
        self.expander.assumed.extend(assumes)
        self.expander.outside.update(absence(piece.name) for piece in value if piece.implicit)
        return answer

    def unary(self, operator: str, value: Value, line: int) -> bool | None:
        """Answer ``-z``, ``-n``, ``-v``; nothing is known about files."""
        match operator:
            case "-z":
                return self.is_empty(value)
            case "-n":
                return None if is_many(value) else negate(self.is_empty(value))
            case "-v":
                return self._is_set(text_of(value), line)
            case _:
                return None

    def _is_set(self, name: str | None, line: int) -> bool | None:
        match = name and re.fullmatch(r"([A-Za-z_]\w*)(?:\[(.+)\])?", name)
        if not match:
            return None
        found = self.expander.parameters.find(match[1], match[2], line)
        if found.is_set:
            return bool(found.values)
        return negate(self.is_empty(tuple(piece for value in found.values for piece in value)))

    def compare(self, left: Value, operator: str, right: Value) -> bool | None:
        """Answer a comparison of texts or of numbers."""
        if operator in _OTHERS:
            return None
        one, two = text_of(left), text_of(right)
        if operator in {"=", "==", "!="} and (one is None) != (two is None) and "" in {one, two}:
            answer = self.is_empty(left if one is None else right)
            return answer if operator != "!=" else negate(answer)
        if one is None or two is None:
            return None
        self.expander.assumed.extend((*assumptions_of(left), *assumptions_of(right)))
        match operator:
            case "=" | "==":
                return one == two
            case "!=":
                return one != two
            case "<" | ">":
                if not (one.isalnum() and two.isalnum() and one.islower() == two.islower()):
                    return None  # depends on the locale
                return one < two if operator == "<" else one > two
        numbers = [_read_integer(text) for text in (one, two)]
        if numbers[0] is None or numbers[1] is None:
            return None
        return _NUMBERS[operator](numbers[0], numbers[1])

    # [ … ] ---------------------------------------------------------------------------------------------------------

    def single(self, words: list[Value], line: int) -> bool | None:
        """Answer ``[ … ]``, given its words without the brackets."""
        if any(is_many(word) for word in words):
            # `[ -z $X ]` is true for nothing and for an empty text.
            return self.is_empty(words[1]) if len(words) == 2 and text_of(words[0]) == "-z" else None
        answer, end = self._or(words, 0, line, 0)
        return answer if end == len(words) else None

    def _or(self, words: list[Value], i: int, line: int, depth: int) -> tuple[bool | None, int]:
        answer, i = self._and(words, i, line, depth)
        while i < len(words) and text_of(words[i]) == "-o":
            right, i = self._and(words, i + 1, line, depth)
            answer = either(answer, right)
        return answer, i

    def _and(self, words: list[Value], i: int, line: int, depth: int) -> tuple[bool | None, int]:
        answer, i = self._not(words, i, line, depth)
        while i < len(words) and text_of(words[i]) == "-a":
            right, i = self._not(words, i + 1, line, depth)
            answer = both(answer, right)
        return answer, i

    def _not(self, words: list[Value], i: int, line: int, depth: int) -> tuple[bool | None, int]:
        left = len(words) - i
        if depth > _MAX_DEPTH:
            return None, i
        if left <= 0:
            return False, i
        first = text_of(words[i])
        second = text_of(words[i + 1]) if left > 1 else None
        if left >= 3 and second in _BINARY and not (first in {"!", "("} and left > 3):
            return self.compare(words[i], second, words[i + 2]), i + 3
        if first == "!" and left > 1:
            answer, i = self._not(words, i + 1, line, depth + 1)
            return negate(answer), i
        if first == "(" and left > 2:
            answer, i = self._or(words, i + 1, line, depth + 1)
            return (answer, i + 1) if i < len(words) and text_of(words[i]) == ")" else (None, i)
        if (
            first is not None
            and left > 1
            and (first in {"-z", "-n", "-v"} or first in _FILES)
            and second not in {"-a", "-o"}
        ):
            return self.unary(first, words[i + 1], line), i + 2
        return negate(self.is_empty(words[i])), i + 1

    # [[ … ]] -------------------------------------------------------------------------------------------------------

    def double(self, raw: str, line: int) -> bool | None:
        """Answer ``[[ … ]]``, given its inside as written."""
        tokens = _tokens(raw, self.expander.depth)
        answer, end = self._disjunction(tokens, 0, line, 0)
        return answer if end == len(tokens) else None

    def _disjunction(self, tokens: list[str], i: int, line: int, depth: int) -> tuple[bool | None, int]:
        answer, i = self._conjunction(tokens, i, line, depth)
        while tokens[i : i + 1] == ["||"]:
            right, i = self._conjunction(tokens, i + 1, line, depth)
            answer = either(answer, right)
        return answer, i

    def _conjunction(self, tokens: list[str], i: int, line: int, depth: int) -> tuple[bool | None, int]:
        answer, i = self._term(tokens, i, line, depth)
        while tokens[i : i + 1] == ["&&"]:
            right, i = self._term(tokens, i + 1, line, depth)
            answer = both(answer, right)
        return answer, i

    def _term(self, tokens: list[str], i: int, line: int, depth: int) -> tuple[bool | None, int]:
        if i >= len(tokens) or depth > _MAX_DEPTH:
            return None, i + 1
        word, following = tokens[i], tokens[i + 1] if i + 1 < len(tokens) else ""
        if word == "!":
            answer, i = self._term(tokens, i + 1, line, depth + 1)
            return negate(answer), i
        if word == "(":
            answer, i = self._disjunction(tokens, i + 1, line, depth + 1)
            return answer, i + 1
        if following in _BINARY or following == "=~":
            right = tokens[i + 2] if i + 2 < len(tokens) else ""
            return self._binary(word, following, right, line), i + 3
        if (word in {"-z", "-n", "-v"} or word in _FILES) and following not in {"", "&&", "||", ")"}:
            return self.unary(word, self.expander.one(following, line), line), i + 2
        return negate(self.is_empty(self.expander.one(word, line))), i + 1

    def _binary(self, left: str, operator: str, right: str, line: int) -> bool | None:
        value = self.expander.one(left, line)
        if operator in _NUMBERS:
            numbers = [self._arithmetic(one, line) for one in (value, self.expander.one(right, line))]
            return None if numbers[0] is None or numbers[1] is None else _NUMBERS[operator](numbers[0], numbers[1])
        if operator in {"=", "==", "!=", "=~"}:
            parts, names = self.expander.pattern(right, line)
            if not names and not any(text for text, _ in parts) and operator != "=~":
                answer = self.is_empty(value)
                return negate(answer) if operator == "!=" else answer
            text = text_of(value)
            if operator == "=~":
                return self._search(text, parts, names, line)
            if names or text is None:
                return None
            self.expander.assumed.extend(assumptions_of(value))
            try:
                answer = matches(text, translate(parts))
            except PatternError:
                return None
            return answer if operator != "!=" else not answer
        return self.compare(value, operator, self.expander.one(right, line))

    def _arithmetic(self, value: Value, line: int) -> int | None:
        text = text_of(value)
        if text is None:
            return None
        number, _, assumes = self.expander.number(text, line)
        self.expander.assumed.extend((*assumptions_of(value), *assumes))
        return number

    def _search(
        self, text: str | None, parts: list[tuple[str, bool]], names: tuple[str, ...], line: int
    ) -> bool | None:
        source = "".join(
            re.escape(part) if quoted else _CLASS.sub(lambda m: _CLASSES[m[1]], part) for part, quoted in parts
        )
        match: re.Match[str] | None = None
        known = text is not None and not names and len(source) + len(text) < _MAX_REGEX and source.count("(") < 9
        if known and not re.search(r"\[:|\\[^.\[\](){}*+?^$|/-]|[*+?}][*+?{]|\)[*+{]", source):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of brackets that another release of Python may read otherwise
                    match = re.search(source, text or "")
            except re.error:
                known = False
        else:
            known = False
        groups = [*([match.group()] if match else []), *([one or "" for one in match.groups()] if match else [])]
        values = {n: from_text(group, line) for n, group in enumerate(groups)}
        if not known or "|" in source:
            values = {0: unknown("${BASH_REMATCH[@]}", line, many=True)}
        self.expander.parameters.replace_array("BASH_REMATCH", values, line)
        return None if not known else match is not None


_CLASS = re.compile(r"\[:(alpha|digit|alnum|upper|lower|space):\]")
_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s"}


def _tokens(raw: str, depth: int) -> list[str]:
    """Split the inside of ``[[ … ]]`` into words and operators; parentheses of a pattern stay in it."""
    lexer = Parser(raw, depth)
    result: list[str] = []
    i = 0
    while i < len(raw):
        if raw[i] in " \t\n":
            i += 1
        elif raw.startswith("\\\n", i):
            i += 2
        elif raw[i : i + 2] in {"&&", "||"}:
            result.append(raw[i : i + 2])
            i += 2
        elif raw[i] in "()<>" and not (result and result[-1] in {"=~", "==", "=", "!="}):
            result.append(raw[i])
            i += 1
        else:
            end = _token_end(raw, i, lexer, pattern=bool(result) and result[-1] in {"=~", "==", "=", "!="})
            result.append(raw[i:end])
            i = end
    return result


def _token_end(raw: str, i: int, lexer: Parser, *, pattern: bool) -> int:
    start, nest = i, 0
    while i < len(raw):
        char = raw[i]
        if char in " \t\n" and not nest:
            break
        if pattern and char in "()":
            nest += 1 if char == "(" else -1
            if nest < 0:
                break
            i += 1
        elif (not pattern and char in "()<>") or (raw[i : i + 2] in {"&&", "||"} and not nest):
            break
        elif char == "\\":
            i += 2
        elif char == "'":
            i = lexer.single(i)
        elif char == '"':
            i = lexer.double(i)
        elif char in "$`":
            i = lexer.expansion(i)
        else:
            i += 1
    return min(max(i, start + 1), len(raw))
