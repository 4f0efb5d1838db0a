"""Which language is spoken, and where."""

from __future__ import annotations

import pytest

from compatcheck.core.language import choose, find_language, speaking, translate


@pytest.fixture(autouse=True)
def nobody_chose() -> None:
    choose(None)


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN"}, "zh"),
        ({"LANG": "zh_CN.GBK@pinyin"}, "zh"),
        ({"LANG": "zh-Hans-CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW.UTF-8"}, "en"),
        ({"LANG": "zh_HK.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LC_ALL": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "en"),
        ({"LANGUAGE": "zh_CN:en", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LANGUAGE": "en_US:zh_CN", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_CTYPE": "zh_CN.UTF-8"}, "en"),
    ],
)
def test_the_first_variable_that_is_set_decides(environ: dict[str, str], language: str):
    assert find_language(environ) == language


CHINESE = {"LANG": "zh_CN.UTF-8"}


@pytest.mark.parametrize("name", ["text", "html"])
def test_what_people_read_is_translated(name: str):
    with speaking(CHINESE, name):
        assert translate("does not start") == "无法启动"
    assert translate("does not start") == "does not start"


@pytest.mark.parametrize("name", ["json", "sarif", "junit", "markdown", "github", "diff"])
def test_what_machines_read_is_not(name: str):
    with speaking(CHINESE, name):
        assert translate("does not start") == "does not start"


def test_a_format_for_machines_within_is_english():
    with speaking(CHINESE):
        with speaking(CHINESE, "json"):
            assert translate("does not start") == "does not start"
        assert translate("does not start") != "does not start"


def test_what_is_chosen_wins_over_the_environment():
    choose("en")
    with speaking(CHINESE):
        assert translate("does not start") == "does not start"
    choose("zh")
    with speaking({}):
        assert translate("does not start") != "does not start"
