"""Public stacks that are known to work: nothing gates, and little is said that only might be."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from compatcheck.checking import Request, check, open_rules
from compatcheck.core.summary import choose
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.report import Report

STACKS: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "fixtures/known_good/stacks.yaml").read_text(encoding="utf-8")
)


def examine(stack: dict[str, Any], directory: Path) -> Report:
    """Check a stack on the machine it is run on."""
    files = {"requirements.txt": "\n".join(stack["requirements"]) + "\n", **stack.get("files", {})}
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    request = Request(paths=(str(directory),), gpu=stack.get("gpu"), driver=stack.get("driver"), here=False)
    return check(request, open_rules(), {})


@pytest.mark.parametrize("name", STACKS)
def test_nothing_gates(name: str, tmp_path: Path) -> None:
    report = examine(STACKS[name], tmp_path)
    failing = {finding.rule_id for finding in report.findings if finding.fails}
    assert failing == set()
    assert report.exit_code == 0


def test_few_possible_findings_are_shown(tmp_path: Path) -> None:
    assert len(STACKS) >= 40
    counts = []
    for name, stack in STACKS.items():
        (tmp_path / name).mkdir()
        shown = choose(examine(stack, tmp_path / name).findings).shown
        counts.append(sum(finding.status == "possible" for finding in shown))
    assert median(counts) <= 3
