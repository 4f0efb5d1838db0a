from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from compatcheck.lab.bisect import GIVE_UP_AFTER, BisectSearch, find_intervals
from compatcheck.lab.bisection import Outcome
from compatcheck.lab.releases import group_minors

DEEPSPEED = [
    *("0.14.0", "0.14.1", "0.14.2", "0.14.3", "0.14.4", "0.14.5"),
    *("0.15.0", "0.15.1", "0.15.2", "0.15.3", "0.15.4"),
    *("0.16.0", "0.16.1", "0.16.2", "0.16.3", "0.16.4", "0.16.5", "0.16.6", "0.16.7", "0.16.8", "0.16.9"),
    *("0.17.0", "0.17.1", "0.17.2", "0.18.0", "0.18.1", "0.18.2", "0.18.3", "0.18.4", "0.19.0", "0.19.1"),
]


def search(releases, verdict, depth="until-found"):
    asked = []

    def judge(versions):
        for version in versions:
            asked.append(version)
            yield Outcome(version=version, verdict=verdict(version))

    found = BisectSearch(releases, judge)
    found.run(depth=depth)
    assert len(asked) == len(set(asked))
    return found


def between(first, after):
    return lambda version: "bad" if Version(first) <= Version(version) < Version(after) else "good"


def changes(found):
    return [(change.kind, change.before, change.after) for change in found.transitions()]


def test_good_bad_good_is_found_with_its_two_changes():
    found = search(DEEPSPEED, between("0.16.0", "0.16.8"))
    assert changes(found) == [("introduced", "0.15.4", "0.16.0"), ("fixed", "0.16.7", "0.16.8")]
    assert len(found.tested()) < len(DEEPSPEED) / 2


def test_one_good_release_among_bad_ones_is_found_when_all_minors_agree():
    found = search(DEEPSPEED, lambda version: "good" if version == "0.18.2" else "bad")
    assert changes(found) == [("fixed", "0.18.1", "0.18.2"), ("introduced", "0.18.2", "0.18.3")]


def test_when_nothing_differs_every_release_is_tested():
    found = search(DEEPSPEED, lambda _: "good")
    assert len(found.tested()) == len(DEEPSPEED)
    assert found.untested() == ()
    assert changes(found) == []


def test_minors_alone_leave_the_rest_untested_and_say_so():
    found = search(DEEPSPEED, lambda _: "good", depth="minors")
    assert {one.version for one in found.tested()} == {
        "0.14.0",
        "0.15.0",
        "0.16.0",
        "0.17.0",
        "0.18.0",
        "0.19.0",
        "0.19.1",
    }
    assert "0.16.4" in found.untested()


def test_what_cannot_be_tested_is_named_at_the_change():
    def verdict(version):
        return "skipped" if version in {"0.15.3", "0.15.4"} else between("0.15.3", "0.16.8")(version)

    (introduced, _) = search(DEEPSPEED, verdict).transitions()
    assert (introduced.before, introduced.after) == ("0.15.2", "0.16.0")
    assert introduced.between == ("0.15.3", "0.15.4")


def test_a_minor_whose_first_release_cannot_be_tested_is_represented_by_its_last():
    found = search(
        DEEPSPEED, lambda version: "skipped" if version == "0.16.0" else between("0.16.1", "0.18.0")(version)
    )
    assert changes(found)[0][2] == "0.16.1"


def test_going_back_ends_after_three_minors_that_cannot_be_tested():
    releases = [f"0.{minor}.{patch}" for minor in range(20) for patch in range(3)]
    found = search(
        releases, lambda version: "skipped" if Version(version) < Version("0.15") else "good", depth="minors"
    )
    assert found.older is not None
    assert all(Version(one.version) >= Version(f"0.{15 - GIVE_UP_AFTER}") for one in found.tested())
    assert all(Version(version) > Version("0.14.2") for version in found.untested())


def test_a_package_that_cannot_be_tested_at_all_is_tried_to_the_end():
    found = search(DEEPSPEED, lambda _: "skipped")
    assert {one.verdict for one in found.tested()} == {"skipped"}
    assert changes(found) == []
    assert find_intervals(found.tested())[0].verdict == "skipped"


@given(st.data())
def test_every_history_tested_in_full_gives_exactly_its_changes(data):
    verdicts = dict(
        zip(
            DEEPSPEED,
            data.draw(st.lists(st.sampled_from(["good", "bad"]), min_size=len(DEEPSPEED), max_size=len(DEEPSPEED))),
            strict=True,
        )
    )
    found = search(DEEPSPEED, verdicts.__getitem__, depth="all")
    expected = [(before, after) for before, after in pairwise(DEEPSPEED) if verdicts[before] != verdicts[after]]
    assert [(change.before, change.after) for change in found.transitions()] == expected


@given(st.integers(0, len(DEEPSPEED) - 1), st.integers(1, len(DEEPSPEED)))
def test_one_bad_interval_is_never_missed(start, length):
    bad = set(DEEPSPEED[start : start + length])
    found = search(DEEPSPEED, lambda version: "bad" if version in bad else "good")
    expected = [(before, after) for before, after in pairwise(DEEPSPEED) if (before in bad) != (after in bad)]
    seen = [(change.before, change.after) for change in found.transitions()]
    # One that is shorter than a minor version can hide beside another change; alone it cannot.
    assert seen == expected


def test_intervals_join_what_was_skipped():
    tested = [
        Outcome(version=str(index), verdict=verdict) for index, verdict in enumerate(["good", "skipped", "good", "bad"])
    ]
    assert [(one.first, one.last, one.verdict) for one in find_intervals(tested)] == [
        ("0", "2", "good"),
        ("3", "3", "bad"),
    ]


def test_minors_are_groups_of_two_numbers():
    assert group_minors(["1.2.0", "1.2.1", "1.3", "2.0.0"]) == [["1.2.0", "1.2.1"], ["1.3"], ["2.0.0"]]
