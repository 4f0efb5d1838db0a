"""What an installation of compatcheck can do: what is there, and what each missing part would add."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """A program, package or device that something needs."""

    name: str
    enables: str
    """What is done with it."""
    version: str | None = None
    """None where it is not there, or does not say."""
    place: str | None = None
    """Path of a program or an environment; None where there is none."""
    remedy: str | None = None
    """How to get it; None where it is there."""


class Installation(NamedTuple):
    """One installation, as it was found."""

    version: str
    kind: str
    """``checkout``, ``package``, ``pipx``, ``uv tool`` or ``archive`` (one file that Python runs)."""
    place: str
    python: str
    interpreter: str
    rules_date: str
    """Day the rules were last reviewed, ``2026-11-21``."""
    rules_age_days: int
    rules_count: int
    rules_id: str
    parts: tuple[Part, ...]
