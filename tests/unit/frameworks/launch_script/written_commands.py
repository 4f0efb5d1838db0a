"""Commands as a script would give them, from one line: ``$NAME`` is a word nobody knows."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from compatcheck.core.command import Command, Word
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.launch_script.commands import read_commands
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch_script.commands import TrainingCommand

LINE = 7
"""Line all words stand in."""


def word(text: str) -> Word:
    names = tuple(re.findall(r"\$\w+", text))
    return Word(None if names else text, Source("train.sh", None, LINE), text, names)


def command(text: str, **variables: str) -> Command:
    given = {name: word(value) for name, value in variables.items()}
    return Command(tuple(map(word, shlex.split(text))), given, Source("train.sh", None, LINE))


def runs(*texts: str, files: Mapping[str, str] | None = None, **variables: str) -> tuple[TrainingCommand, ...]:
    return read_commands([command(text, **variables) for text in texts], files)


def documents(text: str, **variables: str) -> tuple[Document, ...]:
    found = runs(text, **variables)
    assert len(found) == 1
    return found[0].documents


def facts(document: Document, role: str | None = None) -> dict[str, Any]:
    """Return what one document states about a role, and about all of them."""
    chosen = [entry for entry in document.statements if entry.fact is not None and entry.role in (None, role)]
    return {str(entry.fact): entry.value for entry in sorted(chosen, key=lambda entry: entry.role is not None)}


def resolved(text: str, role: str = "train", **releases: str) -> dict[str, Any]:
    """Return the facts of a role of a run that one command starts, with what its program does where it is told nothing."""
    known = {name: Package(name, version, Source("env")) for name, version in releases.items()}
    environment = Environment("env", known, complete=False) if known else None
    roles = resolve("s", rules=open_rules(()), environment=environment, documents=documents(text)).roles
    return {name: fact.value for name, fact in roles[role].items()}


def ranks(launch: Launch) -> dict[str, Any]:
    """Return what launchers state about ranks; facts whose value nobody knows are None."""
    found: dict[str, Any] = {}
    for document in launch.documents:
        if document.reader == "launcher":
            found |= {str(entry.fact): entry.value for entry in document.statements}
            found |= {str(entry.fact): None for entry in document.unresolved}
    return found
