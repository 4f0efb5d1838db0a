"""Commands that start vLLM as a server: it trains nothing, and runs models in code of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Statement
from compatcheck.frameworks.keys import KeyTable
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch

READER = "vllm"
TABLE = KeyTable(__file__)
"""Option → meaning."""
_COMMANDS = frozenset({"vllm serve", "vllm.entrypoints.openai.api_server"})
_MODELS = {"model": "model", "model_path": "model"}


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts the server."""
    return READER if launch.program in _COMMANDS else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch."""
    flags = parse_flags(launch.arguments)
    named = [word.text for word in flags.positional[:1] if word.text]
    references = tuple(("model", name, "(argument)") for name in named)
    further = FurtherContent((Statement("rollout.engine", "(program)", READER),), references, unknown=flags.unknown)
    meanings = OptionMeanings(READER, TABLE, lambda _: True, _MODELS)
    return (make_command_document(meanings, launch.command.source, flags.options, further),)
