"""Reports in Chinese: whole, within 80 columns, and nowhere that a machine reads."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from compatcheck.core.catalogue import Catalogue, Entry
from compatcheck.core.columns import measure
from tests import ROOT
from tests.cli.run_cli import run

EXPECTED = Path(__file__).with_name("chinese")
CASES = {
    "openrlhf-llama3-70b": "deepspeed/zero3-params-kept-in-backward",
    "search-r1-0.5b-retriever": "_stack/retrieval-index-on-training-gpus",
}
"""Case → the rule that its report is about."""


@pytest.fixture
def case(request: pytest.FixtureRequest) -> str:
    """Copy a case into the directory where commands run, so that its path is short."""
    shutil.copytree(ROOT / "fixtures/cases" / request.param, request.param)
    return str(request.param)


every_case = pytest.mark.parametrize("case", CASES, indirect=True)
one_case = pytest.mark.parametrize("case", ["openrlhf-llama3-70b"], indirect=True)


def leave_out_numbers(text: str) -> str:
    """Leave out what changes with the database and the clock."""
    return re.sub(r"数据库 .*\n", "数据库 …\n", text)


@every_case
def test_a_whole_report(case: str):
    ran = run("check", case, "--select", CASES[case], "--lang", "zh")
    assert leave_out_numbers(ran.out) == (EXPECTED / f"{case}.txt").read_text(encoding="utf-8")


@every_case
@pytest.mark.parametrize(
    "command", [("check", "-v"), ("estimate", "--suggest", "-v"), ("fix", "--offline")], ids=" ".join
)
def test_lines_fit_80_columns(case: str, command: tuple[str, ...]):
    ran = run(*command, case, "--lang", "zh")
    wide = [line for line in ran.out.splitlines() if measure(line) > 80 and len(max(line.split(), key=len)) < 60]
    assert [line for line in wide if "pip install" not in line and not line.startswith((" # ", "+", "-"))] == []
    assert re.search("[\u4e00-\u9fff]", ran.out)


@one_case
def test_the_language_of_the_locale_is_spoken_unless_another_is_asked_for(case: str, monkeypatch: pytest.MonkeyPatch):
    english = run("check", case)
    assert english.out.startswith("FAILS")
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    chinese = run("check", case)
    assert chinese.out.startswith("不通过")
    assert chinese.code == english.code
    assert run("check", case, "--lang", "en").out.startswith("FAILS")
    assert run("check", case).out.startswith("不通过"), "a choice is for one run"


@one_case
@pytest.mark.parametrize(
    "command",
    [
        ("check", "--format", "json"),
        ("check", "--format", "sarif"),
        ("check", "--format", "github"),
        ("estimate", "--suggest", "--format", "json"),
        ("fix", "--offline", "--format", "json"),
    ],
    ids=" ".join,
)
def test_formats_for_machines_are_the_same(case: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    english = run(*command, case)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    chinese = run(*command, case)
    seconds = r'"seconds": [\d.]*|time="[\d.]*|[\d.]* s\b'
    assert re.sub(seconds, "", chinese.out) == re.sub(seconds, "", english.out)
    assert chinese.code == english.code


@one_case
def test_json_beside_a_chinese_report_is_english(case: str):
    ran = run("check", case, "--lang", "zh", "--output", "json:report.json")
    assert ran.out.startswith("不通过")
    written = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert not re.search("[\u4e00-\u9fff]", json.dumps(written, ensure_ascii=False))


@one_case
def test_a_page_says_its_language(case: str):
    pytest.importorskip("jinja2")
    page = run("check", case, "--format", "html", "--lang", "zh").out
    assert '<html lang="zh-CN">' in page
    assert "单卡显存" in page
    assert "非重入式梯度检查点下" in page
    assert "What to do" not in page
    left = re.findall(
        r">((?:[\w ]+: )?(?:communication|workspace|context|NCCL|parameters)|[\w-]+, explained)\b[^<]*<", page
    )
    assert left == []
    assert not re.search(r">one copy for each|>replays of|>rollout<|>[a-z ]+ over releases of", page)
    assert '<html lang="en">' in run("check", case, "--format", "html").out


def test_what_nobody_translated_of_a_rule_is_told_in_english():
    Path("requirements.txt").write_text("torch==2.7.0\n", encoding="utf-8")
    rule = "bitsandbytes/imports-removed-triton-module"
    english, chinese = (run("explain", rule, "requirements.txt", "--lang", name).out for name in ("en", "zh"))
    why = english.partition("\n  why\n")[2].partition("\n  c")[0].partition("\n  known")[0]
    assert len(why.split()) > 9
    assert f"\n  原因\n{why}\n" in chinese


def test_signs_beside_a_reason_that_nobody_translated_are_english():
    catalogue = Catalogue(
        (
            Entry("", "not read: {place}: {text_why}", "未读取：{place}：{text_why}"),
            Entry("", "no such file", "没有这个文件"),
        )
    )
    assert catalogue.translate("not read: a.txt: no such file") == "未读取：a.txt：没有这个文件"
    assert catalogue.translate("not read: a.txt: it is of no use to us") == "未读取：a.txt: it is of no use to us"


@one_case
def test_facts_doctor_and_arithmetic_speak_chinese(case: str):
    facts = run("facts", case, "--lang", "zh").out
    assert re.search(r"training\.use_reentrant = false +OpenRLHF 的默认值（openrlhf 0\.6\.1）", facts)
    assert json.loads(run("facts", case, "--lang", "zh", "--format", "json").out) == json.loads(
        run("facts", case, "--format", "json").out
    )
    assert "缺少；不影响其它功能" in run("doctor", "--lang", "zh").out
    estimate = run("estimate", case, "-v", "--lang", "zh").out
    assert "= 16,384 B × 2,048 个 token × 80 个 block 输入" in estimate
    assert "反向 142.5" in estimate


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"train_batch_size": }', "不是合法的 JSON"),
        ("a: [1", "不是合法的 YAML"),
    ],
)
def test_frequent_reasons_are_told_in_chinese(text: str, reason: str):
    Path("ds.json" if text.startswith("{") else "train.yaml").write_text(text, encoding="utf-8")
    ran = run("check", ".", "--lang", "zh")
    assert reason in ran.out + ran.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("diff", "nowhere.txt", "-"), "错误：nowhere.txt：没有这个文件"),
        (("explain", "no/rule"), "错误：没有规则 'no/rule'"),
    ],
)
def test_frequent_errors_are_told_in_chinese(arguments: tuple[str, ...], error: str):
    ran = run(*arguments, "--lang", "zh")
    assert error in ran.err
    assert ran.code == run(*arguments).code


@one_case
def test_explain_and_diff_speak_chinese(case: str):
    assert "命中当前检查对象" in run("explain", "deepspeed/zero3-params-kept-in-backward", case, "--lang", "zh").out
    requirements = f"{case}/requirements.txt"
    assert "没有包变化" in run("diff", requirements, requirements, "--lang", "zh").out


def test_a_log_is_explained_in_chinese():
    Path("train.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB. GPU 0 has a total capacity of 79.15 GiB of "
        "which 3.00 GiB is free. Process 1 has 76.00 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by "
        "PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n",
        encoding="utf-8",
    )
    assert "显存耗尽，申请 9.28 GiB" in run("oom", "train.log", "--lang", "zh").out
