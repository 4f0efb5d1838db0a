"""What a file may say it is written in."""

from __future__ import annotations

import pytest

from compatcheck.core.encodings import is_text_encoding


@pytest.mark.parametrize(
    "name",
    [
        "utf-8",
        "UTF_8",
        "utf-8-sig",
        "utf8",
        "utf-16-le",
        "utf_32",
        "ascii",
        "us-ascii",
        "latin-1",
        "ISO-8859-15",
        "iso-8859-1",
        "cp1252",
        "windows-1251",
        "gbk",
        "GB2312",
        "gb18030",
        "big5",
        "big5-hkscs",
        "shift_jis",
        "sjis",
        "euc-jp",
        "euc_kr",
        "koi8-r",
    ],
)
def test_what_people_write_text_in(name: str) -> None:
    assert is_text_encoding(name)


@pytest.mark.parametrize(
    "name",
    [
        "punycode",
        "idna",
        "unicode_escape",
        "raw-unicode-escape",
        "utf-7",
        "rot13",
        "hex",
        "zlib",
        "base64",
        "mbcs",
        "klingon",
        "cp99999",
    ],
)
def test_codecs_of_other_kinds(name: str) -> None:
    assert not is_text_encoding(name)
