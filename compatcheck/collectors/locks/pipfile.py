"""``Pipfile``: what a project requires, as ranges.

https://pipenv.pypa.io/en/latest/pipfile.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.environment import Environment
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import LINUX, canonical_name, describe_machine
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import Requirement, combine, read_url
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo_value
from compatcheck.core.toml import locate_key, read_toml
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FORM = 'write it as name = "*", name = ">=1.2" or name = {version = ">=1.2", extras = ["x"]}'
_PYTHON = re.compile(r"\d{1,2}\.\d{1,3}(\.\d{1,3})?", re.ASCII)
_NO_PACKAGES = {"requires", "scripts", "pipenv", "source", "pipfile"}
_MARKERS = (
    *LINUX,
    "python_version",
    "python_full_version",
    "implementation_version",
    "platform_version",
    "platform_release",
)
"""Markers that may be keys of their own: ``sys_platform = "== 'win32'"``."""


def read_pipfile(
    path: str, files: Files = LOCAL, *, marker_environment: Mapping[str, str] | None = None, groups: Iterable[str] = ()
) -> Environment:
    """Read the requirements of a project.

    Args:
        path: the file.
        files: the tree it lies in.
        marker_environment: known marker variables, such as ``python_full_version``.
        groups: sections selected beside ``packages``: ``dev-packages`` or package categories.

    Raises:
        InputError: it cannot be read or is not TOML.
    """
    file = read_toml(path, files)
    chosen = {"packages", *groups}
    required: list[Requirement] = []
    skipped: list[Skipped] = []
    sections = {
        name: table for name, table in file.data.items() if isinstance(table, dict) and name not in _NO_PACKAGES
    }
    sources = read_sources(file.data.get("source"))
    for section in sorted(chosen & set(sections)):
        for name, value in sections[section].items():
            source = Source(path, f"{section}.{name}", locate_key(file.text, section, name))
            try:
                required.append(_read_item(name, value, source, sources))
            except ValueError as error:
                skipped.append(Skipped(source, str(error), _FORM, named=True))
    environment = describe_machine(read_machine(file.data.get("requires"), marker_environment))
    combined = combine(required, environment)
    left = sorted(set(sections) - chosen)
    notes = [f"sections not selected: {', '.join(left)}"] if left else []
    if not combined.packages and not skipped:
        skipped.append(Skipped(Source(path), "states no requirements", "check the lock or environment of the project"))
    return Environment(
        path,
        combined.packages,
        complete=False,
        damage=combined.damage,
        skipped=tuple(skipped),
        notes=(*notes, *combined.notes),
    )


def _read_item(name: str, value: object, source: Source, sources: Mapping[str, str]) -> Requirement:
    stated: Mapping[str, Any]
    if isinstance(value, dict):
        stated = value
    elif isinstance(value, str):
        stated = {"version": value}
    else:
        message = f"{name} = {echo_value(value)} is not a requirement"
        raise InvalidSpecifierError(message)
    details, version = describe_origin(name, stated, sources)
    written = stated.get("version", "*")
    if not isinstance(written, str):
        message = f"the version of {name} is not a string"
        raise InvalidSpecifierError(message)
    specifier = "" if written.strip() == "*" else written.strip()
    if specifier[:1].isdigit() and parse_version(specifier) is not None:
        specifier = f"=={specifier}"
    compile_specifier(specifier)
    return Requirement(canonical_name(name), specifier, source, version, join_markers(stated), details)


def read_machine(requires: object, marker_environment: Mapping[str, str] | None) -> dict[str, str]:
    """Read the Python of ``[requires]`` of a Pipfile or its lock, where the caller knows none."""
    known = dict(marker_environment or {})
    if "python_full_version" in known or "python_version" in known:
        return known
    stated = requires if isinstance(requires, dict) else {}
    for key in ("python_full_version", "python_version"):
        text = stated.get(key)
        if isinstance(text, str) and _PYTHON.fullmatch(text):
            return {**known, key: text}
    return known


def read_sources(value: object) -> dict[str, str]:
    """Read the indexes that entries name: URLs by name."""
    tables = [table for table in value if isinstance(table, dict)] if isinstance(value, list) else []
    pairs = ((table.get("name"), table.get("url")) for table in tables)
    return {name: url for name, url in pairs if isinstance(name, str) and isinstance(url, str)}


def describe_origin(
    name: str, stated: Mapping[str, Any], sources: Mapping[str, str]
) -> tuple[dict[str, str], str | None]:
    """Describe where an entry comes from, and the version that its file name tells."""
    details: dict[str, str] = {}
    version = None
    for kind in ("git", "hg", "svn", "bzr"):
        if isinstance(stated.get(kind), str):
            reference = stated.get("ref")
            revision = reference if isinstance(reference, str) else ""
            details.update(source=kind, vcs=kind, direct_url=redact(stated[kind]), revision=revision)
    for kind in ("file", "path", "url"):
        if isinstance(stated.get(kind), str):
            _, version, more = read_url(stated[kind], name)
            details.update(more, source=kind)
    if stated.get("editable") is True:
        details["editable"] = "true"
    if isinstance(stated.get("index"), str):
        details["index"] = redact(sources.get(stated["index"], stated["index"]))
    if isinstance(stated.get("extras"), list):
        details["extras"] = ",".join(sorted(extra for extra in stated["extras"] if isinstance(extra, str)))
    return details, version


def join_markers(stated: Mapping[str, Any]) -> str | None:
    """Join ``markers`` and the markers that are keys of their own.

    Raises:
        InvalidSpecifierError: one of them is not a string.
    """
    clauses = []
    for key in ("markers", *_MARKERS):
        value = stated.get(key)
        if value is None:
            continue
        if not isinstance(value, str):
            message = f"{key} is not a string"
            raise InvalidSpecifierError(message)
        clauses.append(f"({value})" if key == "markers" else f"({key} {value})")
    return " and ".join(clauses) or None
