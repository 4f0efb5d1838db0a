"""What changes of a run cost the person who makes them, the least first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SAME_RESULT = "same result"
PATCH_RELEASE = "patch release"
SLOWER = "same result, slower"
UNTIMED = "same result, time not judged"
OTHER_RELEASE = "minor or major release"
CHANGES_TRAINING = "changes training"
CHANGES_SERVICE = "changes what is served"
MORE_HARDWARE = "more hardware"
EFFECTS = (SAME_RESULT, PATCH_RELEASE, UNTIMED, SLOWER, OTHER_RELEASE, CHANGES_TRAINING, CHANGES_SERVICE, MORE_HARDWARE)
"""What a change costs the person, the least first."""
SAFE = frozenset({SAME_RESULT, PATCH_RELEASE, UNTIMED, SLOWER})
"""Effects of changes after which a run computes the same."""


def worst_effect(effects: Iterable[str]) -> str:
    """Return what costs most of some effects."""
    return max(effects, key=EFFECTS.index, default=SAME_RESULT)
