"""The condition and size language of rules: a bounded subset of Python syntax with three values.

An expression is parsed with ``ast``, checked against a whitelist of nodes and evaluated over facts that may be unknown. The
third value is ``Unknown``; it remembers which facts would decide it, so that a "possible" finding can print the very
question to ask. ``and``/``or`` follow Kleene's strong logic: ``False and unknown`` is False.
"""

from __future__ import annotations

import ast
import math
import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from compatcheck.core.errors import RuleError
from compatcheck.core.units import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_LENGTH = 2000
MAX_NODES = 200
MAX_INTEGER = 10**18
MAX_EXPONENT = 64


class Unknown(NamedTuple):
    """A value that cannot be decided yet."""

    needs: frozenset[str]
    """Names of the facts, or spoken conditions such as ``env("NCCL_CUMEM_ENABLE")``, that would decide it."""


class Scope(Protocol):
    """What an expression can ask about."""

    def value(self, name: str) -> object:
        """Return the fact's value, or Unknown."""

    def declared(self, name: str) -> bool:
        """Tell whether an input states the fact, as opposed to a default or nothing."""

    def installed(self, package: str, specifier: str) -> object:
        """Return whether a package in this range is there: True, False or Unknown."""

    def version_in(self, version: str, specifier: str) -> object:
        """Return whether a version lies in a range: True, False or Unknown."""

    def variable(self, name: str) -> object:
        """Return an environment variable, None when known to be unset, or Unknown."""

    def look_up(self, table: str, keys: tuple[object, ...]) -> object:
        """Return a table's cell, or Unknown when the key is not in it."""


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS = {
    "declared": 1,
    "installed": 2,
    "version_in": 2,
    "env": 1,
    "table": None,
    "dtype_bytes": 1,
    "min": None,
    "max": None,
    "ceil": 1,
    "pow2_ceil": 1,
}
"""Name → number of arguments; None takes any positive number."""

_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.BinOp,
    ast.Pow,
    ast.Compare,
    ast.In,
    ast.NotIn,
    ast.IfExp,
    ast.Call,
    ast.Name,
    ast.Attribute,
    ast.Load,
    ast.Constant,
    ast.Set,
    ast.Tuple,
    *_COMPARE,
    *_ARITHMETIC,
)


@lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """Parse an expression and check it against the whitelist.

    Raises:
        RuleError: not an expression, a construct outside the language, or too large; a caret marks the place.
    """
    if len(text) > MAX_LENGTH:
        msg = f"expression longer than {MAX_LENGTH} characters"
        raise RuleError(msg)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = (getattr(error, "offset", None) or 1) - 1
        msg = f"not an expression: {getattr(error, 'msg', error)}\n{_caret(text.strip(), column)}"
        raise RuleError(msg) from None
    count = 0
    for node in ast.walk(tree):
        count += 1
        if not isinstance(node, _NODES):
            msg = f"{type(node).__name__} is not part of the language\n{_caret(text.strip(), _column(node))}"
            raise RuleError(msg)
        problem = _check(node)
        if problem:
            msg = f"{problem}\n{_caret(text.strip(), _column(node))}"
            raise RuleError(msg)
    if count > MAX_NODES:
        msg = f"expression has {count} nodes, more than {MAX_NODES}"
        raise RuleError(msg)
    return tree.body


def _check(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=value):
            if isinstance(value, int | float) and abs(value) > MAX_INTEGER:
                return f"number larger than {MAX_INTEGER:.0e}"
            if not isinstance(value, int | float | str | bool | None):
                return f"{type(value).__name__} literals are not part of the language"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in _FUNCTIONS:
                return f"unknown function {name}(); known: {', '.join(sorted(_FUNCTIONS))}"
            wanted = _FUNCTIONS[name]
            if (wanted is not None and len(arguments) != wanted) or not arguments:
                return f"{name}() takes {wanted or 'one or more'} argument{'' if wanted == 1 else 's'}"
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


def fact_names(text: str) -> frozenset[str]:
    """Return every fact an expression reads, ``declared("…")`` included."""
    return frozenset(_names(parse(text)))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        name = dotted_name(node)
        if name is not None:
            yield name
        return
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "declared"
        and isinstance(node.args[0], ast.Constant)
    ):
        yield str(node.args[0].value)
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child)


def conjuncts(text: str) -> list[str]:
    """Split an expression at its top-level ``and``; each part is one atom of a rule's condition."""
    node = parse(text)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [ast.unparse(value) for value in node.values]
    return [ast.unparse(node)]


def evaluate(text: str, scope: Scope) -> object:
    """Evaluate an expression.

    Returns:
        A value of the vocabulary's types, or Unknown with the facts that would decide it.

    Raises:
        RuleError: the expression is malformed, or its types do not fit the values (``"a" * 2``).
    """
    try:
        return _evaluate(parse(text), scope)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        msg = f"cannot evaluate `{text}`: {error}"
        raise RuleError(msg) from None


def _evaluate(node: ast.expr, scope: Scope) -> object:  # noqa: PLR0911 (one return per node type reads best)
    match node:
        case ast.Constant():
            return node.value
        case ast.Attribute() | ast.Name():
            return scope.value(dotted_name(node) or ast.unparse(node))
        case ast.BoolOp(op=ast.And(), values=values):
            return _combine(values, scope, deciding=False)
        case ast.BoolOp(values=values):
            return _combine(values, scope, deciding=True)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            value = _evaluate(operand, scope)
            return value if isinstance(value, Unknown) else not value
        case ast.UnaryOp(operand=operand):
            value = _evaluate(operand, scope)
            return value if isinstance(value, Unknown) else -_number(value)
        case ast.BinOp(left=left, op=op, right=right):
            return _calculate(op, _evaluate(left, scope), _evaluate(right, scope))
        case ast.Compare():
            return _compare(node, scope)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choose(_evaluate(test, scope), _evaluate(body, scope), _evaluate(orelse, scope))
        case ast.Set(elts=elements) | ast.Tuple(elts=elements):
            return _collect(elements, scope)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, arguments, scope)
        case _:
            msg = f"{type(node).__name__} is not part of the language"
            raise RuleError(msg)


def _combine(nodes: list[ast.expr], scope: Scope, *, deciding: bool) -> object:
    needs: frozenset[str] = frozenset()
    for node in nodes:
        value = _evaluate(node, scope)
        if isinstance(value, Unknown):
            needs |= value.needs
        elif bool(value) is deciding:
            return deciding
    return Unknown(needs) if needs else not deciding


def _compare(node: ast.Compare, scope: Scope) -> object:
    left = _evaluate(node.left, scope)
    needs: frozenset[str] = frozenset()
    for operation, comparator in zip(node.ops, node.comparators, strict=True):
        right = _evaluate(comparator, scope)
        result = _compare_pair(operation, left, right)
        if isinstance(result, Unknown):
            needs |= result.needs
        elif not result:
            return False
        left = right
    return Unknown(needs) if needs else True


def _compare_pair(operation: ast.cmpop, left: object, right: object) -> object:
    needs = _needs(left, right)
    if needs is not None:
        return needs
    if isinstance(operation, ast.In | ast.NotIn):
        if not isinstance(right, frozenset | tuple):
            msg = f"`in` needs a set, not {right!r}"
            raise RuleError(msg)
        members = left if isinstance(left, tuple) else (left,)
        return any(member in right for member in members) is isinstance(operation, ast.In)
    if isinstance(left, tuple | frozenset) or isinstance(right, tuple | frozenset):
        return _COMPARE[type(operation)](frozenset(_items(left)), frozenset(_items(right)))
    if left is None or right is None:
        same = left is right
        return (
            same
            if isinstance(operation, ast.Is | ast.Eq)
            else not same
            if isinstance(operation, ast.IsNot | ast.NotEq)
            else False
        )
    return _COMPARE[type(operation)](left, right)


def _items(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, tuple | frozenset) else (value,)


def _choose(test: object, body: object, orelse: object) -> object:
    if not isinstance(test, Unknown):
        return body if test else orelse
    if not isinstance(body, Unknown) and not isinstance(orelse, Unknown) and body == orelse:
        return body
    needs = test.needs
    for branch in (body, orelse):
        if isinstance(branch, Unknown):
            needs |= branch.needs
    return Unknown(needs)


def _collect(elements: list[ast.expr], scope: Scope) -> object:
    values = [_evaluate(element, scope) for element in elements]
    needs = _needs(*values)
    return needs if needs is not None else frozenset(values)


def _calculate(op: ast.operator, left: object, right: object) -> object:
    needs = _needs(left, right)
    if needs is not None:
        return needs
    a, b = _number(left), _number(right)
    if isinstance(op, ast.Pow):
        if abs(b) > MAX_EXPONENT:
            msg = f"exponent {b} is larger than {MAX_EXPONENT}"
            raise RuleError(msg)
        return a**b
    return _ARITHMETIC[type(op)](a, b)


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return value
    msg = f"{value!r} is not a number"
    raise TypeError(msg)


def _needs(*values: object) -> Unknown | None:
    needs = [value.needs for value in values if isinstance(value, Unknown)]
    return Unknown(frozenset().union(*needs)) if needs else None


def _call(name: str, arguments: list[ast.expr], scope: Scope) -> object:  # noqa: PLR0911 (one return per function)
    if name == "declared":
        return scope.declared(_text(arguments[0]))
    if name == "env":
        return scope.variable(_text(arguments[0]))
    values = [_evaluate(argument, scope) for argument in arguments]
    needs = _needs(*values)
    if needs is not None:
        return needs
    match name:
        case "installed":  # the range may come from a table, one per model type
            return scope.installed(str(values[0]), str(values[1]))
        case "version_in":
            return None if values[0] is None else scope.version_in(str(values[0]), str(values[1]))
        case "table":
            return scope.look_up(str(values[0]), tuple(values[1:]))
        case "dtype_bytes":
            if values[0] is None:
                return 0
            size = DTYPE_BYTES.get(str(values[0]))
            if size is None:
                msg = f"{values[0]!r} is not a dtype"
                raise TypeError(msg)
            return int(size) if size == int(size) else size
        case "ceil":
            return math.ceil(_number(values[0]))
        case "pow2_ceil":
            count = math.ceil(_number(values[0]))
            return 1 << max(0, count - 1).bit_length() if count > 0 else 0
        case "min":
            return min(_number(value) for value in values)
        case _:
            return max(_number(value) for value in values)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    msg = f"`{ast.unparse(node)}` must be a literal string"
    raise RuleError(msg)
