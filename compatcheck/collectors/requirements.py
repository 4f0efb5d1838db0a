"""Requirement and constraint files as pip reads them, line by line, without fetching, building or expanding anything.

The rules are those of pip's ``req_file.py`` (encodings, continuation, comments, options), with two differences: a
line that cannot be used is reported and the others still count, and variables are not expanded, because the file is
often checked on another machine than it is used on.
"""

from __future__ import annotations

import codecs
import os
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.redaction import redact
from compatcheck.core.requirement import InvalidRequirementError, Requirement, combine, parse_requirement, read_url
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BYTE_ORDER_MARKS = (  # the longer marks first: UTF-32 begins like UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CODING = re.compile(rb"coding[:=]\s*([-\w.]+)")
_COMMENT = re.compile(r"(^|\s+)#.*$")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
_URL = re.compile(r"(?:(?:git|hg|svn|bzr)\+[a-z+]+|https?|ftp|file)://|git\+[^/\s]+@", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(?:whl|zip|tar|tgz|tbz|txz|tar\.(?:gz|bz2|xz|lzma|lz|Z))$", re.IGNORECASE)
_EXTRAS = re.compile(r"^(.+?)(\[[^\]]*\])$")
_SHORT = {
    "-r": "--requirement",
    "-c": "--constraint",
    "-e": "--editable",
    "-i": "--index-url",
    "-f": "--find-links",
    "-C": "--config-settings",
    "-Z": "--always-unzip",
}
_WITH_VALUE = [
    "--requirement",
    "--constraint",
    "--editable",
    "--index-url",
    "--pypi-url",
    "--extra-index-url",
    "--find-links",
    "--no-binary",
    "--only-binary",
    "--trusted-host",
    "--use-feature",
    "--hash",
    "--global-option",
    "--install-option",
    "--config-settings",
    "--config-setting",
    "--uploaded-prior-to",
    "--only-final",
    "--all-releases",
]
_WITHOUT_VALUE = ["--no-index", "--prefer-binary", "--require-hashes", "--pre", "--always-unzip"]
_MAX_DEPTH = 50


class _Reading:
    """The state of one read: what was collected, which files were read and which are being read."""

    def __init__(self) -> None:
        self.requirements: list[Requirement] = []
        self.constraints: list[Requirement] = []
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self.chain: list[tuple[str, str]] = []
        self.done: set[tuple[str, bool]] = set()

    def skip(self, source: Source, reason: str, hint: str) -> None:
        """Note what is not read: the file is then one that could not be read whole, which counts where a person named it."""
        self.skipped.append(Skipped(source, reason, hint, named=True))


class _Line(NamedTuple):
    number: int
    text: str


def read_requirements(
    path: str, *, marker_environment: Mapping[str, str] | None = None, constraints: bool = False
) -> Environment:
    """Read a requirement file and everything it includes.

    Args:
        path: the file, as the person named it; included files are found relative to the file that names them.
        marker_environment: known marker variables, such as ``python_full_version``; a marker that they do not decide
        keeps
            its requirement, with a note.
        constraints: whether the file holds constraints: its packages are marked ``presence: unknown``.

    Raises:
        InputError: the file itself cannot be read; an included file that cannot is ``skipped``.
    """
    reading = _Reading()
    _read_file(reading, path, as_constraints=constraints)
    environment = describe_machine(marker_environment)
    if constraints:
        combined = combine(reading.constraints, environment)
        packages = {
            name: package._replace(details={**package.details, "presence": "unknown"})
            for name, package in combined.packages.items()
        }
        remark = "holds constraints: it says which versions are allowed, not which packages are installed"
        return Environment(
            path,
            packages,
            complete=False,
            damage=combined.damage,
            skipped=tuple(reading.skipped),
            notes=(*reading.notes, remark, *combined.notes),
        )
    combined = combine(reading.requirements, environment, constraints=reading.constraints)
    return Environment(
        path,
        combined.packages,
        complete=False,
        damage=combined.damage,
        skipped=tuple(reading.skipped),
        notes=(*reading.notes, *combined.notes),
    )


def read_statements(path: str, *, constraints: bool = False) -> tuple[tuple[Requirement, ...], tuple[Requirement, ...]]:
    """Return every line of a requirement file and of what it includes, one by one: what is required, and the constraints.

    Raises:
        InputError: the file itself cannot be read.
    """
    reading = _Reading()
    _read_file(reading, path, as_constraints=constraints)
    return tuple(reading.requirements), tuple(reading.constraints)


def _read_file(reading: _Reading, path: str, *, as_constraints: bool) -> None:
    data = read_bytes(path)
    text, note = decode(data, path)
    if note:
        reading.notes.append(note)
    real = os.path.realpath(path)
    reading.chain.append((real, path))
    for line in logical_lines(text):
        _read_line(reading, line, Source(path, line=line.number), as_constraints=as_constraints)
    reading.chain.pop()


def decode(data: bytes, path: str) -> tuple[str, str | None]:
    """Decode a requirement file: byte order mark, else a coding comment in its first two lines (PEP 263), else UTF-8.

    Returns:
        The text, and a note when Latin-1 had to be assumed.

    Raises:
        InputError: the declared encoding is unknown or does not fit, or the file is not text.
    """
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    if encoding is not None:
        mark = next(mark for mark, name in _BYTE_ORDER_MARKS if name == encoding)
        data = data[len(mark) :]
    else:
        for line in data.split(b"\n")[:2]:
            match = _CODING.search(line) if line.startswith(b"#") else None
            if match:
                encoding = match.group(1).decode("ascii", "replace")
                break
    note = None
    try:
        text = data.decode(encoding or "utf-8")
    except LookupError:
        message = f"declares the unknown encoding {encoding!r}"
        raise InputError(message, source=Source(path, line=1), hint="save the file as UTF-8") from None
    except UnicodeError:
        if encoding is not None:
            message = f"is not {encoding}, which it declares"
            raise InputError(message, source=Source(path), hint="save the file as UTF-8") from None
        text, note = data.decode("latin-1"), f"{path} is not UTF-8 and was read as Latin-1"
    if "\0" in text:
        at = text[: text.index("\0")].count("\n") + 1
        message = "holds NUL bytes: it is not a text file"
        raise InputError(message, source=Source(path, line=at), hint="name a requirement file, saved as UTF-8")
    return text, note


def logical_lines(text: str) -> Iterator[_Line]:
    """Join continued lines, drop comments and blank lines; a line keeps the number of its first physical line."""
    first, parts = 0, list[str]()
    for number, physical in enumerate(text.splitlines(), 1):
        is_comment = _COMMENT.match(physical) is not None
        first = first or number
        if physical.endswith("\\") and not is_comment:
            parts.append(physical.strip("\\"))
            continue
        parts.append(" " + physical if is_comment else physical)
        if joined := _COMMENT.sub("", "".join(parts)).strip():
            yield _Line(first, joined)
        first, parts = 0, []
    if joined := _COMMENT.sub("", "".join(parts)).strip():
        yield _Line(first, joined)


def _read_line(reading: _Reading, line: _Line, source: Source, *, as_constraints: bool) -> None:
    words = line.text.split(" ")
    first_option = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    requirement, options = " ".join(words[:first_option]).strip(), " ".join(words[first_option:])
    try:
        parsed = _parse_options(options)
    except ValueError as error:
        hint = "use an option that pip reads in requirement files"
        reading.skip(source, f"{echo(line.text)}: {error}", hint)
        return
    target = reading.constraints if as_constraints else reading.requirements
    if requirement:
        misplaced = {option for option, _ in parsed} & {"--editable", "--requirement", "--constraint"}
        if misplaced:
            reason = f"{echo(line.text)}: {', '.join(sorted(misplaced))} behind a requirement is not followed"
            reading.skip(source, reason, "write it on a line of its own")
        if "--editable" not in misplaced:
            _add(reading, target, requirement, source, {})
        return
    for option, value in parsed:
        if option == "--editable":
            _add(reading, target, value, source, {"editable": "true"})
        elif option in {"--requirement", "--constraint"}:
            _include(reading, value, source, as_constraints=as_constraints or option == "--constraint")


def _parse_options(text: str) -> list[tuple[str, str]]:
    """Split options as optparse does: ``-rbase.txt``, ``--requirement=base.txt``, unique abbreviations."""
    if not text:
        return []
    try:
        words = shlex.split(text)
    except ValueError:
        message = "a quotation mark is not closed"
        raise ValueError(message) from None
    options: list[tuple[str, str]] = []
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            continue  # optparse sets words that are no option aside, and pip does not look at them
        option, value = _name_option(word)
        if value is None and option in _WITH_VALUE:
            if not words:
                message = f"{option} needs a value"
                raise ValueError(message)
            value = words.pop(0)
        options.append((option, value or ""))
    return options


def _name_option(word: str) -> tuple[str, str | None]:
    """Return the full name of an option and the value that is written in the same word."""
    name, equals, value = word.partition("=")
    attached = value if equals else None
    if not word.startswith("--") and word[:2] in _SHORT:
        name, attached = _SHORT[word[:2]], word[2:] or None
    known = [option for option in (*_WITH_VALUE, *_WITHOUT_VALUE) if option.startswith(name)]
    if name in known:
        known = [name]
    if name == "--" or len(known) != 1:
        message = f"{redact(name)!r} is not an option of requirement files"
        raise ValueError(message)
    return known[0], attached


def _include(reading: _Reading, value: str, source: Source, *, as_constraints: bool) -> None:
    if _VARIABLE.search(value):
        reading.skip(
            source, f"includes {echo(value)}, whose variable is not expanded", "check the file it stands for too"
        )
        return
    if _URL.match(value) and not value.startswith("file://"):
        reading.skip(source, f"includes {echo(value)}, which is not fetched", "download it and include the copy")
        return
    path = os.path.normpath(os.path.join(os.path.dirname(source.path), value.removeprefix("file://")))
    real = os.path.realpath(path)
    chain = [shown for _, shown in reading.chain]
    if real in [known for known, _ in reading.chain]:
        cycle = " → ".join([*chain[[known for known, _ in reading.chain].index(real) :], path])
        reading.skip(source, f"includes itself: {cycle}", "remove one of the -r or -c lines")
        return
    if len(chain) >= _MAX_DEPTH:
        reading.skip(source, f"{path} is included {_MAX_DEPTH} files deep", "include it closer to the first file")
        return
    if (real, as_constraints) in reading.done:
        return
    reading.done.add((real, as_constraints))
    try:
        _read_file(reading, path, as_constraints=as_constraints)
    except InputError as error:
        reason = f"includes {path}: {error.message}"
        reading.skip(source, reason, error.hint or "mend or remove the line")


def _add(reading: _Reading, target: list[Requirement], text: str, source: Source, details: dict[str, str]) -> None:
    if _VARIABLE.search(text):
        reason = f"{echo(text)} holds a variable, and variables are not expanded"
        reading.skip(source, reason, "write the value in place of the variable, or check the installed environment")
        return
    try:
        requirement = _read_requirement(text, source, editable="editable" in details)
    except InvalidRequirementError as error:
        reading.skip(source, str(error), _remedy(text))
        return
    target.append(requirement._replace(details={**requirement.details, **details}))


def _read_requirement(text: str, source: Source, *, editable: bool) -> Requirement:
    is_url = _URL.match(text) is not None
    text = text.rstrip("; ")
    location, _, marker = (part.strip() for part in text.partition("; " if is_url else ";"))
    extras = _EXTRAS.match(location)
    bare = extras.group(1) if extras else location
    is_path = not is_url and "@" not in bare.partition("/")[0] and _looks_like_path(bare)
    if not (is_url or is_path):
        if editable:
            message = f"{echo(text)} is neither a path nor the URL of a repository"
            raise InvalidRequirementError(message)
        return parse_requirement(text, source)
    name, version, details = read_url(bare)
    if name is None:
        what = "is a path, and what it requires is not read here" if is_path else "does not name its package"
        message = f"{echo(location)} {what}"
        raise InvalidRequirementError(message)
    if "#" in location and "[" in location.partition("#")[2]:
        details["extras"] = location.partition("[")[2].partition("]")[0]
    elif extras:
        details["extras"] = extras.group(2)[1:-1]
    return Requirement(canonical_name(name), "", source, version, marker or None, details)


def _looks_like_path(text: str) -> bool:
    return text.startswith(".") or "/" in text or _ARCHIVE.search(text) is not None


def _remedy(text: str) -> str:
    if _looks_like_path(text.partition(";")[0].strip()) and not re.search(r"[<>=!~]=|\s@\s", text):
        if _URL.match(text):
            return "write it as 'name @ URL', or append #egg=name"
        return "check the pyproject.toml or the requirement file of that directory as well"
    if re.match(r"[\w.-]+(\[[^\]]*\])?\s*=[^=]", text):
        return "pin with '==': name==1.2.3"
    return "write it as 'name', 'name==1.2.3' or 'name>=1.2,<2'"
