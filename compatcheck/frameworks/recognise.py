"""Tell what a configuration file is from its content, and read it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks import unread as other_frameworks
from compatcheck.frameworks.accelerate import configuration as accelerate
from compatcheck.frameworks.axolotl import configuration as axolotl
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from compatcheck.frameworks.keys import Key
from compatcheck.frameworks.llamafactory import configuration as llama_factory
from compatcheck.frameworks.model import configuration as model
from compatcheck.frameworks.ms_swift import configuration as ms_swift
from compatcheck.frameworks.native import configuration as native
from compatcheck.frameworks.open_instruct import configuration as open_instruct
from compatcheck.frameworks.text import parse_json_or_yaml, read_text
from compatcheck.frameworks.torchtune import configuration as torchtune

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment
    from compatcheck.frameworks.hf_trainer.arguments import Table
    from compatcheck.rules.database import RuleSet

SUFFIXES = (".json", ".yaml", ".yml", ".hjson", ".jsonc")
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
"""Launch scripts."""


_TOLD_BY_MARKS = {
    "accelerate",
    "axolotl",
    "deepspeed",
    "easy_r1",
    "llama_factory",
    "ms_swift",
    "native",
    "open_instruct",
    "torchtune",
    "verl",
}
"""Kinds told by keys of their own, which no other program's files hold."""


_KNOWN = (
    "config.json, DeepSpeed, accelerate, HF Trainer, TRL, axolotl, LLaMA-Factory, ms-swift, open-instruct, torchtune, verl, "
    "EasyR1, facts, launch scripts (.sh), training scripts (.py)"
)


class Reading(NamedTuple):
    """What one configuration file gave."""

    documents: tuple[Document, ...]
    environment: Environment | None = None
    """Packages or variables that a facts file declares."""
    variables: Mapping[str, str] = {}
    """Environment variables a launch script sets for its command."""
    label: str | None = None
    """Name of this run where one script starts several: ``train.sh:12``."""
    is_launch: bool = False
    """Whether this is a run of its own, a command of a launch script."""
    notes: tuple[str, ...] = ()
    """What the reading of a launch script rests on."""


def is_script(path: str) -> bool:
    """Tell whether a path names a launch script, or one command of it by its line (``train.sh:12``)."""
    file, _, line = path.rpartition(":")
    return path.endswith(SCRIPTS) or (line.isdigit() and file.endswith(SCRIPTS))


def read_configurations(path: str, files: Files = LOCAL, *, named: bool) -> tuple[Reading, ...]:
    """Read a file of any known kind, a launch script with every training command in it.

    Raises:
        InputError: as `read_configuration`; a named script that starts no training.
    """
    if is_script(path):
        from compatcheck.frameworks.launch.script import read_launch_script  # noqa: PLC0415 (only for launch scripts)

        readings = tuple(
            Reading(run.documents, None, run.launch.variables, label, is_launch=True, notes=run.assumptions)
            for label, run in read_launch_script(path, files, named=named)
            if _trains(run.documents, files)
        )
        if named and not readings:
            msg = "starts no training program this release knows"
            hint = "name the script that starts it, or state what it sets in a facts file (compatcheck: 1)"
            raise InputError(msg, source=Source(path), hint=hint)
        return readings
    if path.endswith(".py"):
        if not named:
            return ()
        from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)

        return (Reading(python_script.read(path, files)),)
    reading = read_configuration(path, files, named=named)
    return () if reading is None else (reading,)


def _trains(documents: tuple[Document, ...], files: Files) -> bool:
    """Tell whether a command says anything about training; one that only starts a script does where that script does."""
    first = documents[0]
    if len(documents) > 1 or first.reader != "script" or first.statements or first.skipped:
        return True
    if any(kind != "program" for kind, _, _ in first.references):
        return True
    programs = (_beside(first.source.path, name, files) for _, name, _ in first.references)
    return any(files.is_file(file) and _says_something(file, files) for file in programs)


def _says_something(file: str, files: Files) -> bool:
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)

    try:
        return bool(python_script.read(file, files, named=False))
    except InputError:
        return False


def read_configuration(path: str, files: Files = LOCAL, *, named: bool) -> Reading | None:
    """Read a configuration file of any known kind.

    Args:
        path: the file.
        files: the tree it lies in.
        named: whether the person named it; then an unknown kind is an error, otherwise it is passed over.

    Returns:
        What it says, or None when it was walked into and is no training configuration.

    Raises:
        InputError: not readable, malformed, of a program whose files are not read, or (when named) of no known kind.
    """
    kind, data = _classify(path, files, named=named)
    framework = None if kind in _TOLD_BY_MARKS else other_frameworks.recognise(data)
    if framework is not None:
        msg = f"is a configuration of {framework}, which this release does not read"
        hint = "state what it sets in a facts file (compatcheck: 1), with training.framework"
        raise InputError(msg, source=Source(path), hint=hint)
    match kind:
        case "native":
            document, environment = native.read(path, files)
            return Reading((_refuse_unknown_names(document),), environment)
        case "axolotl":
            return Reading(axolotl.read_data(data, path))
        case "model":
            return Reading((model.read_data(data, path),))
        case "deepspeed":
            return Reading((deepspeed.read(path, files),))
        case "accelerate":
            return Reading((accelerate.read(path, files),))
        case "hf_trainer":
            return Reading(hf_trainer.read_data(data, path))
        case "llama_factory":
            return Reading(llama_factory.read_data(data, path))
        case "open_instruct" | "torchtune" | "verl" | "easy_r1":
            return Reading((_read_recipe(kind, data, path),))
        case "ms_swift":
            return Reading(*ms_swift.read_data(data, path))
        case _:
            if not named:
                return None
            if not read_text(path, files).strip():
                msg = "is empty"
                raise InputError(msg, source=Source(path), hint="name the file that says something")
            hint = f"known: locks, requirements and other lists of packages (docs/inputs.md), {_KNOWN}"
            msg = "lists no packages and is no configuration this release can read"
            raise InputError(msg, source=Source(path), hint=hint)


def _classify(path: str, files: Files, *, named: bool) -> tuple[str | None, dict[str, Any]]:
    try:
        data = parse_json_or_yaml(read_text(path, files), path)
    except InputError:
        if _looks_like_deepspeed(path, files):
            return (
                "deepspeed",
                {},
            )  # Hjson: comments are legal for DeepSpeed; its reader reports what is wrong otherwise
        if named or os.path.basename(path) == "config.json" or _looks_like_training(path, files):
            raise
        return None, {}
    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        return None, {}
    if "actor_rollout_ref" in data:
        return "verl", dict(data)
    if isinstance(data.get("worker"), Mapping) and {"actor", "rollout"} <= data["worker"].keys():
        return "easy_r1", dict(data)
    for name, reader in (
        ("native", native),
        ("torchtune", torchtune),
        ("axolotl", axolotl),
        ("llama_factory", llama_factory),
        ("ms_swift", ms_swift),
        ("open_instruct", open_instruct),
        ("model", model),
        ("accelerate", accelerate),
        ("deepspeed", deepspeed),
        ("hf_trainer", hf_trainer),
    ):
        if reader.recognise(data):
            return name, dict(data)
        if name == "llama_factory" and llama_factory.is_marked(data):
            break  # chats, merges or evaluates
    return None, dict(data)


def _read_recipe(kind: str, data: dict[str, Any], path: str) -> Document:
    if kind in {"open_instruct", "torchtune"}:
        return torchtune.read_data(data, path) if kind == "torchtune" else open_instruct.read_data(data, path)
    from compatcheck.frameworks.easy_r1 import command as easy_r1  # noqa: PLC0415 (only for such files)
    from compatcheck.frameworks.verl import command as verl  # noqa: PLC0415 (only for such files)

    return verl.read_data(data, path) if kind == "verl" else easy_r1.read_data(data, path)


_TABLES: dict[str, tuple[str, Table]] = {
    "hf_trainer": ("the HF Trainer", hf_trainer.TABLE),
    "trl": ("TRL", hf_trainer.TABLE),
    "llamafactory": ("LLaMA-Factory", llama_factory.TABLE),
    "ms_swift": ("ms-swift", ms_swift.TABLE),
}
"""What a program's own keys mean, by the framework a facts file names."""


def _refuse_unknown_names(document: Document) -> Document:
    """Say what is wrong with names in a facts file that are no facts; it is the person's own statement, so that they count.

    Where a name is a key of the program the file names, as ``training.use_reentrant_gc``, the fact it sets is told.
    """
    framework = next((entry.value for entry in document.statements if entry.fact == "training.framework"), None)
    program, table = _TABLES.get(str(framework), ("", {}))
    skipped = list(document.skipped)
    for key, near in document.unread:
        section, _, name = key.rpartition(".")
        entry = table.get(name if section in native.SECTIONS else key)
        meaning = entry if isinstance(entry, Key) else next(iter(entry or ()), None)
        if meaning is None:
            reason, hint = "is no fact", f"did you mean {near}?" if near else "`compatcheck facts --names` lists them"
        else:
            reason, hint = f"is a key of {program}; a facts file states {meaning.fact}", f"write {meaning.fact}"
        skipped.append(Skipped(document.source._replace(key=key), reason, hint, named=True))
    return document._replace(unread=(), skipped=tuple(skipped))


def _looks_like_deepspeed(path: str, files: Files) -> bool:
    try:
        text = read_text(path, files)
    except InputError:
        return False
    return "zero_optimization" in text or "train_micro_batch_size_per_gpu" in text


_MARKS = (
    b"compatcheck:",
    b"compute_environment",
    b"gradient_accumulation_steps",
    b"gradient_checkpointing",
    b"per_device_train_batch_size",
    b"zero_optimization",
)
"""Keys that tell a broken training configuration from data of other programs."""


def _looks_like_training(path: str, files: Files) -> bool:
    """Tell whether a file that cannot be parsed was meant as a training configuration: then passing over it would be a guess."""
    try:
        head = files.read_bytes(path, 64 * 1024)
    except OSError:
        return True  # nobody can tell what it is
    head = head.replace(b"\0", b"")  # UTF-16
    return any(mark in head for mark in _MARKS)


def follow_references(
    documents: tuple[Document, ...],
    rules: RuleSet,
    environ: Mapping[str, str],
    files: Files = LOCAL,
) -> tuple[Document, ...]:
    """Read the models and files that documents name; what cannot be read is said in the naming document.

    A model that a person gave wins: then references to models are not followed. A file that a named document names counts
    as named; a hub id that is not in the local cache does not, for it is no file.
    """
    follow = _Follow(documents, rules, environ, files)
    pending = list(documents)
    result: list[Document] = []
    while pending:
        document = pending.pop(0)
        skipped = list(document.skipped)
        extra: list[Document] = []
        for kind, name, key in document.references:
            place = document.place(key)
            try:
                extra.extend(_mark(found, document) for found in follow.read(kind, name, document, place))
            except InputError as error:
                reason = error.message if error.source == place else str(error)
                counts = document.named and (kind in _FILES or error.source != place or model.is_path(name))
                skipped.append(Skipped(place, f"names {name!r}: {reason}", error.hint, named=counts))
                if kind in _DECIDES:
                    extra.append(_leave_open(kind, name, key, place))
        is_trl = document.reader == "hf_trainer" and any(found.reader == "trl" for found in extra)
        result.append(document._replace(reader="trl" if is_trl else document.reader, skipped=tuple(skipped)))
        pending[:0] = extra
    return tuple(result)


_FILES = {"deepspeed", "accelerate", "config", "verl"}
"""Kinds of references that name a file; ``program`` names a script that need not lie here."""


_DECIDES = {
    "accelerate": ("hardware.world_size", "training.sharding"),
    "deepspeed": ("training.zero_stage", "training.sharding"),
}
"""Facts that a file of this kind decides; where it cannot be read no default stands in for them."""


def _leave_open(kind: str, name: str, key: str, place: Source) -> Document:
    """Return a document that leaves open what a file that cannot be read would decide."""
    from compatcheck.core.document import MISSING, Document, Unresolved  # noqa: PLC0415 (on the way to an error)

    why = f"stands in {name}, which could not be read"
    unresolved = tuple(Unresolved(fact, key, why) for fact in _DECIDES[kind])
    return Document(MISSING, place._replace(key=None), (), unresolved=unresolved)


class _Follow:
    """What has been read already while references are followed."""

    def __init__(
        self, documents: tuple[Document, ...], rules: RuleSet, environ: Mapping[str, str], files: Files
    ) -> None:
        self.files = files
        self.rules = rules
        self.environ = environ
        self.present = {files.resolve(document.source.path) for document in documents}
        self.models: dict[str | None, str | None] = {}
        if any(document.reader == "model" for document in documents):
            self.models[None] = None
        self.has_model = None in self.models

    def read(self, kind: str, name: str, document: Document, place: Source) -> tuple[Document, ...]:
        """Read what one reference names; nothing when it is there already or need not be.

        Raises:
            InputError: it cannot be read.
        """
        if kind.startswith("model"):
            return self._read_model(kind.partition(":")[2] or None, name, document, place)
        if kind == "deepspeed" and name == "auto":
            return ()
        file = _beside(document.source.path, name, self.files)
        if self.files.resolve(file) == self.files.resolve(document.source.path):
            msg = f"this very file is no {kind} file"
            raise InputError(msg, source=place, hint="name another file")
        if self.files.resolve(file) in self.present or (kind == "program" and not self.files.is_file(file)):
            return ()
        self.present.add(self.files.resolve(file))
        return _read_kind(kind, file, self.files)

    def _read_model(self, role: str | None, name: str, document: Document, place: Source) -> tuple[Document, ...]:
        if role in self.models or self.has_model:
            return ()
        if role is not None and self.models.get(None) == name:
            return ()
        self.models[role] = name
        found = _read_named_model(name, document.source.path, self.rules, self.environ, place, self.files)
        if role is None:
            return (found,)
        return (found._replace(statements=tuple(entry._replace(role=role) for entry in found.statements)),)


def _read_kind(kind: str, file: str, files: Files) -> tuple[Document, ...]:
    match kind:
        case "deepspeed":
            return (deepspeed.read(file, files),)
        case "accelerate":
            return (accelerate.read(file, files),)
        case "program":
            from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)

            return python_script.read(file, files, named=False)
        case _:
            reading = read_configuration(file, files, named=True)
            return () if reading is None else reading.documents


def _mark(document: Document, naming: Document) -> Document:
    """Hand on that the person named a document to one that it names."""
    if not naming.named:
        return document
    return document._replace(named=True, skipped=tuple(skip._replace(named=True) for skip in document.skipped))


def _read_named_model(
    name: str, base: str, rules: RuleSet, environ: Mapping[str, str], place: Source, files: Files
) -> Document:
    local = _beside(base, name, files)
    return model.read(local if files.exists(local) else name, rules, environ, place, files)


_MAX_ABOVE = 6
"""How many directories above a file are tried as the one its program is started in."""


def _beside(base: str, name: str, files: Files) -> str:
    """Resolve a path that a file names, from the directory its program is started in, which nobody can tell.

    The nearest directory that has it wins, from the naming file's own upwards to the working directory or a repository's root;
    where neither lies above, a bare name is looked for beside the naming file alone. How the naming file's path was
    written makes no difference, and what happens to lie in an unrelated working directory is not taken.
    """
    if os.path.isabs(name) or "://" in name:
        return name
    directories = _starting_directories(os.path.dirname(os.path.abspath(base)), files, bare=not os.path.dirname(name))
    found = (os.path.normpath(os.path.join(directory, name)) for directory in directories)
    file = next(filter(files.exists, found), os.path.normpath(os.path.join(directories[0], name)))
    return file if os.path.isabs(base) else os.path.relpath(file)


def _starting_directories(directory: str, files: Files, *, bare: bool) -> list[str]:
    """Return a directory and those above it that a program may be started in."""
    here, above = os.getcwd(), [directory]
    while len(above) <= _MAX_ABOVE:
        last = above[-1]
        if last == here or files.exists(os.path.join(last, ".git")):
            return above
        above.append(os.path.dirname(last))
    return [directory] if bare else above
