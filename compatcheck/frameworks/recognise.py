"""Tell what a configuration file is from its content, and read it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache

from compatcheck.core.document import BENEATH, CODE, DEFAULTS, SECTION, Document, Gap
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files, Overlay
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.redaction import redact
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import is_script, read_bytes
from compatcheck.frameworks import embedded, unread
from compatcheck.frameworks.beside import find_beside
from compatcheck.frameworks.composing import find_composing
from compatcheck.frameworks.composition import Places, compose, name_bases
from compatcheck.frameworks.deepspeed import syntax
from compatcheck.frameworks.keys import list_facts
from compatcheck.frameworks.placeholders import read_filled_in
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.recipe_files import holds_recipes
from compatcheck.frameworks.registry import (
    DEEPSPEED,
    HEAD_BYTES,
    configuration_readers,
    find_composer,
    find_configuration_reader,
    find_folder,
    find_python_reader,
    find_refinement,
    is_told_by_words,
    may_be_settings,
)
from compatcheck.frameworks.text import expect_mapping, parse_configuration, read_text
from compatcheck.frameworks.translation import flatten
from compatcheck.rules.programs import find_program, lineage
from compatcheck.rules.vocabulary import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from compatcheck.core.document import Statement
    from compatcheck.frameworks.launch_script.commands import TrainingCommand
    from compatcheck.frameworks.reader import ConfigurationReader
    from compatcheck.rules.database import RuleSet


def is_launch_script(path: str, files: Files = LOCAL) -> bool:
    """Tell whether a path names a launch script, or one command of it by its line (``train.sh:12``)."""
    file, _, line = path.rpartition(":")
    return is_script(path, files) or (line.isdigit() and is_script(file, files))


def read_configurations(
    path: str, files: Files = LOCAL, *, named: bool, arguments: Sequence[str] | None = None
) -> tuple[Reading, ...]:
    """Read a file of any known kind, a launch script with every training command in it.

    Args:
        path: the file.
        files: the tree it lies in.
        named: whether the person named it.
        arguments: what a launch script is started with; None where it is not known.

    Raises:
        InputError: as `read_configuration`; a named script that starts no training.
    """
    if is_launch_script(path, files):
        from compatcheck.frameworks.launch_script.script import read_launch_script  # noqa: PLC0415 (only for launch scripts)

        readings = tuple(
            Reading(run.documents, None, run.launch.variables, label, is_launch=True, notes=run.assumptions)
            for label, run in read_launch_script(path, files, named=named, arguments=arguments)
            if _trains(run.documents, files)
        )
        if named and not readings:
            msg = "starts no training program this release knows"
            hint = "name the script that starts it, or state what it sets in a facts file (compatcheck: 1)"
            raise InputError(msg, source=Source(path), hint=hint)
        return readings
    if path.lower().endswith(".ipynb") and named:
        return (_read_named_code(path, files),)
    if path.lower().endswith(".py"):
        return _read_python(path, files, named=named)
    if holds_recipes(path):
        found = read_embedded(path, files, named=named)
        if named and not found:
            msg = "starts no training program this release knows"
            raise InputError(msg, source=Source(path), hint="name the script that starts it")
        return found
    try:
        reading = read_configuration(path, files, named=named)
    except InputError:
        if found := read_embedded(path, files, named=named):
            return found
        raise
    return read_embedded(path, files, named=named) if reading is None else (reading,)


def read_embedded(path: str, files: Files = LOCAL, *, named: bool) -> tuple[Reading, ...]:
    """Read the trainings whose commands stand in a file of make, just, Kubernetes, SkyPilot, compose …; none in any other.

    Raises:
        InputError: it cannot be read, or holds a training that is not.
    """
    is_data = path.lower().endswith((".json", ".jsonc", ".hjson"))
    if is_data and (not files.is_file(path) or files.size_bytes(path) > _MOST_DATA_BYTES):
        return ()
    from compatcheck.frameworks.launch_script.launchers import names_launcher  # noqa: PLC0415 (few files are of this kind)
    from compatcheck.frameworks.launch_script.unread_launches import find_in_file  # noqa: PLC0415 (as above)

    text = read_text(path, files)
    included = "\n".join(_read_included(path, text, files))
    if not names_launcher(text) and not names_launcher(included):
        return ()
    readings = read_pieces(path, embedded.find_pieces(path, text, included), files, named=named)
    recipes = holds_recipes(path)
    unread = (
        find_in_file(path, embedded.find_defined(path, text) if recipes else text)
        if recipes or not (readings or is_data)
        else None
    )
    if unread is not None and readings:
        about = Document("shell", Source(path), (), skipped=(unread,))
        return (readings[0]._replace(documents=(*readings[0].documents, about)), *readings[1:])
    if unread is not None:
        raise InputError(unread.reason, source=unread.source, hint=unread.hint)
    return readings


_OF_TEACHER = {
    "model.parameters": "training.teacher_parameters",
    "model.hidden_size": "training.teacher_hidden_size",
    "model.num_hidden_layers": "training.teacher_num_hidden_layers",
}
"""What is taken of a model that a trainer distils."""
_MOST_DATA_BYTES = 1 << 18
"""Of a file of JSON that may hold commands: longer ones hold data, in which commands are talked about."""


def _read_included(path: str, text: str, files: Files) -> Iterator[str]:
    """Yield the texts of the files that a Makefile includes and that lie here."""
    for name in embedded.find_included(path, text):
        file = find_beside(path, name, files)
        if files.is_file(file):
            with suppress(InputError):  # it is a Makefile that is found by itself, or its variables are open
                yield read_text(file, files)


def read_pieces(
    path: str, pieces: Iterable[embedded.Piece], files: Files = LOCAL, *, named: bool
) -> tuple[Reading, ...]:
    """Read the trainings among commands that stand in a file, each as a launch script of its own.

    What a script beside it starts is a run of that script, which is found there.
    """
    from compatcheck.frameworks.launch_script.script import (  # noqa: PLC0415 (few files are of this kind)
        MOST_RUNS,
        read_launch_script,
    )
    from compatcheck.frameworks.launch_script.unread_launches import find_in_file  # noqa: PLC0415 (as above)

    efforts: list[float] = []
    found: list[tuple[str, TrainingCommand]] = []
    unread: list[InputError] = []
    left = iter(pieces)
    while True:
        try:
            piece = next(left, None)
        except InputError as error:
            unread.append(error)
            break
        if piece is None:
            break
        if sum(efforts) > 1 or len(found) >= MOST_RUNS:
            message = f"holds commands that do more than is read of one script, or start more than {MOST_RUNS} runs"
            where = Source(path, line=piece.line)
            unread.append(InputError(f"{message}; the rest is not read", source=where, hint="name the launch script"))
            break
        runs = read_launch_script(
            path, files, named=False, commands=piece.text, first_line=piece.line, spend=efforts.append
        )
        try:
            for _, run in runs:
                place = run.launch.command.source
                if (named or place.path == path) and _trains(run.documents, files):
                    found.append((str(place._replace(key=None)), run))
        except InputError as error:
            if find_in_file(path, piece.text) is not None:  # else it may be no text for a shell
                unread.append(error)
    if unread and not found:
        raise unread[0]
    skipped = tuple(Skipped(error.source or Source(path), error.message, error.hint) for error in unread)
    about = (Document("shell", Source(path), (), skipped=skipped),) if skipped else ()
    return tuple(
        Reading(
            (*run.documents, *about),
            None,
            run.launch.variables,
            path if len(found) == 1 else label,
            is_launch=True,
            notes=run.assumptions,
        )
        for label, run in found
    )


def _read_python(path: str, files: Files, *, named: bool) -> tuple[Reading, ...]:
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)
    from compatcheck.frameworks.python_script.environ import find_variables  # noqa: PLC0415 (as above)

    if is_settings(path, files):
        reading = read_configuration(path, files, named=named)
        return () if reading is None else (reading,)
    if named:
        return tuple(_read_documented(path, files)) or (_read_named_code(path, files),)
    documents = python_script.read(path, files, named=_tells_training(path)) if starts_training(path, files) else ()
    return (Reading(documents, variables=find_variables(path, {}, files)),) if documents else ()


def _read_named_code(path: str, files: Files) -> Reading:
    """Read a script of Python or a notebook that a person named, and say what it starts in a process of its own.

    Raises:
        InputError: as `python_script.read.read`; the first such process where it trains nothing itself.
    """
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python)
    from compatcheck.frameworks.python_script.environ import find_variables  # noqa: PLC0415 (as above)

    unread = find_unread_launch(path, files)
    try:
        documents = python_script.read(path, files)
    except InputError as error:
        if unread is None or error.source != Source(path):
            raise
        raise InputError(unread.reason, source=unread.source, hint=unread.hint) from None
    about = [] if unread is None else [Document("shell", Source(path), (), skipped=(unread,))]
    return Reading((*documents, *about), variables=find_variables(path, {}, files))


def find_unread_launch(path: str, files: Files) -> Skipped | None:
    """Say that a file of a language whose commands are not read starts a training; None where it does not, or is not readable."""
    from compatcheck.frameworks.launch_script.python_launches import find_in_python  # noqa: PLC0415 (few files)
    from compatcheck.frameworks.launch_script.unread_launches import find_in_file  # noqa: PLC0415 (as above)
    from compatcheck.frameworks.python_script import notebook  # noqa: PLC0415 (as above)

    try:
        text = read_text(path, files)
    except InputError:  # of another encoding: commands are ASCII mostly
        text = read_bytes(path, files).decode("utf-8", "replace")
    if path.lower().endswith(".py"):
        return find_in_python(path, text)
    found = find_in_file(path, text)
    if found is not None or not path.lower().endswith(notebook.SUFFIX):
        return found
    try:
        return _find_written(path, text) or find_in_python(path, notebook.read_source(path, files))
    except InputError:
        return None  # its reader says so where it is named; its lines were looked through


def _find_written(path: str, text: str) -> Skipped | None:
    """Say that a notebook writes a script that trains."""
    from compatcheck.frameworks.python_script import notebook  # noqa: PLC0415 (only for notebooks)
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (as above)

    for (line, head), *content in notebook.find_cells(path, text):
        match = re.match(r"%%(?:write)?file[ \t]+(?:(?:-a|--append)[ \t]+)?['\"]?([^\s'\"]+\.py)['\"]?\s*$", head)
        if match is not None:
            written = Overlay(LOCAL, {match[1]: "".join(one for _, one in content).encode()})
            if python_script.starts_training(match[1], written, told=_tells_training(match[1])):
                reason = f"writes {match[1]}, which trains and is not read"
                return Skipped(Source(path, line=line), reason, "save it as a file, and name that")
    return None


def _read_documented(path: str, files: Files) -> Iterator[Reading]:
    """Read the runs of a script of Python that its own documentation shows: commands that start it."""
    from compatcheck.frameworks.launch_script.script import read_launch_script  # noqa: PLC0415 (only for Python scripts)
    from compatcheck.frameworks.python_script.documentation import find_commands  # noqa: PLC0415 (as above)

    commands = find_commands(path, files)
    for label, run in read_launch_script(path, files, named=False, commands=commands) if commands.strip() else ():
        if os.path.basename(run.launch.program) == os.path.basename(path):
            notes = (*run.assumptions, f"started as its documentation shows, line {run.line}")
            yield Reading(run.documents, None, run.launch.variables, label, is_launch=True, notes=notes)


def is_settings(path: str, files: Files = LOCAL) -> bool:
    """Tell whether a file of Python is no script, but a configuration by its names."""
    try:
        if not may_be_settings(files.read_bytes(path, HEAD_BYTES)):
            return False
        return find_python_reader(_parse(read_text(path, files), path, files)) is not None
    except (InputError, OSError):
        return False


def starts_training(path: str, files: Files = LOCAL) -> bool:
    """Tell whether a file of Python is a script that trains, where nobody named it.

    Raises:
        InputError: it cannot be read, and its name says that it is one.
    """
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)

    if is_of_tests(path):
        return False
    if is_settings(path, files):
        return True
    told = _tells_training(path)
    try:
        starts = python_script.starts_training(path, files, told=told)
        if told and not starts:
            python_script.read(path, files, named=False)  # it says whether this is Python at all
    except InputError:
        if told or files.is_file(path):
            raise
        return False
    return starts


def is_of_tests(path: str) -> bool:
    """Tell whether a file of Python is one of tests, by its name."""
    return _OF_TESTS.search(path.replace(os.sep, "/")) is not None


def _tells_training(path: str) -> bool:
    """Tell whether the name of a file says alone that it is one of a training."""
    return re.search(_NAMES_TRAINING, os.path.basename(path)) is not None


def _tells_library(path: str) -> bool:
    """Tell whether the name of a file says alone whose configuration it is, whatever it holds."""
    return re.search(_NAMES_LIBRARY, os.path.basename(path)) is not None


_OF_TESTS = lazy_compile(r"(?:^|/)(?:tests?/[^/]*|test_[^/]*|[^/]*_test|conftest)\.py$")
_WORDS = r"(?:pre|fine[-_]?)?train(?:ing)?|fine[-_]?tun(?:e|ing)|sft|dpo|grpo|kto|orpo|ppo|rloo|rlhf|q?lora"
_LIBRARIES = r"ds|deepspeed|zero[-_]?[123]?|accelerate|fsdp[12]?|axolotl"
_EDGE, _END = r"(?:^|[-_.])", r"(?=[-_.])"
_NAMES_TRAINING = (
    rf"(?i){_EDGE}(?:(?:{_WORDS}|{_LIBRARIES}){_END}.*(?:ya?ml|toml|py)|(?:{_LIBRARIES}){_END}.*(?:hjson|jsonc?)"
    rf"|(?:{_WORDS}){_END}.*(?:config|arg|argument)s?\.(?:hjson|jsonc?))$"
)
"""Names that say alone that a file is one of a training; data has the shorter ones, too, as JSON."""
_NAMES_LIBRARY = r"(?i)^(?:ds[-_]?config|deepspeed|accelerate|fsdp[12]?|axolotl)(?:[-_][^/]*)?\.(?:ya?ml|hjson|jsonc?)$"


def _trains(documents: tuple[Document, ...], files: Files) -> bool:
    """Tell whether a command says anything about training; one that only starts a script does where that script does.

    Where something of the launch script was not read, a script counts unless it is at hand and speaks of no training.
    """
    first, *others = documents
    if any(one.reader != "shell" for one in others) or first.reader != "script" or first.statements or first.skipped:
        return True
    if any(kind != "program" for kind, _, _ in first.references):
        return True
    programs = [find_beside(first.source.path, name, files) for _, name, _ in first.references]
    if others:
        return not all(files.is_file(file) and not _speaks_of_training(file, files) for file in programs)
    return any(files.is_file(file) and _says_something(file, files) for file in programs)


def _speaks_of_training(file: str, files: Files) -> bool:
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)

    try:
        return python_script.may_train(file, files)
    except InputError:
        return True


def _says_something(file: str, files: Files) -> bool:
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)

    try:
        return _speaks_of_training(file, files) and bool(python_script.read(file, files, named=False))
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
    try:
        text = read_text(path, files)
        data = _parse(text, path, files)
    except InputError:
        if named or os.path.basename(path) == "config.json" or _is_meant_for_training(path, files):
            raise
        return None
    reader = _find_reader(data, path)
    reading = Reading() if reader is None else read_filled_in(reader, data, path)
    if reading.documents:
        return reading
    if not named and not (
        _tells_library(path) or (_tells_training(path) and (not text.strip() or _states_nothing(data)))
    ):
        return None
    if _states_nothing(data) and text.strip() and not named:
        msg = "holds no mapping of keys to values, as its name says it does"
        raise InputError(msg, source=Source(path), hint="check that this is the file you mean")
    if not text.strip():
        msg = "is empty"
        raise InputError(msg, source=Source(path), hint="name the file that says something")
    stated = [name for name, _ in flatten(data) if name in vocabulary()] if isinstance(data, dict) else []
    if stated:
        msg = f"states {stated[0]} and lacks the key `compatcheck`, which tells a facts file"
        raise InputError(msg, source=Source(path), hint="write the line `compatcheck: 1` above it")
    labels = sorted((reader.LABEL for reader in configuration_readers()), key=str.lower)
    kinds = ", ".join("facts (with the line `compatcheck: 1`)" if label == "facts" else label for label in labels)
    kinds += ", launch scripts (.sh), training scripts (.py)"
    hint = f"known: locks, requirements and other lists of packages, {kinds}"
    msg = "lists no packages and is no configuration this release can read"
    raise InputError(msg, source=Source(path), hint=hint)


def _states_nothing(data: Any) -> bool:  # noqa: ANN401 (JSON or YAML)
    """Tell whether a file holds a text, a number or nothing, as a pointer of git-lfs or a page of an error does."""
    return not isinstance(data, dict | list)


def _parse(text: str, path: str, files: Files, *, lenient: bool = False) -> Any:  # noqa: ANN401 (JSON or YAML)
    """Parse a configuration; where it is DeepSpeed's, or may be (``lenient``), comments are legal."""
    if path.lower().endswith(".hjson"):
        return syntax.parse(text, path)
    if path.lower().endswith(".py"):
        from compatcheck.frameworks.python_script.settings import read_settings  # noqa: PLC0415 (only for Python)

        return read_settings(text, path, files)
    try:
        return parse_configuration(text, path)
    except InputError as error:
        if not syntax.may_be_hjson(text, path) or not (
            lenient or any(word in text for word in DEEPSPEED.telling_words)
        ):
            raise
        return syntax.parse_leniently(text, path, error)


def _find_reader(data: Any, path: str) -> ConfigurationReader | None:  # noqa: ANN401 (JSON or YAML)
    """Return whose file it is.

    Raises:
        InputError: of a program whose files this release does not read.
    """
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        return None
    if path.lower().endswith(".py"):
        return find_python_reader(data)
    for reader in configuration_readers(shares_keys=False):
        if reader.recognise(data):
            return reader
    program = unread.recognise(data)
    if program is not None:
        msg = f"is a configuration of {program}, which this release does not read"
        hint = "state what it sets in a facts file (compatcheck: 1), with training.framework"
        raise InputError(msg, source=Source(path), hint=hint)
    return next((reader for reader in configuration_readers(shares_keys=True) if reader.recognise(data)), None)


def _is_meant_for_training(path: str, files: Files) -> bool:
    """Tell whether a file that cannot be parsed was meant as a training configuration: then passing over it would be a guess."""
    if _tells_training(path):
        return True
    try:
        head = files.read_bytes(path, HEAD_BYTES)
    except OSError:
        return True  # nobody can tell what it is
    return is_told_by_words(head.replace(b"\0", b""))  # UTF-16


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
    from compatcheck.core.document import Statement  # noqa: PLC0415 (only with a configuration)

    references = _ReferenceReader(documents, rules, environ, files)
    pending = list(references.compose(documents))
    result: list[Document] = []
    while pending:
        composed = references.compose(pending[:1])
        if len(composed) > 1:  # which models there are may be said by both
            pending[:1] = composed
        document, extra = _tell_models_by_name(pending.pop(0), references)
        skipped = list(document.skipped)
        models: list[Statement] = []
        gaps = list(document.gaps)
        decided: set[str] = set()  # by code that the document starts, which asks nobody
        for kind, name, key in sorted(document.references, key=lambda one: one[0] != "program"):
            if kind in decided:
                continue
            if kind.startswith("model"):
                models.append(Statement("model.name", key, name, kind.partition(":")[2] or None))
            place = document.place(key)
            try:
                if kind == "teacher":
                    models += references.read_teacher(name, key, document)
                    continue
                found = [_mark(one, document) for one in references.read(kind, name, document, place)]
                skipped += references.tell_taken(name, place)
                if kind == "program":
                    found = [_without_defaults(one, document) for one in found]
                    document, all_read = _settle_options(document, found)
                    skipped = [entry for entry in skipped if not (all_read and entry.by_run)]
                extra.extend(found)
                decided.update(other for one in found if one.of_code is not None for other, _, _ in one.references)
                if kind == "program":
                    gaps += references.tell_unread(name, document, place)
                if kind == "program" and any(gap.anew for one in found for gap in one.gaps):
                    document = _leave_to_code(document)
                if kind == "program" and any(one.statements for one in found):  # it says what it trains
                    skipped = [entry for entry in skipped if entry.fact != "training.framework"]
                    gaps = [gap for gap in gaps if gap.source.key != name]
            except InputError as error:
                reason = error.message if error.source == place else str(error)
                counts = _names_a_file(kind, name) or error.source != place
                named = counts and document.named
                skipped.append(Skipped(place, f"names {name!r}: {reason}", error.hint, named, counts, not counts))
                extra.extend(_leave_open(kind, name, key, place))
                if kind == "config" or (kind, name, key) in name_bases(document):
                    gaps.append(Gap(place, f"names {name!r}, which could not be read"))
        special = find_refinement(document.reader)
        reader = special if special in {found.reader for found in extra} else None
        result.append(
            document._replace(
                reader=reader or document.reader,
                statements=(*document.statements, *models),
                skipped=tuple(skipped),
                gaps=tuple(gaps),
            )
        )
        pending[:0] = extra
    return tuple(result)


def _settle_options(document: Document, found: Sequence[Document]) -> tuple[Document, bool]:
    """Take out of what a command leaves unread the options that its script reads, and tell whether these are all.

    What a loop of one's own is given, no Trainer reads.
    """
    own = {option for one in found for option in one.own_options}
    if any(one.own_loop for one in found) and find_program(document.reader).of_scripts:
        document = document._replace(reader="script")
    all_read = document.reader == "script" and bool(document.passed) and set(document.passed or ()) <= own
    return document._replace(unread=tuple(one for one in document.unread if one[0] not in own)), all_read


def _without_defaults(found: Document, document: Document) -> Document:
    """Leave out the files that a program's own defaults name where its command names one."""
    if found.of_code is not None:
        return found
    stated = {kind for kind, _, _ in document.references}
    return found._replace(references=tuple(one for one in found.references if one[0] not in stated))


def _leave_to_code(document: Document) -> Document:
    """Take what a command says of the training for no more than a guess: the code that it starts sets arguments anew."""
    doubtful = [one for one in document.statements if one.fact is not None and one.fact.startswith("training.")]
    doubtful = [one for one in doubtful if one.fact not in {"training.framework", "training.trainer"}]
    kept = tuple(one for one in document.statements if one not in doubtful)
    return document._replace(statements=kept, doubtful=(*document.doubtful, *doubtful))


def _tell_models_by_name(document: Document, references: _ReferenceReader) -> tuple[Document, list[Document]]:
    """Read the models that the known end of a path tells, ``$HOME/models/Qwen2.5-7B``; the others stay unresolved."""
    found: list[Document] = []
    for entry in document.unresolved if not references.has_model else ():
        if entry.fact != "model.name":
            continue
        kind, place = "model" if entry.role is None else f"model:{entry.role}", document.place(entry.key)
        try:
            read = () if entry.written is None else references.read(kind, entry.written, document, place)
        except InputError:
            read = ()
        if read:
            found.extend(_mark(one, document) for one in read)
            document = document._replace(unresolved=tuple(one for one in document.unresolved if one is not entry))
        else:
            found.extend(_leave_open(kind, entry.key, entry.key, place))
    return document, found


def _names_a_file(kind: str, name: str) -> bool:
    """Tell whether a reference is to a file; a model may be a hub id, and ``program`` a script that need not lie here."""
    if kind.startswith("model") or kind == "teacher":
        from compatcheck.frameworks.model.lookup import is_path  # noqa: PLC0415 (on the way to an error)

        return is_path(name)
    return kind != "program"


def _decided_by(reader: ConfigurationReader | None, section: str) -> tuple[str, ...]:
    """Return the facts that keys of a section state."""
    table = {} if reader is None else reader.TABLE
    found = (meaning.fact for key, meanings in table.items() if key.startswith(f"{section}.") for meaning in meanings)
    return tuple(dict.fromkeys(found))


def _leave_open(kind: str, name: str, key: str, place: Source) -> tuple[Document, ...]:
    """Return a document that leaves open what a file that cannot be read would decide.

    Where that is the model of one role, the document says so of that role: the model of the others is not its own.
    """
    from compatcheck.core.document import MISSING, Document, Statement, Unresolved  # noqa: PLC0415 (on the way to an error)

    kind, _, role = kind.partition(":")
    if role:
        return (Document(MISSING, place._replace(key=None), (Statement(None, key, name, role),)),)
    kind, _, section = kind.partition(SECTION)
    folder = find_folder(kind)
    why = f"stands in {redact(name)}, which could not be read"
    decides = () if folder is None else _decided_by(folder.configuration, section) if section else folder.decides
    if not decides or folder is None:
        return ()
    unresolved = tuple(Unresolved(fact, key, why) for fact in decides)
    gaps = () if section else (Gap(place, why, facts=list_facts(folder.configuration.TABLE)),)
    return (Document(MISSING, place._replace(key=None), (), unresolved=unresolved, gaps=gaps),)


class _ReferenceReader:
    """What has been read already while references are followed."""

    def __init__(
        self, documents: tuple[Document, ...], rules: RuleSet, environ: Mapping[str, str], files: Files
    ) -> None:
        self.files = files
        self.places = Places(files)
        self.rules = rules
        self.environ = environ
        self.present = {files.resolve(document.source.path) for document in documents}
        self.silent: set[str] = set()
        """Scripts that start something and say nothing of it."""
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
        file, real = self.find(kind, name, document)
        if name in document.changed:
            return _read_changed(kind, file, document.changed[name], place, self.files)
        own = real == self.places.resolve(document.source.path)
        if own and kind != "program":  # a script's documentation shows the command that starts it
            msg = f"this very file is no {kind} file"
            raise InputError(msg, source=place, hint="name another file")
        if (real in self.present and not own) or (kind == "program" and not self.files.is_file(file)):
            return ()
        if kind == "config" and document.reader in _composing(file, self.files):
            kind = document.reader  # of its keys some, or none, tell whose they are
        there = self.files.exists(file)
        found = _read_named(kind, file, document, self.files) if there else _read_shipped(kind, name, place)
        found = found or _read_named(kind, file, document, self.files)
        if kind == "program" and not any(map(_says_of_run, found)) and _starts_something(file, self.files):
            self.silent.add(real)
        if kind == "config" and any(one.reader in _bases(document.reader) for one in found):
            found = _read_kind(document.reader, file, self.files) or found
        self.present.add(real)
        return found

    def read_teacher(self, name: str, key: str, document: Document) -> list[Statement]:
        """Return the size and the dimensions of a model that is named beside the one of the run.

        Raises:
            InputError: it cannot be read, or its parameters cannot be counted.
        """
        from compatcheck.core.document import Statement  # noqa: PLC0415 (only with a teacher)

        place = document.place(key)
        model = _read_named_model(name, document.source.path, self.rules, self.environ, place, self.files)
        found = [
            Statement(_OF_TEACHER[one.fact], key, one.value) for one in model.statements if one.fact in _OF_TEACHER
        ]
        if not any(one.fact == "training.teacher_parameters" for one in found):
            hint = "state them: --set training.teacher_parameters=…"
            raise InputError("its parameters cannot be counted", source=place, hint=hint)
        return found

    def tell_taken(self, name: str, place: Source) -> Iterator[Skipped]:
        """Say which file of the project a path of another machine was taken for, where it was."""
        taken = self.places.taken.get(name)
        if taken is not None:
            reason = f"names {name!r}, which is not here: {taken} is assumed"
            yield Skipped(place, reason, "give the file that is meant", passes=True)

    def tell_unread(self, name: str, document: Document, place: Source) -> Iterator[Gap]:
        """Say that one's own script, for a library that it calls, was not read, or nothing of its run: what it makes is its own.

        One that lies in the folder of the library itself is the library's.
        """
        program = find_program(document.reader)
        if not program.of_scripts or program.packages[0] in os.path.dirname(name).split("/"):
            return
        file, real = self.find("program", name, document)
        there = self.files.is_file(file)
        if there and real not in self.silent:
            return
        from compatcheck.frameworks.python_script.changes import OF_SCRIPT  # noqa: PLC0415 (only where one is not read)

        why = "hands its run on to code that was not read" if there else "is not here, and was not read"
        yield Gap(place._replace(key=redact(name)), why, facts=OF_SCRIPT)

    def find(self, kind: str, name: str, document: Document) -> tuple[str, str]:
        """Return the path of what a document names, and the same without links; a module may be a package (``__main__.py``)."""
        file, real = self.places.find(document.source.path, name)
        if kind == "program" and not self.files.is_file(file):
            package = self.places.find(document.source.path, f"{name.removesuffix('.py')}/__main__.py")
            return package if self.files.is_file(package[0]) else (file, real)
        return file, real

    def compose(self, documents: Iterable[Document]) -> tuple[Document, ...]:
        """Read commands and files together with the files that they compose from, as far as those can be read."""
        settled = [self._settle(document) for document in documents]
        found = compose([one for document in settled for one in (document, *self._read_bases(document))], self.places)
        return tuple(self._with_code(self._with_beneath(document)) for document in found)

    def _with_beneath(self, document: Document) -> Document:
        """Lay under a command what its program's sources beside it have for keys that it leaves out."""
        named = [one for one in document.references if one[0] == BENEATH]
        if not named:
            return document
        laid: list[Document] = []
        for _, name, _ in named:
            path = self.places.find(document.source.path, name)[0]
            if self.files.is_file(path):
                with suppress(InputError):
                    base, *_ = _read_kind(find_program(document.reader).runs_as or document.reader, path, self.files)
                    base = base._replace(source=Source(path))
                    laid += compose((document._replace(references=(("config", path, "--config-name"),)), base))[1:]
                    settle = getattr(find_composer(document.reader), "settle_by_file", None)
                    document = document if settle is None else settle(document, base)
                break
        kept = tuple(one for one in document.references if one[0] != BENEATH)
        held = {key for one in laid for key in one.options}
        own = frozenset(key for key, _ in document.unread if key in held)  # and so no other name of one beside it
        return document._replace(references=kept, beneath=tuple(laid), added=document.added | own)

    def _with_code(self, document: Document) -> Document:
        """Let the code that a command starts say what it builds, where it lies beside it."""
        programs = [name for kind, name, _ in document.references if kind == CODE]
        if not programs:
            return document

        def read(name: str) -> tuple[str, str] | None:
            path = self.places.find(document.source.path, name)[0]
            return (path, read_text(path, self.files)) if self.files.is_file(path) else None

        from compatcheck.frameworks.python_script.roles import settle_by_code  # noqa: PLC0415 (only for such commands)

        document = document._replace(references=tuple(one for one in document.references if one[0] != CODE))
        for program in programs:
            with suppress(InputError, RecursionError):  # what is no Python builds nothing
                document = settle_by_code(document, program, read)
        return document

    def _settle(self, file: Document, searched: tuple[str, ...] = ()) -> Document:
        """Name what a file composes from by where it lies; what its program brings itself need not lie here."""
        if file.is_command or not (file.searched or searched or any(kind == BENEATH for kind, _, _ in file.references)):
            return file
        kept: list[tuple[str, str, str]] = []
        file = file._replace(searched=tuple(dict.fromkeys((*file.searched, *searched))))
        for kind, name, key in file.references:
            names = (name, *(os.path.join(one, name) for one in file.searched if key == DEFAULTS))
            lies = (one for one in names if self.files.is_file(self.places.find(file.source.path, one)[0]))
            there = next(lies, None if kind == BENEATH else name)
            if there is not None:
                kept.append((file.reader if kind == BENEATH else kind, there, key))
        return file._replace(references=tuple(kept))

    def _read_bases(self, document: Document) -> Iterator[Document]:
        """Yield the files that a document composes from, each with its own; following the reference says what is not read."""
        pending = [document]
        while pending:
            naming = pending.pop(0)
            for kind, name, key in name_bases(naming):
                with suppress(InputError):
                    read = self.read(kind, name, naming, naming.place(key))
                    found = [self._settle(_mark(one, naming), naming.searched) for one in read]
                    yield from found
                    pending.extend(found)

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


def _says_of_run(document: Document) -> bool:
    """Tell whether a script says more of its run than what classes of arguments have for fields that are left out."""
    said = document.statements, document.doubtful, document.gaps, document.unresolved, document.references
    return not document.of_fields and any(said)


def _starts_something(file: str, files: Files) -> bool:
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)

    return python_script.starts_something(file, files)


def _composing(file: str, files: Files) -> frozenset[str]:
    """Return whose keys a file has that composes from others, and what that is built on."""
    reader = find_composing(file, files)
    return frozenset() if reader is None else frozenset(one.name for one in lineage(reader))


def _bases(reader: str) -> frozenset[str]:
    """Return what a program is built on: where a file's keys tell no more than that, it is the program's that is given it."""
    return frozenset(one.name for one in lineage(reader)[1:])


def _read_kind(kind: str, file: str, files: Files, passed: Mapping[str, object] | None = None) -> tuple[Document, ...]:
    if kind == "program":
        from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for Python scripts)

        return python_script.read(file, files, named=False, launched=True, passed=passed)
    reader = find_configuration_reader(kind.partition(SECTION)[0])
    if reader is None:
        reading = read_configuration(file, files, named=True)
        return () if reading is None else reading.documents
    text = read_text(file, files)
    if not text.strip():
        raise InputError("is empty", source=Source(file), hint="was it truncated, or is another file meant?")
    if file.lower().endswith(".py"):  # it may be laid over others
        return _read_text(kind, file, text, files)
    return _read_alone(kind, file, text)


def _read_named(kind: str, file: str, document: Document, files: Files) -> tuple[Document, ...]:
    """Read a file that a document names: of one whose keys tell nothing, a command tells whose it is, but for one of a script.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return _read_kind(kind, file, files, document.passed)
    except InputError:
        own = kind == "config" and document.is_command and all(one[0] != "program" for one in document.references)
        if not own or find_configuration_reader(document.reader) is None:
            raise
        return _read_kind(document.reader, file, files)


@lru_cache(maxsize=32)
def _read_alone(kind: str, file: str, text: str) -> tuple[Document, ...]:
    """Read a file that nothing beside it decides: hundreds of configurations compose from the same few."""
    return _read_text(kind, file, text, LOCAL)


def _read_text(kind: str, file: str, text: str, files: Files) -> tuple[Document, ...]:
    name, _, section = kind.partition(SECTION)
    reader = find_configuration_reader(name)
    if reader is None:
        return ()
    data = expect_mapping(_parse(text, file, files, lenient=True), file, f"a configuration of {reader.LABEL}")
    data = {section: data} if section else data
    return read_filled_in(reader, data, file).documents


def _read_changed(kind: str, file: str, text: str | None, place: Source, files: Files) -> tuple[Document, ...]:
    """Read a file as a script leaves it, whatever lies there."""
    if text is None:
        msg = "is written or changed on the way, and nobody can tell what it then holds"
        raise InputError(msg, source=place, hint="make the change in the file, and check it as the run reads it")
    return _read_kind(kind, file, Overlay(files, {file: text.encode()}))


def _read_shipped(kind: str, name: str, place: Source) -> tuple[Document, ...]:
    """Read what a program ships under a name that does not lie here; nothing where none does."""
    from compatcheck.frameworks.shipped import find_shipped  # noqa: PLC0415 (only for a file that is not here)

    shipped, reader = find_shipped(kind, name), find_configuration_reader(kind)
    if shipped is None or reader is None:
        return ()
    because = f"changed between releases of {shipped.program}"
    first, *others = read_filled_in(reader, shipped.content, f"{shipped.program}'s {name}", because).documents
    if not shipped.built_in:
        reason = f"names {name!r}, which is not here: the file that {shipped.program} ships there is assumed"
        assumed = Skipped(place, reason, "give the file where it was changed", passes=True)
        first = first._replace(skipped=(*first.skipped, assumed))
    return first, *others


def _mark(document: Document, naming: Document) -> Document:
    """Hand on that the person named a document to one that it names; what is not read of this one counts for the run."""
    named = naming.named or document.named
    skipped = tuple(
        skip if skip.passes else skip._replace(named=skip.named or named, by_run=True) for skip in document.skipped
    )
    return document._replace(named=named, skipped=skipped)


def _read_named_model(
    name: str, base: str, rules: RuleSet, environ: Mapping[str, str], place: Source, files: Files
) -> Document:
    from compatcheck.frameworks.model.lookup import find_model  # noqa: PLC0415 (only where a model is named)

    local = find_beside(base, name, files)
    return find_model(local if files.exists(local) else name, rules, environ, place, files)
