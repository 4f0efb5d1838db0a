"""Trainings that stand in the words, the input or a written file of a command that is not known to start another one."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from compatcheck.core.command import Command, Word
from compatcheck.core.errors import InputError
from compatcheck.core.redaction import leave_out_words
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.launch_script.commands import TrainingCommand, read_launch
from compatcheck.frameworks.launch_script.launchers import (
    find_unknown_program,
    is_launcher,
    names_launcher,
    remove_launchers,
)
from compatcheck.frameworks.python_script import notebook
from compatcheck.shell.wrappers import MAX_LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_MOST_UNKNOWN = 1000
"""Commands of one script whose options are asked what they are for."""
_MAX_TRIALS = 5
"""Words of one command at which a training is looked for."""
_MOST_IN_FILE = 10_000
"""Commands of one file in another language that are asked whether they train: about a second."""
_IN_LIST = re.compile(r"""["'](?:,\s*(?:[\[(]\s*)?|\)\s*\.\w+\()["']""")
"""What stands between two words of a list, one that begins behind a program, or what a call for each adds."""
_END = re.compile(r"[\"'`;|&()\[\]{}]+")
_SAYS = re.compile(r"\s*(?:#|(?:echo|print|printf)\b)")
"""What begins a line that starts nothing."""
_OPTION = re.compile(
    r"[-@$]|[\w.+~/@]+=|.*\.(?:ya?ml|json|toml|py)$|[\w.-]+/[\w./-]+$|[A-Za-z][\w.]*-[\w.-]*\d[\w.-]*$"
)
"""What words of a command look like that are no words of a sentence: options, files, names of models."""


def find_unread_launches(commands: Iterable[Command], files: Mapping[str, str]) -> Iterator[Skipped]:
    """Yield what names a training, with options of its own, that is started in a way that is not read.

    Args:
        commands: of one script.
        files: files the script itself writes, by path.
    """
    seen: set[str] = set()
    asked, left = 0, Trials()
    for command in commands:
        first, *others = command.words
        given = [word.text for word in (*command.words, *([command.stdin] if command.stdin else [])) if word.text]
        texts = [text for text in (*given, *(files[text] for text in given if text in files)) if text not in seen]
        seen.update(texts)
        starts = remove_launchers(command) is not None
        named = None if starts else _find_among(others, command) or _find_handed(others, command)
        if named is None and not starts and find_unknown_program(command):
            asked += 1
            if asked == _MOST_UNKNOWN + 1:
                reason = (
                    f"starts more than {_MOST_UNKNOWN} programs that nobody knows; what the rest is given is not read"
                )
                yield Skipped(command.source, reason, "name the script that starts the training")
            named = _find_behind(command) if asked <= _MOST_UNKNOWN else None
        for text in texts if named is None else ():
            named = named or _find_in_text(text, command, left)
        end = left.tell_end(command.source.path, command.source.line or 1)
        if named is None and end is not None:
            yield end
            return
        if named is not None:
            program = os.path.basename(first.text or leave_out_words(first.written))
            reason = f"names a training that {program} may start, which is not read: {named}"
            yield Skipped(
                command.source, reason, "name the script that starts it, or state what it sets in a facts file"
            )


_MOST_CHARACTERS = 65_536
"""Of one command."""
_GOES_ON = re.compile(r"[\\^`][ \t]*\r?$")
_IN_LINES = re.compile(r"""["'],[ \t]*\r?$""")
"""What ends a line of a list whose words stand in several."""
_STANDS_APART = re.compile(r"""["'>=(\[]\s*--[a-z]\w*[-_]""")
"""Options that some other part of a file gives to a program."""
_FILLED_IN = re.compile(r"\{\{(?:(?!\{\{|\}\}).)*\}\}|\{%(?:(?!\{%|%\}).)*%\}")
_KEY = re.compile(r"^[ \t]*(?:-[ \t]+)?[\w.-]+[ \t]*(?::[ \t]+|:?=[ \t]*)(?=\S)")
_REMARK = re.compile(r"\s*(?:rem\b|::|//|--\s)", re.IGNORECASE)
_ENDS = re.compile(r"\r?\n?$")


def find_in_file(path: str, text: str) -> Skipped | None:
    """Say that a file of a language that is not read starts a training; None where no line of it does."""
    if not names_launcher(text):
        return None
    lines: Iterable[tuple[int, str]] = enumerate(text.split("\n"), 1)
    if path.lower().endswith(notebook.SUFFIX):
        with suppress(InputError):
            lines = [line for cell in notebook.find_cells(path, text) for line in _shell_of(cell)]
    left = Trials()
    for number, line in _join_continued(lines):
        said = _KEY.sub("", _FILLED_IN.sub("$X", line))
        if (
            _REMARK.match(said) is None
            and (names_launcher(said) or _STANDS_APART.search(said) is not None)
            and (found := find_in_line(said, path, number, left, alone=True)) is not None
        ):
            return found
    return None


class Trials:
    """How many commands of one file are still asked whether they train."""

    def __init__(self) -> None:
        self._left = _MOST_IN_FILE

    def take(self) -> bool:
        """Take one; tell whether there was one left."""
        self._left -= 1
        return self._left >= 0

    def tell_end(self, path: str, number: int) -> Skipped | None:
        """Say that a file holds more, where it does, behind a line."""
        if self._left >= 0:
            return None
        reason = f"holds more than {_MOST_IN_FILE:,} commands that may train; the rest is not read"
        return Skipped(Source(path, line=number), reason, "name the script that starts it")


def _join_continued(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield lines with the number of the first, those that a sign continues as one, and a list in several also as one."""
    begin, joined, first, size = 1, "", 1, 0
    listed: list[str] = []
    for number, line in chain(lines, ((0, ""),)):
        begin = begin if joined else number
        goes_on = _GOES_ON.search(line)
        joined += f"{line[: goes_on.start()]} " if goes_on is not None else line
        if goes_on is not None and len(joined) < _MOST_CHARACTERS:
            continue
        first = first if listed else begin
        of_list = _IN_LINES.search(joined) is not None and size < _MOST_CHARACTERS
        if listed and not of_list:
            yield first, " ".join([*listed, joined])
        yield begin, joined
        listed = listed if of_list else []
        size = size + len(joined) if of_list else 0
        if of_list:
            listed.append(joined)
        joined = ""


_SHELL_CELL = re.compile(r"\s*%%(?:bash|sh|script|system|sx|!|(?:write)?file\b(?!.*\.py['\"]?\s*$))")
_SHELL_LINE = re.compile(
    r"\s*(?:%+(?:time|timeit|capture)\s+)?(?:[A-Za-z_][\w.,\[\] ]*=\s*)?"
    r"(?:!+|%(?:sx|system)\s|%(?P<run>run)\s+(?:-(?:[ipedtnG]\b|N\d*|l\s+\S+)\s+)*|(?=get_ipython\(\)\.(?:system|getoutput)\())"
)
"""What stands before a command in a cell of Python."""


def _shell_of(cell: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a cell that a shell runs, or may run once they are written, without what IPython alone takes."""
    in_shell, goes_on = _SHELL_CELL.match(cell[0][1]) is not None, False
    for number, line in cell[1:] if in_shell else cell:
        line = _ENDS.sub("", line)  # noqa: PLW2901 (the same line)
        begins = None if in_shell or goes_on else _SHELL_LINE.match(line)
        if in_shell or goes_on:
            yield number, line
        elif begins is not None:
            yield number, f"{'python ' if begins['run'] else ''}{line[begins.end() :]}"
        goes_on = (goes_on or begins is not None) and _GOES_ON.search(line) is not None


_CELL = re.compile(r"#[ \t]*%%(?!.*\[markdown\])(?P<shell>.*\b(?:bash|sh)\b)?|(?P<other>#[ \t]*%%)")
_COMMENT = re.compile(r"#[ \t]?")


def find_in_comments(path: str, text: str) -> Skipped | None:
    """Say that a cell of a notebook that is kept as a script of Python starts a training: its commands are comments there."""
    if "# %%" not in text:
        return None
    cell: list[tuple[int, str]] = []
    lines: list[tuple[int, str]] = []
    for number, line in enumerate([*text.split("\n"), "# %%"], 1):
        begins = _CELL.match(line)
        if begins is None:
            if cell and line.startswith("#"):
                cell.append((number, _COMMENT.sub("", line, count=1)))
            continue
        lines += _shell_of(cell[1:] if len(cell) > 1 and not cell[0][1] else cell) if cell else ()
        cell = [] if begins["other"] else [(number, "%%bash" if begins["shell"] else "")]
    left = Trials()
    for number, line in _join_continued(lines):
        if names_launcher(line) and (found := find_in_line(line, path, number, left, alone=True)) is not None:
            return found
    return None


def find_in_line(line: str, path: str, number: int, left: Trials, *, alone: bool = False) -> Skipped | None:
    """Say that a command, with its line in a file, starts a training in a way that is not read; None where it does not.

    Args:
        line: its text.
        path: the file.
        number: of the line.
        left: how many commands of the file are still looked at; where there are none, that is said.
        alone: whether a launcher with nothing but a program is one, too: its options may stand in the lines behind it.
    """
    command = Command((), {}, Source(path, line=number))
    program = _find_in_text(line, command, left, alone=alone)
    if program is None:
        return left.tell_end(path, number)
    reason = f"starts a training in a way that is not read: {program}"
    return Skipped(
        command.source, reason, "write its command into a launch script, or state what it sets in a facts file"
    )


def _find_among(words: Sequence[Word], command: Command) -> str | None:
    starts = (n for n, word in enumerate(words) if word.text and is_launcher(os.path.basename(word.text)))
    return next(
        (found for _, n in zip(range(_MAX_TRIALS), starts, strict=False) if (found := _name(words[n:], command))), None
    )


def _find_handed(words: Sequence[Word], command: Command) -> str | None:
    """Return a script that is handed to a program which is not known to start it, where its options tell a training."""
    place = next((n for n, word in enumerate(words) if (word.text or word.written).endswith(".py")), None)
    return None if place is None else _name([Word("python", command.source, "python"), *words[place:]], command)


_OF_MODULES = {"-m": "python", "--module": "deepspeed"}
"""What stands before a module → what it may be handed to, where a variable holds the program."""


def _find_behind(command: Command) -> str | None:
    """Return what is handed to a program that nobody knows, ``$PYTHON train.py``, or that, where its options tell a training."""
    unknown = find_unknown_program(command)
    known = next((n for n, word in enumerate(unknown) if word.text is not None), 0)
    if not known:
        return None
    first, others = unknown[known - 1], unknown[known:]
    given = others[0].text or ""
    starts = "python" if given.endswith(".py") else _OF_MODULES.get(given)
    if starts is not None:
        return _name([Word(starts, command.source, first.written), *others], command)
    words = [Word(word, command.source, first.written) for word in ("python", _SOME_PROGRAM)]
    return (
        leave_out_words(first.written)
        if given.startswith("-") and _name([*words, *others], command) is not None
        else None
    )


_SOME_PROGRAM = "program.py"
"""Stands for a script whose name is not known."""


def _find_in_text(text: str, command: Command, left: Trials, *, alone: bool = False) -> str | None:
    """Look for a training where a command may begin in a text; a message that mentions one holds words before it."""
    text = text.replace("\\\n", " ")
    for written in dict.fromkeys((_IN_LIST.sub(" ", text), text)):
        for line in written.splitlines() if re.search(r"\S\s+\S", written) else ():
            for part in () if _SAYS.match(line) else _END.split(_VARIABLE.sub(r"$\1\2\3", line)):
                for words in _find_beginnings(part):
                    given = [Word(None if word[0] == "$" else word, command.source, word) for word in words]
                    found = None
                    if len(given) > 1:
                        if any(map(_may_start, words[:MAX_LAYERS])) and not left.take():
                            return None
                        found = _name(given, command, alone=alone) or _find_behind(command._replace(words=tuple(given)))
                    if found is not None:
                        return f"{words[2].partition('=')[0]} …" if found == _SOME_PROGRAM else found
    return None


def _may_start(word: str) -> bool:
    return word[0] == "$" or word.endswith(".py") or is_launcher(os.path.basename(word))


_OF_RANKS = re.compile(r"--(?:nproc[-_]per[-_]node|nnodes|standalone|num[-_](?:processes|gpus|machines|nodes))\b")
_BEFORE = (
    re.compile(r"(?:[A-Za-z_]\w*=\S*[ \t]+)+(?=[^\s-])"),
    re.compile(r"[A-Za-z_][\w.-]*=(?=\S+[ \t])"),
    re.compile(r"(?:[\w-]+[ \t]+)?[A-Z]{2,}[ \t]+(?=\S)"),
)
"""What may stand before a command: variables that it is given, the name of what holds it, a word of another language, ``RUN``."""


def _find_beginnings(part: str) -> Iterator[list[str]]:
    """Yield the words of a part of a text as those of the commands that it may be."""
    words = part.split()
    if words and words[0] in _OF_MODULES:
        yield [_OF_MODULES[words[0]], *words]
    elif words and words[0].startswith("$"):
        yield words
    else:
        if words and words[0].startswith("--"):  # what they are options of stands elsewhere
            yield ["torchrun", *words] if _OF_RANKS.match(words[0]) else ["python", _SOME_PROGRAM, *words]
        text = re.sub(r"^[^A-Za-z/~]+", "", part)
        yield text.split()
        for before in _BEFORE:
            match = before.match(text)
            if match is not None:
                yield text[match.end() :].split()


_VARIABLE = re.compile(r"\$\{(\w+)\}|\$\((\w+)\)|%(\w+)%")
""" ``${NAME}``, ``$(NAME)`` and ``%NAME%`` hold what ``$NAME`` does."""


def _name(words: Sequence[Word], command: Command, *, alone: bool = False) -> str | None:
    """Return the program that words start where it is a training with options, or alone behind a launcher."""
    launch = remove_launchers(command._replace(words=tuple(words), stdin=None))
    if launch is None:
        return None
    bare = alone and launch.launchers and not launch.arguments
    if not bare and not any(_OPTION.match(word.text or word.written) for word in launch.arguments):
        return None
    documents = read_launch(launch) if launch.kind != "script" or launch.program.endswith(".py") else ()
    return launch.program if documents and TrainingCommand(launch, documents).is_training else None
