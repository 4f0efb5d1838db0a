"""Mutate TOML and JSON as data, so that what comes out still parses and reaches the reader behind the parser."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ODD: tuple[Any, ...] = (
    0,
    -1,
    True,
    1.5,
    "",
    "*",
    "==",
    ">=1,<0",
    "||",
    "1 || 2",
    "^1",
    "[",
    "a[b]",
    [],
    {},
    [[]],
    [{}],
    {"a": {"b": [{}]}},
)
"""Values put where others stood."""


def mutate_structure(data: bytes, limit: int, seed: int, *, form: str, mutate: Callable[[bytes, int], bytes]) -> bytes:
    """Change one to three places of a document, or bytes of it where it is none.

    Args:
        data: the input.
        limit: most bytes of the result.
        seed: of the choices.
        form: ``toml`` or ``json``.
        mutate: the fuzzer's own mutation of bytes, for one in four inputs and for strings.
    """
    choose = random.Random(seed)  # noqa: S311 (no secret)
    content = None if choose.random() < 0.25 else _load(data, form)
    if not isinstance(content, (dict, list)):
        return mutate(data, limit)
    for _ in range(choose.randint(1, 3)):
        places = list(_places(content))
        if not places:
            break
        container, key = choose.choice(places)
        _change(container, key, places, choose, mutate)
    try:
        text = (
            json.dumps(content)
            if form == "json"
            else "".join(f"{json.dumps(key)} = {_dump(value)}\n" for key, value in content.items())
        )
    except (AttributeError, RecursionError):
        return mutate(data, limit)
    changed = text.encode("utf-8", "replace")
    return changed if len(changed) <= limit else mutate(data, limit)


def _change(
    container: Any,  # noqa: ANN401 (a table or an array)
    key: Any,  # noqa: ANN401 (a name or an index)
    places: list[tuple[Any, Any]],
    choose: random.Random,
    mutate: Callable[[bytes, int], bytes],
) -> None:
    value = container[key]
    kind = choose.randrange(5)
    if kind == 0:
        del container[key]
    elif kind == 1:
        container[key] = json.loads(json.dumps(choose.choice(ODD)))
    elif kind == 2 and isinstance(value, str):
        container[key] = mutate(value.encode("utf-8", "replace"), 200).decode("utf-8", "replace")
    elif kind == 3 and isinstance(value, list) and value:
        value.append(_copy(choose.choice(value)))
    else:
        other, at = choose.choice(places)
        if at in other if isinstance(other, dict) else at < len(other):
            container[key] = _copy(other[at])


def _load(data: bytes, form: str) -> Any:  # noqa: ANN401
    import tomllib  # noqa: PLC0415 (Python 3.11 and later)

    try:
        return json.loads(data) if form == "json" else tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return None


def _copy(value: Any) -> Any:  # noqa: ANN401
    try:
        return json.loads(json.dumps(value, default=str))
    except (ValueError, RecursionError):
        return 0


def _places(data: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    pending = [data]
    while pending:
        one = pending.pop()
        items = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for key, value in items:
            yield one, key
            pending.append(value)


def _dump(value: object) -> str:
    """Write a value as inline TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value).replace("\\ud", "\\u0").replace("\x7f", " ")
    return str(value).lower() if isinstance(value, (bool, int, float)) else json.dumps(str(value))
