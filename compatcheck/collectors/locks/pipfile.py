"""``Pipfile``: what a project requires, as ranges.

https://pipenv.pypa.io/en/latest/pipfile.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.tables import describe_origin
from compatcheck.collectors.requirements.pyproject import Stated
from compatcheck.core.expected_shapes import as_table, as_tables
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import LINUX, canonical_name
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import Requirement
from compatcheck.core.selection import DEFAULT, Selection
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo_value
from compatcheck.core.toml import locate_key, read_toml
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment

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


def read_pipfile(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read the requirements of a project.

    ``selection`` names the sections installed beside ``packages`` (``dev-packages`` or package categories), and the Python.
    """
    file = read_toml(path, files)
    skipped: list[Skipped] = []
    sections = {
        name: table for name, table in file.data.items() if isinstance(table, dict) and name not in _NO_PACKAGES
    }
    sources = read_sources(file.data.get("source"))
    stated: dict[str, list[Requirement]] = {}
    for section, items in sections.items():
        for name, value in items.items():
            source = Source(path, f"{section}.{name}", locate_key(file.text, section, name))
            try:
                stated.setdefault(canonical_name(section), []).append(_read_item(name, value, source, sources))
            except ValueError as error:
                skipped.append(Skipped(source, str(error), _FORM, named=True))
    required = tuple(stated.pop("packages", ()))
    groups = {
        canonical_name(name): tuple(stated.get(canonical_name(name), ())) for name in sections if name != "packages"
    }
    markers = read_machine(file.data.get("requires"), selection)
    environment = Stated(required, {}, groups, None).select(path, selection, skipped, markers=markers)
    left = sorted(choice.name for choice in environment.offered - selection.choose(environment.offered))
    notes = [f"sections not selected: {', '.join(left)}"] if left else []
    return environment._replace(notes=(*notes, *environment.notes))


def _read_item(name: str, value: object, source: Source, sources: Mapping[str, str]) -> Requirement:
    stated: Mapping[str, Any]
    if isinstance(value, dict):
        stated = value
    elif isinstance(value, str):
        stated = {"version": value}
    else:
        message = f"{name} = {echo_value(value)} is not a requirement"
        raise InvalidSpecifierError(message)
    details, version = read_details(name, stated, sources)
    written = stated.get("version", "*")
    if not isinstance(written, str):
        message = f"the version of {name} is not a string"
        raise InvalidSpecifierError(message)
    specifier = "" if written.strip() == "*" else written.strip()
    if specifier[:1].isdigit() and parse_version(specifier) is not None:
        specifier = f"=={specifier}"
    compile_specifier(specifier)
    return Requirement(canonical_name(name), specifier, source, version, join_markers(stated), details)


def read_machine(requires: object, selection: Selection) -> Mapping[str, str] | None:
    """Read the Python of ``[requires]`` of a Pipfile or its lock, where the person named none."""
    if selection.markers is not None:
        return selection.markers
    for key in ("python_full_version", "python_version"):
        text = as_table(requires).get(key)
        if isinstance(text, str) and _PYTHON.fullmatch(text):
            return {key: text}
    return None


def read_sources(value: object) -> dict[str, str]:
    """Read the indexes that entries name: URLs by name."""
    pairs = ((table.get("name"), table.get("url")) for table in as_tables(value))
    return {name: url for name, url in pairs if isinstance(name, str) and isinstance(url, str)}


def read_details(name: str, stated: Mapping[str, Any], sources: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Describe an entry by where it comes from, its index and extras, and read the version that its file name tells."""
    details, version = describe_origin(name, stated)
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
