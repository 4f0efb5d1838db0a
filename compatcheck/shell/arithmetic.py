"""Arithmetic of bash: 64-bit integers, C's operators, variables by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 20
"""Variables whose text is an expression again, parentheses and conditions inside one another."""
MAX_LENGTH = 10_000

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d\w*(?:#[\w@]+)?)|(?P<name>[A-Za-z_]\w*)|"
    r"(?P<operator>\*\*|<<=|>>=|\+\+|--|&&|\|\||<<|>>|[<>=!*/%+\-&|^]=|[-+*/%<>=!~&|^?:(),\[\]]))",
    re.ASCII,
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="}


class UnknownNumberError(ValueError):
    """The result depends on something unknown, or is an error in bash too."""

    def __init__(self, *names: str) -> None:
        """Keep what is unknown."""
        super().__init__(", ".join(names))
        self.names = names


def wrap(number: int) -> int:
    """Return a number as a signed 64-bit integer holds it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class Arithmetic:
    """One expression."""

    def __init__(
        self,
        text: str,
        read: Callable[[str, int | None], str],
        write: Callable[[str, int | None, int], None],
        depth: int = 0,
    ) -> None:
        """Take the text after expansion of ``$``.

        Args:
            text: the expression.
            read: gives the text of a variable, or of an element of an array; raises UnknownNumberError.
            write: sets one.
            depth: how many variables deep the text was found.
        """
        self.read = read
        self.write = write
        self.depth = depth
        self.live = True
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        if depth > MAX_DEPTH or len(text) > MAX_LENGTH:
            self.fail()
        i = 0
        text = text.rstrip()
        while i < len(text):
            match = _TOKEN.match(text, i)
            if match is None:
                self.fail()
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            i = match.end()

    def fail(self) -> NoReturn:
        """Refuse the expression."""
        raise UnknownNumberError

    def evaluate(self) -> int:
        """Return the value; an empty expression is 0.

        Raises:
            UnknownNumberError: a variable is unknown, or the expression is none.
        """
        if not self.tokens:
            return 0
        result = self.comma()
        if self.at < len(self.tokens):
            self.fail()
        return result

    def peek(self) -> str:
        """Return the next operator, or nothing."""
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        return text if kind == "operator" else ""

    def take(self, *operators: str) -> str:
        """Pass over the next operator if it is one of these."""
        found = self.peek()
        if found and found in operators:
            self.at += 1
            return found
        return ""

    def comma(self) -> int:
        """``a, b``."""
        result = self.assignment()
        while self.take(","):
            result = self.assignment()
        return result

    def assignment(self) -> int:
        """``a = b``, right to left."""
        start = self.at
        place = self.place()
        operator = self.peek()
        if place is None or operator not in _ASSIGN:
            self.at = start
            return self.conditional()
        self.at += 1
        self.enter()
        before = self.load(place) if operator != "=" else 0
        value = self.assignment()
        self.depth -= 1
        if operator != "=":
            value = self.binary(operator[:-1], before, value)
        return self.store(place, value)

    def enter(self) -> None:
        """Go one level deeper."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail()

    def place(self) -> tuple[str, int | None] | None:
        """Read ``name`` or ``name[index]``."""
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != "name":
            return None
        name = self.tokens[self.at][1]
        self.at += 1
        if not self.take("["):
            return name, None
        self.enter()
        index = self.comma()
        self.depth -= 1
        if not self.take("]"):
            self.fail()
        return name, index

    def load(self, place: tuple[str, int | None]) -> int:
        """Return the number a variable holds; its text is an expression again."""
        if not self.live:
            return 0
        return Arithmetic(self.read(*place), self.read, self.write, self.depth + 1).evaluate()

    def store(self, place: tuple[str, int | None], value: int) -> int:
        """Set a variable."""
        if self.live:
            self.write(*place, value)
        return value

    def conditional(self) -> int:
        """``a ? b : c``."""
        condition = self.level(0)
        if not self.take("?"):
            return condition
        self.enter()
        live = self.live
        self.live = live and bool(condition)
        yes = self.comma()
        if not self.take(":"):
            self.fail()
        self.live = live and not condition
        no = self.conditional()
        self.live = live
        self.depth -= 1
        return yes if condition else no

    def level(self, n: int) -> int:
        """Read binary operators from one precedence upwards."""
        if n == len(_LEVELS):
            return self.power()
        left = self.level(n + 1)
        while operator := self.take(*_LEVELS[n]):
            if operator in {"&&", "||"}:
                live = self.live
                self.live = live and bool(left) == (operator == "&&")
                right = self.level(n + 1)
                self.live = live
                left = int(bool(left) and bool(right)) if operator == "&&" else int(bool(left) or bool(right))
            else:
                left = self.binary(operator, left, self.level(n + 1))
        return left

    def power(self) -> int:
        """``a ** b``, right to left."""
        base = self.unary()
        if not self.take("**"):
            return base
        self.enter()
        exponent = self.power()
        self.depth -= 1
        if exponent < 0:
            self.fail()
        return wrap(pow(base, exponent, 1 << 64))

    def binary(self, operator: str, left: int, right: int) -> int:
        """Apply one operator."""
        match operator:
            case "/" | "%":
                if not right:
                    if self.live:
                        self.fail()
                    return 0
                quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
                result = quotient if operator == "/" else left - quotient * right
            case "<<":
                result = left << (right % 64)
            case ">>":
                result = left >> (right % 64)
            case _:
                result = int(_SIMPLE[operator](left, right))
        return wrap(result)

    def unary(self) -> int:
        """``-a``, ``!a``, ``++a``, ``a++``, numbers, parentheses."""
        if step := self.take("++", "--"):
            place = self.place()
            if place is None:
                return self.power() if step == "++" else wrap(self.power())
            return self.store(place, wrap(self.load(place) + (1 if step == "++" else -1)))
        if operator := self.take("-", "+", "!", "~"):
            self.enter()
            value = self.unary()
            self.depth -= 1
            return wrap({"-": -value, "+": value, "!": int(not value), "~": ~value}[operator])
        if self.take("("):
            self.enter()
            value = self.comma()
            self.depth -= 1
            if not self.take(")"):
                self.fail()
            return value
        place = self.place()
        if place is not None:
            value = self.load(place)
            if step := self.take("++", "--"):
                self.store(place, wrap(value + (1 if step == "++" else -1)))
            return value
        return self.number()

    def number(self) -> int:
        """Read a number: decimal, octal, hexadecimal or ``base#digits``."""
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != "number":
            self.fail()
        text = self.tokens[self.at][1]
        self.at += 1
        try:
            base, sign, digits = text.partition("#")
            if sign:
                return wrap(int(digits, int(base))) if 2 <= int(base) <= 36 else self.fail()
            if text[:2] in {"0x", "0X"}:
                return wrap(int(text, 16))
            return wrap(int(text, 8 if text.startswith("0") else 10)) if text.isdigit() else self.fail()
        except ValueError as error:
            if isinstance(error, UnknownNumberError):
                raise
            self.fail()


_SIMPLE: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
