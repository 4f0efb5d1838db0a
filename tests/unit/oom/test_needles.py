"""Tests for needles: every form is found by them, however its lines are broken."""

from __future__ import annotations

import textwrap

import pytest

from compatcheck.oom.forms import FORMS
from compatcheck.oom.message import read_messages
from compatcheck.oom.needles import find_needles, find_speech
from tests.unit.oom.printed_messages import FORMATS


class _Any(dict):
    def __missing__(self, key: str) -> str:
        return {"asked": "6291456 bytes", "shape": "(10, 20)", "dtype": "float32"}.get(key, "7")


@pytest.mark.parametrize("form", sorted(FORMATS))
@pytest.mark.parametrize("width", [12, 30, 60])
@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "\x1b[36m(Worker pid=3)\x1b[0m "])
def test_a_form_is_found_however_it_is_broken(form, width, prefix) -> None:
    whole = FORMATS[form].format_map(_Any())
    if not read_messages(whole):
        pytest.skip("its values must be of one kind; tests/unit/oom/test_messages.py has them")
    lines = textwrap.wrap(whole, width, break_long_words=False, break_on_hyphens=False)
    log = "\n".join(prefix + line for line in lines)
    assert [message.form for message in read_messages(log)] == [message.form for message in read_messages(whole)]


def test_every_form_has_a_needle_in_lower_case() -> None:
    assert all(form.needle and form.needle == form.needle.lower() for form in FORMS)


@pytest.mark.parametrize(
    "line",
    [
        "worker.py:267] memory profiling takes 4 seconds", "rollout exit code 0", "step 137.2 of 0.137, loss -9.5", "timeout",
        "memory allocated (GB): 61.2, CUDA 12.4", "bloom-560m in the room", "1370 -90",
    ],
)  # fmt: skip
def test_lines_of_every_log_hold_none(line) -> None:
    assert find_needles(f"{line.lower()}\n") == []
    assert find_speech(line.lower()) is None
