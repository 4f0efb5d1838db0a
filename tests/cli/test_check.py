"""`compatcheck check`: exit codes, and that nothing unread ever reads as fine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import run

RULE = "deepspeed/zero3-params-kept-in-backward"
FACTS = """\
compatcheck: 1
packages: {deepspeed: "0.16.4"}
model: llama-3-8b
training: {framework: openrlhf, zero_stage: 3, gradient_checkpointing: true, use_reentrant: false, param_dtype: bfloat16}
hardware: {gpu: H100-80GB, gpus_per_node: 8, nodes: 1}
"""


@pytest.fixture
def affected(tmp_path: Path) -> Path:
    path = tmp_path / "facts.yaml"
    path.write_text(FACTS, encoding="utf-8")
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def report(*arguments: object) -> Any:
    return json.loads(run("check", *arguments, "--format", "json").out)


def test_findings_exit_1_and_are_in_every_format(affected: Path, tmp_path: Path) -> None:
    ran = run("check", affected, "--output", f"json:{tmp_path}/r.json", "--output", f"sarif:{tmp_path}/r.sarif")
    assert ran.code == 1
    assert RULE in ran.out
    data = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert RULE in [finding["rule_id"] for finding in data["findings"]]
    assert data["summary"]["exit_code"] == 1
    assert RULE in (tmp_path / "r.sarif").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fail-on", "never"], 0),
        (["--fail-on", "critical"], 0),
        (["--fail-on", "10GiB"], 1),
        (["--fail-on", "100GiB"], 0),
        (["--ignore", "*"], 2),
        (["--select", RULE, "--fail-on", "high"], 1),
        (["--select", "accelerate/*"], 0),
        (["--set", "training.zero_stage=2", "--select", RULE], 0),
        (["--fail-on", "lots"], 2),
        (["--select", "deepsped/*"], 2),
        (["--set", "training.zero_stage"], 2),
        (["--set", "training.zero_stage=9"], 2),
        (["--set", "training.micro_batch_size=inf"], 2),
        (["--set", "hardware.memory_bytes=" + "9" * 400 + "GiB"], 2),
        (["--output", "pdf:x"], 2),
        (["--rules", "nowhere"], 2),
    ],
)
def test_options_decide_the_exit_code(affected: Path, options: list[str], code: int) -> None:
    ran = run("check", affected, *options)
    assert ran.code == code, ran
    assert "Traceback" not in ran.err
    assert bool(ran.err.startswith("error: ") or ran.err.startswith("Usage")) == (code == 2)


def test_possible_findings_fail_only_under_strict(affected: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "open.yaml", FACTS.replace("gradient_checkpointing: true, use_reentrant: false, ", ""))
    path = write(path, path.read_text(encoding="utf-8").replace("framework: openrlhf, ", ""))
    affected.unlink()
    assert run("check", path, "--select", RULE).code == 0
    assert run("check", path, "--select", RULE, "--strict").code == 1
    (finding,) = report(path, "--select", RULE)["findings"]
    assert finding["status"] == "possible"
    assert finding["needs"] == ["training.gradient_checkpointing", "training.use_reentrant"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ds.json", '{"zero_optimization": {'),
        ("ds.json", '{"zero_optimization": {"stage": 3, "stage": 2}}'),
        ("facts.yaml", "compatcheck: 2\n"),
        ("facts.yaml", "compatcheck: 1\npackages: {deepspeed: 0.16}\n"),
        ("facts.yaml", "compatcheck: 1\npackages: {deepspeed: '>=abc'}\n"),
        ("facts.yaml", "compatcheck: 1\ntraining: [1]\n"),
        ("training_args.bin", "x"),
        ("notes.txt.yaml", "- a\n"),
    ],
)
def test_a_named_file_that_cannot_be_read_is_exit_4_and_said(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path / name, text)
    ran = run("check", path)
    assert ran.code == 4, ran
    assert name in ran.out + ran.err


def test_a_value_that_does_not_fit_is_told_with_its_key(tmp_path: Path) -> None:
    for value in ("7", ".inf", "1e400", "-1", "[1]"):
        path = write(tmp_path / "facts.yaml", f"compatcheck: 1\ntraining: {{zero_stage: {value}}}\n")
        ran = run("check", path)
        assert ran.code in {0, 4}, ran
        assert "training.zero_stage" in ran.out
        assert "not understood" in " ".join(ran.out.split())


def test_one_bad_file_does_not_lose_the_findings_of_the_others(affected: Path, tmp_path: Path) -> None:
    bad = write(tmp_path / "ds.json", "{")
    ran = run("check", affected, bad)
    assert ran.code == 1
    assert RULE in ran.out
    assert "ds.json" in ran.out


def test_nothing_to_check_is_exit_3(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("check", empty).code == 3
    assert run("check", tmp_path / "missing").code in {2, 4}
    assert run("check").code == 2


def test_a_clean_stack_is_exit_0_and_says_what_was_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "facts.yaml", FACTS.replace("0.16.4", "0.16.8"))
    ran = run("check", path, "--select", RULE)
    assert ran.code == 0
    assert "0 findings" in ran.out


def test_text_and_json_agree(affected: Path) -> None:
    data, text = report(affected), run("check", affected, "-v").out
    for finding in data["findings"]:
        if finding["status"] == "affected":
            assert finding["rule_id"] in text
    assert f"{sum(finding['status'] == 'affected' for finding in data['findings'])} finding" in text


@pytest.mark.parametrize("lines", ["deepspeed==0.15.0\ndeepspeed==0.16.4\n", "torch==2.5.1\ndeepspeed>=2,<1\n"])
def test_requirements_that_contradict_each_other_are_a_conflict(lines: str) -> None:
    Path("requirements.txt").write_text(lines)
    ran = run("check", "requirements.txt", "--format", "json")
    report = json.loads(ran.out)
    assert ran.code == 1
    (finding,) = (entry for entry in report["findings"] if entry["severity"] == "critical")
    assert finding["rule_id"] == "_stack/requirements-contradict-each-other"
    (conflict,) = report["subjects"][0]["conflicts"]
    assert conflict["fact"] == "version of deepspeed"
    assert not [entry for entry in report["findings"] if "version of deepspeed" in entry["needs"]]
    assert [entry["package"] for entry in report["subjects"][0]["version_unknown"]] == ["deepspeed"]


def test_a_contradiction_names_its_lines_and_what_to_do() -> None:
    Path("base.txt").write_text("deepspeed==0.16.4\n")
    Path("requirements.txt").write_text("-r base.txt\n\ndeepspeed==0.15.0\n")
    ran = run("check", "requirements.txt")
    assert "base.txt:1" in ran.out
    assert "requirements.txt:3" in ran.out
    assert "keep one of the lines" in ran.out
    assert "deepspeed: version unknown" in ran.out


def test_a_setup_py_is_checked_by_what_it_states() -> None:
    Path("setup.py").write_text("from setuptools import setup\nsetup(install_requires=['deepspeed==0.16.4'])\n")
    for arguments in (("setup.py",), (".",)):
        ran = run("check", *arguments, "--format", "json", "--fail-on", "never")
        assert ran.code == 0, ran
        (subject,) = json.loads(ran.out)["subjects"]
        assert subject["id"] == "setup.py"
        assert "deepspeed" in {package["name"] for package in subject["environment"]["packages"]}


def test_a_setup_py_that_computes_its_requirements_is_not_checked() -> None:
    Path("setup.py").write_text("from setuptools import setup\nsetup(install_requires=read())\n")
    ran = run("check", "setup.py")
    assert ran.code == 4
    assert "install_requires is computed" in ran.out
    Path("setup.py").write_text("from setuptools import setup\nsetup()\n")
    assert "states no requirements" in run("check", "setup.py").out


def test_a_run_is_paired_with_setup_py_only_where_nothing_better_is_there() -> None:
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    Path("setup.py").write_text("from setuptools import setup\nsetup(install_requires=['deepspeed==0.16.4'])\n")
    assert [entry["id"] for entry in json.loads(run("check", ".", "--format", "json").out)["subjects"]] == [
        "setup.py + ds.json"
    ]
    Path("requirements.txt").write_text("deepspeed==0.16.8\n")
    assert [entry["id"] for entry in json.loads(run("check", ".", "--format", "json").out)["subjects"]] == [
        "requirements.txt + ds.json",
        "setup.py",
    ]


SCRIPT = """\
# /// script
# dependencies = ["trl==0.12.0", "deepspeed==0.16.4"]
# ///
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments(output_dir="out", gradient_checkpointing=True, per_device_train_batch_size=2)
Trainer(args=arguments).train()
"""


def test_a_script_with_requirements_is_environment_and_configuration(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    facts = run("facts", path).out
    assert "training.micro_batch_size = 2" in facts
    assert "packages     2" in facts
    path.write_text(SCRIPT.partition("from")[0])  # one that trains nothing is an environment all the same
    assert "packages     2" in run("facts", path).out


@pytest.mark.parametrize("name", ["notes.txt", "packages.txt"])
def test_a_named_list_of_packages_is_told_by_its_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("Package   Version\n--------- -------\ndeepspeed 0.16.4\n")
    assert "packages     1 (complete)" in run("facts", path).out


@pytest.mark.parametrize("words", [("--format", "html"), ("--output", "html:report.html")], ids=" ".join)
def test_a_page_without_what_writes_it_is_refused_before_anything_is_read(tmp_path, monkeypatch, words) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    ran = run("check", "requirements.txt", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "--format html needs Jinja2" in ran.err
    assert "pip install Jinja2" in ran.err
    assert not (tmp_path / "report.html").exists()
