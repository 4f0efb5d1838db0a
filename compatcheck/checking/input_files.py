"""Files that say something of an environment or a run: named, walked into, or on standard input."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from compatcheck.checking.environments import environment_of
from compatcheck.checking.inspection import PROJECT_FILE, has_table
from compatcheck.checking.notebook_environment import BUILD, is_of_another_machine, read_installed, with_installs
from compatcheck.checking.shared import as_skipped, mark_named
from compatcheck.collectors.read import LOCKS, read_environments
from compatcheck.collectors.recognise import (
    REPORT_SUFFIXES,
    recognise,
    recognise_content,
    recognise_named,
    tell_by_name,
    walk,
)
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError, NoEnvironmentError, UsageError
from compatcheck.core.files import Files, Overlay, ReadLog
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.progress import follow
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import CONFIGURATIONS, POLICY_FILE, STANDARD_INPUT, read_bytes, read_standard_input
from compatcheck.core.units import format_bytes
from compatcheck.frameworks.beside import find_beside
from compatcheck.frameworks.recipe_files import holds_recipes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.selection import Selection

MAX_WALKED_BYTES = 2 << 20
"""A walked-into JSON file larger than this is data, not configuration."""

MAX_SCRIPTS = 10
"""A directory with more training scripts is a collection of examples, which nobody runs all of."""

DOCKERFILE = "dockerfile"
"""Kind of a root that says less surely than any other what is installed."""

DASH = "-"
"""What a person writes for standard input."""


class InputFile(NamedTuple):
    """One file that says something."""

    path: str
    documents: tuple[Document, ...] = ()
    environment: Environment | None = None
    """Packages of a requirement or lock file, or those a facts file declares."""
    is_root: bool = False
    """Whether the environment is a lock or requirement root."""
    kind: str | None = None
    """Kind of a root, as `compatcheck.collectors.recognise` names it."""
    is_launch: bool = False
    """Whether it is one training command of a launch script."""

    @property
    def name(self) -> str:
        """Name a root as a person would: its file, with the environment where the file has several."""
        return self.path if self.environment is None else self.environment.origin


def _names_none(_: str) -> bool:
    return False


def walk_files(
    path: str,
    files: Files,
    skipped: list[Skipped],
    is_named: Callable[[str], bool] = _names_none,
    note_parts: Callable[[str, set[str]], None] | None = None,
    *,
    selection: Selection,
) -> Iterator[InputFile]:
    """Read what a directory holds.

    Args:
        path: the directory.
        files: the tree it lies in.
        skipped: takes what could not be read.
        is_named: tells which of its files the person named.
        note_parts: takes each file with all that it was read from, without links: what it includes, sources or runs.
        selection: what is chosen of what they offer; arguments are none of a script that is only found.
    """

    def note(directory: str, reason: str, hint: str) -> None:
        skipped.append(Skipped(Source(directory), reason, hint, named=directory == path))

    looked_at = files.base if isinstance(files, ReadLog) else files  # a run is not made of what is only looked at
    listed = walk(path, note, looked_at)
    if path == os.curdir:  # as a person writes it
        listed = ((file.removeprefix(os.path.join(os.curdir, "")), kind) for file, kind in listed)
    yield from read_found(listed, files, skipped, is_named, note_parts, selection=selection)


def read_found(
    listed: Iterable[tuple[str, str | None]],
    files: Files,
    skipped: list[Skipped],
    is_named: Callable[[str], bool] = _names_none,
    note_parts: Callable[[str, set[str]], None] | None = None,
    *,
    selection: Selection,
) -> Iterator[InputFile]:
    """Read files that were found, with the kinds they are of; see `walk_files`.

    Training scripts of Python come last: one that a command starts is read as part of that run.
    """
    from compatcheck.frameworks.recognise import is_launch_script  # noqa: PLC0415 (not for lists of packages)

    started: set[str] = set()
    scripts: list[str] = []
    for file, kind in follow(listed, "reading files"):
        before, found = len(skipped), False
        skipped.extend(_check_policy(file, files, named=is_named(file)))
        if kind is None and file.lower().endswith(".py"):
            scripts.append(file)
            continue
        tree = files if note_parts is None else ReadLog(files)
        if kind is None and (foreign := _find_foreign(file, files)) is not None:
            skipped.append(foreign._replace(named=is_named(file)))
            before += 1
        try:
            if kind is not None:
                made = _read_lists(file, kind, tree, skipped, selection, named=is_named(file))
                skipped.extend(_find_unread(file, kind, files, named=is_named(file)))
            elif is_launch_script(file, files) or holds_recipes(file) or _is_configuration(file, files):
                made = _read_configurations(file, tree, named=False, mark=is_named(file))
            else:
                made = iter(())
                skipped.extend(_find_unread(file, kind, files, named=is_named(file)))
            for item in made:
                found = True
                programs = list_programs(item, files) - started
                started |= programs
                if note_parts is not None:
                    for program in programs:
                        note_parts(program, _read_modules(program, files))
                yield item
            if kind is None and not found and len(skipped) == before and (told := tell_by_name(file)) is not None:
                yield from _read_broken(file, told, files, skipped, selection, named=is_named(file))
        except InputError as error:
            passes = isinstance(error, NoEnvironmentError)
            skipped.append(as_skipped(error, file)._replace(named=is_named(file) and not passes, passes=passes))
        except UsageError as error:
            if kind != DOCKERFILE:
                raise
            skipped.append(as_skipped(error, file)._replace(named=False, passes=True))  # the stage is of another one
        except OSError as error:
            skipped.append(Skipped(Source(file), f"cannot be read: {error.strerror}", named=is_named(file)))
        if note_parts is not None and isinstance(tree, ReadLog):
            note_parts(file, tree.read | tree.asked)
    scripts = [file for file in scripts if files.resolve(file) not in started]
    yield from _read_scripts(scripts, files, skipped, is_named, note_parts)


def _read_scripts(
    scripts: Iterable[str],
    files: Files,
    skipped: list[Skipped],
    is_named: Callable[[str], bool],
    note_parts: Callable[[str, set[str]], None] | None,
) -> Iterator[InputFile]:
    """Read the training scripts among files of Python, each a run of its own; a directory with many holds examples."""
    from compatcheck.frameworks.recognise import is_of_tests, starts_training  # noqa: PLC0415 (not for lists of packages)

    by_directory: dict[str, list[str]] = {}
    for file in scripts:
        try:
            if starts_training(file, files):
                by_directory.setdefault(os.path.dirname(file), []).append(file)
            elif not is_of_tests(file):
                skipped.extend(_find_unread(file, None, files, named=is_named(file)))
        except InputError as error:
            skipped.append(as_skipped(error, file)._replace(named=is_named(file)))
    for directory, found in by_directory.items():
        several = [file for file in found if not is_named(file)] if len(found) > MAX_SCRIPTS else []
        if several:
            reason = f"holds {len(several)} training scripts that no launch script here starts"
            skipped.append(Skipped(Source(directory or os.curdir), reason, "name the one that is run"))
        for file in [one for one in found if one not in several]:
            if note_parts is not None:
                note_parts(file, _read_modules(file, files))
            try:
                yield from _read_configurations(file, files, named=False, mark=is_named(file))
            except InputError as error:
                skipped.append(as_skipped(error, file)._replace(named=is_named(file)))


_STARTS_NONE = (
    *REPORT_SUFFIXES, *(end for end in CONFIGURATIONS if end != ".toml"),
    "readme", ".rst", ".qmd", ".mdc", ".mdx", ".adoc", ".org", ".tex", ".html", ".svg", ".po", ".csv", ".jsonl", ".patch",
    ".diff", ".disabled",
)  # fmt: skip
"""Ends of the names of data, and of texts that show commands: they start no program by themselves."""
_FOREIGN = (
    (
        r".*(?:compose|bake).*\.(?:ya?ml|hcl|json)",
        rb"\bdockerfile[-_]inline\b",
        "holds a Dockerfile (dockerfile_inline), which is not read",
        "write it into a file of its own",
    ),
    (
        r".*\.def|(?:singularity|apptainer).*",
        rb"(?is)\A(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*bootstrap[ \t]*:.*\b(?:pip|conda|mamba|uv)\b[^\n]*\b(?:install|create)\b",
        "is a definition of Apptainer; what it installs is not read",
        "check what `pip freeze` prints in the image, or the image itself",
    ),
    (
        r".*\.(?:sub|submit|jdl|condor)",
        rb"(?im)^[ \t]*executable[ \t]*=[^\n]*\b(?:python[\d.]*|torchrun|deepspeed|accelerate)[ \t]*\r?$",
        "is a job of HTCondor, whose command is not read",
        "write the command into a launch script",
    ),
)
"""Names of files in languages that are not read, what in them tells that they say something here, and what is said of them."""
_HEAD_BYTES = 1024
"""In which images, archives and weights have a zero."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def _find_unread(file: str, kind: str | None, files: Files, *, named: bool) -> Iterator[Skipped]:
    """Yield that a text in any other language, which is not read, starts a training."""
    from compatcheck.frameworks.python_script.notebook import SUFFIX  # noqa: PLC0415 (not for lists of packages)
    from compatcheck.frameworks.recognise import find_unread_launch, is_launch_script  # noqa: PLC0415 (not for lists of packages)

    told = file.lower().endswith(SUFFIX)  # no other file is called so, and pictures make many a notebook large
    if (
        file.lower().endswith(_STARTS_NONE)
        or kind in {DOCKERFILE, *LOCKS}
        or not (told or files.is_file(file))
        or is_launch_script(file, files)
    ):
        return
    try:
        head = files.read_bytes(file, _HEAD_BYTES)
        is_text = b"\0" not in head or head.startswith(_UTF_16)
        if told and not is_text:
            hint = "save it as UTF-8 text, or check that this is the file you mean"
            yield Skipped(Source(file), "holds NUL bytes, so it is not a text file", hint, named=named)
        if not is_text or (files.size_bytes(file) > MAX_WALKED_BYTES and not told):
            return
    except OSError as error:  # nothing but the name tells that it may be an input
        if file.lower().endswith((SUFFIX, ".py")):
            yield Skipped(Source(file), f"cannot be read: {error.strerror}", "make it readable", named=named)
        return
    found = find_unread_launch(file, files)
    if found is not None:
        yield found._replace(named=named)


def _find_foreign(file: str, files: Files) -> Skipped | None:
    """Return why a file is not read that is told by its name and its content: too large, or in a language of its own."""
    from compatcheck.frameworks.registry import HEAD_BYTES, states_telling_word  # noqa: PLC0415 (not for lists of packages)

    name, too_large = os.path.basename(file).lower(), False
    rows = [row for row in _FOREIGN if re.fullmatch(row[0], name)]
    try:
        too_large = name.endswith(CONFIGURATIONS) and files.is_file(file) and files.size_bytes(file) > MAX_WALKED_BYTES
        head = files.read_bytes(file, HEAD_BYTES) if too_large or (rows and files.is_file(file)) else b""
    except OSError:
        return None  # nothing but the name tells that it may be an input
    if too_large and states_telling_word(head):
        size, most = map(format_bytes, (files.size_bytes(file), MAX_WALKED_BYTES))
        hint = "name it, if it says what is trained"
        return Skipped(Source(file), f"is {size} large; of what is only found at most {most} are read", hint)
    found = next((row for row in rows if re.search(row[1], head)), None)
    return None if found is None else Skipped(Source(file), found[2], found[3])


def _check_policy(file: str, files: Files, *, named: bool) -> Iterator[Skipped]:
    """Yield why a policy that is only found, and may be of no use here, could not be read."""
    name = os.path.basename(file)
    if name != POLICY_FILE and (name != PROJECT_FILE or not files.is_file(file) or not has_table(file, files)):
        return
    from compatcheck.checking.policy import read_policy  # noqa: PLC0415 (only where there is one)

    try:
        read_policy(file, files)
    except UsageError as error:
        yield as_skipped(error, file)._replace(named=named)


_OF_CI = lazy_compile(
    r"(?:^|/)(?:\.(?:github|circleci|buildkite|gitea|forgejo|azure-pipelines)/|\.gitlab-ci[^/]*\.ya?ml$)"
)
"""Files of continuous integration: what they start are tests."""


def _is_configuration(file: str, files: Files) -> bool:
    return (
        file.lower().endswith(CONFIGURATIONS)
        and _OF_CI.search(file.replace(os.sep, "/")) is None
        and os.path.basename(file) != POLICY_FILE
        and files.size_bytes(file) <= MAX_WALKED_BYTES
    )


def _read_modules(script: str, files: Files) -> set[str]:
    """Return the files that a script of Python is read from, modules that it takes arguments from among them."""
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for a commit)

    log = ReadLog(files.base if isinstance(files, ReadLog) else files)
    if log.is_file(script):
        with suppress(InputError):  # whoever reads the run says so
            python_script.read(script, log, named=False, launched=True)
    return log.read | log.asked


def list_programs(item: InputFile, files: Files) -> set[str]:
    """Return the programs that the command of a launch script starts."""
    named = [(one, name) for one in item.documents for kind, name, _ in one.references if kind == "program"]
    return {files.resolve(find_beside(document.source.path, name, files)) for document, name in named}


def _read_lists(
    file: str, kind: str, files: Files, skipped: list[Skipped], selection: Selection, *, named: bool
) -> Iterator[InputFile]:
    if kind == DOCKERFILE:
        yield from _read_started(file, files, skipped, selection, named=named)
    for environment in read_environments(file, kind, files, selection):
        # What a setup.py computes cannot be written otherwise there, so it fails no commit.
        if (passes := kind == "setup_py") or not named:
            unnamed = tuple(
                entry._replace(named=entry.by_run, passes=entry.passes or passes)
                for entry in environment.skipped
                if not entry.elsewhere
            )
            environment = environment._replace(skipped=unnamed)  # noqa: PLW2901 (the same, of a walk)
        if environment.packages:
            yield InputFile(file, (), environment, is_root=True, kind=kind)
        elif environment.skipped:
            skipped.extend(environment.skipped)
        elif kind != DOCKERFILE:  # most build something else
            skipped.append(Skipped(Source(file), "states no package", passes=True))


def _read_started(
    file: str, files: Files, skipped: list[Skipped], selection: Selection, *, named: bool
) -> Iterator[InputFile]:
    """Read the trainings that the image of a Dockerfile starts by itself, or its build."""
    from compatcheck.collectors.dockerfile.started import find_started  # noqa: PLC0415 (only for Dockerfiles)
    from compatcheck.frameworks.embedded import Piece  # noqa: PLC0415 (not for lists of packages)
    from compatcheck.frameworks.recognise import read_pieces  # noqa: PLC0415 (not for lists of packages)

    pieces = (Piece(*one) for one in find_started(file, files, selection))
    try:
        readings = read_pieces(file, pieces, files, named=named)
    except InputError as error:  # its packages are read all the same
        skipped.append(as_skipped(error, file)._replace(named=named))
        return
    for reading in readings:
        documents = mark_named(reading.documents) if named else reading.documents
        yield InputFile(file, documents, environment_of(None, reading.variables, file, reading.notes), is_launch=True)


def _read_broken(
    file: str, kind: str, files: Files, skipped: list[Skipped], selection: Selection, *, named: bool
) -> Iterator[InputFile]:
    """Read a file as what its name says that it is, though its content does not look like it: as far as it goes."""
    unread: list[Skipped] = []
    for item in _read_lists(file, kind, files, unread, selection, named=named):
        packages = () if item.environment is None else item.environment.packages.values()
        if any(package.version or package.specifier for package in packages):
            yield item
        elif item.environment is not None:  # words of a text are no packages
            unread.extend(item.environment.skipped)
            unread = unread or [
                Skipped(Source(file), "does not look like what its name says", "name it by itself, or rename it")
            ]
    if unread:
        more = f"; {len(unread) - 1} more could not be read either" if len(unread) > 1 else ""
        skipped.append(unread[0]._replace(reason=f"{unread[0].reason}{more}"))


def with_standard_input(files: Files, skipped: list[Skipped]) -> Files:
    """Lay what standard input gives over a tree, unless it is there already: it can be read only once."""
    if files.is_file(STANDARD_INPUT):
        return files
    try:
        return Overlay(files, {STANDARD_INPUT: read_standard_input()})
    except InputError as error:
        skipped.append(as_skipped(error, STANDARD_INPUT))
        return files


def read_blocks(blocks: Sequence[str], files: Files, skipped: list[Skipped]) -> Iterator[InputFile]:
    """Read the blocks of code of a pasted text; what is none of a training, or cannot be parsed, is passed over.

    Nothing in them counts as named: the files they name lie on another machine.
    """
    for block in blocks:
        try:
            yield from _read_configurations(block, files, named=False, mark=False)
        except InputError as error:
            skipped.append(as_skipped(error, block)._replace(named=False))


def read_standard_input_file(
    files: Files, skipped: list[Skipped], selection: Selection, blocks: Sequence[str] | None, *, alone: bool
) -> Iterator[InputFile]:
    """Read standard input as what its content says it is; what cannot be read is added to ``skipped``.

    Where it is empty beside other inputs (``pip freeze`` failed before the pipe), a check of these alone passes no gate.
    """
    if not files.is_file(STANDARD_INPUT):
        return
    content = read_bytes(STANDARD_INPUT, files)
    if not content.strip():
        hint = "send requirements, a lock or a configuration: pip freeze | compatcheck check -"
        skipped.append(Skipped(Source(STANDARD_INPUT), "standard input is empty", hint, named=not alone))
        return
    yield from _read_as(STANDARD_INPUT, recognise_content(content), files, skipped, selection, blocks)


def read_found_file(path: str, files: Files) -> list[InputFile]:
    """Read a file that lies where a person works as a configuration, a launch or a training script; none where it is not one."""
    try:
        if path.endswith(".py"):
            from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for scripts)

            documents = python_script.read(path, files, named=False)
            return [InputFile(path, documents)] if documents else []
        if recognise(path, files, named=False) is not None:
            return []
        return [item for item in _read_configurations(path, files, named=False, mark=False) if item.documents]
    except InputError:
        return []


def read_named_file(
    path: str, files: Files, skipped: list[Skipped], selection: Selection, blocks: Sequence[str] | None
) -> Iterator[InputFile]:
    """Read a file that the person named; what cannot be read is added to ``skipped``.

    Args:
        path: the file.
        files: the tree it lies in.
        skipped: takes what could not be read.
        selection: what is chosen of what it offers.
        blocks: of code in it, where it is a text with fences.
    """
    kind = None if holds_recipes(path) else recognise_named(path, files)
    if kind is None and os.path.basename(path) == "setup.py":
        kind = "setup_py"
    told = recognise(path, files) or tell_by_name(path)
    if kind == "requirements" and told is None and _reads_as_prose(path, files):
        kind = "report"  # a text of any name is taken for requirements where nothing tells
    yield from _read_as(path, kind, files, skipped, selection, blocks)
    if kind != "report" and path.lower().endswith(".ipynb") and (installed := read_installed(path, files)) is not None:
        yield InputFile(path, (), installed, is_root=True, kind="report")
    if (kind == "script" or (kind == "report" and path.endswith(".ipynb"))) and _says_training(path, files):
        yield from _read_as(path, None, files, skipped, selection, None)


def _reads_as_prose(path: str, files: Files) -> bool:
    """Tell whether a file is a text, and no list; what cannot be read is said where it is read."""
    try:
        return _is_prose(read_bytes(path, files))
    except InputError:
        return False


def _says_training(path: str, files: Files) -> bool:
    """Tell whether a script that states its requirements trains something, too."""
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for scripts)

    try:
        return bool(python_script.read(path, files, named=False))
    except InputError:
        return False  # its requirements could be read, which is what it was named for


def _read_as(
    path: str,
    kind: str | None,
    files: Files,
    skipped: list[Skipped],
    selection: Selection,
    blocks: Sequence[str] | None,
) -> Iterator[InputFile]:
    found = list(read_blocks(blocks or (), files, skipped))
    yield from found
    try:
        if kind == "report" or blocks is not None:
            yield from _read_report(path, files)
            return
        if kind is not None:
            if kind == DOCKERFILE:
                yield from _read_started(path, files, skipped, selection, named=True)
            for environment in read_environments(path, kind, files, selection):
                yield InputFile(path, (), environment, is_root=True, kind=kind)
            return
        yield from _read_configurations(path, files, named=True, mark=True, arguments=selection.script_arguments)
    except InputError as error:
        why = _explain_prose(error, path, kind, files)
        said = list(_read_said(path, files)) if blocks or why is not error else []
        yield from said
        if not found and not said:
            skipped.append(as_skipped(why, path))


_GUESSES = {None, "requirements", "report"}
"""Kinds that a text is taken for where nothing tells."""
_WRITTEN = lazy_compile(
    rb"[ \t]*(?:[-#{}\[\]\"]|[\w.-]+(?:\[[\w, -]*\])?[ \t]*(?:[<>!~]=?[ \t]*\d|=|:(?:\s|$)|@|;|$)"
    rb"|(?:git|hg|svn|bzr)\+\S|\S*/\S+\.(?:whl|tar\.gz|zip)(?:[\s#;]|$))"
)
"""Lines as configurations and lists of packages have them."""


def _is_prose(content: bytes) -> bool:
    """Tell whether most lines of a text are none of a configuration or a list."""
    lines = [line for line in content.splitlines() if line.strip()]
    return (
        bool(lines)
        and b"\0" not in content
        and 2 * sum(_WRITTEN.match(line) is not None for line in lines) <= len(lines)
    )


def _explain_prose(error: InputError, path: str, kind: str | None, files: Files) -> InputError:
    """Say what was looked for in a text that is none of it: that it is no YAML or no requirement helps nobody."""
    if (
        kind not in _GUESSES
        or not (path == STANDARD_INPUT or path.endswith(REPORT_SUFFIXES))
        or not files.is_file(path)
    ):
        return error
    content = read_bytes(path, files)
    if b"\0" in content or (kind != "report" and not _is_prose(content)):
        return error
    from compatcheck.collectors.reports.find import KNOWN  # noqa: PLC0415 (on the way to an error)

    message = "holds no report of an environment, no list of packages and no configuration that is known here"
    hint = (
        f"looked for: {KNOWN}; between lines of ``` also YAML, JSON, Python and commands; "
        "of a message about memory, `compatcheck oom`"
    )
    return InputError(message, source=Source(path), hint=hint)


def _read_said(path: str, files: Files) -> Iterator[InputFile]:
    """Read the packages that a text without a report names with one version alone."""
    from compatcheck.oom.mentions import read_packages  # noqa: PLC0415 (only for pasted texts)

    said = read_packages(read_bytes(path, files).decode("utf-8", "replace"))
    if said:
        packages = {name: Package(name, version, Source(path, line=line)) for name, (version, line) in said.items()}
        yield InputFile(path, (), Environment(path, packages, complete=False), is_root=True, kind="report")


def _read_report(path: str, files: Files) -> Iterator[InputFile]:
    """Read a pasted report; the configuration of accelerate in it is one of the run."""
    from compatcheck.collectors.reports.find import read_found  # noqa: PLC0415 (only for reports)

    installed = read_installed(path, files) if path.lower().endswith(".ipynb") else None
    try:
        reports = read_found(path, files)
    except InputError:
        if installed is None:
            raise
        yield InputFile(path, (), installed, is_root=True, kind="report")
        return
    for found in reports:
        environment = found.environment
        if is_of_another_machine(environment, path, files):
            reason = "is the output of a CUDA device, and the cells install torch for ROCm: it was recorded on another machine"
            entry = Skipped(
                environment.facts[BUILD][1], reason, "name the device, for example --gpu 1xMI300X", named=True
            )
            environment = Environment(path, {}, complete=False, skipped=(entry,))
        if installed is not None and len(reports) == 1:
            environment = with_installs(environment, installed)
        if found.accelerate is not None and len(reports) > 1:
            reason, hint = (
                "the configuration of accelerate is not read beside several environments",
                "name the file of accelerate itself",
            )
            entry = Skipped(found.accelerate_source or Source(path), reason, hint, named=True)
            environment = environment._replace(skipped=(*environment.skipped, entry))
        yield InputFile(path, (), environment, is_root=True, kind="report")
    if len(reports) == 1 and reports[0].accelerate is not None:
        from compatcheck.frameworks.accelerate import configuration as accelerate  # noqa: PLC0415 (only for a report with one)

        documents = accelerate.read(reports[0].accelerate, path).documents
        yield InputFile(f"{path} (accelerate)", mark_named(documents))


def _read_configurations(
    path: str, files: Files, *, named: bool, mark: bool, arguments: Sequence[str] | None = None
) -> Iterator[InputFile]:
    from compatcheck.frameworks.recognise import read_configurations  # noqa: PLC0415 (not for lists of packages)

    for reading in read_configurations(path, files, named=named, arguments=arguments):
        documents = mark_named(reading.documents) if mark else reading.documents
        environment = environment_of(reading.environment, reading.variables, path, reading.notes)
        yield InputFile(reading.label or path, documents, environment, is_launch=reading.is_launch)
