"""Integers that nobody writes: Python reads any number of hexadecimal digits and refuses to write the same in decimal ones."""

from __future__ import annotations

from compatcheck.core.pattern import lazy_compile

_MOST_BITS = 14_000
"""Of an integer: 4,214 decimal digits; Python itself reads and writes 4,300."""
_LONG = lazy_compile(r"0[xXoObB][\da-fA-F_]{3500}")


def may_be_long(text: str) -> bool:
    """Tell whether a text holds what may be a long integer; decimal ones Python refuses as it reads them."""
    return _LONG.search(text) is not None


def refuse_long(value: object) -> None:
    """Refuse an integer that cannot be written in decimal digits.

    Raises:
        ValueError: it is one.
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError("holds an integer of thousands of digits")
