"""The policy of a project: what fails a run, which rules take part, what is waived, named runs, and the machines it is for.

It stands in ``[tool.compatcheck]`` of ``pyproject.toml`` or at the top of ``compatcheck.toml``; every key is also an option,
and the command line wins.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.selection import DEFAULT, Selection, parse_python, split_arguments
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_utf8
from compatcheck.core.toml import parse_toml
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

    from compatcheck.core.versions import Bounds

_MOST_RUNS = 200
"""Of one policy; each is checked by itself."""
_MOST_WAIVERS = 5000
KEYS = ("fail-on", "select", "ignore", "strict", "fail-unread", "rules", "target", "targets", "runs", "waivers")
TARGET_KEYS = ("gpu", "nodes", "driver")
RUN_KEYS = (
    "paths",
    "lock",
    "model",
    "training",
    "gpu",
    "nodes",
    "driver",
    "target",
    "set",
    "env-file",
    "python",
    "prefix",
    "extras",
    "groups",
    "all-extras",
    "python-version",
    "stage",
    "script-args",
)
WAIVER_KEYS = ("rule", "package", "reason", "expires", "until", "owner")


class Range(NamedTuple):
    """A package and a range of its versions, as a waiver writes them: ``deepspeed>=0.16.8``."""

    text: str
    package: str
    """Canonical name."""
    bounds: Bounds | str
    """Compiled range, or ``present`` when the waiver names no version."""


class Waiver(NamedTuple):
    """Findings a project has decided to live with."""

    rule: str
    """Id or glob."""
    reason: str
    source: Source
    package: Range | None = None
    """Waives only where this package is in this range."""
    expires: date | None = None
    """Last day it holds."""
    until: Range | None = None
    """It lapses once this is satisfied."""
    owner: str | None = None


class Target(NamedTuple):
    """A kind of machine that what is checked will run on: a build has no GPU, so the one it will meet is declared."""

    name: str | None
    """None for the only one (``[target]``); else its key in ``[targets.NAME]``, or the device of a list."""
    source: Source
    gpu: str | None = None
    """Devices of a node or an instance, as ``--gpu`` takes them."""
    nodes: int | None = None
    driver: str | None = None
    sources: Mapping[str, Source] = {}
    """Where each key stands."""


class NamedRun(NamedTuple):
    """Inputs that belong together under a name; paths are relative to the working directory."""

    name: str
    source: Source
    paths: tuple[str, ...] = ()
    model: str | None = None
    training: tuple[str, ...] = ()
    gpu: str | None = None
    nodes: int | None = None
    driver: str | None = None
    targets: tuple[str, ...] = ()
    """Names of the targets it is for; empty for all of them."""
    settings: tuple[str, ...] = ()
    """``NAME=VALUE``."""
    env_file: str | None = None
    python: str | None = None
    prefix: str | None = None
    selection: Selection = DEFAULT
    """What is chosen of what the files offer: extras, groups, a stage."""
    sources: Mapping[str, Source] = {}
    """Where each key, and each setting as ``set.NAME``, stands."""


class Policy(NamedTuple):
    """A parsed policy."""

    path: str
    fail_on: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool | None = None
    fail_unread: bool | None = None
    rules: tuple[str, ...] = ()
    """Further rule directories."""
    targets: tuple[Target, ...] = ()
    runs: tuple[NamedRun, ...] = ()
    waivers: tuple[Waiver, ...] = ()


def read_policy(path: str, files: Files = LOCAL) -> Policy | None:
    """Read a policy file.

    Returns:
        The policy, or None when this is a ``pyproject.toml`` without ``[tool.compatcheck]``.

    Raises:
        UsageError: it cannot be read, or something in it makes no sense; with file, line and key.
    """
    try:
        text = read_utf8(path, files)
        data = parse_toml(text, path)
    except InputError as error:
        raise UsageError(error.message, source=error.source, hint="mend the policy file, or pass --no-policy") from None
    prefix = ""
    if os.path.basename(path) == "pyproject.toml":
        table = data.get("tool", {})
        if not isinstance(table, dict) or "compatcheck" not in table:
            return None
        data, prefix = table["compatcheck"], "tool.compatcheck"
    return _Reader(path, text, prefix).policy(data)


class _Reader:
    def __init__(self, path: str, text: str, prefix: str) -> None:
        self.path = path
        self.lines = text.split("\n")
        self.prefix = prefix
        self.directory = os.path.dirname(path)

    def policy(self, data: Any) -> Policy:  # noqa: ANN401 (TOML)
        data = self.table(data, "")
        self.known(data, KEYS, "")
        fail_on = self.text(data, "fail-on", "")
        if fail_on is not None:
            try:
                parse_threshold(fail_on)
            except UsageError as error:
                raise self.error(f"{fail_on!r} is not understood", "fail-on", error.hint) from None
        for switch in ("strict", "fail-unread"):
            if not isinstance(data.get(switch, False), bool):
                raise self.wrong(data[switch], switch, "true or false")
        targets = tuple(self.targets(data))
        runs = self.table(data.get("runs", {}), "runs")
        if len(runs) > _MOST_RUNS:
            hint = "write policies for parts of it, and name them with --policy"
            raise self.error(f"has {len(runs):,} runs, more than {_MOST_RUNS}", "runs", hint)
        named = tuple(self.run(name, self.table(run, f"runs.{name}")) for name, run in runs.items())
        for run in named:
            self.known_targets(run, targets)
        return Policy(
            path=self.path,
            fail_on=fail_on,
            select=self.texts(data, "select", ""),
            ignore=self.texts(data, "ignore", ""),
            strict=data.get("strict"),
            fail_unread=data.get("fail-unread"),
            rules=tuple(map(self.below, self.texts(data, "rules", ""))),
            targets=targets,
            runs=named,
            waivers=tuple(self.waivers(data.get("waivers", []))),
        )

    def run(self, name: str, data: Mapping[str, Any]) -> NamedRun:
        where = f"runs.{name}"
        self.known(data, RUN_KEYS, where)
        model = self.text(data, "model", where)
        if model is not None and os.path.exists(self.below(model)):
            model = self.below(model)
        settings = dict(self.settings(data.get("set", {}), f"{where}.set"))
        paths = (*self.texts(data, "lock", where), *self.texts(data, "paths", where))
        env_file, python, prefix = (self.text(data, key, where) for key in ("env-file", "python", "prefix"))
        run = NamedRun(
            name=name,
            source=self.source(where),
            paths=tuple(map(self.below, paths)),
            model=model,
            training=tuple(map(self.below, self.texts(data, "training", where))),
            gpu=self.text(data, "gpu", where),
            nodes=self.nodes(data, where),
            driver=self.text(data, "driver", where),
            targets=self.texts(data, "target", where),
            settings=tuple(f"{key}={value}" for key, value in settings.items()),
            env_file=None if env_file is None else self.below(env_file),
            python=None if python is None else self.below(python) if os.sep in python else python,
            prefix=None if prefix is None else self.below(prefix),
            selection=self.selection(data, where),
            sources={
                **{key: self.source(f"{where}.{key}") for key in data},
                **{f"set.{key}": self.source(f"{where}.set.{key}") for key in settings},
            },
        )
        if not any(run._replace(targets=())[2:-2]):
            raise self.error("a run without inputs", where, f"give it one of {', '.join(RUN_KEYS)}")
        return run

    def selection(self, data: Mapping[str, Any], where: str) -> Selection:
        """Read what a run chooses of what its files offer."""
        every = data.get("all-extras", False)
        if not isinstance(every, bool):
            raise self.wrong(every, f"{where}.all-extras", "true or false")
        python, arguments = (self.text(data, key, where) for key in ("python-version", "script-args"))
        return Selection(
            extras=self.texts(data, "extras", where),
            groups=self.texts(data, "groups", where),
            all_extras=every,
            python=None if python is None else parse_python(python, self.source(f"{where}.python-version")),
            stage=self.text(data, "stage", where),
            script_arguments=None
            if arguments is None
            else split_arguments(arguments, self.source(f"{where}.script-args")),
        )

    def targets(self, data: Mapping[str, Any]) -> Iterator[Target]:
        """Read ``[target]``, whose ``gpu`` may be a list, or every ``[targets.NAME]``."""
        if "target" in data and "targets" in data:
            raise self.error("both target and targets", "target", "name each machine: [targets.NAME]")
        if "target" in data:
            yield from self.target(None, self.table(data["target"], "target"), "target")
        named = self.table(data.get("targets", {}), "targets")
        if "targets" in data and not named:
            raise self.error("no target is named", "targets", "write [targets.NAME] with gpu and driver")
        for name, entry in named.items():
            yield from self.target(name, self.table(entry, f"targets.{name}"), f"targets.{name}")

    def target(self, name: str | None, data: Mapping[str, Any], where: str) -> Iterator[Target]:
        self.known(data, TARGET_KEYS, where)
        devices = self.texts(data, "gpu", where)
        if not data or ("gpu" in data and not all(device.strip() for device in (devices or [""]))):
            raise self.error(
                "a target without a machine",
                f"{where}.gpu" if data else where,
                f"give it one of {', '.join(TARGET_KEYS)}",
            )
        if len(set(devices)) < len(devices):
            raise self.error("one device is listed twice", f"{where}.gpu", "list each once")
        sources = {key: self.source(f"{where}.{key}") for key in data}
        target = Target(
            name, self.source(where), None, self.nodes(data, where), self.text(data, "driver", where), sources
        )
        if not devices:
            yield target
        for device in devices:
            several = device if name is None else f"{name} {device}"
            yield target._replace(name=several if len(devices) > 1 else name, gpu=device)

    def known_targets(self, run: NamedRun, targets: tuple[Target, ...]) -> None:
        names = [target.name for target in targets if target.name is not None]
        for name in run.targets:
            if name not in names:
                msg = f"run {run.name} is for the target {name!r}, which there is none of"
                hint = f"targets: {', '.join(names)}" if names else f"write [targets.{name}]"
                raise self.error(msg, f"runs.{run.name}.target", hint)

    def nodes(self, data: Mapping[str, Any], where: str) -> int | None:
        nodes = data.get("nodes")
        if nodes is not None and (not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1):
            raise self.wrong(nodes, f"{where}.nodes", "a number of nodes, at least 1")
        return nodes

    def settings(self, value: Any, where: str, name: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 (TOML)
        """Flatten ``set``: dotted keys are nested tables in TOML; a list of NAME=VALUE is taken too."""
        if isinstance(value, list) and not name:
            for entry in value:
                if not isinstance(entry, str) or "=" not in entry:
                    raise self.wrong(entry, where, 'a table, or a list of "NAME=VALUE"')
                key, _, text = entry.partition("=")
                yield key.strip(), text.strip()
            return
        if isinstance(value, dict):
            for key, entry in value.items():
                yield from self.settings(entry, where, f"{name}.{key}" if name else key)
            return
        if not name:
            raise self.wrong(value, where, "a table of facts")
        if isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, (str, int, float)):
            yield name, str(value)
        elif isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            yield name, ",".join(value)
        else:
            raise self.wrong(value, f"{where}.{name}", "a string, a number, true or false")

    def waivers(self, value: Any) -> Iterator[Waiver]:  # noqa: ANN401 (TOML)
        if not isinstance(value, list):
            raise self.wrong(value, "waivers", "a list: write [[…waivers]] above each")
        if len(value) > _MOST_WAIVERS:
            raise self.error(
                f"has {len(value):,} waivers, more than {_MOST_WAIVERS:,}", "waivers", "a glob covers many rules"
            )
        for index, data in enumerate(value):
            where = f"waivers[{index}]"
            data = self.table(data, where)  # noqa: PLW2901 (checked)
            self.known(data, WAIVER_KEYS, where)
            rule = self.text(data, "rule", where)
            if not rule:
                raise self.error("the waiver names no rule", where, 'add rule = "package/slug", or a glob')
            reason = (self.text(data, "reason", where) or "").strip()
            if not reason:
                raise self.error(
                    f"the waiver of {rule} has no reason", where, "add reason = why the project can live with it"
                )
            yield Waiver(
                rule=rule,
                reason=reason,
                source=self.source(where),
                package=self.range(data, "package", where),
                expires=self.day(data, where),
                until=self.range(data, "until", where),
                owner=self.text(data, "owner", where),
            )

    def range(self, data: Mapping[str, Any], key: str, where: str) -> Range | None:
        text = self.text(data, key, where)
        if text is None:
            return None
        name = text.rstrip()
        for index, character in enumerate(text):
            if character in "<>=!~ ":
                name = text[:index]
                break
        specifier = text[len(name) :].strip()
        canonical = name.strip().lower().replace("_", "-").replace(".", "-")
        if not canonical.replace("-", "").isalnum() or (key == "until" and not specifier):
            raise self.wrong(text, f"{where}.{key}", 'a package with a range, "deepspeed>=0.16.8"')
        try:
            return Range(text, canonical, compile_specifier(specifier) if specifier else "present")
        except InvalidSpecifierError as error:
            raise self.error(str(error), f"{where}.{key}", 'write it as "deepspeed>=0.16.8"') from None

    def day(self, data: Mapping[str, Any], where: str) -> date | None:
        from datetime import date, datetime  # noqa: PLC0415 (only with waivers)

        value = data.get("expires")
        if isinstance(value, str):
            try:
                return date.fromisoformat(value)
            except ValueError:
                pass
        elif isinstance(value, datetime):
            return value.date()
        elif value is None or isinstance(value, date):
            return value
        raise self.wrong(value, f"{where}.expires", "a day, 2027-01-31")

    def below(self, path: str) -> str:
        """Return a path of the policy as the working directory sees it."""
        return os.path.normpath(os.path.join(self.directory, os.path.expanduser(path)))

    def table(self, value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 (TOML)
        if not isinstance(value, dict):
            raise self.wrong(value, where, "a table")
        return value

    def text(self, data: Mapping[str, Any], key: str, where: str) -> str | None:
        value = data.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(value, f"{where}.{key}" if where else key, "a string")
        return value

    def texts(self, data: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        value = data.get(key, [])
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(entry, str) for entry in values):
            raise self.wrong(value, f"{where}.{key}" if where else key, "a string or a list of strings")
        return tuple(values)

    def known(self, data: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
        for key in data:
            if key not in keys:
                from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

                near = get_close_matches(key.replace("_", "-").lower(), keys, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(keys)}"
                raise self.error(f"unknown key {key!r}", f"{where}.{key}" if where else key, hint)

    def wrong(self, value: object, where: str, wanted: str) -> UsageError:
        return self.error(f"{value!r} does not fit", where, f"expected {wanted}")

    def error(self, message: str, where: str, hint: str | None) -> UsageError:
        return UsageError(message, source=self.source(where), hint=hint)

    def source(self, where: str) -> Source:
        key = ".".join(part for part in (self.prefix, where) if part)
        return Source(self.path, key or None, self.line(where))

    def line(self, where: str) -> int | None:
        """Find the line of a key; the nearest table or array above it when it is written in another way."""
        table, _, key = where.rpartition(".")
        number = self.header(table, key) if where else self.header("", "")
        while number is None and table:
            where = table
            table, _, key = where.rpartition(".")
            number = self.header(table, key)
        return number

    def header(self, table: str, key: str) -> int | None:
        """Find ``key =`` below ``[table]``, or the header ``[table.key]``; ``waivers[2]`` is the third ``[[waivers]]``."""
        full = ".".join(part for part in (self.prefix, table) if part)
        target = ".".join(part for part in (full, key) if part)
        headers, keys = self.places
        found = (headers.get(target), keys.get((full, key.partition("[")[0])) if key else None)
        return min((number for number in found if number is not None), default=None)

    @cached_property
    def places(self) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
        """The lines of headers, and of keys with the tables they stand in; the first of each."""
        headers: dict[str, int] = {}
        keys: dict[tuple[str, str], int] = {}
        counts: dict[str, int] = {}
        table = ""
        for number, line in enumerate(self.lines, 1):
            text = line.split("#", 1)[0].strip()
            if text.startswith("["):
                table = ".".join(part.strip(" \"'") for part in text.strip("[] ").split("."))
                if text.startswith("[["):
                    counts[table] = counts.get(table, -1) + 1
                    table = f"{table}[{counts[table]}]"
                headers.setdefault(table, number)
            else:
                keys.setdefault((table, text.partition("=")[0].strip(" \"'")), number)
        return headers, keys
