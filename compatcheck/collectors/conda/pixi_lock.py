"""``pixi.lock``: what each environment of a workspace installs on each platform, of conda and of PyPI.

Versions 6 and 7, which pixi has written since 0.40. https://pixi.sh/latest/workspace/lockfile/,
conda/rattler crates/rattler_lock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.conda.lock import LockedPackage, build_locked, check_version, no_linux, note_others
from compatcheck.collectors.conda.packages import LINUX
from compatcheck.collectors.conda.spec import read_archive_name
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_text
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.core.yaml import YamlList, YamlMap, YamlValue, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.environment import Environment
    from compatcheck.core.yaml import YamlFile

_REMEDY = "make the lock anew with `pixi lock`"
_VERSIONS = {"6", "7"}
_KINDS = ("conda", "pypi", "conda_source")
_SOURCE_NAME = re.compile(r"([\w.-]+)(?:\[[^\]]*\])? @ .*")
_PURL = re.compile(r"pkg:pypi/([^@?#]+)")
_MAX_SUBJECTS = 200


class LockedEnvironment(NamedTuple):
    """One environment on one platform."""

    name: str
    platform: str
    subdir: str
    """Conda's name of the platform, ``linux-64``; a lock of version 7 may name its platforms itself."""
    packages: tuple[LockedPackage, ...]
    skipped: tuple[Skipped, ...]


def read_pixi_lock(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a lock: one environment for each name and Linux platform."""
    file = read_yaml(path, files)
    found = list(list_environments(file))
    linux = [item for item in found if item.subdir in LINUX]
    platforms = sorted({item.platform for item in found})
    if not linux:
        raise no_linux(path, platforms)
    if len(linux) > _MAX_SUBJECTS:
        message = f"holds {len(linux)} environments for Linux; at most {_MAX_SUBJECTS} are read"
        raise InputError(message, source=Source(path, "environments"), hint="check that this is the file you mean")
    notes = note_others(platforms, {item.platform for item in linux})
    return tuple(
        build_locked(f"{path} ({item.name}, {item.platform})", item.packages, item.skipped, notes) for item in linux
    )


def list_environments(file: YamlFile) -> Iterator[LockedEnvironment]:
    """List every environment of a lock on every platform."""
    root = file.root
    environments = root.get("environments") if isinstance(root, YamlMap) else None
    entries = root.get("packages") if isinstance(root, YamlMap) else None
    if isinstance(root, YamlMap):
        check_version(file.path, root.get("version"), _VERSIONS, _REMEDY)
    if not isinstance(root, YamlMap) or not isinstance(environments, YamlMap):
        message = "has no environments: it is no pixi.lock"
        raise InputError(message, source=Source(file.path, "environments"), hint=_REMEDY)
    known = _by_location(entries)
    subdirs = _subdirs(root.get("platforms"))
    for name, environment in environments.items():
        for platform, packages in as_table(as_table(environment).get("packages")).items():
            found: list[LockedPackage] = []
            skipped: list[Skipped] = []
            listed = packages if isinstance(packages, YamlList) else YamlList(environments.lines[name])
            for index, reference in enumerate(listed):
                place = Source(file.path, f"environments.{name}.{platform}[{index}]", listed.lines[index])
                package = _resolve(reference, known, file.path)
                if package is None:
                    skipped.append(Skipped(place, "a package is not described in the lock", _REMEDY, named=True))
                else:
                    found.append(package)
            yield LockedEnvironment(name, platform, subdirs.get(platform, platform), tuple(found), tuple(skipped))


def _subdirs(platforms: YamlValue) -> dict[str, str]:
    found = {}
    for entry in platforms if isinstance(platforms, YamlList) else ():
        name, subdir = as_table(entry).get("name"), as_table(entry).get("subdir")
        if isinstance(name, str) and isinstance(subdir, str):
            found[name] = subdir
    return found


def _by_location(entries: YamlValue) -> dict[tuple[str, str], list[YamlMap]]:
    """Index the descriptions by kind and location: what is built from one directory of sources can be several packages."""
    found: dict[tuple[str, str], list[YamlMap]] = {}
    for entry in entries if isinstance(entries, YamlList) else ():
        if not isinstance(entry, YamlMap):
            continue
        kind = next((key for key in _KINDS if key in entry), None)
        location = entry.get(kind) if kind is not None else None
        if isinstance(kind, str) and isinstance(location, str):
            found.setdefault((kind, location), []).append(entry)
    return found


def _resolve(reference: YamlValue, known: dict[tuple[str, str], list[YamlMap]], path: str) -> LockedPackage | None:
    """Look up what an entry of an environment refers to; None where it has neither a description nor a telling name."""
    fields = reference if isinstance(reference, YamlMap) else YamlMap(0)
    kind = next((key for key in _KINDS if key in fields), None)
    location = fields.get(kind) if kind is not None else None
    if kind is None or not isinstance(location, str):
        return None
    entry = _choose(known.get((kind, location), []), fields)
    described = entry if entry is not None else fields
    archive = read_archive_name(location) if kind == "conda" else None
    source_name = _SOURCE_NAME.fullmatch(location) if kind == "conda_source" else None
    name = as_text(described.get("name")) or as_text(fields.get("name"))
    version, build = as_text(described.get("version")), as_text(described.get("build"))
    if archive is not None:
        name, version, build = name or archive[0], version or archive[1], build or archive[2]
    if source_name is not None:
        name = name or source_name[1]
    if not name or (entry is None and archive is None):
        return None
    line = next(iter(described.lines.values()), described.line)
    return LockedPackage(
        "pypi" if kind == "pypi" else "conda",
        name,
        version,
        build,
        location,
        Source(path, f"packages.{name}", line),
        _purls(described.get("purls")),
        editable=described.get("editable") == "true",
    )


def _choose(entries: list[YamlMap], reference: YamlMap) -> YamlMap | None:
    """Choose the description that agrees with what a reference says beside its location: name, version, build, variants."""
    said = [key for key in ("name", "version", "build", "subdir", "variants") if key in reference]
    agreeing = (entry for entry in entries if all(entry.get(key) == reference[key] for key in said))
    return next(agreeing, entries[0] if entries else None)


def _purls(value: YamlValue) -> tuple[str, ...] | None:
    if not isinstance(value, YamlList):
        return None
    matches = [_PURL.match(item) for item in value if isinstance(item, str)]
    return tuple(dict.fromkeys(canonical_name(match[1]) for match in matches if match is not None))
