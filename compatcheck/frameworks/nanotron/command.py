"""nanotron's command lines: ``torchrun … run_train.py --config-file FILE``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Gap, Unresolved
from compatcheck.frameworks.launch.flags import gaps_of_words, parse_flags
from compatcheck.frameworks.nanotron import configuration as nanotron
from compatcheck.frameworks.registry import FOLDERS
from compatcheck.frameworks.translation import guess_unread

if TYPE_CHECKING:
    from compatcheck.frameworks.launch.program import Launch

_FILE = "config_file"
_SCRIPTS = frozenset({"run_train.py", "train_doremi.py", "train_reference.py", "train_mamba.py", "train_moe.py"})
_NAMES = frozenset({_FILE, "job_id", "sanity_check_dataloader_interval"})
"""All options of these scripts; the others name a job, and how often samples are printed."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts one of nanotron's training scripts with a file."""
    mine = os.path.basename(launch.program) in _SCRIPTS and _FILE in parse_flags(launch.arguments).options
    return nanotron.READER if mine else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch: the file says everything."""
    flags = parse_flags(launch.arguments, single=True)
    source, file = launch.command.source, flags.options[_FILE]
    gaps: tuple[Gap, ...] = gaps_of_words(flags.unknown)
    unread = guess_unread((name for name in flags.options if name not in _NAMES), _NAMES)
    if file.why is None and isinstance(file.value, str):
        references: tuple[tuple[str, str, str], ...] = ((nanotron.READER, file.value, "--config-file"),)
        return (Document(nanotron.READER, source, (), unread, references=references, is_command=True, gaps=gaps),)
    (folder,) = (folder for folder in FOLDERS if folder.name == nanotron.READER)
    why = file.why or "names no file"
    unresolved = tuple(Unresolved(fact, "--config-file", why) for fact in folder.decides)
    return (Document(nanotron.READER, source, (), unread, is_command=True, gaps=gaps, unresolved=unresolved),)
