"""``pdm.lock`` (lock_version 4): what ``pdm sync --prod`` installs of it on one interpreter, the default group only.

With the strategy ``inherit_metadata`` an entry says itself in which groups and under which marker it is installed. Without,
the ``pyproject.toml`` beside the lock is where the way to an entry begins, as it is for pdm.
https://pdm-project.org/latest/usage/lockfile/
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import Dependency, Entry, Lock, Tables, say_unselected
from compatcheck.collectors.requirements.pyproject import read_stated
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import LINUX, canonical_name, describe_machine
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import InvalidRequirementError, Requirement, parse_requirement, read_url
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import STANDARD_INPUT, echo, echo_value
from compatcheck.core.toml import locate_entries, read_toml
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REMEDY = "make the lock anew with `pdm lock`"
_VERSION = 4
_NEWEST = (4, 5)
"""lock_version that pdm 2.29 writes."""


def read_pdm_lock(
    path: str,
    files: Files = LOCAL,
    *,
    marker_environment: Mapping[str, str] | None = None,
    extras: Iterable[str] = (),
    groups: Iterable[str] = (),
) -> Environment:
    """Read a lock file and select what it installs on Linux.

    Args:
        path: the file.
        files: the tree it lies in.
        marker_environment: known marker variables, such as ``python_full_version``. Without a Python, versions that
            differ between Pythons are joined with ``||``.
        extras: selected extras of the project.
        groups: groups selected beside ``default``; ``pdm sync`` takes development groups too, a deployment does not.

    Raises:
        InputError: it cannot be read, is not TOML or not a lock of version 4.
    """
    file = read_toml(path, files)
    metadata = as_table(file.data.get("metadata"))
    notes = _check_version(path, metadata.get("lock_version"))
    tables = file.data.get("package", [])
    if not isinstance(tables, list):
        message = "has no [[package]]"
        raise InputError(message, source=Source(path, "package"), hint=_REMEDY)
    wanted = frozenset(map(canonical_name, extras))
    chosen = frozenset({"default", *wanted, *map(canonical_name, groups)})
    requires = _read_targets(path, metadata, notes)
    environment = describe_machine(marker_environment, requires_python=requires, extras=wanted)
    reading = _Reading(path, locate_entries(file.text, "package"), _REMEDY)
    read = [
        entry
        for position, table in enumerate(map(as_table, tables))
        if (entry := reading.read(position, table)) is not None
    ]
    offered = {canonical_name(group) for group in as_texts(metadata.get("groups"))}
    stated = [_groups(table) for _, table in read]
    if any(stated):
        lock = Lock([entry for entry, _ in read], environment, _REMEDY)
        lock.select(index for index, named in enumerate(stated) if not named or named & chosen)
        offered |= {group for named in stated for group in named}
    else:
        lock = Lock(_fold_extras(read), environment, _REMEDY)
        offered |= _walk(lock, path, chosen, notes, files)
    packages = lock.packages()
    lock.say_absent()
    notes += say_unselected("groups", offered - chosen)
    skipped = (*reading.skipped, *lock.skipped)
    return Environment(
        path,
        packages,
        complete=not skipped,
        python=environment.pythons[0] if len(environment.pythons) == 1 else None,
        skipped=skipped,
        notes=tuple(dict.fromkeys((*notes, *lock.notes))),
    )


def _check_version(path: str, stated: object) -> list[str]:
    version = parse_version(stated) if isinstance(stated, str) else None
    if version is None or version.major != _VERSION:
        message = f"is of lock_version {echo_value(stated)}; version {_VERSION} is understood"
        source = Source(path, "metadata.lock_version")
        raise InputError(message, source=source, hint=f"upgrade compatcheck, or {_REMEDY}")
    newest = ".".join(map(str, _NEWEST))
    newer = f"{path} is of lock_version {version}, newer than the {newest} that is understood"
    return [newer] if version.release[:2] > _NEWEST else []


def _read_targets(path: str, metadata: Mapping[str, Any], notes: list[str]) -> str | None:
    """Read the Pythons that the lock is for, and say so where it is for no Linux."""
    targets = (
        [target for target in metadata.get("targets", ()) if isinstance(target, dict)]
        if isinstance(metadata.get("targets"), list)
        else []
    )
    platforms = [target["platform"] for target in targets if isinstance(target.get("platform"), str)]
    foreign = [platform for platform in platforms if not _is_linux(platform)]
    if targets and len(foreign) == len(targets):
        notes.append(f"{path} is locked for {', '.join(map(echo, foreign))} only, not for Linux")
    ranges = [
        target.get("requires_python") for target in targets if not foreign or target.get("platform") not in foreign
    ]
    texts = [text for text in ranges if isinstance(text, str)]
    if not texts or len(texts) != len(ranges):
        return None
    joined = " || ".join(texts)
    try:
        compile_specifier(joined)
    except InvalidSpecifierError as error:
        notes.append(f"{path}: metadata.targets: {error}")
        return None
    return joined


def _is_linux(platform: str) -> bool:
    return platform.startswith(("linux", "manylinux", "musllinux", "alpine")) or platform == LINUX["sys_platform"]


def _fold_extras(read: list[tuple[Entry, Mapping[str, Any]]]) -> list[Entry]:
    """Join the entries ``name[extra]`` with those of the package itself: they hold what the extra adds."""
    plain = {(entry.name, entry.version): entry for entry, table in read if not as_texts(table.get("extras"))}
    for entry, table in read:
        names = tuple(map(canonical_name, as_texts(table.get("extras"))))
        if names:
            base = plain.get((entry.name, entry.version), entry._replace(dependencies=()))
            added = tuple(dependency for dependency in entry.dependencies if dependency.name != entry.name)
            by_extra = {**base.by_extra, **dict.fromkeys(names, added)}
            plain[entry.name, entry.version] = base._replace(by_extra=by_extra)
    return list(plain.values())


def _walk(lock: Lock, path: str, chosen: frozenset[str], notes: list[str], files: Files) -> set[str]:
    """Follow the requirements of the project, whose groups are returned; without them every entry counts."""
    manifest = os.path.join(os.path.dirname(path), "pyproject.toml")
    if path != STANDARD_INPUT and files.is_file(manifest):
        try:
            stated = read_stated(manifest, files)
        except InputError as error:
            notes.append(f"{error}; the groups of the lock are not told apart")
        else:
            named = {**stated.optional, **stated.groups}
            roots = [*stated.required, *(item for group in sorted(chosen) for item in named.get(group, ()))]
            if roots or named:
                lock.follow(map(_depend, roots))
                return set(named)
    notes.append(
        "the lock is without the strategy inherit_metadata, and no pyproject.toml beside it states requirements: "
        "entries are taken whatever leads to them, those of all groups included"
    )
    lock.select(range(len(lock.entries)))
    return set()


def _depend(item: Requirement) -> Dependency:
    extras = (name.strip() for name in item.details.get("extras", "").split(","))
    return Dependency(item.name, item.specifier, item.marker, tuple(canonical_name(name) for name in extras if name))


class _Reading(Tables):
    """The entries of one file."""

    def read(self, position: int, table: Mapping[str, Any]) -> tuple[Entry, Mapping[str, Any]] | None:
        """Read one ``[[package]]``."""
        known = self.identify(position, table)
        if known is None:
            return None
        name, version, source = known
        marker, requires = table.get("marker"), table.get("requires_python")
        dependencies = []
        for text in as_texts(table.get("dependencies")):
            try:
                dependencies.append(_depend(parse_requirement(text, source)))
            except InvalidRequirementError as error:
                self.skipped.append(Skipped(source, f"a dependency of {name}: {error}", _REMEDY, named=True))
        details, named = _details(name, table)
        return (
            Entry(
                canonical_name(name),
                version or named,
                source,
                tuple(dependencies),
                {},
                marker if isinstance(marker, str) else None,
                requires if isinstance(requires, str) else None,
                details,
            ),
            table,
        )


def _details(name: str, table: Mapping[str, Any]) -> tuple[dict[str, str], str | None]:
    """Describe where an entry comes from, with the version that its file name tells."""
    details: dict[str, str] = {}
    version = None
    for kind in ("git", "hg", "svn", "bzr"):
        if isinstance(table.get(kind), str):
            revision = table.get("ref") or table.get("revision")
            details.update(source=kind, vcs=kind, direct_url=redact(table[kind]), revision=str(revision or ""))
    for kind in ("url", "path"):
        if isinstance(table.get(kind), str):
            _, version, more = read_url(table[kind], name)
            details.update(more, source=kind)
    if table.get("editable") is True:
        details["editable"] = "true"
    return details, version


def _groups(table: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(map(canonical_name, as_texts(table.get("groups"))))
