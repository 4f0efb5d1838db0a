"""How much of a script is read: what goes beyond is an error that names the line, never an endless loop."""

from __future__ import annotations

MAX_STEPS = 100_000
"""Statements evaluated in all."""
MAX_ITERATIONS = 2_000
"""Rounds of one loop."""
MAX_COMMANDS = 5_000
MAX_WORDS = 20_000
"""Words of one command, elements of one array, words of one pair of braces."""
MAX_WORK = 1_000_000
"""Parts of values put together, in all: a second of time."""
MAX_CHARACTERS = 1 << 20
"""Of one value."""
MAX_CALLS = 20
"""Functions, ``eval`` and ``$( )`` inside one another."""


class LimitError(ValueError):
    """A script does more than is read."""
