"""``conda-lock.yml``: packages by platform, of conda and of pip.

https://github.com/conda/conda-lock, conda_lock/lockfile/v1/models.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.collectors.conda.packages import LINUX, Record, build_environment
from compatcheck.collectors.conda.spec import read_archive_name, read_channel
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError, NoEnvironmentError
from compatcheck.core.expected_shapes import as_text, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.requirement import add_unselected, read_url
from compatcheck.core.selection import DEFAULT, Choice, Selection, offer
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo
from compatcheck.core.versions import parse_version
from compatcheck.core.yaml import YamlList, YamlMap, read_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from compatcheck.core.yaml import YamlFile

_REMEDY = "make the lock anew with the tool that wrote it"
_INSTALLED = frozenset({"main", "dev", "default"})
"""Categories that ``conda-lock install`` installs unless it is told otherwise; the others are its extras."""
_VERSIONS = {"1", "2", "3"}


class LockedPackage(NamedTuple):
    """One package of a lock of conda-lock or pixi."""

    kind: str
    """``conda`` or ``pypi``."""
    name: str
    version: str | None
    """None for a package that is built from a directory."""
    build: str | None
    location: str | None
    """Address, or path of what is built from a directory."""
    source: Source
    distributions: tuple[str, ...] | None = None
    """Distributions a conda package says it installs; None when it says nothing."""
    editable: bool = False


class _Entry(NamedTuple):
    platform: str
    categories: tuple[str, ...]
    package: LockedPackage


def read_conda_lock(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> tuple[Environment, ...]:
    """Read a lock: one environment for each Linux platform it locks."""
    entries, skipped = list_packages(read_yaml(path, files))
    platforms = sorted({entry.platform for entry in entries})
    linux = [platform for platform in LINUX if platform in platforms]
    if not linux:
        raise no_linux(path, platforms)
    notes = note_others(platforms, linux)
    found = []
    for platform in linux:
        here = [entry for entry in entries if entry.platform == platform]
        origin = f"{path} ({platform})" if len(platforms) > 1 else path
        found.append(_select(origin, here, skipped, notes, selection))
    return tuple(found)


def no_linux(path: str, platforms: list[str]) -> NoEnvironmentError:
    """Return the error of a lock for other systems."""
    named = ", ".join(platforms[:8]) or "no platform"
    message = f"locks {named}, and neither {' nor '.join(LINUX)}"
    return NoEnvironmentError(message, source=Source(path), hint="add the platform that the job runs on and lock again")


def note_others(platforms: Iterable[str], linux: Collection[str]) -> list[str]:
    """Note the platforms that are locked beside Linux."""
    others = sorted(set(platforms) - set(linux))
    return [f"also locked, and not looked at: {', '.join(others)}"] if others else []


def list_packages(file: YamlFile) -> tuple[list[_Entry], list[Skipped]]:
    """List all entries of a lock, whatever their platform, and those that cannot be read."""
    root = file.root
    entries = root.get("package") if isinstance(root, YamlMap) else None
    if not isinstance(root, YamlMap) or not isinstance(entries, YamlList):
        message = "has no list of packages: it is no conda-lock file"
        raise InputError(message, source=Source(file.path, "package"), hint=_REMEDY)
    check_version(file.path, root.get("version", "1"), _VERSIONS, _REMEDY)
    found: list[_Entry] = []
    skipped: list[Skipped] = []
    for index, entry in enumerate(entries):
        source = Source(file.path, f"package[{index}]", entries.lines[index])
        fields = entry if isinstance(entry, YamlMap) else YamlMap(0)
        name, version, platform = (as_text(fields.get(key)) for key in ("name", "version", "platform"))
        manager = as_text(fields.get("manager")) or "conda"
        if not name or not version or not platform or manager not in {"conda", "pip"}:
            reason = "an entry of package has no name, version, platform or known manager"
            skipped.append(Skipped(source, reason, _REMEDY, named=True))
            continue
        kind, url = "conda" if manager == "conda" else "pypi", as_text(fields.get("url"))
        archive = read_archive_name(url) if url and kind == "conda" else None
        build = as_text(fields.get("build")) or (archive[2] if archive is not None else None)
        source = Source(file.path, f"package.{name}", fields.lines.get("name", source.line))
        several = fields.get("categories")
        categories = (
            as_texts(several) if isinstance(several, YamlList) else (as_text(fields.get("category")) or "main",)
        )
        found.append(_Entry(platform, categories, LockedPackage(kind, name, version, build, url, source)))
    return found, skipped


def check_version(path: str, version: object, understood: Collection[str], remedy: str) -> None:
    """Check the version of a lock.

    Raises:
        InputError: it is none of those that are understood.
    """
    if not isinstance(version, str) or version not in understood:
        message = f"is of version {echo(str(version))}; versions {', '.join(sorted(understood))} are understood"
        raise InputError(message, source=Source(path, "version"), hint=f"upgrade compatcheck, or {remedy}")


def _select(
    origin: str, entries: Sequence[_Entry], skipped: Sequence[Skipped], notes: Sequence[str], selection: Selection
) -> Environment:
    """Bring together what the selected categories install; what the others would bring may be there or not."""
    offered = offer({category for entry in entries for category in entry.categories} - _INSTALLED)
    chosen = selection.choose(offered)

    def bring(choices: frozenset[Choice]) -> Environment:
        wanted = _INSTALLED.union(choice.name for choice in choices)
        here = [entry.package for entry in entries if not wanted.isdisjoint(map(canonical_name, entry.categories))]
        return build_locked(origin, here, skipped, notes)

    environment = bring(chosen)
    packages = add_unselected(environment.packages, offered - chosen, lambda more: bring(chosen | more).packages)
    return environment._replace(packages=packages, offered=offered)


def build_locked(
    origin: str, packages: Iterable[LockedPackage], skipped: Iterable[Skipped], notes: Sequence[str]
) -> Environment:
    """Bring the packages of one environment together, of conda and of pip."""
    records = []
    pip: dict[str, Package] = {}
    lost = list(skipped)
    for item in packages:
        if item.kind == "conda":
            channel = read_channel(item.location) if item.location else None
            records.append(
                Record(item.name.lower(), item.source, item.version, item.build, channel, None, item.distributions)
            )
            continue
        package = _describe_pip(item)
        if package.version is None and item.version is not None:
            reason = f"{echo(item.version)}, the version of {item.name}, is no version"
            lost.append(Skipped(item.source, reason, _REMEDY, named=True))
        pip[package.name] = package
    return build_environment(origin, records, pip=pip, complete=not lost, skipped=lost, notes=notes)


def _describe_pip(item: LockedPackage) -> Package:
    """Describe a package of pip; without a version that is one, it is unknown."""
    details: dict[str, str] = {"installer": "pip"}
    version = item.version
    if item.location and "://" in item.location:
        _, stated, more = read_url(item.location, item.name)
        version = version or stated
        details.update(more)
    elif item.location:
        details["source"] = "path"
    if item.editable:
        details["editable"] = "true"
    name = canonical_name(item.name)
    if version is None or parse_version(version) is None:
        return Package(name, None, item.source, "", details)
    return Package(name, version, item.source, None, details)
