"""Nothing of an inspected environment, repository or image is executed; what is executed is said before."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from compatcheck.collectors.requirements import git_revision
from compatcheck.core import process
from compatcheck.services import pip_audit, pip_index
from tests.cli.run_cli import Ran, run
from tests.cli.test_fix_command import FACTS, PAIR, REQUIREMENTS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")

MODULES = ("pip", "json", "importlib", "torch", "pip_audit", "tempfile", "encodings", "sitecustomize")


class Trap:
    """A checkout with an environment in it, all of whose programs and modules leave a mark when they run."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.environment = self.checkout / "hv"
        self.tools = folder / "tools"
        self._mark = folder / "ran"
        self.said = folder / "said"

    def lay(self) -> None:
        site = self.environment / "lib/python3.11/site-packages"
        for name, version in (("torch", "2.5.1"), ("deepspeed", "0.16.4")):
            (site / f"{name}-{version}.dist-info").mkdir(parents=True)
            (site / f"{name}-{version}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        for name in ("nvidia-smi", "uv", "git", "pip-audit", "cc", "gcc", "clang"):
            self.program(self.environment / "bin", name, f'echo "{name}" >> {self._mark}\n')
            self.program(self.checkout, name, f'echo "./{name}" >> {self._mark}\n')
        for name in MODULES:
            for place in (self.checkout, site):
                (place / f"{name}.py").write_text(f"open({str(self._mark)!r}, 'a').write({name!r} + chr(10))\n")
        self.checkout.joinpath("requirements.txt").write_text(REQUIREMENTS)
        self.checkout.joinpath("facts.yaml").write_text(FACTS)

    @staticmethod
    def program(folder: Path, name: str, body: str) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(0o755)
        return str(path)

    def ran(self) -> list[str]:
        return self._mark.read_text().split() if self._mark.exists() else []


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trap:
    made = Trap(tmp_path)
    made.lay()
    monkeypatch.chdir(made.checkout)
    monkeypatch.setenv(
        "PATH", os.pathsep.join(("", ".", f"{made.environment}/bin", str(made.tools), "/usr/bin", "/bin"))
    )
    monkeypatch.setenv("VIRTUAL_ENV", str(made.environment))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nothing"))  # no uv beside this interpreter
    pip_index.pip_options.cache_clear()
    return made


def describe(ran: Ran) -> str:
    return f"{ran.code}\n{ran.out}\n{ran.err}"


def test_the_programs_of_an_active_environment_are_named_and_not_run(trap: Trap) -> None:
    ran = run("env", "-v")
    assert trap.ran() == [], describe(ran)
    assert "/nvidia-smi is not run" in " ".join(ran.out.split()), describe(ran)


@pytest.mark.parametrize(
    "words",
    [
        ("env", "--python", "hv/bin/python"),
        ("env", "--prefix", "hv"),
        ("facts", "--prefix", "hv"),
        ("fix", "--prefix", "hv", "--offline"),
        ("fix", "--prefix", "hv", "--unsafe"),
        ("check", "."),
        ("check", "requirements.txt", "--security"),
        ("diff", "HEAD:requirements.txt", "requirements.txt"),
        ("probe", "run", "zero3_release", "--backend", "cpu", "--no-store"),
        ("estimate", *PAIR[:2], "--trace"),
        ("estimate", *PAIR[:2], "--module", "nowhere.model:build"),
        ("bisect", "zero3_release", "--package", "deepspeed", "--no-store"),
        ("sweep", "zero3_release", "--package", "deepspeed", "--no-store"),
        ("confirm", PAIR[-1], "--no-store"),
    ],
)
def test_nothing_of_a_checkout_is_run(trap: Trap, monkeypatch, words) -> None:
    monkeypatch.setattr(pip_audit.importlib.util, "find_spec", lambda _: None)
    (trap.environment / "bin/python").symlink_to("/nonexistent")
    ran = run(*words)
    assert trap.ran() == [], describe(ran)


def test_an_environment_that_is_only_named_is_not_run_either(trap: Trap, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path / "tools") if (tmp_path / "tools").exists() else monkeypatch.chdir("/")
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setenv("PATH", f"{trap.environment}/bin")
    ran = run("facts", "--prefix", trap.environment)
    assert trap.ran() == [], describe(ran)


UV = """\
{ echo "pwd: $(pwd)"; echo "here: $(ls -A)"; echo "env: $VIRTUAL_ENV $PYTHONPATH"; echo "path: $PATH"; } >> SAID
echo 'deepspeed==0.16.8'
echo 'torch==2.5.1'
"""


def test_fix_runs_a_trusted_uv_away_from_the_checkout_and_says_so_before(trap: Trap, monkeypatch) -> None:
    uv = trap.program(trap.tools, "uv", UV.replace("SAID", str(trap.said)))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://me:SECRET@index.example/simple")
    Path("requirements.txt").write_text(f"--extra-index-url https://u:SECRET@more.example/simple\n{REQUIREMENTS}")
    ran = run("fix", *PAIR, "--set", "training.use_reentrant=false")
    assert trap.ran() == [], describe(ran)
    assert trap.said.exists(), describe(ran)
    said = dict(line.split(": ", 1) for line in trap.said.read_text().splitlines() if ": " in line)
    assert said["pwd"] != str(trap.checkout)
    assert said["here"].strip() == ""
    assert said["env"].strip() == ""
    assert str(trap.checkout) not in said["path"]
    told = " ".join(ran.err.split())
    assert f"fix runs {uv} to see which releases fit together; it asks https://[redacted]@index.example/simple" in told
    assert "fix asks what the files name: --extra-index-url https://[redacted]@more.example/simple" in told
    assert "SECRET" not in describe(ran)


def test_a_uv_in_the_checkout_is_named_where_there_is_no_other(trap: Trap) -> None:
    ran = run("fix", *PAIR, "--set", "training.use_reentrant=false")
    assert trap.ran() == [], describe(ran)
    assert "/uv is not run" in " ".join(ran.out.split()), describe(ran)


def test_a_uv_beside_the_interpreter_is_found(trap: Trap, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "own"))
    uv = trap.program(tmp_path / "own/bin", "uv", UV.replace("SAID", str(trap.said)))
    ran = run("fix", *PAIR, "--set", "training.use_reentrant=false")
    assert f"fix runs {uv}" in " ".join(ran.err.split())
    assert trap.said.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("probe", "run", "zero3_release", "--backend", "cpu", "--no-store"),
            "probe runs the code of the packages in ",
        ),
        (
            ("bisect", "zero3_release", "--package", "deepspeed", "--no-store"),
            "bisect runs the code of the packages in ",
        ),
        (("confirm", PAIR[-1], "--no-store"), "confirm runs the code of the packages in "),
        (("estimate", *PAIR[:2], "--trace"), "--trace runs the code of the packages in "),
    ],
)
def test_what_runs_is_said_before(trap: Trap, words, said) -> None:
    ran = run(*words, "--python", "/usr/bin/nothing")
    assert ran.err.startswith(f"{said}/usr/bin/nothing"), describe(ran)
    assert trap.ran() == []


def test_whose_function_runs_is_said_before(trap: Trap) -> None:
    ran = run("estimate", *PAIR[:2], "--module", "a:b", "--python", "/usr/bin/nothing")
    said = f"--module runs b of a, as imported in {os.getcwd()}, and runs the code of the packages in /usr/bin/nothing"
    assert " ".join(ran.err.split()).startswith(said), describe(ran)
    assert trap.ran() == []


def test_git_asks_the_repository_of_the_working_directory_from_elsewhere(trap: Trap) -> None:
    git = ("/usr/bin/git", "-c", "user.name=x", "-c", "user.email=x@x")
    if not os.path.exists(git[0]):
        pytest.skip("there is no git")
    for words in (("init", "-q"), ("add", "requirements.txt"), ("commit", "-qm", "x")):
        subprocess.run([*git, *words], check=True)
    ran = run("diff", "HEAD:requirements.txt", "requirements.txt", "--no-policy")
    assert trap.ran() == []
    assert ran.code == 0, describe(ran)


@pytest.mark.parametrize(
    "words",
    [
        ("check", "."),
        ("check", "requirements.txt", "--hook"),
        ("facts", "."),
        ("explain", PAIR[-1], "."),
        ("estimate", "facts.yaml"),
        ("oom", "run.log"),
        ("image", "image.tar", "--no-cache"),
        ("rules", "list"),
    ],
)
def test_looking_starts_nothing_and_asks_nobody(trap: Trap, monkeypatch, words) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a program or a connection")

    Path("run.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    with tarfile.open("image.tar", "w") as archive:
        archive.add("hv", "opt/hv")
    monkeypatch.setattr(process, "_run", refuse)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    ran = run(*words)
    assert ran.code in {0, 1, 3, 4}, describe(ran)
    assert trap.ran() == []


def test_a_file_outside_of_a_revision_is_not_looked_for_on_the_disk(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text("torch==2.5.1\n")
    ran = run("diff", "HEAD:../../etc/hostname", "requirements.txt", "--no-policy")
    assert (ran.code, "git has no such file" in ran.err) == (4, True), describe(ran)


@pytest.mark.parametrize("way", ["file", "directory"])
def test_no_report_is_written_through_a_link_of_a_checkout(tmp_path: Path, way: str) -> None:
    checkout = tmp_path / "checkout"
    (checkout / ".git").mkdir(parents=True)
    (checkout / "requirements.txt").write_text("torch==2.5.0\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "report.json").write_text("mine")
    place = checkout / "reports"
    if way == "directory":
        place.symlink_to("../outside")
    else:
        place.mkdir()
        (place / "report.json").symlink_to("../../outside/report.json")
    ran = run("check", checkout, "--no-policy", "--output", f"json:{place}/report.json")
    assert (ran.code, "leads there" in ran.err) == (2, True)
    assert (tmp_path / "outside" / "report.json").read_text() == "mine"
    (tmp_path / "elsewhere").symlink_to("outside")
    ran = run("check", checkout, "--no-policy", "--output", f"json:{tmp_path}/elsewhere/report.json")
    assert (tmp_path / "outside" / "report.json").read_text() != "mine"


@pytest.mark.parametrize(
    "command",
    [
        ("check", ".", "--no-policy", "--output", "json:report"),
        ("diff", "requirements.txt", "requirements.txt", "--output", "json:report"),
        ("check", ".", "--no-policy", "--output", "json:../own"),
        ("rules", "export", "--format", "constraints", "--output", "report"),
        ("estimate", ".", "--plot", "report.svg"),
        ("sweep", "tensor", "--package", "torch", "--export", "report"),
        ("probe", "run", "tensor", "--output", "report"),
        ("bisect", "tensor", "--package", "torch", "--report", "report"),
    ],
)
def test_nothing_is_written_through_a_link_inside_of_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    checkout = tmp_path / "checkout"
    (checkout / ".git").mkdir(parents=True)
    (checkout / "requirements.txt").write_text("torch==2.5.0\n")
    (checkout / ".git/config").write_text("mine")
    for name in ("report", "report.svg"):
        (checkout / name).symlink_to(".git/config")
    (tmp_path / "own").symlink_to("checkout/.git/config")
    monkeypatch.chdir(checkout)
    ran = run(*command)
    assert (ran.code, "leads there" in ran.err) == (2, True), ran.err
    assert (checkout / ".git/config").read_text() == "mine"


@pytest.mark.parametrize("way", ["include", "link", "linked directory"])
@pytest.mark.usefixtures("trap")
def test_fix_writes_nothing_outside_of_what_is_named(tmp_path: Path, way: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "requirements.txt").write_text(REQUIREMENTS)
    Path("requirements.txt").unlink()
    if way == "link":
        Path("requirements.txt").symlink_to(outside / "requirements.txt")
    elif way == "include":
        Path("requirements.txt").write_text("-r ../outside/requirements.txt\n")
    else:
        Path("linked").symlink_to(outside)
        Path("requirements.txt").write_text("-r linked/requirements.txt\n")
    words = ("fix", *PAIR, "--set", "training.use_reentrant=false", "--offline", "--apply")
    ran = run(*words)
    assert (ran.code, "outside of what was named" in ran.err) == (4, True), describe(ran)
    assert (outside / "requirements.txt").read_text() == REQUIREMENTS
    assert run(*words, outside / "requirements.txt").code == 0
    assert (outside / "requirements.txt").read_text() != REQUIREMENTS


@pytest.mark.parametrize("words", [(), (".",), ("--run", "train")], ids=" ".join)
def test_what_only_a_policy_of_the_checkout_names_elsewhere_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    checkout, outside = tmp_path / "checkout", tmp_path / "outside" / "requirements.txt"
    (checkout / ".git").mkdir(parents=True)
    outside.parent.mkdir()
    outside.write_text(REQUIREMENTS)
    (checkout / "facts.yaml").write_text(FACTS)
    policy = checkout / "compatcheck.toml"
    policy.write_text('[runs.train]\nlock = "../outside/requirements.txt"\ntraining = "facts.yaml"\n')
    monkeypatch.chdir(checkout)
    common = ("--set", "training.use_reentrant=false", "--offline", "--apply")
    ran = run("fix", *words, *common)
    assert (ran.code, "outside of what was named" in ran.err) == (4, True), describe(ran)
    assert outside.read_text() == REQUIREMENTS
    assert run("fix", *words, "--policy", policy, *common).code == 0
    assert outside.read_text() != REQUIREMENTS


def test_a_repository_that_fetches_runs_nothing(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a git before 2.45, too, which does not know ``GIT_NO_LAZY_FETCH``."""
    asked = []

    def run_older(command: tuple[str, ...], *, environ: dict[str, str], **more: Any) -> process.Completed:
        asked.append(command)
        kept = {name: value for name, value in environ.items() if name not in {"GIT_NO_LAZY_FETCH", *lifted}}
        return process.run(command, environ=kept, **more)

    lifted: set[str] = set()
    monkeypatch.setattr(git_revision, "run", run_older)
    git = ("/usr/bin/git", "-c", "user.name=x", "-c", "user.email=x@x")
    if not os.path.exists(git[0]):
        pytest.skip("there is no git")
    for words in (("init", "-q"), ("add", "requirements.txt"), ("commit", "-qm", "x")):
        subprocess.run([*git, *words], check=True)
    mark = trap.environment.parent.parent / "ran"
    settings = {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(trap.checkout),
        "remote.origin.uploadpack": f"echo uploadpack >> {mark};",
        "protocol.file.allow": "always",
        "core.fsmonitor": f"echo fsmonitor >> {mark};",
        "core.sshCommand": f"echo ssh >> {mark};",
    }
    for name, value in settings.items():
        subprocess.run([git[0], "config", name, value], check=True)
    blob = subprocess.run([git[0], "rev-parse", "HEAD:requirements.txt"], check=True, capture_output=True, text=True)
    Path(".git/objects", blob.stdout[:2], blob.stdout[2:].strip()).unlink()
    ran = run("diff", "HEAD:requirements.txt", "requirements.txt", "--no-policy")
    assert (ran.code, trap.ran()) == (4, []), describe(ran)
    for of_the_index in (":requirements.txt", ":0:requirements.txt", ":./requirements.txt"):
        ran = run("diff", of_the_index, "requirements.txt", "--no-policy")
        assert (ran.code, trap.ran()) == (4, []), describe(ran)
    assert asked
    lifted.add("GIT_ALLOW_PROTOCOL")  # the trap would spring: what holds is this variable
    run("diff", "HEAD:requirements.txt", "requirements.txt", "--no-policy")
    assert "uploadpack" in trap.ran()
