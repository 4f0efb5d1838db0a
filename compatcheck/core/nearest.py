"""The known name that a mistyped one is most like: what a message asks with "did you mean"."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CUTOFF = 0.8
"""How alike names are, as `difflib` counts it, where the question is worth asking."""


def find_nearest(name: str, known: Iterable[str], *, cutoff: float = _CUTOFF) -> str | None:
    """Return the known name most like another one, whatever the case of their letters; None where none is close."""
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    folded = {one.lower(): one for one in known}
    matches = get_close_matches(name.lower(), folded, n=1, cutoff=cutoff)
    return folded[matches[0]] if matches else None
