"""``poetry.lock``: what ``poetry install`` installs of it on one interpreter, main group only.

From lock-version 2.1 on (poetry 2) an entry says itself in which groups and under which marker it is installed. Before,
the ``pyproject.toml`` beside the lock is where the way to an entry begins, as it is for poetry.
https://python-poetry.org/docs/basic-usage/#installing-dependencies
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import Dependency, Entry, Lock, Tables, say_unselected
from compatcheck.collectors.requirements.pyproject import convert_poetry_range, read_stated
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.redaction import redact
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import STANDARD_INPUT, echo_value
from compatcheck.core.toml import locate_entries, read_toml
from compatcheck.core.versions import InvalidSpecifierError, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.version import Version

_REMEDY = "make the lock anew with `poetry lock`"
_NEWEST = (2, 1)
"""lock-version that poetry 2.5 writes."""
_LISTED = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[([^\]]*)\])?")
"""The start of an item of ``[package.extras]``: ``name[extra] (>=1.0) ; marker``."""


def read_poetry_lock(
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
        groups: groups selected beside ``main``; ``poetry install`` takes ``dev`` and the like too, a deployment does not.

    Raises:
        InputError: it cannot be read, is not TOML or not a lock of version 1 or 2.
    """
    file = read_toml(path, files)
    metadata = file.data.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    version = _check_version(path, metadata.get("lock-version", "1.0"))
    tables = file.data.get("package", [])
    if not isinstance(tables, list):
        message = "has no [[package]]"
        raise InputError(message, source=Source(path, "package"), hint=_REMEDY)
    reading = _Reading(path, locate_entries(file.text, "package"), _REMEDY)
    read = [
        entry
        for position, table in enumerate(map(as_table, tables))
        if (entry := reading.read(position, table)) is not None
    ]
    wanted = frozenset(map(canonical_name, extras))
    chosen = frozenset({"main", *map(canonical_name, groups)})
    environment = describe_machine(
        marker_environment, requires_python=_python(metadata.get("python-versions")), extras=wanted
    )
    lock = Lock([entry for entry, _ in read], environment, _REMEDY)
    notes: list[str] = []
    if version.release[:2] > _NEWEST:
        newest = ".".join(map(str, _NEWEST))
        notes.append(f"{path} is of lock-version {version}, newer than the {newest} that is understood")
    offered = {canonical_name(name) for name in as_table(file.data.get("extras"))}
    if any("groups" in table for _, table in read):
        named = {group for _, table in read for group in _groups(table)}
        lock.select(_mark(read, lock, chosen))
    else:
        named = _walk(lock, read, wanted, chosen, notes, files)
    packages = lock.packages()
    lock.say_absent()
    notes += say_unselected("groups", named - chosen) + say_unselected("extras", offered - wanted)
    skipped = (*reading.skipped, *lock.skipped)
    python = environment.pythons[0] if len(environment.pythons) == 1 else None
    return Environment(
        path,
        packages,
        complete=not skipped,
        python=python,
        skipped=skipped,
        notes=tuple(dict.fromkeys((*notes, *lock.notes))),
    )


def _check_version(path: str, stated: object) -> Version:
    version = parse_version(stated) if isinstance(stated, str) else None
    if version is None or version.major not in {1, 2}:
        message = f"is of lock-version {echo_value(stated)}; versions 1 and 2 are understood"
        source = Source(path, "metadata.lock-version")
        raise InputError(message, source=source, hint=f"upgrade compatcheck, or {_REMEDY}")
    return version


def _python(stated: object) -> str | None:
    try:
        return convert_poetry_range(stated) if isinstance(stated, str) else None
    except InvalidSpecifierError:
        return None


def _mark(read: list[tuple[Entry, Mapping[str, Any]]], lock: Lock, chosen: frozenset[str]) -> list[int]:
    """Give each entry of a selected group the marker that the selected groups have for it (lock-version 2.1)."""
    selected = []
    marked = []
    for index, (entry, table) in enumerate(read):
        groups = [group for group in _groups(table) if group in chosen]
        if not isinstance(table.get("groups"), list):
            reason = f"the entry of {entry.name} does not say in which groups it is"
            lock.skipped.append(Skipped(entry.source, reason, _REMEDY, named=True))
        markers = table.get("markers")
        if isinstance(markers, dict):
            by_group = {canonical_name(group): marker for group, marker in markers.items()}
            stated = [by_group.get(group) for group in groups]
            joined = [f"({marker})" for marker in stated if isinstance(marker, str)]
            markers = " or ".join(joined) if len(joined) == len(groups) else None
        marked.append(entry._replace(marker=markers if isinstance(markers, str) else None))
        if groups:
            selected.append(index)
    lock.entries = marked
    return selected


def _walk(
    lock: Lock,
    read: list[tuple[Entry, Mapping[str, Any]]],
    extras: frozenset[str],
    chosen: frozenset[str],
    notes: list[str],
    files: Files,
) -> set[str]:
    """Follow the requirements of the project, whose groups are returned; without them every entry of ``main`` counts."""
    path = lock.entries[0].source.path if lock.entries else STANDARD_INPUT
    manifest = os.path.join(os.path.dirname(path), "pyproject.toml")
    categories = {canonical_name(group) for _, table in read if isinstance(group := table.get("category"), str)}
    if path != STANDARD_INPUT and files.is_file(manifest):
        try:
            stated = read_stated(manifest, files)
        except InputError as error:
            notes.append(f"{error}; the groups of the lock are not told apart")
        else:
            roots = list(stated.required)
            for extra in sorted(extras):
                roots += stated.optional.get(extra, ())
            for group in sorted(chosen):
                roots += stated.groups.get(group, ())
            if roots or stated.groups or stated.optional:
                lock.follow(
                    Dependency(item.name, item.specifier, item.marker, _names(item.details.get("extras")))
                    for item in roots
                )
                return set(stated.groups)
    notes.append(
        "no pyproject.toml beside it states requirements: entries are taken whatever leads to them"
        + ("" if categories else ", those of all groups included")
    )
    optional = {index for index, (_, table) in enumerate(read) if table.get("optional") is True}
    lock.select(
        index
        for index, (_, table) in enumerate(read)
        if index not in optional and canonical_name(str(table.get("category", "main"))) in chosen
    )
    return categories


class _Reading(Tables):
    """The entries of one file."""

    def read(self, position: int, table: Mapping[str, Any]) -> tuple[Entry, Mapping[str, Any]] | None:
        """Read one ``[[package]]``."""
        known = self.identify(position, table)
        if known is None:
            return None
        name, version, source = known
        required, optional = _read_dependencies(as_table(table.get("dependencies")))
        marker = table.get("marker")  # of lock-version 1.0; 2.1 writes markers
        return (
            Entry(
                canonical_name(name),
                version,
                source,
                tuple(required),
                _read_extras(as_table(table.get("extras")), required, optional),
                marker if isinstance(marker, str) else None,
                _python(table.get("python-versions")),
                _details(table),
            ),
            table,
        )


def _read_dependencies(table: Mapping[str, Any]) -> tuple[list[Dependency], list[Dependency]]:
    """Read ``[package.dependencies]``: those always required, and those that an extra requires."""
    required: list[Dependency] = []
    optional: list[Dependency] = []
    for name, value in table.items():
        for item in value if isinstance(value, list) else [value]:
            stated = item if isinstance(item, dict) else {"version": item}
            marker = stated.get("markers")
            dependency = Dependency(
                canonical_name(name),
                _python(stated.get("version")) or "",
                marker if isinstance(marker, str) else None,
                tuple(map(canonical_name, as_texts(stated.get("extras")))),
            )
            (optional if stated.get("optional") is True else required).append(dependency)
    return required, optional


def _read_extras(
    table: Mapping[str, Any], required: list[Dependency], optional: list[Dependency]
) -> dict[str, tuple[Dependency, ...]]:
    """Read ``[package.extras]``; an item stands in the dependencies too, with the extras that are wanted of it."""
    by_extra: dict[str, tuple[Dependency, ...]] = {}
    stated = {dependency.name for dependency in optional}
    for extra, items in table.items():
        found: list[Dependency] = []
        for item in as_texts(items):
            match = _LISTED.match(item)
            if match is None:
                continue
            name = canonical_name(match.group(1))
            if name in stated:
                found += [dependency for dependency in optional if dependency.name == name]
            elif match.group(2):  # a required package with an extra more, or the package itself
                found += [
                    dependency._replace(extras=_names(match.group(2)))
                    for dependency in required
                    if dependency.name == name
                ]
        by_extra[canonical_name(extra)] = tuple(found)
    return by_extra


def _details(table: Mapping[str, Any]) -> dict[str, str]:
    details: dict[str, str] = {}
    source = as_table(table.get("source"))
    kind, url = source.get("type"), source.get("url")
    if isinstance(kind, str):
        details["source"] = kind
    if isinstance(url, str):
        details["index" if kind == "legacy" else "direct_url"] = redact(url)
    if kind == "git":
        revision = source.get("reference") or source.get("resolved_reference")
        details.update(vcs="git", revision=str(revision or ""))
    if table.get("develop") is True:
        details["editable"] = "true"
    return details


def _groups(table: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(canonical_name, as_texts(table.get("groups"))))


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(canonical_name(name.strip()) for name in (text or "").split(",") if name.strip())
