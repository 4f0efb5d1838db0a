"""What is known of the public threads bears what the page says of them."""

from __future__ import annotations

import json
import re
from collections import Counter

from tests import ROOT

THREADS = [
    json.loads(line) for line in (ROOT / "fixtures/threads/threads.jsonl").read_text(encoding="utf-8").splitlines()
]
PAGE = (ROOT / "docs/oom.md").read_text(encoding="utf-8").partition("## Evaluation on whole threads")[2]
VERDICTS = ("right", "honest", "wrong", "refused")


def count(threads: list[dict[str, object]], key: str) -> str:
    verdicts = Counter(thread[key] for thread in threads)
    return " / ".join(str(verdicts[name]) for name in VERDICTS)


def test_the_threads_are_distinct_and_of_many_projects() -> None:
    assert len({thread["url"] for thread in THREADS}) == len(THREADS) >= 120
    assert len({thread["project"] for thread in THREADS}) >= 15
    assert all(str(thread["date"])[:4] in {"2025", "2026"} for thread in THREADS)


def test_the_table_of_the_page_is_that_of_the_facts() -> None:
    classes = {str(thread["class"]) for thread in THREADS}
    rows = re.findall(r"(?m)^\| ([a-zKV -]+)(?::[^|]*)? \| (\d+) \| ([\d /]+) \| ([\d /]+) \| (\d+) → (\d+) \|$", PAGE)
    assert {name for name, *_ in rows} == {*classes, "all"}
    for name, number, before, now, asked_before, asked in rows:
        chosen = [thread for thread in THREADS if name in {"all", thread["class"]}]
        told = (str(len(chosen)), count(chosen, "verdict_before"), count(chosen, "verdict"))
        assert (number, before, now) == told, name
        assert int(asked_before) == sum(bool(thread["plan_or_question_before"]) for thread in chosen)
        assert int(asked) == sum(bool(thread["plan_or_question"]) for thread in chosen)
