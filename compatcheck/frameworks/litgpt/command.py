"""LitGPT's command lines: ``litgpt finetune_lora CHECKPOINT --config FILE --key value …``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.frameworks.launch.arguments import FurtherContent, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.launch.values import Argument, as_argument
from compatcheck.frameworks.litgpt import configuration as litgpt

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.flags import Flags
    from compatcheck.frameworks.launch.program import Launch

_KINDS = {
    "finetune": litgpt.LORA,
    "finetune_lora": litgpt.LORA,
    "finetune_full": litgpt.FULL,
    "finetune_adapter": "finetune_adapter",
    "finetune_adapter_v2": "finetune_adapter",
    "pretrain": litgpt.PRETRAIN,
}
"""Commands that train (``litgpt/__main__.py``)."""


def recognise(launch: Launch) -> str | None:
    """Tell which of LitGPT's trainings a launch starts."""
    tool, _, action = launch.program.partition(" ")
    return _KINDS.get(action) if tool == "litgpt" and launch.kind == "tool" else None


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch; a word without an option is the model."""
    places = [place for place, word in enumerate(launch.arguments) if (word.text or "").startswith("--config")]
    flags = parse_flags(launch.arguments, single=True)
    late = _name_options(parse_flags(launch.arguments[places[-1] if places else 0 :], single=True), kind)
    options = _name_options(flags, kind) | late
    config = options.pop("config", None)
    references: tuple[tuple[str, str, str], ...] = ()
    unknown = flags.unknown
    if config is not None and isinstance(config.value, str) and len(places) == 1:
        references = (("config", config.value, "--config"),)
    elif config is not None:  # files over one another, or one that nobody can name
        unknown = (*unknown, *(launch.arguments[place] for place in places))
    further = FurtherContent((), references, unknown=unknown)
    document = make_command_document(litgpt.make_meanings(options), launch.command.source, options, further)
    document = document._replace(options=options, added=frozenset(options.keys() - late.keys() - {litgpt.COMMAND}))
    return (litgpt.tell_kind(document, options, kind),)


def _name_options(flags: Flags, kind: str) -> dict[str, Argument]:
    """Return options by key, the word without one as the model."""
    model = "model_name" if kind == litgpt.PRETRAIN else "checkpoint_dir"
    options = {litgpt.COMMAND: Argument(kind, None), **flags.options}
    if flags.positional:
        options[model] = as_argument(flags.positional[0])
    return litgpt.open_options(options)
