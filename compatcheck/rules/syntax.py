"""Parse the condition and size language of rules: a bounded subset of Python syntax, checked against a whitelist.

Runs when rules are compiled and linted; matching evaluates the code it produces (`compatcheck.rules.expression`).
"""

from __future__ import annotations

import ast
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_text
from compatcheck.core.errors import RuleError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.python_code import parse_python
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.rules.expression import Code

MAX_LENGTH = 2000
MAX_NODES = 250
MAX_INTEGER = 10**18

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}


class Function(NamedTuple):
    """A function of the language."""

    arguments: int | None
    """How many it takes; None for one or more."""
    meaning: str
    """What it gives."""
    expression: str
    """What is written out in its place; empty where it is evaluated itself."""


@cache
def functions() -> Mapping[str, Function]:
    """Return every function by name: the rows of ``data/functions.txt``."""
    rows = re.split(r"\n(?! )", read_text(__file__, "functions").partition("\n\n")[2].rstrip())
    found = {}
    for row, *expression in map(str.splitlines, rows):
        name, count, meaning = row.split(" | ", 2)
        words = " ".join(map(str.strip, expression))
        found[name] = Function(None if count == "+" else int(count), meaning, words)
    return found


_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.BinOp,
    ast.Compare,
    ast.IfExp,
    ast.Call,
    ast.Name,
    ast.Attribute,
    ast.Load,
    ast.Constant,
    ast.Set,
    ast.Tuple,
    *_SYMBOLS,
)


@lru_cache(maxsize=1024)
def parse_tree(text: str) -> ast.expr:
    """Parse an expression to a checked syntax tree; for static checks.

    Raises:
        RuleError: not an expression, a construct outside the language, or too large; a caret marks the place.
    """
    if len(text) > MAX_LENGTH:
        raise RuleError(f"expression longer than {MAX_LENGTH} characters")
    try:
        tree = parse_python(text.strip(), "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = (getattr(error, "offset", None) or 1) - 1
        problem = getattr(error, "msg", error)
        raise RuleError(f"not an expression: {problem}\n{_caret(text.strip(), column)}") from None
    count = 0
    for node in ast.walk(tree):
        count += 1
        if not isinstance(node, _NODES):
            name = type(node).__name__
            raise RuleError(f"{name} is not part of the language\n{_caret(text.strip(), _column(node))}")
        problem = _check(node)
        if problem:
            raise RuleError(f"{problem}\n{_caret(text.strip(), _column(node))}")
    if count > MAX_NODES:
        raise RuleError(f"expression has {count} nodes, more than {MAX_NODES}")
    return tree.body


def parse(text: str) -> Code:
    """Parse an expression to code that `evaluate` runs.

    Raises:
        RuleError: see `parse_tree`.
    """
    return _encode(parse_tree(text))


def _encode(node: ast.expr) -> Code:  # noqa: PLR0911 (one return per node type)
    match node:
        case ast.Constant():
            return ["value", node.value]
        case ast.Attribute() | ast.Name():
            return ["fact", dotted_name(node) or ast.unparse(node)]
        case ast.BoolOp(op=op, values=values):
            return ["and" if isinstance(op, ast.And) else "or", *map(_encode, values)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["not", _encode(operand)]
        case ast.UnaryOp(operand=operand):
            return ["negative", _encode(operand)]
        case ast.BinOp(left=left, op=op, right=right):
            return [_SYMBOLS[type(op)], _encode(left), _encode(right)]
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [_encode(left), *map(_encode, comparators)]
            pairs: list[Code] = [[_SYMBOLS[type(op)], sides[index], sides[index + 1]] for index, op in enumerate(ops)]
            return pairs[0] if len(pairs) == 1 else ["and", *pairs]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ["if", _encode(test), _encode(body), _encode(orelse)]
        case ast.Set(elts=elements) | ast.Tuple(elts=elements):
            return ["set", *map(_encode, elements)]
        case ast.Call(func=ast.Name(id=name), args=arguments):
            if functions()[name].expression:
                return parse(functions()[name].expression)
            if name in {"declared", "env", "stated"}:
                return ["call", name, _literal_text(arguments[0])]
            if name in {"installed", "version_in"}:
                first = _literal_text(arguments[0]) if name == "installed" else _encode(arguments[0])
                return ["call", name, first, _encode_range(arguments[1])]
            if name == "metadata_refutes":
                names = [_literal_text(argument) for argument in arguments[:2]]
                return ["call", name, *names, _encode_range(arguments[2])]
            return ["call", name, *map(_encode, arguments)]
        case _:
            raise RuleError(f"{type(node).__name__} is not part of the language")


def _encode_range(node: ast.expr) -> Code:
    """Compile a literal specifier once; one that comes from a table is compiled when it is known."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node.value in {"present", "absent"}:
        return _encode(node)
    try:
        return ["range", node.value, compile_specifier(node.value)]
    except InvalidSpecifierError as error:
        raise RuleError(str(error)) from None


def _literal_text(node: ast.expr) -> Code:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ["value", node.value]
    name = dotted_name(node)
    if name is not None:
        return ["value", name]  # declared(training.zero_stage) reads as well as the quoted name
    raise RuleError(f"`{ast.unparse(node)}` must be a literal string")


def _check(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=value):
            if isinstance(value, int | float) and abs(value) > MAX_INTEGER:
                return f"number larger than {MAX_INTEGER:.0e}"
            if not isinstance(value, int | float | str | bool | None):
                return f"{type(value).__name__} literals are not part of the language"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in functions():
                return f"unknown function {name}(); known: {', '.join(sorted(functions()))}"
            wanted = functions()[name].arguments
            if not arguments if wanted is None else len(arguments) != wanted:
                return (
                    f"{name}() takes {'one or more' if wanted is None else wanted} argument{'' if wanted == 1 else 's'}"
                )
        case ast.Call():
            return "only the functions of the language can be called, without keywords"
        case ast.Attribute(value=ast.Name() | ast.Attribute()) | ast.Name():
            return None
        case ast.Attribute():
            return "attributes are only part of fact names"
        case _:
            return None
    return None


def _column(node: ast.AST) -> int:
    return getattr(node, "col_offset", 0)


def _caret(text: str, column: int) -> str:
    line = text.replace("\n", " ")
    return f"    {line}\n    {' ' * max(0, min(column, len(line)))}^"


def dotted_name(node: ast.expr) -> str | None:
    """Return ``training.zero_stage`` for the node that writes it, None for any other node."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and parts:
        return ".".join([node.id, *reversed(parts)])
    return None
