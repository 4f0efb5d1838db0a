"""A training program with its own arguments: what is left of a command without its launchers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.command import Command, Word
    from compatcheck.core.document import Document


class Launch(NamedTuple):
    """A training program with its own arguments."""

    program: str
    """Path of a script, dotted name of a module, or a tool with its sub-command: ``llamafactory-cli train``."""
    kind: str
    """``script``, ``module`` or ``tool``."""
    arguments: tuple[Word, ...]
    command: Command
    launchers: tuple[str, ...]
    """Names of what was taken off, outermost first."""
    documents: tuple[Document, ...]
    """What the launchers themselves say."""
    variables: Mapping[str, str]
    """Environment variables whose values are known."""

    @property
    def file(self) -> str:
        """Path of what it starts, of a module by its name."""
        return f"{self.program.replace('.', '/')}.py" if self.kind == "module" else self.program
