"""``pdm.lock`` (lock_version 4): what ``pdm sync --prod`` installs of it on one interpreter, the default group only.

With the strategy ``inherit_metadata`` an entry says itself in which groups and under which marker it is installed. Without,
the ``pyproject.toml`` beside the lock is where the way to an entry begins, as it is for pdm.
https://pdm-project.org/latest/usage/lockfile/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import Entry, Lock, select_entries
from compatcheck.collectors.locks.tables import Tables, check_version, depend, describe_origin, read_project
from compatcheck.core.expected_shapes import as_table, as_tables, as_text, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import LINUX, canonical_name, describe_machine
from compatcheck.core.requirement import InvalidRequirementError, parse_requirement
from compatcheck.core.selection import DEFAULT, Choice, Selection, offer
from compatcheck.core.textfile import echo
from compatcheck.core.toml import read_toml
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.source import Source

_REMEDY = "make the lock anew with `pdm lock`"
_VERSIONS = (4,)
_NEWEST = (4, 5)
"""lock_version that pdm 2.29 writes."""


def read_pdm_lock(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read a lock file and select what it installs on Linux.

    ``selection`` names the groups installed beside ``default``, among which pdm counts the extras: ``pdm sync`` takes
    development groups too, a deployment does not; the Python, without which versions that differ between Pythons are joined
    with ``||``.
    """
    file = read_toml(path, files)
    metadata = as_table(file.data.get("metadata"))
    notes = check_version(path, "lock_version", metadata.get("lock_version"), _VERSIONS, _NEWEST, _REMEDY)
    reading = _Reading(file, _REMEDY)
    read = reading.read()
    requires = _read_targets(path, metadata, notes)
    environment = describe_machine(selection.markers, requires_python=requires)
    groups = [_groups(table) for _, table in read]
    says_groups = any(groups)
    project = read_project(path, files, [] if says_groups else notes)
    if project is None and not says_groups:
        notes.append(
            "the lock is without the strategy inherit_metadata, and no pyproject.toml beside it states requirements: "
            "entries are taken whatever leads to them, those of all groups included"
        )
    named = {*map(canonical_name, as_texts(metadata.get("groups"))), *(group for entry in groups for group in entry)}
    if project is not None:
        named |= {*project.groups, *project.optional}
    named -= {"default"}
    extras = frozenset(named if project is None else project.optional)
    offered = offer((), named)
    chosen = selection.choose(offered | offer(extras))

    def select(chosen: frozenset[Choice]) -> Lock:
        wanted = frozenset({"default", *(choice.name for choice in chosen)})
        machine = environment._replace(extras=wanted & extras)
        if says_groups:
            lock = Lock([entry for entry, _ in read], machine, _REMEDY)
            lock.select(index for index, entry in enumerate(groups) if not entry or entry & wanted)
            return lock
        lock = Lock(_fold_extras(read), machine, _REMEDY)
        if project is None:
            lock.select(range(len(lock.entries)))
        else:
            kinds = {**dict.fromkeys(project.optional, "extra"), **dict.fromkeys(project.groups, "group")}
            brought = project.brought_by(Choice(kinds[name], name) for name in wanted if name in kinds)
            lock.follow(map(depend, (*project.required, *brought)))
        return lock

    grouped = offer((), (choice.name for choice in chosen))
    installed = select_entries(path, select, offered, grouped, skipped=reading.skipped, notes=notes)
    return installed._replace(offered=offered | offer(extras))


def _read_targets(path: str, metadata: Mapping[str, Any], notes: list[str]) -> str | None:
    """Read the Pythons that the lock is for, and say so where it is for no Linux."""
    targets = as_tables(metadata.get("targets"))
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


class _Reading(Tables):
    """The entries of one file."""

    def describe(self, name: str, version: str | None, source: Source, table: Mapping[str, Any]) -> Entry:
        """Return the entry that a table describes."""
        dependencies = []
        for text in as_texts(table.get("dependencies")):
            try:
                dependencies.append(depend(parse_requirement(text, source)))
            except InvalidRequirementError as error:
                self.skip(source, f"a dependency of {name}: {error}")
        details, named = describe_origin(name, table)
        return Entry(
            canonical_name(name),
            version or named,
            source,
            tuple(dependencies),
            {},
            as_text(table.get("marker")),
            as_text(table.get("requires_python")),
            details,
        )


def _groups(table: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(map(canonical_name, as_texts(table.get("groups"))))
