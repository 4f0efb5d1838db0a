"""Gather the subjects of files: one per lock or requirement root, each with the configurations of its run."""

from __future__ import annotations

import os

from compatcheck.checking.environments import merge_environments
from compatcheck.checking.input_files import (
    DASH,
    DOCKERFILE,
    list_programs,
    read_named_file,
    read_standard_input_file,
    walk_files,
    with_standard_input,
)
from compatcheck.checking.locked_manifests import find_locks
from compatcheck.checking.pairing import (
    find_beneath,
    group_runs,
    leave_out_images,
    leave_out_included,
    merge_run,
    nearest_roots,
    pair_subjects,
)
from compatcheck.checking.pasted_blocks import open_blocks
from compatcheck.checking.request import Gathered
from compatcheck.checking.stack import find_bare
from compatcheck.checking.subjects import build_subject
from compatcheck.core.errors import NothingToCheckError, UsageError
from compatcheck.core.files import Confined
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import POLICY_FILE, STANDARD_INPUT
from compatcheck.core.versions import compile_specifier, contains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compatcheck.checking.input_files import InputFile
    from compatcheck.checking.pairing import ConfigurationSet
    from compatcheck.checking.request import Request
    from compatcheck.checking.shared import Shared
    from compatcheck.core.environment import Environment, Package
    from compatcheck.core.files import Files
    from compatcheck.resolution.subject import Subject


def gather_paths(request: Request, shared: Shared) -> Gathered:
    """Read the files and directories a person named.

    Raises:
        NothingToCheckError: nothing in them is an environment or a configuration.
        UsageError: standard input is named twice.
    """
    if request.paths.count(DASH) > 1:
        raise UsageError("standard input is named twice", hint="keep one `-`; it can be read only once")
    subjects: list[Subject] = []
    skipped = list(shared.skipped)
    if DASH in request.paths:
        shared = shared._replace(files=with_standard_input(shared.files, skipped))
    files, blocks = _open_all_blocks(request.paths, shared.files)
    shared = shared._replace(files=files)

    def is_of_run(file: str) -> bool:
        return os.path.realpath(file) in request.run_files

    explicit: list[InputFile] = []
    walked: list[InputFile] = []
    seen: set[str] = set()
    for path in request.paths:
        if os.path.realpath(path) in seen:
            continue
        seen.add(os.path.realpath(path))
        if os.path.isdir(path):
            found = list(walk_files(path, files, skipped, is_of_run, selection=request.selection))
            walked += found
            roots = [item for item in found if item.is_root]
            locked = {} if request.manifests else find_locks(roots)
            roots = [root for root in leave_out_included(roots) if root.path not in locked]
            runs, roots = _leave_out_covered(request, group_runs(found), roots, shared)
            skipped += leave_out_images(runs, roots, shared.rules)
            subjects.extend(pair_subjects(runs, roots, shared))
        elif path == DASH:
            alone = request.paths == (DASH,)
            explicit.extend(read_standard_input_file(files, skipped, request.selection, blocks[path], alone=alone))
        else:
            tree = files if request.within is None else Confined(files, (request.within,))
            explicit.extend(read_named_file(path, tree, skipped, request.selection, blocks[path]))
    _require_fitting(request, [*explicit, *walked], skipped)
    if explicit:
        launches = [item for item in explicit if item.is_launch]
        started = {program for item in launches for program in list_programs(item, files)}  # read as part of their runs
        kept = [item for item in explicit if item.is_launch or files.resolve(item.path) not in started]
        others = [item for item in kept if not item.is_launch]
        together = [[item, *others] for item in launches] if len(launches) > 1 else [kept]
        runs = [merge_run(items, os.path.dirname(explicit[0].path)) for items in together]
        subjects.extend(
            pair_subjects(
                [run for run in runs if run.documents or run.declared],
                [item for item in explicit if item.is_root],
                shared,
                together=True,
            ),
        )
    subjects = _over_installed(subjects, request, shared, skipped)
    if not subjects and (shared.documents or shared.model):
        subjects.append(build_subject("command line", None, shared.documents, shared))
    if not subjects and not any(entry.named for entry in skipped):
        if request.covered or (skipped and request.paths != (DASH,)):
            return Gathered((), tuple(skipped))
        if skipped:
            raise NothingToCheckError(skipped[0].reason, source=skipped[0].source, hint=skipped[0].hint)
        named = ", ".join(STANDARD_INPUT if path == DASH else path for path in request.paths)
        hint = (
            "known: requirements, constraints, pylock.toml, uv.lock, poetry.lock, pdm.lock, Pipfile.lock, Pipfile, "
            "pyproject.toml, setup.py, setup.cfg, Dockerfile, pip list, pip inspect, environment.yml, conda list, "
            "conda-lock, pixi, CycloneDX, SPDX, config.json, DeepSpeed, accelerate, trainer arguments, launch scripts, "
            "pasted reports (collect_env, ds_report, nvidia-smi, …)"
        )
        raise NothingToCheckError(f"{named}: no environment and no training configuration found", hint=hint)
    return Gathered(tuple(subjects), tuple(skipped), files=files, bare=tuple(find_bare(subjects, shared)))


def _leave_out_covered(
    request: Request, runs: list[ConfigurationSet], roots: list[InputFile], shared: Shared
) -> tuple[list[ConfigurationSet], list[InputFile]]:
    """Leave out what runs of the policy are about; packages of theirs stay beside what else they are paired with."""

    def is_covered(path: str) -> bool:
        return os.path.realpath(path) in request.covered

    kept = [run for run in runs if not all(map(is_covered, run.paths))]
    wanted = {root.path for run in kept for root in nearest_roots(run.directory, roots, shared.rules)}
    return kept, [root for root in roots if root.path in wanted or not is_covered(root.path)]


def _open_all_blocks(paths: Iterable[str], files: Files) -> tuple[Files, dict[str, tuple[str, ...] | None]]:
    """Lay the blocks of code of all pasted texts over the tree; return it with their names by text."""
    blocks: dict[str, tuple[str, ...] | None] = {}
    for path in paths:
        files, blocks[path] = open_blocks(STANDARD_INPUT if path == DASH else path, files)
    return files, blocks


def _require_fitting(request: Request, found: Sequence[InputFile], skipped: Iterable[Skipped]) -> None:
    """Refuse a stage and arguments that are none of any input: they would be passed over.

    Raises:
        UsageError: there is no Dockerfile, or no launch script is named.
    """
    selection = request.selection
    if any(entry.named for entry in skipped):
        return  # what was not read may be what they are for
    if selection.stage is not None and not any(item.kind == DOCKERFILE for item in found):
        raise UsageError(
            f"--stage {selection.stage}: no input is a Dockerfile with such a stage", hint="name the Dockerfile"
        )
    if selection.script_arguments is None:
        return
    from compatcheck.frameworks.recognise import is_launch_script  # noqa: PLC0415 (not for lists of packages)

    if not any(map(is_launch_script, (*request.paths, *request.training))):
        raise UsageError(
            "--script-args: no launch script is named",
            hint="name the script itself: compatcheck check train.sh --script-args '8 llama'",
        )


def gather_touched(request: Request, shared: Shared) -> Gathered:
    """Read what belongs to the files a commit touches: runs that one of them is part of, with the locks they pair with.

    The working directory is walked, so that the outcome does not depend on which half of a run a commit holds. What includes,
    sources or runs one of the files is touched, too, whatever that is called, and a policy belongs to everything. Files that
    are no input are passed over, and finding none is no error; an input among the touched files that cannot be read is one the
    person named.
    """
    touched = {os.path.realpath(path) for path in request.paths}
    # A link to a directory that took the place of one touches all it leads to.
    folders = tuple(os.path.join(path, "") for path in touched if os.path.isdir(path))
    everything = any(os.path.basename(path) == POLICY_FILE for path in request.paths)
    skipped: list[Skipped] = []

    def is_touched(file: str) -> bool:
        return (real := os.path.realpath(file)) in touched or real.startswith(folders)

    def note_parts(file: str, parts: set[str]) -> None:
        if not touched.isdisjoint(parts):
            touched.add(os.path.realpath(file))

    walk = walk_files(os.curdir, shared.files, skipped, is_touched, note_parts, selection=request.selection)
    found = list(walk) if touched else []
    touched.update(os.path.realpath(item.path) for item in found if folders and is_touched(item.path))
    skipped += (Skipped(Source(path), "no such file") for path in request.paths if not os.path.lexists(path))
    roots = [item for item in found if item.is_root]
    locked = find_locks(roots)
    for path, locks in locked.items():  # what a manifest may do to the run shows in its lock
        if os.path.realpath(path) in touched:
            touched.update(map(os.path.realpath, locks))
    roots = leave_out_included([root for root in roots if root.path not in locked])
    kept: list[ConfigurationSet] = []
    wanted = [root for root in roots if everything or os.path.realpath(root.path) in touched]
    by_path = {os.path.realpath(item.path): item for item in found}
    for run in group_runs(found):
        nearest = nearest_roots(run.directory, roots, shared.rules)
        places = {document.source.path for document in run.documents} | {root.path for root in nearest}
        naming = [not touched.isdisjoint(find_beneath(document, by_path)) for document in run.documents]
        if everything or any(naming) or any(os.path.realpath(place) in touched for place in places):
            documents = tuple(
                document._replace(named=document.named or names)
                for document, names in zip(run.documents, naming, strict=True)
            )
            kept.append(run._replace(documents=documents))
            wanted += [root for root in nearest if root not in wanted]
    skipped += leave_out_images(kept, roots, shared.rules)
    subjects = _over_installed(list(pair_subjects(kept, wanted, shared)), request, shared, skipped)
    if not subjects:  # a commit that is about something else is told only what it holds itself
        skipped = [entry for entry in skipped if os.path.realpath(entry.source.path) in touched]
    bare = tuple(find_bare(subjects, shared))
    return Gathered(tuple(subjects), (*shared.skipped, *skipped), files=shared.files, passes=True, bare=bare)


def _over_installed(subjects: list[Subject], request: Request, shared: Shared, skipped: list[Skipped]) -> list[Subject]:
    """Lay what the files say over what is installed, in an image or here, where the person named that."""
    if request.image is not None:
        from compatcheck.checking.images import find_started  # noqa: PLC0415 (only with --image)

        installed, unread = find_started(request, shared)
        skipped += unread
        return [_over(installed, subject, shared) for subject in subjects]
    if not subjects or (request.python is None and request.prefix is None):
        return subjects
    from compatcheck.collectors.python.installed import collect_installed  # noqa: PLC0415 (only with --python)
    from compatcheck.collectors.python.interpreter import locate  # noqa: PLC0415 (only with --python)
    from compatcheck.collectors.python.metadata_check import check_records  # noqa: PLC0415 (only with --python)

    files = request.files
    layout = locate(request.python, request.prefix, shared.environ, files)
    found = collect_installed(layout, files=files)
    installed = check_records(found, shared.rules.packages, layout.site_packages, files)
    return [_over(installed, subject, shared) for subject in subjects]


def _is_settled_by(stated: Package, installed: Package | None) -> bool:
    """Tell whether what is installed says more surely what a file leaves open: an extra, a range of releases."""
    if installed is None or installed.version is None or (stated.version is not None and not stated.is_optional):
        return False
    if stated.is_optional:
        return True
    try:
        return contains(compile_specifier(stated.specifier or ""), installed.version) == "yes"
    except ValueError:  # declared absent
        return False


def _over(installed: Environment, subject: Subject, shared: Shared) -> Subject:
    environment = installed
    if subject.environment is not None:
        said = {
            name: package
            for name, package in subject.environment.packages.items()
            if not _is_settled_by(package, installed.packages.get(name))
        }
        environment = merge_environments(installed, subject.environment._replace(packages=said))
    return build_subject(subject.id, environment, subject.as_read, shared._replace(documents=()))
