"""Whatever a person names, reading it gives bytes or an error with a remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.textfile import MAX_BYTES, advise_mending, decode_text, echo, read_bytes, read_text, read_utf8


def test_unreadable_inputs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    cases = [
        ("pipe", "not a regular file"),
        ("huge", "64.0 MiB"),
        ("none", "no such file"),
        ("", "is a directory"),
        ("a\0b", "read"),
    ]
    for name, reason in cases:
        with pytest.raises(InputError, match=reason) as caught:
            read_bytes(os.path.join(tmp_path, name))
        assert caught.value.hint


def test_the_file_beside_it_that_was_meant_is_named(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"")
    (tmp_path / "gone.lock").symlink_to("nowhere")
    for name, meant in (
        ("gone.lock", None),
        ("requirement.txt", "requirements.txt"),
        ("Requirements.TXT", "requirements.txt"),
        ("a.yaml", None),
    ):
        with pytest.raises(InputError) as caught:
            read_bytes(os.path.join(tmp_path, name))
        assert caught.value.hint == "check the path" + (f"; did you mean {tmp_path / meant}?" if meant else "")


def test_limit_is_inclusive(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    assert read_bytes(str(tmp_path / "a"), limit=4) == b"1234"
    with pytest.raises(InputError):
        read_bytes(str(tmp_path / "a"), limit=3)


def test_byte_order_mark_is_dropped() -> None:
    assert decode_text(b"\xef\xbb\xbfa", "x") == "a"


def test_echo_is_short_and_printable() -> None:
    assert echo("a\x1b" * 500).isprintable()
    assert len(echo("a" * 5000)) < 120
    assert "secret" not in echo("https://me:sec@secret@h.example/x")


def test_utf_16_is_read_where_a_windows_shell_may_have_written_the_file() -> None:
    assert decode_text("é\n".encode("utf-16"), "x") == "é\n"
    assert decode_text("é\n".encode("utf-8-sig"), "x") == "é\n"
    with pytest.raises(InputError, match="is not UTF-16"):
        decode_text(b"\xff\xfea", "x")


def test_a_merge_conflict_is_the_remedy() -> None:
    assert advise_mending("a\n<<<<<<< HEAD\nb\n", "mend") == "resolve the merge conflict that begins at line 2"
    assert advise_mending("a <<<<<<< HEAD\n", "mend") == "mend"


def test_every_parser_names_the_merge_conflict() -> None:
    from compatcheck.core import json_file, toml, yaml

    for parse in (json_file.parse_json, toml.parse_toml, yaml.parse_yaml):
        with pytest.raises(InputError) as caught:
            parse("{\n<<<<<<< ours\n=======\n>>>>>>> theirs\n", "x")
        assert caught.value.hint == "resolve the merge conflict that begins at line 2"


def test_zero_bytes_are_no_text_unless_brackets_say_which() -> None:
    with pytest.raises(InputError, match="x:2: holds NUL bytes"):
        decode_text(b"a\nb\0", "x")
    with pytest.raises(InputError, match="x:1: holds NUL bytes"):
        decode_text(b"a\0b\0c", "x")
    assert decode_text('["a"]'.encode("utf-16-le"), "x") == '["a"]'


def test_what_its_own_program_reads_as_utf_8_is_read_as_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("a = 1\n", encoding="utf-16")
    assert read_text(str(path)) == "a = 1\n"
    with pytest.raises(InputError, match="is not UTF-8"):
        read_utf8(str(path))
