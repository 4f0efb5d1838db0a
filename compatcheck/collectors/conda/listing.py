"""What ``conda list`` prints: columns, ``--export``, ``--explicit`` and ``--json``; ``mamba`` and ``micromamba`` too.

An explicit file says what conda downloads; what pip installed afterwards is not in it, except where conda-lock wrote it.
https://docs.conda.io/projects/conda/en/stable/commands/list.html
"""

from __future__ import annotations

import re

from compatcheck.collectors.conda.packages import LINUX, Record, build_environment
from compatcheck.collectors.conda.spec import read_archive_name, read_channel
from compatcheck.collectors.requirements.lines import decode
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_text
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import read_json
from compatcheck.core.markers import canonical_name
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import InvalidRequirementError, parse_requirement
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo, read_bytes
from compatcheck.core.versions import parse_version

_COLUMNS = re.compile(r"\s*([A-Za-z0-9_][\w.+-]*)\s+(\S+)(?:\s+(\S+)(?:\s+(\S+))?)?\s*$")
_EXPORT = re.compile(r"([A-Za-z0-9_][\w.+-]*)={1,2}([^=\s]+)(?:=([^=\s]+))?$")
_PLATFORM = re.compile(r"#\s*platform:\s*(\S+)")
_PIP = ("pypi", "<pip>", "<develop>", "pypi_0")
_WHOLE = {"python", "openssl"}
"""What no environment with Python lacks; a list without them was filtered (``conda list torch``) or cut off."""
_REMEDY = "send the whole output of conda list"


class CondaList:
    """The packages of a list, as they are written."""

    def __init__(self, path: str, form: str = "") -> None:
        self.path = path
        self.form = form
        """``columns``, ``export``, ``explicit`` or ``json``."""
        self.records: list[Record] = []
        """Packages of conda."""
        self.pip: dict[str, Package] = {}
        """Packages of pip by canonical name."""
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self.states_pip = True
        """Whether a package of pip would have been listed."""

    def add(self, source: Source, name: str, version: str, build: str | None, channel: str | None = None) -> None:
        """Put a package where it belongs: the channel ``pypi`` and builds such as ``<pip>`` stand for pip."""
        build = build or ""
        if channel == "pypi" or build in _PIP or build.startswith("pypi"):
            distribution, known = canonical_name(name), parse_version(version) is not None
            stated, specifier = (version, None) if known else (None, "")
            self.pip[distribution] = Package(distribution, stated, source, specifier, {"installer": "pip"})
        else:
            channel = None if channel is None else redact(channel)
            self.records.append(Record(name.lower(), source, version, build or None, channel))

    def add_commented(self, text: str, source: Source) -> None:
        """Read ``name @ URL --hash=…``, which conda-lock writes as a comment into explicit files."""
        try:
            requirement = parse_requirement(text.partition(" --hash")[0].strip(), source)
        except InvalidRequirementError as error:
            self.skip(source, str(error), "make the file anew with conda-lock render")
            return
        specifier = None if requirement.version else requirement.specifier
        self.pip[requirement.name] = Package(
            requirement.name, requirement.version, source, specifier, requirement.details
        )

    def skip(self, source: Source, reason: str, hint: str = _REMEDY) -> None:
        """Note what cannot be read."""
        self.skipped.append(Skipped(source, reason, hint, named=True))


def read_conda_list(path: str, files: Files = LOCAL) -> Environment:
    """Read a list in any of its forms."""
    listed = read_list(path, files)
    names = {record.name for record in listed.records}
    notes = list(listed.notes)
    whole = listed.form == "explicit" or names >= _WHOLE
    complete = whole and listed.states_pip and not listed.skipped
    if not listed.states_pip and listed.form == "explicit":
        notes.append(f"{path} lists what conda installs; packages of pip are not in it")
    elif not whole:
        notes.append(f"{path} lists a part of its environment: it has no python and openssl; what it lacks is unknown")
    return build_environment(
        path, listed.records, pip=listed.pip, complete=complete, skipped=listed.skipped, notes=notes
    )


def read_list(path: str, files: Files = LOCAL) -> CondaList:
    """Read the packages of a list."""
    data = read_bytes(path, files)
    text, note = decode(data, path)
    if text.lstrip("\ufeff \t\r\n").startswith(("[", "{")):
        listed = _read_json(path, files)
    else:
        listed = parse_list(text.removeprefix("\ufeff"), path)
    if not listed.records and not listed.pip:
        message = "lists no package"
        raise InputError(message, source=Source(path), hint=_REMEDY)
    listed.notes[:0] = [note] if note else []
    return listed


def parse_list(text: str, path: str) -> CondaList:
    """Parse columns, an export or an explicit file; the form of each line tells which it is."""
    lines = text.splitlines()
    listed = CondaList(path, "explicit" if any(line.strip() == "@EXPLICIT" for line in lines) else "")
    by_conda_lock = "Generated by conda-lock" in text
    created = "# created-by:" in text
    for number, raw in enumerate(lines, 1):
        line, source = raw.strip(), Source(path, line=number)
        if line.startswith("#"):
            platform = _PLATFORM.match(line)
            if platform and platform[1] not in {*LINUX, "noarch"}:
                listed.notes.append(f"{path} is for {platform[1]}, not for Linux")
            elif line.startswith("# pip ") and listed.form == "explicit":
                listed.add_commented(line[len("# pip ") :], source)
            continue
        if not line or line == "@EXPLICIT" or line.startswith(("─", "-", "List of packages", "Name ")):
            continue
        if listed.form == "explicit" or "://" in line.partition(" ")[0]:
            named = read_archive_name(line)
            if named is None:
                listed.skip(source, f"{echo(line)} names no conda package")
                continue
            name, version, build = named
            listed.records.append(Record(name.lower(), source, version, build, read_channel(redact(line))))
            listed.form = listed.form or "explicit"
        elif match := _EXPORT.match(line):
            listed.form = listed.form or "export"
            listed.add(source, match[1], match[2], match[3])
        elif match := _COLUMNS.match(line):
            listed.form = listed.form or "columns"
            listed.add(source, match[1], match[2], match[3], match[4])
        else:
            listed.skip(source, f"{echo(line)} is no package of a conda list")
    if listed.form == "explicit":
        listed.states_pip = by_conda_lock
    elif listed.form == "export":
        listed.states_pip = created or bool(listed.pip)
    return listed


def _read_json(path: str, files: Files = LOCAL) -> CondaList:
    data = read_json(path, files).data
    if not isinstance(data, list):
        message = "is JSON, but not the list that conda list --json prints"
        raise InputError(message, source=Source(path), hint=_REMEDY)
    listed = CondaList(path, "json")
    for index, entry in enumerate(data):
        source = Source(path, f"[{index}]")
        fields = as_table(entry)
        name, version = fields.get("name"), fields.get("version")
        if not isinstance(name, str) or not isinstance(version, str) or not name:
            listed.skip(source, "an entry has no name or no version")
            continue
        listed.add(source, name, version, as_text(fields.get("build_string")), as_text(fields.get("channel")))
    return listed
