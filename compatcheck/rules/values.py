"""Values of the vocabulary's names, as a person or a file writes them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.core.units import canonical_dtype, parse_bytes
from compatcheck.rules.programs import trainers
from compatcheck.rules.vocabulary import PROGRAM, nearest, vocabulary

if TYPE_CHECKING:
    from compatcheck.core.facts import Value
    from compatcheck.core.source import Source
    from compatcheck.rules.vocabulary import Term


def allowed_values(term: Term) -> tuple[str, ...]:
    """Return the allowed values of a term as text; empty when free. Names of programs are those that have a record."""
    return trainers() if term.unit == PROGRAM else term.words


def list_values(name: str) -> tuple[Value, ...]:
    """Return every value that a fact can have where these can be listed; empty where they cannot."""
    term = vocabulary().get(name)
    if term is None or term.unit == PROGRAM:
        return ()
    if term.type == "bool":
        found: tuple[Value, ...] = (False, True)
    elif term.type == "dtype":
        found = ("float32", "bfloat16", "float16")
    else:
        found = tuple(int(word) if term.type == "int" else word for word in term.words)
    return (*found, None) if term.nullable and found else found


def parse_value(name: str, text: object, source: Source) -> Value:
    """Convert a value written by a person or a file to the type of its term.

    Args:
        name: vocabulary name.
        text: a string from the command line, or a JSON or YAML scalar or list.
        source: where it was written, for the error.

    Raises:
        UsageError: the name is unknown or the value does not fit its type or allowed values.
    """
    term = vocabulary().get(name)
    if term is None:
        near = nearest(name, list(vocabulary()))
        raise UsageError(
            f"unknown fact {name!r}",
            source=source,
            hint=f"did you mean {near!r}?" if near else "see `compatcheck facts --names`",
        )
    value = _convert(term, text)
    if isinstance(value, _Bad):
        wanted = " or ".join(allowed_values(term)) or _describe_type(term) + (" or none" if term.nullable else "")
        raise UsageError(f"{name} cannot be {text!r}", source=source, hint=f"expected {wanted}")
    return value


def _describe_type(term: Term) -> str:
    if term.minimum and term.type == "int":
        return f"a whole number from {term.minimum} on"
    return _WANTED.get(term.type, term.type)


class _Bad:
    """Marks a value that does not fit its term."""


_BAD = _Bad()
_LARGEST = 2**63 - 1
_WANTED = {
    "int": "a whole number, not negative",
    "bytes": "a size such as 80GiB or a number of bytes",
    "float": "a number",
    "bool": "true or false",
    "dtype": "a dtype such as bfloat16",
    "set": "a list of names",
    "str": "text",
    "version": "a version such as 12.4",
}
_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off"}
_NONE = {"none", "null", ""}


def _convert(term: Term, raw: object) -> Value | _Bad:
    if raw is None or (isinstance(raw, str) and raw.strip().lower() in _NONE and "none" not in term.words):
        return None if term.nullable else _BAD
    value: Value | _Bad
    match term.type:
        case "bool":
            value = _convert_bool(raw)
        case "int" | "bytes":
            value = _convert_int(raw, size=term.type == "bytes")
            if isinstance(value, int) and value < term.minimum:
                return _BAD
        case "float":
            value = _convert_float(raw)
        case "dtype":
            value = canonical_dtype(raw) or _BAD if isinstance(raw, str) else _BAD
        case "set":
            value = _convert_set(raw)
        case _:
            value = str(raw).strip() if isinstance(raw, str | int | float) and not isinstance(raw, bool) else _BAD
            if raw is False and "no" in term.words:
                return "no"  # YAML 1.1 has made the word a boolean
            if term.type == "version" and isinstance(raw, float):
                return _BAD  # 9.10 has become 9.1 on the way; only quoted text keeps it
    allowed = allowed_values(term)
    if allowed and not isinstance(value, _Bad) and str(value) not in allowed:
        lowered = str(value).lower()
        return lowered if term.type == "str" and lowered in allowed else _BAD
    return value


def _convert_bool(raw: object) -> bool | _Bad:
    if isinstance(raw, bool):
        return raw
    word = str(raw).strip().lower()
    return True if word in _TRUE else False if word in _FALSE else _BAD


def _convert_int(raw: object, *, size: bool) -> int | _Bad:
    if isinstance(raw, bool):
        return _BAD
    if isinstance(raw, str):
        if size:
            parsed = parse_bytes(raw)
            return _BAD if parsed is None or parsed > _LARGEST else parsed
        raw = _parse_number(raw.strip().replace("_", ""))
    if isinstance(raw, float):
        return int(raw) if raw.is_integer() and 0 <= raw <= _LARGEST else _BAD
    return raw if isinstance(raw, int) and 0 <= raw <= _LARGEST else _BAD


def _parse_number(text: str) -> float | None:
    """Read a whole number exactly, anything else as a float."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _convert_float(raw: object) -> float | _Bad:
    if isinstance(raw, bool):
        return _BAD
    try:
        number = float(raw)  # type: ignore[arg-type]  # any other type raises TypeError, caught below
    except (TypeError, ValueError, OverflowError):
        return _BAD
    exact = not isinstance(raw, int) or number == raw  # beyond 2**53 not every whole number is a float
    return number if exact and math.isfinite(number) else _BAD


def _convert_set(raw: object) -> tuple[str, ...] | _Bad:
    if isinstance(raw, str):
        raw = [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(raw, list | tuple | set | frozenset) and all(isinstance(item, str) for item in raw):
        return tuple(sorted({str(item) for item in raw}))
    return _BAD
