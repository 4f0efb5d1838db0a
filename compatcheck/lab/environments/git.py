"""What git says of a repository, here or elsewhere: commits by their names, and those between two."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.process import run
from compatcheck.core.programs import find_program, small_environment
from compatcheck.lab.cache import make_folder

if TYPE_CHECKING:
    from compatcheck.core.process import Completed

_LOCAL_SECONDS = 60.0
_TRANSFER_SECONDS = 900.0
_WHOLE = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Commit(NamedTuple):
    """One commit of a history."""

    hash: str
    """All its digits."""
    date: str
    """ISO date of the commit."""
    subject: str
    """First line of its message."""


def ask_git(*arguments: str, timeout_seconds: float = _LOCAL_SECONDS) -> Completed:
    """Run git without a pager or a prompt.

    Raises:
        UsageError: there is no git.
    """
    program = find_program("git")
    if program.path is None:
        raise UsageError(program.describe_absence(), hint="install git, or name releases instead of commits")
    environ = {**small_environment(more=r"GIT_\w+|SSH_\w+"), "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    own = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")  # what a clone may name is not run
    return run([program.path, "--no-pager", *own, *arguments], timeout_seconds=timeout_seconds, environ=environ)


def find_commit(url: str, name: str) -> str | None:
    """Return the commit that a branch, tag or hash of a repository stands for today; None for what it does not list.

    Args:
        url: as git takes it.
        name: ``HEAD`` is the branch it has by default.
    """
    if _WHOLE.fullmatch(name):
        return name
    done = ask_git("ls-remote", "--", url, name, f"{name}^{{}}", timeout_seconds=_TRANSFER_SECONDS)
    lines = done.output.splitlines() if done.succeeded else []
    # It lists whatever ends so: feature/main for main, and what a clone last saw of another repository's main.
    listed = {ref: commit for commit, _, ref in (line.partition("\t") for line in lines) if _WHOLE.fullmatch(commit)}
    # What an annotated tag points at stands behind ``^{}``.
    meant = ("{}", "refs/{}", "refs/heads/{}", "refs/tags/{}^{{}}", "refs/tags/{}", "refs/remotes/{}")
    return next((listed[ref] for one in meant if (ref := one.format(name)) in listed), None)


def open_repository(source: str) -> str:
    """Return a directory in which git knows a repository: a clone that is there, or one in the cache, brought up to date.

    Raises:
        UsageError: it is no repository, or cannot be had.
    """
    if Path(source).is_dir():
        done = ask_git("-C", str(Path(source).resolve()), "rev-parse", "--absolute-git-dir")
        if done.succeeded:
            return str(Path(source).resolve())
        msg = f"{source} is no git repository: {done.describe()}"
        raise UsageError(msg, hint="name a clone, or its address")
    folder = make_folder("repositories") / hashlib.sha256(source.encode()).hexdigest()[:20]
    command = (
        ("-C", str(folder), "fetch", "--quiet", "--prune", "origin", "+refs/*:refs/*")
        if folder.exists()
        else ("clone", "--quiet", "--mirror", "--filter=blob:none", "--", source, str(folder))
    )
    done = ask_git(*command, timeout_seconds=_TRANSFER_SECONDS)
    if not done.succeeded:
        msg = f"{source} cannot be fetched: {done.describe()}"
        raise UsageError(msg, hint="name a clone on this machine, or an address that git can fetch from")
    return str(folder)


def list_commits(repository: str, span: str) -> list[Commit]:
    """Return the commits from A to B of ``A..B``, both ends included, the oldest first: those of B's own line of merges.

    Raises:
        UsageError: it is no range, an end is no commit, or nothing lies between.
    """
    first, dots, last = span.partition("..")
    if not dots or not first or not last or first.startswith("-") or last.startswith("-"):
        msg = f"--commits {span!r} is not A..B"
        raise UsageError(msg, hint="as --commits v0.18.1..v0.19.0")
    git = ("-C", repository)
    shape = "--format=%H%x09%cs%x09%s"
    start = ask_git(*git, "log", "-1", shape, f"{first}^{{commit}}", "--")
    done = ask_git(*git, "log", "--first-parent", "--reverse", shape, f"{first}..{last}", "--")
    for one in (start, done):
        if not one.succeeded:
            msg = f"--commits {span}: {one.describe()}"
            raise UsageError(msg, hint="name two commits, tags or branches of the repository")
    commits = [Commit(*line.split("\t", 2)) for line in (start.output + done.output).splitlines()]
    if len(commits) < 2:
        msg = f"--commits {span}: no commit lies between the two"
        raise UsageError(msg, hint="the older end comes first")
    return commits
