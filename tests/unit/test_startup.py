"""What a bare `env` may import: the budget of start-up is spent on imports (see the design's hot path)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compatcheck.lab.evidence.index import index_path
from compatcheck.lab.evidence.store import EvidenceStore
from compatcheck.lab.measurement import from_json
from compatcheck.rules.compile import compile_directory
from tests import ROOT

REPOSITORY = ROOT

COSTLY = {
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "decimal",
    "email",
    "hashlib",
    "http",
    "importlib.metadata",
    "importlib.resources",
    "jinja2",
    "logging",
    "markdown_it",
    "packaging.requirements",
    "packaging.specifiers",
    "pathlib",
    "pygments",
    "pynvml",
    "rich",
    "shutil",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "textwrap",
    "tomllib",
    "unittest",
    "urllib.request",
    "yaml",
    "zipfile",
}
"""Modules that cost about a millisecond or more, or reach for the network, and that a bare `env` has no use for."""
CONFIGURED = {
    *("compatcheck.frameworks.keys", "compatcheck.resolution.auto", "compatcheck.resolution.defaults"),
    *("compatcheck.resolution.gaps", "compatcheck.resolution.spelling"),
}
"""What only configurations and settings need."""

PROGRAM = """
import sys

before = set(sys.modules)

def refuse(event, arguments):
    if event.startswith("socket.") or event in {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork"}:
        raise RuntimeError(event)

sys.addaudithook(refuse)
import compatcheck.rules.locate as locate
from compatcheck.cli.__main__ import main

locate.COMPILED = sys.argv[1]
code = None
try:
    main(sys.argv[2:])
except SystemExit as leaving:
    code = leaving.code
print("exit", code, file=sys.stderr)
print("loaded", *sorted(set(sys.modules) - before), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("database") / "_database.jsonl"
    path.write_bytes(compile_directory(REPOSITORY / "rules"))
    return path


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    packages = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    for name, version in {
        "torch": "2.6.0",
        "deepspeed": "0.16.4",
        "transformers": "4.48.3",
        "accelerate": "1.4.0",
    }.items():
        folder = packages / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    return tmp_path / "env"


def run_env(database: Path, *arguments: str, name: str = "env", **variables: str) -> tuple[int, set[str]]:
    """Run a command on a machine without devices and return its exit code and the modules it loaded."""
    environ = {
        "PATH": os.path.join(database.parent, "nothing-here"),
        "PYTHONPATH": str(REPOSITORY),
        "COMPATCHECK_EVIDENCE": os.path.join(database.parent, "no-evidence.sqlite3"),
        "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
        **variables,
    }
    command = [sys.executable, "-c", PROGRAM, str(database), name, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    lines = done.stderr.splitlines()
    code = next(line for line in lines if line.startswith("exit "))
    loaded = next(line for line in lines if line.startswith("loaded "))
    assert "compatcheck: " in done.stdout, done.stderr
    return int(code.split()[1]), set(loaded.split()[1:])


def test_bare_env_imports_nothing_costly_and_starts_no_process(
    database: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(prefix / "lib")  # where no file may be a configuration
    code, loaded = run_env(database, VIRTUAL_ENV=str(prefix))
    assert code == 0
    assert loaded & {*COSTLY, *CONFIGURED, "click", "typing"} == set()


def test_an_option_costs_the_option_parser_and_no_more(database: Path, prefix: Path):
    code, loaded = run_env(database, "--prefix", str(prefix))
    assert code == 0
    assert loaded & COSTLY == set()


def test_findings_and_configuration_files_do_not_load_rich_or_a_network(database: Path, prefix: Path, tmp_path: Path):
    training = tmp_path / "ds.json"
    training.write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    code, loaded = run_env(
        database,
        *("--prefix", str(prefix), "--model", str(REPOSITORY / "fixtures/cases/openrlhf-llama3-70b/config.json")),
        *("--training", str(training)),
        *("--set", "training.gradient_checkpointing=true", "--set", "training.use_reentrant=false"),
    )
    assert code == 1
    assert (
        loaded & {"rich", "yaml", "socket", "ssl", "http", "urllib.request", "importlib.metadata", "asyncio"} == set()
    )


def test_a_plan_for_pins_costs_neither_the_option_parser_nor_a_process(database: Path, tmp_path: Path):
    stated = tmp_path / "requirements.txt"
    stated.write_text("torch==2.6.0+cu124\ntransformers~=4.50.0\nvllm==0.6.3.post1\n")
    code, loaded = run_env(database, str(stated), name="check")
    assert code == 1
    assert loaded & {*COSTLY, "click", "difflib"} <= {"textwrap"}


def keep(store: Path, *, deepspeed: str) -> None:
    """Make a store with one measurement under a release of deepspeed."""
    measurement = {"probe": "zero3_release", "backend": "cpu", "device": "cpu", "status": "ok"}
    with EvidenceStore(str(store)) as opened:
        opened.add(from_json({**measurement, "versions": {"deepspeed": deepspeed, "torch": "2.6.0"}}))


def listed(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())


CERTAIN = (
    *("--set", "training.zero_stage=3", "--set", "training.gradient_checkpointing=true"),
    *("--set", "training.use_reentrant=false"),
)
"""What makes the finding about deepspeed 0.16.4, which has a probe, a certain one."""


@pytest.mark.parametrize(
    ("arguments", "held", "opened"),
    [
        pytest.param((), "0.16.4", False, id="possible findings"),
        pytest.param(CERTAIN, "0.16.7", False, id="another release"),
        pytest.param(CERTAIN, "0.16.4", True, id="this release"),
    ],
)
def test_measurements_are_looked_up_only_where_this_release_was_measured(
    database: Path, prefix: Path, tmp_path: Path, arguments: tuple[str, ...], held: str, *, opened: bool
):
    store = tmp_path / "evidence" / "evidence.sqlite3"
    keep(store, deepspeed=held)
    before = listed(store.parent)
    code, loaded = run_env(database, "--prefix", str(prefix), *arguments, COMPATCHECK_EVIDENCE=str(store))
    assert code == (1 if arguments else 0)  # a certain regression of a size that nothing bounds is not little
    assert ("sqlite3" in loaded) is opened
    if not opened:
        assert loaded & {"concurrent.futures", "dataclasses", "hashlib", "packaging.specifiers", "sqlite3"} == set()
    assert listed(store.parent) == before
    assert "yaml" not in loaded


def test_a_store_without_an_index_is_asked_itself(database: Path, prefix: Path, tmp_path: Path):
    store = tmp_path / "evidence.sqlite3"
    keep(store, deepspeed="0.16.4")
    os.remove(index_path(str(store)))
    _, loaded = run_env(database, "--prefix", str(prefix), *CERTAIN, COMPATCHECK_EVIDENCE=str(store))
    assert "sqlite3" in loaded
    assert not os.path.exists(index_path(str(store)))


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(
    ("module", "ends"),
    [("compatcheck.core.errors", -2), ("compatcheck.cli.group", 130)],
    ids=["entry point", "command"],
)
def test_an_interrupt_during_start_up_is_no_traceback(module: str, ends: int) -> None:
    program = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts in the background with it ignored
sys.addaudithook(lambda event, given: event == "import" and given[0] == {module!r} and os.kill(os.getpid(), 2))
from compatcheck.cli.__main__ import main
main(["rules", "list"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (ends, False), done.stderr


def test_a_check_of_pins_imports_no_reader_of_configurations_or_code(database: Path, tmp_path: Path):
    stated = tmp_path / "pins.txt"
    stated.write_text("torch==2.6.0\ntransformers==4.51.3\ndeepspeed==0.16.4\naccelerate==1.6.0\n")
    code, loaded = run_env(database, str(stated), name="check")
    assert code == 0
    assert loaded & {*COSTLY, "ast", "click", "shutil", "yaml"} == set()
    unasked = ("compatcheck.frameworks.", "compatcheck.fixing", "compatcheck.core.yaml", "compatcheck.core.toml")
    few = {f"compatcheck.frameworks.{name}" for name in ("beside", "lines", "recipe_files")}
    assert {name for name in loaded if name.startswith(unasked)} <= few


def test_a_plan_of_releases_loads_nothing_that_edits_settings_or_writes_other_formats(database: Path):
    code, loaded = run_env(database, str(REPOSITORY / "benchmarks" / "inputs" / "failing.txt"), name="check")
    assert code == 1
    assert "compatcheck.fixing.plan" in loaded
    unneeded = ("ast", "compatcheck.frameworks.python_script", "compatcheck.fixing.settings")
    unneeded += ("compatcheck.fixing.rereading", "compatcheck.reporters.json", "compatcheck.reporters.markdown")
    assert loaded & set(unneeded) == set()
