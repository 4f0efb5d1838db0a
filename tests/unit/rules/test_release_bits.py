"""Bits of releases say what the releases one by one say, and the nearest good one comes first."""

from __future__ import annotations

import random

import pytest

from compatcheck.core.versions import compile_specifier, contains, judge
from compatcheck.rules.locate import open_rules
from compatcheck.rules.release_bits import ReleaseBits

DEEPSPEED = ReleaseBits(
    ("0.14.5", "0.15.4", "0.16.0", "0.16.1", "0.16.7", "0.16.8rc1", "0.16.8", "0.16.9", "0.17.0rc1", "0.17.0")
)
HELD = compile_specifier(">=0.16.0,<0.16.8")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.16.4", ("0.15.4", "0.16.8")),
        ("0.16.8rc1", ("0.15.4", "0.16.8")),
        ("0.16.8", ("0.15.4", "0.16.9")),
        ("0.14.0", (None, "0.14.5")),
        ("0.18", ("0.17.0", None)),
        ("0.16.4+cu128", ("0.15.4", "0.16.8")),
        ("odd", (None, None)),
    ],
)
def test_nearest_good_releases(version: str, expected: tuple[str | None, str | None]) -> None:
    found = tuple(
        next(DEEPSPEED.beyond(version, above=above, avoided=[HELD], allowed=[[]]), None) for above in (False, True)
    )
    assert found == expected


def test_releases_lie_in_what_is_allowed_and_outside_of_all_that_is_not() -> None:
    above = {"above": True, "avoided": [HELD]}
    assert [*DEEPSPEED.beyond("0.16.4", allowed=compile_specifier(">=0.16.9"), **above)] == ["0.16.9", "0.17.0"]
    others = [HELD, compile_specifier("==0.16.9")]
    assert [*DEEPSPEED.beyond("0.15.0", above=True, avoided=others, allowed=compile_specifier("<0.17"))] == [
        "0.15.4",
        "0.16.8",
    ]
    assert not [*DEEPSPEED.beyond("0.16.4", above=False, avoided=[HELD], allowed=compile_specifier(">=0.16.9"))]


def draw(choose: random.Random, names: tuple[str, ...]) -> str:
    parts = []
    for _ in range(choose.choice((1, 1, 2, 3))):
        comparison = choose.choice((">=", "<", "==", "!=", ">", "<=", "~=", "==="))
        version = choose.choice(names) + choose.choice((*6 * [""], ".post1", "rc1", ".dev0", ".0"))
        star = comparison in {"==", "!="} and choose.random() < 0.4 and version.replace(".", "").isdigit()
        parts.append(f"{comparison}{version}{'.*' if star else ''}")
    return ",".join(parts)


@pytest.mark.parametrize("package", ["deepspeed", "transformers", "trl", "torch"])
def test_bits_say_what_the_releases_one_by_one_say(package: str) -> None:
    """Of the known releases, some of which are pre-releases and one a post release."""
    names = (*open_rules(()).releases(package), "99.0.post1", "99.1rc1")
    choose, known, said = random.Random(package), ReleaseBits(names), 0
    for _ in range(300):
        try:
            bounds = compile_specifier(draw(choose, names))
            wanted = choose.choice(("", draw(choose, names), f"{draw(choose, names)}||{draw(choose, names)}"))
            expected = judge(bounds, wanted, names)
        except ValueError:
            continue
        inside, outside = known.split(bounds)
        answers = [contains(bounds, name) for name in names]
        assert [bool(inside >> place & 1) for place in range(len(names))] == [one == "yes" for one in answers]
        assert [bool(outside >> place & 1) for place in range(len(names))] == [one == "no" for one in answers]
        found = known.judge(bounds, wanted)
        assert found in {None, expected}
        said += found is not None
    assert said > 50
