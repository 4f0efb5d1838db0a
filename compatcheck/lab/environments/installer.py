"""Two ways of installing a release into a folder: uv, and pip where there is no uv."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compatcheck.core.errors import CompatcheckError, UsageError
from compatcheck.core.installation import tell_remedy
from compatcheck.core.process import Completed, run
from compatcheck.core.programs import find_program, small_environment
from compatcheck.core.redaction import redact
from compatcheck.services.pip_index import interpreters, uv_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT_SECONDS = 900.0
SHARED = (
    *("torch", "torchvision", "torchaudio", "triton", "nvidia-*"),
    # What torch itself needs: an older release of one, in front of the base's, would keep torch from being imported.
    *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "setuptools", "sympy", "typing-extensions"),
)
"""Distributions that come from the base and are never installed into an overlay."""


_BUILD = r"CC|CXX|C(?:XX|PP)?FLAGS|LDFLAGS|MAX_JOBS|(?:CUDA|NVCC|TORCH|FLASH_ATTENTION|GIT)_\w+"
_FRAME = " │×╰─▶\t"
_VERSIONS = re.compile(r" \(from versions: [^)]*\)")
"""pip's list of all releases there are."""
_RAISED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)\b: \S")


class UnbuildableError(CompatcheckError):
    """A release could not be installed: it does not exist, needs what is not there, or fails to build."""


class Installer(Protocol):
    """Installs requirements and what they need, but for what is shared, into a folder."""

    name: str

    def install(
        self,
        requirements: Sequence[str],
        target: Path,
        *,
        python: str,
        exclude_newer: str | None,
        alone: bool = False,
    ) -> None:
        """Install.

        Args:
            requirements: PEP 508 requirements.
            target: a folder that does not exist yet.
            python: the interpreter of the base, which has torch.
            exclude_newer: ISO date; releases after it are not considered.
            alone: these and nothing else, whatever they say that they need.

        Raises:
            UnbuildableError: with the installer's own words.
        """

    def choose(self, requirements: Sequence[str], *, python: str) -> dict[str, str]:
        """Return canonical name → release of what these requirements would install today.

        Raises:
            UnbuildableError: with the installer's own words.
        """


class Uv:
    """uv: hard links from its cache, a second or two per release."""

    name = "uv"

    def __init__(self, program: str) -> None:
        """Keep the path of uv."""
        self.program = program

    def install(
        self,
        requirements: Sequence[str],
        target: Path,
        *,
        python: str,
        exclude_newer: str | None,
        alone: bool = False,
    ) -> None:
        """Install with `uv pip install --target`; builds see the base's torch, which is what DeepSpeed's needs."""
        options = ["--target", str(target), "--link-mode", "hardlink", *(["--no-deps"] if alone else [])]
        self._run("install", requirements, python, exclude_newer, options)

    def choose(self, requirements: Sequence[str], *, python: str) -> dict[str, str]:
        """Resolve with `uv pip compile`."""
        done = self._run("compile", requirements, python, None, ["--no-header", "--no-annotate"])
        pins = (line.partition("==") for line in done.output.splitlines())
        return {canonicalize_name(name): version.split()[0] for name, equals, version in pins if equals}

    def _run(
        self,
        command: str,
        requirements: Sequence[str],
        python: str,
        exclude_newer: str | None,
        options: Sequence[str],
    ) -> Completed:
        with tempfile.TemporaryDirectory(prefix="compatcheck-uv-") as scratch:
            excludes = Path(scratch, "excludes.txt")
            excludes.write_text("\n".join(name for name in SHARED if "*" not in name), encoding="utf-8")
            words = [self.program, "pip", command, "--quiet", "--python", python, "--no-config", *options]
            words += ["--excludes", str(excludes)]
            for name in _built_with_torch(requirements):
                words += ["--no-build-isolation-package", name]
            if exclude_newer:
                words += ["--exclude-newer", exclude_newer]
            if command == "compile":
                wanted = Path(scratch, "requirements.in")
                wanted.write_text("\n".join(requirements), encoding="utf-8")
                requirements = [str(wanted)]
            environ = _build_environ(uv_variables())
            return _check(run([*words, *requirements], timeout_seconds=TIMEOUT_SECONDS, environ=environ))


class Pip:
    """pip: resolves with the base's torch pinned, then installs everything but what is shared."""

    name = "pip"

    def install(
        self,
        requirements: Sequence[str],
        target: Path,
        *,
        python: str,
        exclude_newer: str | None,
        alone: bool = False,
    ) -> None:
        """Install with `pip install --target` in two steps."""
        if exclude_newer:
            msg = "pip cannot leave out releases by date"
            raise UsageError(msg, hint=tell_remedy("uv"))
        pins = list(requirements)
        if not alone:
            found = self._resolve(requirements, python)
            pins = [_pin(item) for item in found if not is_shared(item["metadata"]["name"])]
        if pins:
            command = [*_pip_for(python), "install", "--quiet", "--no-deps", "--target", str(target)]
            command += [*_isolation(requirements), *pins]
            _check(run(command, timeout_seconds=TIMEOUT_SECONDS, environ=_build_environ({})))
        target.mkdir(parents=True, exist_ok=True)

    def choose(self, requirements: Sequence[str], *, python: str) -> dict[str, str]:
        """Resolve with `pip install --dry-run`."""
        found = (item["metadata"] for item in self._resolve(requirements, python))
        return {canonicalize_name(one["name"]): one["version"] for one in found}

    def _resolve(self, requirements: Sequence[str], python: str) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="compatcheck-pip-") as scratch:
            report = os.path.join(scratch, "report.json")
            # Without --ignore-installed what the base has counts as installed, torch among it.
            command = [*_pip_for(python), "install", "--quiet", "--dry-run", "--report", report]
            command += [*_isolation(requirements), *requirements]
            _check(run(command, timeout_seconds=TIMEOUT_SECONDS, environ=_build_environ({})))
            found: list[dict[str, Any]] = json.loads(Path(report).read_text(encoding="utf-8"))["install"]
            return found


def find_installer(name: str | None = None) -> Installer:
    """Return uv where there is one, else pip.

    Raises:
        UsageError: uv was asked for and is not there.
    """
    uv = find_program("uv")
    if name in (None, "uv") and uv.path is not None:
        return Uv(uv.path)
    if name == "uv":
        raise UsageError(
            uv.describe_absence(),
            hint=f"{tell_remedy('uv')}; or --python PYTHON --installer pip",
        )
    return Pip()


def _pip_for(python: str) -> list[str]:
    """Return a pip that installs for an interpreter: its own, else that of another interpreter (`pip --python`).

    Raises:
        UsageError: there is no pip anywhere.
    """
    for owner in dict.fromkeys((python, *interpreters())):
        pip = [owner, "-I", "-m", "pip"]
        if run([*pip, "--version"], timeout_seconds=30).succeeded:
            return pip if owner == python else [*pip, "--python", python]
    msg = "there is neither uv nor pip to install releases with"
    raise UsageError(msg, hint=tell_remedy("uv"))


def _pin(item: Mapping[str, Any]) -> str:
    """Return what installs an entry of pip's report again: from where it came, where that was no index."""
    name, where = item["metadata"]["name"], item["download_info"]
    if not item.get("is_direct"):
        return f"{name}=={item['metadata']['version']}"
    revision = where.get("vcs_info")
    url = f"{revision['vcs']}+{where['url']}@{revision['commit_id']}" if revision else where["url"]
    return f"{name} @ {url}" + (f"#subdirectory={where['subdirectory']}" if where.get("subdirectory") else "")


def _isolation(requirements: Sequence[str]) -> list[str]:
    return ["--no-build-isolation"] if _built_with_torch(requirements) else []


def is_shared(name: str) -> bool:
    """Tell whether a distribution comes with torch, from the base."""
    plain = canonicalize_name(name)
    return any(plain == shared or (shared.endswith("*") and plain.startswith(shared[:-1])) for shared in SHARED)


def _built_with_torch(requirements: Sequence[str]) -> list[str]:
    """Return the requirements whose sdist imports torch when it is built."""
    return [
        name
        for name in (Requirement(text).name for text in requirements)
        if name.lower() in {"deepspeed", "flash-attn"}
    ]


def _build_environ(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a build: the person's compilers, and what keeps DeepSpeed from compiling its operators."""
    return {**small_environment(more=_BUILD), "DS_BUILD_OPS": "0", **extra}


def _check(completed: Completed) -> Completed:
    if not completed.succeeded:
        raise UnbuildableError(explain_failure(completed))
    return completed


def explain_failure(completed: Completed) -> str:
    """Find the line that says why: the last exception of a build, else what the installer began with."""
    if completed.failure is not None:
        return completed.failure
    home = os.path.expanduser("~")
    text = redact(completed.output).replace(home, "~") if len(home) > 1 else redact(completed.output)
    lines = [line.strip(_FRAME) for line in text.splitlines() if line.strip(_FRAME)]
    raised = [line for line in lines if _RAISED.match(line)]
    if raised:
        return f"its build fails: {raised[-1][:300]}"
    said = _VERSIONS.sub("", " ".join(lines)).removeprefix("error: ").removeprefix("ERROR: ")
    return said[:600] or f"exit code {completed.returncode}"
