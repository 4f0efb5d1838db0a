"""Every place in an image that an interpreter imports from, each told apart by its prefix.

Virtual environments, conda prefixes, the Pythons of the system and those built from source, and directories of packages
(``pip install --target``). Copies that other packages carry inside themselves, the package caches of conda and uv, and
source trees are none of these.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.collectors.interpreter import Layout, layout_of_executable, layout_of_prefix
from compatcheck.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from compatcheck.collectors.image.manifest import ImageConfig
    from compatcheck.collectors.image.tree import ImageTree

CHOSEN = "image"
"""How a layout came to be inspected: it lies in the image."""

_SITE = r"(?P<prefix>.*)/lib(?:64)?/(?P<library>(?:python|pypy)\d+\.\d+t?)/(?P<kind>site|dist)-packages"
_SHARED = r"(?P<prefix>.*)/lib/python3/dist-packages"
_WINDOWS = r"(?P<prefix>.*)/Lib/site-packages"
_LIBRARY = r"python\d+\.\d+t?"


class Place(NamedTuple):
    """One environment of an image."""

    name: str
    """Its prefix, ``/opt/venv``; with the Python where several share it: ``/usr (python3.8)``."""
    kind: str
    """``venv``, ``conda``, ``system`` (any other installed Python), ``directory`` (of packages)."""
    library: str | None
    layout: Layout

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells it apart."""
        return self.layout.prefix, self.library


class Places(NamedTuple):
    """What was found, and remarks about what was left out."""

    places: tuple[Place, ...]
    notes: tuple[str, ...]


def find_places(files: ImageTree, config: ImageConfig) -> Places:
    """Find the environments of an image, by path."""
    environ = read_environ(config)
    places: dict[tuple[str, str | None], Place] = {}
    left_out: dict[str, list[str]] = {}
    caches = _caches(files)
    for prefix, library, kind in _candidates(files):
        reason = _left_out(prefix, caches)
        if reason is not None:
            left_out.setdefault(reason, []).append(prefix)
            continue
        place = _open(prefix, library, kind, environ, files)
        if place is not None:
            places.setdefault(place.key, place)
    found = _drop_covered(list(places.values()))
    covered = {folder for place in found for folder in (*place.layout.site_packages, *place.layout.python_path)}
    for folder in sorted(_package_folders(files)):
        if folder in covered or any(folder.startswith(f"{above}/") for above in covered):
            continue
        reason = _left_out(folder, caches)
        if reason is not None:
            left_out.setdefault(reason, []).append(folder)
        else:
            layout = Layout(folder, (folder,), None, CHOSEN)
            found.append(Place(folder, "directory", None, layout))
            covered.add(folder)
    notes = [f"left out as {reason}: {_some(sorted(set(names)))}" for reason, names in left_out.items()]
    return Places(tuple(sorted(found, key=lambda place: place.name)), tuple(notes))


def read_environ(config: ImageConfig) -> dict[str, str]:
    """Return the variables an interpreter sees when the image starts; a relative ``PYTHONPATH`` begins at its directory."""
    environ = dict(config.env)
    user = (config.user or "root").partition(":")[0]
    environ.setdefault("HOME", "/root" if user in {"root", "0", ""} else f"/home/{user}")
    folder = config.working_dir or "/"
    entries = [entry for entry in environ.pop("PYTHONPATH", "").split(":") if entry]
    if entries:
        environ["PYTHONPATH"] = ":".join(posixpath.normpath(posixpath.join(folder, entry)) for entry in entries)
    return environ


def find_place(executable: str, places: Iterable[Place], environ: Mapping[str, str], files: ImageTree) -> Place | None:
    """Return the environment that an interpreter starts in; None where its library is not in the image."""
    try:
        layout = layout_of_executable(executable, CHOSEN, environ, user_site=True, files=files)
    except InputError:
        return None
    prefix = files.resolve(layout.prefix)
    of_prefix = [place for place in places if files.resolve(place.layout.prefix) == prefix]
    same = [place for place in of_prefix if place.layout.site_packages == layout.site_packages]
    return next(iter(same or of_prefix), None)


def _candidates(files: ImageTree) -> Iterator[tuple[str, str | None, str]]:
    """Yield prefix, library and kind of what looks like an environment; virtual and conda environments first."""
    for path in files.find_files("pyvenv.cfg"):
        yield posixpath.dirname(path), None, "venv"
    for path in files.find_directories("conda-meta"):
        yield posixpath.dirname(path), None, "conda"
    for path in files.find_directories("site-packages", "dist-packages"):
        match = re.fullmatch(_SITE, path)
        if match is not None:
            prefix, library = match["prefix"], match["library"]
            above, _, last = prefix.rpartition("/")
            # Debian's interpreter in /usr looks into /usr/local for what pip installs.
            if match["kind"] == "dist" and last == "local" and files.is_directory(f"{above}/lib"):
                prefix = above
            yield prefix, library, "system"
            continue
        match = re.fullmatch(_SHARED, path)
        if match is not None:
            libraries: list[str | None] = [*_libraries(match["prefix"], files)]
            for name in libraries or [None]:
                yield match["prefix"], name, "system"
            continue
        match = re.fullmatch(_WINDOWS, path)
        if match is not None:
            yield match["prefix"], None, "system"


def _libraries(prefix: str, files: ImageTree) -> list[str]:
    names = []
    for path in files.glob(f"{prefix}/lib/python*"):
        name = posixpath.basename(path)
        if re.fullmatch(_LIBRARY, name) and (files.is_file(f"{path}/os.py") or files.is_file(f"{prefix}/bin/{name}")):
            names.append(name)
    return names


def _open(prefix: str, library: str | None, kind: str, environ: Mapping[str, str], files: ImageTree) -> Place | None:
    if kind == "system" and (files.is_file(f"{prefix}/pyvenv.cfg") or files.is_directory(f"{prefix}/conda-meta")):
        return None  # has been found as what it is
    several = kind == "system" and library is not None and len(_libraries(prefix, files)) > 1
    own = f"{prefix}/bin/{library}" if several else None
    try:
        layout = layout_of_prefix(prefix, CHOSEN, environ, user_site=True, executable=own, files=files)
    except InputError:
        return None
    if own is not None and not files.is_file(own):
        layout = layout._replace(executable=None)
    name = f"{prefix} ({library})" if several else prefix
    return Place(name, kind, library if several else None, layout)


def _drop_covered(places: list[Place]) -> list[Place]:
    """Leave out what another environment's interpreter imports from and no interpreter of its own does."""
    kept = []
    for place in places:
        own = set(place.layout.site_packages)
        covered = place.kind == "system" and place.layout.executable is None and own
        if not (
            covered
            and any(
                own <= {*other.layout.site_packages, *other.layout.python_path}
                for other in places
                if other is not place and other.layout.executable is not None
            )
        ):
            kept.append(place)
    return kept


def _package_folders(files: ImageTree) -> set[str]:
    """Return the directories that hold metadata of installed distributions; ``.egg-info`` is in source trees too."""
    return {posixpath.dirname(path) for path in files.find_directories("*.dist-info")}


def _caches(files: ImageTree) -> dict[str, str]:
    """Return directories whose packages are imported from nowhere, with what they are."""
    caches = {}
    for path in files.find_files("CACHEDIR.TAG"):
        folder = posixpath.dirname(path)
        if not files.is_file(f"{folder}/pyvenv.cfg"):  # uv and virtualenv mark their environments, too
            caches[f"{folder}/"] = "package cache"
    for path in files.find_directories("conda-meta"):
        caches[f"{posixpath.dirname(path)}/pkgs/"] = "package cache of conda"
    return caches


def _left_out(path: str, caches: Mapping[str, str]) -> str | None:
    """Say why a directory is none of the environments, None when it may be one."""
    below = f"{path}/"
    for cache, what in caches.items():
        if below.startswith(cache):
            return what
    if "/.cache/" in below:
        return "package cache"
    if re.search(r"/(?:site|dist)-packages/.", path) is not None:
        return "copies that packages carry inside themselves"
    return None


def _some(names: list[str]) -> str:
    shown = 3
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")
