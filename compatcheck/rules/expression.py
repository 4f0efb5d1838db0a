"""The condition and size language of rules: a bounded subset of Python syntax with three values.

Expressions are compiled to nested lists (`compatcheck.rules.syntax`) and evaluated over facts that may be unknown. The third
value is ``Unknown``; it remembers which facts would decide it, so that a "possible" finding can print the very
question to ask. ``and``/``or`` follow Kleene's strong logic: ``False and unknown`` is False.
"""

from __future__ import annotations

import itertools
import math
import operator
from functools import partial

from compatcheck.core.errors import RuleError
from compatcheck.core.moments import bytes_of_moments
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import DTYPE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    class Scope(Protocol):  # for type checkers only: to define a Protocol costs a millisecond at start-up
        """What an expression can ask about."""

        def value(self, name: str) -> object:
            """Return the fact's value, or Unknown."""

        def declared(self, name: str) -> object:
            """Tell whether anything decides the fact, a default included: True, False or Unknown."""

        def stated(self, name: str) -> object:
            """Tell whether an input states the fact, as opposed to a default or nothing: True, False or Unknown."""

        def installed(self, package: str, bounds: Any) -> object:  # noqa: ANN401 (compiled bounds, or a specifier)
            """Return whether a package in this range is there: True, False or Unknown."""

        def metadata_refutes(self, package: str, dependency: str, bounds: Any) -> bool:  # noqa: ANN401 (as above)
            """Tell whether an installed package's own metadata requires nothing of this range."""

        def version_in(self, version: str, bounds: Any) -> object:  # noqa: ANN401 (compiled bounds, or a specifier)
            """Return whether a version lies in a range: True, False or Unknown."""

        def variable(self, name: str) -> object:
            """Return an environment variable, None when known to be unset, or Unknown."""

        def look_up(self, table: str, keys: tuple[object, ...]) -> object:
            """Return a table's cell, or Unknown when the key is not in it."""


MAX_EXPONENT = 64
MAX_BITS = 4096
"""Largest whole number that a power may give; towers of powers would otherwise never end."""


class Unknown(NamedTuple):
    """A value that cannot be decided yet."""

    needs: frozenset[str]
    """Names of the facts, or spoken conditions such as ``env("NCCL_CUMEM_ENABLE")``, that would decide it."""
    choices: tuple[object, ...] = ()
    """Values one of which it has, where that much is known: those of both branches of a choice."""


_COMPARE: dict[str, Callable[[Any, Any], object]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.eq,  # identity of two values that are not None is an accident of the interpreter
    "is not": operator.ne,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_LEVELS = {"+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5}

Code = list["Any"]
"""An expression as nested lists, ready for JSON: ``["and", code…]``, ``["==", left, right]``, ``["fact", name]``,
``["value", literal]``, ``["range", specifier, bounds]``,
``["set", code…]``, ``["if", test, body, otherwise]``, ``["call", name, code…]``."""


def write(code: Code) -> str:
    """Write code as the expression it came from, with only the brackets it needs."""
    return _write(code)[0]


_LOOSE, _NOT, _COMPARISON, _SIGN, _POWER, _TIGHT = 0, 2, 3, 6, 7, 8


def _write(code: Code) -> tuple[str, int]:  # noqa: PLR0911 (one return per kind of node)
    """Return the text and how tightly it binds."""
    kind, *parts = code
    match kind:
        case "value" | "range":
            return repr(parts[0]), _TIGHT
        case "fact":
            return str(parts[0]), _TIGHT
        case "and" | "or":
            level = 1 if kind == "and" else _LOOSE
            return f" {kind} ".join(_bracket(part, level + 1) for part in parts), level
        case "not":
            return f"not {_bracket(parts[0], _NOT)}", _NOT
        case "negative":
            return f"-{_bracket(parts[0], _SIGN)}", _SIGN
        case "if":
            body, test, orelse = _bracket(parts[1], 1), _bracket(parts[0], 1), _bracket(parts[2], 1)
            return f"{body} if {test} else {orelse}", -1
        case "set" if not parts:
            return "()", _TIGHT
        case "set":
            return "{" + ", ".join(write(part) for part in parts) + "}", _TIGHT
        case "call":
            return f"{parts[0]}({', '.join(write(part) for part in parts[1:])})", _TIGHT
        case "**":
            return f"{_bracket(parts[0], _TIGHT)} ** {_bracket(parts[1], _SIGN)}", _POWER
        case _:
            level = _LEVELS.get(kind, _COMPARISON)
            left = level if kind in _LEVELS else level + 1  # comparisons chain instead of nesting
            return f"{_bracket(parts[0], left)} {kind} {_bracket(parts[1], level + 1)}", level


def _bracket(code: Code, level: int) -> str:
    text, own = _write(code)
    return text if own >= level else f"({text})"


def fact_names(code: Code) -> frozenset[str]:
    """Return every fact an expression reads, ``declared("…")`` included."""
    return frozenset(_names(code))


def _names(code: Code) -> Iterator[str]:
    kind = code[0]
    if kind == "fact":
        yield code[1]
    elif kind == "call" and code[1] in {"declared", "stated"}:
        yield code[2][1]
    elif kind not in {"value", "range"}:
        for part in code[2:] if kind == "call" else code[1:]:
            yield from _names(part)


def literals(code: Code) -> Iterator[tuple[str, Any]]:
    """Yield each fact with each literal that an expression compares it with."""
    if code[0] in {"value", "range", "fact"}:
        return
    parts = code[2:] if code[0] == "call" else code[1:]
    if code[0] in _COMPARE or code[0] in {"in", "not in"}:
        for one, other in (parts, parts[::-1]):
            if one[0] == "fact":
                members = other[1:] if other[0] == "set" else [other]
                yield from ((one[1], member[1]) for member in members if member[0] == "value")
    for part in parts:
        yield from literals(part)


def ranges(code: Code) -> Iterator[tuple[str, Any]]:
    """Yield each package with each range of releases that an expression asks for."""
    if code[0] in {"value", "range", "fact"}:
        return
    if code[0] == "call" and code[1] == "installed":
        if code[3][0] == "range":
            yield code[2][1], code[3][2]
        return
    for part in code[2:] if code[0] == "call" else code[1:]:
        yield from ranges(part)


def own_requirements(code: Code) -> frozenset[tuple[str, str]]:
    """Return the packages whose own metadata an expression asks for, each with the dependency it asks about."""
    if code[0] in {"value", "range", "fact"}:
        return frozenset()
    if code[0] == "call" and code[1] == "metadata_refutes":
        return frozenset({(code[2][1], code[3][1])})
    parts = code[2:] if code[0] == "call" else code[1:]
    return frozenset().union(*map(own_requirements, parts))


def conjuncts(code: Code) -> list[Code]:
    """Split an expression at its top-level ``and``; each part is one atom of a rule's condition."""
    return code[1:] if code[0] == "and" else [code]


def disjuncts(code: Code) -> list[Code]:
    """Split an expression at its top-level ``or``; each part is one exception of a rule."""
    return code[1:] if code[0] == "or" else [code]


def evaluate(code: Code, scope: Scope, known: dict[int, object] | None = None) -> object:
    """Evaluate an expression.

    Args:
        code: the expression.
        scope: what its names are.
        known: expression, by its identity → what it came to on this scope; each that `and` and `or` join is evaluated once.

    Returns:
        A value of the vocabulary's types, or Unknown with the facts that would decide it.

    Raises:
        RuleError: its types do not fit the values (``"a" * 2``).
    """
    try:
        return _evaluate(code, scope) if known is None else _evaluate_once(code, scope, known)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise RuleError(f"cannot evaluate `{write(code)}`: {error}") from None


def _evaluate_once(code: Code, scope: Scope, known: dict[int, object]) -> object:
    if id(code) not in known:
        joined = code[0] in {"and", "or"}
        known[id(code)] = _combine(code, scope, known) if joined else _evaluate(code, scope)
    return known[id(code)]


def _evaluate(code: Code, scope: Scope) -> object:
    kind = code[0]
    if kind == "fact":
        return scope.value(code[1])
    if kind == "value":
        return code[1]
    if kind == "range":
        return code[2]
    if kind in {"and", "or"}:
        return _combine(code, scope)
    if kind == "not":
        value = _evaluate(code[1], scope)
        return _over_choices(operator.not_, value) if isinstance(value, Unknown) else not value
    if kind == "call":
        return _call(code[1], code[2:], scope)
    if kind == "set":
        values = [_evaluate(part, scope) for part in code[1:]]
        return _needs(*values) or frozenset(values)
    if kind == "if":
        return _choose(code, scope)
    if kind == "negative":
        return _over_choices(lambda value: -_number(value), _evaluate(code[1], scope))
    return _relate(kind, _evaluate(code[1], scope), _evaluate(code[2], scope))


_MAX_CHOICES = 8


def _over_choices(function: Callable[..., object], *values: object) -> object:
    """Apply a function; where a value is one of a few, to each of them: what all give alike is known."""
    needs = _needs(*values)
    if needs is None:
        return function(*values)
    if not any(value.choices for value in values if isinstance(value, Unknown)):
        return needs
    ways = [value.choices if isinstance(value, Unknown) else (value,) for value in values]
    if not all(ways) or math.prod(map(len, ways)) > _MAX_CHOICES:
        return needs
    try:
        return _join(needs, *(function(*way) for way in itertools.product(*ways)))
    except (TypeError, ValueError, ArithmeticError):  # one of them makes no sense, which the test may exclude
        return needs


def _join(unknown: Unknown, *results: object) -> object:
    """Return what all ways give, or that it is one of their results."""
    open_results = [result for result in results if isinstance(result, Unknown)]
    if open_results:
        return Unknown(unknown.needs.union(*(result.needs for result in open_results)))
    if all(type(result) is type(results[0]) and result == results[0] for result in results):
        return results[0]
    return Unknown(unknown.needs, results)


def _combine(code: Code, scope: Scope, known: dict[int, object] | None = None) -> object:
    deciding = code[0] == "or"
    needs: frozenset[str] = frozenset()
    for part in code[1:]:
        value = _evaluate(part, scope) if known is None else _evaluate_once(part, scope, known)
        if isinstance(value, Unknown) and value.choices:
            value = _over_choices(bool, value)
        if isinstance(value, Unknown):
            needs |= value.needs
        elif bool(value) is deciding:
            return deciding
    return Unknown(needs) if needs else not deciding


def _relate(kind: str, left: object, right: object) -> object:
    if not isinstance(left, Unknown):
        return (
            _over_choices(partial(_apply, kind), left, right)
            if isinstance(right, Unknown)
            else _apply(kind, left, right)
        )
    if not left.choices and not isinstance(right, Unknown):
        return left  # as most comparisons end of which anything is unknown
    return _over_choices(partial(_apply, kind), left, right)


def _apply(kind: str, left: object, right: object) -> object:
    if kind == "**":
        return _power(_number(left), _number(right))
    arithmetic = _ARITHMETIC.get(kind)
    if arithmetic is not None:
        return arithmetic(_number(left), _number(right))
    if kind in {"in", "not in"}:
        if not isinstance(right, frozenset | tuple):
            raise RuleError(f"`in` needs a set, not {right!r}")
        members = left if isinstance(left, tuple) else (left,)
        return any(member in right for member in members) is (kind == "in")
    if isinstance(left, tuple | frozenset) or isinstance(right, tuple | frozenset):
        return _COMPARE[kind](frozenset(_items(left)), frozenset(_items(right)))
    if left is None or right is None:
        same = left is right
        return same if kind in {"is", "=="} else not same if kind in {"is not", "!="} else False
    return _COMPARE[kind](left, right)


def _items(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, tuple | frozenset) else (value,)


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > MAX_EXPONENT:
        raise RuleError(f"exponent {exponent} is larger than {MAX_EXPONENT}")
    if isinstance(base, int) and base.bit_length() * abs(exponent) > MAX_BITS:
        raise OverflowError("the power is too large")
    power = base**exponent
    if isinstance(power, complex):
        raise TypeError(f"{base} ** {exponent} is not a real number")
    return float(power) if isinstance(power, float) else int(power)


def _choose(code: Code, scope: Scope) -> object:
    """Evaluate ``body if test else orelse``; a known test leaves the other branch alone, which may not be defined."""
    test = _evaluate(code[1], scope)
    if not isinstance(test, Unknown):
        return _evaluate(code[2] if test else code[3], scope)
    try:
        body, orelse = _evaluate(code[2], scope), _evaluate(code[3], scope)
    except (TypeError, ValueError, ArithmeticError):  # a branch that only the test's other outcome makes sense of
        return Unknown(test.needs | _unknown_names(code, scope))
    if not isinstance(body, Unknown) and not isinstance(orelse, Unknown):
        return body if body == orelse else _join(test, body, orelse)
    needs = test.needs
    for branch in (body, orelse):
        if isinstance(branch, Unknown):
            needs |= branch.needs
    return Unknown(needs)


def _unknown_names(code: Code, scope: Scope) -> frozenset[str]:
    return frozenset(name for name in fact_names(code) if isinstance(scope.value(name), Unknown))


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return value
    raise TypeError(f"{value!r} is not a number")


def _needs(*values: object) -> Unknown | None:
    needs: frozenset[str] | None = None
    for value in values:
        if isinstance(value, Unknown):
            needs = value.needs if needs is None else needs | value.needs
    return None if needs is None else Unknown(needs)


def _call(name: str, arguments: list[Code], scope: Scope) -> object:  # noqa: PLR0911 (one return per function)
    if name == "declared":
        return scope.declared(arguments[0][1])
    if name == "stated":
        return scope.stated(arguments[0][1])
    if name == "env":
        return scope.variable(arguments[0][1])
    if name == "installed":
        return _over_choices(partial(scope.installed, arguments[0][1]), _evaluate(arguments[1], scope))
    values = [_evaluate(argument, scope) for argument in arguments]
    needs = _needs(*values)
    if needs is not None:
        return needs
    if name == "metadata_refutes":
        return scope.metadata_refutes(str(values[0]), str(values[1]), values[2])
    if name == "version_in":
        return None if values[0] is None else scope.version_in(str(values[0]), values[1])
    if name == "table":
        return scope.look_up(str(values[0]), tuple(values[1:]))
    if name == "dtype_bytes":
        return _dtype_bytes(values[0])
    if name == "moments":
        return 0 if values[0] is None else bytes_of_moments(str(values[0]))
    if name == "ceil":
        return math.ceil(_number(values[0]))
    if name == "pow2_ceil":
        count = math.ceil(_number(values[0]))
        return 1 << max(0, count - 1).bit_length() if count > 0 else 0
    numbers = map(_number, values)
    return min(numbers) if name == "min" else max(numbers)


def _dtype_bytes(dtype: object) -> float:
    if dtype is None:
        return 0
    size = DTYPE_BYTES.get(str(dtype))
    if size is None:
        raise TypeError(f"{dtype!r} is not a dtype")
    return int(size) if size == int(size) else size
