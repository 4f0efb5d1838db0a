"""Bytes read back as written, exactly where the text is exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.units import (
    DTYPE_ALIASES,
    DTYPE_BYTES,
    GIB,
    KIB,
    MIB,
    TIB,
    canonical_dtype,
    format_bytes,
    parse_bytes,
    parse_count,
)

COUNTS = st.one_of(st.integers(0, 2**20), st.integers(0, 2**50))


@given(COUNTS)
def test_a_plain_count_is_exact(count: int) -> None:
    for text in (str(count), f"{count}B", f" {count} b "):
        assert parse_bytes(text) == count


@given(st.integers(0, 2**20), st.sampled_from(["", "i", "iB", "ib", "B"]), st.sampled_from("KMGT"))
def test_units_multiply_exactly(count: int, suffix: str, letter: str) -> None:
    power = "KMGT".index(letter) + 1
    expected = count * (1000**power if suffix == "B" else 1024**power)
    assert parse_bytes(f"{count}{letter}{suffix}") == expected
    assert parse_bytes(f"{count} {letter.lower()}{suffix.lower()}") == expected


@given(COUNTS)
def test_formatted_bytes_read_back_within_their_last_digit(count: int) -> None:
    back = parse_bytes(format_bytes(count))
    assert back is not None
    assert back == pytest.approx(count, rel=0.006)


@given(COUNTS, COUNTS)
def test_larger_counts_never_read_smaller(left: int, right: int) -> None:
    left, right = sorted((left, right))
    first, second = parse_bytes(format_bytes(left)), parse_bytes(format_bytes(right))
    assert first is not None
    assert second is not None
    assert first <= second


@given(st.text(max_size=10))
def test_any_text_is_a_size_or_none(text: str) -> None:
    size = parse_bytes(text)
    assert size is None or size >= 0


@pytest.mark.parametrize(
    "text", ["", "GiB", "-5GiB", "5 apples", "5GiBs", "1e9", "5,5GiB", "nan", "inf", "5i", "٣GiB", "9" * 400 + "GiB"]
)
def test_other_texts_are_no_sizes(text: str) -> None:
    assert parse_bytes(text) is None


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (KIB, "1.00 KiB"),
        (int(1.5 * MIB), "1.50 MiB"),
        (10 * GIB, "10.0 GiB"),
        (136904704000, "127.5 GiB"),
        (TIB, "1.00 TiB"),
        (5000 * TIB, "5000 TiB"),
        (-3 * GIB, "-3.00 GiB"),
    ],
)
def test_formatting(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_fractions_of_a_unit() -> None:
    assert parse_bytes("1.5GiB") == 3 * GIB // 2
    assert parse_bytes("0.001kB") == 1
    assert parse_bytes("79.6 GiB") == int(796 * GIB // 10)


def test_dtype_names() -> None:
    for alias, name in DTYPE_ALIASES.items():
        assert (
            canonical_dtype(alias) == canonical_dtype(f"torch.{name}") == canonical_dtype(f" {name.upper()} ") == name
        )
    for name in DTYPE_BYTES:
        assert canonical_dtype(name) == name
    assert canonical_dtype("bf17") is None
    assert canonical_dtype("auto") is None


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8", 8),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("²", None),
        ("٣", None),
        ("-1", None),
        ("", None),
        (None, None),
    ],
)
def test_counts_are_ascii_digits_of_63_bits(text: str | None, count: int | None) -> None:
    assert parse_count(text) == count
