"""What a resolver is asked, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PYTHON = "3.11"


class Answer(NamedTuple):
    """What uv said."""

    verdict: str
    """`RESOLVED`, `REFUSED` or `NOT_CHECKED`."""
    detail: str | None = None
    pins: Mapping[str, str] = {}
    """Everything it chose: name → version."""
    unbuilt: tuple[str, ...] = ()
    """Distributions whose requirements it was told."""
    files: Mapping[str, str] = {}
    """Files it wrote, by their path in the project: the lock."""


class Demand(NamedTuple):
    """What is to be resolved together."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Index options of requirement files: ``--extra-index-url …``."""
    python: str | None = None
    """``3.11``; the one that most training stacks have wheels for when None."""
