"""What the locks of several tools have in common as files: ``[[package]]`` tables, a version, and the project beside them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import Dependency, Entry
from compatcheck.collectors.requirements.pyproject import Stated, read_stated
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table
from compatcheck.core.markers import canonical_name
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import read_tag, read_url
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import STANDARD_INPUT, echo, echo_value
from compatcheck.core.toml import locate_entries
from compatcheck.core.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.core.files import Files
    from compatcheck.core.requirement import Requirement
    from compatcheck.core.toml import TomlFile


class Tables:
    """The ``[[package]]`` tables of one lock, and what could not be used of them; a reader adds `describe`."""

    def __init__(self, file: TomlFile, remedy: str) -> None:
        self.path = file.path
        self.tables = list_tables(file, remedy)
        self.lines = locate_entries(file.text, "package")
        self.remedy = remedy
        self.skipped: list[Skipped] = []

    def describe(self, name: str, version: str | None, source: Source, table: Mapping[str, Any]) -> Entry:
        """Return the entry that a table describes."""
        raise NotImplementedError

    def read(self) -> list[tuple[Entry, Mapping[str, Any]]]:
        """Read the tables that have a name, each with the entry it describes."""
        found = []
        for position, table in enumerate(map(as_table, self.tables)):
            name, version = table.get("name"), table.get("version")
            if not isinstance(name, str):
                self.skip(Source(self.path, f"package[{position}]"), "an entry of package has no name")
                continue
            line = self.lines.get((name, version if isinstance(version, str) else None), self.lines.get((name, None)))
            source = Source(self.path, f"package.{name}", line)
            if version is not None and not isinstance(version, str):
                self.skip(source, f"the version of {echo(name)} is not a string")
                version = None
            found.append((self.describe(name, version, source, table), table))
        return found

    def skip(self, source: Source, reason: str) -> None:
        """Note what could not be used."""
        self.skipped.append(Skipped(source, reason, self.remedy, named=True))


def list_tables(file: TomlFile, remedy: str) -> list[Any]:
    """Return the ``[[package]]`` tables of a lock.

    Raises:
        InputError: ``package`` is something else.
    """
    tables = file.data.get("package", [])
    if not isinstance(tables, list):
        message = "has no [[package]]"
        raise InputError(message, source=Source(file.path, "package"), hint=remedy)
    return tables


def check_version(
    path: str, key: str, stated: object, understood: Sequence[int], newest: tuple[int, int], remedy: str
) -> list[str]:
    """Return what is to be said of a lock's version, ``metadata.lock-version``: that it is a newer one.

    Raises:
        InputError: its major version is none of those that are understood.
    """
    version = parse_version(stated) if isinstance(stated, str) else None
    if version is None or version.major not in understood:
        several = "s" if len(understood) > 1 else ""
        known = f"version{several} {' and '.join(map(str, understood))} {'are' if several else 'is'} understood"
        message = f"is of {key} {echo_value(stated)}; {known}"
        raise InputError(message, source=Source(path, f"metadata.{key}"), hint=f"upgrade compatcheck, or {remedy}")
    newer = f"{path} is of {key} {version}, newer than the {'.'.join(map(str, newest))} that is understood"
    return [newer] if version.release[:2] > newest else []


def read_project(path: str, files: Files, notes: list[str]) -> Stated | None:
    """Read the requirements of the project beside a lock; None where it states none."""
    manifest = os.path.join(os.path.dirname(path), "pyproject.toml")
    if path == STANDARD_INPUT or not files.is_file(manifest):
        return None
    try:
        stated = read_stated(manifest, files)
    except InputError as error:
        notes.append(f"{error}; the groups of the lock are not told apart")
        return None
    return stated if stated.required or stated.groups or stated.optional else None


def depend(item: Requirement) -> Dependency:
    """Return the dependency that a requirement states."""
    return Dependency(item.name, item.specifier, item.marker, split_names(item.details.get("extras")))


def split_names(text: str | None) -> tuple[str, ...]:
    """Split ``cpu, train`` into canonical names."""
    return tuple(canonical_name(name.strip()) for name in (text or "").split(",") if name.strip())


def describe_origin(name: str, stated: Mapping[str, Any]) -> tuple[dict[str, str], str | None]:
    """Describe where an entry of pdm or pipenv comes from, and the version that its file name tells."""
    details: dict[str, str] = {}
    version = None
    for kind in ("git", "hg", "svn", "bzr"):
        if isinstance(stated.get(kind), str):
            revision = stated.get("ref") or stated.get("revision")
            details.update(source=kind, vcs=kind, direct_url=redact(stated[kind]), revision=str(revision or ""))
            version = None if "subdirectory" in stated else read_tag(str(stated.get("ref") or ""))
    for kind in ("file", "path", "url"):
        if isinstance(stated.get(kind), str):
            _, version, more = read_url(stated[kind], name)
            details.update(more, source=kind)
    if stated.get("editable") is True:
        details["editable"] = "true"
    return details, version
