"""What has to move with a package, by the pins of the frameworks beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.fixing.companions import Companions
from compatcheck.resolution.pins import Pin, nearest_first
from compatcheck.rules.release_bits import ReleaseBits

Rows = Mapping[str, Mapping[str, str]]
"""Release → what it requires."""
RELEASES = {"engine": ("1.0", "1.1", "1.2", "2.0"), "torch": ("2.5.0", "2.5.1", "2.6.0")}

DATES = {
    "frame": {"1": "2025-02-15", "2": "2025-03-30", "3": "2026-06-01"},
    "engine": {"2.0": "2026-05-03"},
    "serve": {"0.2": "2023-12-01", "0.9": "2025-07-01"},
    "torch": {"2.5.1": "2024-10-29", "2.6.0": "2025-01-29"},
}


class Rules:
    """Pins and releases that are made up."""

    def __init__(self, pins: Mapping[str, Rows], extras: Mapping[str, Rows]) -> None:
        self._pins, self._extras = pins, extras

    def section(self, name: str) -> object:
        package = name.removeprefix("pins/")
        rows, extras = self._pins.get(package, {}), self._extras.get(package, {})
        return [[[version], requires, "wheel", extras.get(version, {})] for version, requires in rows.items()]

    def releases(self, name: str) -> Sequence[str]:
        return RELEASES.get(name, tuple(self._pins.get(name, ())))

    def known(self, name: str) -> ReleaseBits:
        return ReleaseBits(self.releases(name))

    def dates(self, name: str) -> Mapping[str, str]:
        return DATES.get(name, {})


def companions(pins: Mapping[str, Rows], extras: Mapping[str, Rows] = {}, **versions: str | None) -> Companions:
    packages = {
        name: Package(name, version, Source("requirements.txt"), specifier=None if version else ">=1")
        for name, version in versions.items()
    }
    return Companions(Environment("requirements.txt", packages, complete=False), Rules(pins, extras))  # type: ignore[arg-type]


def moved(found: object) -> dict[str, str]:
    assert isinstance(found, dict)
    return {name: release for name, (release, _) in found.items()}


def test_the_open_range_of_a_release_long_before_is_no_promise_though_it_is_newer_than_the_one_here() -> None:
    pins = {"frame": {"1": {"engine": "<=1.0"}, "2": {"engine": ""}, "3": {"engine": ""}}}
    found = companions(pins, frame="1", engine="1.0").complete({"engine": "2.0"})
    assert moved(found) == {"frame": "3"}


def test_the_nearest_release_of_the_holder_that_allows_it_moves_along() -> None:
    pins = {
        "frame": {"1": {"engine": "==1.0"}, "2": {"engine": "==1.1"}, "3": {"engine": "==1.2"}, "4": {"engine": ""}}
    }
    found = companions(pins, frame="1", engine="1.0").complete({"engine": "1.2"})
    assert isinstance(found, dict)
    assert moved(found) == {"frame": "3"}
    assert str(found["frame"][1]) == "frame 1 requires engine==1.0"


def test_what_the_new_holder_pins_moves_too() -> None:
    pins = {"frame": {"1": {"engine": "==1.0", "torch": "==2.5.0"}, "2": {"engine": "==1.1", "torch": "==2.6.0"}}}
    found = companions(pins, frame="1", engine="1.0", torch="2.5.0").complete({"engine": "1.1"})
    assert isinstance(found, dict)
    assert moved(found) == {"frame": "2", "torch": "2.6.0"}
    assert found["torch"][1] == Pin("frame", "2", "torch", "==2.6.0")


def test_a_range_that_the_new_holder_requires_is_met_by_the_nearest_release() -> None:
    pins = {"frame": {"1": {"engine": "==1.0"}, "2": {"engine": "==1.1", "torch": ">=2.5.1"}}}
    found = companions(pins, frame="1", engine="1.0", torch="2.5.0").complete({"engine": "1.1"})
    assert moved(found) == {"frame": "2", "torch": "2.5.1"}


def test_a_release_after_all_that_were_read_requires_what_the_newest_of_these_does() -> None:
    pins = {"frame": {"1": {"engine": "<1.1"}, "2": {"engine": ">=2"}}}
    assert moved(companions(pins, frame="1", engine="1.0").complete({"frame": "3"})) == {"engine": "2.0"}
    assert companions(pins, frame="1", engine="1.0").complete({"frame": "0.5"}) == {}


def test_newer_holders_go_before_older_ones() -> None:
    pins = {"frame": {"1": {"engine": ""}, "2": {"engine": "==1.0"}, "5": {"engine": "==1.1"}}}
    assert moved(companions(pins, frame="2", engine="1.0").complete({"engine": "1.1"})) == {"frame": "5"}


def test_a_holder_whose_own_pins_cannot_be_met_gives_way_to_the_next() -> None:
    pins = {
        "frame": {
            "1": {"engine": "==1.0"},
            "2": {"engine": "==1.1", "torch": ">=3"},
            "3": {"engine": "==1.1", "torch": ">=2.6"},
        }
    }
    found = companions(pins, frame="1", engine="1.0", torch="2.5.0").complete({"engine": "1.1"})
    assert moved(found) == {"frame": "3", "torch": "2.6.0"}


def test_a_pin_that_did_not_hold_before_is_the_persons_own_choice() -> None:
    pins = {"frame": {"1": {"engine": "==1.0"}, "2": {"engine": "==1.2"}}}
    assert companions(pins, frame="1", engine="1.1").complete({"engine": "1.2"}) == {}


def test_where_no_release_of_the_holder_fits_its_pin_is_named() -> None:
    pins = {"frame": {"1": {"engine": "==1.0"}, "2": {"engine": "==1.1"}}}
    found = companions(pins, frame="1", engine="1.0").complete({"engine": "2.0"})
    assert found == Pin("frame", "1", "engine", "==1.0")


def test_two_packages_that_move_where_a_holder_allows_only_one() -> None:
    pins = {"frame": {"1": {"engine": "==1.0", "torch": "==2.5.0"}, "2": {"engine": "==1.1", "torch": "==2.5.1"}}}
    found = companions(pins, frame="1", engine="1.0", torch="2.5.0").complete({"engine": "1.1", "torch": "2.6.0"})
    assert isinstance(found, Pin)
    assert found.holder == "frame"


def test_bare_names_ask_for_nothing() -> None:
    pins = {"frame": {"1": {"engine": ""}, "2": {}}}
    assert companions(pins, frame="1", engine="1.0").complete({"engine": "2.0"}) == {}


def test_what_is_required_as_a_range_takes_no_part() -> None:
    pins = {"frame": {"1": {"engine": "==1.0"}, "2": {"engine": "==1.1"}}}
    assert companions(pins, frame=None, engine="1.0").complete({"engine": "1.1"}) == {}
    assert companions(pins, frame="1", engine=None).complete({"frame": "2"}) == {}


def test_no_holder_goes_back_to_before_what_it_is_to_run_with() -> None:
    pins = {"serve": {"0.2": {"torch": ">=2.1"}, "0.9": {"torch": ">=2.5"}, "1.0": {"torch": "==2.5.0"}}}
    assert moved(companions(pins, serve="1.0", torch="2.5.0").complete({"torch": "2.6.0"})) == {"serve": "0.9"}
    alone = {"serve": {release: requires for release, requires in pins["serve"].items() if release != "0.9"}}
    assert isinstance(companions(alone, serve="1.0", torch="2.5.0").complete({"torch": "2.6.0"}), Pin)


def test_a_release_is_called_as_the_index_calls_it() -> None:
    pins = {"frame": {"1": {"torch": "==2.5"}, "2": {"torch": "==2.6"}}}
    assert moved(companions(pins, frame="1", torch="2.5.0").complete({"frame": "2"})) == {"torch": "2.6.0"}


def test_a_release_that_was_yanked_is_none_to_move_to() -> None:
    pins = {"engine": {"1.0": {"torch": "==2.5.0"}, "1.1.post1": {"torch": "==2.5.1"}, "2.0": {"torch": "==2.5.1"}}}
    assert moved(companions(pins, engine="1.0", torch="2.5.0").complete({"torch": "2.5.1"})) == {"engine": "2.0"}


def test_a_pin_of_another_indexs_build_is_none_to_move_to() -> None:
    pins = {"frame": {"1": {"torch": "==2.5.0"}, "2": {"torch": "==2.5.1+cu117"}, "3": {"torch": ">=2.5.1"}}}
    found = companions(pins, frame="1", torch="2.5.0").complete({"frame": "2"})
    assert found == Pin("frame", "2", "torch", "==2.5.1+cu117")


def test_a_range_of_a_package_without_known_releases_is_met_by_the_release_it_names() -> None:
    pins = {"torch": {"2.5.0": {"bindings": ">=12,<13"}, "2.6.0": {"bindings": ">=13.0.3,<14"}}}
    assert moved(companions(pins, torch="2.5.0", bindings="12.9").complete({"torch": "2.6.0"})) == {
        "bindings": "13.0.3"
    }


def search_many(**last: Rows) -> float:
    """Search for what moves with torch where seven packages have eleven releases to move to and ``last`` has none; seconds."""
    pins: dict[str, Rows] = {
        f"frame{number}": {"1": {"torch": "==2.5.0"}, **{str(release): {} for release in range(2, 13)}}
        for number in range(7)
    }
    start = time.process_time()
    found = companions({**pins, **last}, torch="2.5.0", **dict.fromkeys((*pins, *last), "1")).complete(
        {"torch": "2.6.0"}
    )
    assert isinstance(found, Pin)
    return time.process_time() - start


def test_what_nothing_mends_ends_the_search() -> None:
    assert search_many(last={"1": {"torch": "==2.5.0"}}) < 1


def test_what_moves_along_is_searched_in_bounded_time() -> None:
    odd = {"1": {"torch": "==2.5.0"}, **{str(one): {"other": f"=={one}"} for one in range(2, 9)}}
    other = {"1": {}, **{str(one): {"odd": f"=={one + 1}"} for one in range(2, 9)}}
    assert search_many(odd=odd, other=other) < 5


def test_a_build_of_a_release_is_held_as_the_release() -> None:
    pins = {"frame": {"1": {"torch": "==2.5.0"}, "2": {"torch": "==2.5.1"}}}
    found = companions(pins, frame="1", torch="2.5.0+cu124").complete({"torch": "2.5.1"})
    assert moved(found) == {"frame": "2"}


@pytest.mark.parametrize(
    ("current", "expected"),
    [("1.1", ["1.2", "2.0", "1.0"]), ("0.9", ["1.0", "1.1", "1.2", "2.0"]), ("3", ["2.0", "1.2", "1.1", "1.0"])],
)
def test_newer_before_older_and_near_before_far(current: str, expected: list[str]) -> None:
    assert nearest_first(current, ["2.0", "1.0", "1.2", "1.1", "2.1rc1"]) == expected


def test_an_open_range_of_long_ago_is_no_way_back() -> None:
    pins = {"serve": {"0.2": {"torch": ">=2.0.0"}, "0.8": {"torch": "==2.5.1"}, "0.9": {"torch": "==2.6.0"}}}
    found = companions(pins, serve="0.9", torch="2.6.0")
    assert isinstance(found.complete({"serve": "0.2"}), Pin)
    assert moved(found.complete({"serve": "0.8"})) == {"torch": "2.5.1"}


EXTRAS = {"frame": {"1": {"engine": "<=1.1,>=1.0"}, "2": {"engine": ">=1.1"}, "3": {"engine": "==2.0"}}}


def test_what_an_extra_refuses_of_the_engine_beside_it_moves_its_holder_along() -> None:
    pins: Mapping[str, Rows] = {"frame": {"1": {}, "2": {}, "3": {}}}
    found = companions(pins, EXTRAS, frame="1", engine="1.0").complete({"engine": "1.2"})
    assert moved(found) == {"frame": "2"}
    assert isinstance(found, dict)
    assert str(found["frame"][1]) == "frame[engine] 1 requires engine<=1.1,>=1.0"
    obstacle = companions(pins, EXTRAS, frame="1", engine="1.0").complete({"engine": "0.9"})
    assert isinstance(obstacle, Pin)


def test_an_extra_that_the_person_went_beyond_holds_nothing() -> None:
    pins: Mapping[str, Rows] = {"frame": {"1": {}, "2": {}, "3": {}}}
    assert moved(companions(pins, EXTRAS, frame="1", engine="1.2").complete({"engine": "2.0"})) == {}
    assert moved(companions(pins, EXTRAS, frame="1", engine="1.2").complete({"frame": "3"})) == {}
    assert moved(companions(pins, EXTRAS, frame="1", torch="2.6.0").complete({"frame": "3"})) == {}
