"""Change an input at random, the same way for the same seed: tokens, lines, encodings, nesting, bytes, data."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fuzz.structure import mutate_structure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_BYTES = 64 * 1024
_TOKEN = re.compile(rb"\w+|\s+|[^\w\s]")
_MOST_REPEATED = 3000
_DEEPEST = 1200

ODD: tuple[bytes, ...] = (
    *map(ast.literal_eval, Path(__file__).with_name("odd.txt").read_text().splitlines()),
    *(b"9" * digits for digits in (25, 400, 4400)),
)
"""Tokens that ask for a border case of some syntax."""


def mutate(data: bytes, seed: int, others: Sequence[bytes] = (), form: str | None = None) -> bytes:
    """Change one to four places of an input.

    Args:
        data: a valid input.
        seed: of the choices.
        others: inputs of the same kind, from which tokens and halves are taken.
        form: ``toml`` or ``json`` where data may be changed as such (`structure`).
    """
    choose = random.Random(seed)  # noqa: S311 (no secret)
    if form is not None and choose.random() < 0.4:
        return mutate_structure(
            data, MAX_BYTES, seed, form=form, mutate=lambda part, limit: _change(part, choose, others)[:limit]
        )
    for _ in range(choose.choice((1, 1, 2, 4))):
        data = _change(data, choose, others)[:MAX_BYTES]
    return data


def _change(data: bytes, choose: random.Random, others: Sequence[bytes]) -> bytes:
    return choose.choice(OPERATORS)(data, choose, others)


def insert_at_token(data: bytes, filler: bytes, choose: random.Random) -> bytes:
    """Put something at the beginning of a random token."""
    boundaries = [match.start() for match in _TOKEN.finditer(data)] or [0]
    at = choose.choice(boundaries)
    return data[:at] + filler + data[at:]


def _span(data: bytes, choose: random.Random) -> tuple[int, int]:
    """Choose one to eight tokens that stand side by side."""
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return 0, len(data)
    first = choose.randrange(len(tokens))
    return tokens[first].start(), tokens[min(len(tokens) - 1, first + choose.choice((0, 0, 0, 2, 8)))].end()


def _delete(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, choose)
    return data[:start] + data[end:]


def _duplicate(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, choose)
    return data[:end] + data[start:end] * choose.choice((1, 1, 2, 50)) + data[end:]


def _replace(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, choose)
    return data[:start] + choose.choice(ODD) + data[end:]


def _insert(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    return insert_at_token(data, choose.choice(ODD), choose)


def _fill(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, choose)
    return insert_at_token(
        data, choose.choice((data[start:end], choose.choice(ODD))) * choose.randrange(_MOST_REPEATED), choose
    )


def _take(data: bytes, choose: random.Random, others: Sequence[bytes]) -> bytes:
    other = choose.choice(others) if others else data
    start, end = _span(data, choose)
    first, last = _span(other, choose)
    return data[:start] + other[first:last] + data[end:]


def _splice(data: bytes, choose: random.Random, others: Sequence[bytes]) -> bytes:
    other = choose.choice(others) if others else data
    return data[: choose.randint(0, len(data))] + other[choose.randint(0, len(other)) :]


def _flip(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _number in range(choose.choice((1, 1, 3, 20))):
        if changed:
            changed[choose.randrange(len(changed))] = choose.randrange(256)
    return bytes(changed)


def _swap_lines(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        one, other = choose.randrange(len(lines)), choose.randrange(len(lines))
        lines[one], lines[other] = lines[other], lines[one]
        if choose.random() < 0.3:
            lines[one] = choose.choice((b"  ", b"\t", b"- ")) + lines[one]
    return b"".join(lines)


def _encode(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    text = data.decode("utf-8", "replace")
    kind = choose.choice(("utf-16", "utf-32", "utf-8-sig", "utf-16-le", "cr", "crlf", "cut"))
    if kind == "cut":
        return data[: choose.randint(0, len(data))]
    if kind in {"cr", "crlf"}:
        return data.replace(b"\n", b"\r\n" if kind == "crlf" else b"\r")
    return text.encode(kind, "replace")


def _nest(data: bytes, choose: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, choose)
    opening, closing = choose.choice(
        (
            (b"[", b"]"),
            (b"{", b"}"),
            (b"(", b")"),
            (b'{"a":', b"}"),
            (b"$(", b")"),
            (b"if true; then ", b"; fi"),
            (b"not ", b""),
            (b"a.", b""),
        )
    )
    depth = choose.choice((1, 2, 50, 101, _DEEPEST))
    return data[:start] + opening * depth + data[start:end] + closing * depth + data[end:]


OPERATORS: tuple[Callable[[bytes, random.Random, Sequence[bytes]], bytes], ...] = (
    *(_delete, _duplicate, _replace, _replace, _insert, _fill, _take, _splice, _flip, _swap_lines, _encode, _nest),
)
"""What one place is changed by; the likeliest to reach a reader's own code counts twice."""
