"""Version files inside installed packages, read as text: what the code that would run says of itself."""

from __future__ import annotations

import os

from compatcheck.core.files import LOCAL
from compatcheck.core.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.core.environment import Package
    from compatcheck.core.files import Files

VERSION_FILES = {
    "torch": ("torch/version.py", "__version__"),
    "deepspeed": ("deepspeed/git_version_info_installed.py", "version"),
    "transformers": ("transformers/__init__.py", "__version__"),
}
"""Distribution → file below the package directory, and the name it assigns its version to."""

_CONSTANTS = {"None": None, "True": True, "False": False}
_READ_CHARACTERS = 16384
"""transformers' ``__init__`` is long and states its version near the top."""


class VersionFile(NamedTuple):
    """The assignments of one version file."""

    path: str
    version: str | None
    values: dict[str, str | bool | None]
    """Every top-level assignment of a literal: ``cuda``, ``hip``, ``debug``, ``git_version``."""


def read_version_file(
    distribution: str, folder: str, package: Package | None = None, files: Files = LOCAL
) -> VersionFile | None:
    """Read the version file of a distribution, or return None when it has none.

    Raises:
        OSError: the file exists and cannot be read.
    """
    relative, key = VERSION_FILES[distribution]
    editable = package.details.get("editable") if package is not None else None
    folders = [folder] if editable is None else [editable, os.path.join(editable, "src"), folder]
    for candidate in folders:
        path = os.path.join(candidate, *relative.split("/"))
        try:
            text = files.read_text(path, _READ_CHARACTERS)
        except (FileNotFoundError, NotADirectoryError):
            continue
        values = read_assignments(text)
        version = values.get(key)
        return VersionFile(path, version if isinstance(version, str) else None, values)
    return None


def read_assignments(text: str) -> dict[str, str | bool | None]:
    """Return the top-level ``name = literal`` and ``name: type = literal`` lines of Python text, by name."""
    values: dict[str, str | bool | None] = {}
    for line in text.splitlines():
        left, equals, right = line.partition("=")
        name = left.partition(":")[0].rstrip()
        if not equals or not name.isidentifier():
            continue
        literal = right.strip()
        if literal in _CONSTANTS:
            values[name] = _CONSTANTS[literal]
        elif literal[:1] in {'"', "'"}:
            content, quote, rest = literal[1:].partition(literal[0])
            if quote and (not rest.strip() or rest.lstrip().startswith("#")):
                values[name] = content
    return values


def read_cxx11_abi(folder: str, files: Files = LOCAL) -> tuple[bool, str] | None:
    """Return whether torch was built with the C++11 ABI and the file that says so; newer releases do not state it."""
    path = os.path.join(folder, "torch", "share", "cmake", "Torch", "TorchConfig.cmake")
    try:
        text = files.read_text(path)
    except OSError:
        return None
    _, found, rest = text.partition("_GLIBCXX_USE_CXX11_ABI=")
    return (rest[0] == "1", path) if found and rest[:1] in {"0", "1"} else None
