"""The one file that needs nothing but Python: it says what the package says, and what it is without it names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import build_zipapp
from compatcheck import __version__
from tests import ROOT
from tests.cli import run_cli

CASE = str(ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b")
SECONDS = re.compile(r'[\d.]+ s$|(?<="seconds": )[\d.]+', re.MULTILINE)
MODULES = ("click", "packaging", "yaml", "tomli")


@pytest.fixture(scope="session")
def archive(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive, with the dependencies of this environment instead of those that are pinned."""
    target = tmp_path_factory.mktemp("archive") / "compatcheck.pyz"
    dependencies = build_zipapp.read_modules(Path(yaml.__file__).parents[1], MODULES)
    build_zipapp.write_archive({**dependencies, **build_zipapp.read_wheel(wheel)}, target)
    return target


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    hidden = {"FORCE_COLOR", "COLUMNS", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key not in hidden},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", CASE),
        ("check", CASE, "--format", "json"),
        ("estimate", CASE, "--suggest"),
        ("facts", CASE, "--model", "llama-3-70b"),
        ("facts", "--names"),
        ("explain", "deepspeed/zero3-params-kept-in-backward", CASE),
        ("diff", "before.txt", "after.txt", "--training", "train.yaml", "--gpu", "8xH100-80GB"),
        ("check", "run.sh", "after.txt"),
        ("fix", "after.txt", "--training", "train.yaml", "--gpu", "8xH100-80GB", "--offline"),
        ("oom", "train.log", "train.yaml"),
        ("rules", "list"),
        ("help", "options"),
    ],
    ids=" ".join,
)
def test_it_says_what_the_package_says(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    shutil.copytree(ROOT / "fixtures" / "upgrade", tmp_path, dirs_exist_ok=True)
    (tmp_path / "run.sh").write_text("sudo -E env NCCL_DEBUG=INFO torchrun --nproc_per_node 8 sft.py --bf16 true\n")
    (tmp_path / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 31.31 GiB.\n")
    alone = run(sys.executable, "-I", "-S", archive, *arguments, folder=tmp_path)  # -S: no package of this environment
    monkeypatch.chdir(tmp_path)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    whole = run_cli.run(*arguments)
    assert (alone.returncode, alone.stderr) == (whole.code, whole.err)
    assert SECONDS.sub("", alone.stdout) == SECONDS.sub("", whole.out)


@pytest.mark.parametrize(
    "written", ["./compatcheck.pyz", "../x/compatcheck.pyz", "{folder}//compatcheck.pyz", "link.pyz"]
)
def test_it_is_found_however_its_path_is_written(archive: Path, tmp_path: Path, written: str) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    shutil.copy(archive, folder / "compatcheck.pyz")
    (folder / "link.pyz").symlink_to("compatcheck.pyz")
    (folder / "requirements.txt").write_text("deepspeed==0.16.4\n", encoding="utf-8")
    found = run(sys.executable, "-I", "-S", written.format(folder=folder), "check", "requirements.txt", folder=folder)
    assert (found.returncode, found.stderr) == (0, "")


def test_it_names_what_it_is_without(archive: Path, tmp_path: Path) -> None:
    done = run(
        sys.executable, "-I", "-S", archive, "confirm", "deepspeed/zero3-params-kept-in-backward", folder=tmp_path
    )
    assert (done.returncode, "needs the measuring laboratory" in done.stderr) == (2, True)
    found = json.loads(run(sys.executable, "-I", "-S", archive, "doctor", "--format", "json", folder=tmp_path).stdout)
    assert (found["kind"], found["place"], found["version"]) == ("archive", str(archive), __version__)
    missing = {part["name"] for part in found["parts"] if not part["found"]}
    assert missing >= {"laboratory", "libyaml"}
    assert not {part["name"] for part in found["parts"]} & {"pip", "cc", "gcc", "clang", "C compiler"}
    assert "docs/ci.md of the sources" in run(sys.executable, archive, "check", "--help", folder=tmp_path).stdout


def test_it_is_small_and_holds_no_compiled_code(archive: Path) -> None:
    assert archive.stat().st_size < 3 * 2**20
    told = re.search(r"`compatcheck.pyz` \(([\d.]+) MiB\)", (ROOT / "docs" / "installation.md").read_text())
    assert told is not None
    assert float(told[1]) == pytest.approx(archive.stat().st_size / 2**20, abs=0.15)
    assert archive.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(archive) as held:
        names = held.namelist()
    assert {Path(name).suffix for name in names} <= {
        ".py",
        ".txt",
        ".json",
        ".jsonl",
        ".typed",
        ".md",
        ".html",
        ".po",
        "",
    }
    assert [name for name in names if name.startswith("compatcheck/lab")] == []
    assert "compatcheck/_database.jsonl" in names
    assert [name for name in names if name.endswith("LICENSE")]


def test_the_same_members_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    build_zipapp.write_archive({"x.py": b"1", "y.py": b"2"}, paths[0])
    build_zipapp.write_archive({"y.py": b"2", "x.py": b"1"}, paths[1])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    build_zipapp.write_archive({"x.py": b"1", "y.py": b"2"}, paths[2])
    assert paths[0].read_bytes() == paths[1].read_bytes() != paths[2].read_bytes()
    with zipfile.ZipFile(paths[2]) as held:
        assert {member.date_time[0] for member in held.infolist()} == {2026}


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_it_runs_on_other_pythons(archive: Path, tmp_path: Path, version: str) -> None:
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = str(kept[0]) if kept else shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"no Python {version}")
    if version == "3.10" and not any(name.startswith("tomli") for name in zipfile.ZipFile(archive).namelist()):
        pytest.skip("tomli, which Python 3.10 needs, is not installed here")
    done = run(found, "-I", "-S", archive, "check", "-q", CASE, folder=tmp_path)
    if version == "3.9":
        assert done.returncode == 2
        assert done.stderr.startswith("error: compatcheck needs Python 3.10 or newer, and this is 3.9")
    else:
        assert (done.returncode, "127.5 GiB per rank" in done.stdout) == (1, True), done.stderr


def test_dependencies_are_pinned() -> None:
    lines = [line for line in build_zipapp.REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert [re.fullmatch(r"([\w.-]+)==[\d.]+", line)[1] for line in lines] == ["click", "packaging", "PyYAML", "tomli"]  # type: ignore[index]


def test_the_image_is_built_by_what_builds_a_release() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "release").read_text(encoding="utf-8")
    assert re.findall(r"pip install --quiet (.*)", text) == re.findall(r"pip install --quiet ('hatchling.*)", script)
    assert "build_zipapp.py /dist/*.whl /dist/compatcheck.pyz" in text
