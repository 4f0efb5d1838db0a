"""Names and versions of distributions, read from the names of their metadata directories (PEP 376, PEP 427, eggs).

``importlib.metadata`` opens and parses every METADATA file; the name of the directory already says both, and is trusted
wherever its escaping leaves one reading.
"""

from __future__ import annotations

import os
import re

from compatcheck.core.files import LOCAL, Files

_EGG_TAIL = r"-py\d+(?:\.\d+)*(?:-.+)?$"
_HEADER = r"(?im)^(name|version):[ \t]*(\S.*)$"


def canonical_name(name: str) -> str:
    """Normalise a distribution name (PEP 503): ``Flash_Attn`` → ``flash-attn``."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


def split_stem(stem: str) -> tuple[str, str] | None:
    """Split ``flash_attn-2.7.4`` into name and version, or return None when more than one reading is possible.

    Args:
        stem: name of a ``.dist-info`` directory without its suffix. Wheels escape ``-`` in both parts: one dash is
            left; older tools did not, and a version with ``_`` may stand for ``-``.
    """
    name, dash, version = stem.partition("-")
    if not dash or not name or not "0" <= version[:1] <= "9" or "-" in version or "_" in version:
        return None
    return name, version


def split_egg_stem(stem: str) -> tuple[str, str] | None:
    """Split ``PyYAML-6.0-py3.11`` (an ``.egg-info`` or ``.egg`` without its suffix) into name and version."""
    return split_stem(re.sub(_EGG_TAIL, "", stem))


def read_name_and_version(path: str, files: Files = LOCAL) -> tuple[str, str] | None:
    """Read ``Name`` and ``Version`` from a METADATA or PKG-INFO file.

    Returns:
        Both as written, or None when either is missing.

    Raises:
        OSError: the file cannot be read.
    """
    headers = files.read_text(path).partition("\n\n")[0]
    found: dict[str, str] = {}
    for match in re.finditer(_HEADER, headers):
        found.setdefault(match[1].lower(), match[2].rstrip(" \t"))
    if "name" not in found or "version" not in found:
        return None
    return found["name"], found["version"]


def read_installer(path: str, files: Files = LOCAL) -> str | None:
    """Return the INSTALLER of a dist-info directory, in lower case, or None when it does not say."""
    try:
        return files.read_text(os.path.join(path, "INSTALLER"), 64).strip().lower() or None
    except OSError:
        return None


def same_version(one: str, other: str) -> bool:
    """Tell whether two versions name one release, a local label counting only where both have one.

    ``2.5.1`` and ``2.5.1+cu124`` are the same: wheels of the public index leave the label out of their metadata.
    """
    if one == other or one == other.partition("+")[0] or other == one.partition("+")[0]:
        return True
    from packaging.version import Version  # noqa: PLC0415 (only where two versions differ in spelling)

    try:
        first, second = Version(one), Version(other)
    except ValueError:  # InvalidVersion, or more digits than Python converts
        return one.strip().lower() == other.strip().lower()
    if first.local and second.local and first.local != second.local:
        return False
    return Version(first.public) == Version(second.public)
