"""`compatcheck.check`, `estimate` and `explain_oom` say what the commands say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import compatcheck
from compatcheck.core.errors import CompatcheckError
from compatcheck.integrations.watch import find_length
from tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project whose files lead out of it in every way there is."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    shutil.copytree(CASE, root)
    (outside / "list.txt").write_text("peft==0.11.1\n")
    (outside / "variables.sh").write_text("MODEL=told_outside\n")
    (outside / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (outside / "config.json").write_text((CASE / "config.json").read_text())
    (outside / "site").mkdir()
    (outside / "site" / "peft-0.11.1.dist-info").mkdir()
    (outside / "site" / "peft-0.11.1.dist-info" / "METADATA").write_text("Name: peft\nVersion: 0.11.1\n")
    (outside / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\ndependencies = ["peft==0.11.1"]\n')
    (root / "requirements-linked.txt").symlink_to(outside / "list.txt")
    (root / "pyproject.toml").symlink_to(outside / "pyproject.toml")
    (root / "directory").symlink_to(outside)
    (root / "more-requirements.txt").write_text("-r ../outside/list.txt\n-c directory/list.txt\ndeepspeed==0.16.4\n")
    words = f"deepspeed train.py --deepspeed {outside}/ds.json --model_name_or_path $MODEL\n"
    (root / "train.sh").write_text(f"source {outside}/variables.sh\n{words}")
    (root / "model").mkdir()
    (root / "model" / "config.json").symlink_to(outside / "config.json")
    (root / "train.yaml").write_text(
        f"deepspeed: {outside}/ds.json\nmodel_name_or_path: {outside}\nper_device_train_batch_size: 1\noutput_dir: o\n"
    )
    library = root / "venv" / "lib" / "python3.11" / "site-packages"
    library.mkdir(parents=True)
    (library / "elsewhere.pth").write_text(f"{outside}/site\n")
    (library / "peft-0.11.1.dist-info").symlink_to(outside / "site" / "peft-0.11.1.dist-info")
    (root / "venv" / "pyvenv.cfg").write_text(f"home = {outside}\ninclude-system-site-packages = true\n")
    return root


@pytest.mark.parametrize(
    "ask",
    [
        lambda root: compatcheck.check(root, within=root, here=False),
        lambda root: compatcheck.check(root / "requirements.txt", training=root / "train.sh", within=root, here=False),
        lambda root: compatcheck.estimate(root / "train.yaml", model=root / "model", suggest=True, within=root),
        lambda root: compatcheck.explain_oom(MESSAGE, root / "train.yaml", root, within=root, here=False),
        lambda root: compatcheck.explain_oom(MESSAGE, training=root / "train.yaml", within=root, here=False),
        lambda root: compatcheck.check(prefix=root / "venv", training=root / "train.yaml", within=root, here=False),
        lambda root: compatcheck.check(root / "facts.yaml", prefix=root / "venv", within=root, here=False),
    ],
)
def test_nothing_outside_is_read(project: Path, ask: Callable[[Path], Any]) -> None:
    opened: list[str] = []
    watched = [True]

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if (
            watched[0]
            and event in {"open", "os.listdir", "os.scandir"}
            and isinstance(arguments[0], (str, os.PathLike))
        ):
            opened.append(os.path.realpath(arguments[0]))

    sys.addaudithook(watch)
    answer = ask(project)
    text = f"{answer}{answer._repr_markdown_()}"
    watched[0] = False
    outside = str(project.parent / "outside")
    assert opened
    assert [path for path in opened if path.startswith(outside)] == []
    assert "told_outside" not in text
    assert "peft 0.11.1" not in text


def test_this_interpreter_lies_within_no_directory(tmp_path: Path) -> None:
    with pytest.raises(CompatcheckError, match=r"lies elsewhere"):
        compatcheck.check(within=tmp_path)


def test_a_number_of_nodes_is_one() -> None:
    for nodes in (0, -1, True, "2"):
        with pytest.raises(CompatcheckError, match="nodes"):
            compatcheck.check(CASE, nodes=nodes)


@pytest.mark.parametrize("error", [RuntimeError, OSError, ValueError, NotImplementedError])
def test_a_dataset_that_raises_tells_no_length(error: type[Exception]) -> None:
    class Dataset:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, list[int]]:
            raise error

    assert find_length(Dataset()) is None
    assert find_length([{"input_ids": [1, 2]}, {"input_ids": [1]}]) == 2
