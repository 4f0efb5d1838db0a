"""What ``pip list``, ``uv pip list`` and ``pip inspect`` print: the packages of one installed environment.

Columns, the older ``name (version)`` and JSON are read. https://pip.pypa.io/en/stable/cli/pip_list/,
https://pip.pypa.io/en/stable/reference/inspect-report/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.requirements.lines import decode
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_text
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import read_json
from compatcheck.core.markers import canonical_name
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import redact
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo, echo_value, read_bytes
from compatcheck.core.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEADER = re.compile(r"Package[ \t]+Version\b(.*)")
_RULE = re.compile(r"-{2,}(?:[ \t]+-{2,})+[ \t]*")
_ROW = re.compile(r"([A-Za-z0-9][\w.-]*)[ \t]+(\S+)(?:[ \t]+(\S.*))?")
_LEGACY = re.compile(r"([A-Za-z0-9][\w.-]*) \(([^\s,()]+)(?:, ([^()]+))?\)")
_REMARK = re.compile(r"\s*(?:\[notice\]|(?:WARNING|DEPRECATION|warning|ERROR|error)\b|\$ |> |#)")
_INTERPRETER = re.compile(r"Using Python (\d+(?:\.\d+)+\S*) environment")
_REMEDY = "write it anew: pip list > packages.txt"


class _Listed(NamedTuple):
    name: str
    version: str
    line: int | None
    details: Mapping[str, str] = {}


def read_pip_list(path: str, files: Files = LOCAL) -> Environment:
    """Read what ``pip list`` or ``uv pip list`` printed."""
    text, note = decode(read_bytes(path, files), path)
    if text.lstrip()[:1] == "[":
        return _collect(path, _read_json_list(path, files))
    notes = [note] if note else []
    interpreter = _INTERPRETER.search(text)
    environment = _collect(path, _read_lines(text, path, notes))
    return environment._replace(python=interpreter[1] if interpreter else None, notes=(*notes, *environment.notes))


def read_pip_inspect(path: str, files: Files = LOCAL) -> Environment:
    """Read the report of ``pip inspect``."""
    file = read_json(path, files)
    data = as_table(file.data)
    version, installed = data.get("version"), data.get("installed")
    if version != "1" or not isinstance(installed, list):
        message = f"is no report of pip inspect of version 1 (version {echo_value(version)})"
        raise InputError(message, source=Source(path, "version"), hint="write it anew: pip inspect > environment.json")
    environment = _collect(path, (_read_installed(path, index, entry) for index, entry in enumerate(installed)))
    return environment._replace(python=as_text(as_table(data.get("environment")).get("python_full_version")))


def _collect(path: str, found: Iterator[_Listed | Skipped]) -> Environment:
    packages: dict[str, Package] = {}
    skipped: list[Skipped] = []
    notes: list[str] = []
    for item in found:
        if isinstance(item, Skipped):
            skipped.append(item)
            continue
        name = canonical_name(item.name)
        source = Source(path, item.name, item.line)
        version: str | None = item.version
        if parse_version(item.version) is None:
            reason = f"{echo(item.version)}, the version of {item.name}, is no version"
            skipped.append(Skipped(source, reason, "check the installed environment itself", named=True))
            version = None
        known = packages.setdefault(
            name, Package(name, version, source, "" if version is None else None, dict(item.details))
        )
        if known.version != version:
            notes.append(f"{name} is listed as {known.version} and as {item.version}; the first is taken")
    if not packages and not skipped:
        skipped.append(Skipped(Source(path), "lists no package", _REMEDY, named=True))
    return Environment(path, packages, complete=not skipped, skipped=tuple(skipped), notes=tuple(notes))


def _read_lines(text: str, path: str, notes: list[str]) -> Iterator[_Listed | Skipped]:
    lines = text.splitlines()
    header, rest = _find_header(lines)
    row = _LEGACY if header is None else _ROW
    for number, line in enumerate(lines[rest:], rest + 1):
        text = line.strip()
        match = row.fullmatch(text)
        if match is not None and not _REMARK.match(line):
            name, version, more = match.groups()
            yield _Listed(name, version, number, _describe(header or "", more))
        elif text and not _REMARK.match(line) and not _INTERPRETER.search(line):
            reason = f"{echo(text)} is not a package of the list"
            yield Skipped(Source(path, line=number), reason, "keep what pip printed, and nothing else", named=True)
    if header is not None and "Latest" in header:
        notes.append("lists outdated packages only")
        reason = "is a list of outdated packages, not of all"
        yield Skipped(Source(path, line=rest - 1), reason, _REMEDY)


def _find_header(lines: list[str]) -> tuple[str | None, int]:
    """Find the header above its rule of dashes: (its further columns, index of the first row), else (None, 0)."""
    for index in range(len(lines) - 1):
        match = _HEADER.fullmatch(lines[index].strip())
        if match and _RULE.fullmatch(lines[index + 1].strip()):
            return match[1], index + 2
    return None, 0


def _describe(header: str, more: str | None) -> dict[str, str]:
    if not more:
        return {}
    if "Editable project location" in header:
        # A column for the installer may follow; a location may hold blanks, so it is not cut.
        return {"editable": "true", "direct_url": redact(more.strip())} if "/" in more or "\\" in more else {}
    return {"editable": "true", "direct_url": redact(more.strip())} if not header else {}


def _read_json_list(path: str, files: Files = LOCAL) -> Iterator[_Listed | Skipped]:
    data = read_json(path, files).data
    for index, entry in enumerate(data if isinstance(data, list) else []):
        name, version = as_table(entry).get("name"), as_table(entry).get("version")
        if not isinstance(name, str) or not isinstance(version, str):
            yield Skipped(Source(path, f"[{index}]"), "an entry has no name and version", _REMEDY, named=True)
            continue
        location = entry.get("editable_project_location")
        details = {"editable": "true", "direct_url": redact(location)} if isinstance(location, str) and location else {}
        yield _Listed(name, version, None, details)
    if any(isinstance(entry, dict) and "latest_version" in entry for entry in data):
        yield Skipped(Source(path), "is a list of outdated packages, not of all", _REMEDY)


def _read_installed(path: str, index: int, entry: object) -> _Listed | Skipped:
    source = Source(path, f"installed[{index}]")
    table = as_table(entry)
    metadata = as_table(table.get("metadata"))
    name, version = metadata.get("name"), metadata.get("version")
    if not isinstance(name, str) or not isinstance(version, str):
        return Skipped(source, "an entry has no name and version", "write it anew: pip inspect", named=True)
    details: dict[str, str] = {}
    if isinstance(table.get("installer"), str):
        details["installer"] = table["installer"]
    details.update(_describe_origin(table.get("direct_url")))
    return _Listed(name, version, None, details)


def _describe_origin(value: object) -> dict[str, str]:
    """Read a ``direct_url`` (PEP 610)."""
    origin = as_table(value)
    details: dict[str, str] = {}
    if isinstance(origin.get("url"), str):
        details["direct_url"] = redact(origin["url"])
    vcs, directory = origin.get("vcs_info"), origin.get("dir_info")
    if isinstance(vcs, dict):
        revision = vcs.get("requested_revision") or vcs.get("commit_id")
        details.update(vcs=str(vcs.get("vcs", "")), revision=str(revision or ""))
    if isinstance(directory, dict) and directory.get("editable") is True:
        details["editable"] = "true"
    return details
