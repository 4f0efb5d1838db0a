"""XTuner's command lines: ``NPROC_PER_NODE=8 xtuner train CONFIG --deepspeed deepspeed_zero2 --cfg-options key=value …``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Statement, Unresolved
from compatcheck.core.units import parse_count
from compatcheck.frameworks.launch import ranks
from compatcheck.frameworks.launch.arguments import FurtherContent, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.launch.values import Argument, as_argument, explain
from compatcheck.frameworks.xtuner import configuration as xtuner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.frameworks.launch.program import Launch

_SCRIPT = re.compile(r"(^|/)xtuner/tools/train\.py$")
_RANKS = ((ranks.GPUS, "NPROC_PER_NODE"), (ranks.NODES, "NNODES"))
"""Variables that ``xtuner`` hands to torchrun, 1 each when unset (entry_point.py)."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch trains with XTuner."""
    starts = launch.program == "xtuner train" or _SCRIPT.search(launch.program) is not None
    return xtuner.READER if starts or launch.program == "xtuner.tools.train" else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch: its file, the file for DeepSpeed, and what ``--cfg-options`` lays over the first."""
    flags = parse_flags(launch.arguments)
    config = next((word.text for word in launch.arguments[:1] if word.text and not word.text.startswith("-")), None)
    deepspeed = flags.options.get("deepspeed")
    references = [("config", config, "(argument)")] if config is not None else []
    started = "(command)" if deepspeed is None else xtuner.DEEPSPEED
    known = [Statement(None, started, value=True)]
    if deepspeed is not None and isinstance(deepspeed.value, str):
        references.append(("deepspeed", deepspeed.value, "--deepspeed"))
    options = dict(_read_options(launch))
    counted = tuple(_count_ranks(launch))
    known += [one for one in counted if isinstance(one, Statement)]
    further = FurtherContent(tuple(known), tuple(references), unknown=flags.unknown)
    document = make_command_document(xtuner.make_meanings(), launch.command.source, options, further)
    unknown = (one for one in counted if isinstance(one, Unresolved))
    return (document._replace(unresolved=(*document.unresolved, *unknown)),)


_OPTIONS = "--cfg-options"


def _read_options(launch: Launch) -> Iterator[tuple[str, Argument]]:
    """Yield what each ``--cfg-options`` gives: later ones add to those before (mmengine 0.10.7 config.py DictAction)."""
    inside = False
    for word in launch.arguments:
        text = word.text or word.written
        if text.startswith("-"):
            option, _, text = text.partition("=")
            inside = option == _OPTIONS
        if inside and text:
            key, _, value = text.partition("=")
            yield key, as_argument(word, value)


def _count_ranks(launch: Launch) -> Iterator[Statement | Unresolved]:
    if launch.kind != "tool" or launch.launchers:
        return
    for fact, name in _RANKS:
        word = launch.command.variables.get(name)
        if word is not None and word.text is None:
            yield Unresolved(fact, name, explain(word))
        else:
            count = parse_count(launch.variables.get(name))
            yield Statement(fact, name if count is not None else f"{name} (unset)", count or 1)
