"""A file as a git revision has it, ``HEAD~1:uv.lock``: its content is asked for, nothing is checked out."""

from __future__ import annotations

import os
import posixpath
import re
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

from compatcheck.core.errors import InputError
from compatcheck.core.process import Completed, run
from compatcheck.core.programs import find_program, small_environment
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMED = r"([^-:][^:]*):(?:\./)?([^:]+)"
_INCLUDE = re.compile(r"^[^\S\n]*(?:-r|-c|--requirement|--constraint)[\s=]*([^\s#]+)", re.MULTILINE)
_MAX_FILES = 100
TIMEOUT_SECONDS = 10.0
"""For all that git is asked about one file: what lies in a ``.git`` may never give an answer."""

Described = TypeVar("Described")


class RevisionFile(NamedTuple):
    """A file of a revision, laid down where readers can read it."""

    path: str
    """Where it lies for the time being."""
    root: str
    """Directory that stands for the root of the repository."""
    revision: str

    def rename(self, described: Described) -> Described:
        """Return what was said about the file with its true name, ``HEAD~1:uv.lock``, in every place and text."""
        places = (os.path.join(self.root, ""), os.path.join(os.path.realpath(self.root), ""))
        return cast("Described", _replace(described, places, self.revision))


def parse_revision(text: str) -> tuple[str, str] | None:
    """Split ``REVISION:PATH``; None for a file that exists, or a text that is no such thing.

    Behind a whole hash no file is meant: gates write it, and who opens a change may name a file so.
    """
    match = re.fullmatch(_NAMED, text)
    if match is None or (os.path.exists(text) and not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", match[1])):
        return None
    return match[1], match[2]


def is_revision(text: str) -> bool:
    """Tell whether git knows a commit, branch or tag of this name here."""
    return _git(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}", timeout_seconds=TIMEOUT_SECONDS
    ).succeeded


@contextmanager
def open_revision(text: str) -> Iterator[RevisionFile]:
    """Lay down a file of a git revision, with the requirement files it includes, for the time of the block.

    As for git, the path starts at the root of the repository, or with ``./`` at the working directory.

    Raises:
        InputError: there is no such revision or file, or git cannot be run.
    """
    from tempfile import TemporaryDirectory  # noqa: PLC0415 (only for a revision)

    named = parse_revision(text)
    if named is None:
        msg = "is not REVISION:PATH"
        raise InputError(msg, source=Source(text), hint="for example HEAD~1:uv.lock")
    revision, first = named
    deadline = monotonic() + TIMEOUT_SECONDS

    def ask(*arguments: str) -> Completed:
        done = _git(*arguments, timeout_seconds=max(0.1, round(deadline - monotonic(), 1)))
        if done.failure is not None:
            _refuse(text, done)
        return done

    if re.match(r"[^:]+:\./", text):
        first = posixpath.join(ask("rev-parse", "--show-prefix").output.strip(), first)
    first = posixpath.normpath(first)
    if first.startswith(("..", "/")):
        _refuse(text, ask("cat-file", "blob", text))  # it would be looked for beside the directory of this block
    with TemporaryDirectory(prefix="compatcheck-") as root:
        waiting, seen = [first], set[str]()
        while waiting:
            path = waiting.pop()
            if path in seen or path.startswith(("..", "/")):
                continue
            if len(seen) == _MAX_FILES:
                msg = f"includes more than {_MAX_FILES} files, which is not read"
                raise InputError(msg, source=Source(text), hint="check out the revision, and name the file there")
            seen.add(path)
            shown = ask("cat-file", "blob", f"{revision}:{path}")
            content = shown.output if shown.succeeded else None
            entry = ("ls-tree", "--full-tree", revision, "--", path)
            if content is not None and "\n" not in content and ask(*entry).output.startswith("120000"):
                if len(seen) == 1:
                    msg = f"is a link to {content!r} in that revision"
                    raise InputError(msg, source=Source(text), hint="name the file that it leads to")
                content = None
            if content is None:
                if len(seen) == 1:
                    _refuse(text, shown)
                continue  # the reader of the file that includes it says so
            place = os.path.join(root, *path.split("/"))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "w", encoding="utf-8", newline="") as file:
                file.write(content)
            if path.endswith((".txt", ".in")):
                beside = posixpath.dirname(path)
                waiting += [posixpath.normpath(posixpath.join(beside, name)) for name in _INCLUDE.findall(content)]
        yield RevisionFile(os.path.join(root, *first.split("/")), root, revision)


def _git(*arguments: str, timeout_seconds: float) -> Completed:
    """Run git without a pager, a prompt or a download."""
    program = find_program("git")
    if program.path is None:
        return Completed("", None, f"git could not be started: {program.describe_absence()}")
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
    quiet["GIT_ALLOW_PROTOCOL"] = (
        "none"  # whatever a repository configures, and for a git that knows no GIT_NO_LAZY_FETCH
    )
    environ = {**small_environment(more=r"GIT_\w+"), **quiet}
    command = (program.path, "-C", os.getcwd(), "--no-pager", *arguments)
    return run(command, timeout_seconds=timeout_seconds, output_limit_bytes=MAX_BYTES, environ=environ)


def _refuse(text: str, done: Completed) -> NoReturn:
    """Raise an error that says why a file could not be had."""
    if done.failure is not None:
        raise InputError(done.failure, source=Source(text), hint="check out the revision, and name the file there")
    hint = "name a revision and a path of this repository, as git knows them: HEAD~1:uv.lock"
    raise InputError(f"git has no such file: {done.describe()}", source=Source(text), hint=hint)


def _replace(value: Any, places: tuple[str, ...], revision: str) -> Any:  # noqa: ANN401 (any part of a report)
    if isinstance(value, str):
        for place in places:
            value = value.replace(place, f"{revision}:")
        return value
    if isinstance(value, tuple):
        parts = [_replace(part, places, revision) for part in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if isinstance(value, dict):
        return {key: _replace(part, places, revision) for key, part in value.items()}
    return value
