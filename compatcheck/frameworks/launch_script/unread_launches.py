"""Trainings that stand in the words, the input or a written file of a command that is not known to start another one."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from compatcheck.core.command import Command, Word
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.launch_script.commands import TrainingCommand, read_launch
from compatcheck.frameworks.launch_script.launchers import is_launcher, remove_launchers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_MAX_TRIALS = 5
"""Words of one command at which a training is looked for."""
_IN_LIST = re.compile(r"""["'],\s*["']""")
_END = re.compile(r"[\"'`;|&()\[\]{}]+")
_SAYS = re.compile(r"\s*(?:#|(?:echo|print|printf)\b)")
"""What begins a line that starts nothing."""
_OPTION = re.compile(r"-|[\w.+]+=|.*\.(?:ya?ml|json|toml)$")


def find_unread_launches(commands: Iterable[Command], files: Mapping[str, str]) -> Iterator[Skipped]:
    """Yield what names a training, with options of its own, that is started in a way that is not read.

    Args:
        commands: of one script.
        files: files the script itself writes, by path.
    """
    seen: set[str] = set()
    for command in commands:
        first, *others = command.words
        given = [word.text for word in (*command.words, *([command.stdin] if command.stdin else [])) if word.text]
        texts = [text for text in (*given, *(files[text] for text in given if text in files)) if text not in seen]
        seen.update(texts)
        named = None if remove_launchers(command) else _find_among(others, command)
        for text in texts if named is None else ():
            named = named or _find_in_text(text, command)
        if named is not None:
            program = os.path.basename(first.text or first.written)
            reason = f"names a training that {program} may start, which is not read: {named}"
            yield Skipped(
                command.source, reason, "name the script that starts it, or state what it sets in a facts file"
            )


LAUNCHES = lazy_compile(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate[-\"', ]+launch"
    r"|deepspeed|llamafactory-cli|axolotl|openrlhf|verl|swift|trl|tune)\b"
)
"""Words without one of which no command is looked at."""
_MOST_CHARACTERS = 65_536
"""Of one command."""
_GOES_ON = re.compile(r"[\\^`][ \t]*\r?$")
_FILLED_IN = re.compile(r"\{\{(?:(?!\{\{|\}\}).)*\}\}|\{%(?:(?!\{%|%\}).)*%\}")
_KEY = re.compile(r"^[\w.-]+[ \t]*[:=][ \t]+(?=\S)")
_REMARK = re.compile(r"\s*(?:rem\b|::|//|--\s)", re.IGNORECASE)
_IN_NOTEBOOK = re.compile(r'\s*"\s*(?:[!%]|get_ipython\(\)\.(?:system|getoutput)\()')
_RUN_CELL = re.compile(r'(?<=")%run(?=\s)')
_SHELL_CELL = re.compile(r'\s*"\s*%%(?:bash|sh|script)\b')
_NOTEBOOK_GOES_ON = re.compile(r'\\\\(?:\\n)?",?[ \t]*\r?$')
"""What a backslash at the end of a line of a cell looks like in the file."""


def find_in_file(path: str, text: str) -> Skipped | None:
    """Say that a file of a language that is not read starts a training; None where no line of it does."""
    if LAUNCHES.search(text) is None:
        return None
    begin, joined, in_shell, is_notebook = 1, "", False, path.lower().endswith(".ipynb")
    for number, line in enumerate(text.split("\n"), 1):
        begin = begin if joined else number
        if is_notebook:
            in_shell = (in_shell or _SHELL_CELL.match(line) is not None) and not line.lstrip().startswith("]")
            line = line.lstrip().removeprefix('"') if joined else line  # noqa: PLW2901 (the same, as part of the one before)
        goes_on = (_NOTEBOOK_GOES_ON if is_notebook else _GOES_ON).search(line)
        joined += f"{line[: goes_on.start()]} " if goes_on is not None else line
        if goes_on is not None and len(joined) < _MOST_CHARACTERS:
            continue
        said, joined = _KEY.sub("", _FILLED_IN.sub("X", joined)), ""
        starts = in_shell or _IN_NOTEBOOK.match(said) if is_notebook else _REMARK.match(said) is None
        said = _RUN_CELL.sub("python", said) if is_notebook else said
        if starts and LAUNCHES.search(said) is not None and (found := find_in_line(said, path, begin)) is not None:
            return found
    return None


def find_in_line(line: str, path: str, number: int) -> Skipped | None:
    """Say that a command, with its line in a file, starts a training in a way that is not read; None where it does not."""
    command = Command((), {}, Source(path, line=number))
    program = _find_in_text(line, command)
    if program is None:
        return None
    reason = f"starts a training in a way that is not read: {program}"
    return Skipped(
        command.source, reason, "write its command into a launch script, or state what it sets in a facts file"
    )


def _find_among(words: Sequence[Word], command: Command) -> str | None:
    starts = (n for n, word in enumerate(words) if word.text and is_launcher(os.path.basename(word.text)))
    return next(
        (found for _, n in zip(range(_MAX_TRIALS), starts, strict=False) if (found := _name(words[n:], command))), None
    )


def _find_in_text(text: str, command: Command) -> str | None:
    """Look for a training where a command may begin in a text; a message that mentions one holds words before it."""
    for line in text.replace("\\\n", " ").splitlines() if re.search(r"\S\s+\S", text) else ():
        for part in () if _SAYS.match(line) else _END.split(_IN_LIST.sub(" ", line)):
            words = re.sub(r"^[^A-Za-z/~]+", "", part).split()
            if len(words) > 1 and (found := _name([Word(word, command.source, word) for word in words], command)):
                return found
    return None


def _name(words: Sequence[Word], command: Command) -> str | None:
    """Return the program that words start where it is a training with options."""
    launch = remove_launchers(command._replace(words=tuple(words), stdin=None))
    if launch is None or not any(_OPTION.match(word.text or word.written) for word in launch.arguments):
        return None
    documents = read_launch(launch) if launch.kind != "script" or launch.program.endswith(".py") else ()
    return launch.program if documents and TrainingCommand(launch, documents).is_training else None
