"""``conda-lock.yml``, and the locks pixi wrote in its form before version 4: packages by platform, of conda and of pip.

https://github.com/conda/conda-lock, conda_lock/lockfile/v1/models.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.collectors.conda.packages import LINUX, Record, build_environment
from compatcheck.collectors.conda.spec import read_archive_name, read_channel
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError, NoEnvironmentError
from compatcheck.core.expected_shapes import as_text
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name
from compatcheck.core.requirement import read_url
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo
from compatcheck.core.versions import parse_version
from compatcheck.core.yaml import YamlList, YamlMap, read_yaml

if TYPE_CHECKING:
    from compatcheck.core.yaml import YamlFile

_REMEDY = "make the lock anew with the tool that wrote it"
_INSTALLED = {"main", "dev", "default"}
"""Categories that ``conda-lock install`` installs unless it is told otherwise; extras are not among them."""
_VERSIONS = {"1", "2", "3"}


class LockedPackage(NamedTuple):
    """One entry of the lock."""

    name: str
    version: str
    manager: str
    """``conda``, ``pip`` or, in locks of pixi, ``pypi``."""
    platform: str
    build: str | None
    url: str | None
    categories: tuple[str, ...]
    source: Source


def read_conda_lock(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a lock: one environment for each Linux platform it locks."""
    return read_locked(read_yaml(path, files))


def read_locked(file: YamlFile) -> tuple[Environment, ...]:
    """See `read_conda_lock`."""
    entries, skipped = list_packages(file)
    platforms = sorted({entry.platform for entry in entries})
    linux = [platform for platform in LINUX if platform in platforms]
    if not linux:
        raise no_linux(file.path, platforms)
    others = [platform for platform in platforms if platform not in linux]
    notes = [f"also locked, and not looked at: {', '.join(others)}"] if others else []
    found = []
    for platform in linux:
        here = [entry for entry in entries if entry.platform == platform]
        origin = f"{file.path} ({platform})" if len(platforms) > 1 else file.path
        found.append(_environment(origin, here, skipped, notes))
    return tuple(found)


def no_linux(path: str, platforms: list[str]) -> NoEnvironmentError:
    """Return the error of a lock for other systems."""
    named = ", ".join(platforms[:8]) or "no platform"
    message = f"locks {named}, and neither {' nor '.join(LINUX)}"
    return NoEnvironmentError(message, source=Source(path), hint="add the platform that the job runs on and lock again")


def list_packages(file: YamlFile) -> tuple[list[LockedPackage], list[Skipped]]:
    """List all entries of a lock, whatever their platform, and those that cannot be read."""
    root = file.root
    entries = root.get("package") if isinstance(root, YamlMap) else None
    if not isinstance(root, YamlMap) or not isinstance(entries, YamlList):
        message = "has no list of packages: it is no conda-lock file"
        raise InputError(message, source=Source(file.path, "package"), hint=_REMEDY)
    version = root.get("version", "1")
    if not isinstance(version, str) or version not in _VERSIONS:
        message = f"is of version {echo(str(version))}; versions {', '.join(sorted(_VERSIONS))} are understood"
        raise InputError(message, source=Source(file.path, "version"), hint=f"upgrade compatcheck, or {_REMEDY}")
    found: list[LockedPackage] = []
    skipped: list[Skipped] = []
    for index, entry in enumerate(entries):
        source = Source(file.path, f"package[{index}]", entries.lines[index])
        fields = entry if isinstance(entry, YamlMap) else YamlMap(0)
        name, version, platform = (
            as_text(fields.get("name")),
            as_text(fields.get("version")),
            as_text(fields.get("platform")),
        )
        manager = as_text(fields.get("manager")) or "conda"
        if not name or not version or not platform or manager not in {"conda", "pip", "pypi"}:
            reason = "an entry of package has no name, version, platform or known manager"
            skipped.append(Skipped(source, reason, _REMEDY, named=True))
            continue
        url = as_text(fields.get("url"))
        archive = read_archive_name(url) if url and manager == "conda" else None
        build = as_text(fields.get("build")) or (archive[2] if archive is not None else None)
        source = Source(file.path, f"package.{name}", fields.lines.get("name", source.line))
        found.append(LockedPackage(name, version, manager, platform, build, url, _categories(fields), source))
    return found, skipped


def _categories(fields: YamlMap) -> tuple[str, ...]:
    several = fields.get("categories")
    if isinstance(several, YamlList):
        return tuple(item for item in several if isinstance(item, str))
    return (as_text(fields.get("category")) or "main",)


def _environment(origin: str, entries: list[LockedPackage], skipped: list[Skipped], notes: list[str]) -> Environment:
    records = []
    pip: dict[str, Package] = {}
    lost = list(skipped)
    left_out: set[str] = set()
    for entry in entries:
        if not set(entry.categories) & _INSTALLED:
            left_out.update(entry.categories)
            continue
        if entry.manager == "conda":
            channel = read_channel(entry.url) if entry.url else None
            records.append(Record(entry.name.lower(), entry.source, entry.version, entry.build, channel))
            continue
        package = read_pip_package(entry.name, entry.version, entry.url, entry.source)
        if package.version is None:
            reason = f"{echo(entry.version)}, the version of {entry.name}, is no version"
            lost.append(Skipped(entry.source, reason, _REMEDY, named=True))
        pip[package.name] = package
    remarks = [*notes, *([f"categories not selected: {', '.join(sorted(left_out))}"] if left_out else [])]
    return build_environment(origin, records, pip=pip, complete=not lost, skipped=lost, notes=remarks)


def read_pip_package(name: str, version: str | None, url: str | None, source: Source) -> Package:
    """Describe a package of pip that a lock of conda or pixi holds; without a version that is one, it is unknown."""
    details: dict[str, str] = {"installer": "pip"}
    stated = None
    if url:
        _, stated, more = read_url(url, name)
        details.update(more)
    version = version or stated
    if version is None or parse_version(version) is None:
        return Package(canonical_name(name), None, source, "", details)
    return Package(canonical_name(name), version, source, None, details)
