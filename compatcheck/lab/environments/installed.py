"""What is installed in an interpreter, and for what came from no index, which commit or tree it is.

The number that a checkout carries is that of the last release or of the next one, and of every commit between them. So
whatever has a ``direct_url.json`` (PEP 610) is a version of its own, with a local label (PEP 440): ``0.19.0+git1a2b3c4d5e6f`` is
a commit, ``0.19.0+tree…`` a local tree and ``0.19.0+file…`` an archive, both by their content. Wherever versions are compared,
stored and shown, the three are then different from each other and from the release.

This file runs by itself, too: it prints what the interpreter has, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution

_DIGITS = 12
_INSTALLERS_OWN = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json")
"""Files of a ``.dist-info`` that say where something came from and when, not what it is."""
_BUILT = frozenset({"build", "dist"})
"""Folders that a build leaves beside a project's own file; anywhere else they are packages like any other."""
_PROJECTS = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})
_NEVER_READ = frozenset({"__pycache__", "node_modules"})
_LARGEST_BYTES = 2**22
"""Larger files of a tree are taken by their size: data, no code."""
_LIBRARIES = (".so", ".pyd", ".dll", ".dylib")
"""Ends of names of code that is built in place; of any size."""


def list_versions(path: list[str] | None = None) -> dict[str, str]:
    """Return canonical name → version of every distribution, the first of a name as Python finds it.

    Args:
        path: folders to look in, ``sys.path`` by default.
    """
    found: dict[str, str] = {}
    for distribution in distributions() if path is None else distributions(path=path):
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if name and name not in found:
            found[name] = identify(distribution)
    return found


def identify(distribution: Distribution) -> str:
    """Return the version of a distribution, with the label of its commit or content when it came from no index."""
    origin = read_origin(distribution)
    version = distribution.version
    if origin is None:
        if (tree := find_tree(str(getattr(distribution, "_path", "")))) is None:
            return version
        origin = {"url": Path(tree).as_uri(), "dir_info": {"editable": True}}
    commit = (origin.get("vcs_info") or {}).get("commit_id")
    if commit:
        label = f"git{commit[:_DIGITS]}"
    elif "dir_info" not in origin:
        label = f"file{hash_installed(distribution)}"
    elif origin["dir_info"].get("editable") and (folder := local_path(str(origin.get("url")))):
        label = f"tree{hash_tree(folder)}"
    else:
        label = f"tree{hash_installed(distribution)}"
    return f"{version}{'.' if '+' in version else '+'}{label}"


def find_tree(metadata: str) -> str | None:
    """Return the source tree that an ``.egg-info`` lies in: all that ``setup.py develop`` and older releases of pip leave."""
    folder = os.path.dirname(metadata)
    packed = os.path.basename(folder) in {"site-packages", "dist-packages"}
    return folder if metadata.endswith(".egg-info") and folder and not packed else None


def read_origin(distribution: Distribution) -> dict[str, Any] | None:
    """Return the ``direct_url.json`` of a distribution; None for one that an index gave, or that says nothing.

    Packages of conda carry that of the machine that packed them.
    """
    if (distribution.read_text("INSTALLER") or "").strip() == "conda":
        return None
    try:
        data = json.loads(distribution.read_text("direct_url.json") or "null")
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def local_path(url: str) -> str | None:
    """Return the path of a ``file:`` address."""
    parts = urlsplit(url)
    return url2pathname(parts.path) if parts.scheme == "file" else None


def hash_installed(distribution: Distribution, *, suffix: str = "") -> str:
    """Hash what a distribution installed, by the hashes that its ``RECORD`` has of every file.

    Args:
        distribution: that was installed.
        suffix: of the files that are taken; all without one.
    """
    lines = sorted(
        line
        for line in (distribution.read_text("RECORD") or "").splitlines()
        if (path := line.partition(",")[0]).endswith(suffix) and not path.endswith((".pyc", *_INSTALLERS_OWN))
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def hash_tree(folder: str) -> str:
    """Hash names and contents of the files of a source tree, without what a build or an editor leaves in it."""
    digest = hashlib.sha256()
    for path in _list_files(folder):
        size = os.path.getsize(path)
        digest.update(f"{os.path.relpath(path, folder)}\0{size}\0".encode())
        if size <= _LARGEST_BYTES or path.endswith(_LIBRARIES):
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()[:_DIGITS]


def _list_files(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        left_out = _NEVER_READ | (_BUILT if _PROJECTS.intersection(names) else frozenset())
        folders[:] = sorted(
            name
            for name in folders
            if name not in left_out
            and not name.startswith(".")
            and not name.endswith(".egg-info")
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        )
        for name in sorted(names):
            path = os.path.join(place, name)
            if os.path.isfile(path) and not name.endswith(".pyc"):
                yield path


if __name__ == "__main__":
    found = {"python": "{}.{}.{}".format(*sys.version_info[:3]), "versions": list_versions()}
    sys.stdout.write(json.dumps(found) + "\n")
