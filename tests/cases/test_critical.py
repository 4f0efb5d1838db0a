"""A finding without which the run fits, and with which it does not, is critical and says so."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from compatcheck.cli.group import group
from tests import ROOT

CASES = ROOT / "fixtures" / "cases"


def check(*arguments: str) -> dict[str, object]:
    ran = CliRunner().invoke(group, ["check", *arguments, "--format", "json"], standalone_mode=False)
    assert ran.exception is None, ran.exception
    report: dict[str, object] = json.loads(ran.stdout)
    return report


def test_the_incident_of_deepspeed_is_critical_on_its_devices_and_not_on_larger_ones() -> None:
    case = str(CASES / "openrlhf-llama3-70b")
    severities, verdicts = {}, {}
    for gpu in ("8xA800-80GB", "8xB200-180GB"):
        report = check(case, "--gpu", gpu, "--nodes", "4")
        (found,) = (one for one in report["findings"] if one["rule_id"] == "deepspeed/zero3-params-kept-in-backward")  # type: ignore[attr-defined]
        severities[gpu] = found["severity"], found["rating"] is not None
        estimate = report["subjects"][0]["estimate"]  # type: ignore[index]
        verdicts[gpu] = estimate["verdict"], estimate["without_regressions"]["verdict"]
    assert severities == {"8xA800-80GB": ("critical", True), "8xB200-180GB": ("high", False)}
    assert verdicts == {"8xA800-80GB": ("does_not_fit", "fits"), "8xB200-180GB": ("fits", "fits")}


def test_a_run_that_is_estimated_not_to_fit_is_said_beside_its_findings() -> None:
    case = str(CASES / "logic-rl-n32")
    ran = CliRunner().invoke(group, ["check", case], standalone_mode=False)
    assert "does not fit: needs" in " ".join(ran.stdout.split())
    small = CliRunner().invoke(group, ["check", case, "--format", "markdown"], standalone_mode=False)
    assert "- does not fit: needs" in small.stdout


def test_a_run_that_nobody_describes_has_no_estimate(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\n")
    assert check(str(tmp_path))["subjects"][0]["estimate"] is None  # type: ignore[index]
