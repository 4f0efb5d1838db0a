"""Command lines that start an inference server: it trains nothing, and runs models in code of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.document import Statement
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.frameworks.keys import KeyTable
    from compatcheck.frameworks.launch.program import Launch

_MODELS = {"model": "model", "model_path": "model"}


class Server(NamedTuple):
    """A `CommandReader` of one inference server."""

    reader: str
    table: KeyTable
    """Option → meaning."""
    commands: frozenset[str]

    def recognise(self, launch: Launch) -> str | None:
        """Tell whether a launch starts the server."""
        return self.reader if launch.program in self.commands else None

    def read(self, launch: Launch, _: str) -> tuple[Document, ...]:
        """Translate a launch."""
        flags = parse_flags(launch.arguments)
        named = [word.text for word in flags.positional[:1] if word.text]
        references = tuple(("model", name, "(argument)") for name in named)
        engine = Statement("rollout.engine", "(program)", self.reader)
        further = FurtherContent((engine,), references, unknown=flags.unknown)
        meanings = OptionMeanings(self.reader, self.table, lambda _: True, _MODELS)
        return (make_command_document(meanings, launch.command.source, flags.options, further),)
