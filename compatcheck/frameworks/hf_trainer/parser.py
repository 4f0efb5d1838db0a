"""Command lines that ``HfArgumentParser`` reads: ``--name value``, ``--name``, ``--no_name``, and files of arguments.

The readers of a program's files read the options; a file that the command names is read as well, and the options win over it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from compatcheck.core.document import Document, Gap, Statement, Unresolved
from compatcheck.core.errors import InputError
from compatcheck.core.source import Skipped
from compatcheck.core.units import parse_count
from compatcheck.frameworks.hf_trainer.arguments import TRAINER_NAMES
from compatcheck.frameworks.launch import ranks
from compatcheck.frameworks.launch.arguments import unresolved_options
from compatcheck.frameworks.launch.flags import gaps_of_words, known_values, parse_flags
from compatcheck.frameworks.launch.ranks import Ranks
from compatcheck.frameworks.launch.values import Argument, explain, part_joined, read_scalar
from compatcheck.frameworks.reader import ConfigurationReader, Reading
from compatcheck.frameworks.translation import guess_unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from compatcheck.core.command import Word
    from compatcheck.frameworks.launch.program import Launch


class ArgumentReader(ConfigurationReader, Protocol):
    """``configuration.py`` of a program whose files and command lines hold the same arguments."""

    @property
    def MODELS(self) -> tuple[str, ...]:  # noqa: N802 (a constant of the module)
        """Keys that may name the model, strongest first."""


def read_launch(
    launch: Launch,
    reader: ArgumentReader,
    launcher: Iterable[Document | None] = (),
    *,
    references: Iterable[tuple[str, str, str]] = (),
    takes_config: bool = False,
    translate: Callable[[Mapping[str, Any], str], Reading] | None = None,
) -> tuple[Document, ...]:
    """Translate the arguments of a launch by the reader of the program's files.

    Args:
        launch: the program with its arguments.
        reader: translates them.
        launcher: what is said about ranks.
        references: files that are named beyond the arguments.
        takes_config: whether ``--config`` names a file of arguments.
        translate: reads the options where that is not what ``reader.read`` does with a file.
    """
    flags = parse_flags(launch.arguments)
    options = _without_negation(flags.options, reader)
    options |= part_joined(options, reader.TABLE)
    named: list[tuple[str, str, str]] = []
    skipped: list[Skipped] = []
    gaps: list[Gap] = []
    if takes_config and "config" in options:
        _take_config(options, named, gaps, launch)
    for word in flags.positional:
        _take_word(word, options, named)
    named += references
    try:
        reading = (translate or reader.read)(known_values(options), launch.command.source.path)
    except InputError as error:
        reading = Reading()
        if not named:
            skipped.append(Skipped(launch.command.source, error.message, error.hint))
    unread = () if reading.documents else guess_unread(known_values(options), reader.TABLE)
    main = reading.documents[0] if reading.documents else Document(reader.READER, launch.command.source, (), unread)
    unresolved = [
        *unresolved_options(options, reader.TABLE, dict.fromkeys(reader.MODELS, "model")),
        *_unresolved_sections(options),
    ]
    lines = {name: argument.line for name, argument in options.items() if argument.line is not None}
    uses = {name: argument.used for name, argument in options.items() if argument.used is not None}
    skipped += _refused(options, launch)
    main = main._replace(
        source=launch.command.source,
        statements=(*main.statements, *_left_to_variables(main, launch)),
        references=(*main.references, *named),
        skipped=tuple(_with_line(entry, lines) for entry in (*main.skipped, *skipped)),
        is_command=True,
        lines=lines,
        uses=uses,
        unresolved=(*main.unresolved, *unresolved),
        gaps=(*(_with_line(gap, lines) for gap in main.gaps), *gaps_of_words(flags.unknown), *gaps),
    )
    rest = [document._replace(is_command=True, lines=lines, uses=uses) for document in reading.documents[1:]]
    return (main, *rest, *(document for document in launcher if document is not None))


_STRATEGY = "FSDP_SHARDING_STRATEGY"
_STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")


def _left_to_variables(main: Document, launch: Launch) -> Iterable[Statement]:
    """Say how FSDP shards where ``--fsdp auto_wrap`` leaves that to the environment: by name, or by number from 1 on.

    Source: transformers 4.51.3 training_args.py sets the variable only for an option that is a strategy; accelerate 1.6.0
    utils/dataclasses.py FullyShardedDataParallelPlugin reads it.
    """
    value = launch.variables.get(_STRATEGY, "").lower()
    strategy = dict(zip("12345", _STRATEGIES, strict=True)).get(value, value)
    stated = {one.fact: one.value for one in main.statements}
    if (
        strategy in _STRATEGIES
        and stated.get("training.sharding") == "fsdp"
        and "training.fsdp_sharding_strategy" not in stated
    ):
        yield Statement("training.fsdp_sharding_strategy", _STRATEGY, strategy)


_OFF = frozenset((None, False, "", "false", "False", "no"))


def _refused(options: Mapping[str, Argument], launch: Launch) -> Iterable[Skipped]:
    """Say which options the Trainer refuses together.

    ``training_args.py`` ("At most one of fp16 and bf16 can be True, but not both") and ``trainer.py`` ("Using --fsdp xxx
    together with --deepspeed is not possible") of transformers.
    """
    for one, other in (("bf16", "fp16"), ("fsdp", "deepspeed")):
        pair = [options[name] for name in (one, other) if name in options]
        if len(pair) == len((one, other)) and all(entry.why is None and entry.value not in _OFF for entry in pair):
            source = launch.command.source._replace(key=f"--{other}", line=pair[1].line)
            why = f"the Trainer refuses --{one} together with --{other}; the run does not start"
            yield Skipped(source, why, "keep one of them")


_Placed = TypeVar("_Placed", Skipped, Gap)


def _with_line(entry: _Placed, lines: Mapping[str, int]) -> _Placed:
    line = lines.get((entry.source.key or "").partition(".")[0])
    return (
        entry
        if line is None or entry.source.line is not None
        else entry._replace(source=entry.source._replace(line=line))
    )


def _without_negation(options: Mapping[str, Argument], reader: ArgumentReader) -> dict[str, Argument]:
    """Read ``--no_bf16`` as ``--bf16 false``, as HfArgumentParser does for switches that are on by default."""
    table = reader.TABLE
    result: dict[str, Argument] = {}
    for name, argument in options.items():
        plain = name.removeprefix("no_")
        known = plain in table or plain in TRAINER_NAMES
        if name != plain and known and name not in table and argument.value is True:
            result[plain] = argument._replace(value=False)
        else:
            result[name] = argument
    return result


def _take_config(
    options: dict[str, Argument], references: list[tuple[str, str, str]], gaps: list[Gap], launch: Launch
) -> None:
    argument = options.pop("config")
    if argument.why is not None:
        source = launch.command.source._replace(key="--config", line=argument.line)
        gaps.append(Gap(source, f"names a file that {argument.why}"))
    elif isinstance(argument.value, str):
        references.append(("config", argument.value, "--config"))


def is_file(word: Word) -> bool:
    """Tell whether a word names a file of arguments."""
    return (word.text or word.written).endswith((".yaml", ".yml", ".json"))


def _take_word(word: Word, options: dict[str, Argument], references: list[tuple[str, str, str]]) -> None:
    """Take a positional word: a file of arguments, or ``key=value`` as LLaMA-Factory and OmegaConf accept it."""
    if word.text is None:
        return
    key, equals, value = word.text.partition("=")
    if is_file(word) and not equals:
        references.append(("config", word.text, "(argument)"))
    elif equals and re.fullmatch(r"[A-Za-z_][\w.]*", key):
        options[key] = Argument(read_scalar(value), word.source.line)


def read_ranks(launch: Launch, left_out: tuple[str, str, int] | None = None) -> Document | None:
    """Say how many ranks a tool starts by itself: NPROC_PER_NODE and NNODES.

    Args:
        launch: of the tool.
        left_out: the fact, the key and the value that hold without NPROC_PER_NODE; None where nobody can tell.
    """
    found = Ranks()
    line = launch.command.source.line
    per_node, nodes = (parse_count(launch.variables.get(name)) for name in ("NPROC_PER_NODE", "NNODES"))
    if per_node is not None:
        found.state(ranks.GPUS, "NPROC_PER_NODE", per_node, line)
    elif left_out is not None:
        found.state(*left_out, line)
    if nodes is not None:
        found.state(ranks.NODES, "NNODES", nodes, line)
    elif found.value(ranks.GPUS) and "NNODES" not in launch.command.variables:
        found.state(ranks.NODES, "NNODES (left out)", 1, line)
    for name, fact in (("NPROC_PER_NODE", ranks.GPUS), ("NNODES", ranks.NODES)):
        word = launch.command.variables.get(name)
        if word is not None and word.text is None:
            found.doubt(fact, name, explain(word), line)
    return found.document(launch.command.source)


def read_lone_rank(launch: Launch) -> Document | None:
    """Say that a script that no launcher starts is one rank."""
    if launch.kind == "tool" or {"torchrun", "deepspeed", "accelerate", "srun", "mpirun"} & set(launch.launchers):
        return None
    found = Ranks()
    found.state(ranks.WORLD, "(started by python alone)", 1, launch.command.source.line)
    return found.document(launch.command.source)


def _unresolved_sections(options: Mapping[str, Argument]) -> Iterable[Unresolved]:
    argument = options.get("deepspeed")
    if argument is not None and argument.why is not None:
        yield Unresolved("training.zero_stage", "deepspeed", argument.why)
