"""`compatcheck.check`, `estimate` and `explain_oom` say what the commands say."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import compatcheck
from compatcheck.core.errors import CompatcheckError
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CASE = ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b"
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.10 GiB"
)


def told(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "compatcheck", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.returncode, done.stdout


def timeless(text: str) -> str:
    return re.sub(r"· [\d.]+ s\b", "", " ".join(text.split()))


def test_an_answer_is_what_the_command_prints() -> None:
    answer = compatcheck.check(CASE, gpu="8xH100-80GB", settings={"training.micro_batch_size": 1})
    arguments = (str(CASE), "--gpu", "8xH100-80GB", "--set", "training.micro_batch_size=1")
    code, text = told("check", *arguments)
    assert (answer.exit_code, timeless(str(answer))) == (code, timeless(text))
    assert timeless(answer._repr_markdown_()) == timeless(told("check", *arguments, "--format", "markdown")[1])
    assert "deepspeed/zero3-params-kept-in-backward" in {finding.rule_id for finding in answer.value.findings}


def test_an_estimate_is_what_the_command_prints() -> None:
    answer = compatcheck.estimate(CASE, suggest=True)
    assert (answer.exit_code, str(answer)) == told("estimate", str(CASE), "--suggest")
    assert answer._repr_markdown_() == told("estimate", str(CASE), "--suggest", "--format", "markdown")[1]


def test_a_message_or_a_log_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(MESSAGE + "\n", encoding="utf-8")
    answers = [compatcheck.explain_oom(given, CASE) for given in (MESSAGE, log, str(log))]
    sizes = [[reading.message.asked for reading in answer.value.readings] for answer in answers]
    assert sizes == [sizes[0]] * 3
    assert len(sizes[0]) == 1
    assert str(answers[2]) == told("oom", str(log), str(CASE))[1]


def test_without_files_this_interpreter_is_checked() -> None:
    report = compatcheck.check(model="Qwen/Qwen2.5-7B").value
    assert [one.python for one in report.subjects] == [sys.executable] or sys.executable in str(report.subjects[0].id)


@pytest.mark.parametrize("given", [{"trainig": "x"}, {"settings": ("a=1",)}, {"run": "x"}])
def test_an_argument_that_there_is_not_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises((TypeError, AttributeError)):
        compatcheck.check(CASE, **given)


def test_what_cannot_be_checked_is_an_error_with_a_remedy() -> None:
    with pytest.raises(CompatcheckError) as caught:
        compatcheck.check(CASE, gpu="8xH1000")
    assert caught.value.hint


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(AttributeError):
        compatcheck.no_such_name  # noqa: B018
