"""``pyproject.toml``: what a project requires, by PEP 621, PEP 735 and the tables of uv and poetry.

Build requirements are left out: they are installed apart from the project.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.requirements.project_indexes import torch_index
from compatcheck.core.expected_shapes import as_table, as_text, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.named_tuple import NamedTuple
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
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from compatcheck.core.environment import Environment, Package
    from compatcheck.core.selection import Choice

_FORM = "write it as 'name', 'name==1.2.3' or 'name>=1.2,<2'"
_ELSEWHERE = "check the requirement file, lock or environment of the project"
_SHOWN_CIRCLE = 8
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
    """What a dependency group itself names, by canonical names."""
    requires_python: str | None
    includes: Mapping[str, tuple[str, ...]] = {}
    """Groups that a group includes: written out, few lines would make very many requirements."""

    def brought_by(self, choices: Iterable[Choice]) -> list[Requirement]:
        """Return what extras and groups require, with the groups that these include, each once."""
        chosen = sorted(choices)
        found = [item for kind, name in chosen if kind == "extra" for item in self.optional.get(name, ())]
        waiting = [name for kind, name in reversed(chosen) if kind == "group"]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                found += self.groups.get(name, ())
                waiting += reversed(self.includes.get(name, ()))
        return found

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
        required = [*self.required, *self.brought_by(chosen)]
        combined = combine(required, machine, constraints=constraints, overrides=overrides)

        def bring(more: frozenset[Choice]) -> Mapping[str, Package]:
            own = extras.union(choice.name for choice in more if choice.kind == "extra")
            return combine(self.brought_by(more), machine._replace(extras=own)).packages

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
    optional: dict[str, list[Requirement]] = {}
    for name, items in as_table(project.get("optional-dependencies")).items():  # two may be one name, written otherwise
        more = reading.read_strings(items, "project.optional-dependencies", name)
        optional.setdefault(canonical_name(name), []).extend(more)
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
    for name, group in as_table(poetry.get("group")).items():
        if reading.read_poetry_includes(as_table(group), name):
            groups.setdefault(canonical_name(name), [])
    includes = reading.check_includes(groups)
    reading.report_dynamic(project, tool)
    return Stated(
        tuple(required),
        {name: tuple(items) for name, items in optional.items()},
        {name: tuple(items) for name, items in groups.items()},
        requires,
        includes,
    )


def _find(data: Mapping[str, Any], dotted: str) -> Mapping[str, Any]:
    for name in dotted.split("."):
        data = as_table(data.get(name))
    return data


def _find_circles(includes: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Find the circles of groups that include one another: each from the group that closes it, a long one without its middle."""
    circles: list[tuple[str, ...]] = []
    done: set[str] = set()
    for first in includes:
        places = {} if first in done else {first: 0}
        chain = [(name, iter(includes[name])) for name in places]
        while chain:
            target = next(chain[-1][1], None)
            if target is None:
                name, _ = chain.pop()
                del places[name]
                done.add(name)
            elif target in places:
                begin = max(places[target] + 1, len(chain) - _SHOWN_CIRCLE)
                middle = ("…",) if begin > places[target] + 1 else ()
                circles.append((target, *middle, *(name for name, _ in chain[begin:])))
            elif target not in done:
                places[target] = len(chain)
                chain.append((target, iter(includes.get(target, ()))))
    return circles


class _Reading:
    """One file with what could not be used of it."""

    def __init__(self, file: TomlFile) -> None:
        self.file = file
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self._includes: dict[str, dict[str, Source]] = {}

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
        """Read dependency groups (PEP 735): what each itself requires; what they include is kept for `check_includes`."""
        found: dict[str, list[Requirement]] = {}
        for name, items in groups.items():
            own = [item for item in items if isinstance(item, str)] if isinstance(items, list) else items
            found.setdefault(canonical_name(name), []).extend(self.read_strings(own, "dependency-groups", name))
            for index, item in enumerate(items if isinstance(items, list) else ()):
                if isinstance(item, str):
                    continue
                included = item.get("include-group") if isinstance(item, dict) else None
                source = self._source("dependency-groups", name, index)
                if isinstance(included, str):
                    self.include(name, included, source)
                else:
                    self._skip(
                        source,
                        f"{echo_value(item)} is neither a requirement nor an include-group",
                        _FORM,
                        malformed=True,
                    )
        return found

    def read_poetry_includes(self, group: Mapping[str, Any], name: str) -> bool:
        """Read the groups that a group of poetry includes, from 2.2 on; tell whether it has such a list."""
        items = group.get("include-groups")
        for index, item in enumerate(items if isinstance(items, list) else [items]):
            source = self._source(f"tool.poetry.group.{name}", "include-groups", index)
            if isinstance(item, str):
                self.include(name, item, source)
            elif items is not None:
                self._skip(
                    source,
                    f"{echo_value(item)} is no name of a group",
                    'write include-groups = ["name"]',
                    malformed=True,
                )
        return items is not None

    def include(self, group: str, included: str, source: Source) -> None:
        """Keep that a group includes another."""
        self._includes.setdefault(canonical_name(group), {}).setdefault(canonical_name(included), source)

    def check_includes(self, groups: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return which of the groups include which others; say what includes one that is not there, or itself."""
        includes = {name: {to: at for to, at in into.items() if to in groups} for name, into in self._includes.items()}
        for name, into in self._includes.items():
            for target in into.keys() - includes[name].keys():
                reason = f"includes the group {target!r}, which does not exist"
                self._skip(into[target], reason, "add the group or remove the entry", malformed=True)
        for chain in _find_circles(includes):
            reason = f"includes itself: {' → '.join((*chain, chain[0]))}"
            self._skip(
                includes[chain[-1]][chain[0]], reason, "remove one of the groups that are included", malformed=True
            )
        return {name: tuple(into) for name, into in includes.items()}

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
        self.skipped.append(Skipped(source, reason, hint, named=malformed))


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
        clauses = [re.fullmatch(r"([<>=!~]+)\s*(.+)", clause.strip()) for clause in part.split(",")]
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
