"""Much work done by child processes, a few pieces each: one that crashes, hangs or floods memory costs itself alone."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.place import HERE
from compatcheck.core.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from compatcheck.core.place import Place, Work

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


class Requirement(Protocol):
    """What a machine must have."""

    def require(self) -> None:
        """Do nothing where it has.

        Raises:
            CompatcheckError: this one has not.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Some pieces, worked on by a child process that writes a line for each to a file."""

    command: Callable[[Sequence[str], str], Sequence[str]]
    """Returns the command for some pieces and the file that takes their lines, in their order."""
    pieces: Sequence[str]
    timeout_seconds: float
    """Time for one piece."""
    likeness: Requirement | None = None
    """What another machine must have that works on them; None where any will do."""
    devices: int = 0

    def run(self, keep: Callable[[Result], None], cancelled: Callable[[], bool]) -> None:
        """Work on the pieces; after one at which a child ends, another child goes on behind it."""
        rest = list(self.pieces)
        while rest:
            lines, failure = self._run_child(rest, cancelled)
            for piece, line in zip(rest, lines, strict=False):
                keep(Result(piece, line))
            rest = rest[len(lines) :]
            if rest:
                keep(Result(rest.pop(0), None, failure))

    def adopt(self) -> Share:
        """See `Work`."""
        if self.likeness is not None:
            self.likeness.require()
        return self

    def _run_child(self, pieces: list[str], cancelled: Callable[[], bool]) -> tuple[list[str], str]:
        descriptor, path = tempfile.mkstemp(prefix="compatcheck-results-")
        os.close(descriptor)
        seen, since = 0, time.monotonic()

        def watch() -> None:
            nonlocal seen, since
            size = os.path.getsize(path)
            if size != seen:
                seen, since = size, time.monotonic()
            if cancelled() or time.monotonic() - since > self.timeout_seconds:
                raise _StoppedError

        try:
            limit = self.timeout_seconds * (len(pieces) + 1)
            done = run(self.command(pieces, path), timeout_seconds=limit, environ=os.environ, watch=watch)
            failure = done.describe()
        except _StoppedError:
            failure = f"did not end within {self.timeout_seconds:g} s"
        finally:
            with open(path, encoding="utf-8") as file:
                lines = [line[:-1] for line in file if line.endswith("\n")]
            os.unlink(path)
        return lines, failure


class Pool:
    """Shares of many pieces, so many at a time."""

    def __init__(self, make: Callable[[Sequence[str]], Work[Result]], jobs: int, place: Place = HERE) -> None:
        """Keep how pieces are worked on.

        Args:
            make: returns the work on some pieces, as `Share` is.
            jobs: shares at a time.
            place: where they are worked on.
        """
        self._make, self._jobs, self._place = make, jobs, place
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
        results: list[Result] = []
        self._place.do(self._make(pieces), results.append, self._ended.is_set)
        return results
