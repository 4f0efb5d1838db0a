"""Asking uv whether releases exist that fit together: it resolves and never builds, installs or runs anything of a project.

Distributions without a wheel would have to be built to tell what they need (flash-attn, deepspeed, apex). They are not built:
uv is told their requirements, as their source archive records them, through ``dependency-metadata``, and that their source
archives count (``--no-binary`` takes a package out of ``--only-binary``). An entry without a version stands behind the one
with it, so that no release of such a package is left that uv would have to build.
https://docs.astral.sh/uv/concepts/resolution/#dependency-metadata
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table
from compatcheck.core.fix import NOT_CHECKED, REFUSED, RESOLVED
from compatcheck.core.process import run
from compatcheck.core.programs import Program, find_program, small_environment
from compatcheck.core.redaction import redact
from compatcheck.core.toml import parse_toml
from compatcheck.fixing.demand import DEFAULT_PYTHON, Answer, Demand
from compatcheck.services.pip_index import describe_index, uv_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.process import Completed

TIMEOUT_SECONDS = 120.0
MOST_OVERRIDES = 16
"""Distributions without a wheel after which the resolver is not asked again."""
PLATFORM = "linux"
LOCK = "uv.lock"
_FRAME = " │×╰─▶├\t"
_WITHOUT_WHEEL = re.compile(
    r"Wheels are required for `([^`]+)`|because ([\w.-]+)==\S+ has no usable wheels", re.IGNORECASE
)
_NO_WHEEL = re.compile(r"\b([A-Za-z0-9][\w.-]*?)(?:\[[^\]]*\])?(?:[=<>!~]=?\S*)? (?:has|have) no usable wheels")
_UNREACHABLE = (
    "failed to fetch", "error sending request", "dns error", "connect error", "timed out", "not found in the cache",
    "network was disabled", "requests were disabled", "could not be started", "did not answer", "401", "403 forbidden",
    "git operation failed", "failed to build", "failed to read",
)  # fmt: skip


class UvResolver:
    """uv's resolver, with what it was told kept between questions."""

    def __init__(self, program: str, say: Callable[[str], None] = lambda _: None) -> None:
        """Keep the path of uv, and what is told which index is asked before it is."""
        self.program = program
        self._say = say
        self._said: set[str] = set()
        self.asked = 0
        self.metadata: dict[tuple[str, str | None], tuple[str, ...]] = {}
        """Requirements of distributions without a wheel, by name and version."""
        self.archives: dict[str, None] = {}
        """Distributions that uv was seen to have no wheel of."""
        self._answers: dict[Demand, Answer] = {}

    def resolve(self, demand: Demand) -> Answer:
        """Resolve requirements with ``uv pip compile``."""
        if demand not in self._answers:
            self._answers[demand] = self._resolve(demand)
        return self._answers[demand]

    def _resolve(self, demand: Demand) -> Answer:
        python = demand.python or DEFAULT_PYTHON
        with tempfile.TemporaryDirectory(prefix="compatcheck-resolve-") as scratch:
            wanted, limits = Path(scratch, "requirements.in"), Path(scratch, "constraints.in")
            wanted.write_text("\n".join((*demand.options, *demand.requirements, "")), encoding="utf-8")
            limits.write_text("\n".join((*demand.constraints, "")), encoding="utf-8")
            command = [self.program, "pip", "compile", str(wanted), "-c", str(limits), "--no-header", "--no-annotate"]
            command += ["--python", sys.executable, "--python-version", python, "--python-platform", PLATFORM]
            command += ["--only-binary", ":all:", "--no-progress", "--color", "never"]
            self.say_index(" ".join(demand.options))
            return self._ask(command, demand, scratch)

    def say_index(self, stated: str = "") -> None:
        """Say once what runs and which index it asks, and those that files name: they see which packages are asked for."""
        if not self._said:
            self._say(f"fix runs {self.program} to see which releases fit together; it asks {describe_index('uv')}")
        if stated and stated not in self._said:
            self._say(f"fix asks what the files name: {redact(stated)}")
        self._said |= {"", stated}

    def _ask(self, command: list[str], demand: Demand, scratch: str) -> Answer:
        pinned = dict(_pins("\n".join(demand.requirements)))
        told = {key: self._requirements_of(*key) for key in ((name, pinned.get(name)) for name in self.archives)}
        while True:
            settings, unbuilt = Path(scratch, "uv.toml"), tuple(sorted({name for name, _ in told}))
            settings.write_text(_write_metadata(told), encoding="utf-8")
            archives = [part for name in unbuilt for part in ("--no-binary", name)]
            self.asked += 1
            done = self._run([*command, "--quiet", "--config-file", str(settings), *archives])
            if done.succeeded:
                pins = dict(_pins(done.output))
                return Answer(RESOLVED, None, pins, tuple(name for name in unbuilt if name in pins))
            missing = [name for name in _without_wheels(done.output) if name not in unbuilt]
            if not missing or len(told) >= MOST_OVERRIDES:
                return self._refusal(done, unbuilt)
            self.archives.update(dict.fromkeys(missing))
            for name in missing:
                key = (name, pinned.get(name))
                told[key] = self._requirements_of(*key)

    def _run(self, command: list[str], variables: Mapping[str, str] = {}) -> Completed:
        environ = {**small_environment(), **uv_variables(), "UV_PYTHON_DOWNLOADS": "never", **variables}
        return run(command, timeout_seconds=TIMEOUT_SECONDS, environ=environ)

    def _requirements_of(self, name: str, version: str | None) -> tuple[str, ...]:
        """Return what a release without a wheel requires, as its source archive records it."""
        key = (name, version)
        if key not in self.metadata:
            self.metadata[key] = _fetch_requirements(name, version)
        return self.metadata[key]

    @staticmethod
    def _refusal(done: Completed, unbuilt: tuple[str, ...]) -> Answer:
        if done.failure is not None:
            return Answer(NOT_CHECKED, done.failure, unbuilt=unbuilt)
        detail = reason_of(done.output)
        refused = "no solution found" in done.output.lower()
        reached = not any(word in done.output.lower() for word in _UNREACHABLE)
        return Answer(REFUSED if refused and reached else NOT_CHECKED, detail, unbuilt=unbuilt)

    def lock(self, files: Mapping[str, str], upgrades: Iterable[str]) -> Answer:
        """Renew ``uv.lock`` in a copy of a project that cannot be built, unless uv would have to build one of its projects.

        Args:
            files: the lock and every ``pyproject.toml`` it is made of, by path relative to the project.
            upgrades: ``name==version`` of the packages that move.
        """
        upgrades = tuple(upgrades)
        if built := find_built(files):
            return Answer(RESOLVED, unbuilt=built)
        with tempfile.TemporaryDirectory(prefix="compatcheck-lock-") as scratch:
            for name, text in files.items():
                place = Path(scratch, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text if name == LOCK else write_unbuildable(text, files), encoding="utf-8", newline="")
            self.say_index("the indexes and sources of [tool.uv]")
            command = [self.program, "lock", "--project", scratch, "--no-progress", "--color", "never", "--no-build"]
            command += [part for upgrade in upgrades for part in ("--upgrade-package", upgrade)]
            self.asked += 1
            # A project may name another cache, and uv would write wherever that is.
            done = self._run(command, {"UV_CACHE_DIR": self._run([self.program, "cache", "dir"]).output.strip()})
            if done.succeeded:
                return Answer(RESOLVED, files={LOCK: Path(scratch, LOCK).read_bytes().decode("utf-8")})
            missing = _without_wheels(done.output)
            # Told what they require, uv would lock them, and write into the lock that it was told.
            return Answer(RESOLVED, unbuilt=tuple(missing)) if missing else self._refusal(done, ())


_STATED = ("version", "dependencies", "optional-dependencies", "requires-python")
"""What uv wants to know of a project, and builds it for where its file does not say so."""


def find_built(files: Mapping[str, str]) -> tuple[str, ...]:
    """Name the projects and places of a lock for which uv would run code: ``--no-build`` does not hold for the project itself.

    Args:
        files: as `UvResolver.lock` takes them.
    """
    folders = {posixpath.dirname(name) for name in files}
    built: list[str] = []
    for name, text in files.items():
        try:
            data = parse_toml(text, name)
        except InputError:
            return (name,)
        project, tool = data.get("project"), data.get("tool")
        tool = tool if isinstance(tool, dict) else {}
        dynamic = project.get("dynamic", ()) if isinstance(project, dict) else ()
        if isinstance(project, dict):
            if "poetry" in tool or "version" not in project or any(key in _STATED for key in dynamic):
                built.append(name)
        elif posixpath.dirname(name):  # a member; the root may hold nothing but the workspace
            built.append(name)
        sources = tool.get("uv", {}).get("sources") if isinstance(tool.get("uv"), dict) else None
        packages = data.get("package")
        locked = [as_table(one).get("source") for one in packages] if isinstance(packages, list) else []
        for place in _places([sources, locked]):
            inside = posixpath.normpath(posixpath.join(posixpath.dirname(name), place))
            if ("" if inside == "." else inside) not in folders:
                built.append(place)
    return tuple(built)


_DEAD_BUILD = {"requires": [], "build-backend": "nothing_is_built_by_compatcheck"}


def write_unbuildable(text: str, files: Iterable[str]) -> str:
    """Write a ``pyproject.toml`` that locks alike, with a build system that does nothing and members among the copied files.

    uv builds an editable project in spite of ``--no-build`` wherever it stumbles over what the file says (a requirement or a
    marker it cannot parse, a source that contradicts one), and finds members of a workspace anywhere on the machine.
    """
    data = parse_toml(text, "pyproject.toml")
    tool = data.get("tool")
    uv = dict(as_table(tool.get("uv"))) if isinstance(tool, dict) else {}
    uv.setdefault("package", "build-system" in data)
    if "workspace" in uv:
        folders = sorted({posixpath.dirname(name) for name in files} - {""})
        uv["workspace"] = {"members": [re.sub(r"[][*?{}\\]", "?", folder) for folder in folders]}
    written: dict[str, Any] = {key: data[key] for key in ("project", "dependency-groups") if key in data}
    written |= {"build-system": _DEAD_BUILD, "tool": {"uv": uv}}
    return "".join(f"{key} = {_write_value(value)}\n" for key, value in written.items())


def _write_value(value: Any) -> str:  # noqa: ANN401 (TOML)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_write_value(key)} = {_write_value(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_write_value, value))}]"
    # Of JSON's escapes only the pairs of surrogates are none of TOML's.
    return (
        json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        if isinstance(value, (str, bool))
        else str(value)
    )


def _places(data: Any) -> Iterator[str]:  # noqa: ANN401 (TOML)
    """Yield the directories and archives that sources name, in a lock or in ``[tool.uv.sources]``."""
    if isinstance(data, list):
        for entry in data:
            yield from _places(entry)
    elif isinstance(data, dict):
        yield from (data[key] for key in ("editable", "directory", "virtual", "path") if isinstance(data.get(key), str))
        yield from _places(list(data.values()))


def find_resolver(say: Callable[[str], None]) -> UvResolver | Program:
    """Return uv's resolver, or the program that is not there or may not be run."""
    program = find_program("uv")
    return program if program.path is None else UvResolver(program.path, say)


def _fetch_requirements(name: str, version: str | None) -> tuple[str, ...]:
    from compatcheck.services.releases import fetch_releases, read_requirements  # noqa: PLC0415 (only without a wheel)

    try:
        if version is None:
            releases = [release for release in fetch_releases(name) if not (release.yanked or release.prerelease)]
            if not releases:
                return ()
            # Which release it will be is not known yet: names alone, so that nothing is ruled out that could be.
            return tuple(_bare(line) for line in read_requirements(name, releases[-1].version))
        return read_requirements(name, version)
    except (InputError, OSError):  # the index does not answer
        return ()


def _bare(line: str) -> str:
    """Return a requirement without its versions."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 (beside its use)

    try:
        parsed = Requirement(line)
    except InvalidRequirement:
        return line
    marker = f"; {parsed.marker}" if parsed.marker else ""
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return f"{parsed.name}{extras}{marker}"


def _write_metadata(told: Mapping[tuple[str, str | None], Sequence[str]]) -> str:
    parts = []
    for (name, version), requirements in told.items():
        for stated in [version, None] if version else [None]:
            lines = [f"name = {json.dumps(name)}", *([f"version = {json.dumps(stated)}"] if stated else [])]
            parts.append(
                "\n".join(["[[dependency-metadata]]", *lines, f"requires-dist = {json.dumps([*requirements])}"])
            )
    return "\n\n".join(parts) + "\n"


def _without_wheels(output: str) -> list[str]:
    """Name the distributions that uv refuses because they would have to be built."""
    from packaging.utils import canonicalize_name  # noqa: PLC0415 (beside its use)

    text = " ".join(output.split())
    names = [match.group(1) or match.group(2) for match in _WITHOUT_WHEEL.finditer(text)]
    names += [match.group(1) for match in _NO_WHEEL.finditer(text)]
    return list(dict.fromkeys(canonicalize_name(name) for name in names if name))


def _pins(text: str) -> list[tuple[str, str]]:
    from packaging.utils import canonicalize_name  # noqa: PLC0415 (beside its use)

    found = re.finditer(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;,]+)\s*(?:;|$)", text, re.MULTILINE)
    return [(canonicalize_name(match.group(1)), match.group(2)) for match in found]


def _locked(text: str) -> list[tuple[str, str]]:
    return re.findall(r'^\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"', text, re.MULTILINE)


def locked_versions(text: str) -> dict[str, str]:
    """Return the packages of a ``uv.lock`` by name; several versions of one are joined with ``|``."""
    found: dict[str, str] = {}
    for name, version in _locked(text.replace("\r\n", "\n")):
        found[name] = f"{found[name]}|{version}" if name in found else version
    return found


def reason_of(output: str) -> str:
    """Return uv's reason on one line, without its frame, hints and credentials."""
    lines = [line.strip(_FRAME) for line in redact(output).splitlines()]
    text = " ".join(line for line in lines if line and not line.lower().startswith(("hint:", "warning:")))
    text = re.sub(
        r"error: |cause: |No solution found when resolving dependencies(?: for split \([^)]*\))?:?", " ", text
    )
    return " ".join(text.split()).replace(os.path.expanduser("~"), "~").replace(tempfile.gettempdir(), "…")
