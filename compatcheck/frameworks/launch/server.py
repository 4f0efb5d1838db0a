"""Command lines that start an inference server: it trains nothing, and runs models in code of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.core.errors import InputError
from compatcheck.core.json_file import parse_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks.conversions import graphs, largest
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.command import Word
    from compatcheck.core.document import Document, Gap
    from compatcheck.core.source import Source
    from compatcheck.frameworks.conversions import Convert
    from compatcheck.frameworks.keys import KeyTable, Names
    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

_REFERENCES = {"model": "model", "model_path": "model", "config": "config"}
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""Endings of numbers as vLLM reads them, human_readable_int of vllm/engine/arg_utils.py."""


_COUNT = lazy_compile(r"(-?\d{1,15}|\d{1,9}\.\d{1,9}(?=[kmgtKMGT]))([kmgtKMGT]?)", re.ASCII)


def read_count(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a number that may end with a unit: ``32k`` is 32,000 and ``32K`` 32,768.

    Raises:
        ValueError: it is no number.
    """
    text = str(value).strip()
    if (found := _COUNT.fullmatch(text)) is None:
        msg = "a whole number, which may end with k, m, g, t (thousands) or K, M, G, T (1,024)"
        raise ValueError(msg)
    return int(float(found[1]) * _UNITS[found[2]]) if found[2] else int(text)


def read_length(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read the longest sequence; ``-1`` and ``auto`` are what fits."""
    return None if str(value).strip().lower() in {"-1", "auto"} else read_count(value)


def _compilation(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 (configuration)
    """Return what ``--compilation-config`` holds: JSON, or a level alone.

    Raises:
        ValueError: it is neither.
    """
    try:
        found = parse_json(value, "--compilation-config") if isinstance(value, str) else value
    except InputError as error:
        raise ValueError(str(error)) from None
    return found if isinstance(found, dict) else {}


def _lengthen(word: Word) -> Word:
    """Write a short option of several letters (``-tp``) as its reader lists it."""
    short = word.text is not None and word.text.partition("=")[0] in _SHORT
    return word._replace(text=f"-{word.text}") if short else word


_SHORT = frozenset({"-tp", "-pp", "-dp", "-q"})
CONVERSIONS: Mapping[str, Convert] = {
    "compiled_graphs": lambda value: graphs(_compilation(value).get("cudagraph_mode")),
    "compiled_sizes": lambda value: largest(_compilation(value).get("cudagraph_capture_sizes")),
    "count": read_count,
    "length": read_length,
}
"""What key files of servers name."""


_SWITCHES = frozenset(
    {
        "disable_cuda_graph", "disable_log_requests", "disable_log_stats", "disable_radix_cache", "enable_auto_tool_choice",
        "enable_expert_parallel", "enable_lora", "enable_memory_saver", "enable_metrics", "enable_prefix_caching",
        "enable_reasoning", "enable_sleep_mode", "enforce_eager", "trust_remote_code",
    }
)  # fmt: skip
"""Options that take no value, behind which the model may stand."""


_LISTS = frozenset({"cuda_graph_bs", "cuda_graph_sizes", "cudagraph_capture_sizes"})
"""Options that take several words."""


class Server(NamedTuple):
    """A `CommandReader` of one inference server."""

    reader: str
    table: KeyTable
    """Option → meaning."""
    names: Names
    """Options without a meaning."""
    commands: frozenset[str]

    def recognise(self, launch: Launch) -> str | None:
        """Tell whether a launch starts the server."""
        return self.reader if launch.program in self.commands else None

    def read(self, launch: Launch, _: str) -> tuple[Document, ...]:
        """Translate a launch."""
        flags = parse_flags(map(_lengthen, launch.arguments), switches=_SWITCHES, single=True, lists=_LISTS)
        named = [word.text for word in flags.positional[:1] if word.text]
        references = tuple(("model", name, "(argument)") for name in named)
        key = "(program)"
        known = (Statement("rollout.engine", key, self.reader), Statement("program.serves", key, True))
        further = FurtherContent(known, references, unknown=flags.unknown)
        return (make_command_document(self._meanings, launch.command.source, flags.options, further),)

    def read_call(self, source: Source, options: Mapping[str, Argument], gaps: tuple[Gap, ...]) -> Document:
        """Translate a call that starts the engine in a process of a script's own, which takes the same keys."""
        key = "(program)"
        stated = (("rollout.engine", key, self.reader), ("program.serves", key, True), (None, IN_PROCESS, True))
        further = FurtherContent(tuple(Statement(*one) for one in stated), gaps=gaps)
        return make_command_document(self._meanings, source, options, further)._replace(is_command=False)

    @property
    def _meanings(self) -> OptionMeanings:
        return OptionMeanings(self.reader, self.table, self.names.__contains__, _REFERENCES)


IN_PROCESS = "(in a process of a script's own)"
"""Key under which a document says that no server is started, whose defaults differ."""
