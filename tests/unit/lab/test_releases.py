"""Which releases are measured: those that are known, those of the index since, and what is named exactly."""

from __future__ import annotations

import pytest

from compatcheck.core.errors import InputError, UsageError
from compatcheck.lab.releases import choose_releases
from compatcheck.lab.settings import choose_dates
from compatcheck.rules.locate import open_rules
from compatcheck.services.releases import Release

RULES = open_rules(())
NEWEST = [one for one in RULES.releases("trl") if "rc" not in one][-1]


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An index that has what came out since."""
    seen: list[str] = []

    def fetch(package: str) -> tuple[Release, ...]:
        seen.append(package)
        if package == "silent":
            raise InputError("the package index did not answer")
        if package == "torch":
            nights = [f"999.0.dev2027010{day}+{build}" for day in (1, 2) for build in ("cpu", "cu128")]
            return tuple(Release(version=one, date=None, yanked=False, prerelease=True) for one in nights)
        return (
            Release(version="998.0rc1", date="2027-01-01", yanked=False, prerelease=True),
            Release(version="998.0", date="2027-01-02", yanked=False, prerelease=False),
            Release(version="999.0", date="2027-01-03", yanked=True, prerelease=False),
        )

    monkeypatch.setattr("compatcheck.lab.releases.fetch_releases", fetch)
    return seen


def test_what_came_out_since_is_measured_with_the_packages_of_its_day() -> None:
    axis = choose_releases(RULES, "trl", f">={NEWEST}", ask=True)
    assert axis.names == (NEWEST, "998.0")
    assert axis.known == axis.names
    assert choose_dates("release", axis, with_uv=True)["998.0"] == "2027-01-03"


def test_a_range_that_names_a_pre_release_has_them() -> None:
    assert choose_releases(RULES, "trl", ">=998.0rc1", ask=True).names == ("998.0rc1", "998.0")


def test_a_nightly_is_one_release_of_whichever_build() -> None:
    axis = choose_releases(RULES, "torch", ">=999.0.dev0", ask=True)
    assert axis.names == axis.known == ("999.0.dev20270101", "999.0.dev20270102")


def test_the_index_is_asked_only_where_it_may_know_more(asked: list[str]) -> None:
    assert choose_releases(RULES, "trl", ">=0.14,<0.15", ask=True).names[0] == "0.14.0"
    assert choose_releases(RULES, "trl", None).names[-1] == NEWEST
    assert asked == []


def test_any_package_and_any_exact_release_can_be_named() -> None:
    assert choose_releases(RULES, "of-our-own", "==1.1 || ==1.0", "1.0", "1.1").names == ("1.0", "1.1")
    assert choose_releases(RULES, "of-our-own", None, ask=True).names == ("998.0",)


def test_what_was_left_out_between_is_known() -> None:
    axis = choose_releases(RULES, "trl", "==0.22.2 || ==0.21.0")
    assert axis.names == ("0.21.0", "0.22.2")
    assert {"0.22.0", "0.22.1"} < set(axis.known)


def test_an_index_that_does_not_answer_is_said() -> None:
    with pytest.raises(UsageError, match=r"no releases of 'silent' are known .*did not answer"):
        choose_releases(RULES, "silent", None, ask=True)


def test_an_empty_range_says_how_far_releases_are_known() -> None:
    with pytest.raises(UsageError, match="no release of trl lies in >1000") as error:
        choose_releases(RULES, "trl", ">1000", ask=True)
    assert error.value.hint == "the newest that is known is 998.0 of 2027-01-02"
