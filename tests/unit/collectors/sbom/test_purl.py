"""Package URLs are taken apart and decoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.collectors.sbom.purl import Purl, parse_purl


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pkg:pypi/torch@2.5.1", Purl("pypi", "", "torch", "2.5.1", {})),
        ("pkg:PyPI/torch@2.5.1%2Bcu124", Purl("pypi", "", "torch", "2.5.1+cu124", {})),
        ("pkg://pypi/torch", Purl("pypi", "", "torch", None, {})),
        (
            "pkg:conda/pytorch@2.5.1?build=py3.11_cuda12.4&channel=pytorch&type=conda#x",
            Purl("conda", "", "pytorch", "2.5.1", {"build": "py3.11_cuda12.4", "channel": "pytorch", "type": "conda"}),
        ),
        ("pkg:npm/%40angular/core@1.0", Purl("npm", "@angular", "core", "1.0", {})),
        ("pkg:deb/debian/libnccl2@2.21.5-1+cuda12.4", Purl("deb", "debian", "libnccl2", "2.21.5-1+cuda12.4", {})),
        ("pkg:pypi/", None),
        ("pypi/torch@1", None),
        ("", None),
        ("pkg:" + "x" * 5000, None),
    ],
)
def test_parts(text: str, expected: Purl | None) -> None:
    assert parse_purl(text) == expected


@given(st.text(max_size=80))
def test_no_text_raises(text: str) -> None:
    parse_purl(text)
    parse_purl(f"pkg:{text}")
