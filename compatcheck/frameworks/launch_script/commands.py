"""Read the commands of a script: which of them train, as which program, with which facts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.document import TAKEN_AS_EMPTY, Document, Gap, Statement, Unresolved, enclosing_keys
from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.redaction import redact
from compatcheck.core.setting_names import words_about_memory
from compatcheck.core.source import Skipped
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.deepspeed import syntax
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.launch.hydra import parse_overrides
from compatcheck.frameworks.launch_script.choices import spread, unite
from compatcheck.frameworks.launch_script.launchers import remove_launchers
from compatcheck.frameworks.registry import Folder, command_folders, find_folder
from compatcheck.frameworks.text import expect_mapping
from compatcheck.rules.programs import find_program, programs
from compatcheck.shell.parameters import NO_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.command import Command, Word
    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

_MANY_RANKS = {"torchrun", "deepspeed", "accelerate", "lightning"}
_COUNT_PROCESSES = {"srun", "mpirun"}
_COUNT = _MANY_RANKS | _COUNT_PROCESSES | {"tune"}
"""Launchers whose options say how many processes there are; the innermost counts."""


class TrainingCommand(NamedTuple):
    """One training command of a script."""

    launch: Launch
    documents: tuple[Document, ...]
    """Its own options first, then what the launchers say."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its words rest on: ``$NNODES is not set``."""
        command = self.launch.command
        words = (
            *command.words,
            *(command.variables[name] for name in self.launch.variables if name in command.variables),
        )
        started = [] if command.condition is None else [f"{command.source}: starts only under: {command.condition}"]
        assumed = (f"{command.source.path}: assumed: {text}" for word in words for text in word.assumes)
        return tuple(dict.fromkeys((*started, *assumed)))

    @property
    def is_training(self) -> bool:
        """Whether it surely trains: a program that is known to, or one that is started as trainings are."""
        return self.documents[0].reader != "script" or _is_started_to_train(self.launch)

    @property
    def line(self) -> int | None:
        """Where the command stands."""
        return self.launch.command.source.line


def read_commands(
    commands: Iterable[Command],
    files: Mapping[str, str | None] | None = None,
    find_parsed: Callable[[Command, str], str | None] = lambda _, __: None,
    complete: Callable[[Launch], Launch] = lambda launch: launch,
) -> tuple[TrainingCommand, ...]:
    """Return the training commands, each with its documents; what is repeated word for word counts once.

    Args:
        commands: of one script, in the order it would run them.
        files: files the script itself has written in the end, by normal path; None for one that holds what nobody knows.
        find_parsed: returns the reader of the arguments that a Python script has parsed, where that is told.
        complete: adds to a launch the words that its program takes where they are left out.
    """
    runs: list[TrainingCommand] = []
    seen: set[tuple[object, ...]] = set()
    for command in map(_leave_templates, commands):
        launches = [complete(launch) for way in spread(command) if (launch := remove_launchers(way)) is not None]
        ways = [documents for launch in launches if (documents := read_launch(launch, find_parsed))]
        identity = tuple(
            (launch.program, *((word.text or word.written) for word in launch.arguments)) for launch in launches
        )
        then = {path: word.text for path, word in command.files.items()}
        whole = identity, tuple(sorted(then.items(), key=str))
        if ways and whole not in seen:
            seen.add(whole)
            first, *others = unite(ways, command)
            united = (first._replace(gaps=(*first.gaps, *_arguments(command))), *others)
            written = (part for document in united for part in _take_written(document, {**(files or {}), **then}))
            runs.append(TrainingCommand(launches[0]._replace(command=command), tuple(written)))
    return tuple(
        run._replace(documents=tuple(_place_retriever(one, run, runs) for one in run.documents)) for run in runs
    )


def _leave_templates(command: Command) -> Command:
    """Take words that something fills in before a shell gets them (``"{{ lr }}"``) for ones that nobody knows."""

    def leave(word: Word) -> Word:
        places = _TEMPLATE.findall(word.text) if word.text is not None and "{{" in word.text else []
        return word._replace(text=None, unresolved=tuple(places)) if places else word

    words = tuple(map(leave, command.words))
    return command if words == command.words else command._replace(words=words)


_TEMPLATE = lazy_compile(r"\{\{[^{}]*\}\}")


def _arguments(command: Command) -> Iterator[Gap]:
    """Say that a command passes on what the script is given, where nobody says that it is given anything."""
    if any(NO_ARGUMENTS in word.assumes for word in command.words[:1]):
        yield Gap(command.source._replace(key=None), f'passes on "$@"; {TAKEN_AS_EMPTY}', None, assumed=True)


def read_launch(
    launch: Launch, find_parsed: Callable[[Command, str], str | None] = lambda _, __: None
) -> tuple[Document, ...]:
    """Return what a launch says; nothing when it is not known to train.

    Options that tell no program are those of the parser in the script that is started; so are those that tell one on which the
    program of that parser is built, which has them, too.
    """
    told = ((folder, kind) for folder in command_folders() if (kind := folder.command.recognise(launch)) is not None)
    folder, kind = next(told, (None, None))
    if kind == "":  # known, and not read: its keys and configuration are those of another one
        folder = None
    elif folder is None or any(one.inherits == kind for one in programs().values()):
        asked, its_kind = _ask_script(launch, find_parsed)
        if asked is not None and (folder is None or find_program(its_kind).inherits == kind):
            folder, kind = asked, its_kind
    if kind is None:
        folder, kind = _ask_configuration(launch, find_parsed)
    if folder is not None:
        own = launch.kind == "script" or find_program(kind).of_scripts  # a module of a framework is its own
        program = _program_reference(launch) if own and kind not in folder.told else ()
        documents = (*folder.command.read(launch, kind), *_of_launchers(launch, folder, kind))
        first = documents[0]._replace(references=(*documents[0].references, *program), passed=_passed(launch))
        first = first._replace(gaps=(*first.gaps, *_unheard(launch, first)))
        return first, *documents[1:]
    source = launch.command.source
    aside = _converter(launch) or _retriever(launch)
    if aside is not None:
        return (aside,)
    references = (*_program_reference(launch), *_named_files(launch))
    command = Document("script", source, (), references=references, is_command=True, passed=_passed(launch))
    command = command._replace(gaps=(_may_set_all(launch),))
    if not _is_started_to_train(launch):
        return (command, *launch.documents) if references and not _is_of_framework(launch) else ()
    what = "whose options this release does not read" if launch.arguments else "which does not say what it trains"
    about = (
        None if launch.arguments else "training.framework"
    )  # without options the script alone tells, where it can be read
    hint = "--set what they decide" if launch.arguments else "--set what it decides"
    suggested = _suggest(launch)
    hint = f"{hint}; if their names say it: {suggested}" if suggested else hint
    skip = Skipped(source, f"starts {launch.program}, {what}", hint, by_run=True, fact=about)
    return (command._replace(skipped=(skip,)), *launch.documents)


_FEW = 2
"""Words about memory that the options of anything may hold."""


def _is_started_to_train(launch: Launch) -> bool:
    """Tell whether a program is started on many ranks, or with options of a training: a learning rate, and more about memory."""
    if not _MANY_RANKS.isdisjoint(launch.launchers):
        return True
    names = parse_flags(launch.arguments).options.keys()
    words = frozenset().union(*map(words_about_memory, names))
    return len(words) > _FEW and not names.isdisjoint({"lr", "learning_rate"})


def _is_of_framework(launch: Launch) -> bool:
    """Tell whether a module is a framework's that its reader does not know to train: a server, a converter."""
    package = launch.program.partition(".")[0].replace("_", "-")
    return launch.kind == "module" and any(package == one.packages[0] for one in programs().values() if one.packages)


def _suggest(launch: Launch) -> str:
    from compatcheck.frameworks.launch_script.suggestions import suggest  # noqa: PLC0415 (only for unread programs)

    return suggest(launch)


def _may_set_all(launch: Launch) -> Gap:
    """Say that a program which no reader knows decides about model, optimizer and sharding itself, unless it can be read."""
    from compatcheck.frameworks.python_script.changes import OF_MODEL, OF_OPTIMIZER  # noqa: PLC0415 (reads Python)

    name = next((name for _, name, _ in _program_reference(launch)), launch.program)
    source = launch.command.source._replace(key=redact(name))
    return Gap(source, "was not read, and may set what nothing else states", facts=OF_MODEL | OF_OPTIMIZER)


def _passed(launch: Launch) -> Mapping[str, Argument] | None:
    """Return the options of a command; None where it may give others, or gives some by one letter."""
    flags = parse_flags(launch.arguments)
    short = any((word.text or "")[:1] == "-" and (word.text or "")[1:2].isalpha() for word in launch.arguments)
    return None if flags.unknown or short else flags.options


_OVERRIDE = lazy_compile(r"(?:(\+\+|\+|~)([A-Za-z_][\w./@-]*)|([A-Za-z_]\w*(?:[./@][\w-]+)+)(?==)|-([A-Za-z][\w-]*))")
"""A word that sets something: an override, or an option of one dash."""


def _unheard(launch: Launch, document: Document) -> Iterator[Gap]:
    """Yield the words of a command that set something and that its reader says nothing of."""
    words = [
        (word, match)
        for word in parse_flags(launch.arguments, single=True).positional
        if (match := _OVERRIDE.match(word.written))
    ]
    if not words:
        return
    said = {*document.options, *document.lines, *(key for key, _ in document.unread)}
    for found in (document.statements, document.unresolved):
        said.update(one.key for one in found)
    for left in (document.gaps, document.skipped):
        said.update(str(one.source.key) for one in left)
    said.update([outer for key in said for outer in enclosing_keys(key)])
    for word, match in words:
        key = next(filter(None, match.groups()[1:]))
        if key not in said and word.written not in said:
            of_group = "/" in key or "@" in key
            yield Gap(word.source._replace(key=key), "is not understood", None if of_group else key, match[1] == "+")


def _of_launchers(launch: Launch, folder: Folder, kind: str) -> tuple[Document, ...]:
    """Return what launchers say: those that count processes say no ranks of a program that starts these itself."""
    counting = next((name for name in reversed(launch.launchers) if name in _COUNT), None)
    spawns = launch.kind == "tool" or kind in folder.spawns
    return () if spawns and counting in _COUNT_PROCESSES else launch.documents


def _ask_configuration(launch: Launch, find_parsed: Callable[[Command, str], str | None]) -> tuple[Folder | None, str]:
    """Tell a program by the configuration that it composes from (Hydra) or is given first, where that lies here."""
    overrides = parse_overrides(launch.arguments)
    path, name = (getattr(one, "value", None) for one in (overrides.config_path, overrides.config_name))
    composed = isinstance(path, str) and isinstance(name, str)
    first = next((named for kind, named, _ in _named_files(launch) if kind == "config"), None)
    file = f"{path}/{str(name).removesuffix('.yaml')}.yaml" if composed else first
    reader = None if file is None else find_parsed(launch.command, file)
    folder = None if reader is None else find_folder(reader)
    return (folder, reader) if reader is not None and folder is not None and folder.told_by_file else (None, "")


def _ask_script(launch: Launch, find_parsed: Callable[[Command, str], str | None]) -> tuple[Folder | None, str]:
    parsed = next((find_parsed(launch.command, program) for _, program, _ in _program_reference(launch)), None)
    folder = None if parsed is None else find_folder(parsed)
    return (None, "") if folder is None or parsed is None else (folder, parsed)


def _named_files(launch: Launch) -> Iterator[tuple[str, str, str]]:
    """Name the DeepSpeed file of a program with options of its own, or the file of arguments it is given first."""
    flags = parse_flags(launch.arguments)
    for name in ("deepspeed_config", "deepspeed"):
        value = getattr(flags.options.get(name), "value", None)
        if isinstance(value, str) and value.endswith((".json", ".hjson")):
            yield "deepspeed", value, f"--{name}"
            return
    first = flags.positional[0].text if flags.positional else None
    if first is not None and first.endswith((".yaml", ".yml")) and "train" in launch.program:
        yield "config", first, "(argument)"


def _program_reference(launch: Launch) -> tuple[tuple[str, str, str], ...]:
    """Name the Python script, whose literals count where the command line leaves something open; a module is one by its name."""
    return (("program", launch.file, "(program)"),) if launch.kind != "tool" and launch.file.endswith(".py") else ()


def _converter(launch: Launch) -> Document | None:
    """Return what the script says that DeepSpeed puts into each checkpoint: it merges those of all ranks."""
    if os.path.basename(launch.file) != "zero_to_fp32.py":
        return None
    statement = Statement("run.converts_zero_checkpoint", "(program)", True)
    return Document("launcher", launch.command.source, (statement,), is_command=True)


_RETRIEVER = "run.retriever_on_gpu"


def _retriever(launch: Launch) -> Document | None:
    """Return where a search tool of Search-R1 keeps its index: on the devices that it sees, which may be others than train.

    Source: PeterGriffinJin/Search-R1@a14dc3a4 search_r1/search/retrieval_server.py, retrieval_rerank_server.py (store_true).
    """
    options = parse_flags(launch.arguments).options
    gpu, key = options.get("faiss_gpu"), "faiss_gpu"
    place = Document("launcher", launch.command.source, (), is_command=True)
    if gpu is None:
        if os.path.basename(launch.file) not in _RETRIEVERS or "index_path" not in options:
            return None
        return place._replace(statements=(Statement(_RETRIEVER, f"{key} (left out)", value=False),))
    if gpu.value is not True:
        return None
    lines = {} if gpu.line is None else {key: gpu.line}
    return place._replace(statements=(Statement(_RETRIEVER, key, value=True),), lines=lines)


_RETRIEVERS = frozenset({"retrieval_server.py", "retrieval_rerank_server.py"})


_VISIBLE = "CUDA_VISIBLE_DEVICES"


def _place_retriever(document: Document, server: TrainingCommand, runs: Sequence[TrainingCommand]) -> Document:
    """Say whether a server that sees some devices alone is beside the training: not where that sees others."""
    facts = {statement.fact for statement in document.statements if statement.value is True}
    own = _visible(server)
    if facts != {_RETRIEVER} or own is None or "0" in own:  # a training that names no devices has the first at least
        return document
    others = [_visible(run) for run in runs if run is not server]
    if any(one is not None and one & own for one in others):
        return document
    if others and None not in others:
        return document._replace(statements=(Statement(_RETRIEVER, _VISIBLE, False),))
    why = "is not told: the server sees these devices alone, and nothing says which of them train"
    return document._replace(statements=(), unresolved=(Unresolved(_RETRIEVER, _VISIBLE, why),))


def _visible(run: TrainingCommand) -> frozenset[str] | None:
    """Return the devices that a command sees; None where none are named."""
    word = run.launch.command.variables.get(_VISIBLE)
    return frozenset(word.text.replace(" ", "").split(",")) if word is not None and word.text else None


def _take_written(document: Document, files: Mapping[str, str | None]) -> tuple[Document, ...]:
    """Read the DeepSpeed files a document names from the script's own here-documents, and note what else it writes."""
    kept, found, skipped = [], [], list(document.skipped)
    for kind, name, key in document.references:
        text = files.get(os.path.normpath(name)) if kind == "deepspeed" else None
        if text is None:
            kept.append((kind, name, key))
            continue
        place = f"{document.source.path} ({os.path.normpath(name)})"
        try:
            data = expect_mapping(syntax.parse_here_document(text, place), place, "a configuration of DeepSpeed")
            found.append(deepspeed.read_section(data, place))
        except InputError as error:
            skipped.append(Skipped(document.place(key), f"writes {name!r}: {error.message}", error.hint))
    changed = {name: files[path] for _, name, _ in kept if (path := os.path.normpath(name)) in files}
    return document._replace(references=tuple(kept), skipped=tuple(skipped), changed=changed), *found
