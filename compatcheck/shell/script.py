"""Read a launch script: the commands it would run, the files it writes, its batch headers, and what is not known."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.command import Command, Word
from compatcheck.core.errors import InputError
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_text
from compatcheck.shell.evaluate import Evaluator
from compatcheck.shell.grammar import Unit
from compatcheck.shell.limits import LimitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_BYTES = 1 << 20
"""Largest script that is read."""

SHORT_OPTIONS = {
    "-A": "account",
    "-C": "constraint",
    "-D": "chdir",
    "-G": "gpus",
    "-J": "job-name",
    "-N": "nodes",
    "-a": "array",
    "-c": "cpus-per-task",
    "-e": "error",
    "-n": "ntasks",
    "-o": "output",
    "-p": "partition",
    "-q": "qos",
    "-t": "time",
    "-w": "nodelist",
}
"""Short options of sbatch (https://slurm.schedmd.com/sbatch.html) by the long ones they stand for."""

_HEADER = re.compile(r"#SBATCH[ \t]+(.*)")


class Assumption(NamedTuple):
    """What the reading of a script rests on."""

    text: str
    """``$NNODES is not set``, ``no arguments are given``."""
    source: Source
    """The line that first needed it."""


class Script(NamedTuple):
    """What a launch script does, as far as it tells."""

    path: str
    commands: tuple[Command, ...]
    """In the order they would run; bash's own (``export``, ``echo``, ``test``) and plain text filters are read, not listed."""
    queries: tuple[Command, ...]
    """Commands run only for their output, inside of ``$( … )``."""
    files: Mapping[str, Word]
    """Text that the script writes into files, by the path as the script spells it: a ds_config.json in a here-document."""
    scheduler: Mapping[str, Word]
    """``#SBATCH`` options by long name: ``nodes``, ``gres``, ``ntasks-per-node``; a flag without value has the empty text."""
    variables: Mapping[str, Word]
    """What its variables hold at the end; arrays are left out."""
    skipped: tuple[Skipped, ...]
    """What was not read, with its line: sourced files, syntax errors, what goes beyond the limits."""
    assumptions: tuple[Assumption, ...]
    """What the choice of branches rests on; what a word rests on stands with the word."""


def read_script(
    path: str,
    text: str | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    arguments: Sequence[str] | None = None,
) -> Script:
    """Read a bash script without running anything or opening any other file.

    Args:
        path: the script; with ``text`` only what sources name.
        text: its text, if that is not to be read from the file.
        variables: environment variables it is started with. Any other that the script does not set is unknown, but
            ``${X:-d}`` and ``[ -z "$X" ]`` take it as not set and say so.
        arguments: its arguments; None says that they are unknown: ``$1`` is, and loops over them are passed over.

    Raises:
        InputError: the file cannot be read, is no text, or is larger than ``MAX_BYTES``.
    """
    if text is None:
        text = read_text(path)
    if len(text) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES >> 20} MiB, which no launch script is"
        raise InputError(message, source=Source(path), hint="check that this is the file you mean")
    text = text.removeprefix("\ufeff")
    windows = "\r\n" in text
    scheduler = _read_headers(path, text)
    slurm = bool(scheduler)
    evaluator = Evaluator(path, variables or {}, arguments, slurm=slurm)
    if windows:
        evaluator.skip(1, "has Windows line ends, which bash takes as part of words; they are read as plain line ends")
        text = text.replace("\r\n", "\n")
    try:
        evaluator.run(Unit(text))
    except LimitError as error:
        evaluator.skip(evaluator.line, f"{error}; the rest is not read", "check the loop or function there")
    except RecursionError:
        evaluator.skip(evaluator.line, "is nested too deep; the rest is not read", "check the brackets there")
    state = evaluator.state
    return Script(
        path,
        tuple(evaluator.commands),
        tuple(evaluator.queries),
        {
            name: evaluator.word(value, None, 1)
            for name, value in state.files.items()
            if any(piece.text for piece in value)
        },
        scheduler,
        {
            name: evaluator.word(one.value, None, one.line)
            for name, one in state.variables.items()
            if one.value is not None and not name.startswith("__")
        },
        tuple(evaluator.skipped.values()),
        tuple(Assumption(one, Source(path, None, line)) for one, line in evaluator.assumptions.items()),
    )


def _read_headers(path: str, text: str) -> dict[str, Word]:
    """Read ``#SBATCH`` lines; sbatch reads them until the first command."""
    result: dict[str, Word] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        match = _HEADER.match(line)
        if match:
            result.update(_read_options(match[1], Source(path, None, number)))
    return result


def _read_options(written: str, source: Source) -> dict[str, Word]:
    try:
        words = shlex.split(written, comments=True)
    except ValueError:
        words = written.split()
    result: dict[str, Word] = {}
    while words:
        word = words.pop(0)
        name, sign, value = word.partition("=")
        if name.startswith("--") and len(name) > 2:
            name = name[2:]
        elif word[:2] in SHORT_OPTIONS:
            name, value, sign = SHORT_OPTIONS[word[:2]], word[2:].removeprefix("="), word[2:]
        else:
            continue
        if not sign and words and not words[0].startswith("-"):
            value = words.pop(0)
        result[name] = Word(value, source._replace(key=name), written.strip())
    return result
