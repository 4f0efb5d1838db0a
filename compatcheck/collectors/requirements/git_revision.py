"""A file as a git revision has it, ``HEAD~1:uv.lock``: its content is asked for, nothing is checked out."""

from __future__ import annotations

import os
import posixpath
import re
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from compatcheck.core.errors import CompatcheckError, InputError
from compatcheck.core.files import Files, LocalFiles
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.process import Completed, run
from compatcheck.core.programs import find_program, small_environment
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMED = r"([^-:][^:]*):(?:\./)?([^:]+)"
_MAX_FILES = 100
_LONGEST_TARGET = 4096
"""No link leads further, on Linux; a target may have any bytes, also those of a list."""
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
    files: Files
    """The tree of the revision, for readers: what lies beside the file, and what it names."""

    def rename(self, described: Described) -> Described:
        """Return what was said about the file with its true name, ``HEAD~1:uv.lock``, in every place and text."""
        places = (os.path.join(self.root, ""), os.path.join(os.path.realpath(self.root), ""))
        return cast("Described", _replace(described, places, self.revision))


def parse_revision(text: str) -> tuple[str, str] | None:
    """Split ``REVISION:PATH``; None for a file that exists, or a text that is no such thing.

    Behind a whole hash, and a revision that git knows, no file is meant: gates write it, and who opens a change may name a
    file so.
    """
    match = re.fullmatch(_NAMED, text)
    if match is None:
        return None
    revision, path = match.groups()
    if os.path.lexists(text) and not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", revision) and not is_revision(revision):
        return None
    return revision, path


def is_revision(text: str) -> bool:
    """Tell whether git knows a commit, branch or tag of this name here."""
    return _git(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}", timeout_seconds=TIMEOUT_SECONDS
    ).succeeded


@contextmanager
def open_revision(text: str) -> Iterator[RevisionFile]:
    """Lay down a file of a git revision, and what its readers ask for beside it, for the time of the block.

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
    with TemporaryDirectory(prefix="compatcheck-") as root:
        files = _RevisionFiles(text, revision, root)
        if re.match(r"[^:]+:\./", text):
            first = posixpath.join(files.ask("rev-parse", "--show-prefix").output.strip(), first)
        first = posixpath.normpath(first)
        if first.startswith(("..", "/")):  # it would be looked for beside the directory of this block
            _refuse(text, files.ask("cat-file", "blob", text, errors=True))
        files.lay_first(first)
        opened = RevisionFile(os.path.join(root, *first.split("/")), root, revision, files)
        try:
            yield opened
        except CompatcheckError as error:
            error.message, error.source, error.hint = opened.rename((error.message, error.source, error.hint))
            raise
        if files.failure is not None:  # a reader may have taken the file for one that is not there
            raise files.failure


class _RevisionFiles(LocalFiles):
    """The files of a revision, each laid down when it is first asked for: what belongs to a file is that of its revision."""

    def __init__(self, text: str, revision: str, root: str) -> None:
        self.text = text
        self.revision = revision
        self.root = root
        self._place = os.path.join(os.path.realpath(root), "")
        self._asked: set[str] = set()
        self._laid = 0
        self._left_seconds = TIMEOUT_SECONDS
        self.failure: InputError | None = None
        """Why no further file is laid down."""

    def ask(self, *arguments: str, errors: bool = False) -> Completed:
        """Ask git.

        Raises:
            InputError: it gave no answer in time.
        """
        if self._left_seconds <= 0:
            _refuse(self.text, Completed("", None, f"git did not answer within {TIMEOUT_SECONDS:g} s"))
        started = monotonic()
        done = _git(*arguments, timeout_seconds=max(0.1, round(self._left_seconds, 1)), errors=errors)
        self._left_seconds -= monotonic() - started
        if done.failure is not None:
            _refuse(self.text, done)
        return done

    def lay_first(self, path: str) -> None:
        """Lay down the file that is named.

        Raises:
            InputError: there is none, or it is a link.
        """
        self._asked.add(path)
        content, is_link = self._read(path)
        if content is None:
            _refuse(self.text, self.ask("cat-file", "blob", f"{self.revision}:{path}", errors=True))
        if is_link:
            msg = f"is a link to {content.decode('utf-8', 'replace')!r} in that revision"
            raise InputError(msg, source=Source(self.text), hint="name the file that it leads to")
        self._write(path, content)

    def _read(self, path: str) -> tuple[bytes | None, bool]:
        """Return the content of a file, None where there is none, and whether it is that of a link."""
        shown = self.ask("cat-file", "blob", f"{self.revision}:{path}")
        if not shown.succeeded:
            return None, False
        entry = ("ls-tree", "--full-tree", self.revision, "--", path)
        may_be_link = len(shown.data) < _LONGEST_TARGET
        return shown.data, may_be_link and self.ask(*entry).output.startswith("120000")

    def _write(self, path: str, content: bytes) -> None:
        self._laid += 1
        if self._laid > _MAX_FILES:
            msg = f"includes more than {_MAX_FILES} files, which is not read"
            raise InputError(msg, source=Source(self.text), hint="check out the revision, and name the file there")
        place = os.path.join(self.root, *path.split("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(content)

    def _lay(self, path: str) -> str:
        """Lay a file down where it is one of the revision; return its path here."""
        real = self.resolve(path)
        name = real.removeprefix(self._place).replace(os.sep, "/")
        if name == real or name in self._asked or os.path.lexists(real):
            return path
        self._asked.add(name)
        if self.failure is not None:
            raise self.failure
        try:
            content, is_link = self._read(name)
            if content is not None and not is_link:  # who includes a link says that there is no such file
                self._write(name, content)
        except InputError as error:
            self.failure = error
            raise
        return path

    def exists(self, path: str) -> bool:
        """See `Files`."""
        return super().exists(self._lay(path))

    def is_file(self, path: str) -> bool:
        """See `Files`."""
        return super().is_file(self._lay(path))

    def is_program(self, path: str) -> bool:
        """See `Files`."""
        return super().is_program(self._lay(path))

    def read_text(self, path: str, limit: int = 65536) -> str:
        """See `Files`."""
        return super().read_text(self._lay(path), limit)

    def read_bytes(self, path: str, limit: int) -> bytes:
        """See `Files`."""
        return super().read_bytes(self._lay(path), limit)

    def size_bytes(self, path: str) -> int:
        """See `Files`."""
        return super().size_bytes(self._lay(path))


_OWN = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""What a repository may name for git to run while it looks at its own index, as for ``:PATH``; the command line wins over it."""


def _git(*arguments: str, timeout_seconds: float, errors: bool = True) -> Completed:
    """Run git without a pager, a prompt or a download."""
    program = find_program("git")
    if program.path is None:
        return Completed("", None, f"git could not be started: {program.describe_absence()}")
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
    quiet["GIT_NO_REPLACE_OBJECTS"] = "1"  # a revision is what its hash says, as for everyone else
    quiet["GIT_ALLOW_PROTOCOL"] = (
        "none"  # whatever a repository configures, and for a git that knows no GIT_NO_LAZY_FETCH
    )
    environ = {**small_environment(more=r"GIT_\w+"), **quiet}
    command = (program.path, "-C", os.getcwd(), "--no-pager", *_OWN, *arguments)
    return run(command, timeout_seconds=timeout_seconds, output_limit_bytes=MAX_BYTES, environ=environ, errors=errors)


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
