"""``pixi.toml``, and ``[tool.pixi]`` of a ``pyproject.toml``: what each environment of a workspace asks for on Linux.

https://pixi.sh/latest/reference/pixi_manifest/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.collectors.conda.packages import LINUX, Record, build_environment
from compatcheck.collectors.machine.variables import attach, collect_variables
from compatcheck.collectors.requirements.pyproject import read_pyproject
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_text, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.requirement import InvalidRequirementError, Requirement, combine, parse_requirement, read_url
from compatcheck.core.selection import DEFAULT, Selection
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo
from compatcheck.core.toml import TomlFile, locate_key, read_toml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.environment import Environment

_TARGETS = ("unix", "linux", "linux-64")
"""Tables of ``[target]`` that hold on Linux, the most general first."""
_FORM = 'write it as name = ">=1.2,<2" or name = {version = ">=1.2"}'
_MAX_ENVIRONMENTS = 100


def read_pixi(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> tuple[Environment, ...]:
    """Read a manifest: one environment for each that it defines, as it is on linux-64.

    ``selection`` names the extras and groups of a ``pyproject.toml`` that are installed.
    """
    file = read_toml(path, files)
    inside = file.path.endswith("pyproject.toml") or "tool" in file.data
    pixi = as_table(as_table(file.data.get("tool")).get("pixi")) if inside else file.data
    if not ({"workspace", "project", "dependencies", "pypi-dependencies", "feature", "package"} & set(pixi)):
        message = "holds no workspace of pixi"
        raise InputError(message, source=Source(path), hint="write [workspace] and [dependencies]")
    manifest = _Manifest(file, pixi, "tool.pixi." if inside else "")
    defined = as_table(pixi.get("environments"))
    if len(defined) > _MAX_ENVIRONMENTS:
        message = f"defines {len(defined)} environments; at most {_MAX_ENVIRONMENTS} are read"
        raise InputError(message, source=Source(path, "environments"), hint="check that this is the file you mean")
    environments = {"default": ["default"], **{name: _features(value) for name, value in defined.items()}}
    project = read_pyproject(path, files, selection) if inside and "project" in file.data else None
    return tuple(
        manifest.environment(name, features, project, several=len(environments) > 1)
        for name, features in environments.items()
    )


def _features(value: object) -> list[str]:
    """Return the features of an environment in order of precedence, the default one last unless it is left out."""
    features = list(as_texts(value.get("features") if isinstance(value, dict) else value))
    alone = isinstance(value, dict) and value.get("no-default-feature") is True
    return features if alone else [*features, "default"]


class _Manifest:
    """The tables of one file."""

    def __init__(self, file: TomlFile, pixi: Mapping[str, Any], prefix: str) -> None:
        self.file = file
        self.pixi = pixi
        self.prefix = prefix

    def environment(self, name: str, features: list[str], project: Environment | None, *, several: bool) -> Environment:
        """Read one environment; where features state one package, the first of them is taken."""
        records: dict[str, Record] = {}
        pypi: dict[str, Requirement] = {}
        skipped: list[Skipped] = []
        notes: list[str] = []
        variables: dict[str, str] = {}
        for feature in features:
            known_conda, known_pypi = frozenset(records), frozenset(pypi)
            for table, where in self._tables(feature):
                for key, value in as_table(table.get("dependencies")).items():
                    if key.lower() not in known_conda:
                        self._add_conda(key, value, f"{where}dependencies", records, skipped)
                for key, value in as_table(table.get("pypi-dependencies")).items():
                    if canonical_name(key) not in known_pypi:
                        self._add_pypi(key, value, f"{where}pypi-dependencies", pypi, skipped)
                for key, value in as_table(as_table(table.get("activation")).get("env")).items():
                    if isinstance(value, str | int | float):
                        variables.setdefault(str(key), str(value))
        workspace = as_table(self.pixi.get("workspace")) or as_table(self.pixi.get("project"))
        others = sorted(set(as_texts(workspace.get("platforms"))) - set(LINUX))
        if others:
            notes.append(f"also for {', '.join(others)}, which were not looked at")
        combined = combine(list(pypi.values()), describe_machine())
        packages = {**(project.packages if project is not None else {}), **combined.packages}
        origin = f"{self.file.path} ({name})" if several else self.file.path
        environment = build_environment(
            origin,
            list(records.values()),
            pip=packages,
            damage=(*combined.damage, *(project.damage if project is not None else ())),
            skipped=(*skipped, *(project.skipped if project is not None and project.packages else ())),
            notes=(*notes, *combined.notes, *(project.notes if project is not None else ())),
        )
        if project is not None:
            environment = environment._replace(offered=project.offered)
        if variables:
            source = Source(self.file.path, f"{self.prefix}activation.env")
            environment = attach(environment, collect_variables(variables, source), complete=False)
        return environment

    def _tables(self, feature: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Yield the tables of a feature that hold on Linux, the general one first: what comes later replaces it."""
        if feature == "default":
            table, where = self.pixi, self.prefix
        else:
            table, where = as_table(as_table(self.pixi.get("feature")).get(feature)), f"{self.prefix}feature.{feature}."
        yield table, where
        for target in _TARGETS:
            yield as_table(as_table(table.get("target")).get(target)), f"{where}target.{target}."

    def _add_conda(
        self, key: str, value: object, where: str, records: dict[str, Record], skipped: list[Skipped]
    ) -> None:
        source = self._source(where, key)
        fields: Mapping[str, Any] = value if isinstance(value, dict) else {"version": value}
        version, build, channel = fields.get("version", "*"), fields.get("build"), fields.get("channel")
        if not isinstance(version, str) or not key:
            skipped.append(Skipped(source, f"{key} = {echo(str(value))} is no version", _FORM, named=True))
            return
        build, channel, version = as_text(build), as_text(channel), version.strip()
        exact = version.removeprefix("==").strip()
        if not set(exact) & set("<>=!~,|*") and (exact[:1].isdigit() or exact != version):
            records[key.lower()] = Record(key.lower(), source, exact, build, channel)
            return
        condition = None if version in {"", "*"} else version
        records[key.lower()] = Record(key.lower(), source, None, build, channel, condition)

    def _add_pypi(
        self, key: str, value: object, where: str, pypi: dict[str, Requirement], skipped: list[Skipped]
    ) -> None:
        source = self._source(where, key)
        fields: Mapping[str, Any] = value if isinstance(value, dict) else {"version": value}
        version = fields.get("version", "*")
        extras = as_texts(fields.get("extras"))
        details: dict[str, str] = {}
        stated: str | None = None
        for kind in ("git", "path", "url"):
            if isinstance(fields.get(kind), str):
                _, stated, more = read_url(fields[kind], key)
                details.update(more, source=kind)
                for revision in ("rev", "tag", "branch"):
                    if kind == "git" and isinstance(fields.get(revision), str):
                        details["revision"] = fields[revision]
        if fields.get("editable") is True:
            details["editable"] = "true"
        marker = fields.get("env-markers")
        if not isinstance(version, str):
            skipped.append(Skipped(source, f"{key} = {echo(str(value))} is no version", _FORM, named=True))
            return
        try:
            text = "" if version.strip() == "*" else version
            if text[:1].isdigit():
                text = f"=={text}"
            inner = f"[{','.join(extras)}]" if extras else ""
            tail = f" ; {marker}" if isinstance(marker, str) else ""
            requirement = parse_requirement(f"{key}{inner}{text}{tail}", source)
        except InvalidRequirementError as error:
            skipped.append(Skipped(source, str(error), _FORM, named=True))
            return
        pypi[requirement.name] = requirement._replace(
            version=requirement.version or stated, details={**requirement.details, **details}
        )

    def _source(self, where: str, key: str) -> Source:
        return Source(self.file.path, f"{where}.{key}", locate_key(self.file.text, where, key))
