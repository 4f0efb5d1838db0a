"""What is shipped: the wheel holds what a run needs and nothing else, and says the same wherever it was built."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from compatcheck import __version__
from compatcheck.lab.evidence.last_measured import compile_last
from compatcheck.lab.evidence_pairs import compile_pairs
from compatcheck.lab.probes.probe import probe_names
from compatcheck.rules.compile import compile_directory
from compatcheck.rules.load import load_rules
from tests import ROOT
from tests.distribution.building import Run, build

DATA = {
    "compatcheck/_database.jsonl",
    "compatcheck/architectures/data/class_defaults.jsonl",
    "compatcheck/lab/_pairs.json",
    "compatcheck/lab/evidence/_measured.json",
    "compatcheck/lab/probes/catalog/configured_run.txt",
    "compatcheck/lab/probes/worker/memshim.c",
    "compatcheck/py.typed",
    "compatcheck/reporters/difference.schema.json",
    "compatcheck/reporters/report.schema.json",
    "compatcheck/reporters/templates/report.html",
    "compatcheck/locale/zh_CN/messages.po",
    "compatcheck/locale/zh_CN/rules.po",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "compatcheck/frameworks").rglob("*.txt")),
    *(str(path.relative_to(ROOT)) for path in (ROOT / "compatcheck/shell").glob("*.txt")),
    *(str(path.relative_to(ROOT)) for path in (ROOT / "compatcheck").rglob("data/*.*")),
}


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tracked() -> set[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).exists()}


TOP = {
    ".ci",
    ".dockerignore",
    ".github",
    ".gitignore",
    ".pre-commit-hooks.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "README.md",
    "README.zh-CN.md",
    "action.yml",
    "benchmarks",
    "build_zipapp.py",
    "compatcheck",
    "constraints.txt",
    "docs",
    "fixtures",
    "hatch_build.py",
    "noxfile.py",
    "pyproject.toml",
    "rules",
    "templates",
    "tests",
    "zipapp-requirements.txt",
}


def test_nothing_else_lies_at_the_top() -> None:
    """What was tried out in a checkout does not stay in it, and every name is one on every system."""
    names = tracked()
    assert {name.partition("/")[0] for name in names} <= TOP
    assert [name for name in names if set(name) & set(':*?"<>|\\\n')] == []


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def test_wheel_holds_the_package_its_data_and_nothing_else(wheel: Path) -> None:
    names = {name for name in members(wheel) if ".dist-info/" not in name}
    assert names >= DATA
    assert {name for name in names - DATA if not name.endswith((".py", "/README.md"))} == set()
    assert {name.partition("/")[0] for name in names} == {"compatcheck"}
    kept = {name for name in tracked() if name.startswith("compatcheck/")}
    assert names - {"compatcheck/_database.jsonl", "compatcheck/lab/_pairs.json"} >= kept


def test_wheel_is_for_every_platform_and_names_its_licence(wheel: Path) -> None:
    assert wheel.name == f"compatcheck-{__version__}-py3-none-any.whl"
    info = f"compatcheck-{__version__}.dist-info"
    files = members(wheel)
    assert f"{info}/licenses/LICENSE" in files
    assert files[f"{info}/entry_points.txt"].decode().split() == [
        "[console_scripts]",
        "compatcheck",
        "=",
        "compatcheck.cli.__main__:main",
        "[pytest11]",
        "compatcheck",
        "=",
        "compatcheck.integrations.pytest_plugin",
    ]
    metadata = files[f"{info}/METADATA"].decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.10" in metadata


def test_core_dependencies_are_few(wheel: Path) -> None:
    metadata = members(wheel)[f"compatcheck-{__version__}.dist-info/METADATA"].decode()
    required = [line.split(": ")[1] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    core = {line.split(">")[0].lower() for line in required if "extra ==" not in line}
    assert core == {"click", "packaging", "pyyaml", "tomli"}


def test_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 3 * 2**20


def test_database_of_the_wheel_is_that_of_the_checkout(wheel: Path) -> None:
    assert members(wheel)["compatcheck/_database.jsonl"] == compile_directory(ROOT / "rules")
    assert json.loads(members(wheel)["compatcheck/lab/_pairs.json"]) == compile_pairs(load_rules(ROOT / "rules"), ROOT)
    measured = json.loads(members(wheel)["compatcheck/lab/evidence/_measured.json"])
    assert measured == compile_last(probe_names(), str(ROOT / "fixtures" / "measurements"))


def test_builds_are_the_same_bytes(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    assert build("wheel", ROOT, tmp_path).read_bytes() == wheel.read_bytes()
    assert build("sdist", ROOT, tmp_path).read_bytes() == sdist.read_bytes()


def test_wheel_from_the_source_distribution_is_the_same(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **safely)
    again = build("wheel", tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "dist")
    assert members(again) == members(wheel)
    wanted = ("compatcheck/", "rules/", "tests/", "fixtures/", "benchmarks/")
    assert {name for name in tracked() if name.startswith(wanted)} <= names
    assert names >= {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt", "noxfile.py"}


def test_model_and_device_are_known_to_the_wheel(run_unpacked: Run) -> None:
    done = run_unpacked("facts", "--model", "llama-3-70b", "--gpu", "8xH100-80GB", "--format", "json")
    assert done.returncode == 0, done.stderr
    facts = {fact["name"]: fact["value"] for fact in json.loads(done.stdout)["subjects"][0]["facts"]}
    assert facts["hardware.gpus_per_node"] == 8
    assert facts["hardware.compute_capability"] == 9.0
    assert facts["model.parameters_in_blocks"] == 68_452_352_000


def test_incident_is_found_by_the_wheel(run_unpacked: Run) -> None:
    case = ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b"
    done = run_unpacked("check", "-q", str(case))
    assert done.returncode == 1, done.stderr
    assert "CRITICAL deepspeed/zero3-params-kept-in-backward 127.5 GiB per rank" in done.stdout


def test_rules_are_shown_by_the_wheel(run_unpacked: Run, unpacked: Path) -> None:
    done = run_unpacked("rules", "show", "deepspeed/zero3-params-kept-in-backward")
    assert done.returncode == 0, done.stderr
    assert "ZeRO-3 keeps gathered parameters" in done.stdout
    assert not (unpacked / ".cache").exists()


def test_rules_of_the_checkout_are_not_looked_for_by_the_wheel(run_unpacked: Run) -> None:
    done = run_unpacked("rules", "lint")
    assert done.returncode == 2
    assert "name files or directories of rules" in done.stderr


def test_every_module_of_the_wheel_can_be_imported(unpacked: Path, tmp_path: Path) -> None:
    names = [
        ".".join(path.relative_to(unpacked).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((unpacked / "compatcheck").rglob("*.py"))
        if path.name != "__main__.py"
        and path.parent.name not in {"worker", "program", "integrations"}  # run beside what need not be here
    ]
    script = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *names],
        cwd=tmp_path,
        env={"PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
