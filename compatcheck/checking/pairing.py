"""Which configurations make one run, and which requirement roots it is paired with."""

from __future__ import annotations

import os

from compatcheck.checking.environments import merge_environments, with_variables
from compatcheck.checking.input_files import DOCKERFILE
from compatcheck.checking.stack import holds_stack
from compatcheck.checking.subjects import build_subject
from compatcheck.collectors.read import LOCKS
from compatcheck.core.files import LOCAL
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.beside import find_beside
from compatcheck.rules.programs import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.checking.input_files import InputFile
    from compatcheck.checking.shared import Shared
    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment, Package
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_MAIN_NAMES = {"pyproject.toml", "requirements.txt"}
_OF_A_RUN = {"program", "facts"}
"""Kinds of records whose files say what a run is, where a library's or a model's only take part in one."""


class ConfigurationSet(NamedTuple):
    """Configurations that belong together."""

    paths: tuple[str, ...]
    directory: str
    documents: tuple[Document, ...]
    declared: tuple[Environment, ...]


def group_runs(found: Iterable[InputFile]) -> list[ConfigurationSet]:
    """Group walked-into configurations by directory; several of one kind in a directory are separate runs.

    One that a run of another directory starts or configures a library with is part of that run alone.
    """
    items = [item for item in found if not item.is_root]
    elsewhere = {path for item in items for path in _name_elsewhere(item)}
    by_directory: dict[str, list[InputFile]] = {}
    for item in items:
        if os.path.realpath(item.path) not in elsewhere:
            by_directory.setdefault(os.path.dirname(item.path), []).append(item)
    runs: list[ConfigurationSet] = []
    for directory, items in by_directory.items():
        runs.extend(_split(items, directory))
    return runs


def _name_elsewhere(item: InputFile) -> Iterator[str]:
    """Yield the files of other directories that one names as no more than a part of its run."""
    directory = os.path.dirname(os.path.realpath(item.path))
    yield from (path for path in _name_parts(item) if os.path.dirname(path) != directory)


def _name_parts(item: InputFile) -> Iterator[str]:
    """Yield the files that one names as no more than a part of its run: a base is a run of its own, too."""
    kinds = {"deepspeed", "accelerate", "config"} if item.is_launch else {"deepspeed", "accelerate"}
    names = (name for document in item.documents for kind, name, _ in document.references if kind in kinds)
    yield from (resolve_reference(item.path, name) for name in names)


def find_beneath(document: Document, items: Mapping[str, InputFile]) -> set[str]:
    """Return the real paths of the files that a document names, and of those that these name.

    Args:
        document: of a run.
        items: what was walked into, by real path.
    """
    found: set[str] = set()
    pending = [document]
    while pending:
        one = pending.pop()
        for path in {resolve_reference(one.source.path, name) for _, name, _ in one.references} - found:
            found.add(path)
            pending += items[path].documents if path in items else ()
    return found


def _split(items: list[InputFile], directory: str) -> Iterator[ConfigurationSet]:
    scripts = [item for item in items if item.path.endswith(".py")]  # each says itself what it reads
    yield from (merge_run([item], directory) for item in scripts)
    of_scripts = {path for item in scripts for path in _name_parts(item)}
    items = [item for item in items if item not in scripts and os.path.realpath(item.path) not in of_scripts]
    if not items:
        return
    kinds = [{find_program(document.reader).kind for document in item.documents} for item in items]
    main = [item for item, kind in zip(items, kinds, strict=True) if item.is_launch or kind & _OF_A_RUN]
    libraries = [item for item, kind in zip(items, kinds, strict=True) if kind <= {"library"}]
    models = [item for item, kind in zip(items, kinds, strict=True) if kind == {"model"}]
    crowded = len(main) > 1 or len(models) > 1 or _repeats(libraries)
    if not crowded:
        yield merge_run(items, directory)
        return
    named = {
        resolve_reference(item.path, name)
        for item in main
        for document in item.documents
        for kind, name, _ in document.references
        if kind in {"deepspeed", "accelerate", "config"}
    }
    shared = models if len(models) == 1 else []
    for item in main:
        if os.path.realpath(item.path) not in named:
            yield merge_run([item, *shared], directory)
    for item in libraries:
        if os.path.realpath(item.path) not in named:
            yield merge_run([item, *shared], directory)
    if len(models) > 1 or (not main and not libraries):
        for item in models:
            yield merge_run([item], directory)


def merge_run(items: Iterable[InputFile], directory: str) -> ConfigurationSet:
    """Join the configurations among these files into one set."""
    items = [item for item in items if not item.is_root]
    documents = tuple(document for item in items for document in item.documents)
    declared = tuple(item.environment for item in items if item.environment is not None)
    return ConfigurationSet(tuple(item.path for item in items), directory, documents, declared)


def resolve_reference(path: str, name: str) -> str:
    """Return the real path of what a configuration names."""
    return os.path.realpath(find_beside(path, name, LOCAL))


def _repeats(items: list[InputFile]) -> bool:
    readers = [document.reader for item in items for document in item.documents]
    return len(readers) != len(set(readers))


def pair_subjects(
    runs: list[ConfigurationSet], roots: list[InputFile], shared: Shared, *, together: bool = False
) -> Iterator[Subject]:
    """Pair runs with the requirement roots of their directory or the nearest one above."""
    used: set[str] = set()
    for run in runs:
        nearest: list[InputFile | None] = [*(roots if together else nearest_roots(run.directory, roots, shared.rules))]
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


def name_subject(paths: Sequence[str]) -> str:
    """Name a subject after its files; a directory they share is written once."""
    paths = tuple(dict.fromkeys(paths))  # a script is named once, also where it is both environment and configuration
    directories = {os.path.dirname(path) for path in paths}
    if len(paths) > 1 and len(directories) == 1 and directories != {""}:
        return f"{directories.pop()}: {' + '.join(os.path.basename(path) for path in paths)}"
    return " + ".join(paths)


def _with_declared(environment: Environment | None, shared: Shared) -> Environment | None:
    if environment is None or shared.variables is None:
        return environment
    return with_variables(environment, shared.variables, Source("--env-file"), complete=True)


def _main_roots(roots: list[InputFile]) -> list[InputFile]:
    """Choose the roots of one directory that runs are paired with: locks, else the main files, else ``setup.py``, else all."""
    locks = [root for root in roots if root.kind in LOCKS]
    main = [root for root in roots if os.path.basename(root.path) in _MAIN_NAMES]
    return locks or main or [root for root in roots if root.kind in {"setup_py", "setup_cfg"}] or roots


def leave_out_included(roots: list[InputFile]) -> list[InputFile]:
    """Leave out the requirement files that another one includes: they are checked as part of it."""
    included: set[str] = set()
    for root in roots:
        packages = root.environment.packages.values() if root.environment is not None else ()
        if root.kind == DOCKERFILE:  # it takes a requirement file for one of several things it installs
            continue
        included |= {os.path.realpath(package.source.path) for package in packages} - {os.path.realpath(root.path)}
    return [root for root in roots if os.path.realpath(root.path) not in included] or roots


def _project_of(path: str) -> str:
    """Return the directory whose runs a root is for: a folder of lists or Dockerfiles holds those of the project around it."""
    directory = os.path.dirname(os.path.abspath(path))
    for folder in (directory, os.path.dirname(directory)):  # requirements/train.txt, requirements/gpu/train.txt
        if os.path.basename(folder).lower() in _FOLDERS_OF_ROOTS:
            return os.path.dirname(folder)
    return directory


MOST_IMAGES = 2
"""Dockerfiles beside lists with which a run is checked, too: more are images of several purposes or machines."""

_FOLDERS_OF_ROOTS = {"requirements", "requirement", "constraints", "docker", "dockerfile", "dockerfiles"}


def nearest_roots(directory: str, roots: list[InputFile], rules: RuleSet) -> list[InputFile]:
    """Return the roots of a project, else of the nearest one above; none where there is none up to the top.

    What holds no training stack counts only where nothing does that lies here or above. A Dockerfile beside lists that hold one
    counts, too, where it says more of it; of many, `leave_out_images` says that none does.
    """
    stacked = [root for root in roots if holds_stack(root.environment, rules)]
    lists = _find_nearest(directory, [root for root in stacked if root.kind != DOCKERFILE])
    if not lists:
        plain = [root for root in roots if root.kind != DOCKERFILE]
        return next(filter(None, (_find_nearest(directory, some) for some in (stacked, plain, roots))), [])
    images = _find_images(directory, lists, roots, rules)
    return lists if len(images) > MOST_IMAGES else [*lists, *images]


def leave_out_images(runs: Iterable[ConfigurationSet], roots: list[InputFile], rules: RuleSet) -> Iterator[Skipped]:
    """Say of which runs too many Dockerfiles lie beside the lists that they are paired with."""
    for directory in dict.fromkeys(run.directory for run in runs):
        lists = [root for root in nearest_roots(directory, roots, rules) if root.kind != DOCKERFILE]
        images = _find_images(directory, lists, roots, rules) if lists else []
        if len(images) > MOST_IMAGES:
            place = os.path.commonpath([os.path.dirname(os.path.abspath(image.path)) for image in images])
            place = place if os.path.isabs(images[0].path) else os.path.relpath(place)
            reason = (
                f"holds {len(images)} Dockerfiles with a stack of their own; runs were checked with {lists[0].path}"
            )
            hint = "name the Dockerfile and what runs in it, or make both a run of the policy"
            yield Skipped(Source(place), reason, hint, passes=True)


def _find_images(directory: str, lists: list[InputFile], roots: list[InputFile], rules: RuleSet) -> list[InputFile]:
    """Return the Dockerfiles no further away than the lists of a run which say more of its stack than these."""
    stated = [root.environment.packages for root in lists if root.environment is not None]
    project = _project_of(lists[0].path)

    def says_more(image: InputFile) -> bool:
        if image.environment is None:
            return False
        packages = {
            name: package
            for name, package in image.environment.packages.items()
            if not any(_is_same(package, others.get(name)) for others in stated)
        }
        return holds_stack(image.environment._replace(packages=packages), rules)

    images = [root for root in roots if root.kind == DOCKERFILE and says_more(root)]
    nearest = _find_nearest(directory, images)
    return [image for image in nearest if os.path.commonpath([project, _project_of(image.path)]) == project]


def _is_same(package: Package, other: Package | None) -> bool:
    return other is not None and (package.version, package.specifier) == (other.version, other.specifier)


def _find_nearest(directory: str, roots: list[InputFile]) -> list[InputFile]:
    by_directory: dict[str, list[InputFile]] = {}
    for root in roots:
        by_directory.setdefault(_project_of(root.path), []).append(root)
    here = os.path.abspath(directory)
    while True:
        if here in by_directory:
            return _main_roots(by_directory[here])
        above = os.path.dirname(here)
        if above == here:
            return []
        here = above
