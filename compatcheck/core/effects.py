"""What changes of a run cost the person who makes them, the least first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SAME_RESULT = "same result"
PATCH_RELEASE = "patch release"
SLOWER = "same result, slower"
UNTIMED = "same result, time not judged"
MINOR_RELEASE = "minor release"
MAJOR_RELEASE = "major release"
OLDER_RELEASE = "older release"
"""Where a rule knows a newer one as the remedy."""
CHANGES_TRAINING = "changes training"
CHANGES_SERVICE = "changes what is served"
MORE_HARDWARE = "more hardware"
EFFECTS = (
    SAME_RESULT,
    PATCH_RELEASE,
    UNTIMED,
    SLOWER,
    MINOR_RELEASE,
    MAJOR_RELEASE,
    OLDER_RELEASE,
    CHANGES_TRAINING,
    CHANGES_SERVICE,
    MORE_HARDWARE,
)
"""What a change costs the person, the least first."""
SAFE = frozenset({SAME_RESULT, PATCH_RELEASE, UNTIMED, SLOWER})
"""Effects of changes after which a run computes the same."""


def worst_effect(effects: Iterable[str]) -> str:
    """Return what costs most of some effects."""
    return max(effects, key=EFFECTS.index, default=SAME_RESULT)


def effect_of_move(move: str) -> str:
    """Return what a move of a package costs (``patch``, ``minor``, ``major``, each also ``… down``) where no rule tells more."""
    if move == "patch":
        return PATCH_RELEASE
    return MAJOR_RELEASE if move.startswith("major") else MINOR_RELEASE
