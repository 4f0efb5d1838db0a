"""``Pipfile.lock``: what ``pipenv sync`` installs of it on one interpreter, the section ``default`` only.

https://pipenv.pypa.io/en/latest/pipfile.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import Entry, Lock, select_entries
from compatcheck.collectors.locks.pipfile import join_markers, read_details, read_machine, read_sources
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import locate_members, read_json
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.selection import DEFAULT, Selection, offer
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo, echo_value
from compatcheck.core.versions import exact_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.selection import Choice

_REMEDY = "make the lock anew with `pipenv lock`"
_SPEC = 6
"""pipfile-spec that pipenv has written since 2017."""


def read_pipfile_lock(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read a lock file and select what it installs on Linux.

    ``selection`` names the sections installed beside ``default`` (``develop`` or package categories), and the Python.
    """
    file = read_json(path, files)
    data = as_table(file.data)
    meta = data.get("_meta")
    if not isinstance(meta, dict):
        message = "has no _meta: it is not a Pipfile.lock"
        raise InputError(message, source=Source(path, "_meta"), hint=_REMEDY)
    if meta.get("pipfile-spec") != _SPEC:
        message = f"is of pipfile-spec {echo_value(meta.get('pipfile-spec'))}; {_SPEC} is understood"
        source = Source(path, "_meta.pipfile-spec")
        raise InputError(message, source=source, hint=f"upgrade compatcheck, or {_REMEDY}")
    lines = locate_members(file.text)
    skipped: list[Skipped] = []
    entries: list[Entry] = []
    sections: list[str] = []
    sources = read_sources(meta.get("sources"))
    for section, members in data.items():
        if section == "_meta":
            continue
        if not isinstance(members, dict):
            reason = f"the section {echo(section)} is not an object"
            skipped.append(Skipped(Source(path, section), reason, _REMEDY, named=True))
            continue
        for name, member in members.items():
            source = Source(path, f"{section}.{name}", lines.get((section, name)))
            entry = _read_entry(name, member, source, sources)
            if isinstance(entry, Skipped):
                skipped.append(entry)
            else:
                entries.append(entry)
                sections.append(canonical_name(section))
    environment = describe_machine(read_machine(meta.get("requires"), selection))
    offered = offer((), set(sections) - {"default"})

    def select(chosen: frozenset[Choice]) -> Lock:
        lock = Lock(entries, environment, _REMEDY)
        wanted = {"default", *(choice.name for choice in chosen)}
        lock.select(index for index, section in enumerate(sections) if section in wanted)
        return lock

    return select_entries(path, select, offered, selection.choose(offered), skipped=skipped, groups="sections")


def _read_entry(name: str, member: object, source: Source, sources: Mapping[str, str]) -> Entry | Skipped:
    stated: Any = {"version": member} if isinstance(member, str) else member
    if not isinstance(stated, dict):
        return Skipped(source, f"the entry of {echo(name)} is not an object", _REMEDY, named=True)
    details, named = read_details(name, stated, sources)
    version = stated.get("version")
    if version is not None and not isinstance(version, str):
        return Skipped(source, f"the version of {echo(name)} is not a string", _REMEDY, named=True)
    if version is not None:
        pinned = exact_version(version)
        if pinned is None and version != "*":
            return Skipped(source, f"{echo(version)}, the version of {name}, is no pin", _REMEDY, named=True)
        named = pinned
    try:
        marker = join_markers(stated)
    except ValueError as error:
        return Skipped(source, f"{name}: {error}", _REMEDY, named=True)
    return Entry(canonical_name(name), named, source, marker=marker, details=details)
