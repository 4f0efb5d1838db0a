"""Own loops of programs, counted on a CPU and traced with --module: ``python benchmarks/own_programs.py``."""

import json
import statistics
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_the_page_says_how_far_traces_of_programs_are_from_their_own_loops() -> None:
    errors: dict[str, list[float]] = defaultdict(list)
    for row in json.loads((ROOT / "fixtures/estimates/own-programs.json").read_text(encoding="utf-8")):
        errors[row["program"]].append(abs(row["traced"] / row["counted"] - 1))
    assert set(errors) == {"lightning", "litgpt", "llama_recipes", "llm_foundry", "nanogpt"}
    assert max(map(max, errors.values())) < 0.02
    page = (ROOT / "docs/traced.md").read_text(encoding="utf-8")
    for found in errors.values():
        assert f" | {len(found)} | {statistics.median(found):.3%} | {max(found):.3%} |" in page
