"""How a statement ends."""

from __future__ import annotations

import enum


class Flow(enum.Enum):
    """Where the script goes on after a statement."""

    NEXT = enum.auto()
    BREAK = enum.auto()
    CONTINUE = enum.auto()
    RETURN = enum.auto()
    EXIT = enum.auto()
