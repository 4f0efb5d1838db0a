"""Projects in an image of which nothing is installed: their locks, requirements and configurations, as of a directory."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from compatcheck.checking.input_files import read_found
from compatcheck.checking.locked_manifests import find_locks
from compatcheck.checking.pairing import group_runs, leave_out_included, pair_subjects
from compatcheck.collectors.image.environments import CONFIGURATION
from compatcheck.collectors.image.tree import ImageTree
from compatcheck.collectors.machine.variables import attach, collect_variables
from compatcheck.collectors.recognise import recognise
from compatcheck.core.source import Skipped, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.checking.input_files import InputFile
    from compatcheck.checking.request import Request
    from compatcheck.checking.shared import Shared
    from compatcheck.collectors.image.archive import Image
    from compatcheck.collectors.image.tree import Node
    from compatcheck.resolution.subject import Subject

LOCKED = "locked in the image, not installed"
"""What is said of such a subject."""

_MARKS = ("*.lock", "Pipfile", "pylock*.toml", "pyproject.toml", "*requirements*.txt", "*requirements*.in")
"""Files that show where projects lie, in an image that states no working directory."""


def gather_projects(image: Image, request: Request, shared: Shared, skipped: list[Skipped]) -> Iterator[Subject]:
    """Yield the subjects of the projects in the working directory of an image; what could not be read is added to ``skipped``."""
    files = _NamedTree(image.files, f"{image.name}:")
    shared = shared._replace(files=files)
    for folder in _folders(image):
        found = list(read_found(_list(files, folder, skipped), files, skipped, selection=request.selection))
        found = [_in_image(item, image) if item.is_root else item for item in found]
        roots = [item for item in found if item.is_root]
        locked = {} if request.manifests else find_locks(roots)
        roots = [root for root in leave_out_included(roots) if root.path not in locked]
        if roots:  # configurations alone say nothing of what would run
            yield from pair_subjects(group_runs(found), roots, shared)


class _NamedTree(ImageTree):
    """The files of an image, by names that say of which: this machine has files of the same names."""

    def __init__(self, tree: ImageTree, prefix: str) -> None:
        super().__init__()
        self.root = tree.root
        self.prefix = prefix

    def _walk(self, path: str, *, follow: bool) -> tuple[str, Node | None]:
        return super()._walk(path.removeprefix(self.prefix), follow=follow)


def _folders(image: Image) -> list[str]:
    stated = image.config.working_dir
    if stated is not None and stated.strip("/"):
        return [stated]
    return sorted({posixpath.dirname(path) for path in image.files.find_files(*_MARKS)})


def _list(files: _NamedTree, folder: str, skipped: list[Skipped]) -> Iterator[tuple[str, str | None]]:
    """Yield the files of a directory that were kept whole, with their kinds."""
    try:
        names = sorted(files.list_names(folder))
    except OSError:
        return
    for name in names:
        path = f"{files.prefix}{posixpath.join(folder, name)}"
        try:
            is_whole = files.is_file(path) and len(files.read_bytes(path)) == files.size_bytes(path)
        except OSError:
            continue  # it is none of those that are read
        if is_whole:
            yield path, recognise(path, files, named=False)
        elif files.is_file(path) and recognise(path, files, named=False):  # anything else is data
            skipped.append(Skipped(Source(path), "is too large to be read inside an image", "check it by its own path"))


def _in_image(item: InputFile, image: Image) -> InputFile:
    """Add the variables of the image, and that nothing of it is installed."""
    environment = item.environment
    if environment is None:
        return item
    environment = environment._replace(
        notes=(*environment.notes, LOCKED), complete=environment.complete and not image.skipped
    )
    variables = collect_variables(dict(image.config.env), Source(CONFIGURATION))
    return item._replace(environment=attach(environment, variables, complete=False))
