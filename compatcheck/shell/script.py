"""Read a script: the commands it would run, the files it writes, and what is not known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.shell.evaluate import Evaluator
from compatcheck.shell.grammar import Parser
from compatcheck.shell.limits import LimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compatcheck.core.command import Command, Word
    from compatcheck.shell.reading import OpenFile, StandIn

MAX_BYTES = 1 << 20
"""Largest script that is read."""

_HEADER = re.compile(r"#SBATCH[ \t]+-")


class Assumption(NamedTuple):
    """What the reading of a script rests on."""

    text: str
    """``$NNODES is not set``, ``no arguments are given``."""
    source: Source
    """The line that first needed it."""


class Script(NamedTuple):
    """What a script does, as far as it tells."""

    path: str
    commands: tuple[Command, ...]
    """In the order they would run; bash's own (``export``, ``echo``, ``test``) and plain text filters are read, not listed."""
    queries: tuple[Command, ...]
    """Commands run only for their output, inside of ``$( … )``, or on a signal."""
    alternatives: tuple[Command, ...]
    """Commands of ways that it goes only if something is given from outside that is taken as not given."""
    files: Mapping[str, Word]
    """What the script leaves in files it writes or changes, by the path as it spells it: a ds_config.json in a here-document."""
    variables: Mapping[str, Word]
    """What its variables hold at the end; arrays are left out."""
    skipped: tuple[Skipped, ...]
    """What was not read, with its line: sourced files, syntax errors, what goes beyond the limits."""
    assumptions: tuple[Assumption, ...]
    """What the choice of branches rests on; what a word rests on stands with the word."""
    effort: float
    """How much of what is read of one script it took: 1 for all statements, commands or work that are."""


def read_script(  # noqa: PLR0913 (what surrounds a script, by keyword)
    path: str,
    text: str,
    *,
    variables: Mapping[str, str] | None = None,
    arguments: Sequence[str] | None = None,
    assuming: bool = True,
    stand_in: StandIn | None = None,
    first_line: int = 1,
    place: Callable[[int], int] | None = None,
    open_file: OpenFile | None = None,
) -> Script:
    """Read a bash script without running anything.

    Args:
        path: what sources name.
        text: its text.
        variables: environment variables it is started with; ``0`` is what ``$0`` holds, and with ``PWD``, its directory, ``cd``
            is followed. Any other that the script does not set is unknown, but
            ``${X:-d}`` and ``[ -z "$X" ]`` take it as not set and say so.
        arguments: its arguments; None says that they are unknown: ``$1`` is, and loops over them are passed over.
        assuming: whether a branch is chosen by what is not set, and by commands such as ``cd`` that fail by accident only.
            Without, both ways are read, and what stands behind ``program &&`` runs: a build goes no further where it fails.
        stand_in: given the words of ``source FILE …`` or of a program, and what looks variables up, returns the shell text that
            they stand for (the file's, or what ``conda activate`` sets); None where it knows none. By default sourced files are
            said and passed over.
        first_line: the line of the file that the text begins in.
        place: gives the line of an offset in a text that was joined from several lines of the file.
        open_file: gives the files that it starts or sources. With it, shells that it starts are read as parts of it; without
            they are commands like others.

    Raises:
        InputError: it is larger than ``MAX_BYTES``.
    """
    if len(text) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES >> 20} MiB, which no script is"
        raise InputError(message, source=Source(path), hint="check that this is the file you mean")
    text = text.removeprefix("\ufeff")
    windows = "\r\n" in text
    slurm = _is_batch_job(text)
    evaluator = Evaluator(path, variables or {}, arguments, slurm=slurm, assuming=assuming, stand_in=stand_in)
    evaluator.open_file = open_file
    if open_file is not None:
        evaluator.name_source(path)
    if windows:
        reason = "has Windows line ends, which bash takes as part of words; they are read as plain line ends"
        evaluator.skip(1, reason, passes=True)
        text = text.replace("\r\n", "\n")
    try:
        evaluator.run(Parser(text, line=first_line, place=place).parse())
    except LimitError as error:
        evaluator.skip(evaluator.line, f"{error}; the rest is not read", "check the loop or function there")
    except RecursionError:
        evaluator.skip(evaluator.line, "is nested too deep; the rest is not read", "check the brackets there")
    state = evaluator.state
    return Script(
        path,
        tuple(evaluator.commands),
        tuple(evaluator.queries),
        tuple(evaluator.alternatives),
        {name: evaluator.word(value, None, 1) for name, value in state.files.items() if value},
        {
            name: evaluator.word(one.value, None, one.line)
            for name, one in state.variables.items()
            if one.value is not None and not name.startswith("__")
        },
        tuple(evaluator.skipped.values()),
        tuple(Assumption(one, evaluator.source(line)) for one, line in evaluator.assumptions.items()),
        evaluator.effort,
    )


def _is_batch_job(text: str) -> bool:
    """Tell whether ``#SBATCH`` lines stand in front of the first command, up to which sbatch reads them."""
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if _HEADER.match(line):
            return True
    return False
