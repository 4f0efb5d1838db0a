"""The release of a package that lies beside what is run, in a checkout, and is in no list of packages.

What the sources call themselves is the last release before them: the code may be any up to the next one. Development versions
are called as the next one, and may have anything that changed since the series before it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.collectors.python.version_files import read_assignments
from compatcheck.core.environment import Package
from compatcheck.core.source import Source
from compatcheck.core.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    package = os.path.join(folder, module)
    for place in _PLACES:
        path = os.path.normpath(os.path.join(package, *place.split("/")))
        if not files.is_file(path):
            continue
        text = files.read_text(path, _CHARACTERS)
        version = read_assignments(text).get("__version__") if place.endswith(".py") else text.strip()
        here = parse_version(version) if isinstance(version, str) else None
        if here is None:
            continue
        parsed = ((one, parse_version(one)) for one in releases)
        later = (one for one, known in parsed if known is not None and known > here and not known.is_prerelease)
        following = next(later, None)
        first = _begin(here, releases) or version
        specifier = f">={first}" if following is None else f">={first},<={following}"
        return Package(name, None, Source(path), specifier, {"editable": folder})
    return None


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
