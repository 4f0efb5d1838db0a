"""How the person wants environments to be made: the interpreter with torch, and what is laid over it."""

from __future__ import annotations

import os
import shlex
import signal
import sys

from packaging.requirements import InvalidRequirement, Requirement

from compatcheck.core.builds import index_of
from compatcheck.core.errors import UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.programs import find_program
from compatcheck.lab.environments.installer import Uv, find_installer
from compatcheck.lab.environments.overlay import Base, Overlays, build_base
from compatcheck.services.pip_index import describe_index


class EnvironmentChoice(NamedTuple):
    """How the person wants environments to be made."""

    python: str | None = None
    torch: str | None = None
    beside: tuple[str, ...] = ()
    installer: str | None = None

    @property
    def options(self) -> str:
        """The options that name this interpreter again, with a blank before each; none for the one that is found."""
        named = (("--python", self.python), ("--torch", self.torch))
        return "".join(f" {option} {shlex.quote(value)}" for option, value in named if value is not None)

    def describe(self, *, installs: bool = True) -> str:
        """Say what will be run, and which index is asked, before either happens."""
        if self.torch is not None:
            where = f"an interpreter with torch {self.torch}, built by uv"
            if own := index_of(self.torch):
                where += f" (torch from {own} where the index has no such build)"
        else:
            where = self.python or " or ".join(_candidates()) + ", whichever has torch"
        said = f"runs the code of the packages in {where}"
        if not (installs or self.beside or self.torch):
            return said
        installer = find_installer(self.installer)
        program = f"{installer.name} ({installer.program})" if isinstance(installer, Uv) else installer.name
        return f"{said}; {program} installs what it lacks beside it, from {describe_index(installer.name)}"

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
        raise UsageError(
            msg, hint="name one: --python PYTHON; the measuring commands build one: --torch 2.13.0+cpu (needs uv)"
        )

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
    active = os.path.join(os.path.abspath(prefix), "bin", "python") if prefix else None
    found = (sys.executable, active, find_program("python3", own=False).path)
    return list(dict.fromkeys(path for path in found if path and os.path.exists(path)))
