"""Options of ``accelerate launch`` that replace what its configuration file says, read by the file's own key table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import MISSING, Document, Gap, Unresolved
from compatcheck.frameworks.accelerate import configuration as accelerate
from compatcheck.frameworks.conversions import ByWords, constant
from compatcheck.frameworks.keys import Key, list_facts
from compatcheck.frameworks.launch import ranks
from compatcheck.frameworks.translation import translate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.command import Command
    from compatcheck.core.source import Source
    from compatcheck.frameworks.launch.ranks import Ranks
    from compatcheck.frameworks.launch.values import Argument

_RANKS = {"num_processes", "num_machines"}
_SECTIONS = ("deepspeed_config.", "", "fsdp_config.", "megatron_lm_config.", "parallelism_config.")
_SHARDING = {"use_deepspeed": "zero", "use_fsdp": "fsdp", "use_megatron_lm": "megatron", "multi_gpu": "ddp"}


def place_of(option: str) -> str:
    """Return the key of the configuration file that an option replaces."""
    keys = (section + option for section in _SECTIONS)
    return next((key for key in keys if key in accelerate.TABLE or key == accelerate.SHARD), option)


def read_options(
    options: Mapping[str, Argument],
    found: Ranks,
    documents: list[Document],
    references: list[tuple[str, str, str]],
    command: Command,
) -> None:
    """Read the options of ``accelerate launch``: ranks, the files it names, and settings that replace those of its file."""
    file = options.get("config_file")
    ranks.read_accelerate(options, found, has_file=file is not None, line=command.source.line)
    if file is not None and isinstance(file.value, str):
        references.append(("accelerate", file.value, "--config_file"))
        if file.line is not None:
            found.lines["--config_file"] = file.line
    elif file is not None and file.why is not None:
        found.doubt(ranks.WORLD, "--config_file", file.why, file.line)
        place = command.source._replace(key="--config_file", line=file.line)
        gap = Gap(place, file.why, facts=list_facts(accelerate.TABLE))
        documents.append(Document(MISSING, command.source, (), gaps=(gap,)))
    document = read_settings(options, command.source, has_file=file is not None)
    if document is not None:
        documents.append(document)


def read_settings(options: Mapping[str, Argument], source: Source, *, has_file: bool) -> Document | None:
    """Translate the options; None when they say nothing beyond ranks.

    Without a file ``accelerate launch`` still fills in its defaults, so that a document is there even for no option.
    """
    table = dict(accelerate.TABLE)
    lines: dict[str, int] = {}
    unresolved: list[Unresolved] = []
    references: list[tuple[str, str, str]] = []
    leaves: dict[str, object] = {}
    for option, argument in options.items():
        key = place_of(option)
        if argument.line is not None:
            lines[key] = argument.line
        if option in _RANKS or option == "config_file":
            continue
        if option == "deepspeed_config_file" and isinstance(argument.value, str):
            references.append(("deepspeed", argument.value, key))
        elif argument.why is not None:
            unresolved.extend(_unknown(key, argument.why))
        elif has_file or "use_deepspeed" in options or not key.startswith("deepspeed_config."):
            leaves[key] = argument.value  # without `--use_deepspeed` the launcher passes none of DeepSpeed's options on
    for option, sharding in _SHARDING.items():
        if leaves.get(option) is True:
            table[option] = _sharded(option, sharding, options)
    table |= accelerate.join_shard({option: argument.value for option, argument in options.items()})
    translation = translate(_relevant(leaves, table), table, irrelevant=lambda _: True, source=source, auto=True)
    if "use_deepspeed" in options and not (has_file or references or "deepspeed_config_file" in options):
        translation = translation._replace(statements=(*translation.statements, accelerate.ALL_DEFAULTS))
    if has_file and not (translation.statements or translation.skipped or unresolved or references):
        return None
    return Document(
        accelerate.READER,
        source,
        translation.statements,
        skipped=translation.skipped,
        references=tuple(references),
        is_command=True,
        lines=lines,
        unresolved=tuple(unresolved),
        table={} if references or "deepspeed_config_file" in options else _ADDED,
    )


_ADDED: Mapping[str, tuple[Key, ...]] = {
    "use_deepspeed": (Key("training.sharding", ByWords({"true": "zero"}, "leave")),),
    "zero_stage": (Key("training.zero_stage"),),
    "offload_optimizer_device": (Key("training.offload_optimizer"),),
    "offload_param_device": (Key("training.offload_param"),),
}
"""What options say that may be added: each is replaced by nothing that a DeepSpeed file states, and none needs another file."""


def _relevant(leaves: Mapping[str, object], table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    return ((key, value) for key, value in leaves.items() if key in table)


def _unknown(key: str, why: str) -> Iterator[Unresolved]:
    for meaning in accelerate.TABLE.get(key, ()):
        yield Unresolved(meaning.fact, key, why)


def _sharded(option: str, sharding: str, options: Mapping[str, Argument]) -> tuple[Key, ...]:
    if option == "use_deepspeed":  # the stage decides; without any, accelerate's default of 2 is a default row
        return ()
    first = Key("training.sharding", constant(sharding))
    if option == "use_fsdp" and "fsdp_version" not in options:
        return first, Key("training.fsdp_version", constant(1))
    return (first,)
