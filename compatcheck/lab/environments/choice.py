"""How the person wants environments to be made: the interpreter with torch, and what is laid over it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from compatcheck.core.errors import UsageError
from compatcheck.lab.environments.installer import find_installer
from compatcheck.lab.environments.overlay import Base, Overlays, build_base


class EnvironmentChoice(NamedTuple):
    """How the person wants environments to be made."""

    python: str | None
    torch: str | None
    beside: tuple[str, ...]
    installer: str | None

    def base(self) -> Base:
        """Find or build the interpreter with torch.

        Raises:
            UsageError: there is none.
            UnbuildableError: it could not be built.
        """
        if self.torch is not None:
            return build_base(self.torch, python=self.python)
        if self.python is not None:
            return Base(self.python)
        for candidate in _candidates():
            try:
                return Base(candidate)
            except UsageError:
                continue
        msg = "no interpreter with torch was found"
        raise UsageError(msg, hint="name one: --python PYTHON, or build one: --torch 2.13.0+cpu (needs uv)")

    def overlays(self) -> Overlays:
        """Return the overlays over that interpreter.

        Raises:
            UsageError: there is none, or --with is no requirement.
            UnbuildableError: it could not be built.
        """
        for text in self.beside:
            try:
                Requirement(text)
            except InvalidRequirement as error:
                msg = f"--with {text!r} is no requirement: {str(error).splitlines()[0]}"
                raise UsageError(msg, hint="as --with transformers==4.57.6") from None
        end_cleanly()
        return Overlays(self.base(), installer=find_installer(self.installer))


def end_cleanly() -> None:
    """Treat a request to terminate, and an interrupt that a shell has switched off, like Ctrl-C: no process stays behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def _candidates() -> list[str]:
    prefix = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    found = [sys.executable, os.path.join(prefix, "bin", "python") if prefix else None, shutil.which("python3")]
    return list(dict.fromkeys(path for path in found if path and os.path.exists(path)))
