"""A launch script: its commands read by the shell reader, its training commands by the readers of command lines."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from compatcheck.core.command import Word
from compatcheck.core.document import Document
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_text
from compatcheck.frameworks.beside import find_beside, find_of_another_machine, find_started
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.launch_script.commands import TrainingCommand, read_commands
from compatcheck.frameworks.launch_script.launchers import names_launcher, names_training
from compatcheck.frameworks.launch_script.unread_launches import find_unread_launches
from compatcheck.frameworks.registry import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from compatcheck.core.command import Command
    from compatcheck.frameworks.launch.program import Launch

MOST_RUNS = 500
"""Runs of one script, each of which is checked by itself: a search over settings starts some hundred."""
_SAID = 3
"""Parts of a script that were not read which an error names."""


def read_launch_script(  # noqa: PLR0913 (what surrounds a script, by keyword)
    path: str,
    files: Files = LOCAL,
    *,
    named: bool,
    arguments: Sequence[str] | None = None,
    commands: str | None = None,
    first_line: int = 1,
    spend: Callable[[float], None] | None = None,
) -> Iterator[tuple[str, TrainingCommand]]:
    """Yield the training commands of a script, each with the name its run has in reports.

    Args:
        path: the script, or ``script:12`` for the command in line 12 alone.
        files: the tree it lies in.
        named: whether the person named it; a walked-into script without a word of training is not parsed.
        arguments: what it is started with; None where it is not known.
        commands: what is read in place of the file's text: the commands in it, where the file is no script of the shell.
        first_line: the line of the file that they begin in.
        spend: is told what part of all that is read of one script this took, before the first run.

    Raises:
        InputError: not readable, or parts of it were not read and nothing that trains was found, though its name or its words
            say that it does.
    """
    file, line = _split_line(path, files)
    text = read_text(file, files) if commands is None else commands
    if not named and not names_launcher(text):
        return
    from compatcheck.shell import read_script, variables_of_header  # noqa: PLC0415 (only for launch scripts)

    # what is relative is so to where the script is started, which is taken as its own directory, or is looked for above it
    variables = {"0": os.path.join(".", os.path.basename(file)), "PWD": ".", **variables_of_header(text)}
    neighbours = _Neighbours(file, files)
    script = read_script(
        file, text, variables=variables, arguments=arguments, first_line=first_line, open_file=neighbours
    )
    if spend is not None:
        spend(script.effort)
    written = {os.path.normpath(name): word.text for name, word in script.files.items()}
    # a training may be started for its output: `log=$(torchrun …)`, or only if something is given: `[ -n "$RUN" ] && torchrun …`
    every = (*script.commands, *script.queries, *script.alternatives)
    found = read_commands(every, written, _Parsers(files), _Composed(file, files))
    steps = set(map(id, script.commands))
    runs = [run for run in found if id(run.launch.command) in steps or run.is_training]
    defaults = [run for run in runs if id(run.launch.command) not in set(map(id, script.alternatives))]
    unread = tuple(
        dict.fromkeys(find_unread_launches(every, {name: text for name, text in written.items() if text is not None}))
    )
    skipped = (*script.skipped, *unread, *_find_cut_off(script.commands))
    if (script.skipped or unread) and not runs and (named or unread or names_training(text) or _starts_module(text)):
        msg = "starts no training program this release knows; not read: " + "; ".join(
            f"line {skip.source.line} {skip.reason}" if skip.source.path == file else f"{skip.source} {skip.reason}"
            for skip in (*unread, *script.skipped)[:_SAID]
        )
        raise InputError(
            msg,
            source=Source(file),
            hint="name the script that starts it, or state what it sets in a facts file (compatcheck: 1)",
        )
    asked = [run for run in runs if line is None or run.line == line]
    if len(asked) > MOST_RUNS:
        reason = f"starts {len(asked):,} runs, of which the first {MOST_RUNS} were read"
        skipped = (*skipped, Skipped(Source(file), reason, "name one by its line: SCRIPT:LINE", named=named))
    about = Document("shell", Source(file), (), skipped=skipped)
    is_one = len(runs) == 1
    for run in asked[:MOST_RUNS]:
        documents = (*_enter(run, files), *([about] if skipped else []))
        name = file if is_one or defaults == [run] else str(run.launch.command.source)
        yield name, run._replace(documents=documents)


def _enter(run: TrainingCommand, files: Files) -> Iterator[Document]:
    """Yield the documents of a run with what they name seen from where the script is, where it has entered another directory."""
    command = run.launch.command
    for document in run.documents:
        names = {
            name: here
            for _, name, _ in document.references
            for here in command.names_here(name)
            if files.exists(find_beside(document.source.path, here, files))
        }
        named = ((kind, names.get(name, name), key) for kind, name, key in document.references)
        changed = {names.get(name, name): text for name, text in document.changed.items()}
        yield document._replace(references=tuple(named), changed=changed) if names else document


_WORD_OF_ANOTHER = re.compile(r"--?[A-Za-z][\w-]*(?:=.*)?$|\+{0,2}\w+(?:\.\w+)+=", re.DOTALL)


def _find_cut_off(commands: Iterable[Command]) -> Iterator[Skipped]:
    """Yield the words that a comment or an empty line behind a continued line cuts off a command: bash runs them as a program."""
    for command in commands:
        first = command.words[0].written if command.words else ""
        if _WORD_OF_ANOTHER.match(first):
            reason = f"{first.partition('=')[0]} begins a command of its own: a comment or an empty line ends the one before it"
            yield Skipped(command.source, reason, "take out what stands between the continued lines", passes=True)


def _starts_module(text: str) -> bool:
    """Tell whether a script names a module or file of a program that trains: ``verl.trainer.main_ppo``."""
    names = "|".join(name for folder in FOLDERS if folder.has_commands for name in (folder.name, *folder.forks))
    return re.search(rf"\b(?:{names})[./][\w./]{{0,80}}?(?:train|main)", text) is not None


def _split_line(path: str, files: Files) -> tuple[str, int | None]:
    match = re.fullmatch(r"(.+):(\d{1,9})", path)
    if match is None or files.exists(path):
        return path, None
    return match[1], int(match[2])


class _Parsers:
    """What the Python scripts beside a script have parsed."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._known: dict[str, str | None] = {}

    def __call__(self, command: Command, program: str) -> str | None:
        """Return whose arguments a script parses, or whose configuration a file is; None where that is not told."""
        file = find_started(command, program, self.files)
        if file not in self._known:
            self._known[file] = self._find(file)
        return self._known[file]

    def _find(self, file: str) -> str | None:
        from compatcheck.frameworks.composing import find_composing  # noqa: PLC0415 (as above)
        from compatcheck.frameworks.python_script.read import find_parsed  # noqa: PLC0415 (only where options do not tell)

        if file.endswith((".yaml", ".yml")):
            return find_composing(file, self.files)
        try:
            return find_parsed(file, self.files) if self.files.is_file(file) else None
        except InputError:
            return None


class _Composed:
    """What the Python programs beside a script set for themselves: variables, and what they compose their configuration from."""

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self.files = files

    def __call__(self, launch: Launch) -> Launch:
        """Add what a program sets for itself to its launch."""
        name = f"{launch.program.replace('.', '/')}.py" if launch.kind == "module" else launch.program
        file = find_started(launch.command, name, self.files)
        if not file.endswith(".py") or not self.files.is_file(file):
            return launch
        from compatcheck.frameworks.python_script.environ import find_variables  # noqa: PLC0415 (only for a program at hand)

        launch = launch._replace(variables=find_variables(file, launch.variables, self.files))
        if any((word.text or "").startswith(_OTHER_WAYS) for word in launch.arguments):
            return launch
        return self._compose(launch, file)

    def _compose(self, launch: Launch, file: str) -> Launch:
        """Add what its ``@hydra.main`` names where the command names none; a directory is relative to the program."""
        from compatcheck.frameworks.python_script.composed import find_composed  # noqa: PLC0415 (as above)

        stated = parse_flags(launch.arguments, single=True).options
        found = find_composed(file, self.files) or ("", "")
        directory, name = (
            str(stated[key].value) if key in stated else own for key, own in zip(_OF_HYDRA, found, strict=True)
        )
        if not directory or not name:
            return launch
        beside = os.path.join(os.path.dirname(file), directory)
        if stated.keys() & {*_OF_HYDRA} and not self.files.is_file(
            os.path.join(beside, f"{name.removesuffix('.yaml')}.yaml")
        ):
            return launch
        given = {"config_path": os.path.relpath(beside, os.path.dirname(self.path) or "."), "config_name": name}
        words = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        return launch._replace(
            arguments=(*launch.arguments, *(Word(word, launch.command.source, word) for word in words))
        )


_OF_HYDRA = ("config_path", "config_name")
_OTHER_WAYS = ("--config-dir", "-cp", "-cn", "-cd")


class _Neighbours:
    """The files beside a script."""

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self.files = files

    def __call__(self, name: str) -> tuple[str, str] | None:
        """Return the path and the text of a file that the script names, or that a path of another machine is taken for."""
        file = find_beside(self.path, name, self.files)
        if not self.files.is_file(file):
            file = find_of_another_machine(self.path, name, self.files) or file
        try:
            return (file, read_text(file, self.files)) if self.files.is_file(file) else None
        except InputError:
            return None
