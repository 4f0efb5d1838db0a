"""``pyproject.toml``: what a project requires, by PEP 621, PEP 735 and the tables of uv and poetry.

Build requirements are left out: they are installed apart from the project.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.collectors.requirements.project_indexes import torch_index
from compatcheck.core.expected_shapes import as_table, as_text, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.requirement import (
    InvalidRequirementError,
    Requirement,
    add_unselected,
    combine,
    parse_requirement,
    read_tag,
    read_url,
)
from compatcheck.core.selection import DEFAULT, Selection, offer
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo, echo_value
from compatcheck.core.toml import TomlFile, locate_key, read_toml
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.core.environment import Environment, Package
    from compatcheck.core.selection import Choice

_FORM = "write it as 'name', 'name==1.2.3' or 'name>=1.2,<2'"
_ELSEWHERE = "check the requirement file, lock or environment of the project"
_MAX_DEPTH = 50
_EDITABLE = re.compile(r"\s*-e\s+(\S.*)")
_POETRY_OPERATORS = {"=": "==", "<>": "!="}
_POETRY_CLAUSE = re.compile(r"(\^|~(?!=))\s*v?([^\s,|]+)|(===?|=|~=|!=|<>|<=|>=|<|>)\s*([^\s,|]+)|([^\s,|]+)")


def read_pyproject(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read the requirements of a project.

    Whether the packages are there that only an unselected extra or dependency group (PEP 735, or of poetry) requires is unknown.

    ``selection`` names the extras and groups that are installed, and the Python.
    """
    reading = _Reading(read_toml(path, files))
    stated = _read_stated(reading)
    tool = as_table(reading.file.data.get("tool"))
    uv = as_table(tool.get("uv"))
    constraints = reading.read_strings(uv.get("constraint-dependencies"), "tool.uv", "constraint-dependencies")
    overrides = reading.read_strings(uv.get("override-dependencies"), "tool.uv", "override-dependencies")
    environment = stated.select(path, selection, reading.skipped, constraints=constraints, overrides=overrides)
    left_out = sorted(environment.offered - selection.choose(environment.offered))
    groups = [choice.name for choice in left_out if choice.kind == "group"]
    if groups:
        reading.notes.append(f"dependency groups not selected: {', '.join(groups)}")
    packages = environment.packages
    torch, index = packages.get("torch"), torch_index(tool)
    if torch is not None and index is not None:
        packages = {**packages, "torch": torch._replace(details={**torch.details, "index": index})}
    return environment._replace(packages=packages, notes=(*reading.notes, *environment.notes))


class Stated(NamedTuple):
    """What a project says it requires, before anything is selected of it."""

    required: tuple[Requirement, ...]
    """Installed always."""
    optional: Mapping[str, tuple[Requirement, ...]]
    """By extra, canonical names."""
    groups: Mapping[str, tuple[Requirement, ...]]
    """By dependency group, canonical names."""
    requires_python: str | None

    def brought_by(self, choice: Choice) -> tuple[Requirement, ...]:
        """Return what an extra or a group requires."""
        return (self.optional if choice.kind == "extra" else self.groups).get(choice.name, ())

    def select(  # noqa: PLR0913 (what a file may say beside its requirements)
        self,
        path: str,
        selection: Selection,
        skipped: Iterable[Skipped],
        *,
        markers: Mapping[str, str] | None = None,
        constraints: Sequence[Requirement] = (),
        overrides: Sequence[Requirement] = (),
        missing: str = "states no requirements",
    ) -> Environment:
        """Select what is installed; whether the packages are there that only unselected extras and groups bring is unknown."""
        offered = offer(self.optional, self.groups)
        chosen = selection.choose(offered)
        extras = frozenset(choice.name for choice in chosen if choice.kind == "extra")
        known = selection.markers if markers is None else markers
        machine = describe_machine(known, requires_python=self.requires_python, extras=extras)
        required = [*self.required, *(item for choice in sorted(chosen) for item in self.brought_by(choice))]
        combined = combine(required, machine, constraints=constraints, overrides=overrides)

        def bring(more: frozenset[Choice]) -> Mapping[str, Package]:
            own = extras.union(choice.name for choice in more if choice.kind == "extra")
            items = [item for choice in sorted(more) for item in self.brought_by(choice)]
            return combine(items, machine._replace(extras=own)).packages

        packages = add_unselected(combined.packages, offered - chosen, bring)
        lost = tuple(dict.fromkeys(skipped))
        if not packages and not lost:
            lost = (Skipped(Source(path), missing, _ELSEWHERE, passes=True),)
        return combined.describe(path, packages, skipped=lost, offered=offered)


def read_stated(path: str, files: Files = LOCAL) -> Stated:
    """Read what a project requires, without selecting or combining; what cannot be read is left out."""
    return _read_stated(_Reading(read_toml(path, files)))


def read_limits(path: str) -> tuple[Requirement, ...]:
    """Return the constraints and overrides of uv that a project states."""
    reading = _Reading(read_toml(path))
    uv = as_table(as_table(reading.file.data.get("tool")).get("uv"))
    keys = ("constraint-dependencies", "override-dependencies")
    return tuple(item for key in keys for item in reading.read_strings(uv.get(key), "tool.uv", key))


def _read_stated(reading: _Reading) -> Stated:
    project = as_table(reading.file.data.get("project"))
    tool = as_table(reading.file.data.get("tool"))
    poetry = as_table(tool.get("poetry"))
    requires = as_text(project.get("requires-python"))
    required = reading.read_strings(project.get("dependencies"), "project", "dependencies")
    optional = {
        canonical_name(name): reading.read_strings(items, "project.optional-dependencies", name)
        for name, items in as_table(project.get("optional-dependencies")).items()
    }
    groups = reading.read_groups(as_table(reading.file.data.get("dependency-groups")))
    if isinstance(poetry.get("dependencies"), dict):
        more, by_extra, python = reading.read_poetry(poetry)
        listed = {item.name for items in (required, *optional.values()) for item in items}
        required += [item for item in more if item.name not in listed]
        requires = requires or python
        for extra, items in by_extra.items():
            optional.setdefault(extra, []).extend(item for item in items if item.name not in listed)
    tables = {
        f"tool.poetry.group.{name}.dependencies": (name, as_table(group).get("dependencies"))
        for name, group in as_table(poetry.get("group")).items()
    }
    tables["tool.poetry.dev-dependencies"] = ("dev", poetry.get("dev-dependencies"))
    for where, (name, table) in tables.items():
        if isinstance(table, dict):
            groups.setdefault(canonical_name(name), []).extend(reading.read_poetry_table(table, where))
    lists = {
        ("tool.pdm.dev-dependencies", name): name
        for name in as_table(as_table(tool.get("pdm")).get("dev-dependencies"))
    }
    lists["tool.uv", "dev-dependencies"] = "dev"
    for name, environment in as_table(as_table(tool.get("hatch")).get("envs")).items():
        for key in ("dependencies", "extra-dependencies"):
            if key in as_table(environment):
                lists[f"tool.hatch.envs.{name}", key] = f"hatch-{name}"
    for (where, key), name in lists.items():
        items = reading.read_strings(_find(reading.file.data, where).get(key), where, key, strict=where == "tool.uv")
        if items:
            groups.setdefault(canonical_name(name), []).extend(items)
    reading.report_dynamic(project, tool)
    return Stated(
        tuple(required),
        {name: tuple(items) for name, items in optional.items()},
        {name: tuple(items) for name, items in groups.items()},
        requires,
    )


def _find(data: Mapping[str, Any], dotted: str) -> Mapping[str, Any]:
    for name in dotted.split("."):
        data = as_table(data.get(name))
    return data


class _Reading:
    """One file with what could not be used of it."""

    def __init__(self, file: TomlFile) -> None:
        self.file = file
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self._groups: dict[str, list[Requirement]] = {}

    def read_strings(self, items: object, table: str, key: str, *, strict: bool = True) -> list[Requirement]:
        """Read an array of requirement strings; those of pdm and hatch may be of their own form, which is no mistake."""
        if items is None:
            return []
        if not isinstance(items, list):
            hint = f'write {key} = ["name>=1.2"]'
            self._skip(self._source(table, key), "is not an array of requirements", hint, malformed=strict)
            return []
        found = []
        for index, item in enumerate(items):
            source = self._source(table, key, index, item if isinstance(item, str) else None)
            if not isinstance(item, str):
                self._skip(source, f"{echo_value(item)} is not a requirement string", _FORM, malformed=strict)
                continue
            editable = None if strict else _EDITABLE.match(item)
            try:
                found.append(_read_editable(editable[1], source) if editable else parse_requirement(item, source))
            except InvalidRequirementError as error:
                self._skip(source, str(error), _FORM, malformed=strict)
        return found

    def read_groups(self, groups: Mapping[str, Any]) -> dict[str, list[Requirement]]:
        """Read dependency groups (PEP 735) with the groups they include."""
        by_name = {canonical_name(name): (name, items) for name, items in groups.items()}
        return {name: self._expand_group(name, by_name, ()) for name in by_name}

    def _expand_group(
        self, name: str, groups: Mapping[str, tuple[str, Any]], chain: tuple[str, ...]
    ) -> list[Requirement]:
        if name in self._groups:
            return self._groups[name]
        written, items = groups[name]
        if not isinstance(items, list):
            return self.read_strings(items, "dependency-groups", written)
        found = self.read_strings([item for item in items if isinstance(item, str)], "dependency-groups", written)
        for index, item in enumerate(items):
            if isinstance(item, str):
                continue
            included = item.get("include-group") if isinstance(item, dict) else None
            source = self._source("dependency-groups", written, index)
            if not isinstance(included, str):
                self._skip(source, f"{echo_value(item)} is neither a requirement nor an include-group", _FORM)
                continue
            target = canonical_name(included)
            if target in (*chain, name):
                cycle = " → ".join((*chain, name, target))
                self._skip(source, f"includes itself: {cycle}", "remove one of the include-group entries")
            elif len(chain) >= _MAX_DEPTH:
                self._skip(source, f"is included {_MAX_DEPTH} groups deep", "include it from fewer groups")
            elif target not in groups:
                self._skip(
                    source,
                    f"includes the group {included!r}, which does not exist",
                    "add the group or remove the entry",
                )
            else:
                found += self._expand_group(target, groups, (*chain, name))
        self._groups[name] = list({item.source: item for item in found}.values())
        return self._groups[name]

    def read_poetry(
        self, poetry: Mapping[str, Any]
    ) -> tuple[list[Requirement], dict[str, list[Requirement]], str | None]:
        """Read the requirements of a poetry project: those always installed, those by extra, and the Python range."""
        table = as_table(poetry["dependencies"])
        found = self.read_poetry_table(table, "tool.poetry.dependencies")
        optional = {
            canonical_name(name)
            for name, value in table.items()
            if isinstance(value, dict) and value.get("optional") is True
        }
        by_extra: dict[str, list[Requirement]] = {}
        for extra, names in as_table(poetry.get("extras")).items():
            listed = set(map(canonical_name, as_texts(names)))
            by_extra[canonical_name(extra)] = [item for item in found if item.name in listed]
        python = table.get("python")
        try:
            requires = convert_poetry_range(python) if isinstance(python, str) else None
        except InvalidSpecifierError:
            requires = None
        return [item for item in found if item.name not in optional], by_extra, requires

    def read_poetry_table(self, table: Mapping[str, Any], where: str) -> list[Requirement]:
        """Read one table of poetry requirements."""
        found = []
        for name, value in table.items():
            if canonical_name(name) == "python":
                continue
            for item in value if isinstance(value, list) else [value]:
                source = self._source(where, name)
                try:
                    found.append(_read_poetry_item(name, item, source))
                except (InvalidRequirementError, InvalidSpecifierError) as error:
                    hint = 'write it as name = "^1.2" or name = {version = ">=1.2,<2"}'
                    self._skip(source, str(error), hint, malformed=True)
        return found

    def report_dynamic(self, project: Mapping[str, Any], tool: Mapping[str, Any]) -> None:
        """Say which requirements the file leaves to the build."""
        dynamic = project.get("dynamic")
        for key in ("dependencies", "optional-dependencies"):
            if isinstance(dynamic, list) and key in dynamic:
                stated = as_table(as_table(as_table(tool.get("setuptools")).get("dynamic")).get(key)).get("file")
                files = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else []
                elsewhere = (
                    f"check {', '.join(map(str, files))}"
                    if files
                    else "check the environment, a lock or setup.py's result"
                )
                source = self._source("project", "dynamic")
                self._skip(source, f"{key} are computed by the build, which is not run", elsewhere)

    def _source(self, table: str, key: str, index: int | None = None, item: str | None = None) -> Source:
        name = f"{table}.{key}" if index is None else f"{table}.{key}[{index}]"
        return Source(self.file.path, name, locate_key(self.file.text, table, key, item))

    def _skip(self, source: Source, reason: str, hint: str, *, malformed: bool = False) -> None:
        skipped = Skipped(source, reason, hint, named=malformed)
        if skipped not in self.skipped:
            self.skipped.append(skipped)


def _read_poetry_item(name: str, item: object, source: Source) -> Requirement:
    details: dict[str, str] = {}
    version: str | None = None
    clauses: list[str] = []
    table = {"version": item} if isinstance(item, str) else item
    if not isinstance(table, dict):
        message = f"{name} = {echo_value(item)} is not a poetry requirement"
        raise InvalidRequirementError(message)
    stated = table.get("version", "*")
    specifier = convert_poetry_range(stated if isinstance(stated, str) else str(stated))
    for kind in ("git", "path", "url"):
        if isinstance(table.get(kind), str):
            _, version, more = read_url(table[kind], name)
            details.update(more)
            if kind == "git":
                revision = next((table[key] for key in ("tag", "rev", "branch") if isinstance(table.get(key), str)), "")
                details.update(vcs="git", revision=revision)
                version = None if "subdirectory" in table else read_tag(revision)
    if isinstance(table.get("extras"), list):
        details["extras"] = ",".join(map(str, table["extras"]))
    if isinstance(table.get("markers"), str):
        clauses.append(f"({table['markers']})")
    if isinstance(table.get("python"), str):
        clauses.append(_python_marker(convert_poetry_range(table["python"])))
    if isinstance(table.get("platform"), str):
        clauses.append(f'sys_platform == "{table["platform"]}"')
    marker = " and ".join(clause for clause in clauses if clause) or None
    return Requirement(canonical_name(name), specifier, source, version, marker, details)


def _read_editable(location: str, source: Source) -> Requirement:
    name, version, details = read_url(location)
    if name is None:
        message = f"{echo(location)} does not name its package"
        raise InvalidRequirementError(message)
    return Requirement(canonical_name(name), "", source, version, None, {**details, "editable": "true"})


def _python_marker(specifier: str) -> str:
    alternatives = []
    for part in specifier.split("||"):
        clauses = [re.fullmatch(r"\s*([<>=!~]+)\s*(.+?)\s*", clause) for clause in part.split(",")]
        joined = " and ".join(f'python_full_version {match[1]} "{match[2]}"' for match in clauses if match)
        alternatives.append(f"({joined})" if joined else "")
    return "" if "" in alternatives else "(" + " or ".join(alternatives) + ")"


def convert_poetry_range(text: str) -> str:
    """Convert a poetry constraint (``^1.2``, ``~1.2``, ``1.2.*``, ``1.2.3``) to PEP 440, alternatives joined by ``||``.

    https://python-poetry.org/docs/dependency-specification/#version-constraints

    Raises:
        InvalidSpecifierError: it is not a poetry constraint.
    """
    alternatives = []
    for part in re.split(r"\|\|?", text):
        clauses = [_convert_clause(match) for match in _POETRY_CLAUSE.finditer(part)]
        joined = ",".join(clause for clause in clauses if clause)
        compile_specifier(joined)
        alternatives.append(joined)
    return "" if "" in alternatives else " || ".join(alternatives)


def _convert_clause(match: re.Match[str]) -> str:
    tilde_or_caret, base, operator, operand, bare = match.groups()
    if operator:
        return _POETRY_OPERATORS.get(operator, operator) + operand
    if bare:
        bare = bare.removeprefix("v")
        if bare in {"*", "x"}:
            return ""
        return f"=={bare}"
    version = parse_version(base)
    if version is None:
        message = f"{match.group(0)!r} is not a version range"
        raise InvalidSpecifierError(message)
    release = version.release
    if tilde_or_caret == "~":
        kept = min(len(release), 2)
    else:
        kept = next((index + 1 for index, number in enumerate(release) if number), len(release))
    ceiling = ".".join(map(str, (*release[: kept - 1], release[kept - 1] + 1)))
    return f">={base},<{ceiling}"
