"""Conditions of rules in words."""

from __future__ import annotations

from compatcheck.rules.expression import conjuncts, disjuncts, write
from compatcheck.rules.vocabulary import type_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from compatcheck.rules.expression import Code

_NUMBER = ("not 0", "0")
_TRUTH = {
    "set": ("not empty", "empty"),
    "int": _NUMBER,
    "bytes": _NUMBER,
    "float": _NUMBER,
    "str": ("stated", "not stated"),
}
"""What a fact of a type is that holds by itself, and one that does not; others are true and false."""
_COMPARE = {"<": "is below", "<=": "is at most", ">": "is above", ">=": "is at least"}


def find_functions(code: Code) -> set[str]:
    """Return the functions that an expression calls."""
    if code[0] in {"value", "fact", "range"}:
        return set()
    called = {code[1]} if code[0] == "call" else set()
    return called.union(*map(find_functions, code[2:] if code[0] == "call" else code[1:]))


def list_conditions(code: Code) -> list[str]:
    """Return what all must hold, each in words."""
    return [say(part) for part in conjuncts(code)]


def list_exceptions(code: Code) -> list[str]:
    """Return what each takes a case out, in words."""
    return [say(part) for part in disjuncts(code)]


def say(code: Code, *, holds: bool = True) -> str:
    """Say in words when an expression holds, or when it does not."""
    return _say(code, holds=holds)


def _say(code: Code, *, holds: bool) -> str:
    """Say when an expression holds, or does not."""
    kind, *parts = code
    match kind:
        case "not":
            return _say(parts[0], holds=not holds)
        case "and" | "or":
            word = "and" if (kind == "and") == holds else "or"
            return f" {word} ".join(_bracket(part, kind, holds=holds) for part in parts)
        case "if":
            return _choose(parts, holds=holds)
        case "fact":
            return f"`{parts[0]}` is {_TRUTH.get(type_of(parts[0]), ('true', 'false'))[0 if holds else 1]}"
        case "value" if isinstance(parts[0], bool):
            return "always" if parts[0] == holds else "never"
        case "==" | "is" | "!=" | "is not":
            same = (kind in {"==", "is"}) == holds
            return f"{_term(parts[0])} is {'' if same else 'not '}{_term(parts[1])}"
        case "in" | "not in":
            return _member(parts[0], parts[1], inside=(kind == "in") == holds)
        case "call":
            return _call(parts[0], parts[1:], holds=holds)
        case _ if kind in _COMPARE:
            return f"{_term(parts[0])} {_COMPARE[kind] if holds else _COMPARE[_OPPOSITE[kind]]} {_term(parts[1])}"
        case _:
            return f"`{write(code)}`" if holds else f"`{write(code)}` is 0"


_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _bracket(code: Code, outer: str, *, holds: bool) -> str:
    text = _say(code, holds=holds)
    return f"({text})" if code[0] in {"and", "or", "if"} and code[0] != outer else text


def _choose(parts: list[Any], *, holds: bool) -> str:
    """Say a choice: what must hold where its test does, and where it does not."""
    test, body, otherwise = parts
    cases = [(test, True, _say(body, holds=holds)), (test, False, _say(otherwise, holds=holds))]
    left = [case for case in cases if case[2] != "never"]
    if len(left) == 1:
        where, sense, text = left[0]
        place = _bracket(where, "and", holds=sense)
        return place if text == "always" else f"{place} and {text}"
    told = [f"where {_say(where, holds=sense)}: {text}" for where, sense, text in left if text != "always"]
    return ", ".join(told) or "always"


def _member(item: Code, choices: Code, *, inside: bool) -> str:
    if choices[0] == "set":
        if len(choices) == 2:
            return f"{_term(item)} is {'' if inside else 'not '}{_term(choices[1])}"
        return f"{_term(item)} is {'one' if inside else 'none'} of {_listed(_term(part) for part in choices[1:])}"
    return f"{_term(item)} is {'' if inside else 'not '}among {_term(choices)}"


def _call(name: str, arguments: list[Any], *, holds: bool) -> str:
    said = [_term(argument).strip("`") for argument in arguments]
    is_ = "is" if holds else "is not"
    match name:
        case "declared" | "stated":
            return f"`{said[0]}` {is_} {'known' if name == 'declared' else name}"
        case "installed":
            if arguments[1][0] not in {"value", "range"}:
                return f"a release of `{said[0]}` in `{said[1]}` {is_} installed"
            release = "" if said[1] == "present" else f" {said[1]}"
            return f"`{said[0]}{release}` {is_} installed"
        case "version_in":
            return f"`{said[0]}` {is_} in `{said[1]}`"
        case "metadata_refutes":
            return f"the installed `{said[0]}` {'requires no' if holds else 'may require'} `{said[1]} {said[2]}`"
        case "env":
            return f"the variable `{said[0]}` {is_} set"
        case _:
            code = write(["call", name, *arguments])
            return f"`{code}` is {'true' if holds else 'false'}"


def _term(code: Code) -> str:
    """Say a value."""
    kind, *parts = code
    match parts[0]:
        case _ if kind == "call" and parts[0] == "env":
            return f"the variable `{parts[1][1]}`"
        case None | bool() if kind == "value":
            return "none" if parts[0] is None else str(parts[0]).lower()
        case int() | float() if kind == "value":
            return f"{parts[0]:,}"
        case str() if kind in {"value", "range"}:
            return f"`{parts[0]}`"
        case _:
            return f"`{write(code)}`"


def _listed(words: Iterable[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} or {last}" if before else last
