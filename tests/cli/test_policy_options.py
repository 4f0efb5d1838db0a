"""The policy on the command line: found, overruled, named runs, waivers; and what a hook passes over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compatcheck.checking.inspection import find_policy
from compatcheck.cli.__main__ import main
from tests import ROOT

RULE = "deepspeed/zero3-params-kept-in-backward"
FACTS = (
    "compatcheck: 1\nmodel: llama-3-70b\n"
    "training: {zero_stage: 3, gradient_checkpointing: true, use_reentrant: false, param_dtype: bfloat16}\n"
)


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\n")
    (tmp_path / "facts.yaml").write_text(FACTS)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return call


def policy(project: Path, text: str, name: str = "compatcheck.toml") -> None:
    (project / name).write_text(text)


def report(run, *arguments: str) -> dict:
    code, out, err = run(*arguments, "--format", "json")
    assert out, err
    data = json.loads(out)
    assert data["summary"]["exit_code"] == code
    return data


def test_policy_of_the_project_is_found_from_below(project, run, monkeypatch) -> None:
    policy(project, 'fail-on = "never"\n')
    monkeypatch.chdir(project / "below")
    data = report(run, "check", "..")
    assert data["summary"]["exit_code"] == 0
    assert data["summary"]["policy"] == os.path.join("..", "compatcheck.toml")
    assert data["summary"]["fail_on"] == "never"


def test_project_file_is_a_policy_when_it_says_so(project, run) -> None:
    policy(project, '[project]\nname = "x"\n', "pyproject.toml")
    assert report(run, "check", "requirements.txt", "facts.yaml")["summary"]["policy"] is None
    policy(project, '[project]\nname = "x"\n[tool.compatcheck]\nfail-on = "never"\n', "pyproject.toml")
    assert report(run, "check", "requirements.txt", "facts.yaml")["summary"]["policy"] == "pyproject.toml"


@pytest.mark.parametrize(
    "text",
    [
        "[tool.compatcheck]\nstrict = true",
        "  [ tool . compatcheck ]\nstrict = true",
        '[tool."compatcheck"]\nstrict = true',
        "tool.compatcheck.strict = true",
        "[tool]\ncompatcheck.strict = true",
        "[tool]\ncompatcheck = {strict = true}",
        "[tool.compatcheck.runs.a]\nlock = 'requirements.txt'",
        "[[tool.compatcheck.waivers]]\nrule = '*'\nreason = 'x'",
    ],
)
def test_every_way_to_write_the_table_is_found(project, run, text) -> None:
    policy(project, f"{text}\n", "pyproject.toml")
    assert (
        report(run, "check", "requirements.txt", "facts.yaml", "--no-strict")["summary"]["policy"] == "pyproject.toml"
    )


@pytest.mark.parametrize(
    "text", ["[project.scripts]\ncompatcheck = 'x:y'", "# [tool.compatcheck]", "[tool.compatchecker]"]
)
def test_other_project_files_are_passed_over(project, run, text) -> None:
    policy(project, f"{text}\n", "pyproject.toml")
    assert report(run, "check", "requirements.txt", "facts.yaml")["summary"]["policy"] is None


def test_search_stops_at_the_checkout_and_at_home(tmp_path) -> None:
    policy(tmp_path, "strict = true\n")
    home, checkout = tmp_path / "home", tmp_path / "checkout"
    for directory in (home / "x", checkout / "x"):
        directory.mkdir(parents=True)
    (checkout / ".git").mkdir()
    assert find_policy(str(home / "x"), str(home)) is None
    assert find_policy(str(checkout / "x"), None) is None
    assert find_policy(str(home / "x"), None) == str(tmp_path / "compatcheck.toml")


def test_command_line_wins(project, run) -> None:
    policy(project, 'fail-on = "never"\nselect = ["torch/*"]\nstrict = true\n')
    assert report(run, "check", ".")["findings"] == []
    data = report(run, "check", ".", "--select", "deepspeed/zero3*", "--fail-on", "low", "--no-strict")
    assert {finding["rule_id"] for finding in data["findings"]} >= {RULE}
    assert (data["summary"]["fail_on"], data["summary"]["strict"], data["summary"]["exit_code"]) == ("low", False, 1)


def test_no_policy(project, run) -> None:
    policy(project, 'fail-on = "nothing"\n')
    assert run("check", ".")[0] == 2
    assert run("check", ".", "--no-policy")[0] == 1
    code, _, err = run("check", ".", "--no-policy", "--policy", "compatcheck.toml")
    assert code == 2
    assert "exclude each other" in err


def test_named_policy(project, run) -> None:
    policy(project, 'fail-on = "never"\n', "other.toml")
    assert run("check", ".", "--policy", "other.toml")[0] == 0
    code, _, err = run("check", ".", "--policy", "none.toml")
    assert code == 2
    assert "none.toml: no such file" in err
    policy(project, "[project]\n", "pyproject.toml")
    code, _, err = run("check", ".", "--policy", "pyproject.toml")
    assert code == 2
    assert "holds no [tool.compatcheck]" in err


def test_mistake_names_file_line_and_remedy(project, run) -> None:
    policy(project, '\nfail_on = "high"\n')
    code, _, err = run("check", ".")
    assert code == 2
    assert "compatcheck.toml:2 (fail_on): unknown key 'fail_on'" in err
    assert "did you mean 'fail-on'?" in err


def test_all_runs_are_checked_without_a_path(project, run, monkeypatch) -> None:
    policy(
        project,
        "[runs.bad]\nlock = 'requirements.txt'\ntraining = 'facts.yaml'\n"
        "[runs.good]\nlock = 'requirements.txt'\ntraining = 'facts.yaml'\nset = {training.use_reentrant = true}\n",
    )
    monkeypatch.chdir(project / "below")
    data = report(run, "check")
    subjects = [subject["id"] for subject in data["subjects"]]
    assert [subject.partition(":")[0] for subject in subjects] == ["bad", "good"]
    assert [finding["subject"] for finding in data["findings"] if finding["rule_id"] == RULE] == [subjects[0]]
    facts = {fact["name"]: fact for fact in data["subjects"][1]["facts"]}
    assert facts["training.use_reentrant"]["source"].endswith(
        "compatcheck.toml:7 (runs.good.set.training.use_reentrant)"
    )
    only = report(run, "check", "--run", "good")
    assert [subject["id"].partition(":")[0] for subject in only["subjects"]] == ["good"]


def test_options_win_over_the_run(project, run) -> None:
    policy(project, "[runs.a]\nlock = 'requirements.txt'\ntraining = 'facts.yaml'\nset = {training.zero_stage = 2}\n")
    assert RULE not in {finding["rule_id"] for finding in report(run, "check", "--run", "a")["findings"]}
    data = report(run, "check", "--run", "a", "--set", "training.zero_stage=3", "--gpu", "8xH100-80GB")
    assert RULE in {finding["rule_id"] for finding in data["findings"]}
    facts = {fact["name"]: fact for fact in data["subjects"][0]["facts"]}
    assert facts["training.zero_stage"]["source"] == "--set (training.zero_stage)"


def test_unreadable_run_does_not_lose_the_others(project, run) -> None:
    policy(
        project, "[runs.gone]\nlock = 'gone.lock'\n[runs.here]\nlock = 'requirements.txt'\ntraining = 'facts.yaml'\n"
    )
    data = report(run, "check")
    assert RULE in {finding["rule_id"] for finding in data["findings"]}
    assert any("gone.lock" in entry["source"] for entry in data["skipped"])
    assert data["summary"]["exit_code"] == 1


def test_unknown_run_and_no_run(project, run) -> None:
    code, _, err = run("check")
    assert code == 2
    assert "nothing to check" in err
    assert "an environment alone: compatcheck env --python x" in run("check", "--python", "x")[2].replace("\n  ", " ")
    assert "an image alone: compatcheck image x.tar" in run("check", "--image", "x.tar")[2].replace("\n  ", " ")
    assert run("check", "--run", "a")[0] == 2
    policy(project, "[runs.actor]\nlock = 'requirements.txt'\n")
    code, _, err = run("check", "--run", "acto")
    assert code == 2
    assert "did you mean 'actor'?" in err


@pytest.mark.parametrize("command", ["facts", "explain"])
def test_other_commands_know_runs(project, run, command) -> None:
    policy(project, "[runs.a]\nlock = 'requirements.txt'\ntraining = 'facts.yaml'\n")
    code, out, _ = run(command, *([RULE] if command == "explain" else []), "--run", "a")
    assert code == 0
    assert "a: requirements.txt" in out


def test_waivers_are_laid_over_the_report(project, run) -> None:
    policy(project, "[[waivers]]\nrule = '*'\nreason = 'agreed with the owners'\nexpires = 2999-01-01\n")
    code, out, _ = run("check", ".")
    assert code == 0
    assert f"waived   {RULE}: agreed with the owners" in out
    assert "0 findings" in "\n".join(out.splitlines()[-3:])
    code, out, _ = run("check", ".", "-q")
    assert f"WAIVED {RULE}" in out


def test_strict_wants_an_end(project, run) -> None:
    policy(project, "[[waivers]]\nrule = '*'\nreason = 'x'\n")
    code, _, err = run("check", ".", "--strict")
    assert code == 2
    assert "compatcheck.toml:1" in err
    assert "has no end" in err


@pytest.mark.usefixtures("project")
def test_misspelt_selection_is_not_clean(run) -> None:
    code, _, err = run("check", ".", "--select", "deepsped/*")
    assert code == 2
    assert "did you mean 'deepspeed/*'?" in err
    Path("compatcheck.toml").write_text('select = ["deepsped/*"]')
    code, _, err = run("check", ".")
    assert code == 2
    assert "compatcheck.toml (select): no rule matches" in err
    code, _, err = run("check", ".", "--ignore", "*", "--no-policy")
    assert code == 2
    assert "no rule is left" in err


def test_several_reports_at_once(project, run) -> None:
    formats = ("text", "json", "sarif", "junit", "markdown", "github")
    outputs = [f"--output={name}:out/{name}" for name in formats]
    (project / "out").mkdir()
    code, out, _ = run("check", "requirements.txt", "facts.yaml", *outputs)
    assert code == 1
    assert (project / "out/text").read_text().splitlines()[-1] == out.splitlines()[-1]
    for name in formats:
        assert RULE in (project / "out" / name).read_text()


@pytest.mark.parametrize("name", ["text", "json", "sarif", "junit", "markdown", "github"])
def test_file_name_in_another_encoding(project, name) -> None:
    directory = os.path.join(os.fsencode(project), b"caf\xe9")
    os.mkdir(directory)
    with open(os.path.join(directory, b"requirements.txt"), "w", encoding="utf-8") as file:
        file.write("deepspeed==0.16.4\n")
    script = "from compatcheck.cli.__main__ import main; main()"
    command = [sys.executable, "-c", script, "check", directory, "--format", name, "--output", f"{name}:out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (project / "out").read_text(encoding="utf-8")
    if name in {"json", "sarif"}:
        assert json.loads((project / "out").read_bytes())


def test_hook_passes_over_what_is_no_input(project, run) -> None:
    (project / "config.json").write_text('{"name": "web"}')
    assert run("check", "config.json")[0] == 4
    assert run("check", "--hook", "config.json")[0] == 0
    assert run("check", "--hook")[0] == 0
    (project / "broken.json").write_text('{"name": ')
    assert run("check", "--hook", "broken.json")[0] == 0


def test_hook_fails_for_an_input_of_the_commit_that_cannot_be_read(project, run) -> None:
    (project / "setup.py").write_text("from setuptools import setup\nsetup(install_requires=read())\n")
    (project / "pyproject.toml").write_text('[project]\nname = "x"\ndynamic = ["dependencies"]\n')
    assert run("check", "--hook", "setup.py")[0] == 0
    assert run("check", "--hook", "pyproject.toml")[0] == run("check", ".")[0] == 1  # its list stands beside it
    (project / "broken.json").write_text('{"zero_optimization": ')
    assert run("check", "--hook", "broken.json")[0] == 4
    assert run("check", "--hook", "setup.py")[0] == 0
    (project / "setup.py").write_text("setup(")
    assert run("check", "--hook", "setup.py")[0] == 4
    (project / "requirements.txt").write_text("torch==\ndeepspeed==0.16.8\n")
    assert run("check", "--hook", "requirements.txt")[0] == 4


@pytest.mark.parametrize("text", ['{"zero_optimization": {"sta', '{"fp1'])
def test_hook_fails_for_a_truncated_file_that_a_run_names(project, run, text) -> None:
    (project / "train.yaml").write_text("output_dir: o\nper_device_train_batch_size: 1\ndeepspeed: ds.json\n")
    (project / "ds.json").write_text(text)
    (project / "requirements.txt").write_text("deepspeed==0.16.8\n")
    assert run("check", "--hook", "ds.json")[0] == 4
    assert run("check", "--hook", "requirements.txt")[0] == 4


def test_hook_checks_what_belongs_to_a_file(project, run) -> None:
    for name in ("facts.yaml", "requirements.txt"):
        data = report(run, "check", "--hook", name)
        assert RULE in {finding["rule_id"] for finding in data["findings"]}
        assert [subject["id"] for subject in data["subjects"]] == ["requirements.txt + facts.yaml"]
    policy(project, "")
    assert report(run, "check", "--hook", "compatcheck.toml")["subjects"]


def test_without_a_policy_none_of_its_modules_is_imported(project) -> None:
    policy(project, '[project]\nname = "x"\n', "pyproject.toml")
    (project / "facts.yaml").unlink()  # it would be read, to be named
    script = (
        "import sys\nfrom compatcheck.cli.__main__ import main\n"
        "try:\n    main(['env'])\nexcept SystemExit:\n"
        "    print(sorted(set(sys.modules) & {'tomllib', 'tomli', 'datetime', 'compatcheck.checking.policy', "
        "'compatcheck.core.toml', 'compatcheck.checking.waivers', 'compatcheck.reporters.fingerprint'}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


RUN = '[runs.train]\nlock = "requirements.txt"\ntraining = "facts.yaml"\ngpu = "8xH100-80GB"\n'


def subjects(data: dict) -> list[str]:
    return [subject["id"] for subject in data["subjects"]]


def test_the_directory_of_the_policy_holds_its_runs(project, run) -> None:
    policy(project, RUN)
    whole, named = report(run, "check"), report(run, "check", ".")
    assert named["subjects"] == whole["subjects"]
    assert named["summary"]["exit_code"] == whole["summary"]["exit_code"]
    assert {finding["severity"] for finding in named["findings"]} == {
        finding["severity"] for finding in whole["findings"]
    }
    assert run("estimate", ".")[1] == run("estimate", "--run", "train")[1]


def test_what_lies_beside_the_runs_is_checked_with_them(project, run, monkeypatch) -> None:
    policy(project, RUN)
    (project / "below" / "requirements.txt").write_text("vllm==0.6.3.post1\ntorch==2.6.0\n")
    (project / "other.yaml").write_text(FACTS.replace("zero_stage: 3", "zero_stage: 2"))
    wanted = ["train: requirements.txt", "requirements.txt + other.yaml", "below/requirements.txt"]
    assert sorted(subjects(report(run, "check", "."))) == sorted(wanted)
    assert subjects(report(run, "check", "below")) == ["below/requirements.txt"]
    assert subjects(report(run, "check", "requirements.txt")) == ["requirements.txt"]
    monkeypatch.chdir(project / "below")
    assert len(subjects(report(run, "check", ".."))) == 3
    code, out, _ = run("check", "..", "missing.txt", "--fail-on", "never")
    assert (code, "missing.txt: no such file" in out) == (4, True)


def test_a_policy_without_runs_leaves_a_directory_as_it_is(project, run) -> None:
    before = report(run, "check", ".")
    policy(project, 'fail-on = "high"\n')
    assert subjects(report(run, "check", ".")) == subjects(before)
    policy(project, RUN)
    assert subjects(report(run, "check", ".", "--no-policy")) == subjects(before)
