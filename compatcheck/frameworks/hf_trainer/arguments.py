"""Arguments of the HF Trainer, which programs built on the Trainer inherit: key tables and how a file is read.

Several readers share them: trainer files themselves (`hf_trainer`), TRL, LLaMA-Factory, ms-swift. Each adds the keys that its own
program has, and says what its program changes about an inherited one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import SECTION
from compatcheck.core.errors import InputError
from compatcheck.core.json_file import parse_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.conversions import ByWords, constant
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.keys import Key, KeyTable, Names, Table
from compatcheck.frameworks.text import expect_mapping
from compatcheck.frameworks.translation import flatten, make_document, not_understood, translate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from compatcheck.core.document import Document, Statement

TRAINER_TABLE = KeyTable(__file__)
"""Arguments of the Trainer itself."""
TRAINER_NAMES = Names(__file__)
_FSDP_NAMES = Names(__file__, "fsdp_names.txt")


TEACHERS = ("teacher_model_name_or_path", "teacher_model")
"""Keys that name a model which a trainer distils: TRL's, and those of ms-swift."""


class Arguments(NamedTuple):
    """The arguments in one file, taken apart and not yet translated; a reader may change all of it."""

    leaves: dict[str, Any]
    """Dotted keys with their values, without ``deepspeed``."""
    table: Table
    references: list[tuple[str, str, str]]
    skipped: list[Skipped]
    documents: list[Document]
    """A DeepSpeed configuration that stands inside the file."""
    known: list[Statement]
    """What is said beyond the keys of the table."""


def open_arguments(
    data: Mapping[str, Any],
    source: Source,
    table: Mapping[str, tuple[Key, ...]],
    *,
    models: Iterable[str],
    whole: Collection[str] = (),
) -> Arguments:
    """Take a file of arguments apart: precision, FSDP words, JSON in text, the model and the DeepSpeed file it names.

    Args:
        data: the parsed file.
        source: the file.
        table: what the keys of this program mean.
        models: keys that may name the model, strongest first.
        whole: keys whose mapping is one value.
    """
    opened, skipped, references = _open_sections(data, source)
    leaves = dict(flatten(opened, stop={"deepspeed", *whole}))
    meanings: Table = dict(table)
    deciding, _ = read_precision(opened) or (None if "bf16" in opened else "bf16", None)
    if deciding is not None:
        meanings[deciding] = (Key("training.mixed_precision", ByWords({"true": deciding, "false": "no"}, "leave")),)
    fsdp = [Key(fact, constant(value)) for fact, value in _fsdp(opened.get("fsdp"))]
    if "fsdp" in meanings:
        meanings["fsdp"] = tuple(fsdp) or (Key("training.sharding", _WHOLE),)
    for key in models:
        model = data.get(key)
        if isinstance(model, str) and model:
            references.append(("model", model, key))
            break
        if model:
            skipped.append(not_understood(source, key, "the path or hub id of a model"))
    teacher = next((key for key in TEACHERS if isinstance(data.get(key), str) and data[key]), None)
    references += () if teacher is None else [("teacher", data[teacher], teacher)]
    documents: list[Document] = []
    inner = opened.get("deepspeed")
    if isinstance(inner, str) and inner:
        references.append(("deepspeed", inner, "deepspeed"))
    elif isinstance(inner, dict):
        documents.append(deepspeed.read_section(inner, source.path, "deepspeed."))
    elif inner:
        skipped.append(not_understood(source, "deepspeed", "the path of a DeepSpeed configuration, or its content"))
    leaves.pop("deepspeed", None)
    launcher = leaves.pop("accelerate_config", None)  # what `trl sft` hands to `accelerate launch`
    if isinstance(launcher, str) and launcher:
        references.append(("accelerate", launcher, "accelerate_config"))
        meanings["num_processes"] = (Key("hardware.world_size"),)
    return Arguments(leaves, meanings, references, skipped, documents, [])


def translate_arguments(
    reader: str,
    source: Source,
    arguments: Arguments,
    *,
    irrelevant: Callable[[str], bool],
    names: Collection[str],
) -> tuple[Document, ...]:
    """Translate arguments that were taken apart.

    Args:
        reader: whose file it is.
        source: the file.
        arguments: what `open_arguments` gave, and the reader changed.
        irrelevant: tells whether a key is known and has no bearing on memory.
        names: keys without bearing that a misspelt one may have meant.

    Raises:
        InputError: nothing in the file was understood.
    """
    leaves = arguments.leaves.items()
    translation = translate(iter(leaves), arguments.table, irrelevant=irrelevant, source=source, names=names)
    translation = translation._replace(
        statements=(*translation.statements, *arguments.known),
        skipped=(*translation.skipped, *arguments.skipped),
    )
    return (make_document(reader, source, translation, tuple(arguments.references)), *arguments.documents)


_SECTION_KEYS = ("accelerator_config", "deepspeed", "fsdp_config", "gradient_checkpointing_kwargs")
"""Arguments that may hold a mapping as JSON text (``TrainingArguments._VALID_DICT_FIELDS``)."""
_FILES = {"accelerator_config", "fsdp_config"}
"""Those that may hold the path of a JSON file, beside ``deepspeed`` (``TrainingArguments.__post_init__``)."""


def _open_sections(
    data: Mapping[str, Any], source: Source
) -> tuple[dict[str, Any], list[Skipped], list[tuple[str, str, str]]]:
    """Parse the arguments whose mapping is written as JSON text, as the HF Trainer does; name the files of others."""
    opened, named = dict(data), []
    skipped = []
    for key in _SECTION_KEYS:
        text = data.get(key)
        if not isinstance(text, str) or not text:
            continue
        if text.lstrip().startswith("{"):
            try:
                opened[key] = expect_mapping(parse_json(text, source.path), source.path, key)
            except InputError as error:
                del opened[key]
                hint = "write a mapping, or its JSON in full"
                skipped.append(Skipped(source._replace(key=key), f"{key}: {error.message}", hint))
        elif key in _FILES:
            del opened[key]
            named.append((f"hf_trainer{SECTION}{key}", text, key))
    return opened, skipped, named


_PRECISIONS = ("bf16", "fp16")
"""Switches of a mixed precision, the one that decides first."""


def read_precision(data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key that decides the mixed precision and what it says; None when neither key is there."""
    for key in _PRECISIONS:
        if data.get(key) is True:
            return key, key
    if data.get("bf16") is False and data.get("fp16") in (None, False):
        return "bf16", "no"
    if data.get("fp16") is False and data.get("bf16") is None:
        return "fp16", "no"
    return None


def _fsdp(value: Any) -> list[tuple[str, object]]:  # noqa: ANN401 (configuration)
    """Translate the words of the ``fsdp`` argument (``full_shard auto_wrap offload``)."""
    if value is True:
        return [("training.sharding", "fsdp")]
    return read_fsdp_words(value if isinstance(value, list) else str(value or "").split())


_WHOLE = ByWords({"full_shard auto_wrap": "fsdp"}, "leave")
"""What the argument says where nothing is sharded yet: without ``auto_wrap`` the whole model would be one unit."""


def read_fsdp_words(words: Sequence[Any]) -> list[tuple[str, object]]:
    """Return what words such as ``full_shard`` and ``offload`` say."""
    strategies = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"}
    facts: list[tuple[str, object]] = [
        ("training.fsdp_sharding_strategy", word) for word in words if word in strategies
    ]
    if words:
        facts.append(("training.sharding", "fsdp"))
    if "offload" in words:
        facts.append(("training.fsdp_offload_params", True))
    return facts


_SECTIONS = (
    "accelerator_config.",
    "generation_config.",
    "gradient_checkpointing_kwargs.",
    "lr_scheduler_kwargs.",
    "liger_kernel_config.",
    "optim_args.",
    "parallelism_config.",
    "hub_",
    "push_to_hub",
)


def is_plain_trainer_argument(key: str) -> bool:
    """Tell whether a dotted key is one of the Trainer's own and has no bearing on memory."""
    name, _, inner = key.partition(".")
    if name == "fsdp_config" and inner:
        return inner.removeprefix("fsdp_") in _FSDP_NAMES
    return name in TRAINER_NAMES or key.startswith(_SECTIONS)
