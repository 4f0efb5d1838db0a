"""The requirements of a project one by one: what a resolver is asked about, and where each stands in the text."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from compatcheck.collectors.recognise import recognise
from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import all_ordered, compile_specifier, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.core.environment import Environment
    from compatcheck.core.requirement import Requirement

MANIFEST = "pyproject.toml"
LOCK_COMMANDS: Mapping[str, str] = {
    "uv.lock": "uv lock {upgrades}",
    "poetry.lock": "poetry update --lock {names}",
    "pdm.lock": "pdm update --no-sync {names}",
    "Pipfile.lock": "pipenv upgrade {pins}",
    "pixi.lock": "pixi update {names}",
    "pylock.toml": "uv pip compile pyproject.toml {upgrades} -o pylock.toml",
}
"""Lock → the command of its own program that renews it; nothing else may rewrite it."""
_NAMED_LOCKS = (
    (re.compile(r"pylock\.[^./]+\.toml"), "uv pip compile pyproject.toml {upgrades} -o {file}"),
    (re.compile(r"[^/]+\.py\.lock"), "uv lock --script {script} {upgrades}"),
    (re.compile(r"[^/]*conda-?lock[^/]*\.ya?ml"), "conda-lock lock --lockfile {file} {updates}"),
)
"""The same for locks whose file name is chosen."""
_OWN_MANIFEST = (".py.lock", ".yml", ".yaml")
"""Ends of the locks that no ``pyproject.toml`` beside them is behind."""
_INDEX_OPTIONS = ("--index-url", "-i ", "--extra-index-url", "--find-links", "-f ")
_LIKELY_PYTHONS = ("3.11", "3.12", "3.10", "3.13", "3.9", "3.8")
"""Pythons to resolve for where a project allows several, the one most training stacks have wheels for first."""


class Project(NamedTuple):
    """What one root requires."""

    path: str
    kind: str
    requirements: tuple[Requirement, ...]
    constraints: tuple[Requirement, ...] = ()
    options: tuple[str, ...] = ()
    """Index options for the resolver."""
    python: str | None = None
    """Python to resolve for."""
    lock: str | None = None
    """Lock beside it that was checked."""

    @property
    def statements(self) -> tuple[Requirement, ...]:
        """Return requirements and constraints."""
        return (*self.requirements, *self.constraints)


def roots_of(environment: Environment) -> list[tuple[str, str]]:
    """Return the files that state the packages of an environment, each with its kind; none for an installed one."""
    paths = [environment.origin, environment.origin.partition(" (")[0]]
    paths += [package.source.path for package in environment.packages.values()]
    found: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        if os.path.isfile(path) and not path.endswith((".py", "METADATA", "PKG-INFO")) and not os.access(path, os.X_OK):
            kind = recognise(path) or ("requirements" if path.endswith((".txt", ".in")) else "other")
            found.setdefault(os.path.normpath(path), kind)
    return list(found.items())


def read_project(path: str, kind: str) -> Project | None:
    """Read the requirements of a root one by one; None for a kind whose requirements only its own program knows.

    A lock is read through the ``pyproject.toml`` beside it: what its program resolves anew.

    Raises:
        InputError: it cannot be read.
    """
    if kind in {"requirements", "constraints"}:
        from compatcheck.collectors.requirements.lines import read_statements  # noqa: PLC0415 (one kind)

        required, constraints = read_statements(path, constraints=kind == "constraints")
        files = dict.fromkeys(item.source.path for item in (*required, *constraints))
        return Project(path, kind, required, constraints, _index_options([path, *files]))
    if os.path.basename(path) == MANIFEST:
        return _read_manifest(path, kind)
    if is_lock(path):
        manifest = os.path.join(os.path.dirname(path), MANIFEST)
        if os.path.isfile(manifest) and not path.endswith(_OWN_MANIFEST):
            return _read_manifest(manifest, kind)._replace(lock=path)
        return Project(path, kind, (), lock=path)
    return None


def is_lock(path: str) -> bool:
    """Tell whether a file is a lock that only its own program may rewrite."""
    return _find_command(os.path.basename(path)) is not None


def lock_command(path: str, targets: Mapping[str, str]) -> str | None:
    """Return the command that moves packages in a lock; None where the file is none.

    >>> lock_command("conda-lock.yml", {"deepspeed": "0.16.9"})
    'conda-lock lock --lockfile conda-lock.yml --update deepspeed'
    """
    file = os.path.basename(path)
    command = _find_command(file)
    return (
        None
        if command is None
        else command.format(
            pins=" ".join(f"'{name}=={version}'" for name, version in targets.items()),
            upgrades=" ".join(f"--upgrade-package {name}=={version}" for name, version in targets.items()),
            updates=" ".join(f"--update {name}" for name in targets),
            names=" ".join(targets),
            file=shlex.quote(file),
            script=shlex.quote(file.removesuffix(".lock")),
        )
    )


def _find_command(file: str) -> str | None:
    named = (command for pattern, command in _NAMED_LOCKS if pattern.fullmatch(file))
    return LOCK_COMMANDS.get(file) or next(named, None)


def _read_manifest(path: str, kind: str) -> Project:
    from compatcheck.collectors.requirements.pyproject import read_limits, read_stated  # noqa: PLC0415 (one kind)

    stated = read_stated(path)
    every = (
        *stated.required,
        *(item for items in stated.optional.values() for item in items),
        *(item for items in stated.groups.values() for item in items),
    )
    limits = read_limits(path)
    unique = tuple({(item.source, item.name): item for item in every}.values())
    return Project(path, kind, unique, limits, (), choose_python(stated.requires_python))


def choose_python(requires: str | None) -> str | None:
    """Return the Python to resolve for: the likeliest that is allowed."""
    if requires is None:
        return None
    for python in _LIKELY_PYTHONS:
        version = parse_version(f"{python}.9")
        try:
            if version is not None and all_ordered(compile_specifier(requires), version):
                return python
        except ValueError:
            return None
    return None


def _index_options(paths: Iterable[str]) -> tuple[str, ...]:
    from compatcheck.collectors.requirements.lines import decode, logical_lines  # noqa: PLC0415 (one kind)
    from compatcheck.core.textfile import read_bytes  # noqa: PLC0415 (one kind)

    found: dict[str, None] = {}
    for path in dict.fromkeys(paths):
        try:
            text, _ = decode(read_bytes(path), path)
        except InputError:
            continue
        for line in logical_lines(text):
            if line.text.startswith(_INDEX_OPTIONS):
                found[line.text] = None
    return tuple(found)


def write_requirements(statements: Iterable[Requirement], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Write requirements for a resolver, some with other versions.

    What stands for a path or URL is left out: it is not on an index.
    """
    lines = []
    for item in statements:
        if item.details.get("direct_url") or item.details.get("editable") or item.details.get("vcs"):
            continue
        extras = f"[{item.details['extras']}]" if item.details.get("extras") else ""
        specifiers = [wanted[item.name]] if item.name in wanted else item.specifier.split("||")
        if len(specifiers) > 1:
            continue
        marker = f" ; {item.marker}" if item.marker else ""
        lines.append(f"{item.name}{extras}{specifiers[0].strip()}{marker}")
    return tuple(dict.fromkeys(lines))


def any_of(values: Sequence[str], releases: Sequence[str]) -> str:
    """Return a specifier that holds some versions and no other known release; one range stands for itself.

    >>> any_of(["0.16.8", "0.17.1"], ["0.16.8", "0.17.0", "0.17.1", "0.17.2"])
    '>=0.16.8,<=0.17.1,!=0.17.0'
    """
    if any(value[:1] in "<>=!~" for value in values):
        return values[0] if len(values) == 1 else ""
    if len(values) == 1:
        return f"=={values[0]}"
    ordered = sorted((version, value) for value in values if (version := parse_version(value)) is not None)
    kept = {version for version, _ in ordered}
    low, high = ordered[0][0], ordered[-1][0]
    holes = [
        f"!={release}"
        for release in releases
        if (version := parse_version(release)) is not None and low < version < high and version not in kept
    ]
    return ",".join([f">={low}", f"<={high}", *holes])
