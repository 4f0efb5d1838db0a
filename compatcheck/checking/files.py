"""Group files into subjects: one per lock or requirement root, each with the configurations of its run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.checking.locked_manifests import find_locks
from compatcheck.checking.request import (
    Gathered,
    Request,
    Shared,
    as_skipped,
    build_subject,
    environment_of,
    mark_named,
    merge_environments,
    with_variables,
)
from compatcheck.collectors.read import LOCKS, read_environments
from compatcheck.collectors.recognise import recognise_content, recognise_named, walk
from compatcheck.core.errors import InputError, NoEnvironmentError, NothingToCheckError, UsageError
from compatcheck.core.files import Files, Overlay
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import STANDARD_INPUT, read_bytes, read_standard_input
from compatcheck.frameworks.recognise import SCRIPTS, SUFFIXES, read_configurations
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment
    from compatcheck.resolution.subject import Subject

MAX_WALKED_BYTES = 2 << 20
"""A walked-into JSON file larger than this is data, not configuration."""

DOCKERFILE = "dockerfile"
"""Kind of a root that says less surely than any other what is installed."""

DASH = "-"
"""What a person writes for standard input."""
POLICY_FILE = "compatcheck.toml"
_OF_A_RUN = {"program", "facts"}
"""Kinds of records whose files say what a run is, where a library's or a model's only take part in one."""


class Found(NamedTuple):
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


class Run(NamedTuple):
    """Configurations that belong together."""

    paths: tuple[str, ...]
    directory: str
    documents: tuple[Document, ...]
    declared: tuple[Environment, ...]


def gather_paths(request: Request, shared: Shared) -> Gathered:
    """Read the files and directories a person named.

    Raises:
        NothingToCheckError: nothing in them is an environment or a configuration.
        UsageError: standard input is named twice.
    """
    if request.paths.count(DASH) > 1:
        msg = "standard input is named twice"
        raise UsageError(msg, hint="keep one `-`; it can be read only once")
    subjects: list[Subject] = []
    skipped = list(shared.skipped)
    if DASH in request.paths:
        shared = shared._replace(files=_with_standard_input(shared.files, skipped))
    files = shared.files
    explicit: list[Found] = []
    seen: set[str] = set()
    for path in request.paths:
        if os.path.realpath(path) in seen:
            continue
        seen.add(os.path.realpath(path))
        if os.path.isdir(path):
            found = list(_walk(path, files, skipped))
            roots = [item for item in found if item.is_root]
            locked = {} if request.manifests else find_locks(roots)
            roots = [root for root in _independent(roots) if root.path not in locked]
            subjects.extend(_subjects(_group(found), roots, shared))
        else:
            explicit.extend(_read_standard_input(files, skipped) if path == DASH else _read_file(path, files, skipped))
    if explicit:
        launches = [item for item in explicit if item.is_launch]
        others = [item for item in explicit if not item.is_launch]
        together = [[item, *others] for item in launches] if len(launches) > 1 else [explicit]
        runs = [_merge_run(items, os.path.dirname(explicit[0].path)) for items in together]
        subjects.extend(
            _subjects(
                [run for run in runs if run.documents or run.declared],
                [item for item in explicit if item.is_root],
                shared,
                together=True,
            ),
        )
    if request.image is not None:
        from compatcheck.checking.images import find_started  # noqa: PLC0415 (only with --image)

        installed, unread = find_started(request, shared)
        skipped += unread
        subjects = [_over(installed, subject, shared) for subject in subjects]
    elif request.python is not None or request.prefix is not None:
        subjects = [_over_installed(subject, request, shared) for subject in subjects]
    if not subjects and (shared.documents or shared.model):
        subjects.append(build_subject("command line", None, shared.documents, shared))
    if not subjects and not any(entry.named for entry in skipped):
        if skipped and request.paths != (DASH,):
            return Gathered((), tuple(skipped))
        if skipped:
            raise NothingToCheckError(skipped[0].reason, source=skipped[0].source, hint=skipped[0].hint)
        named = ", ".join(STANDARD_INPUT if path == DASH else path for path in request.paths)
        hint = (
            "known: requirements, constraints, pylock.toml, uv.lock, poetry.lock, pdm.lock, Pipfile.lock, Pipfile, "
            "pyproject.toml, setup.py, Dockerfile, pip list, pip inspect, environment.yml, conda list, "
            "conda-lock, pixi, CycloneDX, SPDX, config.json, DeepSpeed, accelerate, trainer arguments, launch scripts, "
            "pasted reports (collect_env, ds_report, nvidia-smi, …)"
        )
        msg = f"{named}: no environment and no training configuration found"
        raise NothingToCheckError(msg, hint=hint)
    return Gathered(tuple(subjects), tuple(skipped), files=files)


def gather_touched(request: Request, shared: Shared) -> Gathered:
    """Read what belongs to the files a commit touches: runs that one of them is part of, with the locks they pair with.

    The working directory is walked, so that the outcome does not depend on which half of a run a commit holds; a policy
    belongs to everything. Files that are no input are passed over, and finding none is no error; an input among the touched
    files that cannot be read is one the person named.
    """
    touched = {os.path.realpath(path) for path in request.paths}
    everything = any(os.path.basename(path) == POLICY_FILE for path in request.paths)
    skipped: list[Skipped] = []
    found = (
        list(_walk(os.curdir, shared.files, skipped, lambda file: os.path.realpath(file) in touched)) if touched else []
    )
    roots = [item for item in found if item.is_root]
    locked = find_locks(roots)
    for path, locks in locked.items():  # what a manifest may do to the run shows in its lock
        if os.path.realpath(path) in touched:
            touched.update(map(os.path.realpath, locks))
    roots = [root for root in roots if root.path not in locked]
    kept: list[Run] = []
    wanted = [root for root in roots if everything or os.path.realpath(root.path) in touched]
    for run in _group(found):
        nearest = _nearest(run.directory, roots)
        places = {document.source.path for document in run.documents} | {root.path for root in nearest}
        naming = [
            any(_resolve(run.directory, name) in touched for _, name, _ in document.references)
            for document in run.documents
        ]
        if everything or any(naming) or any(os.path.realpath(place) in touched for place in places):
            documents = tuple(
                document._replace(named=document.named or names)
                for document, names in zip(run.documents, naming, strict=True)
            )
            kept.append(run._replace(documents=documents))
            wanted += [root for root in nearest if root not in wanted]
    subjects = tuple(_subjects(kept, wanted, shared))
    unread = [entry for entry in skipped if os.path.realpath(entry.source.path) in touched]
    return Gathered(subjects, (*shared.skipped, *unread), files=shared.files)


def _over_installed(subject: Subject, request: Request, shared: Shared) -> Subject:
    from compatcheck.collectors.python.installed import collect_installed  # noqa: PLC0415 (only with --python)
    from compatcheck.collectors.python.interpreter import locate  # noqa: PLC0415 (only with --python)
    from compatcheck.collectors.python.metadata_check import check_records  # noqa: PLC0415 (only with --python)

    layout = locate(request.python, request.prefix, shared.environ)
    installed = check_records(collect_installed(layout), shared.rules.packages)
    return _over(installed, subject, shared)


def _over(installed: Environment, subject: Subject, shared: Shared) -> Subject:
    environment = installed if subject.environment is None else merge_environments(installed, subject.environment)
    return build_subject(subject.id, environment, subject.documents, shared._replace(documents=()))


def _nothing(_: str) -> bool:
    return False


def _walk(
    path: str, files: Files, skipped: list[Skipped], is_named: Callable[[str], bool] = _nothing
) -> Iterator[Found]:
    """Read what a directory holds.

    Args:
        path: the directory.
        files: the tree it lies in.
        skipped: takes what could not be read.
        is_named: tells which of its files the person named.
    """

    def note(error: OSError, directory: str) -> None:
        reason = f"directory could not be listed: {error.strerror}"
        skipped.append(Skipped(Source(directory), reason, "run as a user who may read it", named=directory == path))

    for file, kind in walk(path, note):
        if path == os.curdir:
            file = file.removeprefix(os.path.join(os.curdir, ""))  # noqa: PLW2901 (as a person writes it)
        try:
            if kind is not None:
                for environment in read_environments(file, kind, files):
                    # What a setup.py computes cannot be written otherwise there, so it fails no commit.
                    if kind == "setup_py" or not is_named(file):
                        unnamed = tuple(entry._replace(named=False) for entry in environment.skipped)
                        environment = environment._replace(skipped=unnamed)  # noqa: PLW2901 (the same, of a walk)
                    if environment.packages:
                        yield Found(file, (), environment, is_root=True, kind=kind)
                    elif kind != DOCKERFILE:  # most build something else
                        skipped.extend(environment.skipped or (Skipped(Source(file), "states no package"),))
            elif file.endswith((*SUFFIXES, *SCRIPTS)) and files.size_bytes(file) <= MAX_WALKED_BYTES:
                yield from _read_configurations(file, files, named=False, mark=is_named(file))
        except InputError as error:
            fails = is_named(file) and not isinstance(error, NoEnvironmentError)
            skipped.append(as_skipped(error, file)._replace(named=fails))
        except OSError as error:
            skipped.append(Skipped(Source(file), f"cannot be read: {error.strerror}", named=is_named(file)))


def _with_standard_input(files: Files, skipped: list[Skipped]) -> Files:
    """Lay what standard input gives over a tree, unless it is there already: it can be read only once."""
    if files.is_file(STANDARD_INPUT):
        return files
    try:
        return Overlay(files, {STANDARD_INPUT: read_standard_input()})
    except InputError as error:
        skipped.append(as_skipped(error, STANDARD_INPUT))
        return files


def _read_standard_input(files: Files, skipped: list[Skipped]) -> Iterator[Found]:
    if not files.is_file(STANDARD_INPUT):
        return
    content = read_bytes(STANDARD_INPUT, files)
    if not content.strip():
        hint = "send requirements, a lock or a configuration: pip freeze | compatcheck check -"
        skipped.append(Skipped(Source(STANDARD_INPUT), "standard input is empty", hint))
        return
    yield from _read_as(STANDARD_INPUT, recognise_content(content), files, skipped)


def _read_file(path: str, files: Files, skipped: list[Skipped]) -> Iterator[Found]:
    kind = recognise_named(path, files)
    if kind is None and os.path.basename(path) == "setup.py":
        kind = "setup_py"
    yield from _read_as(path, kind, files, skipped)
    if kind == "script" and _says_training(path, files):
        yield from _read_as(path, None, files, skipped)


def _says_training(path: str, files: Files) -> bool:
    """Tell whether a script that states its requirements trains something, too."""
    from compatcheck.frameworks.python_script import read as python_script  # noqa: PLC0415 (only for scripts)

    try:
        return bool(python_script.read(path, files, named=False))
    except InputError:
        return False  # its requirements could be read, which is what it was named for


def _read_as(path: str, kind: str | None, files: Files, skipped: list[Skipped]) -> Iterator[Found]:
    try:
        if kind == "report":
            yield from _read_report(path, files)
            return
        if kind is not None:
            for environment in read_environments(path, kind, files):
                yield Found(path, (), environment, is_root=True, kind=kind)
            return
        yield from _read_configurations(path, files, named=True, mark=True)
    except InputError as error:
        skipped.append(as_skipped(error, path))


def _read_report(path: str, files: Files) -> Iterator[Found]:
    """Read a pasted report; the configuration of accelerate in it is one of the run."""
    from compatcheck.collectors.reports.find import read_found  # noqa: PLC0415 (only for reports)

    reports = read_found(path, files)
    for found in reports:
        environment = found.environment
        if found.accelerate is not None and len(reports) > 1:
            note = f"{found.accelerate_source}: the configuration of accelerate is not read where a text has several environments"
            environment = environment._replace(notes=(*environment.notes, note))
        yield Found(path, (), environment, is_root=True, kind="report")
    if len(reports) == 1 and reports[0].accelerate is not None:
        from compatcheck.frameworks.accelerate import configuration as accelerate  # noqa: PLC0415 (only for a report with one)

        documents = accelerate.read(reports[0].accelerate, path).documents
        yield Found(f"{path} (accelerate)", mark_named(documents))


def _read_configurations(path: str, files: Files, *, named: bool, mark: bool) -> Iterator[Found]:
    for reading in read_configurations(path, files, named=named):
        documents = mark_named(reading.documents) if mark else reading.documents
        environment = environment_of(reading.environment, reading.variables, path, reading.notes)
        yield Found(reading.label or path, documents, environment, is_launch=reading.is_launch)


def _group(found: Iterable[Found]) -> list[Run]:
    """Group walked-into configurations by directory; several of one kind in a directory are separate runs."""
    by_directory: dict[str, list[Found]] = {}
    for item in found:
        if not item.is_root:
            by_directory.setdefault(os.path.dirname(item.path), []).append(item)
    runs: list[Run] = []
    for directory, items in by_directory.items():
        runs.extend(_split(items, directory))
    return runs


def _split(items: list[Found], directory: str) -> Iterator[Run]:
    kinds = [{find_program(document.reader).kind for document in item.documents} for item in items]
    main = [item for item, kind in zip(items, kinds, strict=True) if item.is_launch or kind & _OF_A_RUN]
    libraries = [item for item, kind in zip(items, kinds, strict=True) if kind <= {"library"}]
    models = [item for item, kind in zip(items, kinds, strict=True) if kind == {"model"}]
    crowded = len(main) > 1 or len(models) > 1 or _repeats(libraries)
    if not crowded:
        yield _merge_run(items, directory)
        return
    named = {
        _resolve(directory, name)
        for item in main
        for document in item.documents
        for kind, name, _ in document.references
        if kind in {"deepspeed", "accelerate", "config", "verl"}
    }
    shared = models if len(models) == 1 else []
    for item in main:
        if os.path.realpath(item.path) not in named:
            yield _merge_run([item, *shared], directory)
    for item in libraries:
        if os.path.realpath(item.path) not in named:
            yield _merge_run([item, *shared], directory)
    if len(models) > 1 or (not main and not libraries):
        for item in models:
            yield _merge_run([item], directory)


def _resolve(directory: str, name: str) -> str:
    return os.path.realpath(name if os.path.exists(name) else os.path.join(directory, name))


def _repeats(items: list[Found]) -> bool:
    readers = [document.reader for item in items for document in item.documents]
    return len(readers) != len(set(readers))


def _merge_run(items: Iterable[Found], directory: str) -> Run:
    items = [item for item in items if not item.is_root]
    documents = tuple(document for item in items for document in item.documents)
    declared = tuple(item.environment for item in items if item.environment is not None)
    return Run(tuple(item.path for item in items), directory, documents, declared)


def name_subject(paths: Sequence[str]) -> str:
    """Name a subject after its files; a directory they share is written once."""
    paths = tuple(dict.fromkeys(paths))  # a script is named once, also where it is both environment and configuration
    directories = {os.path.dirname(path) for path in paths}
    if len(paths) > 1 and len(directories) == 1 and directories != {""}:
        return f"{directories.pop()}: {' + '.join(os.path.basename(path) for path in paths)}"
    return " + ".join(paths)


def _subjects(runs: list[Run], roots: list[Found], shared: Shared, *, together: bool = False) -> Iterator[Subject]:
    """Pair runs with the requirement roots of their directory or the nearest one above."""
    used: set[str] = set()
    for run in runs:
        nearest: list[Found | None] = [*(roots if together else _nearest(run.directory, roots))]
        for root in nearest or [None]:
            environment = root.environment if root is not None else None
            for declared in run.declared:
                environment = merge_environments(environment, declared)
            name = name_subject(run.paths if root is None else (root.name, *run.paths))
            if root is not None:
                used.add(root.name)
            yield build_subject(name, _with_declared(environment, shared), (*run.documents, *shared.documents), shared)
    for root in roots:
        if root.name not in used:
            yield build_subject(root.name, _with_declared(root.environment, shared), shared.documents, shared)


def _with_declared(environment: Environment | None, shared: Shared) -> Environment | None:
    if environment is None or shared.variables is None:
        return environment
    return with_variables(environment, shared.variables, Source("--env-file"), complete=True)


_MAIN_NAMES = {"pyproject.toml", "requirements.txt"}


def _main(roots: list[Found]) -> list[Found]:
    """Choose the roots of one directory that runs are paired with: locks, else the main files, else ``setup.py``, else all."""
    locks = [root for root in roots if root.kind in LOCKS]
    main = [root for root in roots if os.path.basename(root.path) in _MAIN_NAMES]
    return locks or main or [root for root in roots if root.kind == "setup_py"] or roots


def _independent(roots: list[Found]) -> list[Found]:
    """Leave out the requirement files that another one includes: they are checked as part of it."""
    included: set[str] = set()
    for root in roots:
        packages = root.environment.packages.values() if root.environment is not None else ()
        if root.kind == DOCKERFILE:  # it takes a requirement file for one of several things it installs
            continue
        included |= {os.path.realpath(package.source.path) for package in packages} - {os.path.realpath(root.path)}
    return [root for root in roots if os.path.realpath(root.path) not in included] or roots


def _nearest(directory: str, roots: list[Found]) -> list[Found]:
    by_directory: dict[str, list[Found]] = {}
    for root in [root for root in roots if root.kind != DOCKERFILE] or roots:
        by_directory.setdefault(os.path.abspath(os.path.dirname(root.path)), []).append(root)
    here = os.path.abspath(directory)
    while True:
        if here in by_directory:
            return _main(by_directory[here])
        above = os.path.dirname(here)
        if above == here:
            return []
        here = above
