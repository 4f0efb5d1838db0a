"""How far work of many steps is, told to whoever listens: a command on a terminal, else nobody."""

from __future__ import annotations

from collections.abc import Sized
from contextlib import contextmanager
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    Listener = Callable[[str, int, int | None], None]
    """Takes what is done, how many steps of it are done, and how many there are, None where nobody knows."""
    T = TypeVar("T")

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def follow(items: Iterable[T], doing: str) -> Iterator[T]:
    """Yield the items of some work, and tell before each how far it is."""
    total = len(items) if isinstance(items, Sized) else None
    listener = _listener.get()
    for done, item in enumerate(items):
        if listener is not None:
            listener(doing, done, total)
        yield item


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Let a listener hear of the work within."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
