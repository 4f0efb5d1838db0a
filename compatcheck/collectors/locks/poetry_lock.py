"""``poetry.lock``: what ``poetry install`` installs of it on one interpreter, main group only.

From lock-version 2.1 on (poetry 2) an entry says itself in which groups and under which marker it is installed. Before,
the ``pyproject.toml`` beside the lock is where the way to an entry begins, as it is for poetry.
https://python-poetry.org/docs/basic-usage/#installing-dependencies
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import Dependency, Entry, Lock, select_entries
from compatcheck.collectors.locks.tables import Tables, check_version, depend, read_project, split_names
from compatcheck.collectors.requirements.pyproject import Stated, convert_poetry_range
from compatcheck.core.expected_shapes import as_table, as_text, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.redaction import redact
from compatcheck.core.selection import DEFAULT, Choice, Selection, offer
from compatcheck.core.source import Skipped, Source
from compatcheck.core.toml import read_toml
from compatcheck.core.versions import InvalidSpecifierError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.requirement import Requirement

_REMEDY = "make the lock anew with `poetry lock`"
_VERSIONS = (1, 2)
_NEWEST = (2, 1)
"""lock-version that poetry 2.5 writes."""
_LISTED = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[([^\]]*)\])?")
"""The start of an item of ``[package.extras]``: ``name[extra] (>=1.0) ; marker``."""


def read_poetry_lock(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read a lock file and select what it installs on Linux.

    ``selection`` names the extras and the groups installed beside ``main``: ``poetry install`` takes ``dev`` and the like too,
    a deployment does not; the Python, without which versions that differ between Pythons are joined with ``||``.
    """
    file = read_toml(path, files)
    metadata = as_table(file.data.get("metadata"))
    notes = check_version(path, "lock-version", metadata.get("lock-version"), _VERSIONS, _NEWEST, _REMEDY)
    reading = _Reading(file, _REMEDY)
    read = reading.read()
    environment = describe_machine(selection.markers, requires_python=_python(metadata.get("python-versions")))
    says_groups = any("groups" in table for _, table in read)
    stated = None if says_groups else read_project(path, files, notes)
    if says_groups:
        groups = {group for _, table in read for group in _groups(table)}
    elif stated is not None:
        groups = set(stated.groups)
    else:
        groups = {canonical_name(group) for _, table in read if isinstance(group := table.get("category"), str)}
        among = "" if groups else ", those of all groups included"
        notes.append(
            f"no pyproject.toml beside it states requirements: entries are taken whatever leads to them{among}"
        )
    by_extra = {canonical_name(name): as_texts(items) for name, items in as_table(file.data.get("extras")).items()}
    offered = offer({*by_extra, *(stated.optional if stated is not None else ())}, groups - {"main"})

    def select(chosen: frozenset[Choice]) -> Lock:
        extras = frozenset(choice.name for choice in chosen if choice.kind == "extra")
        wanted = frozenset({"main", *(choice.name for choice in chosen if choice.kind == "group")})
        lock = Lock([entry for entry, _ in read], environment._replace(extras=extras), _REMEDY)
        if says_groups:
            lock.select(_mark(read, lock, wanted))
        elif stated is not None:
            lock.follow(map(depend, _list_roots(stated, chosen)))
        else:
            lock.select(index for index, (_, table) in enumerate(read) if _is_taken(table, wanted))
            listed = (_LISTED.match(item) for extra in sorted(extras) for item in by_extra.get(extra, ()))
            lock.follow(Dependency(canonical_name(match[1]), extras=split_names(match[2])) for match in listed if match)
        return lock

    chosen = selection.choose(offered)
    return select_entries(path, select, offered, chosen, skipped=reading.skipped, notes=notes)


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
        marked.append(entry._replace(marker=as_text(markers)))
        if groups:
            selected.append(index)
    lock.entries = marked
    return selected


def _list_roots(stated: Stated, chosen: frozenset[Choice]) -> list[Requirement]:
    """List what a project requires; a group ``main`` is always installed."""
    return [*stated.required, *stated.brought_by(chosen | {Choice("group", "main")})]


def _is_taken(table: Mapping[str, Any], groups: frozenset[str]) -> bool:
    """Tell whether an entry of lock-version 1 without a project is installed: it is not optional, and of a chosen category."""
    return table.get("optional") is not True and canonical_name(str(table.get("category", "main"))) in groups


class _Reading(Tables):
    """The entries of one file."""

    def describe(self, name: str, version: str | None, source: Source, table: Mapping[str, Any]) -> Entry:
        """Return the entry that a table describes."""
        required, optional = _read_dependencies(as_table(table.get("dependencies")))
        return Entry(
            canonical_name(name),
            version,
            source,
            tuple(required),
            _read_extras(as_table(table.get("extras")), required, optional),
            requires_python=_python(table.get("python-versions")),
            details=_details(table),
        )


def _read_dependencies(table: Mapping[str, Any]) -> tuple[list[Dependency], list[Dependency]]:
    """Read ``[package.dependencies]``: those always required, and those that an extra requires."""
    required: list[Dependency] = []
    optional: list[Dependency] = []
    for name, value in table.items():
        for item in value if isinstance(value, list) else [value]:
            stated = item if isinstance(item, dict) else {"version": item}
            dependency = Dependency(
                canonical_name(name),
                _python(stated.get("version")) or "",
                as_text(stated.get("markers")),
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
                    dependency._replace(extras=split_names(match.group(2)))
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
