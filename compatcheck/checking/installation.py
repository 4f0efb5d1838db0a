"""This installation: what it can do, and how to get the rest; nothing but ``--version`` of trusted programs is run."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from typing import TYPE_CHECKING

from compatcheck import __version__
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.request import Request
from compatcheck.core.errors import CompatcheckError
from compatcheck.core.installation import Installation, Part, find_tool, tell_remedy, tell_remedy_of_pip
from compatcheck.core.process import run
from compatcheck.core.programs import Program, find_program
from compatcheck.rules.locate import is_checkout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compatcheck.rules.database import RuleSet

_TIMEOUT_SECONDS = 10
_COMPILERS = ("cc", "gcc", "clang")


def examine(rules: RuleSet, environ: Mapping[str, str], *, laboratory: bool) -> Installation:
    """Find what this installation has of what its commands need.

    Args:
        rules: the database that it came with.
        environ: variables of the process.
        laboratory: whether the measuring laboratory is part of it.
    """
    from datetime import date  # noqa: PLC0415 (beside its use)

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    kind = _find_kind(package)
    return Installation(
        version=__version__,
        kind=kind,
        place=os.path.dirname(package),
        python=".".join(map(str, sys.version_info[:3])),
        interpreter=sys.executable,
        rules_date=rules.date,
        rules_age_days=max((date.today() - date.fromisoformat(rules.date)).days, 0),  # noqa: DTZ011 (days are enough)
        rules_count=rules.count,
        rules_id=rules.id,
        parts=tuple(_find_parts(rules, environ, kind, laboratory=laboratory)),
    )


def _find_kind(package: str) -> str:
    """Tell how compatcheck was installed, from where its package lies and what its installer leaves beside it."""
    if not os.path.isdir(package):
        return "archive"
    if is_checkout():
        return "checkout"
    return find_tool() or "package"


def _tell_replacement(kind: str, what: str) -> str:
    """Say what to do where this installation cannot have a part."""
    way = "run it from a checkout or an installed package instead" if kind == "archive" else "install it whole"
    return f"this {kind} comes without {what}: {way}"


def _find_parts(rules: RuleSet, environ: Mapping[str, str], kind: str, *, laboratory: bool) -> Iterator[Part]:
    """Find what commands of this installation need; what only measuring needs, where it can measure."""

    def uses(own: str, measuring: str) -> str:
        return f"{own}; {measuring}" if laboratory else own

    yield from _find_machine(rules, environ, uses)
    checks = "`fix` checks that releases fit together"
    builds = uses(checks, "--torch and bisect build environments with it")
    yield _part(find_program("uv", environ), builds, tell_remedy("uv", environ))
    own = _module("pip-audit", "pip_audit", "--security asks for advisories", tell_remedy("pip-audit", environ))
    yield own if own.remedy is None else _part(find_program("pip-audit", environ), own.enables, own.remedy or "")
    git = find_program("git", environ)
    yield _part(git, "`diff` compares revisions: HEAD~1:uv.lock", "install git, as in `apt install git`")
    zstd = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    yield _module("zstd", zstd, "`image` reads layers compressed with zstd", tell_remedy("backports.zstd", environ))
    yield _module("Jinja2", "jinja2", "`--format html` writes a page", tell_remedy("Jinja2", environ))
    yield _module("mcp", "mcp", "`compatcheck mcp` answers an assistant", tell_remedy("mcp", environ))
    yield _module(
        "ray",
        "ray",
        "`--ray` works on a Ray cluster, and `compatcheck fleet env --address` asks one",
        tell_remedy("ray", environ),
    )
    compiled = _tell_replacement(kind, "what is compiled") if kind == "archive" else tell_remedy("PyYAML", environ)
    yield _module("libyaml", "yaml._yaml", "large YAML files are read several times faster", compiled)
    if laboratory:
        yield from _find_measuring(environ)
    yield Part(
        "laboratory",
        "confirm, bisect, sweep, probe, evidence and --trace measure",
        __version__ if laboratory else None,
        remedy=None if laboratory else _tell_replacement(kind, "what measures"),
    )


def _find_measuring(environ: Mapping[str, str]) -> Iterator[Part]:
    """Find what the laboratory alone has a use for."""
    installs = "bisect, sweep and confirm install releases where there is no uv"
    yield _module("pip", "pip", installs, tell_remedy_of_pip(environ))
    found = next((one for name in _COMPILERS if (one := find_program(name, environ)).path), Program("C compiler", None))
    yield _part(
        found,
        "probes on a CPU count the allocator's bytes instead of tensors' storages",
        "install a C compiler, as in `apt install gcc`",
    )


def _find_machine(rules: RuleSet, environ: Mapping[str, str], uses: Callable[[str, str], str]) -> Iterator[Part]:
    """Find what `env` looks at: the environment and its torch, devices and driver."""
    trace = uses("what `env` checks", "--trace and probes run in an interpreter with it")
    devices = uses("`env` knows what a run has to fit into", "probes run on CUDA")
    activate = "activate an environment with torch, or name one: --python PYTHON"
    try:
        (subject, *_) = gather_all(as_inspection(Request()), rules, environ).subjects
    except (CompatcheckError, ValueError):
        yield Part("torch", trace, remedy=activate)
        yield Part("GPU", devices, remedy="declare one: --gpu 8xH100-80GB")
        return
    environment = subject.environment
    torch, place, hardware = (
        (None, None, None)
        if environment is None
        else (environment.packages.get("torch"), environment.origin, environment.hardware)
    )
    yield Part("torch", trace, torch and str(torch.version), place, None if torch else activate)
    reason = "; ".join(entry.reason for entry in hardware.skipped) if hardware else ""
    name = None if hardware is None or hardware.gpu is None else f"{hardware.gpus_per_node or 1} × {hardware.gpu}"
    driver = f"driver {hardware.driver}" if hardware is not None and hardware.driver else None
    get = f"declare one: --gpu 8xH100-80GB{f' ({reason})' if reason else ''}"
    yield Part("GPU", devices, name, driver, None if name else get)


def _part(program: Program, enables: str, remedy: str) -> Part:
    """Describe a program with what it says of its version."""
    if program.path is None:
        why = f"{program.describe_absence()}; " if program.refused else ""
        return Part(program.name, enables, remedy=why + remedy)
    done = run([program.path, "--version"], timeout_seconds=_TIMEOUT_SECONDS)
    said = re.search(r"\b\d+\.[\w.+-]*\w", done.output) if done.succeeded else None
    return Part(program.name, enables, said[0] if said else None, program.path)


def _module(name: str, module: str, enables: str, remedy: str) -> Part:
    """Describe a package of this interpreter, which is not imported."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # of the package it would lie in
        spec = None
    if spec is None:
        return Part(name, enables, remedy=remedy)
    try:
        version = version_of({"libyaml": "PyYAML", "zstd": "backports.zstd"}.get(name, name))
    except PackageNotFoundError:  # a part of Python itself
        version = None
    return Part(name, enables, version)
