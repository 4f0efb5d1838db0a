"""The GitHub action and the GitLab template: the very shell of their steps, run in a repository with a pull request."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
ARGS = "--training=train.yaml\n--gpu=8xH100-80GB\n--nodes=2\n"
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
UPGRADE = {"transformers==4.49.0": "transformers==5.0.0"}
HEALTHY = {"deepspeed==0.16.4": "deepspeed==0.16.8"}


class Done(NamedTuple):
    """What the steps of a job did."""

    code: int
    """Of the step that ended it."""
    said: str
    summary: str
    outputs: dict[str, str]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository whose main branch has requirements and a training configuration."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    project = tmp_path / "origin"
    project.mkdir()
    git(project, "init", "-q")
    files = {path.name: path.read_text() for path in (ROOT / "fixtures" / "upgrade").iterdir()}
    before = files.pop("before.txt")
    files.pop("after.txt")
    commit(project, {**files, "requirements.txt": before, "README.md": "read me\n"})
    return project


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Return what a runner calls its temporary folder, with compatcheck as the first step installs it."""
    program = tmp_path / "runner" / "compatcheck" / "bin" / "compatcheck"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m compatcheck "$@"\n')
    program.chmod(0o755)
    return tmp_path / "runner"


def open_pull_request(project: Path, files: dict[str, str], *, depth: int, folder: Path) -> Path:
    """Commit files to a branch, and check out its merge with main as GitHub does; main went on meanwhile."""
    git(project, "checkout", "-q", "-b", "change")
    commit(project, files)
    git(project, "checkout", "-q", "main")
    commit(project, {"later.txt": "of somebody else\n"})
    git(project, "checkout", "-q", "-b", "merge")
    git(project, "merge", "-q", "--no-ff", "-m", "merge", "change")
    git(project, "checkout", "-q", "main")
    git(folder, "clone", "-q", "--depth", str(depth), "--branch", "merge", f"file://{project}", "checkout")
    return folder / "checkout"


def run_action(
    folder: Path, temporary: Path, event: str, base: str = "", tip: str | None = None, **inputs: str
) -> Done:
    """Run the steps behind the installation as a runner does; the branch of a pull request is `change`."""
    if tip is None:
        tip = git(folder, "ls-remote", "origin", "change").partition("\t")[0] if event == "pull_request" else ""
    values = {f"inputs.{name}": str(row.get("default", "")) for name, row in ACTION["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in inputs.items()}
    values |= {"github.event_name": event, "github.event.pull_request.base.sha": base}
    values |= {"github.event.pull_request.head.sha": tip}
    said, outputs = "", {}
    summary = temporary / "summary.md"
    for step in ACTION["runs"]["steps"][1:]:
        if "run" not in step:
            continue
        written = temporary / f"outputs-{step.get('id')}"
        variables = {name: evaluate(text, values) for name, text in step.get("env", {}).items()}
        done = run_bash(
            step["run"],
            folder,
            **variables,
            RUNNER_TEMP=str(temporary),
            GITHUB_OUTPUT=str(written),
            GITHUB_STEP_SUMMARY=str(summary),
        )
        said += done.stdout + done.stderr
        for line in written.read_text().splitlines() if written.exists() else ():
            name, _, value = line.partition("=")
            outputs[f"{step['id']}.{name}"] = values[f"steps.{step['id']}.outputs.{name}"] = value
        if done.returncode:
            break
    return Done(done.returncode, said, summary.read_text() if summary.exists() else "", outputs)


def evaluate(text: str, values: dict[str, str]) -> str:
    """Evaluate the expressions of a workflow that the action has: names, and the first of several that is not empty."""

    def replace(match: re.Match[str]) -> str:
        return next((found for name in match[1].split("||") if (found := values.get(name.strip(), ""))), "")

    return re.sub(r"\$\{\{ (.*?) \}\}", replace, text)


def run_bash(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    hidden = {"FORCE_COLOR", "VIRTUAL_ENV", "CONDA_PREFIX"}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**{key: value for key, value in os.environ.items() if key not in hidden}, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def requirements(project: Path, replaced: dict[str, str]) -> str:
    text = (project / "requirements.txt").read_text()
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_a_pull_request_fails_for_what_it_brings_in(project: Path, temporary: Path, tmp_path: Path, depth: int) -> None:
    base = git(project, "rev-parse", "main")
    files = {"requirements.txt": requirements(project, UPGRADE)}
    checkout = open_pull_request(project, files, depth=depth, folder=tmp_path)
    done = run_action(checkout, temporary, "pull_request", base, args=ARGS)
    assert (done.code, done.outputs["check.outcome"]) == (1, "1"), done.said
    assert re.search(r"^compatcheck: [1-9]\d* findings .*, [1-9]\d* stood before,", done.said, re.MULTILINE)
    assert "zero3-params-kept-in-backward" in done.summary
    results = json.loads((checkout / "compatcheck.sarif").read_text())["runs"][0]["results"]
    assert "deepspeed/zero3-params-kept-in-backward" in {result["ruleId"] for result in results}
    assert "::error file=requirements.txt" in done.said


@pytest.mark.parametrize(
    ("files", "code"),
    [
        pytest.param({"README.md": "read me again\n"}, 0, id="a page"),
        pytest.param({"requirements.txt": HEALTHY}, 0, id="the release that mends it"),
        pytest.param({"tools-requirements.txt": "flask==3.0.0\n"}, 0, id="a list of other packages"),
        pytest.param({"train.yaml": "…"}, 0, id="the configuration of a run that failed before"),
        pytest.param({"new/requirements.txt": UPGRADE}, 1, id="a new list"),
        pytest.param({"new/requirements-gpu.txt": "torch==2.6.0\n???\n"}, 4, id="an unread list"),
    ],
)
def test_a_pull_request_is_asked_about_what_it_touches(
    project: Path, temporary: Path, tmp_path: Path, files: dict[str, Any], code: int
) -> None:
    commit(project, {"requirements.txt": requirements(project, UPGRADE)})  # main fails already
    if "train.yaml" in files:
        files = {"train.yaml": (project / "train.yaml").read_text() + "logging_steps: 1\n"}
    files = {
        name: requirements(project, content) if isinstance(content, dict) else content
        for name, content in files.items()
    }
    base = git(project, "rev-parse", "main")
    checkout = open_pull_request(project, files, depth=2, folder=tmp_path)
    done = run_action(checkout, temporary, "pull_request", base, args=ARGS)
    assert done.code == code, done.said
    assert "check.exit-code" in done.outputs
    results = json.loads((checkout / "compatcheck.sarif").read_text())["runs"][0]["results"]
    shown = "zero3-params-kept-in-backward"
    annotated = re.search(rf"^::error .*{shown}", done.said, re.MULTILINE) is not None
    assert (shown in str(results), shown in done.summary, annotated) == ((code == 1,) * 3)
    assert re.search(r"[1-9]\d* stood before", done.said)
    assert git(checkout, "worktree", "list").count("\n") == 0


def test_a_push_fails_for_all_there_is(project: Path, temporary: Path) -> None:
    commit(project, {"requirements.txt": requirements(project, UPGRADE)})
    done = run_action(project, temporary, "push", args=ARGS)
    assert (done.code, done.outputs) == (1, {"check.exit-code": "1", "check.outcome": "1"}), done.said
    assert done.summary.startswith("## compatcheck: ")
    passing = run_action(
        project, temporary, "push", args=f"{ARGS}--fail-on=never\n", paths="requirements.txt\n", sarif="x.sarif"
    )
    assert passing.code == 0, passing.said
    assert (project / "x.sarif").exists()


def run_gitlab(folder: Path, temporary: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the job of the template behind its installation; a variable of the job is what the project sets, or the template."""
    job = yaml.safe_load((ROOT / "templates" / "compatcheck.gitlab-ci.yml").read_text(encoding="utf-8"))["compatcheck"]
    path = f"{temporary / 'compatcheck' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return run_bash(job["script"][1], folder, **{**job["variables"], **variables, "PATH": path})


@pytest.mark.parametrize(
    ("files", "code"),
    [
        pytest.param({"requirements.txt": UPGRADE}, 1, id="an upgrade"),
        pytest.param({"requirements.txt": HEALTHY}, 0, id="the release that mends it"),
        pytest.param({"README.md": "read me again\n"}, 0, id="a page"),
        pytest.param({"new/requirements-gpu.txt": "torch==2.6.0\n???\n"}, 4, id="an unread list"),
    ],
)
def test_a_merge_request_fails_for_what_it_brings_in(
    project: Path, temporary: Path, tmp_path: Path, files: dict[str, Any], code: int
) -> None:
    base = git(project, "rev-parse", "main")
    written = {
        name: requirements(project, content) if isinstance(content, dict) else content
        for name, content in files.items()
    }
    checkout = open_pull_request(project, written, depth=50, folder=tmp_path)
    options = " ".join(ARGS.split())
    done = run_gitlab(checkout, temporary, COMPATCHECK_ARGS=options, CI_MERGE_REQUEST_DIFF_BASE_SHA=base)
    assert done.returncode == code, done.stdout + done.stderr
    assert (checkout / "compatcheck.xml").exists()


def test_a_branch_fails_for_all_there_is(project: Path, temporary: Path) -> None:
    commit(project, {"requirements.txt": requirements(project, UPGRADE)})
    assert run_gitlab(project, temporary, COMPATCHECK_ARGS=" ".join(ARGS.split())).returncode == 1


def run_change(
    where: str, project: Path, temporary: Path, files: dict[str, str], folder: Path, *, base: str = "", args: str = ARGS
) -> Done:
    """Open a pull request and run the action, or the job of GitLab, for it."""
    base = base or git(project, "rev-parse", "main")
    checkout = open_pull_request(project, files, depth=50, folder=folder)
    if where == "action":
        return run_action(checkout, temporary, "pull_request", base, args=args)
    options = " ".join(args.split())
    done = run_gitlab(checkout, temporary, COMPATCHECK_ARGS=options, CI_MERGE_REQUEST_DIFF_BASE_SHA=base)
    return Done(done.returncode, done.stdout + done.stderr, "", {})


@pytest.mark.parametrize("where", ["action", "gitlab"])
@pytest.mark.parametrize("name", ["--fail-on=never", "--ignore=*", "--output=text:x-requirements.txt"])
def test_a_file_of_a_change_is_no_option(project: Path, temporary: Path, tmp_path: Path, where: str, name: str) -> None:
    files = {name: "x\n", "new-requirements.txt": requirements(project, UPGRADE)}
    files["train.yaml"] = (project / "train.yaml").read_text() + "logging_steps: 1\n"
    done = run_change(where, project, temporary, files, tmp_path)
    assert done.code == 1, done.said


@pytest.mark.parametrize("where", ["action", "gitlab"])
def test_a_list_that_becomes_a_link_is_looked_at(project: Path, temporary: Path, tmp_path: Path, where: str) -> None:
    commit(project, {"lists/plain.lst": requirements(project, UPGRADE)})
    base = git(project, "rev-parse", "main")
    git(project, "checkout", "-q", "-b", "link")
    (project / "requirements.txt").unlink()
    (project / "requirements.txt").symlink_to("lists/plain.lst")
    done = run_change(where, project, temporary, {"README.md": "read me again\n"}, tmp_path, base=base)
    assert done.code == 1, done.said


def test_names_of_a_change_command_no_runner(project: Path, temporary: Path, tmp_path: Path) -> None:
    names = ("a\n::warning::x\nrequirements.txt", "##[add-matcher]x-requirements.txt")
    files = {name: requirements(project, UPGRADE) + "???\n" for name in names}
    said = run_change("action", project, temporary, files, tmp_path).said
    assert "add-matcher" in said
    assert "\n::warning::x" not in said
    assert not re.search(r"^(?!::).*##\[", said, re.MULTILINE), said


@pytest.mark.parametrize("where", ["action", "gitlab"])
def test_a_change_where_nothing_is_to_check_passes(project: Path, temporary: Path, tmp_path: Path, where: str) -> None:
    for name in ("requirements.txt", "train.yaml", "ds.json"):
        (project / name).unlink()
    commit(project, {"README.md": "read me\n", "x.txt": "x\n"})
    checkout = open_pull_request(project, {"x.txt": "y\n"}, depth=50, folder=tmp_path)
    base = git(project, "rev-parse", "main")
    if where == "action":
        assert run_action(checkout, temporary, "pull_request", base).code == 0
    else:
        assert run_gitlab(checkout, temporary, CI_MERGE_REQUEST_DIFF_BASE_SHA=base).returncode == 0


def test_places_in_the_checkout_are_those_of_the_base_there(project: Path, temporary: Path, tmp_path: Path) -> None:
    base = git(project, "rev-parse", "main")
    files = {"requirements.txt": requirements(project, UPGRADE)}
    checkout = open_pull_request(project, files, depth=2, folder=tmp_path)
    given = ARGS.replace("train.yaml", f"{checkout}/train.yaml")
    for paths in (str(checkout), f"{checkout}/requirements.txt"):
        done = run_action(checkout, temporary, "pull_request", base, args=given, paths=f"{paths}\n")
        assert (done.code, "stood before" in done.said) == (1, True), done.said


def test_without_its_base_a_change_does_not_pass(project: Path, temporary: Path, tmp_path: Path) -> None:
    files = {"requirements.txt": requirements(project, UPGRADE)}
    assert run_change("gitlab", project, temporary, files, tmp_path, base="0" * 40).code == 4


GOOD = (ROOT / "fixtures/upgrade/before.txt").read_text().replace("deepspeed==0.16.4", "deepspeed==0.16.8")
BAD = GOOD.replace("deepspeed==0.16.8", "deepspeed==0.16.4").replace("transformers==4.49.0", "transformers==5.0.0")
INCLUDING = {"requirements.txt": "-r deps/base.list\n", "deps/base.list": GOOD}
CONSTRAINED = {"requirements.txt": re.sub("==.*", "", GOOD) + "-c constraints.txt\n", "constraints.txt": GOOD}
APART = {"requirements.txt": GOOD, "apart/requirements.txt": "torch==2.6.0\n"}


class Change(NamedTuple):
    """What a pull request does to a run, and what its gate has to say."""

    before: dict[str, str]
    after: dict[str, str | None]
    """None deletes."""
    code: int
    args: str = ""


CHANGES = {
    "a training that no option names": Change({"requirements.txt": GOOD}, {"requirements.txt": BAD}, 1),
    "an included list of any name": Change(INCLUDING, {"deps/base.list": BAD}, 1, ARGS),
    "constraints go": Change(CONSTRAINED, {"constraints.txt": None}, 4),
    "a file that the training names goes": Change({"requirements.txt": GOOD}, {"ds.json": None}, 4),
    "a list is emptied": Change(APART, {"requirements.txt": "# none\n"}, 4),
    "a list is renamed": Change(APART, {"requirements.txt": None, "stack.lst": BAD}, 4),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("where", ["action", "gitlab"])
def test_whatever_of_a_run_changes_fails_the_change(
    project: Path, temporary: Path, tmp_path: Path, where: str, change: Change
) -> None:
    commit(project, change.before)
    for name in change.after:
        (project / name).unlink(missing_ok=True)
    written = {name: text for name, text in change.after.items() if text is not None}
    done = run_change(where, project, temporary, written, tmp_path, args=change.args)
    assert done.code == change.code, done.said


@pytest.mark.parametrize("depth", [1, 50])
@pytest.mark.parametrize("merges", [0, 1, 2])
def test_a_merge_in_the_branch_is_no_base(
    project: Path, temporary: Path, tmp_path: Path, merges: int, depth: int
) -> None:
    git(project, "checkout", "-q", "-b", "change")
    commit(project, {"requirements.txt": requirements(project, UPGRADE)})
    for number in range(merges):
        git(project, "checkout", "-q", "main")
        commit(project, {f"later-{number}.txt": "of somebody else\n"})
        git(project, "checkout", "-q", "change")
        git(project, "merge", "-q", "--no-ff", "-m", "merge main", "main")
    git(tmp_path, "clone", "-q", "--depth", str(depth), "--branch", "change", f"file://{project}", "checkout")
    base = git(project, "rev-parse", "main")
    done = run_action(tmp_path / "checkout", temporary, "pull_request", base, args=ARGS)
    assert (done.code, "stood before" in done.said) == (1, True), done.said


def test_what_came_to_main_meanwhile_is_not_the_branch_s(project: Path, temporary: Path, tmp_path: Path) -> None:
    git(project, "checkout", "-q", "-b", "change")
    commit(project, {"README.md": "read me again\n"})
    git(project, "checkout", "-q", "main")
    commit(project, {"requirements.txt": requirements(project, HEALTHY | UPGRADE)})
    git(project, "checkout", "-q", "change")
    git(tmp_path, "clone", "-q", "--branch", "change", f"file://{project}", "checkout")
    base = git(project, "rev-parse", "main")
    assert run_action(tmp_path / "checkout", temporary, "pull_request", base, args=ARGS).code == 0


@pytest.mark.parametrize("depth", [1, 50])
def test_a_checkout_of_something_else_is_refused(project: Path, temporary: Path, tmp_path: Path, depth: int) -> None:
    files = {"requirements.txt": requirements(project, UPGRADE)}
    checkout = open_pull_request(project, files, depth=depth, folder=tmp_path)
    base = git(project, "rev-parse", "main")
    for tip in (base, ""):
        done = run_action(checkout, temporary, "pull_request", base, tip=tip, args=ARGS)
        assert done.code == 4
        assert "is not the head of the pull request, nor its merge with the base" in done.said
    if depth > 1:  # one parent, and an event that names no head
        git(checkout, "checkout", "-q", "HEAD^2")
        assert run_action(checkout, temporary, "pull_request", base, tip="", args=ARGS).code == 4
        git(checkout, "checkout", "-q", "merge")
    done = run_action(checkout, temporary, "pull_request", "0" * 40, tip=git(checkout, "rev-parse", "HEAD"), args=ARGS)
    assert done.code == 4
    assert "where the pull request branched off could not be told" in done.said


def test_a_merged_result_is_compared_with_what_it_was_merged_with(
    project: Path, temporary: Path, tmp_path: Path
) -> None:
    base = git(project, "rev-parse", "main")
    commit(project, {"requirements.txt": requirements(project, UPGRADE)})
    checkout = open_pull_request(project, {"README.md": "read me again\n"}, depth=50, folder=tmp_path)
    shas = {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": git(project, "rev-parse", "main"),
    }
    assert run_gitlab(checkout, temporary, COMPATCHECK_ARGS=" ".join(ARGS.split()), **shas).returncode == 0


def test_the_installation_imports_nothing_of_the_checkout(tmp_path: Path) -> None:
    step = ACTION["runs"]["steps"][0]
    (tmp_path / "work").mkdir()
    for name in ("venv", "pip", "json", "importlib"):
        (tmp_path / "work" / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a')\nraise SystemExit(0)\n")
    variables = {name: evaluate(text, {"inputs.python": sys.executable}) for name, text in step["env"].items()}
    run_bash(step["run"], tmp_path / "work", **variables, RUNNER_TEMP=str(tmp_path), GITHUB_ACTION_PATH="/nonexistent")
    assert (tmp_path / "compatcheck" / "bin" / "python").exists()
    assert not (tmp_path / "ran").exists()


def test_nothing_of_a_workflow_is_pasted_into_a_shell() -> None:
    scripts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    assert [script for script in scripts if "${{" in script] == []
    named = re.findall(r"inputs\.([\w-]+)", json.dumps(ACTION["runs"]["steps"]))
    assert set(named) == set(ACTION["inputs"])


@pytest.mark.versions
@pytest.mark.ci
def test_the_action_installs_itself(tmp_path: Path) -> None:
    step = ACTION["runs"]["steps"][0]
    variables = {name: evaluate(text, {"inputs.python": sys.executable}) for name, text in step["env"].items()}
    done = run_bash(step["run"], tmp_path, **variables, RUNNER_TEMP=str(tmp_path), GITHUB_ACTION_PATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    program = tmp_path / "compatcheck" / "bin" / "compatcheck"
    listed = subprocess.run([program, "rules", "list"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "deepspeed/zero3-params-kept-in-backward" in listed.stdout
