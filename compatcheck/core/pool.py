"""Much work done by child processes, a few pieces each: one that crashes, hangs or floods memory costs itself alone."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

PIECES = 32
"""Most pieces of work of one child: starting one costs as much as a few pieces, and what it has in memory ends with it."""
_AHEAD = 2
"""Children whose results wait for those before them, for each that runs."""


class Result(NamedTuple):
    """What became of one piece of work."""

    piece: str
    line: str | None
    """What a child wrote of it, without the end of the line; None where it did not get so far."""
    failure: str | None = None
    """Why not, in words."""


class _StoppedError(Exception):
    """A child is to end: it has written nothing for too long, or nobody waits for it any more."""


class Pool:
    """Children that work on pieces, each by a command that writes a line for every piece to a file."""

    def __init__(
        self, command: Callable[[Sequence[str], str], Sequence[str]], jobs: int, timeout_seconds: float
    ) -> None:
        """Keep how children are started.

        Args:
            command: returns the command for some pieces and the file that takes a line for each, in their order.
            jobs: children at a time.
            timeout_seconds: time for one piece.
        """
        self._command, self._jobs, self._timeout_seconds = command, jobs, timeout_seconds
        self._ended = threading.Event()

    def run(self, pieces: Iterable[str]) -> Iterator[Result]:
        """Yield the results in the order of the pieces; only so many pieces are taken as are worked on."""
        source, taken = iter(pieces), 0
        waiting: deque[Future[list[Result]]] = deque()
        with ThreadPoolExecutor(self._jobs) as threads:
            try:
                while True:
                    while len(waiting) < self._jobs * _AHEAD:
                        size = min(PIECES, 1 + taken // (2 * self._jobs))  # a few pieces are spread over all children
                        some = list(islice(source, size))
                        if not some:
                            break
                        taken += len(some)
                        waiting.append(threads.submit(self._work, some))
                    if not waiting:
                        return
                    yield from waiting.popleft().result()
            finally:
                self._ended.set()
                for future in waiting:
                    future.cancel()

    def _work(self, pieces: list[str]) -> list[Result]:
        """Work on some pieces; after one at which a child ends, another child goes on behind it."""
        results: list[Result] = []
        while len(results) < len(pieces):
            rest = pieces[len(results) :]
            lines, failure = self._run_child(rest)
            results += (Result(piece, line) for piece, line in zip(rest, lines, strict=False))
            if len(lines) < len(rest):
                results.append(Result(rest[len(lines)], None, failure))
        return results

    def _run_child(self, pieces: list[str]) -> tuple[list[str], str]:
        descriptor, path = tempfile.mkstemp(prefix="compatcheck-results-")
        os.close(descriptor)
        seen, since = 0, time.monotonic()

        def watch() -> None:
            nonlocal seen, since
            size = os.path.getsize(path)
            if size != seen:
                seen, since = size, time.monotonic()
            if self._ended.is_set() or time.monotonic() - since > self._timeout_seconds:
                raise _StoppedError

        try:
            limit = self._timeout_seconds * (len(pieces) + 1)
            done = run(self._command(pieces, path), timeout_seconds=limit, environ=os.environ, watch=watch)
            failure = done.describe()
        except _StoppedError:
            failure = f"did not end within {self._timeout_seconds:g} s"
        finally:
            with open(path, encoding="utf-8") as file:
                lines = [line[:-1] for line in file if line.endswith("\n")]
            os.unlink(path)
        return lines, failure
