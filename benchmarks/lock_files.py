"""Compare what compatcheck reads out of lock files with what the tools that own them install.

DIR holds fetched files, which are not committed: ``DIR/KIND/PROJECT/FILE`` with KIND one of poetry, pdm, pipfile, uv, pylock,
compiled, freeze, and beside a lock the ``pyproject.toml`` or ``Pipfile`` it was made from. The owner of each kind answers for
every Python of ``PYTHONS`` (Linux, x86-64, main or default group, no extras):

    poetry    poetry's own Installer, whose operations are caught instead of executed
    pdm       pdm's own ``resolve_from_lockfile``
    pipfile   ``pipenv requirements``
    uv        ``uv export --frozen --no-dev``, and ``--script`` for the locks of scripts
    pylock    ``packaging.pylock.Pylock.select``
    compiled, freeze   pip's own parser of requirement files

None of them uses the network. The tools are found by ``--poetry``, ``--pdm`` and ``--pip``: the Python of an environment that
has them installed.

    python benchmarks/lock_files.py /tmp/locks --poetry VENV/bin/python --pdm VENV/bin/python --pip VENV/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from compatcheck.collectors.read import read_environments
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PYTHONS = ("3.6.15", "3.7.17", "3.8.18", "3.9.18", "3.10.13", "3.11.9", "3.12.4", "3.13.13", "3.14.5")

Pins = dict[str, str | None]
"""Name → version; None where the tool tells none (repositories, directories)."""
Answer = dict[str, "dict[str, Pins] | str"]
"""Project → Python → pins, or why the tool did not answer."""

POETRY = """
import json, sys, traceback
from pathlib import Path
from cleo.io.null_io import NullIO
from packaging.utils import canonicalize_name
from poetry.core.packages.dependency_group import MAIN_GROUP
from poetry.factory import Factory
from poetry.installation.executor import Executor
from poetry.installation.installer import Installer
from poetry.repositories import RepositoryPool
from poetry.repositories.installed_repository import InstalledRepository
from poetry.utils.env.mock_env import MockEnv

class Caught(Executor):
    operations = ()
    def execute(self, operations):
        self.operations = list(operations)
        return 0

answers = {}
for directory, pythons in json.load(sys.stdin).items():
    found = answers[directory] = {}
    try:
        poetry = Factory().create_poetry(Path(directory))
        poetry.locker.is_fresh = lambda: True
        for python in pythons:
            version = tuple(map(int, python.split(".")))
            if not poetry.package.python_constraint.allows(type(poetry.package.version).parse(python)):
                continue
            env = MockEnv(version, platform="linux", platform_machine="x86_64", os_name="posix")
            marker_env = {
                "python_version": python.rpartition(".")[0], "python_full_version": python, "os_name": "posix",
                "sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "platform_release": "6",
                "platform_version": "1", "implementation_name": "cpython", "implementation_version": python,
                "platform_python_implementation": "CPython", "version_info": (*version, "final", 0),
                "interpreter_name": "cp", "interpreter_version": "".join(map(str, version[:2])),
            }
            env._mock_marker_env = marker_env
            caught = Caught(env, RepositoryPool(), poetry.config, NullIO())
            installer = Installer(
                NullIO(), env, poetry.package, poetry.locker, RepositoryPool(), poetry.config, InstalledRepository([]), caught)
            installer.only_groups([MAIN_GROUP])
            if installer.run():
                raise RuntimeError("poetry did not install")
            found[python] = {
                canonicalize_name(one.package.name):
                    None if one.package.source_type in ("git", "directory", "url", "file") else str(one.package.version)
                for one in caught.operations if one.job_type == "install" and not one.skipped
            }
    except Exception as error:
        answers[directory] = type(error).__name__ + ": " + str(error).strip().split("\\n")[0][:150]
json.dump(answers, sys.stdout)
"""

PDM = """
import json, os, sys
from pdm.cli.actions import resolve_from_lockfile
from pdm.core import Core
from pdm.exceptions import PdmException
from pdm.models.markers import EnvSpec
from packaging.utils import canonicalize_name

answers = {}
core = Core()
for directory, pythons in json.load(sys.stdin).items():
    found = answers[directory] = {}
    try:
        project = core.create_project(directory)
        project._saved_python = sys.executable
        for python in pythons:
            if not project.python_requires.contains(python):
                continue
            spec = EnvSpec.from_spec("==" + python, "manylinux_2_41_x86_64", "cpython")
            wanted = project._resolve_dependencies(["default"])
            requirements = list(project.get_dependencies("default", wanted))
            try:
                packages = list(resolve_from_lockfile(project, requirements, ["default"], spec))
            except PdmException as error:
                if "compatible lock target" in str(error):
                    continue  # not locked for this Python
                raise
            found[python] = {
                canonicalize_name(one.candidate.name):
                    one.candidate.version if one.candidate.req.is_named else None
                for one in packages
            }
    except BaseException as error:
        answers[directory] = type(error).__name__ + ": " + str(error).strip().split("\\n")[0][:150]
json.dump(answers, sys.stdout)
"""

PIP = """
import json, sys
from pip._internal.network.session import PipSession
from pip._internal.req.constructors import install_req_from_parsed_requirement
from pip._internal.req.req_file import parse_requirements

answers = {}
for path in json.load(sys.stdin):
    try:
        found = []
        for one in parse_requirements(path, session=PipSession()):
            if one.constraint:
                continue
            parsed = install_req_from_parsed_requirement(one)
            if parsed.req is not None:
                found.append([parsed.req.name, str(parsed.req.specifier), str(parsed.markers or "")])
        answers[path] = found
    except Exception as error:
        answers[path] = type(error).__name__ + ": " + str(error).strip().split("\\n")[0][:150]
json.dump(answers, sys.stdout)
"""


class Tools(NamedTuple):
    """Where the owning tools are."""

    poetry: str
    pdm: str
    pip: str


def machine(python: str) -> dict[str, str]:
    """Describe Linux on x86-64 with one Python to packaging's markers."""
    return {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "platform_release": "6.1",
        "platform_version": "1",
        "implementation_name": "cpython",
        "implementation_version": python,
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def ask(python: str, program: str, question: object) -> dict[str, object]:
    """Run a program inside the environment of a tool; it answers in JSON."""
    # A directory of its own, so that no file of this repository is imported there.
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [python, "-c", program],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            check=False,
            cwd=place,
            env={**os.environ, "PDM_CHECK_UPDATE": "0", "PYTHONPATH": ""},
        )
    if done.returncode:
        sys.exit(f"{python}: {done.stderr[-2000:]}")
    answer: dict[str, object] = json.loads(done.stdout[done.stdout.index("{") :])
    return answer


def select(lines: Sequence[str], python: str) -> Pins:
    """Select what requirement lines install on one Python."""
    pins: Pins = {}
    for line in lines:
        text = line.strip().removeprefix("-e ").strip()
        if "#egg=" in text and "://" in text:
            text = f"{text.partition('#egg=')[2].partition('&')[0]} @ {text}"
        if not text or text.startswith(("#", "-", ".", "/")):
            continue
        try:
            one = Requirement(text)
        except InvalidRequirement:
            continue  # a path: local, and left out on both sides
        if one.marker is None or one.marker.evaluate(machine(python)):
            exact = [clause.version for clause in one.specifier if clause.operator in {"==", "==="}]
            pins[canonicalize_name(one.name)] = exact[0] if exact and one.url is None else None
    return pins


def allowed(requires: str | None) -> list[str]:
    """List the Pythons that a range allows."""
    return [python for python in PYTHONS if requires is None or Version(python) in SpecifierSet(requires)]


def ask_pipenv(paths: Sequence[Path], tools: Tools) -> Answer:
    """Ask ``pipenv requirements`` for every lock."""
    answers: Answer = {}
    for path in paths:
        command = [str(Path(tools.pip).with_name("pipenv")), "requirements"]
        environ = {**os.environ, "PIPENV_IGNORE_VIRTUALENVS": "1", "PIPENV_MAX_DEPTH": "1", "PIPENV_NO_INHERIT": "1"}
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            answers[str(path)] = done.stderr.strip().rpartition("\n")[2][:150]
            continue
        meta = json.loads(path.read_bytes())["_meta"].get("requires", {})
        pythons = [
            one for one in PYTHONS if one.rpartition(".")[0] == meta.get("python_version", one.rpartition(".")[0])
        ]
        answers[str(path)] = {python: select(done.stdout.splitlines(), python) for python in pythons}
    return answers


def ask_uv(paths: Sequence[Path]) -> Answer:
    """Ask ``uv export --frozen`` for every lock."""
    import tomllib  # noqa: PLC0415 (Python 3.11 and later)

    answers: Answer = {}
    for path in paths:
        command = [
            "uv",
            "export",
            "--frozen",
            "--no-dev",
            "--no-default-groups",
            "--no-hashes",
            "--no-emit-local",
            "-q",
        ]
        if path.name.endswith(".py.lock"):
            command += ["--script", path.name.removesuffix(".lock")]
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
        if done.returncode:
            answers[str(path)] = done.stderr.strip().partition("\n")[0][:150]
            continue
        requires = tomllib.loads(path.read_text()).get("requires-python")
        answers[str(path)] = {python: select(done.stdout.splitlines(), python) for python in allowed(requires)}
    return answers


def ask_packaging(paths: Sequence[Path]) -> Answer:
    """Ask ``packaging.pylock`` for every lock."""
    import tomllib  # noqa: PLC0415 (Python 3.11 and later)
    from packaging import tags  # noqa: PLC0415
    from packaging.pylock import Pylock, PylockSelectError  # noqa: PLC0415

    answers: Answer = {}
    for path in paths:
        found: dict[str, Pins] = {}
        try:
            lock = Pylock.from_dict(tomllib.loads(path.read_text()))
            lock.validate()
            for python in allowed(str(lock.requires_python) if lock.requires_python else None):
                version = tuple(map(int, python.split(".")[:2]))
                platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)]
                platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
                interpreter = f"cp{version[0]}{version[1]}"
                known = [
                    *tags.cpython_tags(version, platforms=platforms),
                    *tags.compatible_tags(version, interpreter, platforms),
                ]
                chosen = lock.select(environment=machine(python), tags=known, extras=[], dependency_groups=None)
                found[python] = {
                    one.name: None if one.version is None or one.vcs or one.directory else str(one.version)
                    for one, _ in chosen
                }
            answers[str(path)] = found
        except PylockSelectError:  # no wheel for one of the Pythons: then only the markers are compared
            for python in PYTHONS:
                chosen_by_marker = {
                    **machine(python),
                    "extras": frozenset(),
                    "dependency_groups": frozenset(lock.default_groups or ()),
                }
                if lock.requires_python is None or Version(python) in lock.requires_python:
                    found[python] = {
                        one.name: None if one.version is None or one.vcs or one.directory else str(one.version)
                        for one in lock.packages
                        if one.marker is None or one.marker.evaluate(chosen_by_marker, context="lock_file")
                    }
            answers[str(path)] = found
        except Exception as error:  # noqa: BLE001 (whatever it says is the answer)
            answers[str(path)] = f"{type(error).__name__}: {str(error)[:150]}"
    return answers


def ask_pip(paths: Sequence[Path], tools: Tools) -> Answer:
    """Ask pip's parser for every requirement file."""
    answers: Answer = {}
    for name, found in ask(tools.pip, PIP, [str(path) for path in paths]).items():
        if not isinstance(found, list):
            answers[name] = str(found)
            continue
        by_python: dict[str, Pins] = {}
        for python in PYTHONS:
            pins = by_python[python] = {}
            for package, specifier, marker in found:
                if not marker or Marker(marker).evaluate(machine(python)):
                    exact = [clause.version for clause in SpecifierSet(specifier) if clause.operator in {"==", "==="}]
                    pins[canonicalize_name(package)] = exact[0] if exact else None
        answers[name] = by_python
    return answers


def read(path: Path, kind: str, python: str) -> tuple[Pins, int]:
    """Read with compatcheck, as on one Python: the pins, and how many entries could not be read."""
    module, function, options = KINDS[kind]
    import importlib  # noqa: PLC0415

    reader: Callable[..., object] = getattr(importlib.import_module(f"compatcheck.collectors.{module}"), function)
    environment = reader(str(path), selection=Selection(python=python), **options)
    found = environment.packages  # type: ignore[attr-defined]
    packages = {name: package for name, package in found.items() if not package.is_optional}
    skipped = [one for one in environment.skipped if "is a path" not in one.reason]  # type: ignore[attr-defined]
    return {
        name: None if package.details.get("source") in LOCAL or "vcs" in package.details else package.version
        for name, package in packages.items()
        # Projects of the checkout itself have no pin, and their lines are left out of what the tools say.
        if not (
            kind in {"uv", "pipfile"}
            and package.details.get("source") in CHECKOUT
            and "://" not in str(package.details)
        )
    }, len(skipped)


LOCAL = {"git", "directory", "url", "file", "path", "editable", "vcs"}
CHECKOUT = {"editable", "directory", "virtual", "path", "file"}
KINDS: Mapping[str, tuple[str, str, Mapping[str, object]]] = {
    "poetry": ("locks.poetry_lock", "read_poetry_lock", {}),
    "pdm": ("locks.pdm_lock", "read_pdm_lock", {}),
    "pipfile": ("locks.pipfile_lock", "read_pipfile_lock", {}),
    "uv": ("locks.uv_lock", "read_uv_lock", {}),
    "pylock": ("locks.pylock", "read_pylock", {}),
    "compiled": ("requirements.lines", "read_requirements", {}),
    "freeze": ("requirements.lines", "read_requirements", {}),
}
FILES = {
    "poetry": "poetry.lock",
    "pdm": "pdm.lock",
    "pipfile": "Pipfile.lock",
    "uv": "*.lock",
    "pylock": "pylock*.toml",
}


def ask_owner(kind: str, paths: Sequence[Path], tools: Tools) -> Answer:
    """Ask the tool that owns a kind, for every file of it."""
    if kind in {"poetry", "pdm"}:
        program, python = (POETRY, tools.poetry) if kind == "poetry" else (PDM, tools.pdm)
        by_directory = ask(python, program, {str(path.parent): PYTHONS for path in paths})
        return {str(path): by_directory[str(path.parent)] for path in paths}  # type: ignore[misc]
    if kind == "pipfile":
        return ask_pipenv(paths, tools)
    if kind == "uv":
        return ask_uv(paths)
    return ask_packaging(paths) if kind == "pylock" else ask_pip(paths, tools)


def same(ours: str | None, theirs: str | None) -> bool:
    """Tell whether two versions are one; an unknown one equals any."""
    if ours is None or theirs is None:
        return True
    try:
        return Version(ours) == Version(theirs)
    except InvalidVersion:
        return ours == theirs


def compare(path: Path, kind: str, answer: Mapping[str, Pins], counts: Counter[str]) -> Iterator[str]:
    """Compare one file on every Python, and say what differs."""
    union: set[tuple[str, str | None]] = set()
    for python, theirs in answer.items():
        try:
            ours, skipped = read(path, kind, python)
        except InputError as error:
            yield f"{python}: not read: {error}"
            return
        counts["comparisons"] += 1
        union |= set(ours.items())
        if skipped:
            yield f"{python}: {skipped} entries not read"
        for name in sorted(set(ours) ^ set(theirs)):
            yield f"{python}: {name} {ours.get(name) or theirs.get(name)} is {'only ours' if name in ours else 'missing'}"
        for name in sorted(set(ours) & set(theirs)):
            if not same(ours[name], theirs[name]):
                yield f"{python}: {name} {ours[name]}, its tool says {theirs[name]}"
    counts["packages"] += len(union)


def main() -> None:
    """Compare every file of a directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=list(KINDS), help="kinds to look at")
    parser.add_argument("--poetry", default=sys.executable, help="Python of an environment with poetry")
    parser.add_argument("--pdm", default=sys.executable, help="Python of an environment with pdm")
    parser.add_argument("--pip", default=sys.executable, help="Python of an environment with pip and pipenv")
    parser.add_argument("--show", type=int, default=8, help="differences to print for one file")
    options = parser.parse_args()
    tools = Tools(options.poetry, options.pdm, options.pip)
    rows = [
        "| kind | files | packages | comparisons | equal | differing | not answered |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for kind in options.only:
        paths = [
            path
            for path in sorted((options.directory / kind).glob("*/" + FILES.get(kind, "*.txt")))
            if path.name != "pyproject.toml"
        ]
        counts: Counter[str] = Counter(files=len(paths))
        answers = ask_owner(kind, paths, tools) if paths else {}
        for path in paths:
            answer = answers[str(path)]
            if isinstance(answer, str) or not answer:
                counts["refused"] += 1
                try:
                    read_environments(str(path), KINDS[kind][0])
                    what = "read"
                except InputError as error:
                    what = f"not read: {error.message}"
                print(f"{path.parent.name}: its tool: {answer or 'none of the Pythons'}; {what}", file=sys.stderr)
                continue
            differences = list(compare(path, kind, answer, counts))
            counts["differing" if differences else "equal"] += 1
            for one in differences[: options.show]:
                print(f"{kind}: {path.parent.name}: {one}", file=sys.stderr)
        columns = ("files", "packages", "comparisons", "equal", "differing", "refused")
        rows.append(f"| {kind} | " + " | ".join(str(counts[column]) for column in columns) + " |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
