"""Which files of an image are kept, by name only or with how much of their content; everything else is passed over.

An image has tens of thousands of files, and a few thousand of them say what Python and CUDA it holds. Names are matched
as they lie in the archive, before links are resolved, so nothing here depends on where a prefix is.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from compatcheck.collectors.python.version_files import VERSION_FILES
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Interest(NamedTuple):
    """How much of a file is kept."""

    limit: int
    """Bytes of content that are read from its beginning; 0 keeps the name only."""
    reduce: Callable[[bytes], bytes | None] | None = None
    """What is kept of those bytes; None in place of bytes drops the file altogether."""
    whole: bool = False
    """Whether a part of the content is worth nothing: a larger file is kept by name, and said to be too large."""
    script: bool = False
    """Whether it is kept only when it begins with ``#!``."""


METADATA_BYTES = 64 * KIB
"""As much as `compatcheck.collectors.python.distributions` reads of a METADATA file."""
TEXT_BYTES = 16 * KIB
"""Of small text files: ``pyvenv.cfg``, version files, os-release, headers that state a version."""
RECORD_BYTES = 8 * MIB
"""Of a conda record, which lists every file of its package (torch: about 3 MB)."""
DPKG_BYTES = 8 * MIB
"""Of dpkg's status file (a development image: 1 to 3 MB)."""
RPM_BYTES = 64 * MIB
"""Of an rpm database, which has every file of every package (a base image: about 20 MB)."""
SCRIPT_BYTES = 16 * KIB
"""Of scripts that an image may start."""
LOCK_BYTES = 16 * MIB
"""Of a lock, which names every file of every package (a large one: about 2 MB)."""
CONFIGURATION_BYTES = 128 * KIB
"""Of requirements and configurations; what is larger is data, of which no more than its name is kept."""

_SITE = frozenset({b"site-packages", b"dist-packages"})
_FOLDERS = frozenset({b"site-packages", b"dist-packages", b"conda-meta"})
_METADATA_FOLDERS = (b".dist-info", b".egg-info")
_PACKAGE_FOLDERS = (b".dist-info", b".egg-info", b".egg")
_RPM_FOLDERS = (b"var/lib/rpm", b"usr/lib/sysimage/rpm", b"usr/share/rpm")
_RPM_FILES = frozenset({b"rpmdb.sqlite", b"rpmdb.sqlite-wal"})
_OTHER_RPM_FILES = frozenset({b"Packages", b"Packages.db"})
"""Of formats that are not read; that they are there is said."""
_NO_LINKS = (b"usr/share/", b"etc/ssl/", b"usr/lib/ssl/", b"etc/alternatives/", b"proc/", b"sys/", b"dev/")
"""Where links lead nowhere that is looked at; Debian's alternatives are kept when their name is."""
_ALTERNATIVES = (b"etc/alternatives/cuda", b"etc/alternatives/python")
_SYSTEM_PROGRAMS = frozenset({b"bin", b"sbin", b"usr/bin", b"usr/sbin"})
_START_SCRIPT_DEPTH = 4
_NO_START_SCRIPTS = (b"usr/lib/", b"usr/share/", b"etc/", b"lib/", b"var/", b"proc/", b"sys/")
_PROJECT_DEPTH = 3
_LOCK = rb"(?i)(?:(?:uv|poetry|pixi|pdm|pipfile)\.lock|pylock(?:\.[^.]+)?\.toml)\Z"
_CONFIGURATIONS = (
    rb"(?i)(?:pipfile|.*(?:requirements?|constraints?).*\.(?:txt|in)|.*\.(?:toml|json|jsonc|hjson|ya?ml))\Z"
)
_LIBRARY = rb"lib(?:cudart|cudnn|nccl|cublas|cuda)\.so(?:\.[0-9.]*)?\Z"
_PYTHON = rb"(?:python|pypy)[0-9]*(?:\.[0-9]+)?t?(?:\.exe)?\Z"
_PYTHON_FOLDER = rb"(?:python|pypy)[0-9]\.?[0-9]*t?\Z"
_HEADER = rb"(?:patchlevel|cudnn_version\w*|nccl|NvInferVersion)\.h\Z"
_DPKG_FIELD = rb"(?m)^(?:(?:Package|Status|Version|Architecture|Source):[^\n]*\n|(?:[ \t]*\n)+)"
_MOST_MATCHES = 2000
"""Of each kind in one conda record; a package has some ten files of metadata."""
_RECORD_FILE = rb'site-packages/[^/"\\\n]{1,200}\.(?:dist|egg)-info(?=[/"])'
_RECORD_SCALAR = (
    rb'"(name|version|build|build_number|channel|url|fn|subdir|schannel|requested_spec)"\s*:\s*'
    rb'("(?:[^"\\\n]|\\.){0,4096}"|-?[0-9]{1,18}|null|true|false)'
)


def judge_file(path: bytes) -> Interest | None:
    """Say what is kept of a regular file, by its path in the layer; None for nothing at all."""
    known = _PATHS.get(path)
    if known is not None:
        return known
    folder, _, name = path.rpartition(b"/")
    judge = _BY_SUFFIX.get(name[name.rfind(b".") :], _judge_program)
    return judge(path, folder, name) or _judge_project(path, name)


def _judge_project(path: bytes, name: bytes) -> Interest | None:
    """Judge the locks, requirements and configurations of a project; where its image works may be said after its layers."""
    if path.count(b"/") > _PROJECT_DEPTH or path.startswith(_NO_START_SCRIPTS) or b"-packages/" in path:
        return None
    if re.match(_LOCK, name):
        return _WHOLE_LOCK
    return _CONFIGURATION if re.match(_CONFIGURATIONS, name) else None


def _judge_program(path: bytes, folder: bytes, name: bytes) -> Interest | None:
    """Judge what has no suffix, or a number for one: programs, libraries, databases."""
    parent = folder[folder.rfind(b"/") + 1 :]
    if parent.lower().endswith(_METADATA_FOLDERS):
        return _IN_METADATA.get(name)
    if parent in {b"bin", b"sbin"}:
        if re.match(_PYTHON, name):
            return _NAME
        return _SYSTEM_SCRIPT if folder in _SYSTEM_PROGRAMS else _SCRIPT
    if b".so" in name:
        return _NAME if re.match(_LIBRARY, name) else None
    if folder == b"var/lib/dpkg/status.d":
        return None if name.endswith(b".md5sums") else _METADATA
    if folder in _RPM_FOLDERS:
        return _RPM if name in _RPM_FILES else _NAME if name in _OTHER_RPM_FILES else None
    if name == b"CACHEDIR.TAG":
        return _NAME
    # What an image starts is named by its configuration, which may come after its layers.
    return _SCRIPT if b"entrypoint" in name or (b"." not in name and path.count(b"/") <= 1) else None


def _judge_python(path: bytes, folder: bytes, name: bytes) -> Interest | None:
    if name == b"os.py":
        return _NAME if re.match(_PYTHON_FOLDER, folder[folder.rfind(b"/") + 1 :]) else None
    return _TEXT if name in _VERSION_NAMES and (b"/" + path).endswith(_VERSION_PATHS) else None


def _judge_text(path: bytes, folder: bytes, name: bytes) -> Interest | None:
    del path
    parent = folder[folder.rfind(b"/") + 1 :]
    if parent == b"conda-meta":
        return _RECORD if name.endswith(b".json") else None
    if parent.lower().endswith(b".dist-info"):
        return _IN_METADATA.get(name)
    if name in {b"version.json", b"version.txt"}:
        return _LONG_TEXT if parent.startswith(b"cuda") else None
    return _TEXT if name == b"pyvenv.cfg" or folder == b"etc/ld.so.conf.d" else None


def _judge_other(path: bytes, folder: bytes, name: bytes) -> Interest | None:
    """Judge what is told by its suffix and where it lies."""
    match name[name.rfind(b".") :]:
        case b".pth" | b".egg-link":  # .pth is also what people call the weights of a model
            return _LONG_TEXT if folder[folder.rfind(b"/") + 1 :] in _SITE else None
        case b".egg":
            return _NAME
        case b".egg-info" | b".dist-info":
            return _METADATA
        case b".cmake":
            return _LONG_TEXT if path.endswith(b"torch/share/cmake/Torch/TorchConfig.cmake") else None
        case b".h":
            return _TEXT if re.match(_HEADER, name) else None
        case _:  # .sh
            shallow = path.count(b"/") <= _START_SCRIPT_DEPTH and not path.startswith(_NO_START_SCRIPTS)
            return _TEXT if shallow else None


def judge_directory(path: bytes) -> bool:
    """Tell whether a directory is kept though nothing in it may be."""
    name = path[path.rfind(b"/") + 1 :]
    return name in _FOLDERS or name.lower().endswith(_PACKAGE_FOLDERS)


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


def keep_script(data: bytes) -> bytes:
    """Return the text of a script that says what runs it: of one that Python runs, the first line."""
    line = data.partition(b"\n")[0]
    return line + b"\n" if b"python" in line or b"pypy" in line else data


def keep_python_script(data: bytes) -> bytes | None:
    """Return the first line of a script that Python runs, or None for anything else: the programs of a distribution."""
    line = data.partition(b"\n")[0]
    return line + b"\n" if b"python" in line or b"pypy" in line else None


def keep_dpkg_fields(data: bytes) -> bytes:
    """Return a status file of dpkg with the fields that say which version of what is installed."""
    found = re.finditer(_DPKG_FIELD, data if data.endswith(b"\n") else data + b"\n")
    return b"".join(match[0] if match[0].strip() else b"\n" for match in found)


def keep_record(data: bytes) -> bytes:
    """Return a conda record as JSON with its scalar fields and, of its files, those that name a distribution.

    They are ``site-packages/NAME-VERSION.dist-info/METADATA``, without what comes before.
    """
    import json  # noqa: PLC0415 (conda prefixes only)

    kept: dict[str, object] = {}
    for match in islice(re.finditer(_RECORD_SCALAR, data), _MOST_MATCHES):
        try:
            kept.setdefault(match[1].decode(), json.loads(match[2]))
        except ValueError:
            continue
    found = (match[0].decode("utf-8", "replace") for match in islice(re.finditer(_RECORD_FILE, data), _MOST_MATCHES))
    kept["files"] = [f"{folder}/METADATA" for folder in dict.fromkeys(found)]
    return json.dumps(kept).encode()


def _keep_whole(limit: int) -> Interest:
    """Keep a file that ends before a limit; of a larger one, the name."""
    return Interest(limit, lambda data: data if len(data) < limit else b"")


_NAME = Interest(0)
_TEXT = Interest(TEXT_BYTES)
_LONG_TEXT = Interest(METADATA_BYTES)
_METADATA = Interest(METADATA_BYTES, keep_headers)
_SCRIPT = Interest(SCRIPT_BYTES, keep_script, script=True)
_SYSTEM_SCRIPT = Interest(SCRIPT_BYTES, keep_python_script, script=True)
_RECORD = Interest(RECORD_BYTES, keep_record)
_DPKG = Interest(DPKG_BYTES, keep_dpkg_fields)
_RPM = Interest(RPM_BYTES, whole=True)
_WHOLE_LOCK = _keep_whole(LOCK_BYTES)
_CONFIGURATION = _keep_whole(CONFIGURATION_BYTES)
_IN_METADATA = {
    b"METADATA": _METADATA,
    b"PKG-INFO": _METADATA,
    b"INSTALLER": Interest(64),
    b"direct_url.json": _LONG_TEXT,
    b"RECORD": _NAME,
}
_VERSION_PATHS = tuple(b"/" + path.encode() for path, _ in VERSION_FILES.values())
_VERSION_NAMES = frozenset(path.rpartition(b"/")[2] for path in _VERSION_PATHS)
_PATHS = {
    b"etc/os-release": _TEXT,
    b"usr/lib/os-release": _TEXT,
    b"etc/ld.so.conf": _TEXT,
    b"var/lib/dpkg/status": _DPKG,
}
_BY_SUFFIX: Mapping[bytes, Callable[[bytes, bytes, bytes], Interest | None]] = {
    b".py": _judge_python,
    b".txt": _judge_text,
    b".json": _judge_text,
    b".conf": _judge_text,
    b".cfg": _judge_text,
    **dict.fromkeys(
        (b".pth", b".egg-link", b".egg-info", b".dist-info", b".egg", b".cmake", b".h", b".sh"), _judge_other
    ),
    b".sqlite": _judge_program,
    b".db": _judge_program,
}
"""Suffix of a file's name → what judges it; other names are those of programs."""
