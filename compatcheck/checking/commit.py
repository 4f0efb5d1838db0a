"""Which runs of the policy files belong to: those of a commit, or of the directory that the policy stands in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.files import ReadLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.core.files import Files


class Commit:
    """The files of a commit, or of a directory with runs, as far as they have not been found to belong to a run."""

    def __init__(self, inspection: Inspection) -> None:
        """Take the files that a hook names; without any, every run takes part."""
        runs = any(request.run is not None for request in inspection.requests)
        self.paths = frozenset(map(os.path.realpath, inspection.touched or ())) if runs else frozenset()
        self.beside_runs = runs and any(request.run is None for request in inspection.requests) and not self.paths
        """Whether a directory is walked for what is there beside its runs."""
        self.manifests = _find_manifests(self.paths)
        policy = None if inspection.policy is None else os.path.realpath(inspection.policy.path)
        self.holds_policy = policy in self.paths
        self.read = {policy} if runs else set()
        """What belongs to runs: it is not checked once more by itself."""
        self.runs: set[str] = set()

    def narrow(self, request: Request) -> Request | None:
        """Leave what belongs to runs out of the request for all other files; None where no file is left."""
        if self.beside_runs and request.run is None:
            return request._replace(covered=frozenset(path for path in self.read if path is not None))
        if not request.hook:
            return request
        rest = tuple(path for path in request.paths if os.path.realpath(path) not in self.read)
        return request._replace(paths=rest) if rest or not request.paths else None

    def watch(self, files: Files) -> ReadLog | None:
        """Return a tree that tells what is read of it; None where every run takes part."""
        return ReadLog(files) if self.paths or self.beside_runs else None

    def concerns(self, request: Request, log: ReadLog | None) -> bool:
        """Tell whether a request that has been read takes part: a run for which no file of the commit was read does not."""
        if log is None or request.run is None:
            return True
        if self.beside_runs:
            self.read |= log.read
            return True
        locked = {self.manifests[path] for path in log.read & self.manifests.keys()}
        if (
            self.holds_policy or locked or not (log.read | log.asked).isdisjoint(self.paths)
        ):  # a policy belongs to every run
            self.read |= log.read | locked
            self.runs.add(request.run)
        return request.run in self.runs


def _find_manifests(paths: Iterable[str]) -> Mapping[str, str]:
    """Find the manifests among these paths that are locked beside themselves: what they do to a run shows in the lock.

    Returns:
        Lock → manifest, without links.
    """
    paths = frozenset(paths)
    if not paths:
        return {}
    from compatcheck.checking.input_files import InputFile  # noqa: PLC0415 (only for a commit)
    from compatcheck.checking.locked_manifests import find_locks  # noqa: PLC0415 (only for a commit)
    from compatcheck.collectors.recognise import recognise  # noqa: PLC0415 (only for a commit)

    found = {}
    for directory in {os.path.dirname(path) for path in paths}:
        beside = (os.path.join(directory, name) for name in os.listdir(directory))
        files = [InputFile(path, kind=recognise(path, named=False)) for path in beside if os.path.isfile(path)]
        for manifest, locks in find_locks(files).items():
            if manifest in paths:
                found.update(dict.fromkeys(map(os.path.realpath, locks), manifest))
    return found
