"""The release of a package that lies beside what is run, in a checkout, and is in no list of packages.

What the sources call themselves is the last release before them: the code may be any up to the next one. Development versions
are called as the next one, and may have anything that changed since the series before it.
"""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

from compatcheck.collectors.python.version_files import read_assignments
from compatcheck.core.environment import DEVELOPMENT, Package
from compatcheck.core.errors import CompatcheckError
from compatcheck.core.markers import canonical_name
from compatcheck.core.python_code import parse_python
from compatcheck.core.python_tree import find_calls
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_bytes
from compatcheck.core.toml import read_toml
from compatcheck.core.units import MIB
from compatcheck.core.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.version import Version

    from compatcheck.core.files import Files

_PLACES = ("version/version", "version.py", "_version.py", "__init__.py", "../version.txt", "../VERSION")
"""Where a package keeps its version, from its own folder: as text of the file, or assigned to ``__version__``."""
_CHARACTERS = 16384


def read_release(name: str, module: str, folder: str, releases: Sequence[str], files: Files) -> Package | None:
    """Read from the sources of a package between which of its releases they lie.

    Args:
        name: of the distribution.
        module: of the package in it.
        folder: in which the package lies.
        releases: known ones of the package, oldest first.
        files: the tree it lies in.
    """
    for path, version in (*_of_package(os.path.join(folder, module), files), *_of_project(name, folder, files)):
        here = parse_version(version) if isinstance(version, str) else None
        if here is None:
            continue
        parsed = ((one, parse_version(one)) for one in releases)
        later = (one for one, known in parsed if known is not None and known > here and not known.is_prerelease)
        following = next(later, None)
        first = _begin(here, releases) or version
        details = {"editable": folder, **({DEVELOPMENT: str(here)} if here.is_devrelease else {})}
        specifier = f">={first}" if following is None else f">={first},<={following}"
        return Package(name, None, Source(path), specifier, details)
    return None


def read_pin(name: str, path: str, files: Files) -> Package | None:
    """Read the release of a package that a recipe was written for; None where its file names none, or a commit.

    Args:
        name: of the distribution.
        path: of a file with ``MODE=pinned_tag`` and ``TAG=v1.2`` among its lines.
        files: the tree it lies in.
    """
    if not files.is_file(path):
        return None
    lines = files.read_text(path, _CHARACTERS).removeprefix("\ufeff").splitlines()
    stated = {
        key.strip(): (value.strip(), number)
        for number, (key, equals, value) in enumerate((line.partition("=") for line in lines), 1)
        if equals
    }
    tag, line = stated.get("TAG", ("", 0))
    version = tag.removeprefix("v")
    if stated.get("MODE", ("", 0))[0] != "pinned_tag" or parse_version(version) is None:
        return None
    return Package(name, version, Source(path, "TAG", line))


def _of_package(package: str, files: Files) -> Iterator[tuple[str, object]]:
    """Yield what the files of a package call its version."""
    for place in _PLACES:
        path = os.path.normpath(os.path.join(package, *place.split("/")))
        if files.is_file(path):
            text = files.read_text(path, _CHARACTERS)
            yield path, read_assignments(text).get("__version__") if place.endswith(".py") else text.strip()


def _of_project(name: str, folder: str, files: Files) -> Iterator[tuple[str, object]]:
    """Yield what the project around a package calls its version, where it is the distribution's own."""
    root = os.path.dirname(folder) if os.path.basename(folder) == "src" else folder
    for file, read in (("pyproject.toml", _read_pyproject), ("setup.py", _read_setup)):
        path = os.path.join(root, file)
        if files.is_file(path):
            stated = read(path, files)
            if canonical_name(str(stated.get("name"))) == name:
                yield path, stated.get("version")


def _read_pyproject(path: str, files: Files) -> Mapping[str, object]:
    try:
        project = read_toml(path, files).data.get("project")
    except CompatcheckError:
        return {}
    return project if isinstance(project, dict) else {}


def _read_setup(path: str, files: Files) -> Mapping[str, object]:
    """Return the literal arguments of the calls of ``setup()``."""
    try:
        tree = parse_python(read_bytes(path, files, limit=MIB))
    except (CompatcheckError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return {
        str(keyword.arg): keyword.value.value
        for call in find_calls(tree, "setup")
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Constant)
    }


def _begin(here: Version, releases: Sequence[str]) -> str | None:
    """Return the release that a development version begins at: the first of the series before, which its branch left at."""
    if not here.is_devrelease:
        return None
    parsed = ((one, parse_version(one)) for one in releases)
    before = [
        (one, known.release[:2])
        for one, known in parsed
        if known is not None and known < here and not known.is_prerelease
    ]
    return next((one for one, series in before if series == before[-1][1]), None)
