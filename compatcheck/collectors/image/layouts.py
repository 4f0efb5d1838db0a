"""Every place in an image that an interpreter imports from, each told apart by its prefix.

Virtual environments, conda prefixes, the Pythons of the system and those built from source, and directories of packages
(``pip install --target``). Copies that other packages carry inside themselves, the package caches of conda and uv, and
source trees are none of these.
"""

from __future__ import annotations

import posixpath
import re
from itertools import islice
from typing import TYPE_CHECKING

from compatcheck.collectors.python.interpreter import Layout, layout_of_executable, layout_of_prefix
from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple

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


MAX_PLACES = 500
"""Environments of one image that are looked at; a checked image has a handful."""
MAX_LIBRARIES = 16
"""Pythons that share a prefix, as many as are told apart."""


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
    is_complete: bool = True
    """Whether all of them are here: not when there are more than `MAX_PLACES`."""


def find_places(files: ImageTree, config: ImageConfig) -> Places:
    """Find the environments of an image, by path."""
    environ = read_environ(config)
    places: dict[tuple[str, str | None], Place] = {}
    left_out: dict[str, list[str]] = {}
    caches = _caches(files)
    libraries = _Libraries(files)
    opened: set[tuple[str, str | None]] = set()
    for prefix, library, kind in _candidates(files, libraries):
        reason = _left_out(prefix, caches)
        if reason is not None:
            left_out.setdefault(reason, []).append(prefix)
        elif (prefix, library) not in opened and len(opened) <= MAX_PLACES:
            opened.add((prefix, library))
            place = _open(prefix, library, kind, environ, libraries)
            if place is not None:
                places.setdefault(place.key, place)
    found = _drop_covered(list(places.values()))
    covered = {folder for place in found for folder in (*place.layout.site_packages, *place.layout.python_path)}
    for folder in sorted(_package_folders(files)):
        if not covered.isdisjoint(_with_parents(folder)):
            continue
        reason = _left_out(folder, caches)
        if reason is not None:
            left_out.setdefault(reason, []).append(folder)
        elif len(found) <= MAX_PLACES:
            found.append(Place(folder, "directory", None, Layout(folder, (folder,), None, CHOSEN)))
            covered.add(folder)
    notes = [f"left out as {reason}: {_some(sorted(set(names)))}" for reason, names in left_out.items()]
    found.sort(key=lambda place: place.name)
    is_complete = len(opened) <= MAX_PLACES and len(found) <= MAX_PLACES
    return Places(tuple(found[:MAX_PLACES]), tuple(notes), is_complete)


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
        layout = layout_of_executable(executable, CHOSEN, environ, files=files)
    except InputError:
        return None
    prefix = files.resolve(layout.prefix)
    of_prefix = [place for place in places if files.resolve(place.layout.prefix) == prefix]
    same = [place for place in of_prefix if place.layout.site_packages == layout.site_packages]
    return next(iter(same or of_prefix), None)


class _Libraries:
    """The Pythons of each prefix; a prefix is listed once, however many share it."""

    def __init__(self, files: ImageTree) -> None:
        self.files = files
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, prefix: str) -> tuple[str, ...]:
        """Return the ``python3.11`` of a prefix that have a standard library or an interpreter."""
        if prefix not in self._known:
            names = (posixpath.basename(path) for path in self.files.glob(f"{prefix}/lib/python*"))
            found = (name for name in names if re.fullmatch(_LIBRARY, name) and self._is_there(prefix, name))
            self._known[prefix] = tuple(islice(found, MAX_LIBRARIES))
        return self._known[prefix]

    def _is_there(self, prefix: str, name: str) -> bool:
        return self.files.is_file(f"{prefix}/lib/{name}/os.py") or self.files.is_file(f"{prefix}/bin/{name}")


def _candidates(files: ImageTree, libraries: _Libraries) -> Iterator[tuple[str, str | None, str]]:
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
            known = libraries.of(prefix)
            if library in known or not known:  # else what a Python that is gone has left
                yield prefix, library if known else None, "system"
            continue
        match = re.fullmatch(_SHARED, path)
        if match is not None:
            for name in libraries.of(match["prefix"]) or (None,):
                yield match["prefix"], name, "system"
            continue
        match = re.fullmatch(_WINDOWS, path)
        if match is not None:
            yield match["prefix"], None, "system"


def _open(
    prefix: str, library: str | None, kind: str, environ: Mapping[str, str], libraries: _Libraries
) -> Place | None:
    files = libraries.files
    if kind == "system" and (files.is_file(f"{prefix}/pyvenv.cfg") or files.is_directory(f"{prefix}/conda-meta")):
        return None  # has been found as what it is
    several = kind == "system" and library is not None and len(libraries.of(prefix)) > 1
    own = f"{prefix}/bin/{library}" if several else None
    try:
        layout = layout_of_prefix(prefix, CHOSEN, environ, executable=own, files=files)
    except InputError:
        return None
    if own is not None and not files.is_file(own):
        layout = layout._replace(executable=None)
    name = f"{prefix} ({library})" if several else prefix
    return Place(name, kind, library if several else None, layout)


def _drop_covered(places: list[Place]) -> list[Place]:
    """Leave out what another environment's interpreter imports from and no interpreter of its own does."""
    importers: dict[str, set[int]] = {}
    for number, place in enumerate(places):
        if place.layout.executable is not None:
            for folder in (*place.layout.site_packages, *place.layout.python_path):
                importers.setdefault(folder, set()).add(number)
    kept = []
    for number, place in enumerate(places):
        folders = place.layout.site_packages
        if place.kind == "system" and place.layout.executable is None and folders:
            of_all = set.intersection(*(importers.get(folder, set()) for folder in folders))
            if of_all - {number}:
                continue
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
            caches[folder] = "package cache"
    for path in files.find_directories("conda-meta"):
        caches[f"{posixpath.dirname(path)}/pkgs"] = "package cache of conda"
    return caches


def _left_out(path: str, caches: Mapping[str, str]) -> str | None:
    """Say why a directory is none of the environments, None when it may be one."""
    for folder in _with_parents(path):
        if folder in caches:
            return caches[folder]
        if folder.endswith("/.cache"):
            return "package cache"
    if re.search(r"/(?:site|dist)-packages/.", path) is not None:
        return "copies that packages carry inside themselves"
    return None


def _with_parents(path: str) -> Iterator[str]:
    """Yield a directory and those above it."""
    while path not in {"", "/"}:
        yield path
        path = posixpath.dirname(path)


def _some(names: list[str]) -> str:
    shown = 3
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")
