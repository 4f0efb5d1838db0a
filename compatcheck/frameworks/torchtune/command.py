"""``tune run RECIPE --config FILE key=value …``: the configuration file, and the words laid over it.

A configuration that torchtune itself brings (``llama3/8B_full``) lies in its package and is not read: what its keys decide is
listed as not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Unresolved
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import known_values, parse_flags
from compatcheck.frameworks.launch.values import Argument, read_scalar, unknown_argument
from compatcheck.frameworks.torchtune import configuration as torchtune

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.frameworks.launch.program import Launch

_ESSENTIAL = (
    "batch_size", "gradient_accumulation_steps", "tokenizer.max_seq_len", "enable_activation_checkpointing", "dtype",
    "optimizer._component_", "loss._component_",
)  # fmt: skip
"""Keys every configuration of torchtune states and memory depends on."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch runs a recipe of torchtune."""
    return launch.program.removeprefix("tune run ") if launch.program.startswith("tune run ") else None


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch of a recipe."""
    flags = parse_flags(launch.arguments, single=True)
    options: dict[str, Argument] = {}
    for word in flags.positional:
        key, equals, value = (word.text or "").partition("=")
        if equals:
            options[key.lstrip("+~")] = Argument(read_scalar(value), word.source.line)
    unknown = []
    for word in flags.unknown:
        key, equals, value = word.written.partition("=")
        if equals and "$" not in key:
            options[key] = unknown_argument(word, value)
        else:
            unknown.append(word)
    config = flags.options.get("config")
    references: tuple[tuple[str, str, str], ...] = ()
    missing: tuple[Unresolved, ...] = ()
    if config is not None and isinstance(config.value, str) and config.value.endswith((".yaml", ".yml")):
        references = (("config", config.value, "--config"),)
    elif config is not None:
        missing = tuple(_of_built_in(config, options))
    values = known_values(options)
    meanings = OptionMeanings(torchtune.READER, torchtune.find_meanings(values), torchtune.NAMES.__contains__)
    references = (*references, *torchtune.name_model(values))
    further = FurtherContent(tuple(torchtune.of_recipe(kind)), references, unknown=tuple(unknown))
    document = make_command_document(meanings, launch.command.source, options, further)
    document = torchtune.with_settled(document, values)
    return (document._replace(unresolved=(*document.unresolved, *missing)),)


def _of_built_in(config: Argument, options: Mapping[str, Argument]) -> Iterator[Unresolved]:
    why = config.why or f"stands in torchtune's own configuration {config.value}; `tune cp` it and name the file"
    for key in _ESSENTIAL:
        if key not in options:
            yield Unresolved(torchtune.TABLE[key][0].fact, key, why)
