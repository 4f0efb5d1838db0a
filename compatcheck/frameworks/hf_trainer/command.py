"""Command lines of programs built on the HF Trainer: scripts with its arguments, TRL, LLaMA-Factory, ms-swift, open-instruct.

All parse dataclasses with ``HfArgumentParser``: ``--name value``, ``--name``, ``--no_name``. The readers of their files read the
options; a file that the command names is read as well, and the options win over it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement, Unresolved
from compatcheck.core.errors import InputError
from compatcheck.core.source import Skipped
from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from compatcheck.frameworks.keys import Key
from compatcheck.frameworks.launch import launchers, ranks
from compatcheck.frameworks.launch.arguments import unresolved_options
from compatcheck.frameworks.launch.flags import known_values, parse_flags
from compatcheck.frameworks.launch.ranks import Ranks
from compatcheck.frameworks.launch.values import Argument, explain, read_scalar
from compatcheck.frameworks.llamafactory import configuration as llama_factory
from compatcheck.frameworks.ms_swift import configuration as ms_swift
from compatcheck.frameworks.open_instruct import configuration as open_instruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from compatcheck.core.command import Word
    from compatcheck.frameworks.launch.arguments import Table
    from compatcheck.frameworks.launch.launchers import Launch

TRAINERS = {"sft", "dpo", "orpo", "cpo", "kto", "bco", "gkd", "ppo", "rloo", "grpo", "xpo", "prm", "reward"}
"""Words that name a trainer of TRL."""
_LLAMA_FACTORY = re.compile(
    r"(^|/)(train_bash\.py|train_exp_args\.py|train_sft\.py)$|llamafactory|llmtuner|LLaMA-Factory/src/train\.py"
)
_SWIFT = re.compile(r"(^|/)swift/cli/(_?megatron/)?(sft|pt|rlhf)\.py$|(^|/)llm_(sft|dpo|pt|rlhf)\.py$|swift\.cli\.")
_OPEN_INSTRUCT = re.compile(r"open_instruct[./](finetune|dpo_tune\w*|dpo)(\.py)?$")
_STRONG = {
    "per_device_train_batch_size", "gradient_checkpointing", "gradient_accumulation_steps", "num_train_epochs", "learning_rate",
    "output_dir", "lr_scheduler_type", "warmup_ratio", "logging_steps", "save_strategy", "bf16", "fp16", "report_to",
    "deepspeed", "save_total_limit",
}  # fmt: skip
_ENOUGH = 3
_OWN_LOOP = {
    "max_train_steps", "checkpointing_steps", "with_tracking", "num_warmup_steps", "use_8bit_adam", "train_batch_size",
    "lr_warmup_steps", "zero_stage", "micro_batch_size", "deepspeed_config",
}  # fmt: skip
"""Options of scripts that run a loop of their own; the Trainer has none of them."""

FAMILIES: dict[str, tuple[Table, tuple[str, ...]]] = {
    "hf_trainer": (hf_trainer.TABLE, ("model_name_or_path", "model_name", "model_id")),
    "llamafactory": (llama_factory.TABLE, ("model_name_or_path",)),
    "ms_swift": (ms_swift.TABLE, ("model", "model_id_or_path")),
    "open_instruct": (open_instruct.TABLE, ("model_name_or_path",)),
}
"""Key table and the keys that name the model, by family."""


def recognise(launch: Launch) -> str | None:
    """Tell which family's arguments a launch has."""
    program = launch.program
    if launch.kind == "tool":
        tool, _, action = program.partition(" ")
        known = {
            "llamafactory-cli": ("llamafactory", {"train"}),
            "lmf": ("llamafactory", {"train"}),
            "llmtuner": ("llamafactory", {"train"}),
            "swift": ("ms_swift", {"sft", "pt", "rlhf"}),
            "megatron": ("ms_swift", {"sft", "pt", "rlhf"}),
            "trl": ("hf_trainer", TRAINERS),
        }.get(tool)
        return known[0] if known is not None and action in known[1] else None
    if _SWIFT.search(program):
        return "ms_swift"
    if _OPEN_INSTRUCT.search(program):
        return "open_instruct"
    options = parse_flags(launch.arguments).options
    if (
        _LLAMA_FACTORY.search(program)
        or {"stage", "finetuning_type"} <= options.keys()
        or {"stage", "template"} <= options.keys()
    ):
        return "llamafactory"
    if _OWN_LOOP & options.keys():
        return None
    own = {name.removeprefix("no_") for name in options} & _STRONG
    named = any(_is_file(word) for word in launch.arguments[:2]) and bool(_trainer_word(program))
    config = isinstance(getattr(options.get("config"), "value", None), str) and bool(_trainer_word(program))
    return "hf_trainer" if len(own) >= _ENOUGH or "per_device_train_batch_size" in own or named or config else None


def _is_file(word: Word) -> bool:
    return (word.text or word.written).endswith((".yaml", ".yml", ".json"))


def _trainer_word(program: str) -> str | None:
    name = re.split(r"[/ ]", program)[-1].removesuffix(".py")
    words = TRAINERS.intersection(re.split(r"[^a-z]+", name.rpartition(".")[2].lower()))
    return words.pop() if len(words) == 1 else None


def read(launch: Launch, family: str) -> tuple[Document, ...]:
    """Translate a launch of one family."""
    flags = parse_flags(launch.arguments)
    options = _without_negation(flags.options, family)
    references: list[tuple[str, str, str]] = []
    skipped: list[Skipped] = []
    if "config" in options and family == "hf_trainer":
        _take_config(options, references, skipped, launch)
    for word in flags.positional:
        _take_word(word, options, references)
    documents: list[Document] = list(_own_ranks(launch, options))
    if launch.program.startswith("trl ") and "num_processes" in options:
        found = Ranks()
        launchers.read_accelerate_options(options, found, documents, references, launch.command)
        launcher = found.document(launch.command.source)
        documents += [launcher] if launcher is not None else []
    table, models = FAMILIES[family]
    read_data = _readers()[family]
    try:
        translated = read_data(known_values(options), launch.command.source.path)
    except InputError as error:
        translated = ()
        if not references:
            skipped.append(Skipped(launch.command.source, error.message, error.hint))
    main = translated[0] if translated else Document(family, launch.command.source, ())
    main = _name_trainer(main, launch)
    unresolved = [
        *unresolved_options(options, table, dict.fromkeys(models, "model")),
        *_unresolved_sections(options),
    ]
    lines = {word.written: word.source.line for word in flags.unknown if word.source.line is not None}
    lines |= {name: argument.line for name, argument in options.items() if argument.line is not None}
    skipped += _refused(options, launch)
    main = main._replace(
        source=launch.command.source,
        references=(*main.references, *references),
        skipped=tuple(_with_line(entry, lines) for entry in (*main.skipped, *skipped)),
        unread=(*main.unread, *((word.written, None) for word in flags.unknown)),
        is_command=True,
        lines=lines,
        unresolved=tuple(unresolved),
    )
    rest = [document._replace(is_command=True, lines=lines) for document in translated[1:]]
    return (main, *rest, *documents)


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


def _with_line(entry: Skipped, lines: Mapping[str, int]) -> Skipped:
    line = lines.get((entry.source.key or "").partition(".")[0])
    return (
        entry
        if line is None or entry.source.line is not None
        else entry._replace(source=entry.source._replace(line=line))
    )


def _readers() -> dict[str, Callable[[dict[str, Any], str], tuple[Document, ...]]]:
    return {
        "hf_trainer": hf_trainer.read_data,
        "llamafactory": llama_factory.read_data,
        "ms_swift": lambda data, path: ms_swift.read_data(data, path)[0],
        "open_instruct": lambda data, path: (open_instruct.read_data(data, path),),
    }


def _without_negation(options: Mapping[str, Argument], family: str) -> dict[str, Argument]:
    """Read ``--no_bf16`` as ``--bf16 false``, as HfArgumentParser does for switches that are on by default."""
    table = FAMILIES[family][0]
    result: dict[str, Argument] = {}
    for name, argument in options.items():
        plain = name.removeprefix("no_")
        if name != plain and plain in table and name not in table and argument.value is True:
            result[plain] = argument._replace(value=False)
        else:
            result[name] = argument
    return result


def _take_config(
    options: dict[str, Argument], references: list[tuple[str, str, str]], skipped: list[Skipped], launch: Launch
) -> None:
    argument = options.pop("config")
    if argument.why is not None:
        source = launch.command.source._replace(key="--config", line=argument.line)
        skipped.append(Skipped(source, f"the file named by --config {argument.why}", "name the file as well"))
    elif isinstance(argument.value, str):
        references.append(("config", argument.value, "--config"))


def _take_word(word: Word, options: dict[str, Argument], references: list[tuple[str, str, str]]) -> None:
    """Take a positional word: a file of arguments, or ``key=value`` as LLaMA-Factory and OmegaConf accept it."""
    if word.text is None:
        return
    key, equals, value = word.text.partition("=")
    if _is_file(word) and not equals:
        references.append(("config", word.text, "(argument)"))
    elif equals and re.fullmatch(r"[A-Za-z_][\w.]*", key):
        options[key] = Argument(read_scalar(value), word.source.line)


def _own_ranks(launch: Launch, options: Mapping[str, Argument]) -> Iterable[Document]:
    """Say how many ranks a tool starts by itself: NPROC_PER_NODE and NNODES, else one per visible device."""
    found = Ranks()
    line = launch.command.source.line
    if launch.program.startswith(("swift ", "megatron ", "llamafactory-cli ")):
        variables = launch.variables
        per_node, nodes = variables.get("NPROC_PER_NODE"), variables.get("NNODES")
        if per_node is not None and per_node.isdigit():
            found.state(ranks.GPUS, "NPROC_PER_NODE", int(per_node), line)
        elif launch.program.startswith("llamafactory-cli ") and (count := ranks.count_visible(variables)) is not None:
            found.state(ranks.GPUS, "CUDA_VISIBLE_DEVICES", count, line)
        elif launch.program.startswith("swift ") and "NPROC_PER_NODE" not in launch.command.variables:
            found.state(ranks.WORLD, "NPROC_PER_NODE (left out)", 1, line)
        if nodes is not None and nodes.isdigit():
            found.state(ranks.NODES, "NNODES", int(nodes), line)
        elif found.value(ranks.GPUS) and "NNODES" not in launch.command.variables:
            found.state(ranks.NODES, "NNODES (left out)", 1, line)
        for name, fact in (("NPROC_PER_NODE", ranks.GPUS), ("NNODES", ranks.NODES)):
            word = launch.command.variables.get(name)
            if word is not None and word.text is None:
                found.doubt(fact, name, explain(word), line)
    elif launch.kind != "tool" and not (
        {"torchrun", "deepspeed", "accelerate", "srun", "mpirun"} & set(launch.launchers)
    ):
        found.state(ranks.WORLD, "(started by python alone)", 1, line)
    del options
    document = found.document(launch.command.source)
    return () if document is None else (document,)


def _name_trainer(main: Document, launch: Launch) -> Document:
    """Name the trainer by the program where its options do not tell; a script called ``sft`` need not be TRL's."""
    word = _trainer_word(launch.program)
    if main.reader not in {"hf_trainer", "trl"} or word is None:
        return main
    if any(statement.fact == "training.trainer" and statement.value == word for statement in main.statements):
        return main
    sure = word != "sft" or main.reader == "trl" or re.search(r"\btrl\b|^scripts/(run_)?sft\.py$", launch.program)
    if not sure:
        return main
    kept = tuple(statement for statement in main.statements if statement.fact != "training.trainer")
    return main._replace(reader="trl", statements=(*kept, Statement("training.trainer", "(program)", word)))


def _unresolved_sections(options: Mapping[str, Argument]) -> Iterable[Unresolved]:
    argument = options.get("deepspeed")
    if argument is not None and argument.why is not None:
        yield Unresolved("training.zero_stage", "deepspeed", argument.why)
    for name in ("bf16", "fp16"):
        found = options.get(name)
        if found is not None and found.why is not None:
            yield Unresolved("training.mixed_precision", name, found.why)


__all__ = ["FAMILIES", "Key", "read", "recognise"]
