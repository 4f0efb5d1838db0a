"""What an installation of compatcheck can do: what is there, and what each missing part would add."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUIREMENTS = {"mcp": "mcp>=2.2,<3", "ray": "ray>=2.9"}
"""What is asked for of packages of which not every release will do, as the extras of `pyproject.toml` do."""
_PROGRAMS = ("uv", "pip-audit")
"""Packages that are run, and may be so from anywhere."""
_TOOLS = {"pipx_metadata.json": "pipx", "uv-receipt.toml": "uv tool"}
"""What installers of programs leave beside one."""


class Part(NamedTuple):
    """A program, package or device that something needs."""

    name: str
    enables: str
    """What is done with it."""
    version: str | None = None
    """None where it is not there, or does not say."""
    place: str | None = None
    """Path of a program or an environment; None where there is none."""
    remedy: str | None = None
    """How to get it; None where it is there."""


class Installation(NamedTuple):
    """One installation, as it was found."""

    version: str
    kind: str
    """``checkout``, ``package``, ``pipx``, ``uv tool`` or ``archive`` (one file that Python runs)."""
    place: str
    python: str
    interpreter: str
    rules_date: str
    """Day the rules were last reviewed, ``2026-11-21``."""
    rules_age_days: int
    rules_count: int
    rules_id: str
    parts: tuple[Part, ...]


def find_tool() -> str | None:
    """Tell which installer of programs this environment belongs to: ``pipx``, ``uv tool`` or none."""
    return next((tool for name, tool in _TOOLS.items() if os.path.exists(os.path.join(sys.prefix, name))), None)


def tell_remedy(name: str, environ: Mapping[str, str] | None = None) -> str:
    """Say how a missing package comes to where compatcheck runs, by the way that this was installed and what there is.

    Args:
        name: of the package.
        environ: variables of the process; this one's by default.
    """
    wanted, python = shlex.quote(_REQUIREMENTS.get(name, name)), _python()
    tool = find_tool()
    if tool is not None:
        return f"pipx inject compatcheck {wanted}" if tool == "pipx" else f"uv tool install compatcheck --with {wanted}"
    uv = find_program("uv", environ).path is not None
    if not _is_kept_by_system():
        if find_spec("pip") is not None:
            return f"{python} -m pip install {wanted}"
        if uv:
            return f"uv pip install --python {python} {wanted}"
        if _can_get_pip():
            return f"{python} -m ensurepip && {python} -m pip install {wanted}"
    apt = find_program("apt", environ).path is not None
    if name in _PROGRAMS and find_program("pipx", environ).path is not None:
        return f"pipx install {wanted}"
    if name in _PROGRAMS and (uv or apt):
        return f"uv tool install {wanted}" if uv else f"apt install pipx && pipx install {wanted}"
    first = "apt install python3-venv && " if apt and find_spec("ensurepip") is None else ""
    command = f"{first}{python} -m venv DIRECTORY && DIRECTORY/bin/pip install {wanted}"
    return f"in a virtual environment that compatcheck is run from: {command}"


def tell_remedy_of_pip(environ: Mapping[str, str] | None = None) -> str:
    """Say how pip comes to an interpreter of this machine."""
    if _can_get_pip():
        return f"{_python()} -m ensurepip"
    return "apt install python3-pip" if find_program("apt", environ).path is not None else tell_remedy("uv", environ)


def _python() -> str:
    return shlex.quote(sys.executable or "python3")


def _is_kept_by_system() -> bool:
    """Tell whether the system's package manager alone installs into this interpreter (PEP 668): pip and uv refuse to."""
    from sysconfig import get_path  # noqa: PLC0415 (only where something is missing)

    return sys.prefix == sys.base_prefix and os.path.exists(os.path.join(get_path("stdlib"), "EXTERNALLY-MANAGED"))


def _can_get_pip() -> bool:
    """Tell whether this is a virtual environment that pip can be put into; Debian keeps it from its own interpreter."""
    return sys.prefix != sys.base_prefix and find_spec("ensurepip") is not None
