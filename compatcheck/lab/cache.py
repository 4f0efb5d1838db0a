"""Where version environments and compiled counters are kept."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.core.cache import find_cache
from compatcheck.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

_POLL_SECONDS = 0.2


def cache_directory() -> Path:
    """Return the cache of this process's environment."""
    return Path(find_cache(os.environ))


def make_folder(*parts: str) -> Path:
    """Return a folder of the cache, made where it is missing.

    Raises:
        UsageError: it cannot be made.
    """
    folder = cache_directory().joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(cache_directory(), error) from None
    return folder


def unwritable(folder: Path, error: OSError) -> UsageError:
    """Return the error that says that a folder of the cache cannot be written, and what to do."""
    msg = f"the cache {folder} cannot be written: {error.strerror}"
    return UsageError(msg, hint="name another place in COMPATCHECK_CACHE")


@contextlib.contextmanager
def claim(name: str, cancelled: Event) -> Iterator[None]:
    """Wait until nobody else works on what has this name, and keep others from it meanwhile.

    A process that ends gives back what it held. Where the system has no such locks, or the wait is cancelled, nothing is held.

    Raises:
        UsageError: the cache cannot be written.
    """
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 (Windows has none)
    except ImportError:
        yield
        return
    path = make_folder("claims") / name
    try:
        file = path.open("wb")
    except OSError as error:
        raise unwritable(cache_directory(), error) from None
    with file:
        while not cancelled.is_set():
            try:
                flock(file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                cancelled.wait(_POLL_SECONDS)
            else:
                break
        yield
