"""What is known of each program or library that reads a configuration, as data: ``rules/_programs/<name>.yaml``.

One record says what a program is called, which packages it implies, what it is built on and how it treats keys; beside it stand
the defaults of keys left out and the traits of its code path (`compatcheck.resolution.defaults`). The records of the built-in
database count: they are as much part of the vocabulary as its names.
"""

from __future__ import annotations

from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.rules.program import Program


ANY = "any"
"""The record of what holds whatever the program."""


@lru_cache(maxsize=1)
def programs() -> Mapping[str, Program]:
    """Return every record by name."""
    from compatcheck.rules.locate import open_builtin  # noqa: PLC0415 (only where a program is asked about)
    from compatcheck.rules.program import SECTION, read_programs  # noqa: PLC0415 (as above)

    return read_programs(open_builtin().section(SECTION) or {})


def find_program(name: str) -> Program:
    """Return a record; for a name without one, a record that says nothing."""
    found = programs().get(name)
    if found is not None:
        return found
    from compatcheck.rules.program import Program  # noqa: PLC0415 (loaded with the records)

    return Program(name, name, "unknown")


def lineage(name: str) -> tuple[Program, ...]:
    """Return a program and what it is built on, the nearest first."""
    found = [find_program(name)]
    while found[-1].inherits is not None:
        found.append(find_program(found[-1].inherits))
    return tuple(found)


def trainers() -> tuple[str, ...]:
    """Return the names that ``training.framework`` can have."""
    return tuple(one.name for one in programs().values() if one.kind in {"program", "library"} and one.runs_as is None)


@lru_cache(maxsize=1)
def installed_tools() -> frozenset[str]:
    """Return the commands with sub-commands that the programs install."""
    return frozenset(tool for one in programs().values() for tool in one.tools)
