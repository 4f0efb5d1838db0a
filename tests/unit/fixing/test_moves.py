"""How far a release moves, and what its requirement becomes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.versions import all_ordered, compile_specifier, parse_version
from compatcheck.fixing.moves import Distances, describe_move, rewrite

RELEASES = ("0.16.3", "0.16.4", "0.16.8", "0.16.9", "0.17.0", "0.17.6", "0.18.1", "1.0.0")


@pytest.mark.parametrize(
    ("before", "after", "move"),
    [
        ("0.16.4", "0.16.8", "patch"),
        ("0.16.4", "0.16.4.post1", "patch"),
        ("0.16.4", "0.17.0", "minor"),
        ("2.9", "2.9.1", "patch"),
        ("4.48.0", "5.0.0", "major"),
        ("0.16.4", "0.15.4", "minor down"),
        ("2.5.1+cu124", "2.5.0", "patch down"),
    ],
)
def test_moves_by_the_first_number_that_differs(before: str, after: str, move: str) -> None:
    assert describe_move(before, after) == move


def test_the_nearest_release_comes_first_newer_before_older_and_series_after_series() -> None:
    distances = Distances("0.16.4", RELEASES)
    order = sorted((release for release in RELEASES if release != "0.16.4"), key=distances.to)
    assert order == ["0.16.8", "0.16.9", "0.16.3", "0.17.0", "0.17.6", "0.18.1", "1.0.0"]


def test_distances_count_what_is_crossed() -> None:
    distances = Distances("0.16.4", RELEASES)
    assert distances.to("0.16.9") == (0, 0, 1)
    assert distances.to("0.18.1")[1:] == (2, 4)
    assert distances.to("0.16.3")[0] > distances.to("0.16.9")[0]
    assert Distances("0.16.5", RELEASES).to("0.16.8") == (0, 0, 0)  # what is not known has a place, too


@pytest.mark.parametrize(
    ("specifier", "release", "expected"),
    [
        ("==0.16.4", "0.16.8", "==0.16.8"),
        ("==2.5.1+cu124", "2.6.0", "==2.6.0+cu124"),
        (">=0.15,<0.17", "0.16.8", ">=0.16.8,<0.17"),
        (">=0.15,<0.16", "0.16.8", ">=0.16.8,<0.17"),
        (">=0.15,<=0.16.4", "0.16.8", ">=0.16.8,<=0.16.8"),
        ("~=0.16.4", "0.16.8", "~=0.16.8"),
        ("~=0.16", "0.17.6", "~=0.17"),
        ("<0.17", "0.16.8", ">=0.16.8,<0.17"),
        (">=0.16.0,!=0.16.5", "0.16.8", ">=0.16.8,!=0.16.5"),
        ("", "0.16.8", ">=0.16.8"),
        (">=0.17.0", "0.16.8", ">=0.16.8,<0.17"),
        ("==0.16.*", "0.17.6", "==0.17.*,>=0.17.6"),
    ],
)
def test_requirements_change_as_little_as_they_can(specifier: str, release: str, expected: str) -> None:
    assert rewrite(specifier, release) == expected


CLAUSES = st.lists(
    st.tuples(st.sampled_from(["==", ">=", "<", "<=", "~=", "!=", ">"]), st.sampled_from(RELEASES)),
    max_size=3,
    unique_by=lambda clause: clause[0],
)


@given(CLAUSES, st.sampled_from(RELEASES))
def test_a_rewritten_requirement_holds_the_release(clauses: list[tuple[str, str]], release: str) -> None:
    specifier = ",".join(sign + version for sign, version in clauses)
    version = parse_version(release)
    assert version is not None
    assert all_ordered(compile_specifier(rewrite(specifier, release)), version)
