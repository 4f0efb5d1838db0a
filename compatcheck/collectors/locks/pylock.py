"""``pylock.toml`` (PEP 751): the packages a lock installs on one interpreter.

https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.collectors.locks.graph import say_unselected
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_text, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import (
    InvalidMarkerError,
    MarkerEnvironment,
    canonical_name,
    describe_machine,
    evaluate,
)
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import Combined, Requirement, add_unselected, combine, read_url
from compatcheck.core.selection import DEFAULT, Selection, offer
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo
from compatcheck.core.toml import locate_entries, read_toml
from compatcheck.core.versions import InvalidSpecifierError, all_ordered, compile_specifier, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.selection import Choice

_REMEDY = "make the lock anew with the tool that wrote it"


def read_pylock(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read a lock file and select what it installs on Linux.

    ``selection`` names the extras that are installed, and the dependency groups in place of the lock's ``default-groups``; the
    Python, without which versions that differ between Pythons are joined with ``||``.
    """
    file = read_toml(path, files)
    notes = _check_version(path, file.data)
    entries = file.data.get("packages")
    if not isinstance(entries, list):
        message = "has no [[packages]]"
        raise InputError(message, source=Source(path), hint=_REMEDY)
    default = offer((), as_texts(file.data.get("default-groups")))
    offered = offer(as_texts(file.data.get("extras")), as_texts(file.data.get("dependency-groups"))) | default
    chosen = selection.choose(offered)
    if not any(choice.kind == "group" for choice in chosen):
        chosen |= default
    requires = as_text(file.data.get("requires-python"))
    environment = _describe(selection, requires, chosen)
    notes += _check_python(path, environment, requires)
    notes += _check_environments(path, environment, as_texts(file.data.get("environments")))
    lines = locate_entries(file.text, "packages")
    requirements: list[Requirement] = []
    skipped: list[Skipped] = []
    for index, entry in enumerate(entries):
        source = Source(path, f"packages[{index}]")
        requirement = _read_package(entry, source, lines)
        if isinstance(requirement, Skipped):
            skipped.append(requirement)
        else:
            requirements.append(requirement)

    def select(choices: frozenset[Choice]) -> Combined:
        machine = _describe(selection, requires, choices)
        return combine([requirement for requirement in requirements if _selected(requirement, machine)], machine)

    combined = select(chosen)
    packages = add_unselected(combined.packages, offered - chosen, lambda more: select(chosen | more).packages)
    notes += say_unselected(offered - chosen)
    python = environment.pythons[0] if len(environment.pythons) == 1 else None
    return Environment(
        path,
        packages,
        complete=not skipped,
        python=python,
        damage=combined.damage,
        skipped=tuple(skipped),
        notes=(*notes, *combined.notes),
        offered=offered,
    )


def _describe(selection: Selection, requires: str | None, choices: Iterable[Choice]) -> MarkerEnvironment:
    extras, groups = ([choice.name for choice in choices if choice.kind == kind] for kind in ("extra", "group"))
    return describe_machine(selection.markers, requires_python=requires, extras=extras, groups=groups)


def _check_version(path: str, data: Mapping[str, Any]) -> list[str]:
    version = data.get("lock-version")
    if not isinstance(version, str):
        message = "has no lock-version: it is not a pylock file"
        raise InputError(message, source=Source(path, "lock-version"), hint=_REMEDY)
    parsed = parse_version(version)
    if parsed is None or parsed.major != 1:
        message = f"is of lock-version {echo(version)}; version 1 is understood"
        raise InputError(message, source=Source(path, "lock-version"), hint="upgrade compatcheck, or write version 1.0")
    return [f"{path} is of lock-version {version}, newer than the 1.0 that is understood"] if parsed.minor else []


def _check_python(path: str, environment: MarkerEnvironment, requires: str | None) -> list[str]:
    if requires is None:
        return []
    try:
        bounds = compile_specifier(requires)
    except InvalidSpecifierError as error:
        return [f"{path}: requires-python: {error}"]
    pythons = [version for text in environment.pythons if (version := parse_version(text))]
    if any(all_ordered(bounds, version) for version in pythons):
        return []
    return [f"{path} is for Python {requires}, not for {environment.pythons[0]}"]


def _check_environments(path: str, environment: MarkerEnvironment, markers: tuple[str, ...]) -> list[str]:
    """Note where the lock is for other machines only, as an installer would refuse it."""
    for marker in markers:
        try:
            if any(evaluate(marker, environment, python) is not False for python in environment.pythons):
                return []
        except InvalidMarkerError as error:
            return [f"{path}: environments: {error}"]
    return [f"{path} is for other machines than Linux on x86-64: {' | '.join(map(echo, markers))}"] if markers else []


def _read_package(entry: object, source: Source, lines: Mapping[tuple[str, str | None], int]) -> Requirement | Skipped:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str):
        return Skipped(source, "an entry of packages has no name", _REMEDY, named=True)
    version = entry.get("version")
    line = lines.get((name, version if isinstance(version, str) else None), lines.get((name, None)))
    source = Source(source.path, source.key, line)
    if version is not None and not isinstance(version, str):
        return Skipped(source, f"the version of {echo(name)} is not a string", _REMEDY, named=True)
    if version is not None and parse_version(version) is None:
        return Skipped(source, f"{echo(version)}, the version of {name}, is no version", _REMEDY, named=True)
    marker = entry.get("marker")
    if marker is not None and not isinstance(marker, str):
        return Skipped(source, f"the marker of {echo(name)} is not a string", _REMEDY, named=True)
    requires = entry.get("requires-python")
    details: dict[str, str] = {}
    for kind in ("vcs", "directory", "archive"):
        origin = entry.get(kind)
        if isinstance(origin, dict):
            location = str(origin.get("url") or origin.get("path") or "")
            _, named, more = read_url(location, name)
            version = version or (named if kind == "archive" else None)
            details.update(more)
            details["source"] = kind
            if kind == "vcs":
                details["vcs"] = str(origin.get("type", ""))
                details["revision"] = str(origin.get("requested-revision") or origin.get("commit-id") or "")
            if origin.get("editable") is True:
                details["editable"] = "true"
    if isinstance(entry.get("index"), str):
        details["index"] = redact(entry["index"])
    if isinstance(requires, str):
        details["requires_python"] = requires
    return Requirement(canonical_name(name), "", source, version, marker, details)


def _selected(requirement: Requirement, environment: MarkerEnvironment) -> bool:
    if requirement.marker is None:
        return True
    try:
        return any(evaluate(requirement.marker, environment, python) is not False for python in environment.pythons)
    except InvalidMarkerError:
        return True
