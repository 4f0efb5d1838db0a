"""Version environments: an overlay per set of releases, built once, kept in the cache and shared by whoever asks for the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compatcheck.core.errors import UsageError
from compatcheck.core.process import run
from compatcheck.core.programs import find_program, small_environment
from compatcheck.lab.cache import cache_directory, make_folder, unwritable
from compatcheck.lab.environments.installer import (
    TIMEOUT_SECONDS,
    Installer,
    UnbuildableError,
    explain_failure,
    find_installer,
)
from compatcheck.lab.environments.interpreter import Interpreter
from compatcheck.services.pip_index import uv_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAYOUT = "2"
"""Changes when overlays of the past must not be used any more."""
_ASK = (
    "import json, sys\n"
    "from importlib.metadata import distributions\n"
    "found = {d.metadata['Name'].lower().replace('_', '-'): d.version for d in distributions()}\n"
    "print(json.dumps({'python': '%d.%d.%d' % sys.version_info[:3], 'versions': found}))\n"
)


class Base:
    """An interpreter of the person's that has torch; nothing is installed into it."""

    def __init__(self, python: str) -> None:
        """Ask an interpreter what it is.

        Args:
            python: path of the program, or a name on the path.

        Raises:
            UsageError: it does not run, or has no torch.
        """
        found = shutil.which(python)
        if found is None:
            msg = f"there is no interpreter {python!r}"
            raise UsageError(msg)
        self.python = os.path.abspath(found)
        done = run([self.python, "-I", "-c", _ASK], timeout_seconds=60)
        try:
            data: dict[str, Any] = json.loads(done.output.splitlines()[-1])
        except (ValueError, IndexError):
            msg = f"{python} does not answer as an interpreter: {done.describe()}"
            raise UsageError(msg) from None
        self.version = str(data["python"])
        self.versions: dict[str, str] = data["versions"]
        if "torch" not in self.versions:
            msg = f"{python} has no torch"
            raise UsageError(msg, hint="name one that has: --python, or build one: --torch 2.13.0+cpu")

    @property
    def interpreter(self) -> Interpreter:
        """The base itself, with what is installed in it."""
        return Interpreter(python=self.python, versions={"python": self.version, **self.versions})


class Overlays:
    """Builds and finds overlays over one base."""

    def __init__(self, base: Base, *, installer: Installer | None = None, directory: Path | None = None) -> None:
        """Keep the base.

        Args:
            base: the interpreter with torch.
            installer: uv where there is one, by default.
            directory: where overlays are kept; the cache by default.
        """
        self.base = base
        self.installer = installer or find_installer()
        self.directory = directory or cache_directory() / "environments"

    def key(self, requirements: Sequence[str], exclude_newer: str | None) -> str:
        """Return the name of an overlay: a hash of all that decides what is in it."""
        identity = [
            _LAYOUT,
            self.base.python,
            self.base.version,
            self.base.versions["torch"],
            sorted(requirements),
            exclude_newer,
            self.installer.name,
        ]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:20]

    def open(self, requirements: Sequence[str], *, exclude_newer: str | None = None) -> Interpreter:
        """Return the base with these releases in front of its own, built when there is none yet.

        Args:
            requirements: exact releases as a rule (``deepspeed==0.16.4``); what they need comes with them, torch excepted.
            exclude_newer: ISO date; releases after it are not considered.

        Raises:
            UnbuildableError: a release could not be installed.
        """
        if not requirements:
            return self.base.interpreter
        folder = self.directory / self.key(requirements, exclude_newer)
        manifest = folder / "compatcheck-overlay.json"
        if not manifest.exists():
            self._build(folder, requirements, exclude_newer)
        found = json.loads(manifest.read_text(encoding="utf-8"))["versions"]
        versions = {"python": self.base.version, "torch": self.base.versions["torch"], **found}
        requested = tuple(canonicalize_name(Requirement(text).name) for text in requirements)
        return Interpreter(python=self.base.python, paths=(str(folder),), versions=versions, requested=requested)

    def _build(self, folder: Path, requirements: Sequence[str], exclude_newer: str | None) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix="building-", dir=self.directory))
        except OSError as error:
            raise unwritable(self.directory, error) from None
        try:
            target = scratch / "overlay"
            self.installer.install(requirements, target, python=self.base.python, exclude_newer=exclude_newer)
            versions = {
                name.lower().replace("_", "-"): version
                for name, _, version in (
                    path.name[: -len(".dist-info")].rpartition("-") for path in target.glob("*.dist-info")
                )
            }
            data = {"requirements": list(requirements), "exclude_newer": exclude_newer, "versions": versions}
            (target / "compatcheck-overlay.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            try:
                target.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was faster
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def build_base(torch: str, *, python: str | None = None) -> Base:
    """Build, once, an interpreter with a release of torch.

    Args:
        torch: the exact release, local label included (``2.13.0+cpu``): without one an index may give the CUDA build.
        python: interpreter or version for uv; uv's choice by default.

    Raises:
        UnbuildableError: uv could not install it.
        UsageError: there is no uv.
    """
    find_installer("uv")
    uv = find_program("uv").path or ""
    name = hashlib.sha256(json.dumps([_LAYOUT, torch, python]).encode()).hexdigest()[:12]
    folder = cache_directory() / "bases" / f"torch-{torch}-{name}"
    program = folder / "bin" / "python"
    done_mark = folder / "compatcheck-base"
    if not done_mark.exists():
        make_folder("bases")
        environ = {**small_environment(), **uv_variables()}
        which = ["--python", os.path.abspath(python) if os.path.exists(python) else python] if python else []
        steps = (
            [uv, "venv", "--quiet", "--clear", *which, str(folder)],
            [
                uv,
                "pip",
                "install",
                "--quiet",
                "--python",
                str(program),
                f"torch=={torch}",
                "numpy",
                "psutil",
                "setuptools",
                "wheel",
            ],
        )
        for step in steps:
            done = run(step, timeout_seconds=TIMEOUT_SECONDS, environ=environ)
            if not done.succeeded:
                shutil.rmtree(folder, ignore_errors=True)
                raise UnbuildableError(f"torch {torch}: {explain_failure(done)}")
        done_mark.touch()
    return Base(str(program))
