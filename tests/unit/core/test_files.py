"""A tree of files answers as the one below it, except for what is laid over."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Overlay, open_at_once
from compatcheck.core.textfile import STANDARD_INPUT, read_bytes, read_text

if TYPE_CHECKING:
    from pathlib import Path


def test_a_text_laid_over_is_read_in_place_of_the_file(tmp_path: Path) -> None:
    place, link = tmp_path / "a.txt", tmp_path / "link.txt"
    place.write_text("on disk")
    link.symlink_to(place)
    files = Overlay(LOCAL, {str(place): b"laid over"})
    for path in (str(place), str(link), os.path.relpath(place)):
        assert read_bytes(path, files) == b"laid over"
        assert read_bytes(path) == b"on disk"
    assert files.size_bytes(str(place)) == 9
    assert files.read_text(str(place), 4) == "laid"


def test_what_is_not_laid_over_is_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("on disk")
    files = Overlay(LOCAL, {STANDARD_INPUT: b"sent"})
    assert read_text(str(tmp_path / "a.txt"), files) == "on disk"
    assert files.is_directory(str(tmp_path))
    assert files.list_names(str(tmp_path)) == ["a.txt"]
    with pytest.raises(InputError, match="no such file"):
        read_bytes(str(tmp_path / "b.txt"), files)


def test_standard_input_is_there_only_where_it_was_laid_down() -> None:
    assert read_text(STANDARD_INPUT, Overlay(LOCAL, {STANDARD_INPUT: b"sent"})) == "sent"
    with pytest.raises(InputError, match="no such file"):
        read_text(STANDARD_INPUT)


@pytest.mark.parametrize("read", [LOCAL.read_text, lambda path: LOCAL.read_bytes(path, 9)])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, read) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        with pytest.raises(OSError, match="is not a regular file"):
            read(path)
    assert not LOCAL.is_program(pipe)


def test_what_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is not a regular file"):
        open_at_once(pipe, os.O_RDONLY)


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="needs root on Linux")
def test_a_file_of_the_kernel_that_gives_news_alone_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").symlink_to("/proc/kmsg")
    with suppress(InputError):  # what the kernel has said since it started, where nobody read it yet
        read_bytes(str(tmp_path / "requirements.txt"))
    with pytest.raises(InputError, match="is not a regular file"):
        read_bytes(str(tmp_path / "requirements.txt"))
    assert LOCAL.read_text("/proc/self/status")


def test_a_path_with_a_nul_names_nothing() -> None:
    for ask in (LOCAL.list_names, LOCAL.read_text, LOCAL.size_bytes, LOCAL.modified, LOCAL.identify):
        with pytest.raises(FileNotFoundError):
            ask("a\0b")
    assert not any(ask("a\0b") for ask in (LOCAL.exists, LOCAL.is_file, LOCAL.is_directory, LOCAL.is_program))
    assert LOCAL.resolve("a\0b") == "a\0b"
