"""What a parsed file holds, as the shape it should have: what has another shape counts as not there."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def as_table(value: object) -> Mapping[str, Any]:
    """Return a table (an object, a mapping) as it is, and an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def as_tables(value: object) -> list[Mapping[str, Any]]:
    """Return the tables of an array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_texts(value: object) -> tuple[str, ...]:
    """Return the strings of an array."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def as_text(value: object) -> str | None:
    """Return a string, None in place of anything else."""
    return value if isinstance(value, str) else None
