"""That the contracts of imports bite, and that no module goes round them by importing at run time what they cannot see."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

PACKAGE = ROOT / "compatcheck"

DYNAMIC = {
    "architectures/count.py": {"f'compatcheck.architectures.{family}'"},
    "checking/__init__.py": {"f'compatcheck.{_MODULES[name]}'"},  # the Python API, each name with its module
    "cli/group.py": {"entry[0]"},  # a command when it is called
    "cli/output.py": {"f'compatcheck.reporters.{name}'"},
    "collectors/image/compression.py": {"name", "'zstandard'"},  # whichever is installed
    "collectors/read.py": {"f'compatcheck.collectors.{module}'"},
    "frameworks/registry.py": {
        "f'compatcheck.frameworks.{self.name}.command'",
        "f'compatcheck.frameworks.{self.name}.configuration'",
    },
    "lab/probes/probe.py": {
        "f'compatcheck.lab.probes.catalog.{plain}'",
        "f'compatcheck.lab.probes.catalog._{name}'",
        "f'compatcheck_probe_{name}'",  # a file that a person names to be run (`--probe`), or an entry point beside this package
    },
    "lab/probes/worker/fields.py": {"module"},  # a trainer's configuration class, in the environment that is measured
    # In a foreign interpreter, by path or by the name it goes by there:
    "lab/traced/program/own_module.py": {"name"},
    "lab/probes/catalog/_tiny_trainers.py": {"module"},  # where this release of TRL has a trainer
    "lab/probes/catalog/router_loss.py": {"f'transformers.models.{name}.modeling_{name}'"},
    "lab/probes/catalog/vision_tower.py": {
        "f'transformers.models.{name}.modeling_{name}'",
        "f'transformers.models.{name}.configuration_{name}'",
    },
    "lab/probes/catalog/configured_run.py": {"name"},  # as below
    "lab/probes/catalog/whole_run.py": {"name"},  # what trainers import late, before memory is counted
    "lab/probes/catalog/verl_losses.py": {"'verl.utils.torch_functional'"},
    "lab/probes/worker/__main__.py": {"'probe_worker'", "'probe_worker.main'"},
    "lab/probes/worker/main.py": {"'probe_under_test'"},
    "lab/probes/worker/recorder.py": {"key"},
    "lab/traced/program/__main__.py": {"name", "'traced_program.run'"},
    "lab/traced/program/run.py": {"name"},
    "matching/remedies.py": {"f'compatcheck.frameworks.{program.name}.configuration'"},
}
"""Registries and programs that import by a name made at run time, and the names."""
IMPORTING = {
    "import_module",
    "__import__",
    "spec_from_file_location",
    "spec_from_loader",
    "SourceFileLoader",
    "run_module",
    "run_path",
}
IMPORTING |= {"exec", "exec_module", "find_loader", "load_module", "resolve_name"}
BY_SPEC = {"exec_module"}
"""Called on a specification, whose maker has the name."""


def find_dynamic(code: str) -> set[str]:
    """Return how the name is written in each import that a module does by a call, and how such a function goes by another name."""
    tree = ast.parse(code)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {id(call.func) for call in calls}
    found = set()
    for call in calls:
        if _name(call.func) in IMPORTING - BY_SPEC:
            found.add(ast.unparse(call.args[0]) if call.args else ast.unparse(call))
        elif _name(call.func) == "getattr" and len(call.args) > 1 and ast.unparse(call.args[1]).strip("'") in IMPORTING:
            found.add(ast.unparse(call))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and _name(node) in IMPORTING and id(node) not in called:
            found.add(ast.unparse(node))
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {
                ast.unparse(node) for alias in node.names if alias.asname and alias.name.rpartition(".")[2] in IMPORTING
            }
    return found


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def test_only_registries_import_by_a_name_made_at_run_time() -> None:
    found = {str(path.relative_to(PACKAGE)): find_dynamic(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    unlisted = {path: names - DYNAMIC.get(path, set()) for path, names in found.items()}
    assert {path: names for path, names in unlisted.items() if names} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import importlib\nimportlib.import_module('torch')",
        "from importlib import import_module\nimport_module('torch')",
        "from importlib import import_module as bring\nbring('torch')",
        "import importlib\nbring = importlib.import_module\nbring('torch')",
        "import importlib\ngetattr(importlib, 'import_module')('torch')",
        "__import__('torch')",
        "exec('import torch')",
        "from runpy import run_module\nrun_module('torch')",
    ],
)
def test_every_way_to_import_by_name_is_found(code: str) -> None:
    assert find_dynamic(code)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the package's code and the contracts, to be spoilt."""
    pytest.importorskip("importlinter")
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(PACKAGE, folder / "compatcheck", ignore=lambda at, names: [
        name for name in names if (not name.endswith(".py") and not Path(at, name).is_dir()) or name == "__pycache__"
    ])  # fmt: skip
    return folder


def broken(tree: Path) -> set[str]:
    """Return the contracts that are broken."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=tree, capture_output=True, text=True, check=False
    )
    lines = done.stdout.partition("Contracts\n")[2].splitlines()
    assert any(" KEPT" in line for line in lines), done.stdout + done.stderr
    return {line.partition(" BROKEN")[0] for line in lines if " BROKEN" in line}


def test_every_contract_is_kept(tree: Path) -> None:
    assert broken(tree) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("matching/engine.py", "from compatcheck.checking.report import build_report", "layers"),
        ("collectors/read.py", "import compatcheck.frameworks.registry", "layers"),
        ("frameworks/trl/command.py", "import compatcheck.frameworks.verl.command", "programs depend on what they are built upon, and on no other program"),
        ("collectors/sbom/spdx.py", "import compatcheck.collectors.image.tree", "collectors depend on what they share, and on no sibling"),
        ("collectors/python/installed.py", "import compatcheck.collectors.conda.spec", "collectors depend on what they share, and on no sibling"),
        ("collectors/locks/uv_lock.py", "import compatcheck.collectors.locks.poetry_lock", "lock readers are independent"),
        ("collectors/sbom/syft.py", "import compatcheck.collectors.sbom.cyclonedx", "SBOM readers are independent"),
        ("collectors/conda/pixi.py", "import compatcheck.collectors.conda.listing", "conda readers are independent"),
        ("collectors/requirements/setup_py.py", "import compatcheck.collectors.requirements.pip_list", "requirement readers are independent"),
        ("collectors/reports/nvcc.py", "import compatcheck.collectors.reports.ds_report", "report readers are independent"),
        ("reporters/sarif.py", "import compatcheck.reporters.github", "reporters depend on what they share, and on no sibling"),
        ("reporters/text.py", "import compatcheck.shell.script", "reporters import only core"),
        ("reporters/text.py", "import compatcheck.lab.location", "reporters import only core"),
        ("reporters/text.py", "from compatcheck import rules", "reporters import only core"),
        ("reporters/text.py", "import compatcheck", "reporters import only core"),
        ("checking/report.py", "import click", "click only in cli"),
        ("cli/check.py", "import compatcheck.lab.sweep", "the laboratory comes in through one seam"),
        ("lab/history.py", "import torch", "training libraries are imported only by what runs in foreign interpreters"),
        ("lab/probes/runner.py", "def late():\n    from torch import nn", "training libraries are imported only by what runs in foreign interpreters"),
        ("lab/traced/replay.py", "import deepspeed", "training libraries are imported only by what runs in foreign interpreters"),
        ("memory/role.py", "import transformers.modeling_utils", "training libraries are imported only by what runs in foreign interpreters"),
        ("lab/probes/catalog/entropy.py", "import compatcheck.lab.location", "what runs in foreign interpreters imports nothing of compatcheck"),
        ("lab/probes/catalog/entropy.py", "import compatcheck.lab.probes.runner", "what runs in foreign interpreters imports nothing of compatcheck"),
        ("lab/probes/catalog/entropy.py", "import compatcheck", "what runs in foreign interpreters imports nothing of compatcheck"),
        ("lab/probes/worker/main.py", "import compatcheck.lab.measurement", "what runs in foreign interpreters imports nothing of compatcheck"),
        ("lab/traced/program/run.py", "import compatcheck.lab.traced.request", "what runs in foreign interpreters imports nothing of compatcheck"),
        ("rules/vocabulary.py", "import compatcheck.rules.programs", "no circles"),
        ("lab/environments/interpreter.py", "import compatcheck.lab.probes.runner", "no circles"),
    ],
)  # fmt: skip
def test_an_import_that_a_contract_forbids_breaks_it(tree: Path, path: str, line: str, contract: str) -> None:
    module = tree / "compatcheck" / path
    code = module.read_text()
    try:
        module.write_text(f"{code}\n{line}\n")
        assert contract in broken(tree)
    finally:
        module.write_text(code)
