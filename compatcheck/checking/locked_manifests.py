"""Manifests whose lock lies beside them: the lock says which of the releases they allow is meant, so they are no subject."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.checking.input_files import InputFile

LOCKED_KINDS: Mapping[str, str] = {
    "uv_lock": "pyproject",
    "poetry_lock": "pyproject",
    "pdm_lock": "pyproject",
    "pylock": "pyproject",
    "pipfile_lock": "pipfile",
    "conda_lock": "conda_environment",
    "conda_list": "conda_environment",
    "pixi_lock": "pixi",
}
"""Kind of a lock → kind of the manifest that it locks."""

_LISTS = {"requirements", "constraints"}


def find_locks(roots: Iterable[InputFile]) -> dict[str, list[str]]:
    """Find the manifests that are locked beside themselves.

    Returns:
        Path of each such manifest → paths of its locks: ``pyproject.toml`` → ``uv.lock``, ``requirements.in`` →
        ``requirements.txt``, which pip-compile and ``uv pip compile`` name so.
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for root in roots:
        if root.kind is not None:
            paths = kinds.setdefault((os.path.dirname(root.path), root.kind), [])
            if root.path not in paths:
                paths.append(root.path)
    found: dict[str, list[str]] = {}
    for (directory, kind), paths in kinds.items():
        for manifest in kinds.get((directory, LOCKED_KINDS.get(kind, "")), ()):
            found.setdefault(manifest, []).extend(paths)
        for path in paths if kind in _LISTS else ():
            stem, suffix = os.path.splitext(path)
            compiled = f"{stem}.txt"
            if suffix == ".in" and any(compiled in kinds.get((directory, of), ()) for of in _LISTS):
                found.setdefault(path, []).append(compiled)
    return found
