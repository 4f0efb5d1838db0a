"""Trainings that stand in the words, the input or a written file of a command that is not known to start another one."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from compatcheck.core.command import Word
from compatcheck.core.source import Skipped
from compatcheck.frameworks.launch_script.commands import TrainingCommand, read_launch
from compatcheck.frameworks.launch_script.launchers import is_launcher, remove_launchers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.command import Command

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
