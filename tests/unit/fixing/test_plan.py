"""What belongs together is planned together."""

from __future__ import annotations

from compatcheck.fixing.plan import group_by_files


def test_subjects_that_share_a_file_are_one_group() -> None:
    files = {"a": ["r.txt", "a.yaml"], "b": ["s.txt"], "c": ["r.txt"], "d": ["s.txt", "t.txt"], "e": ["t.txt"]}
    assert group_by_files(files) == [("a", "c"), ("b", "d", "e")]


def test_a_subject_that_joins_two_groups_makes_them_one() -> None:
    assert group_by_files({"a": ["r.txt"], "b": ["s.txt"], "c": ["s.txt", "r.txt"]}) == [("a", "b", "c")]
