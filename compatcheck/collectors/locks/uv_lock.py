"""``uv.lock``: what ``uv sync`` installs of it on one interpreter, without development groups.

The project has an entry of its own, and the way to every other entry begins there; markers say on which Pythons it is open.
A dependency names the very entry it means, by version with local label and by source; conflict markers ask for the extras of the
project anywhere in the graph. https://docs.astral.sh/uv/concepts/projects/layout/#the-lockfile
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import Dependency, Entry, Lock, select_entries
from compatcheck.collectors.locks.tables import Tables
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_tables, as_text, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.redaction import redact
from compatcheck.core.selection import DEFAULT, Choice, Selection, offer
from compatcheck.core.source import Source
from compatcheck.core.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from compatcheck.core.environment import Environment

_VERSION = 1
_REMEDY = "make the lock anew with `uv lock`"
_LOCAL = ("editable", "virtual", "directory")


def read_uv_lock(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read a lock file and select what it installs on Linux.

    ``selection`` names the extras and dependency groups of the workspace members that are installed, the ``dev`` group only
    when it is named; the Python, without which versions that differ between Pythons are joined with ``||``.
    """
    file = read_toml(path, files)
    version = file.data.get("version")
    if version != _VERSION or isinstance(version, bool):
        message = f"is of version {version!r}; version {_VERSION} is understood"
        raise InputError(message, source=Source(path, "version"), hint=f"upgrade compatcheck, or {_REMEDY}")
    reading = _Reading(file, _REMEDY)
    graph = _Graph(reading.read())
    manifest = as_table(file.data.get("manifest"))
    stated = as_tables(manifest.get("requirements"))
    roots = graph.roots(as_texts(manifest.get("members")), is_script=bool(stated))
    offered = graph.offered(roots)
    chosen = selection.choose(offered)
    conflicts = _read_conflicts(file.data.get("conflicts"), {graph.entries[root].name for root in roots})
    for conflict in conflicts:
        if len(conflict & chosen) > 1:
            message = f"{', '.join(f'--{choice}' for choice in sorted(conflict & chosen))} exclude each other"
            hint = "select one of them; --all-extras selects them all"
            raise InputError(message, source=Source(path, "conflicts"), hint=hint)
    machine = describe_machine(selection.markers, requires_python=as_text(file.data.get("requires-python")))

    def select(choices: frozenset[Choice]) -> Lock:
        environment = machine._replace(extras=graph.encode(roots, choices))
        lock = Lock(graph.entries, environment, _REMEDY, keeps_extras=True)
        lock.follow((*graph.depend(stated), *graph.enter(roots, choices)))
        return lock

    ruled_out = {choice for conflict in conflicts if conflict & chosen for choice in conflict - chosen}
    notes = [f"excluded by what is selected: {', '.join(map(str, sorted(ruled_out)))}"] if ruled_out else []
    installed = select_entries(path, select, offered - ruled_out, chosen, skipped=reading.skipped, notes=notes)
    return installed._replace(offered=offered)


def _read_conflicts(value: object, projects: Collection[str]) -> list[frozenset[Choice]]:
    """Read the sets of extras and groups of which only one can be installed."""
    return [
        frozenset(
            Choice(kind, canonical_name(item[kind]))
            for item in as_tables(conflict)
            if canonical_name(str(item.get("package", ""))) in projects
            for kind in ("extra", "group")
            if isinstance(item.get(kind), str)
        )
        for conflict in (value if isinstance(value, list) else ())
    ]


class _Reading(Tables):
    """The entries of one file; what they require is known once all of them are."""

    def describe(self, name: str, version: str | None, source: Source, table: Mapping[str, Any]) -> Entry:
        """Return the entry that a table describes."""
        marker = " or ".join(f"({text})" for text in as_texts(table.get("resolution-markers"))) or None
        return Entry(canonical_name(name), version, source, marker=marker, details=_details(table))


class _Graph:
    """The entries of a lock with what each requires, and the projects among them."""

    def __init__(self, read: list[tuple[Entry, Mapping[str, Any]]]) -> None:
        self.tables = [table for _, table in read]
        self._by_name: dict[str, list[int]] = {}
        for index, (entry, _) in enumerate(read):
            self._by_name.setdefault(entry.name, []).append(index)
        self.entries = [
            entry._replace(
                dependencies=tuple(self.depend(table.get("dependencies"))),
                by_extra={
                    extra: tuple(self.depend(items))
                    for extra, items in _by_name(table.get("optional-dependencies")).items()
                },
            )
            for entry, table in read
        ]

    def depend(self, items: object) -> Iterator[Dependency]:
        """Read dependencies, each with the entries it names."""
        for item in as_tables(items):
            name = item.get("name")
            if isinstance(name, str):
                entries = self._by_name.get(canonical_name(name), [])
                for key in ("version", "source"):
                    if item.get(key) is not None:
                        entries = [index for index in entries if self.tables[index].get(key) == item[key]] or entries
                extras = tuple(map(canonical_name, as_texts(item.get("extra") or item.get("extras"))))
                yield Dependency(canonical_name(name), "", as_text(item.get("marker")), extras, tuple(entries))

    def roots(self, members: Iterable[str], *, is_script: bool) -> list[int]:
        """Find what ``uv sync`` starts from: the project itself, else every member of the workspace, else all packages.

        The lock of a script has no project: it starts from the requirements in the manifest.
        """
        sources = [as_table(table.get("source")) for table in self.tables]
        project = [index for index, source in enumerate(sources) if "." in map(source.get, _LOCAL)]
        named = [index for member in members for index in self._by_name.get(canonical_name(member), ())]
        local = [index for index, source in enumerate(sources) if "editable" in source or "virtual" in source]
        found = project or sorted(set(named)) or local
        return found if found or is_script else list(range(len(self.tables)))

    def offered(self, roots: Iterable[int]) -> frozenset[Choice]:
        """Return the extras and groups of the roots."""
        found: frozenset[Choice] = frozenset()
        for root in roots:
            table = self.tables[root]
            metadata = as_table(table.get("metadata"))
            extras = (*self.entries[root].by_extra, *as_texts(metadata.get("provides-extras")))
            found |= offer(extras, (*_by_name(table.get("dev-dependencies")), *_by_name(metadata.get("requires-dev"))))
        return found

    def encode(self, roots: Iterable[int], choices: Iterable[Choice]) -> frozenset[str]:
        """Name extras as markers do, and as uv encodes extras and groups in conflict markers: ``extra-4-demo-cpu``."""
        names = [self.entries[index].name for index in roots]
        encoded = {f"{choice.kind}-{len(name)}-{name}-{choice.name}" for name in names for choice in choices}
        return frozenset(encoded.union(choice.name for choice in choices if choice.kind == "extra"))

    def enter(self, roots: Iterable[int], choices: frozenset[Choice]) -> Iterator[Dependency]:
        """List what is required from the start: the roots, with the selected extras and dependency groups."""
        for root in roots:
            entry = self.entries[root]
            extras = tuple(extra for extra in entry.by_extra if Choice("extra", extra) in choices)
            yield Dependency(entry.name, extras=extras, entries=(root,))
            for group, items in _by_name(self.tables[root].get("dev-dependencies")).items():
                if Choice("group", group) in choices:
                    yield from self.depend(items)


def _details(table: Mapping[str, Any]) -> dict[str, str]:
    details: dict[str, str] = {}
    for kind, location in as_table(table.get("source")).items():
        details["source"] = str(kind)
        if kind == "editable":
            details["editable"] = "true"
        if kind == "git":
            address, _, commit = str(location).partition("#")
            base, _, query = address.partition("?")
            revision = dict(part.partition("=")[::2] for part in query.split("&"))
            named = revision.get("rev") or revision.get("tag") or revision.get("branch") or commit
            details.update(vcs="git", direct_url=redact(base), revision=named)
        elif kind == "registry":
            details["index"] = redact(str(location))
        elif kind == "url":
            details["direct_url"] = redact(str(location))
    return details


def _by_name(value: object) -> dict[str, Any]:
    return {canonical_name(str(name)): item for name, item in as_table(value).items()}
