"""That one module starts programs, and every Python it starts is shut off from where a person stands."""

from __future__ import annotations

import ast

import pytest

from tests import ROOT

PACKAGE = ROOT / "compatcheck"
FOREIGN = {"lab/probes/catalog/_driver_use.py", "lab/probes/worker/main.py", "lab/probes/worker/ranks.py"}
"""Run in an interpreter that `core/process` started, and start that same interpreter, or fork it."""
STARTING_MODULES = {
    "subprocess",
    "multiprocessing",
    "pty",
    "_posixsubprocess",
    "_winapi",
    "popen2",
    "commands",
    "webbrowser",
}
STARTING_NAMES = {
    "system",
    "popen",
    "fork",
    "forkpty",
    "posix_spawn",
    "posix_spawnp",
    "startfile",
    "ProcessPoolExecutor",
}
STARTING_NAMES |= {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell", "Popen"}
STARTING_NAMES |= {
    f"{kind}{rest}" for kind in ("exec", "spawn") for rest in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")
}
LOOKING_UP = {"which": {"lab/environments/overlay.py"}}
"""By name on the whole of PATH: the interpreter that a person names with --python."""


def find_starts(code: str) -> set[str]:
    """Return what of a module starts a program: modules that it imports, functions that it names.

    Imports by a name made at run time: `test_import_contracts`.
    """
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] in STARTING_MODULES}
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in STARTING_MODULES:
                found.add(node.module)
            if node.module in {"os", "posix", "nt", "asyncio", "concurrent.futures", "concurrent.futures.process"}:
                found |= {alias.name for alias in node.names if alias.name in STARTING_NAMES}
        elif isinstance(node, ast.Attribute) and node.attr in STARTING_NAMES:
            # The name of the system; what a script that is read does.
            if ast.unparse(node) != "platform.system" and not ast.unparse(node).startswith("self."):
                found.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            found |= {ast.unparse(node) for name in node.args[1:2] if ast.unparse(name).strip("'") in STARTING_NAMES}
    return found


def modules() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def test_one_module_starts_programs() -> None:
    found = {path for path, code in modules().items() if find_starts(code)}
    assert found == {"core/process.py"} | FOREIGN


def test_programs_are_looked_up_in_one_place() -> None:
    for name, allowed in LOOKING_UP.items():
        found = {
            path
            for path, code in modules().items()
            for node in ast.walk(ast.parse(code))
            if (isinstance(node, ast.Attribute) and node.attr == name)
            or (isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names))
        }
        assert found == allowed


def test_the_drivers_python_module_is_not_imported() -> None:
    """It would be the inspected environment's own, where that is the one this runs in."""
    assert [path for path, code in modules().items() if "pynvml" in code] == []


def test_every_python_is_isolated() -> None:
    """`-c` and `-m` put the working directory in front of the path: they never stand without `-I`."""
    for path, code in modules().items():
        if path in FOREIGN:
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.List):
                words = [part.value if isinstance(part, ast.Constant) else None for part in node.elts]
                if {"-m", "-c"} & set(words) and "python" in ast.unparse(node).lower():
                    assert words[1] == "-I", f"{path}: {ast.unparse(node)}"


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess",
        "import subprocess as s",
        "from subprocess import run",
        "def late():\n    import subprocess",
        "import multiprocessing.pool",
        "from multiprocessing import Process",
        "import os\nos.system('x')",
        "from os import execvp",
        "import os as o\no.posix_spawn",
        "import os\ngetattr(os, 'popen')",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "from concurrent.futures import ProcessPoolExecutor",
    ],
)
def test_every_way_to_start_a_program_is_found(code: str) -> None:
    assert find_starts(code)
