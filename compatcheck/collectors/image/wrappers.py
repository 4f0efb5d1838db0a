"""Programs that start the command behind them: ``tini``, ``gosu``, ``mpirun``, ``uv run``; and what Python is called."""

from __future__ import annotations

import posixpath
import re

from compatcheck.core.data_file import read_data
from compatcheck.rules.programs import installed_tools

PYTHON = r"(?:python|pypy)[\d.]*t?"
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_TABLE = read_data(__file__, "wrappers")
WRAPPERS: dict[str, tuple[str, int]] = {name: (letters, own) for name, (letters, own) in _TABLE["wrappers"].items()}
"""Program → its one-letter options that take a value, and the words before the command it starts."""

UV_VALUES = frozenset(_TABLE["uv_values"])
"""Options of ``uv run`` with a value behind a blank."""
CONDA_VALUES = frozenset({"--cwd", "-r", "--root-prefix", "--rc-file"})
SPREADERS = frozenset({"mpirun", "mpiexec", "orterun", "prun", "srun", "jsrun", "nsys", "ncu"})
"""Programs with options of their own in front of the command they start, too many to be listed here."""
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "ray", "jupyter"})
"""Console scripts that train or serve, and belong to no program with a record."""
RUNNERS = frozenset({"poetry", "pdm", "pipenv", "hatch", "rye", "pixi"})


def skip_options(words: list[str]) -> list[str]:
    """Return the command behind a wrapper's options and own words."""
    name = posixpath.basename(words[0])
    values, own = WRAPPERS[name]
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option == "--":
            break
        if name == "env" and option in {"-S", "--split-string"} and rest:
            return [*rest.pop(0).split(), *rest]
        if name == "env" and option.startswith("-S"):
            return [*option[2:].split(), *rest]
        if len(option) == 2 and option[1] in values and rest:
            rest.pop(0)
    return rest[own:]


def is_launcher(path: str) -> bool:
    """Tell whether a file is a console script that trains or serves."""
    name = posixpath.basename(path)
    return name in _LAUNCHERS or name in installed_tools()


def is_started(word: str) -> bool:
    """Tell whether a word is a program that such a command starts, not an option's value."""
    name = posixpath.basename(word)
    return is_launcher(name) or name in SHELLS or re.fullmatch(PYTHON, name) is not None
