"""``environment.yml``: what a person asks conda for, or what ``conda env export`` wrote down.

https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#creating-an-environment-file-manually
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.conda.packages import LINUX, Record, build_environment
from compatcheck.collectors.conda.spec import InvalidSpecError, MatchSpec, parse_match_spec
from compatcheck.collectors.machine.variables import attach, collect_variables
from compatcheck.collectors.requirements.lines import read_requirement_lines, with_index
from compatcheck.core.environment import TOGETHER, Environment
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import describe_machine
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import combine
from compatcheck.core.source import Skipped, Source
from compatcheck.core.yaml import YamlList, YamlMap, YamlValue, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.markers import MarkerEnvironment

_SELECTOR = re.compile(r"#\s*\[([^][#]*)\]\s*$")
_CONDITION = re.compile(r"sel\(\s*(!?)\s*([\w-]+)\s*\)")
_HERE = {"linux", "linux64", "unix", "linux-64", "x86_64"}
_ELSEWHERE = {"win", "win32", "win64", "osx", "osx64", "arm64", "osx-arm64", "osx-64", "win-64"}
_FORM = "write it as name, name=1.2, name>=1.2,<2 or channel::name=1.2"
_KEYS = {"name", "channels", "dependencies", "prefix", "variables", "platforms", "category", "channel_priority"}


def read_conda_environment(path: str, files: Files = LOCAL) -> Environment:
    """Read an environment file with its pip requirements and the files they include."""
    file = read_file(path, files)
    records = []
    for spec, source in file.specs:
        condition = None if spec.exact is not None else spec.version
        records.append(Record(spec.name, source, spec.exact, spec.build, spec.channel, condition))
    python = next((record for record in records if record.name == "python"), None)
    lines = read_requirement_lines(file.pip, path, files)
    combined = combine(lines.requirements, _describe(python), constraints=lines.constraints)
    pinned = all(package.version is not None for package in combined.packages.values())
    lost = (*file.skipped, *lines.skipped)
    listed = combined.packages
    if not file.is_export:  # what was installed was settled; else one command of pip takes the list
        listed = {
            name: one._replace(details={**one.details, TOGETHER: f"pip of {path}"}) for name, one in listed.items()
        }
    environment = build_environment(
        path,
        records,
        pip=with_index(listed, lines.indexes),
        complete=file.is_export and pinned and not lost,
        damage=combined.damage,
        skipped=lost,
        notes=(*file.notes, *lines.notes, *combined.notes),
    )
    if file.variables:
        source = Source(path, "variables", file.variables_line)
        environment = attach(environment, collect_variables(file.variables, source), complete=False)
    return environment


def _describe(python: Record | None) -> MarkerEnvironment:
    stated = python.version or python.condition if python is not None else None
    match = re.fullmatch(r"={0,2}(\d+\.\d+(?:\.\d+)?)(?:\.?\*)?", stated or "")
    if match is None:
        return describe_machine()
    full = python is not None and python.version is not None and match[1].count(".") > 1
    return describe_machine({"python_full_version" if full else "python_version": match[1]})


def read_file(path: str, files: Files = LOCAL) -> CondaEnvironment:
    """Read the parts of an environment file."""
    file = read_yaml(path, files)
    root = file.root
    dependencies = root.get("dependencies") if isinstance(root, YamlMap) else None
    if not isinstance(root, YamlMap) or not isinstance(dependencies, YamlList):
        message = "has no list of dependencies: it is no environment of conda"
        raise InputError(message, source=Source(path, "dependencies"), hint="write dependencies: and a package a line")
    variables = as_table(root.get("variables"))
    reading = CondaEnvironment(path, file.text.split("\n"), variables, has_prefix="prefix" in root)
    reading.variables_line = root.lines.get("variables")
    for index, item in enumerate(dependencies):
        reading.read_item(item, dependencies.lines[index], index)
    platforms = root.get("platforms")
    if isinstance(platforms, YamlList):
        others = [item for item in platforms if isinstance(item, str) and item not in LINUX]
        if others:
            reading.notes.append(f"also for {', '.join(others)}, which were not looked at")
    unread = sorted(str(key) for key in root if key not in _KEYS)
    if unread:
        reading.notes.append(f"keys that conda does not read: {', '.join(unread)}")
    return reading


class CondaEnvironment:
    """The file as it is written."""

    def __init__(self, path: str, lines: list[str], variables: Mapping[str, object], *, has_prefix: bool) -> None:
        self.path = path
        self.lines = lines
        self.variables = {name: value for name, value in variables.items() if isinstance(value, str)}
        self.variables_line: int | None = None
        self.has_prefix = has_prefix
        self.specs: list[tuple[MatchSpec, Source]] = []
        self.pip: list[tuple[int, str]] = []
        """Lines of the ``pip:`` list with their numbers."""
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []

    @property
    def is_export(self) -> bool:
        """Whether it lists everything with version and build, as ``conda env export`` does and no person would."""
        pinned = all(spec.exact is not None for spec, _ in self.specs)
        built = all(spec.build is not None and "*" not in spec.build for spec, _ in self.specs)
        return pinned and (built or self.has_prefix) and any(spec.name == "python" for spec, _ in self.specs)

    def read_item(self, item: YamlValue, line: int, index: int) -> None:
        """Read one entry of the list: a specification, ``pip:``, or one for some platforms (``sel(linux): …``)."""
        source = Source(self.path, f"dependencies[{index}]", line)
        if isinstance(item, str):
            self._read_spec(item, source)
        elif isinstance(item, YamlMap):
            for key, value in item.items():
                condition = _CONDITION.fullmatch(key)
                if key == "pip":
                    self._read_pip(value, item.lines[key], source)
                elif condition is not None and isinstance(value, str):
                    if (condition[2] in _HERE) != bool(condition[1]):
                        self._read_spec(value, source)
                elif value is None:
                    self._read_spec(key, source)  # "- numpy:" is a slip that conda refuses
                else:
                    self._skip(source, f"{redact(key)!r} is no kind of dependency conda knows", "write pip: and a list")
        elif item is not None:
            self._skip(source, "an entry is a list", _FORM)

    def _read_spec(self, text: str, source: Source) -> None:
        selector = self._selector(source.line)
        if selector is not None and selector in _ELSEWHERE:
            self.notes.append(
                f"{text} is for [{selector}] and left out, as conda-lock does; conda itself reads no selectors"
            )
            return
        try:
            self.specs.append((parse_match_spec(text.partition(" #")[0]), source))
        except InvalidSpecError as error:
            self._skip(source, str(error), _FORM)

    def _selector(self, line: int | None) -> str | None:
        match = _SELECTOR.search(self.lines[line - 1]) if line is not None and line <= len(self.lines) else None
        return None if match is None else match[1].strip()

    def _read_pip(self, value: YamlValue, line: int, source: Source) -> None:
        if isinstance(value, YamlList):
            for index, item in enumerate(value):
                if isinstance(item, str):
                    self.pip.append((value.lines[index], item))
                elif item is not None:
                    place = Source(self.path, f"{source.key}.pip[{index}]", value.lines[index])
                    self._skip(place, "an entry of pip is no text", "write a requirement a line")
        elif isinstance(value, str):
            self.pip.append((line, value))
        elif value is not None:
            self._skip(source, "pip holds no list", "write a requirement a line")

    def _skip(self, source: Source, reason: str, hint: str) -> None:
        self.skipped.append(Skipped(source, reason, hint, named=True))
