"""AReaL's command lines: ``python3 train.py --config FILE key=value …``, alone or behind ``-m areal.infra.launcher.local``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.frameworks.areal import configuration as areal
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document, skip_refused
from compatcheck.frameworks.launch.hydra import gaps_of_groups, parse_overrides

if TYPE_CHECKING:
    from compatcheck.core.command import Word
    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch

_MARKS = ("actor.backend=", "rollout.backend=", "scheduler.type=", "allocation_mode=", "actor.path=")


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts AReaL: one of its launchers, or a script with a file and words of its own."""
    words = [word.text or word.written for word in launch.arguments]
    named = any(word.startswith("--config") for word in words)
    launcher = launch.program.startswith(("areal.launcher.", "areal.infra.launcher."))
    return areal.READER if named and (launcher or any(word.startswith(_MARKS) for word in words)) else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch; what it leaves to its file is read with that file (`areal.compose`)."""
    config, words = _take_config(launch)
    overrides = parse_overrides(words)
    references = (("config", config, "--config"),) if config is not None else ()
    meanings = OptionMeanings(
        areal.READER, areal.settle(overrides.values).table, areal.is_plain, {"actor.path": "model"}
    )
    gaps = gaps_of_groups(overrides, launch.command.source)
    further = FurtherContent((), references, tuple(skip_refused(overrides.refused)), overrides.unknown, gaps)
    document = make_command_document(meanings, launch.command.source, overrides.values, further)
    return (document._replace(options=overrides.values),)


def _take_config(launch: Launch) -> tuple[str | None, list[Word]]:
    """Take the file, and the script that a launcher starts, off the words."""
    words: list[Word] = []
    config: str | None = None
    is_value = False
    for word in launch.arguments:
        text = word.text or word.written
        if is_value or text.startswith("--config="):
            config = text.removeprefix("--config=") if word.text is not None else None
        elif text != "--config" and not text.endswith(".py"):
            words.append(word)
        is_value = text == "--config"
    return config, words
