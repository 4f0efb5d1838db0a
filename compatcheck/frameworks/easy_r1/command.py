"""EasyR1's command lines: ``python3 -m verl.trainer.main config=FILE key=value …``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.frameworks.easy_r1 import configuration as easy_r1
from compatcheck.frameworks.launch.arguments import (
    FurtherContent,
    make_command_document,
    skip_refused,
)
from compatcheck.frameworks.launch.hydra import gaps_of_groups, parse_overrides

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts EasyR1."""
    words = [(word.text or word.written) for word in launch.arguments]
    mine = launch.program == "verl.trainer.main" or any(word.startswith("worker.actor.") for word in words)
    return easy_r1.READER if mine else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch; without an estimator its file decides about the critic, of which options may speak."""
    overrides = parse_overrides(launch.arguments)
    options = dict(overrides.values)
    config = options.pop("config", None)
    references: tuple[tuple[str, str, str], ...] = ()
    if config is not None and isinstance(config.value, str):
        references = (("config", config.value, "config"),)
    estimator = options.get(easy_r1.ESTIMATOR)
    named = any(key.startswith(easy_r1.CRITIC) for key in options)
    has_critic = named if estimator is None else estimator.value == "gae"
    meanings = easy_r1.make_meanings(options, has_critic=has_critic)
    skipped = tuple(skip_refused(overrides.refused))
    gaps = gaps_of_groups(overrides, launch.command.source)
    further = FurtherContent(tuple(easy_r1.state_fixed(options)), references, skipped, overrides.unknown, gaps)
    return (make_command_document(meanings, launch.command.source, options, further)._replace(options=options),)
