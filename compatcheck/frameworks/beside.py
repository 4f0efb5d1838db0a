"""Where a file lies that another file names."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.core.command import Command
    from compatcheck.core.files import Files

_MAX_ABOVE = 6
"""How many directories above a file are tried as the one its program is started in."""


def find_beside(base: str, name: str, files: Files) -> str:
    """Resolve a path that a file names, from the directory its program is started in, which nobody can tell.

    The nearest directory that has it wins, from the naming file's own upwards to the working directory or a repository's root;
    where neither lies above, a bare name is looked for beside the naming file alone. How the naming file's path was
    written makes no difference, and what happens to lie in an unrelated working directory is not taken.
    """
    if os.path.isabs(name) or "://" in name:
        return name
    directories = _starting_directories(os.path.dirname(os.path.abspath(base)), files, bare=not os.path.dirname(name))
    found = (os.path.normpath(os.path.join(directory, name)) for directory in directories)
    file = next(filter(files.exists, found), os.path.normpath(os.path.join(directories[0], name)))
    return file if os.path.isabs(base) else os.path.relpath(file)


def find_started(command: Command, name: str, files: Files) -> str:
    """Find what a command names, below the directory that its script has entered or where the script may be started."""
    base = command.source.path
    found = (find_beside(base, one, files) for one in (*command.names_here(name), name))
    return next(filter(files.exists, found), find_beside(base, name, files))


def find_of_another_machine(base: str, name: str, files: Files) -> str | None:
    """Find what a path of another machine (``/workspace/scripts/env.sh``) names in the project that the naming file is in.

    As much of its end is kept as lies there, a directory at least; whoever reads the file has to say what it is taken for.
    """
    parts = os.path.normpath(name).split(os.sep)[1:] if os.path.isabs(name) else []
    tails = (os.path.join(*parts[at:]) for at in range(1, len(parts) - 1))
    found = (find_beside(base, tail, files) for tail in tails)
    return next(filter(files.is_file, found), None)


def _starting_directories(directory: str, files: Files, *, bare: bool) -> list[str]:
    """Return a directory and those above it that a program may be started in."""
    here, above = os.getcwd(), [directory]
    while len(above) <= _MAX_ABOVE:
        last = above[-1]
        if last == here or files.exists(os.path.join(last, ".git")):
            return above
        above.append(os.path.dirname(last))
    return [directory] if bare else above
