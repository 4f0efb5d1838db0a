"""What changes cost, the least first."""

from __future__ import annotations

from compatcheck.core.effects import (
    CHANGES_SERVICE,
    CHANGES_TRAINING,
    EFFECTS,
    MAJOR_RELEASE,
    MINOR_RELEASE,
    MORE_HARDWARE,
    OLDER_RELEASE,
    PATCH_RELEASE,
    SAFE,
    SAME_RESULT,
    SLOWER,
    UNTIMED,
    worst_effect,
)


def test_what_can_alter_results_costs_more_than_what_cannot() -> None:
    safe = [effect in SAFE for effect in EFFECTS]
    assert safe == sorted(safe, reverse=True)
    assert EFFECTS == (
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


def test_of_several_the_worst_counts() -> None:
    assert worst_effect([SLOWER, MORE_HARDWARE, SAME_RESULT]) == MORE_HARDWARE
    assert worst_effect(()) == SAME_RESULT
