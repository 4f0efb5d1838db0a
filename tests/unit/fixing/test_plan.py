"""What belongs together is planned together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from click.testing import CliRunner

from compatcheck.cli.group import group
from compatcheck.fixing.plan import Group, group_by_files

if TYPE_CHECKING:
    from pathlib import Path


def test_subjects_that_share_a_file_are_one_group() -> None:
    files = {"a": ["r.txt", "a.yaml"], "b": ["s.txt"], "c": ["r.txt"], "d": ["s.txt", "t.txt"], "e": ["t.txt"]}
    assert group_by_files(files) == [("a", "c"), ("b", "d", "e")]


def test_a_subject_that_joins_two_groups_makes_them_one() -> None:
    assert group_by_files({"a": ["r.txt"], "b": ["s.txt"], "c": ["s.txt", "r.txt"]}) == [("a", "b", "c")]


def test_what_a_search_comes_back_to_is_evaluated_once(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\ntransformers==4.51.3\nvllm==0.6.3\n")
    evaluated: Counter[tuple[Any, ...]] = Counter()
    blame = Group._blame

    def note(self: Group, changes: Any) -> Any:
        evaluated[self.at_worst, self.shortage, tuple(changes)] += 1
        return blame(self, changes)

    with patch.object(Group, "_blame", note):
        CliRunner().invoke(group, ["check", str(tmp_path / "requirements.txt")])
    assert len(evaluated) > 1
    assert set(evaluated.values()) == {1}
