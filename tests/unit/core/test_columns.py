"""Columns of narrow and wide characters."""

from __future__ import annotations

import pytest

from compatcheck.core.columns import break_list, fill, measure, pad


@pytest.mark.parametrize(
    ("text", "columns"),
    [("GiB", 3), ("显存", 4), ("每 rank 1 GiB", 13), ("a → b …", 7), ("██", 2), ("，", 2), ("ｅ", 2), ("e\u0301显", 3)],
)
def test_a_wide_character_takes_two_columns(text: str, columns: int):
    assert measure(text) == columns
    assert measure(pad(text, 20)) == 20


TEXT = "把 ppo_micro_batch_size 设为 rank 数（见 docs/oom.md），或改用 `per_gpu`，每张卡 2,448 个 token。"


@pytest.mark.parametrize("width", range(24, 80))
def test_lines_fit_and_nothing_is_lost(width: int):
    lines = fill(TEXT, width)
    assert all(measure(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == TEXT.replace(" ", "")
    assert not any(line[0] in "，。）、：；" or line[-1] in "（《“" for line in lines)


def test_words_without_wide_characters_are_not_broken():
    assert fill("显存 deepspeed/zero3-params-kept-in-backward 显存", 10) == [
        "显存",
        "deepspeed/zero3-params-kept-in-backward",
        "显存",
    ]


def test_a_longer_rest_is_used_behind_the_first_line():
    assert fill("aa bb cc dd", 8, 2) == ["aa bb cc", "dd"]
    assert fill("", 8) == []


def test_a_list_is_broken_behind_its_signs_and_a_command_never_is():
    assert break_list("known: uv.lock, pdm.lock; see docs", 16) == ["known: uv.lock,", "pdm.lock;", "see docs"]
    command = "apt install pipx && pipx install 'mcp>=2.2,<3'"
    assert break_list(command, 16) == [command]
    assert break_list("已知：甲，乙丙、丁", 10) == ["已知：甲，", "乙丙、丁"]
    assert break_list("", 16) == [""]
