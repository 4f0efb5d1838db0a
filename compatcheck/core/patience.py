"""A call into a library that waits for as long as it likes, waited for no longer than a given time."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
_abandoned: list[threading.Thread] = []


def wait_for(call: Callable[[], R], seconds: float) -> R:
    """Return what a call returns. One that does not return in time goes on in a thread of its own, see `leave`.

    Raises:
        TimeoutError: it did not.
    """
    results: list[R] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0, seconds))
    if errors:
        raise errors[0]
    if not results:
        _abandoned.append(thread)
        raise TimeoutError
    return results[0]


def leave(code: int) -> None:
    """End this process at once where a call that was given up still goes on: taking things down would wait for it or crash."""
    if any(thread.is_alive() for thread in _abandoned):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
