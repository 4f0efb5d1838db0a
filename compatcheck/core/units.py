"""Bytes as people read them: GiB is 2**30, formatted in this one place."""

from __future__ import annotations

import re

KIB = 2**10
MIB = 2**20
GIB = 2**30
TIB = 2**40

_UNITS = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_COUNT_DIGITS = 18
"""Most digits of a number that is read, as many as 63 bits hold: Python refuses to convert thousands of them."""
_SIZE = r"(?i)\s*([0-9]{1,30})(?:\.([0-9]{1,30}))?\s*([kmgt]?i?b?)\s*"

DTYPE_BYTES = {
    "float64": 8.0,
    "float32": 4.0,
    "tf32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "float8": 1.0,
    "float8_e4m3fn": 1.0,
    "float8_e5m2": 1.0,
    "int64": 8.0,
    "int32": 4.0,
    "int16": 2.0,
    "int8": 1.0,
    "uint8": 1.0,
    "bool": 1.0,
    "int4": 0.5,
    "nf4": 0.5,
    "fp4": 0.5,
}
"""Storage of one element in bytes, without quantisation constants."""

DTYPE_ALIASES = {
    "fp64": "float64",
    "fp32": "float32",
    "float": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp8": "float8",
    "long": "int64",
}


def canonical_dtype(name: str) -> str | None:
    """Return the torch name of a dtype (``bf16`` → ``bfloat16``), or None when it names no dtype."""
    short = name.strip().lower().removeprefix("torch.")
    short = DTYPE_ALIASES.get(short, short)
    return short if short in DTYPE_BYTES else None


def format_bytes(count: float) -> str:
    """Format a byte count with binary units and at most four significant digits.

    >>> format_bytes(136904704000)
    '127.5 GiB'
    """
    sign = "-" if count < 0 else ""
    size = abs(count)
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            value = size / unit
            digits = 2 if value < 10 else 1 if value < 1000 else 0
            return f"{sign}{value:.{digits}f} {name}"
    return f"{sign}{size:.0f} B"


def parse_count(text: str | None) -> int | None:
    """Parse a whole number as a program writes one: at most 18 ASCII digits, or None. ``²`` is a digit for `str.isdigit`, too."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS else None


def parse_bytes(text: str) -> int | None:
    """Parse ``80GiB``, ``80 GB``, ``5G`` (binary when no ``B`` says otherwise) into bytes.

    Returns:
        The byte count, or None when ``text`` is not a size.
    """
    match = re.fullmatch(_SIZE, text)
    if match is None:
        return None
    whole, fraction, unit = match.group(1), match.group(2) or "", match.group(3).lower()
    if len(unit) == 1 and unit != "b":
        unit += "ib"
    factor = _UNITS.get(unit if unit.endswith("b") or not unit else unit + "b")
    return None if factor is None else int(whole + fraction) * factor // 10 ** len(fraction)
