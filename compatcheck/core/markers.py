"""Environment markers (PEP 508, PEP 751) for a machine of which only a part is known.

``packaging.markers`` evaluates for one fully known interpreter. A file is checked for Linux with a GPU, often without
knowing its Python: then a marker is decided for every Python the file may be used with, and anything unknown stays
unknown.
"""

from __future__ import annotations

import re
from functools import lru_cache

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.versions import OPERATORS, InvalidSpecifierError, all_ordered, compile_specifier, parse_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LINUX = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
"""What is taken as known about the machine unless the caller says otherwise: training runs on Linux with CPython."""

PYTHONS = tuple(f"3.{minor}.{patch}" for minor in range(8, 16) for patch in (0, 99))
"""Interpreters tried when the Python is unknown: the first and a late release of each minor version."""

_LEGACY = {
    "os.name": "os_name",
    "sys.platform": "sys_platform",
    "platform.version": "platform_version",
    "platform.machine": "platform_machine",
    "platform.python_implementation": "platform_python_implementation",
    "python_implementation": "platform_python_implementation",
}
_VARIABLES = {
    *LINUX,
    "python_version",
    "python_full_version",
    "implementation_version",
    "platform_release",
    "platform_version",
    "extra",
    "extras",
    "dependency_groups",
}
_VERSIONED = {"python_version", "python_full_version", "implementation_version"}
_NAMES = {"extra", "extras", "dependency_groups"}
_TOKEN = lazy_compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<op>===|==|~=|!=|<=|>=|<|>|not\s+in\b|in\b)|(?P<paren>[()])|(?P<word>[\w.]+))""",
)
_MAX_TOKENS = 1200
_COMPARISON_TOKENS = 3
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


class InvalidMarkerError(ValueError):
    """A text is not an environment marker."""


class MarkerEnvironment(NamedTuple):
    """What is known about the interpreter and the selection a marker is evaluated for."""

    values: Mapping[str, str]
    """Marker variables with a known value, those of the Python version apart."""
    pythons: tuple[str, ...]
    """Every Python that is possible, full versions."""
    extras: frozenset[str] = frozenset()
    """Selected extras, canonical names."""
    groups: frozenset[str] = frozenset()
    """Selected dependency groups, canonical names."""


def describe_machine(
    values: Mapping[str, str] | None = None,
    *,
    requires_python: str | None = None,
    extras: Iterable[str] = (),
    groups: Iterable[str] = (),
) -> MarkerEnvironment:
    """Describe a machine for markers.

    Args:
        values: marker variables that are known (``python_full_version``, ``platform_machine``, …); the rest is Linux.
        requires_python: the range of a file, which narrows an unknown Python.
        extras: selected extras.
        groups: selected dependency groups.
    """
    known = {**LINUX, **(values or {})}
    full, short = known.pop("python_full_version", None), known.pop("python_version", None)
    if full is not None and full.count(".") > 1:
        pythons: tuple[str, ...] = (full,)
    elif short or full:
        pythons = tuple(f"{short or full}.{patch}" for patch in (0, 99))
    else:
        pythons = PYTHONS
    if requires_python and len(pythons) > 1:
        try:
            bounds = compile_specifier(requires_python)
        except InvalidSpecifierError:
            bounds = [[]]
        allowed = [text for text in pythons if (version := parse_version(text)) and all_ordered(bounds, version)]
        pythons = tuple(allowed) or pythons
    normal = (frozenset(map(canonical_name, names)) for names in (extras, groups))
    return MarkerEnvironment(known, pythons, *normal)


@lru_cache(maxsize=4096)
def canonical_name(name: str) -> str:
    """Normalise a distribution, extra or group name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def evaluate(marker: str, environment: MarkerEnvironment, python: str) -> bool | None:
    """Evaluate a marker for one Python of an environment.

    Returns:
        True, False, or None when a variable that decides it is not known.

    Raises:
        InvalidMarkerError: it is not a marker.
    """
    return _evaluate(_parse(marker), environment, python)


def _evaluate(node: _Node, environment: MarkerEnvironment, python: str) -> bool | None:
    operator, left, right = node
    if operator in {"and", "or"}:
        assert isinstance(left, tuple)  # noqa: S101 (narrows the type)
        assert isinstance(right, tuple)  # noqa: S101
        decisive = operator == "or"
        first = _evaluate(left, environment, python)
        if first is decisive:
            return first
        second = _evaluate(right, environment, python)
        return second if first is (not decisive) or second is decisive else None
    assert isinstance(left, str)  # noqa: S101
    assert isinstance(right, str)  # noqa: S101
    return _compare(operator, left, right, environment, python)


_Node = tuple[str, "str | _Node", "str | _Node"]
"""(``and`` | ``or``, node, node) or (operator, operand, operand); an operand is a quoted text or a variable."""


@lru_cache(maxsize=4096)
def _parse(marker: str) -> _Node:
    tokens: list[str] = []
    position = 0
    text = marker.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _invalid(marker, f"unexpected {text[position : position + 10]!r}")
        token = match.group(0).strip()
        if match.group("op"):
            token = " ".join(token.split())
        tokens.append(token)
        position = match.end()
    if len(tokens) > _MAX_TOKENS:
        raise _invalid(marker[:40] + "…", "it is too long")
    tokens.reverse()
    try:
        node = _parse_or(tokens, marker)
    except RecursionError:
        raise _invalid(marker, "nested too deeply") from None
    if tokens:
        raise _invalid(marker, f"unexpected {tokens[-1]!r}")
    return node


def _parse_or(tokens: list[str], marker: str) -> _Node:
    node = _parse_and(tokens, marker)
    while tokens and tokens[-1] == "or":
        tokens.pop()
        node = ("or", node, _parse_and(tokens, marker))
    return node


def _parse_and(tokens: list[str], marker: str) -> _Node:
    node = _parse_atom(tokens, marker)
    while tokens and tokens[-1] == "and":
        tokens.pop()
        node = ("and", node, _parse_atom(tokens, marker))
    return node


def _parse_atom(tokens: list[str], marker: str) -> _Node:
    if tokens and tokens[-1] == "(":
        tokens.pop()
        node = _parse_or(tokens, marker)
        if not tokens or tokens.pop() != ")":
            raise _invalid(marker, "a parenthesis is not closed")
        return node
    if len(tokens) < _COMPARISON_TOKENS:
        raise _invalid(marker, "it ends too early")
    left, operator, right = _operand(tokens.pop(), marker), tokens.pop(), _operand(tokens.pop(), marker)
    if operator not in {"===", "==", "~=", "!=", "<=", ">=", "<", ">", "in", "not in"}:
        raise _invalid(marker, f"{operator!r} is no comparison")
    return (operator, left, right)


def _operand(token: str, marker: str) -> str:
    if token[0] in "\"'":
        return '"' + token[1:-1]
    variable = _LEGACY.get(token, token)
    if variable not in _VARIABLES:
        raise _invalid(marker, f"{token!r} is no marker variable")
    return variable


def _invalid(marker: str, reason: str) -> InvalidMarkerError:
    return InvalidMarkerError(f"{marker!r} is not an environment marker: {reason}")


def _compare(operator: str, left: str, right: str, environment: MarkerEnvironment, python: str) -> bool | None:
    variable = next((side for side in (left, right) if side[0] != '"'), None)
    if variable in _NAMES:
        literal = canonical_name((left if left[0] == '"' else right)[1:])
        names = environment.groups if variable == "dependency_groups" else environment.extras
        return (literal in names) == (operator in {"==", "in", "==="})
    left_value, right_value = _value(left, environment, python), _value(right, environment, python)
    if left_value is None or right_value is None:
        return None
    if operator in {"in", "not in"}:
        return (left_value in right_value) == (operator == "in")
    if variable in _VERSIONED:
        if left[0] == '"':
            operator, left_value, right_value = _FLIPPED.get(operator, operator), right_value, left_value
        version = parse_version(left_value)
        try:
            bounds = compile_specifier(operator + right_value)
        except InvalidSpecifierError:
            bounds = None
        if version is not None and bounds is not None:
            return all_ordered(bounds, version)
    compare = OPERATORS.get("==" if operator == "===" else operator)
    return None if compare is None else bool(compare(left_value, right_value))


def _value(operand: str, environment: MarkerEnvironment, python: str) -> str | None:
    if operand[0] == '"':
        return operand[1:]
    if operand == "python_version":
        return ".".join(python.split(".")[:2])
    if operand == "python_full_version" or (operand == "implementation_version" and operand not in environment.values):
        return python
    return environment.values.get(operand)
