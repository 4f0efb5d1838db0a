"""``axolotl train FILE --key value``: the file, and the options laid over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import LEFT_OUT, Statement
from compatcheck.frameworks.axolotl import configuration as axolotl
from compatcheck.frameworks.hf_trainer.parser import read_lone_rank
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.launch.ranks import count_visible

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    launcher = read_lone_rank(launch)
    known = () if launcher is None else tuple(_spread(launch))
    further = FurtherContent(known, references=references, unknown=flags.unknown)
    document = make_command_document(meanings, launch.command.source, options, further)
    return (document,) if launcher is None else (document, launcher)


def _spread(launch: Launch) -> Iterator[Statement]:
    """Say that one process alone spreads its model over the devices it sees (``choose_device``, 0.5.0 to 0.19.0).

    ``axolotl train`` and ``accelerate launch`` start a process for each device, and no device map holds then.
    """
    visible = count_visible(launch.variables)
    yield Statement("model.device_map", f"device_map{LEFT_OUT}", "auto", None, ("deepspeed", "fsdp", "fsdp_config"))
    if visible is not None:
        yield Statement("hardware.devices_per_rank", "CUDA_VISIBLE_DEVICES", visible)
