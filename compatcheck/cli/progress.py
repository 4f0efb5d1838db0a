"""One line on the terminal that says how far work is, and is gone when it is done; nothing where nobody looks on."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager

from compatcheck.cli.output import terminal_width
from compatcheck.core.progress import heard_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SILENT_SECONDS = 1.0
"""What takes less needs no line."""
_BETWEEN_SECONDS = 0.1


def show_progress(line: str) -> None:
    """Write what takes long over the line before it, on a terminal alone; nothing clears the line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line[: terminal_width() - 1]}")
        sys.stderr.flush()


@contextmanager
def showing_progress() -> Iterator[None]:
    """Show how far the work within is, once it takes more than a second."""
    if not sys.stderr.isatty():
        yield
        return
    meter = _Meter()
    try:
        with heard_by(meter):
            yield
    finally:
        if meter.shown:
            show_progress("")


class _Meter:
    """Hears of steps and shows some of them, with the time that is left by those that are done."""

    def __init__(self) -> None:
        """Start; nothing is shown yet."""
        self.shown = 0.0
        """When a line was last written."""
        self._begun = time.monotonic()
        self._doing = ""
        self._since = self._begun

    def __call__(self, doing: str, done: int, total: int | None) -> None:
        """See `compatcheck.core.progress.Listener`."""
        now = time.monotonic()
        if doing != self._doing or not done:
            self._doing, self._since = doing, now
        if now - self._begun < _SILENT_SECONDS or now - self.shown < _BETWEEN_SECONDS:
            return
        self.shown = now
        count = str(done) if total is None else f"{done + 1} of {total}"
        left = "" if total is None or not done else f", about {(now - self._since) / done * (total - done):.0f} s left"
        show_progress(f"{doing}: {count}{left}")
