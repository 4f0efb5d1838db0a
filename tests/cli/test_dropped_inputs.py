"""A file whose name says what it is, is read or said to be not read; a gate can fail for it, and what is named always does."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.run_cli import run

PIN = "deepspeed==0.16.4\n"
PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch==2.9.0"]\n'
HTML = "<!DOCTYPE html>\n<html><head><title>x</title></head>\n<body>\n<p>hello</p>\n</body></html>\n"
LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 1234\n"
MERGE = f"<<<<<<< a\n{PIN}=======\ndeepspeed==0.16.3\n>>>>>>> b\n"
SETUP_PY = 'from setuptools import setup\nsetup(name="x", install_requires=["deepspeed==0.16.4"])\n'
SETUP_CFG = "[metadata]\nname = x\n[options]\ninstall_requires =\n    deepspeed==0.16.4\n"
NOTEBOOK = json.dumps(
    {"cells": [{"cell_type": "code", "source": ["!deepspeed train.py --deepspeed ds.json"]}], "metadata": {"a": "PAD"}}
)
QUOTE = '#!/bin/bash\necho "hi\ndeepspeed train.py --deepspeed ds.json\n'


def holding(content: str | bytes) -> Callable[[Path], None]:
    """Return what writes a file."""

    def write(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def pipe(path: Path) -> None:
    os.mkfifo(path)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def link_to_directory(path: Path) -> None:
    (path.parent / "folder").mkdir()
    path.symlink_to("folder")


def no_memory(path: Path) -> None:
    path.symlink_to("/proc/1/mem")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def elsewhere(path: Path) -> None:
    (path.parent.parent / "other").mkdir()
    (path.parent.parent / "other/requirements.txt").write_text(PIN)
    path.symlink_to("../other")


UNREAD: dict[str, tuple[str, Callable[[Path], None]]] = {
    "garbage": ("requirements.txt", holding(f"{PIN}@@@garbage\n")),
    "all garbage": ("requirements.txt", holding("@@@\n!!!\n")),
    "merge": ("requirements.txt", holding(MERGE)),
    "nul": ("requirements.txt", holding("".join(f"p{i}==1\n" for i in range(101)) + "a\0b\n")),
    "utf-16": ("requirements.txt", holding(PIN.encode("utf-16-le"))),
    "utf-32": ("requirements-gpu.txt", holding(PIN.encode("utf-32-be"))),
    "html": ("requirements.txt", holding(HTML)),
    "prose": ("requirements/base.txt", holding("The system shall be fast.\nIt shall be cheap.\n")),
    "constraints": ("constraints.txt", holding("one two three\nfour five six\n")),
    "command": ("Dockerfile", holding("FROM ubuntu\nRUN pip install deepspeed==$(cat v)\n")),
    "list elsewhere": ("Dockerfile", holding("FROM ubuntu\nRUN pip install -r /r.txt\n")),
    "variable": ("Dockerfile", holding("FROM ubuntu\nRUN pip install $PKGS\n")),
    "no image": ("Dockerfile.gpu", holding("not a Dockerfile\n")),
    "quote": ("train.sh", holding(QUOTE)),
    "empty": ("environment.yml", holding("")),
    "conda, a merge": ("conda.yml", holding("dependencies:\n<<<<<<< a\n- deepspeed==0.16.4\n=======\n>>>>>>> b\n")),
    "conda, a template": ("conda_env.yaml", holding("{% for p in packages %}\n- {{ p }}\n{% endfor %}\n")),
    "a list of pip, no text": ("pip-list.txt", holding(gzip.compress(PIN.encode()))),
    "a list of pip, a page": ("pip_list.txt", holding(HTML)),
    "a configuration by git-lfs": ("train.yaml", holding(LFS)),
    "a page as a configuration": ("accelerate.yaml", holding(HTML)),
    "a number as a configuration": ("ds_config.json", holding("1\n")),
    "not YAML": ("environment.yml", holding("{[")),
    "broken": ("uv.lock", holding("garbage")),
    "cut off": ("sbom.json", holding('{"bomFormat": "CycloneDX", "components": [')),
    "broken SBOM": ("app.cdx.json", holding("{")),
    "broken lock": ("conda-lock.yml", holding("version: 1\n")),
    "a list of names": ("environment.yml", holding("dependencies: [python=3.11, pip: [deepspeed]]\n")),
    "SBOM in XML": ("bom.xml", holding("<bom")),
    "CycloneDX in XML": ("bom.xml", holding('<bom xmlns="http://cyclonedx.org/schema/bom/1.5"><components/></bom>')),
    "SPDX in YAML": ("sbom.spdx.yml", holding(": x\n")),
    "SPDX in tags": ("sbom.spdx", holding("SPDXVersion: SPDX-2.3\n")),
    "SPDX in RDF": ("spdx.rdf", holding("<rdf/>")),
    "lock of requirements": ("requirements-dev.lock", holding("@@@\n")),
    "no suffix": ("requirements", holding("@@@\n")),
    "folder of constraints": ("constraints/gpu.txt", holding("one two three\n")),
    "PBS": ("train.pbs", holding(QUOTE)),
    "zsh": ("train.zsh", holding(QUOTE)),
    "large": ("train.sh", holding("deepspeed train.py\n" + "\n" * (3 << 20))),
    "large notebook": ("train.ipynb", holding(NOTEBOOK.replace("PAD", "x" * (3 << 20)))),
    "notebook that is no text": ("train.ipynb", holding("\0" + NOTEBOOK)),
    "notebook of wide signs": ("train.ipynb", holding(NOTEBOOK.encode("utf-16-le"))),
    "setup.cfg that is no text": ("setup.cfg", holding(gzip.compress(SETUP_CFG.encode()))),
    "setup.py that is no text": ("setup.py", holding(gzip.compress(SETUP_PY.encode()))),
    "late setup.cfg": ("setup.cfg", holding("#" * (2 << 20) + "\n" + SETUP_CFG)),
    "late setup.py": ("setup.py", holding("#" * (2 << 20) + "\n" + SETUP_PY)),
    "loud": ("TRAIN.SH", holding(QUOTE)),
    "dangling": ("requirements.txt", dangling),
    "device": ("requirements.txt", device),
    "directory": ("requirements.txt", Path.mkdir),
    "link": ("linked", elsewhere),
} | {
    f"pipe {name}": (name, pipe)
    for name in (
        *("requirements.txt", "config.json", "ds.json", "train.sh", "uv.lock", "Dockerfile", "environment.yml"),
        *("poetry.lock", "pyproject.toml", "compatcheck.toml", "setup.py"),
    )
}
UNREAD |= {
    f"{make.__name__} {name}": (name, make)
    for name in (
        *(
            "requirements.txt",
            "environment.yml",
            "Dockerfile",
            "Containerfile",
            "train.Dockerfile",
            "Pipfile",
            "train.sh",
        ),
        *("train.slurm", "setup.cfg", "setup.py", "spec-list.txt", "conda-lock.yml", "uv.lock", "poetry.lock"),
        *("conda-linux-64.lock", "sbom.json", "bom.xml", "compatcheck.toml"),
    )
    for make in (pipe, dangling, loop, device, no_memory, link_to_directory, Path.mkdir)
} | {f"{make.__name__} train.ipynb": ("train.ipynb", make) for make in (pipe, dangling, loop, device, no_memory)}
UNREAD |= {
    "policy that is no TOML": ("sub/compatcheck.toml", holding("{{")),
    "policy with an unknown key": ("sub/compatcheck.toml", holding("nope = 1\n")),
    "policy in a project's file": ("sub/pyproject.toml", holding(f"{PROJECT}[tool.compatcheck]\nnope = 1\n")),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "pyproject.toml").write_text(PROJECT)
    return made


@pytest.mark.parametrize("case", UNREAD)
def test_what_is_found_and_not_read_is_said_and_a_gate_can_fail_for_it(directory: Path, case: str) -> None:
    name, make = UNREAD[case]
    (directory / name).unlink(missing_ok=True)
    (directory / "facts.yaml").write_text('compatcheck: 1\npackages: {torch: "2.9.0"}\n')
    make(directory / name)
    ran = run("check", directory, "--no-policy", "--fail-on", "never", "--format", "json")
    report = json.loads(ran.out)
    entries = [entry for entry in report["skipped"] if name in entry["source"]]
    assert entries, report["skipped"]
    assert report["summary"]["not_checked"] == len(report["skipped"])
    assert ran.code == 0
    for option in ("--fail-unread", "--strict"):
        failed = run("check", directory, "--no-policy", "--fail-on", "never", option, "--format", "json")
        assert failed.code == 4
    assert all(entry["named"] for entry in json.loads(failed.out)["skipped"])


@pytest.mark.parametrize(("name", "content"), [("setup.py", SETUP_PY), ("setup.cfg", SETUP_CFG)])
def test_what_stands_behind_a_long_comment_is_read(directory: Path, name: str, content: str) -> None:
    (directory / name).write_text(f"{'# long' * 20_000}\n{content}")
    report = json.loads(run("check", directory, "--no-policy", "--fail-on", "never", "--format", "json").out)
    assert "deepspeed" in {package["name"] for one in report["subjects"] for package in one["environment"]["packages"]}


@pytest.mark.parametrize("name", ["a\nb/requirements.txt", "a\rb/requirements.txt", "\u202ex/uv.d/requirements.txt"])
def test_an_odd_name_hides_nothing(directory: Path, name: str) -> None:
    (directory / name).parent.mkdir(parents=True)
    (directory / name).write_text(PIN)
    ran = run("check", directory, "--no-policy", "--format", "json")
    packages = [
        package for subject in json.loads(ran.out)["subjects"] for package in subject["environment"]["packages"]
    ]
    assert {"deepspeed", "torch"} == {package["name"] for package in packages}
    for form in ("text", "github", "markdown", "junit", "sarif"):
        shown = run("check", directory, "--no-policy", "--format", form).out
        assert not {"\r", "\u202e"} & set(shown)
        assert not any(line.startswith("b/") for line in shown.split("\n") if form == "github")


@pytest.mark.parametrize("name", ["requirements", "Dockerfile.d", "part.json", "reqs", "env"])
def test_a_folder_of_a_folder_s_name_is_not_said(directory: Path, name: str) -> None:
    (directory / name).mkdir()
    assert json.loads(run("check", directory, "--no-policy", "--format", "json").out)["skipped"] == []


def test_a_policy_elsewhere_that_can_be_read_is_not_said(directory: Path) -> None:
    (directory / "sub").mkdir()
    (directory / "sub/compatcheck.toml").write_text('fail-on = "high"\n')
    assert json.loads(run("check", directory, "--no-policy", "--format", "json").out)["skipped"] == []


def test_a_link_that_stays_inside_is_not_said(directory: Path) -> None:
    (directory / "a").mkdir()
    (directory / "b").symlink_to("a")
    (directory / "a/up").symlink_to("..")
    assert json.loads(run("check", directory, "--no-policy", "--format", "json").out)["skipped"] == []


def test_a_script_of_the_build_context_is_read(directory: Path) -> None:
    (directory / "install.sh").write_text(f"pip install {PIN}")
    (directory / "Dockerfile").write_text("FROM ubuntu\nCOPY install.sh .\nRUN ./install.sh\n")
    report = json.loads(run("check", directory, "--no-policy", "--format", "json").out)
    packages = [package for subject in report["subjects"] for package in subject["environment"]["packages"]]
    assert "deepspeed" in {package["name"] for package in packages}


def test_a_script_that_is_not_there_is_said_and_stops_no_gate(directory: Path) -> None:
    (directory / "Dockerfile").write_text("FROM ubuntu\nRUN ./install.sh\n")
    ran = run("check", directory, "--no-policy", "--fail-unread", "--fail-on", "never", "--format", "json")
    assert "starts ./install.sh" in json.loads(ran.out)["skipped"][0]["reason"]
    assert ran.code == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("requirements.txt", ""),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=f())\n"),
        ("a/pyproject.toml", "[tool.ruff]\n"),
        ("sbom.json", '{"bomFormat": "CycloneDX", "specVersion": "1.5", "components": []}'),
    ],
)
def test_what_holds_nothing_stops_no_gate(directory: Path, name: str, content: str) -> None:
    holding(content)(directory / name)
    ran = run("check", directory, "--no-policy", "--fail-unread", "--fail-on", "never", "--format", "json")
    assert ran.code == 0, ran.out


@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit", "markdown", "github"])
def test_what_is_not_read_stands_in_every_format(directory: Path, form: str) -> None:
    (directory / "uv.lock").write_text("garbage")
    shown = run("check", directory, "--no-policy", "--format", form).out
    assert "uv.lock" in shown
    assert "not checked" in shown or '"not_checked": 1' in shown or '"notChecked": 1' in shown


def test_a_policy_turns_the_gate_on(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    (directory / "uv.lock").write_text("garbage")
    (directory / "compatcheck.toml").write_text("fail-unread = true\nfail-on = 'never'\n")
    assert run("check", ".").code == 4
    assert run("check", ".", "--no-fail-unread").code == 0


@pytest.mark.parametrize("make", [pipe, dangling, Path.mkdir], ids=["pipe", "dangling", "directory"])
def test_a_policy_that_cannot_be_read_is_not_left_out(
    directory: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(directory / "compatcheck.toml")
    monkeypatch.chdir(directory)
    ran = run("check", "pyproject.toml")
    assert (ran.code, "compatcheck.toml" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff[tool.compatcheck]\nfail-on = 'nonsense'\n",
        "['tool'.compatcheck]\nfail-on = 'nonsense'\n",
        '[tool."compatcheck"]\nfail-on = "nonsense"\n',
        "tool = {compatcheck = {fail-on = 'nonsense'}}\n",
        "tool.compatcheck.fail-on = 'nonsense'\n",
        "\ufffe",
    ],
)
def test_a_policy_is_found_however_it_is_written(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = text.encode("utf-16") if text == "\ufffe" else text.encode()
    (directory / "pyproject.toml").write_bytes(content)
    monkeypatch.chdir(directory)
    assert run("check", ".").code == 2


def test_a_directory_is_no_environment_because_it_says_so(directory: Path) -> None:
    (directory / "a").mkdir()
    (directory / "a/pyvenv.cfg").touch()
    (directory / "a/requirements.txt").write_text(PIN)
    assert "deepspeed" in run("check", directory, "--no-policy", "--format", "json").out


def test_the_words_of_a_command_that_is_not_read_are_not_said(directory: Path) -> None:
    (directory / "Dockerfile").write_text(
        "FROM ubuntu\nRUN curl -u me:SECRETWORD https://h/x.sh | bash\nRUN bash <(curl -H 'X-Key: SECRETWORD' h)\n"
    )
    shown = run("check", directory, "--no-policy", "-v").out
    assert ("$(curl …)" in shown, "<(curl …)" in shown, "SECRETWORD" in shown) == (True, True, False)


def test_a_named_dockerfile_that_was_not_read_whole_fails(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM ubuntu\nRUN pip install torch==2.9.0 deepspeed==$(cat v)\n")
    assert run("check", path, "--no-policy", "--fail-on", "never").code == 4


@pytest.mark.parametrize("line", ["<<<<<<< a", "{% if gpu %}", "RUN\u00a0pip install deepspeed==0.16.4", "INSTALL a"])
def test_a_line_of_a_dockerfile_that_is_no_instruction_is_said(tmp_path: Path, line: str) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM ubuntu\nRUN pip install torch==2.9.0\n\n{line}\n")
    named, walked = (run("check", one, "--no-policy", "--fail-on", "never") for one in (path, tmp_path))
    assert (named.code, walked.code) == (4, 0)
    assert "Dockerfile:4: is no instruction of a Dockerfile" in " ".join(named.out.split()), named.out
    assert "1 not checked" in walked.out
    assert ("merge conflict" in named.out) == line.startswith("<")


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("deepspeed-0.16.4.dist-info", 4, "it has no METADATA"),
        ("deepspeed.egg-info", 4, "states no name or no version"),
        ("colorama-1.0.dist-info", 0, "it has no METADATA"),
    ],
)
def test_a_package_that_decides_something_and_cannot_be_read_fails(
    tmp_path: Path, name: str, code: int, reason: str
) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "torch-2.5.0.dist-info").mkdir(parents=True)
    (site / "torch-2.5.0.dist-info/METADATA").write_text("Name: torch\nVersion: 2.5.0\n")
    (site / name).mkdir()
    ran = run("env", "--prefix", tmp_path, "--fail-on", "never")
    assert (ran.code, reason in " ".join(ran.out.split())) == (code, True)


def test_an_image_whose_package_lies_outside_of_it_fails(tmp_path: Path) -> None:
    site = tmp_path / "root/opt/venv/lib/python3.11/site-packages"
    (site / "torch-2.5.0.dist-info").mkdir(parents=True)
    (site / "torch-2.5.0.dist-info/METADATA").write_text("Name: torch\nVersion: 2.5.0\n")
    (tmp_path / "root/opt/venv/pyvenv.cfg").write_text("version = 3.11.0\n")
    (site / "deepspeed-0.16.4.dist-info").symlink_to("../../../../../../../../etc")
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(tmp_path / "root", ".")
    ran = run("image", tmp_path / "image.tar", "--no-policy", "--fail-on", "never", "--no-cache")
    assert ran.code == 4, ran.out


def test_a_file_that_a_hook_names_and_is_not_there_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    ran = run("check", "--hook", "nope.txt", "--no-policy")
    assert (ran.code, "not read nope.txt: no such file" in " ".join(ran.out.split())) == (0, True)
    assert run("check", "--hook", "nope.txt", "--no-policy", "--fail-unread").code == 4


@pytest.mark.parametrize("option", ["--ignore", "--select"])
def test_a_glob_that_no_rule_matches_is_an_error(directory: Path, option: str) -> None:
    ran = run("check", directory, "--no-policy", option, "deepsped/*")
    assert (ran.code, "deepspeed/*" in ran.err) == (2, True)


def test_a_waiver_that_no_package_ends_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    waiver = '[[waivers]]\nrule = "torch/*"\nreason = "x"\nuntil = "{}>=1"\n'
    for package, said in (("notapkg", True), ("deepspeed", False)):
        (directory / "compatcheck.toml").write_text(waiver.format(package))
        assert ("no package that is known" in " ".join(run("check", ".").out.split())) is said


def test_a_pipe_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = run("image", tmp_path / "pipe")
    assert (ran.code, "pipe" in ran.err) == (4, True)


def test_a_named_script_with_a_line_that_is_no_bash_fails(directory: Path) -> None:
    (directory / "requirements.txt").write_text("torch==2.6.0\n")
    (directory / "go.sh").write_text("ROOT=<PATH>\ntorchrun --nproc_per_node 8 train.py --deepspeed ds.json\n")
    assert run("check", directory / "requirements.txt", directory / "go.sh").code == 4
    (directory / "ds.json").write_text("{}")
    assert run("check", directory / "requirements.txt", directory / "go.sh").code == 4
    (directory / "go.sh").write_text("source /etc/profile.d/modules.sh\nbash train.sh\nvllm serve Qwen/Qwen2.5-7B\n")
    assert run("check", directory / "requirements.txt", directory / "go.sh").code == 0


@pytest.mark.parametrize("command", ["uv sync --frozen", "poetry install", "pip install -e ."])
def test_what_a_named_dockerfile_leaves_to_another_file_is_said(directory: Path, command: str) -> None:
    (directory / "Dockerfile").write_text(f"FROM python:3.11\nRUN pip install torch==2.6.0\nRUN {command}\n")
    ran = run("check", directory / "Dockerfile")
    assert ran.code == 0
    assert "Dockerfile:3" in ran.out
    assert "too" in ran.out
    assert "1 not checked" in ran.out
    assert "1 not checked" not in run("check", directory).out


def test_a_recipe_that_installs_is_not_passed_over(directory: Path) -> None:
    (directory / "Dockerfile").write_text(
        "FROM python:3.11\nRUN pip install torch==2.6.0\nCOPY . .\nRUN make install\n"
    )
    assert run("check", directory / "Dockerfile").code == 0
    (directory / "Makefile").write_text("install:\n\tcc -o x x.c\n")
    assert run("check", directory / "Dockerfile").code == 0
    (directory / "Makefile").write_text("install:\n\tpip install deepspeed==0.16.4\n")
    assert run("check", directory / "Dockerfile").code == 4


def test_a_requirement_behind_an_option_is_said(directory: Path) -> None:
    (directory / "requirements.txt").write_text("torch==2.6.0\n--pre deepspeed==0.16.4\n")
    ran = run("check", directory / "requirements.txt")
    assert (ran.code, "'deepspeed==0.16.4' stands behind an option" in " ".join(ran.out.split())) == (4, True)
    (directory / "requirements.txt").write_text(
        "--pre --index-url https://download.pytorch.org/whl/cu124\ntorch==2.6.0\n"
    )
    assert run("check", directory / "requirements.txt").code == 0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('[{"zero_optimization": {"stage": 3}}]', id="a list"),
        pytest.param('{"zero_optimisation": {"stage": 3}, "bf16": {"enabled": true}}', id="misspelt"),
    ],
)
@pytest.mark.parametrize("name", ["ds_config.json", "deepspeed.json", "accelerate_config.yaml", "axolotl.yml"])
def test_what_is_named_as_a_library_s_configuration_and_is_none_is_said(directory: Path, name: str, text: str) -> None:
    (directory / "requirements.txt").write_text("torch==2.6.0\n")
    (directory / name).write_text(text)
    ran = run("check", directory)
    assert f"{name}: lists no packages and is no configuration" in " ".join(ran.out.split())
    assert "1 not checked" in ran.out


def test_a_script_that_only_merges_checkpoints_is_a_run(directory: Path) -> None:
    called = "convert_zero_checkpoint_to_fp32_state_dict"
    (directory / "requirements.txt").write_text("torch==2.4.0\ndeepspeed==0.15.4\n")
    script = directory / "save.py"
    script.write_text(
        f"from deepspeed.utils.zero_to_fp32 import {called}\n{called}('out/checkpoint-500', 'out/fp32')\n"
    )
    assert "deepspeed/zero-to-fp32-copies-twice" in run("check", directory).out
    assert run("check", directory / "requirements.txt", script).code == 0
    script.write_text(
        f"def {called}(folder):\n    return {called}(folder)\n"
    )  # the module that a checkpoint holds a copy of
    assert "deepspeed/zero-to-fp32-copies-twice" not in run("check", directory).out


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_setup_cfg_states_the_same_whatever_ends_its_lines(directory: Path, end: str) -> None:
    text = "[options]\ninstall_requires =\n  torch==2.6.0\n  deepspeed==0.16.4\n"
    (directory / "setup.cfg").write_bytes(text.replace("\n", end).encode())
    ran = run("check", directory / "setup.cfg")
    assert (ran.code, "deepspeed/zero3-params-kept-in-backward" in ran.out) == (0, True)
