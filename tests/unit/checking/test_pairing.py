"""Runs and the lists, locks and Dockerfiles they are checked with; those that nothing could be checked on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run_cli import run

STACK = "torch==2.6.0\ndeepspeed==0.16.4\ntransformers==4.49.0\n"
IMAGE = "FROM python:3.11\nRUN pip install torch==2.6.0 deepspeed==0.16.4 transformers==4.49.0\n"
INSTALLS = "FROM python:3.11\nCOPY . .\nRUN pip install -r requirements.txt\n"
PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["numpy"]\n'
OTHERS = "numpy==1.26.4\n"
ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
GO = (
    "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --bf16 --gradient_checkpointing "
    """--gradient_checkpointing_kwargs '{"use_reentrant": false}' --model_name_or_path Qwen/Qwen2.5-7B --output_dir o\n"""
)
TRAIN = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(training,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B"), training).train()
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    write(folder, {"go.sh": GO, "train.py": TRAIN, "ds.json": ZERO3})
    monkeypatch.chdir(folder)
    return folder


def found(*arguments: str) -> tuple[int, dict[str, set[str]], list[str]]:
    """Return the exit code, the certain findings by subject, and what was not checked."""
    code, out = run("check", ".", "--format", "json", *arguments)[:2]
    report = json.loads(out)
    certain: dict[str, set[str]] = {subject["id"]: set() for subject in report["subjects"]}
    for finding in report["findings"]:
        if finding["status"] == "affected":
            certain[finding["subject"]].add(finding["rule_id"])
    return code, certain, [f"{entry['source']}: {entry['reason']}" for entry in report["skipped"]]


@pytest.mark.parametrize(
    ("files", "with_run"),
    [
        ({"requirements.txt": OTHERS, "Dockerfile": IMAGE}, {"Dockerfile"}),
        ({"pyproject.toml": PROJECT, "Dockerfile": IMAGE}, {"Dockerfile"}),
        ({"requirements.txt": OTHERS, "docker/Dockerfile": IMAGE}, {"docker/Dockerfile"}),
        ({"requirements.txt": OTHERS, "requirements-train.txt": STACK}, {"requirements-train.txt"}),
        ({"requirements.txt": STACK, "Dockerfile": IMAGE.replace("0.16.4", "0.16.8")}, {"requirements.txt", "Dockerfile"}),
        ({"requirements.txt": STACK, "Dockerfile": INSTALLS}, {"requirements.txt"}),
        ({"requirements.txt": STACK, "Dockerfile": "FROM node:20\nRUN pip install black==24.1.0\n"}, {"requirements.txt"}),
    ],
    ids=["list", "manifest", "folder", "lists", "both", "the same", "no stack"],
)  # fmt: skip
def test_a_run_is_paired_with_what_holds_the_stack(project: Path, files: dict[str, str], with_run: set[str]) -> None:
    write(project, files)
    code, certain, _ = found()
    assert {name.partition(" + ")[0] for name in certain if "go.sh" in name} == with_run
    assert code == 1


def test_of_many_dockerfiles_beside_a_list_it_is_said_that_none_was_paired(project: Path) -> None:
    write(
        project,
        {
            "requirements.txt": STACK,
            **{f"docker/Dockerfile.{n}": IMAGE.replace("2.6.0", f"2.{n}.0") for n in (4, 5, 7)},
        },
    )
    _, certain, skipped = found()
    assert sum("go.sh" in name for name in certain) == 1
    assert [entry for entry in skipped if "holds 3 Dockerfiles" in entry]


def test_a_run_without_packages_is_counted_where_another_was_checked(project: Path) -> None:
    write(
        project,
        {"other/requirements.txt": STACK.replace("0.16.4", "0.16.8"), "other/go.sh": GO, "other/ds.json": ZERO3},
    )
    code, _, skipped = found()
    assert code == 0
    assert [entry for entry in skipped if entry.startswith("go.sh: a run that no rule could be checked on")]
    assert found("--fail-unread")[0] == 4
    out = run("check", ".")[1]
    assert out.startswith("PASSES: nothing at or above --fail-on medium, 1 not checked")


def test_where_nothing_at_all_was_checked_the_exit_code_stays(project: Path) -> None:
    assert found("--fail-unread")[0] == 3
    write(project, {"requirements.txt": OTHERS})
    assert found("--fail-unread")[0] == 3


def test_what_is_given_for_all_inputs_makes_no_run_of_a_list_of_tools(project: Path) -> None:
    write(
        project,
        {
            "requirements.txt": STACK,
            "docs/requirements.txt": "sphinx==7.0.0\n",
            "more.yaml": "compatcheck: 1\nmodel: llama-3-8b\n",
        },
    )
    assert not [entry for entry in found("--training", "more.yaml")[2] if "docs/" in entry]


def test_a_commit_of_a_run_without_packages_does_not_pass_the_hook(project: Path) -> None:
    assert run("check", "--hook", "go.sh")[0] == 0
    assert run("check", "--hook", "--fail-unread", "go.sh")[0] == 4
    write(project, {"requirements.txt": STACK.replace("0.16.4", "0.16.8")})
    assert run("check", "--hook", "--fail-unread", "go.sh")[0] == 0


SCRIPTS = {
    "requirements.txt": STACK,
    "scripts/run.sh": "llamafactory-cli train configs/sft.yaml\n",
    "configs/sft.yaml": "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ntemplate: qwen\ncutoff_len: 512\ndo_train: true\n"
    "deepspeed: configs/deepspeed/z3.json\noutput_dir: out\n",
    "configs/deepspeed/z3.json": ZERO3,
}


def test_what_a_run_of_another_folder_names_is_no_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SCRIPTS)
    monkeypatch.chdir(tmp_path)
    assert list(found()[1]) == ["requirements.txt + scripts/run.sh"]
    others = {"configs/dpo.yaml": SCRIPTS["configs/sft.yaml"], "configs/deepspeed/z2.json": ZERO3.replace("3", "2")}
    write(tmp_path, others)
    assert {name.partition(" + ")[2] for name in found()[1]} == {
        "scripts/run.sh",
        "configs/dpo.yaml",
        "configs/deepspeed/z2.json",
    }


def test_what_a_script_beside_it_names_is_no_run_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = TRAIN.replace("HfArgumentParser, ", "").replace(
        "(training,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()",
        'training = TrainingArguments(output_dir="out", deepspeed="ds.json")',
    )
    write(tmp_path, {"requirements.txt": STACK, "train.py": script, "ds.json": ZERO3})
    monkeypatch.chdir(tmp_path)
    assert list(found()[1]) == ["requirements.txt + train.py"]


def test_a_commit_of_what_a_run_names_by_way_of_another_file_checks_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SCRIPTS)
    monkeypatch.chdir(tmp_path)
    out = run("check", "--hook", "configs/deepspeed/z3.json", "--format", "json")[1]
    assert [one["id"] for one in json.loads(out)["subjects"]] == ["requirements.txt + scripts/run.sh"]
