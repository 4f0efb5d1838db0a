"""Version environments: an overlay per set of releases, built once, kept in the cache and shared by whoever asks for the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from compatcheck.core.builds import index_of
from compatcheck.core.errors import UsageError
from compatcheck.core.process import run
from compatcheck.core.programs import find_program, small_environment
from compatcheck.core.versions import exact_version
from compatcheck.lab.cache import cache_directory, make_folder, unwritable
from compatcheck.lab.environments import installed
from compatcheck.lab.environments.installer import (
    TIMEOUT_SECONDS,
    Installer,
    UnbuildableError,
    explain_failure,
    find_installer,
)
from compatcheck.lab.environments.interpreter import Interpreter
from compatcheck.lab.environments.sources import ResolvedSource, asked_for, requirement_of, resolve_source
from compatcheck.services.pip_index import uv_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

MANIFEST = "compatcheck-overlay.json"
"""File of an overlay that says what it was made of."""
_LAYOUT = "3"
"""Changes when overlays of the past must not be used any more."""


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
        done = run([self.python, "-I", installed.__file__], timeout_seconds=60)
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

    def key(self, sources: Sequence[ResolvedSource], exclude_newer: str | None, *, alone: bool) -> str:
        """Return the name of an overlay: a hash of all that decides what is in it."""
        identity = [
            _LAYOUT,
            self.base.python,
            self.base.version,
            self.base.versions["torch"],
            sorted(sources),
            exclude_newer,
            self.installer.name,
            alone,
        ]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:20]

    def open(
        self, requirements: Sequence[str], *, exclude_newer: str | None = None, alone: bool = False
    ) -> Interpreter:
        """Return the base with these releases in front of its own, built when there is none yet.

        Args:
            requirements: exact releases as a rule (``deepspeed==0.16.4``); what they need comes with them, torch excepted.
            exclude_newer: ISO date; releases after it are not considered.
            alone: these and nothing else, whatever they say that they need.

        Raises:
            UnbuildableError: a release could not be installed.
        """
        if not requirements:
            return self.base.interpreter
        sources = [resolve_source(text) for text in self._pin(requirements, exclude_newer)]
        now: list[ResolvedSource] | None = None
        while True:
            folder, held = self._find_or_build(sources, now or (), exclude_newer, alone=alone)
            then, before = [ResolvedSource(*one) for one in held.get("brought", ())], now
            now = [resolve_source(text) for text in held.get("brought_as", ())]
            if now in (then, before):
                break
        return Interpreter(
            python=self.base.python,
            paths=(str(folder),),
            versions={"python": self.base.version, **self.base.versions, **held["versions"]},
            requested=tuple(canonicalize_name(Requirement(text).name) for text in requirements),
            pins=held["pins"],
        )

    def _pin(self, requirements: Sequence[str], exclude_newer: str | None) -> Sequence[str]:
        """Put today's release in place of every range: tomorrow another one may lie in it."""
        if exclude_newer is not None or all(map(_is_definite, requirements)):
            return requirements
        chosen = self.installer.choose(requirements, python=self.base.python)
        pinned = []
        for text in requirements:
            wanted = Requirement(text)
            if not _is_definite(text) and (name := canonicalize_name(wanted.name)) in chosen:
                wanted.specifier = SpecifierSet(f"=={chosen[name]}")
            pinned.append(str(wanted))
        return pinned

    def _find_or_build(
        self,
        sources: Sequence[ResolvedSource],
        brought: Sequence[ResolvedSource],
        exclude_newer: str | None,
        *,
        alone: bool,
    ) -> tuple[Path, dict[str, Any]]:
        """Return the folder of an overlay and what its manifest says.

        Args:
            sources: what was asked for.
            brought: the commits and trees that these brought along, where they are others than at the first time.
            exclude_newer: ISO date.
            alone: see `open`.
        """
        folder = self.directory / self.key([*sources, *brought], exclude_newer, alone=alone)
        manifest = folder / MANIFEST
        if not manifest.exists():
            self._build(folder, sources, brought, exclude_newer, alone=alone)
        held: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
        return folder, held

    def _build(
        self,
        folder: Path,
        sources: Sequence[ResolvedSource],
        brought: Sequence[ResolvedSource],
        exclude_newer: str | None,
        *,
        alone: bool,
    ) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix="building-", dir=self.directory))
        except OSError as error:
            raise unwritable(self.directory, error) from None
        try:
            target = scratch / "overlay"
            requirements = [source.requirement for source in sources]
            # A local tree that is named to them is built anew by uv and pip; no cache of theirs answers for it.
            requirements += [source.requirement for source in brought if source.content]
            self.installer.install(
                requirements, target, python=self.base.python, exclude_newer=exclude_newer, alone=alone
            )
            found = {
                canonicalize_name(one.metadata["Name"]): one
                for one in distributions(path=[str(target)])
                if one.metadata["Name"]
            }
            named = {canonicalize_name(Requirement(source.requirement).name) for source in sources}
            others = [text for name, one in sorted(found.items()) if name not in named and (text := asked_for(one))]
            data = {
                "requirements": requirements,
                "brought_as": others,
                "brought": [resolve_source(text) for text in others],
                "exclude_newer": exclude_newer,
                "versions": {name: installed.identify(one) for name, one in sorted(found.items())},
                "pins": {name: requirement_of(one) for name, one in sorted(found.items())},
            }
            (target / MANIFEST).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            try:
                target.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was faster
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _is_definite(text: str) -> bool:
    """Tell whether a requirement names one release, or a place that says itself what it holds."""
    wanted = Requirement(text)
    return wanted.url is not None or exact_version(str(wanted.specifier)) is not None


def build_base(torch: str, *, python: str | None = None) -> Base:
    """Build, once, an interpreter with a release of torch.

    Args:
        torch: the exact release, local label included (``2.13.0+cpu``): without one an index may give the CUDA build. A build
            that the index of the person does not have is taken from PyTorch's own.
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
        install = [uv, "pip", "install", "--quiet", "--python", str(program), f"torch=={torch}"]
        install += ["numpy", "psutil", "setuptools", "wheel"]
        own = index_of(torch)
        from_own = [[*install, "--index", own, "--index-strategy", "unsafe-best-match"]] if own else []
        for ways in ([[uv, "venv", "--quiet", "--clear", *which, str(folder)]], [install, *from_own]):
            tried = []
            for step in ways:
                tried.append(run(step, timeout_seconds=TIMEOUT_SECONDS, environ=environ))
                if tried[-1].succeeded:
                    break
            else:
                shutil.rmtree(folder, ignore_errors=True)
                raise UnbuildableError(f"torch {torch}: {explain_failure(tried[0])}")
        done_mark.touch()
    return Base(str(program))
