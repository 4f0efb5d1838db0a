"""``axolotl train FILE --key value``: the file, and the options laid over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.frameworks.axolotl import configuration as axolotl
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch

_PROGRAMS = {"axolotl train", "axolotl.cli.train", "axolotl.train", "scripts/finetune.py"}


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch trains with axolotl."""
    named = any((word.text or word.written).endswith((".yml", ".yaml")) for word in launch.arguments)
    return axolotl.READER if launch.program in _PROGRAMS and named else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch."""
    flags = parse_flags(launch.arguments, single=True)
    files = [word.text for word in flags.positional if word.text and word.text.endswith((".yml", ".yaml"))]
    references = tuple(("config", name, "(argument)") for name in files[:1])
    table = {key: row for key, row in axolotl.TABLE.items() if key not in axolotl.LIGER_LOSSES or key in flags.options}
    meanings = OptionMeanings(axolotl.READER, table, lambda _: True)
    options = {name: argument for name, argument in flags.options.items() if name in axolotl.TABLE}
    further = FurtherContent(references=references, unknown=flags.unknown)
    return (make_command_document(meanings, launch.command.source, options, further),)
