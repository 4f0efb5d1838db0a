"""The environments the benchmarks look at: a real training stack, and the same stack with many more distributions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
TORCH = "torch==2.13.0+cpu"
DEEPSPEED = "deepspeed==0.16.4"
DEEPSPEED_NEEDS = (
    "einops",
    "hjson",
    "msgpack",
    "ninja",
    "numpy",
    "packaging",
    "psutil",
    "py-cpuinfo",
    "pydantic",
    "setuptools",
)
"""What its build and its metadata ask for besides torch."""


def find_uv() -> str:
    """Return uv's own binary.

    A version manager's shim of the same name is a shell script, and its start-up would be counted as uv's.

    Raises:
        SystemExit: there is none.
    """
    try:
        from uv import find_uv_bin  # noqa: PLC0415 (optional)
    except ImportError:
        pass
    else:
        return find_uv_bin()
    for directory in os.get_exec_path():
        path = shutil.which("uv", path=directory)
        if path and Path(path).read_bytes()[:2] != b"#!":
            return path
    raise SystemExit("no uv binary on PATH; `pip install uv`, or give --uv")


def count_distributions(environment: Path) -> int:
    """Count the distributions installed in an environment."""
    return sum(1 for _ in site_packages(environment).glob("*.dist-info"))


def site_packages(environment: Path) -> Path:
    """Return an environment's directory of packages."""
    return next(environment.glob("lib/python*/site-packages"))


def interpreter(environment: Path) -> str:
    """Return an environment's Python."""
    return str(environment / "bin" / "python")


def build_wheel(uv: str, directory: Path) -> Path:
    """Build compatcheck's wheel from this checkout."""
    _run(uv, "build", "--wheel", "--quiet", "--out-dir", str(directory), str(REPOSITORY))
    return next(directory.glob("compatcheck-*.whl"))


def build_own(uv: str, path: Path, wheel: Path, python: str) -> None:
    """Build an environment that holds compatcheck and what it needs, as uvx or pipx would."""
    _create(uv, path, python)
    _install(uv, path, "--compile-bytecode", str(wheel))


def build_real(uv: str, path: Path, wheel: Path, python: str) -> None:
    """Build the training stack, and put compatcheck into it too.

    The CPU build of torch is found through ``UV_FIND_LINKS`` or ``UV_INDEX``; without one, torch and deepspeed stay out
    rather than pull a CUDA build.
    """
    _create(uv, path, python)
    requirements = ["-r", str(HERE / "inputs" / "requirements.txt")]
    if _resolves(uv, path, TORCH):
        _install(uv, path, TORCH, *requirements)
        _build_deepspeed(uv, path)
    else:
        print(f"{TORCH} is not to be had; the stack goes without torch", file=sys.stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as excludes:
            excludes.write("torch\n")
            excludes.flush()
            _install(uv, path, "--excludes", excludes.name, *requirements)
    _install(uv, path, "--compile-bytecode", str(wheel))


def build_tool(uv: str, path: Path, python: str, requirement: str, *, inside: bool) -> None:
    """Build an environment for another tool.

    Args:
        uv: its binary.
        path: where.
        python: interpreter to build it with.
        requirement: the tool and its release.
        inside: put torch (CPU build) and deepspeed beside it, for a tool that looks at the environment it lives in.
    """
    _create(uv, path, python)
    if inside:
        _install(uv, path, TORCH, *DEEPSPEED_NEEDS)
        _build_deepspeed(uv, path)
    _install(uv, path, "--compile-bytecode", requirement)


def _build_deepspeed(uv: str, path: Path) -> None:
    command = [uv, "pip", "install", "--quiet", "-p", interpreter(path), "--no-build-isolation", DEEPSPEED]
    _run(*command, env={**os.environ, "DS_BUILD_OPS": "0"})


def build_large(uv: str, path: Path, wheel: Path, python: str, count: int) -> None:
    """Build the training stack and fill it up to ``count`` distributions.

    The filling is generated: wheels with the metadata of the real distributions under new names, so that sizes and
    requirements are real, one module each. uv installs them by name from a directory that stands for an index; from
    their paths it would mark each as a direct reference, which few distributions of a real environment are.
    """
    build_real(uv, path, wheel, python)
    with tempfile.TemporaryDirectory() as directory:
        names = _copy_metadata(site_packages(path), Path(directory), count - count_distributions(path))
        source = ("--no-index", "--find-links", directory)
        _install(uv, path, "--compile-bytecode", "--no-deps", *source, *names)


def replace_compatcheck(uv: str, path: Path, wheel: Path) -> None:
    """Replace compatcheck in an environment by a newer build."""
    _install(uv, path, "--compile-bytecode", "--no-deps", "--reinstall-package", "compatcheck", str(wheel))


def _copy_metadata(packages: Path, directory: Path, wanted: int) -> list[str]:
    """Write wheels and return their requirements."""
    names: list[str] = []
    sources = sorted(packages.glob("*.dist-info"))
    while len(names) < wanted:
        source = sources[len(names) % len(sources)]
        stem, version = source.name.removesuffix(".dist-info").rsplit("-", 1)
        name = f"filling_{len(names) // len(sources)}_{stem}"
        text = (source / "METADATA").read_text(encoding="utf-8", errors="replace")
        text = re.sub(r"(?m)^Name: .*$", f"Name: {name.replace('_', '-')}", text, count=1)
        info = f"{name}-{version}.dist-info"
        members = {
            f"{name}/__init__.py": "",
            f"{info}/METADATA": text,
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: benchmark\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        members[f"{info}/RECORD"] = "".join(f"{member},,\n" for member in (*members, f"{info}/RECORD"))
        wheel = directory / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        names.append(f"{name}=={version}")
    return names


def _create(uv: str, path: Path, python: str) -> None:
    _run(uv, "venv", "--quiet", "--clear", "--python", python, str(path))


def _install(uv: str, path: Path, *arguments: str) -> None:
    _run(uv, "pip", "install", "--quiet", "-p", interpreter(path), *arguments)


def _resolves(uv: str, path: Path, requirement: str) -> bool:
    command = [uv, "pip", "install", "--quiet", "--dry-run", "--no-deps", "-p", interpreter(path), requirement]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _run(*command: str, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, env=env)
