"""Interpolation as OmegaConf resolves it: ``${other.key}``, ``${.sibling}``, ``${mul:${a.b},2}``, or a part of a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.frameworks.launch.hydra import parse_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compatcheck.frameworks.launch.values import Argument

_MAX_DEPTH = 64
"""Interpolations inside of and behind one another."""
_MOST_CHARACTERS, _MOST_SHOWN = 4_096, 200
"""Of a text with interpolations, before and behind them."""
_LARGEST = 1e30
"""Of what resolvers make of numbers."""
_RESOLVER = re.compile(r"\s*([A-Za-z_][\w.]*)\s*:(.*)", re.DOTALL)
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
    "min": min,
}
"""Resolvers of two numbers that programs register under these names (NeMo RL 7ea279a nemo_rl/utils/config.py)."""


class _UnknownError(Exception):
    """Why a value is not known."""


class _Place(NamedTuple):
    """Where an interpolation stands."""

    key: str
    options: Mapping[str, Argument]
    absent_is_null: bool
    settled: dict[str, Argument]
    """What was followed already; a key that is being followed is unknown meanwhile."""
    depth: int = 0

    @property
    def is_absent_null(self) -> bool:
        """Whether a key that it points to and that is not there is null: so in a file."""
        return self.absent_is_null and self.options[self.key].line is None


def follow_all(options: Mapping[str, Argument], *, absent_is_null: bool = False) -> dict[str, Argument]:
    """Return every option with what it interpolates filled in, or why that is not known; each is followed once.

    Args:
        options: of the whole configuration.
        absent_is_null: whether a key that a file points to and that is not there is one of defaults that are not at hand.
    """
    settled: dict[str, Argument] = {}
    return {key: _follow(_Place(key, options, absent_is_null, settled)) for key in options}


def _follow(place: _Place) -> Argument:
    argument = place.options[place.key]
    if argument.why is not None or not isinstance(argument.value, str) or "${" not in argument.value:
        return argument
    found = place.settled.get(place.key)
    if found is not None:
        return found
    place.settled[place.key] = argument._replace(value=None, why=_explain(argument.value))
    try:
        found = argument._replace(value=_evaluate(argument.value.strip(), place))
    except _UnknownError as error:
        found = argument._replace(value=None, why=str(error))
    place.settled[place.key] = found
    return found


def _explain(written: str) -> str:
    shown = written if len(written) <= _MOST_SHOWN else f"{written[:_MOST_SHOWN]}…"
    return f"is {shown}, which only the run resolves"


def _give_up(written: str) -> NoReturn:
    raise _UnknownError(_explain(written))


def _evaluate(text: str, place: _Place) -> object:
    """Fill in a text; one that is a single interpolation keeps the type of its value."""
    if place.depth > _MAX_DEPTH or len(text) > _MOST_CHARACTERS:
        _give_up(text)
    place = place._replace(depth=place.depth + 1)
    parts: list[object] = []
    at = 0
    while (start := text.find("${", at)) >= 0:
        end = _find_end(text, start)
        if end is None:
            _give_up(text)
        if start > at:
            parts.append(text[at:start])
        parts.append(_resolve(text[start + 2 : end], text, place))
        at = end + 1
    if at < len(text):
        parts.append(text[at:])
    if len(parts) > 1 and None in parts:  # of defaults that are not at hand
        _give_up(text)
    if len(parts) == 1:
        return parts[0]
    whole = "".join(map(str, parts))
    if len(whole) > _MOST_CHARACTERS:
        _give_up(text)
    return whole


def _find_end(text: str, start: int) -> int | None:
    inner = 0
    for at in range(start, len(text)):
        inner += {"{": 1, "}": -1}.get(text[at], 0)
        if text[at] == "}" and not inner:
            return at
    return None


def _resolve(inner: str, written: str, place: _Place) -> object:
    match = _RESOLVER.fullmatch(inner)
    if match is None:
        return _look_up(str(_evaluate(inner.strip(), place)), place)
    name, words = match[1], _split(match[2])
    if name == "oc.select" and words:
        return _look_up(words[0], place, words[1] if len(words) > 1 else "null", absent_is_null=True)
    values = [_evaluate(word, place) for word in words] if name in _ARITHMETIC else []
    numbers = [_parse(value) if isinstance(value, str) else value for value in values]
    if len(numbers) != 2 or not all(type(number) in {int, float} for number in numbers):
        _give_up(written)
    try:
        found = _ARITHMETIC[name](*numbers)  # type: ignore[arg-type]  # numbers
    except ArithmeticError:
        _give_up(written)
    if abs(found) > _LARGEST:
        _give_up(written)
    return found


def _parse(text: str) -> object:
    """Read a word of a resolver, which its grammar may not hold."""
    try:
        return parse_value(text)
    except ValueError:
        return _give_up(text)


def _split(text: str) -> Sequence[str]:
    """Split what a resolver is given at its commas."""
    words, inner, start = [], 0, 0
    for at, letter in enumerate(text):
        inner += {"{": 1, "[": 1, "}": -1, "]": -1}.get(letter, 0)
        if letter == "," and not inner:
            words.append(text[start:at].strip())
            start = at + 1
    return [*words, text[start:].strip()]


def _look_up(path: str, place: _Place, default: str = "null", *, absent_is_null: bool = False) -> object:
    dots = len(path) - len(path.lstrip("."))
    name = path.lstrip(".")
    if dots:
        around = place.key.split(".")[:-dots]
        name = ".".join([*around, name])
    if name not in place.options:
        if absent_is_null or place.is_absent_null:
            found = _evaluate(default, place)
            return _parse(default) if found is default else found
        msg = f"is that of {name}, which is not stated"
        raise _UnknownError(msg)
    argument = _follow(place._replace(key=name))
    if argument.why is not None:
        raise _UnknownError(argument.why)
    return argument.value
