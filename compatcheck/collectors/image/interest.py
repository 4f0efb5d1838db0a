"""Which files of an image are kept, by name only or with how much of their content; everything else is passed over.

An image has tens of thousands of files, and a few thousand of them say what Python and CUDA it holds. Names are matched
as they lie in the archive, before links are resolved, so nothing here depends on where a prefix is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.collectors.version_files import VERSION_FILES
from compatcheck.core.units import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable


class Interest(NamedTuple):
    """How much of a file is kept."""

    limit: int
    """Bytes of content that are read from its beginning; 0 keeps the name only."""
    reduce: Callable[[bytes], bytes | None] | None = None
    """What is kept of those bytes; None in place of bytes drops the file altogether."""
    whole: bool = False
    """Whether a part of the content is worth nothing: a larger file is kept by name, and said to be too large."""
    drops: bool = False
    """Whether the content decides if the file is kept."""


METADATA_BYTES = 64 * KIB
"""As much as `compatcheck.collectors.distributions` reads of a METADATA file."""
TEXT_BYTES = 16 * KIB
"""Of small text files: ``pyvenv.cfg``, version files, os-release, headers that state a version."""
RECORD_BYTES = 8 * MIB
"""Of a conda record, which lists every file of its package (torch: about 3 MB)."""
DPKG_BYTES = 16 * MIB
"""Of dpkg's status file (a development image: 1 to 3 MB)."""
RPM_BYTES = 64 * MIB
"""Of an rpm database, which has every file of every package (a base image: about 20 MB)."""
SHEBANG_BYTES = 256
"""Longest ``#!`` line of Linux (BINPRM_BUF_SIZE)."""

_SUFFIXED = (b"-info", b".pth", b".egg-link", b".json", b".egg", b".txt", b".cfg", b".py", b".conf", b".cmake", b".h")
_SITE = frozenset({b"site-packages", b"dist-packages"})
_FOLDERS = frozenset({b"site-packages", b"dist-packages", b"conda-meta"})
_METADATA_FOLDERS = (b".dist-info", b".egg-info")
_PACKAGE_FOLDERS = (b".dist-info", b".egg-info", b".egg")
_RPM_FOLDERS = (b"var/lib/rpm", b"usr/lib/sysimage/rpm", b"usr/share/rpm")
_RPM_FILES = frozenset({b"Packages", b"Packages.db", b"rpmdb.sqlite", b"rpmdb.sqlite-wal"})
_NO_LINKS = (b"usr/share/", b"etc/ssl/", b"usr/lib/ssl/", b"etc/alternatives/", b"proc/", b"sys/", b"dev/")
"""Where links lead nowhere that is looked at; Debian's alternatives are kept when their name is."""
_ALTERNATIVES = (b"etc/alternatives/cuda", b"etc/alternatives/python")
_LIBRARY = rb"lib(?:cudart|cudnn|nccl|cublas|cuda)\.so(?:\.[0-9.]*)?\Z"
_PYTHON = rb"(?:python|pypy)[0-9]*(?:\.[0-9]+)?t?(?:\.exe)?\Z"
_PYTHON_FOLDER = rb"(?:python|pypy)[0-9]\.?[0-9]*t?\Z"
_HEADER = rb"(?:cudnn_version\w*|nccl|NvInferVersion)\.h\Z"
_DPKG_FIELD = rb"(?m)^(?:(?:Package|Status|Version|Architecture|Source):[^\n]*|[ \t]*)\n"
_RECORD_FILE = rb'site-packages/[^/"\\\n]{1,200}\.(?:dist|egg)-info(?=[/"])'
_RECORD_SCALAR = (
    rb'"(name|version|build|build_number|channel|url|fn|subdir|schannel|requested_spec)"\s*:\s*'
    rb'("(?:[^"\\\n]|\\.){0,4096}"|-?[0-9]{1,18}|null|true|false)'
)


def judge_file(path: bytes) -> Interest | None:
    """Say what is kept of a regular file, None for nothing at all.

    Args:
        path: inside the layer, without a leading slash.
    """
    folder, _, name = path.rpartition(b"/")
    if name.endswith(_SUFFIXED):
        return _judge_suffixed(path, folder, name)
    parent = folder[folder.rfind(b"/") + 1 :]
    if parent.endswith(_METADATA_FOLDERS):
        return _IN_METADATA.get(name)
    if parent == b"bin" or parent == b"sbin":
        return _NAME if re.match(_PYTHON, name) else _SCRIPT
    if b".so" in name:
        return _NAME if re.match(_LIBRARY, name) else None
    if b"entrypoint" in name:
        return _ENTRYPOINT
    if name == b"os-release":
        return _TEXT if folder in {b"etc", b"usr/lib"} else None
    if name == b"status":
        return _DPKG if folder == b"var/lib/dpkg" else None
    if folder == b"var/lib/dpkg/status.d":
        return _METADATA
    if name in _RPM_FILES:
        return _RPM if folder in _RPM_FOLDERS else None
    return None


def _judge_suffixed(path: bytes, folder: bytes, name: bytes) -> Interest | None:
    """Judge files by the end of their name; most Python files end here."""
    parent = folder[folder.rfind(b"/") + 1 :]
    if name.endswith(b".py"):
        if name == b"os.py":
            return _NAME if re.match(_PYTHON_FOLDER, parent) else None
        return _TEXT if path.endswith(_VERSION_FILES) and (b"/" + path).endswith(_VERSION_PATHS) else None
    if name.endswith((b".txt", b".json", b".conf", b".cfg")):
        if parent == b"conda-meta":
            return _RECORD if name.endswith(b".json") else None
        if parent.endswith(b".dist-info"):
            return _IN_METADATA.get(name)
        if name in {b"version.json", b"version.txt"}:
            return _METADATA_TEXT if parent.startswith(b"cuda") else None
        if name == b"pyvenv.cfg":
            return _TEXT
        return _TEXT if path == b"etc/ld.so.conf" or folder == b"etc/ld.so.conf.d" else None
    if name.endswith((b".pth", b".egg-link")):
        # .pth is also what people call the weights of a model.
        return _METADATA_TEXT if parent in _SITE else None
    if name.endswith((b".egg-info", b".dist-info")):
        return _METADATA
    if name.endswith(b".egg"):
        return _NAME
    if name.endswith(b".cmake"):
        return _METADATA_TEXT if path.endswith(b"torch/share/cmake/Torch/TorchConfig.cmake") else None
    return _TEXT if re.match(_HEADER, name) else None


def judge_directory(path: bytes) -> bool:
    """Tell whether a directory is kept though nothing in it may be."""
    name = path[path.rfind(b"/") + 1 :]
    return name in _FOLDERS or name.endswith(_PACKAGE_FOLDERS)


def judge_link(path: bytes) -> bool:
    """Tell whether a symbolic link is kept: all that may be part of the way to something that is."""
    name = path[path.rfind(b"/") + 1 :]
    if b".so" in name:
        return re.match(_LIBRARY, name) is not None
    return not path.startswith(_NO_LINKS) or path.startswith(_ALTERNATIVES)


def keep_headers(data: bytes) -> bytes:
    """Return the headers of a METADATA file without the description that follows them."""
    end = data.find(b"\n\n")
    other = data.find(b"\r\n\r\n", 0, end if end >= 0 else len(data))
    if other >= 0:
        return data[: other + 2]
    return data if end < 0 else data[: end + 1]


def keep_python_script(data: bytes) -> bytes | None:
    """Return the first line of a script that Python runs, or None for anything else."""
    if not data.startswith(b"#!"):
        return None
    line = data.partition(b"\n")[0]
    return line + b"\n" if b"python" in line or b"pypy" in line else None


def keep_script(data: bytes) -> bytes | None:
    """Return the text of a script that says what runs it, or None for anything else."""
    return data if data.startswith(b"#!") else None


def keep_dpkg_fields(data: bytes) -> bytes:
    """Return a status file of dpkg with the fields that say which version of what is installed."""
    return b"".join(match[0] for match in re.finditer(_DPKG_FIELD, data if data.endswith(b"\n") else data + b"\n"))


def keep_record(data: bytes) -> bytes:
    """Return a conda record as JSON with its scalar fields and, of its files, those that name a distribution.

    They are ``site-packages/NAME-VERSION.dist-info/METADATA``, without what comes before.
    """
    import json  # noqa: PLC0415 (conda prefixes only)

    kept: dict[str, object] = {}
    for match in re.finditer(_RECORD_SCALAR, data):
        try:
            kept.setdefault(match[1].decode(), json.loads(match[2]))
        except ValueError:
            continue
    files = dict.fromkeys(found.decode("utf-8", "replace") + "/METADATA" for found in re.findall(_RECORD_FILE, data))
    kept["files"] = list(files)[:256]
    return json.dumps(kept).encode()


_NAME = Interest(0)
_TEXT = Interest(TEXT_BYTES)
_METADATA_TEXT = Interest(METADATA_BYTES)
_METADATA = Interest(METADATA_BYTES, keep_headers)
_SCRIPT = Interest(SHEBANG_BYTES, keep_python_script, drops=True)
_ENTRYPOINT = Interest(TEXT_BYTES, keep_script, drops=True)
_RECORD = Interest(RECORD_BYTES, keep_record)
_DPKG = Interest(DPKG_BYTES, keep_dpkg_fields)
_RPM = Interest(RPM_BYTES, whole=True)
_IN_METADATA = {
    b"METADATA": _METADATA,
    b"PKG-INFO": _METADATA,
    b"INSTALLER": Interest(64),
    b"direct_url.json": _METADATA_TEXT,
    b"RECORD": _NAME,
}
_VERSION_PATHS = tuple(b"/" + path.encode() for path, _ in VERSION_FILES.values())
_VERSION_FILES = tuple(path.rpartition(b"/")[2] for path in _VERSION_PATHS)
