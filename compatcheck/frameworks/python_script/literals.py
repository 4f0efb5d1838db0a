"""Arithmetic on the literals of a script, within bounds."""

from __future__ import annotations

import ast

_MAX_POWER = 60
_MAX_NUMBER = 2**63
_MAX_CHARACTERS = 1 << 14


class NoLiteralError(Exception):
    """An expression is no literal."""


def negate(operator: ast.unaryop, value: object) -> object:
    """Turn the sign of a number or the truth of a value."""
    if isinstance(operator, ast.USub) and isinstance(value, int | float):
        return -value
    if isinstance(operator, ast.Not):
        return not value
    raise NoLiteralError


def compute(operator: ast.operator, left: object, right: object) -> object:
    """Do arithmetic on numbers and join texts, within bounds."""
    if isinstance(operator, ast.Add) and isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > _MAX_CHARACTERS:
            raise NoLiteralError
        return left + right
    if (
        isinstance(left, bool)
        or isinstance(right, bool)
        or not isinstance(left, int | float)
        or not isinstance(right, int | float)
    ):
        raise NoLiteralError
    try:
        match operator:
            case ast.Add():
                result: float = left + right
            case ast.Sub():
                result = left - right
            case ast.Mult():
                result = left * right
            case ast.FloorDiv():
                result = left // right
            case ast.Div():
                result = left / right
            case ast.Pow() if abs(right) <= _MAX_POWER and abs(left) <= _MAX_NUMBER:
                result = left**right
            case _:
                raise NoLiteralError
    except (ArithmeticError, ValueError):
        raise NoLiteralError from None
    if isinstance(result, complex) or abs(result) > _MAX_NUMBER:
        raise NoLiteralError
    return result


def compare(operator: ast.cmpop, left: object, right: object) -> bool:
    """Compare two literals."""
    match operator:
        case ast.Eq():
            return left == right
        case ast.NotEq():
            return left != right
        case ast.Is() if right is None or isinstance(right, bool):
            return left is right
        case ast.IsNot() if right is None or isinstance(right, bool):
            return left is not right
        case ast.In() if isinstance(right, list) or (isinstance(left, str) and isinstance(right, str)):
            return left in right
        case ast.NotIn() if isinstance(right, list) or (isinstance(left, str) and isinstance(right, str)):
            return left not in right
        case ast.Gt() if isinstance(left, int | float) and isinstance(right, int | float):
            return left > right
        case ast.GtE() if isinstance(left, int | float) and isinstance(right, int | float):
            return left >= right
        case ast.Lt() if isinstance(left, int | float) and isinstance(right, int | float):
            return left < right
        case ast.LtE() if isinstance(left, int | float) and isinstance(right, int | float):
            return left <= right
    raise NoLiteralError


def convert(kind: str, value: object) -> object:
    """Make a number, or a text, of a literal."""
    if not isinstance(value, str | int | float):
        raise NoLiteralError
    try:
        return {"int": int, "float": float, "str": str}[kind](value)
    except (ValueError, OverflowError):
        raise NoLiteralError from None
