"""The Python API answers what the commands print, prints nothing itself, and needs no option parser."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from compatcheck import checking
from compatcheck.checking import (
    Checks,
    EstimateOptions,
    Inspection,
    PolicyUse,
    Request,
    check,
    compare,
    describe,
    estimate,
    explain,
    explain_oom,
    make_inspection,
)
from compatcheck.core.errors import NothingToCheckError, UsageError
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests import ROOT

RULE = "deepspeed/zero3-params-kept-in-backward"
CASE = str(ROOT / "fixtures/cases/openrlhf-llama3-70b")
ASKED = Request(paths=(CASE,), gpu="8xA800-80GB", nodes=4)


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd: pytest.CaptureFixture[str]):
    yield
    assert capfd.readouterr() == ("", "")


def test_every_name_is_what_type_checkers_see() -> None:
    tree = ast.parse(Path(checking.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("compatcheck")
        for alias in node.names
    }
    assert imported == {name: f"compatcheck.{module}" for name, module in checking._MODULES.items()}
    for name, module in imported.items():
        assert getattr(checking, name).__module__ == module
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        checking.nothing  # noqa: B018 (asked for)


def test_a_check_is_a_report(rules: RuleSet) -> None:
    report = check(ASKED, rules, {})
    assert report.exit_code == 1
    assert RULE in {finding.rule_id for finding in report.findings if finding.fails}
    assert check(ASKED, rules, {}, Checks(ignore=("torch/*",), fail_on="never")).exit_code == 0


def test_a_selection_without_rules_is_refused(rules: RuleSet) -> None:
    with pytest.raises(UsageError, match="no rule matches"):
        check(ASKED, rules, {}, Checks(select=("nothing/*",)))


def test_nothing_to_check_is_an_error(rules: RuleSet, tmp_path: Path) -> None:
    with pytest.raises(NothingToCheckError):
        check(Request(paths=(str(tmp_path),)), rules, {})


def test_measurements_come_from_whoever_asks(rules: RuleSet) -> None:
    asked = []

    def annotate(findings, of):
        asked.append((len(findings), of is rules))
        return tuple(finding._replace(measured_here={"probe": "a"}) for finding in findings), ()

    report = check(ASKED, rules, {}, annotate=annotate)
    assert asked == [(len(report.findings), True)]
    assert all(finding.measured_here == {"probe": "a"} for finding in report.findings)


def test_an_estimate_has_bytes(rules: RuleSet) -> None:
    (report,) = estimate(ASKED, rules, {}).reports
    assert report.estimate.needed.expected > 2**30
    assert report.estimate.without is not None
    (more,) = estimate(ASKED, rules, {}, EstimateOptions(suggest=True, axes=("micro_batch_size",))).reports
    assert more.suggestions
    assert [wall.fact for wall in more.walls] == ["training.micro_batch_size"]


def test_two_sides_differ_by_a_rule(rules: RuleSet, tmp_path: Path) -> None:
    for name, version in {"a": "0.16.4", "b": "0.16.8"}.items():
        (tmp_path / f"{name}.txt").write_text(f"deepspeed=={version}\n")
    sides = (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    found = compare(sides, Request(training=(f"{CASE}/facts.yaml",)), rules, {})
    assert RULE in {change.finding.rule_id for change in found.of_kind("left")}
    with pytest.raises(UsageError, match="given more than once"):
        compare(sides, Inspection((Request(), Request())), rules, {})


def test_a_rule_is_explained_and_facts_are_described(rules: RuleSet) -> None:
    (explanation,) = explain("params-kept-in-backward", ASKED, rules, {}).explanations
    assert (explanation.rule.id, explanation.decision.status) == (RULE, "affected")
    (subject,) = describe(ASKED, rules, {}).subjects
    assert ("train", 3) in {(role, fact.value) for role, fact in subject.facts if fact.name == "training.zero_stage"}


def test_a_message_is_explained(rules: RuleSet) -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 31.31 GiB."
    report = explain_oom(text, "train.log", ASKED, rules, {})
    assert report.log == "train.log"
    assert len(report.readings) == 1
    assert explain_oom("all is well", "train.log", Request(), rules, {}).exit_code == 3


def test_a_policy_brings_its_machines(rules: RuleSet, tmp_path: Path) -> None:
    policy = tmp_path / "compatcheck.toml"
    policy.write_text('[targets.small]\ngpu = "8xA800-80GB"\n[targets.large]\ngpu = "8xB200-180GB"\n')
    inspection = make_inspection(ASKED._replace(gpu=None), PolicyUse(path=str(policy)), files=True)
    assert [request.target for request in inspection.requests] == ["small", "large"]
    assert len(check(inspection, rules, {}).subjects) == 2


def test_no_option_parser_is_loaded() -> None:
    program = (
        "import sys; from compatcheck.checking import Request, check, open_rules; "
        f"check(Request(paths=({CASE!r},)), open_rules(), {{}}); "
        "assert not {'click', 'compatcheck.lab', 'compatcheck.cli'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
