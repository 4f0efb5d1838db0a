"""Tests for logs of any size: read in pieces, with their start, their end and what stands around messages kept."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from compatcheck.core import textfile
from compatcheck.core.errors import InputError
from compatcheck.core.textfile import STANDARD_INPUT
from compatcheck.oom import log as module
from compatcheck.oom import message as messages_module
from compatcheck.oom import text
from compatcheck.oom.log import read_log
from compatcheck.oom.message import read_messages
from compatcheck.oom.told import find_words

MESSAGE = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 7, in step\n    loss.backward()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB. GPU 0 has a total capacity of 79.10 GiB"
)
WORKER = (
    "(WorkerDict pid=812) INFO worker.py:267 memory allocated (GB): 31.5, exit code 0 of the resource buffer, CUDA 12.4"
)


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    sizes = {"EDGE": 4096, "MOST": 8192, "PRICE": 64, "PIECE": 1024, "_OVERLAP": 512, "_LONGEST_LINE": 256}
    for name, size in sizes.items():
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(textfile, "MAX_BYTES", 16384)


def fill(lines: int) -> list[str]:
    return [f"step {number}: {WORKER}" for number in range(lines)]


def write(tmp_path, lines: list[str], encoding: str = "utf-8") -> str:
    path = tmp_path / "train.log"
    path.write_bytes("\n".join(lines).encode(encoding))
    return str(path)


def test_a_log_above_the_limit_of_other_files_is_read(tmp_path) -> None:
    lines = [*fill(500), MESSAGE]
    (message,) = read_messages(read_log(write(tmp_path, lines)).text)
    assert (message.line, message.frames[0].line) == (504, 7)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_message_in_the_middle_keeps_its_traceback_and_its_line(tmp_path, encoding) -> None:
    kept = read_log(write(tmp_path, [*fill(300), MESSAGE, *fill(300)], encoding))
    (message,) = read_messages(kept.text)
    assert (message.line, message.frames[0].line, kept.skipped) == (304, 7, ())
    assert len(kept.text) < 2 * 4096 + 8192


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_is_far_from_messages_is_kept_as_empty_lines(tmp_path, end) -> None:
    whole = end.join([*fill(300), MESSAGE.replace("\n", end), *fill(300)])
    path = tmp_path / "train.log"
    path.write_text(whole, encoding="utf-8", newline="")
    kept = read_log(str(path)).text.splitlines()
    assert len(kept) == len(whole.splitlines())
    assert all(
        line == "" or said.endswith(line) or said.startswith(line)
        for line, said in zip(kept, whole.splitlines(), strict=True)
    )


def test_a_message_on_the_border_of_two_pieces_is_found(tmp_path) -> None:
    for shift in range(0, 1200, 90):
        path = write(
            tmp_path, [*fill(100), "x" * shift, "CUDA out of memory. Tried to", "allocate 2.00 GiB", *fill(100)]
        )
        assert [message.line for message in read_messages(read_log(path).text)] == [102]


def test_messages_beyond_what_is_kept_are_said(tmp_path) -> None:
    lines = [line for part in range(40) for line in (*fill(20), MESSAGE.replace("9.28", f"{part}.50"))]
    kept = read_log(write(tmp_path, lines))
    assert "were not read" in kept.skipped[0].reason
    assert kept.skipped[0].named
    assert {"0.50 GiB", "39.50 GiB"} <= {message.asked.text for message in read_messages(kept.text)}


def test_a_part_with_a_message_on_each_line_takes_the_room_of_its_messages(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "PRICE", 2048)
    lines = [f"CUDA out of memory. Tried to allocate {number}.00 GiB" for number in range(1000)]
    kept = read_log(write(tmp_path, lines))
    assert "were not read" in kept.skipped[0].reason
    assert len(kept.text.split()) * 10 < 2 * 4096 + 8192 + 4096


def test_a_part_of_needles_that_are_no_messages_is_not_looked_through(tmp_path, monkeypatch) -> None:
    looked_at = []
    monkeypatch.setattr(module, "DENSE", 8)
    monkeypatch.setattr(module, "has_message", lambda text: looked_at.append(text) or False)
    kept = read_log(write(tmp_path, [f"Killed process {number}, out of memory" for number in range(5000)]))
    assert looked_at == []
    assert kept.skipped[0].named  # nobody can tell that none of them was one


def test_of_messages_that_all_differ_the_first_and_the_last_are_read() -> None:
    lines = [f"CUDA out of memory. Tried to allocate {number}.00 GiB" for number in range(1, 5001)]
    skipped = []
    messages = read_messages("\n".join(lines), "train.log", skipped)
    assert [messages[0].line, messages[99].line, messages[100].line, messages[-1].line] == [1, 100, 4901, 5000]
    assert (len(messages), str(skipped[0].source), skipped[0].named) == (200, "train.log", True)
    assert "4800 messages between line 101 and 4900" in skipped[0].reason


def test_equal_messages_are_counted_and_few_of_them_read(monkeypatch) -> None:
    read = []
    monkeypatch.setattr(messages_module, "find_frames", lambda before: read.append(before) or ())
    (message,) = read_messages("CUDA out of memory. Tried to allocate 2.00 GiB\n" * 5000)
    assert message.times == 5000
    assert len(read) < 100


def test_lines_left_out_are_counted_up_to_a_limit_that_is_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "LINES", 1000)
    kept = read_log(write(tmp_path, ["x"] * 50_000))
    assert len(kept.text) < 4 * 4096
    assert "are counted" in kept.skipped[0].reason
    assert not kept.skipped[0].named


@pytest.mark.parametrize(
    "words", ["Engine ran out of device memory in kernel 7", "训练几轮之后爆显存", "第三步显存不足"]
)
def test_words_of_no_known_form_are_kept(tmp_path, words) -> None:
    path = write(tmp_path, [*fill(300), words, *fill(300)])
    assert find_words(read_log(path).text)[0] == 301


def test_standard_input_may_be_as_large(monkeypatch) -> None:
    data = "\n".join([*fill(500), MESSAGE]).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(closed=False, buffer=io.BytesIO(data)))
    assert len(read_messages(read_log(STANDARD_INPUT).text)) == 1


def test_one_line_of_megabytes_is_read_in_pieces(tmp_path) -> None:
    path = write(tmp_path, ["█" * 20000 + "CUDA out of memory. Tried to allocate 2.00 GiB" + "█" * 20000])
    assert len(read_messages(read_log(path).text)) == 1


def test_a_directory_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        read_log(str(tmp_path))


def test_lines_of_a_cluster_without_a_message_are_not_looked_at_one_by_one(monkeypatch) -> None:
    looked_at = []
    monkeypatch.setattr(text, "strip_prefixes", lambda line: looked_at.append(line) or ("", line))
    log = "\n".join([*fill(3000), *MESSAGE.splitlines()])
    assert len(read_messages(log)) == 1
    assert len(looked_at) < 1000
