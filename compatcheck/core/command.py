"""A command as a launch script would run it: its words, where each was written, and what could not be known."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.source import Source


class Word(NamedTuple):
    """One word of a command after expansion."""

    text: str | None
    """Its value; None when it depends on something the script does not tell."""
    source: Source
    """Where it was written: the script, and the line of the word (or of the assignment that gave its value)."""
    written: str
    """As the script spells it, with every variable it knows filled in: ``trainer.nnodes=$N_NODES``."""
    unresolved: tuple[str, ...] = ()
    """What keeps it from being known: names of variables (``$N_NODES``), commands (``$(hostname)``), patterns of file names."""
    many: bool = False
    """Whether it may stand for no word or for several: an unknown value without quotes, ``"$@"``, a pattern of file names."""
    assumes: tuple[str, ...] = ()
    """What the value rests on: ``$NNODES is not set`` for ``${NNODES:-1}``."""
    choices: tuple[tuple[Word, ...], ...] = ()
    """Lists of words one of which it stands for, where each of them is known: an array that a condition extends."""


class Command(NamedTuple):
    """One simple command of a script, in the order it would run."""

    words: tuple[Word, ...]
    """Program and arguments."""
    variables: Mapping[str, Word]
    """Environment it is given: exported variables and assignments in front of it."""
    source: Source
    certain: bool = True
    """Whether it surely runs; False inside a branch or loop whose condition is not known."""
    condition: str | None = None
    """That condition, as written."""
    stdin: Word | None = None
    """Text on its standard input: a here-document, a here-string, the output of a known command before it in a pipe."""
    files: Mapping[str, Word] = {}
    """What files hold by then that the script has written and its words name, by normal path."""
    directory: str = ""
    """Where it is started, seen from where the script is; with a slash in front where only an end of its path is known."""

    def names_here(self, name: str) -> Iterator[str]:
        """Yield what a path that it names may be where the script is started, the likeliest first."""
        return names_below(self.directory, name)


def names_below(directory: str, name: str) -> Iterator[str]:
    """Yield what a path below a directory may be in a project; of an absolute one, of another machine, each end may lie there."""
    if posixpath.isabs(name) or "://" in name:
        return
    parts = directory.strip("/").split("/") if directory else []
    for at in range(len(parts) if directory.startswith("/") else bool(parts)):
        yield posixpath.normpath(posixpath.join(*parts[at:], name))
