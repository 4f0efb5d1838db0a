"""``uv.lock``: walk its graph from the project to what is installed on one interpreter.

A uv lock is universal: one distribution can stand in it several times, once per fork of the resolution, and only the
markers on the way from the root tell which one an interpreter gets.
https://docs.astral.sh/uv/concepts/resolution/#universal-resolution
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import MOST_ENTRIES, say_absent, say_unselected
from compatcheck.collectors.locks.tables import list_tables
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_tables, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import (
    InvalidMarkerError,
    MarkerEnvironment,
    canonical_name,
    describe_machine,
    evaluate,
)
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import add_unselected
from compatcheck.core.selection import DEFAULT, Choice, Selection, offer
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo
from compatcheck.core.toml import locate_entries, read_toml
from compatcheck.core.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
    entries = list_tables(file, _REMEDY)
    requires = file.data.get("requires-python")
    requires = requires if isinstance(requires, str) else None
    graph = _Graph(path, entries, locate_entries(file.text, "package"))
    manifest = as_table(file.data.get("manifest"))
    stated = as_tables(manifest.get("requirements"))
    roots = graph.roots(as_texts(manifest.get("members")), is_script=bool(stated))
    offered = graph.offered(roots)
    chosen = selection.choose(offered)
    conflicts = _read_conflicts(
        file.data.get("conflicts"), {canonical_name(graph.packages[root]["name"]) for root in roots}
    )
    for conflict in conflicts:
        if len(conflict & chosen) > 1:
            message = f"{', '.join(f'--{choice}' for choice in sorted(conflict & chosen))} exclude each other"
            hint = "select one of them; --all-extras selects them all"
            raise InputError(message, source=Source(path, "conflicts"), hint=hint)
    machine = describe_machine(selection.markers, requires_python=requires)

    def select(choices: frozenset[Choice]) -> _Selected:
        environment = machine._replace(extras=graph.encode(roots, choices))
        selected = _Selected(graph, environment)
        for python in environment.pythons:
            walk = _Walk(graph, environment, python)
            for requirement in stated:
                walk.follow(requirement)
            for root in roots:
                walk.enter(root, choices)
            selected.add(walk)
        return selected

    selected = select(chosen)
    ruled_out = {choice for conflict in conflicts if conflict & chosen for choice in conflict - chosen}
    unselected = offered - chosen - ruled_out
    packages = add_unselected(selected.packages(), unselected, lambda more: select(chosen | more).packages())
    notes = [*selected.notes, *say_absent(set(graph.by_name) - set(packages)), *say_unselected(unselected)]
    if ruled_out:
        notes.append(f"excluded by what is selected: {', '.join(map(str, sorted(ruled_out)))}")
    return Environment(
        path,
        packages,
        complete=not graph.skipped,
        python=machine.pythons[0] if len(machine.pythons) == 1 else None,
        skipped=tuple(dict.fromkeys(graph.skipped)),
        notes=tuple(dict.fromkeys(notes)),
        offered=offered,
    )


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


class _Graph:
    """The packages of a lock by index and by name."""

    def __init__(self, path: str, entries: list[Any], lines: Mapping[tuple[str, str | None], int]) -> None:
        self.path = path
        self.lines = lines
        self.skipped: list[Skipped] = []
        self.packages: list[Mapping[str, Any]] = []
        self.by_name: dict[str, list[int]] = {}
        for position, entry in enumerate(entries):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                source = Source(path, f"package[{position}]")
                self.skipped.append(Skipped(source, "an entry of package has no name", _REMEDY, named=True))
                continue
            known = self.by_name.setdefault(canonical_name(entry["name"]), [])
            if len(known) >= MOST_ENTRIES:
                source = Source(path, f"package[{position}]")
                reason = f"{entry['name']} stands in the lock more than {MOST_ENTRIES} times"
                self.skipped.append(Skipped(source, reason, _REMEDY, named=True))
                continue
            known.append(len(self.packages))
            self.packages.append(entry)

    def roots(self, members: Iterable[str], *, is_script: bool) -> list[int]:
        """Find what ``uv sync`` starts from: the project itself, else every member of the workspace, else all packages.

        The lock of a script has no project: it starts from the requirements in the manifest.
        """
        project = [index for index, entry in enumerate(self.packages) if "." in _origin(entry, *_LOCAL)]
        named = [index for member in members for index in self.by_name.get(canonical_name(member), ())]
        local = [index for index, entry in enumerate(self.packages) if _origin(entry, "editable", "virtual")]
        found = project or sorted(set(named)) or local
        return found if found or is_script else list(range(len(self.packages)))

    def offered(self, roots: Iterable[int]) -> frozenset[Choice]:
        """Return the extras and groups of the roots."""
        found: frozenset[Choice] = frozenset()
        for root in roots:
            entry = self.packages[root]
            metadata = as_table(entry.get("metadata"))
            extras = (*_by_name(entry.get("optional-dependencies")), *as_texts(metadata.get("provides-extras")))
            found |= offer(extras, (*_by_name(entry.get("dev-dependencies")), *_by_name(metadata.get("requires-dev"))))
        return found

    def encode(self, roots: Iterable[int], choices: Iterable[Choice]) -> frozenset[str]:
        """Name extras as markers do, and as uv encodes extras and groups in conflict markers: ``extra-4-demo-cpu``."""
        names = [canonical_name(self.packages[index]["name"]) for index in roots]
        encoded = {f"{choice.kind}-{len(name)}-{name}-{choice.name}" for name in names for choice in choices}
        return frozenset(encoded.union(choice.name for choice in choices if choice.kind == "extra"))

    def package(
        self, name: str, found: Mapping[int, set[str]], environment: MarkerEnvironment, notes: list[str]
    ) -> Package | None:
        """Describe the entries of one distribution that were reached."""
        entries = [self.packages[index] for index in found]
        if all(_origin(entry, "virtual") for entry in entries):
            return None  # a virtual project is not installed
        versions = sorted({entry["version"] for entry in entries if isinstance(entry.get("version"), str)})
        entry = entries[0]
        line = self.lines.get((entry["name"], versions[0] if versions else None), self.lines.get((entry["name"], None)))
        details = _details(entry)
        covered = set().union(*found.values())
        if len(versions) > 1:
            notes.append(f"{name}: {' or '.join(versions)}, depending on the Python version, which is not known")
        elif covered != set(environment.pythons):
            details["marker"] = "some Python versions only"
            notes.append(f"{name}: kept without knowing the Python version; some have no need of it")
        source = Source(self.path, f"package.{entry['name']}", line)
        for version in versions:
            if parse_version(version) is None:
                reason = f"{echo(version)}, the version of {name}, is no version"
                self.skipped.append(Skipped(source, reason, _REMEDY, named=True))
                return Package(name, None, source, "", details)
        if len(versions) == 1:
            return Package(name, versions[0], source, None, details)
        return Package(name, None, source, " || ".join(f"=={version}" for version in versions), details)


class _Selected:
    """What the possible Pythons reach with one selection."""

    def __init__(self, graph: _Graph, environment: MarkerEnvironment) -> None:
        self.graph = graph
        self.environment = environment
        self.notes: list[str] = []
        self._reached: dict[str, dict[int, set[str]]] = {}

    def add(self, walk: _Walk) -> None:
        """Take what one Python reaches."""
        for index in walk.reached:
            name = canonical_name(self.graph.packages[index]["name"])
            self._reached.setdefault(name, {}).setdefault(index, set()).add(walk.python)
        self.notes += walk.notes

    def packages(self) -> dict[str, Package]:
        """Describe what was reached."""
        described = (
            (name, self.graph.package(name, found, self.environment, self.notes))
            for name, found in sorted(self._reached.items())
        )
        return {name: package for name, package in described if package is not None}


class _Walk:
    """What one Python reaches from the roots."""

    def __init__(self, graph: _Graph, environment: MarkerEnvironment, python: str) -> None:
        self.graph = graph
        self.environment = environment
        self.python = python
        self.reached: dict[int, set[str]] = {}
        self.notes: list[str] = []
        self._queue: list[tuple[int, str | None]] = []

    def enter(self, index: int, choices: frozenset[Choice]) -> None:
        """Start at a root, with the selected extras and dependency groups."""
        entry = self.graph.packages[index]
        self._want(index, None)
        for extra in _by_name(entry.get("optional-dependencies")):
            if Choice("extra", extra) in choices:
                self._want(index, extra)
        self._drain()
        for group, dependencies in _by_name(entry.get("dev-dependencies")).items():
            if Choice("group", group) in choices:
                for dependency in as_tables(dependencies):
                    self.follow(dependency)

    def follow(self, dependency: Mapping[str, Any]) -> None:
        """Follow one dependency, when its marker holds, and everything behind it."""
        self._reach(dependency)
        self._drain()

    def _drain(self) -> None:
        while self._queue:
            index, extra = self._queue.pop()
            entry = self.graph.packages[index]
            dependencies = (
                entry.get("dependencies") if extra is None else _by_name(entry.get("optional-dependencies")).get(extra)
            )
            for dependency in as_tables(dependencies):
                self._reach(dependency)

    def _want(self, index: int, extra: str | None) -> None:
        known = self.reached.setdefault(index, set())
        key = extra or ""
        if key not in known:
            known.add(key)
            self._queue.append((index, extra))

    def _reach(self, dependency: Mapping[str, Any]) -> None:
        name = dependency.get("name")
        if not isinstance(name, str) or not self._holds(dependency.get("marker"), name):
            return
        candidates = self.graph.by_name.get(canonical_name(name), [])
        for key in ("version", "source"):
            if dependency.get(key) is not None:
                stated = [index for index in candidates if self.graph.packages[index].get(key) == dependency[key]]
                candidates = stated or candidates
        if len(candidates) > 1:
            candidates = [index for index in candidates if self._fits(self.graph.packages[index])] or candidates
        if not candidates:
            self.notes.append(f"{name} is required in the lock, but not locked in it")
        for index in candidates:
            self._want(index, None)
            for extra in as_texts(dependency.get("extra") or dependency.get("extras")):
                self._want(index, canonical_name(extra))

    def _fits(self, entry: Mapping[str, Any]) -> bool:
        markers = as_texts(entry.get("resolution-markers"))
        return not markers or any(self._holds(marker, entry["name"]) for marker in markers)

    def _holds(self, marker: object, name: str) -> bool:
        if not isinstance(marker, str):
            return True
        try:
            return evaluate(marker, self.environment, self.python) is not False
        except InvalidMarkerError as error:
            self.notes.append(f"{name}: {error}; kept")
            return True


def _origin(entry: Mapping[str, Any], *kinds: str) -> list[str]:
    source = entry.get("source")
    return [str(source[kind]) for kind in kinds if kind in source] if isinstance(source, dict) else []


def _details(entry: Mapping[str, Any]) -> dict[str, str]:
    source = entry.get("source")
    details: dict[str, str] = {}
    for kind, location in source.items() if isinstance(source, dict) else ():
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
    return {canonical_name(str(name)): item for name, item in value.items()} if isinstance(value, dict) else {}
