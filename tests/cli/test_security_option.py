"""`--security`: advisories in every format, what they do to the exit code, and waivers of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from compatcheck.core.programs import Program
from compatcheck.services import pip_audit
from tests import ROOT
from tests.cli.run_cli import run

SCHEMA = json.loads((ROOT / "compatcheck" / "reporters" / "report.schema.json").read_text(encoding="utf-8"))
PROGRAM = """
import json, sys
output = sys.argv[sys.argv.index("--output") + 1]
pins = [line.strip().split("==") for line in open(sys.argv[sys.argv.index("--requirement") + 1])]
bad = {"requests": {"id": "GHSA-aaaa-bbbb-cccc", "fix_versions": ["2.32.0"], "aliases": ["CVE-2026-1"]}}
bad["requests"]["description"] = "It leaks."
dependencies = []
for name, version in pins:
    if name == "private":
        dependencies.append({"name": name, "skip_reason": f"Dependency not found: {name} ({version})"})
    else:
        dependencies.append({"name": name, "version": version, "vulns": [bad[name]] if name in bad else []})
if "down" in [name for name, _ in pins]:
    sys.exit("ConnectionError: refused")
json.dump({"dependencies": dependencies, "fixes": []}, open(output, "w"))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with these requirements, and a stand-in for pip-audit."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(pip_audit, "find_command", lambda: [sys.executable, str(program)])
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(*requirements: str, policy: str = "") -> Path:
        (folder / "requirements.txt").write_text("\n".join(requirements) + "\n")
        (folder / "compatcheck.toml").write_text(policy)
        return folder

    return write


def report(*arguments: str) -> tuple[int, dict]:
    done = run("check", "requirements.txt", "--format", "json", *arguments)
    data = json.loads(done.out)
    jsonschema.validate(data, SCHEMA)
    assert data["summary"]["exit_code"] == done.code
    return done.code, data


def test_without_the_option_nothing_is_run(project, monkeypatch) -> None:
    project("requests==2.31.0")
    monkeypatch.setattr(pip_audit, "find_command", lambda: pytest.fail("looked for"))
    code, data = report()
    assert (code, data["advisories"], data["audit"]) == (3, [], None)  # no rule is about such a package


def test_an_advisory_fails_the_run(project) -> None:
    project("requests==2.31.0", "numpy==2.0")
    code, data = report("--security")
    assert code == 1
    (advisory,) = data["advisories"]
    assert advisory["id"] == "GHSA-aaaa-bbbb-cccc"
    assert advisory["fails"] is True
    assert advisory["location"] == {"path": "requirements.txt", "line": 1, "key": None}
    assert (data["audit"]["audited"], data["audit"]["not_audited"]) == (2, [])
    assert data["findings"] == []
    assert data["summary"]["advisories"] == 1
    assert report("--security", "--fail-on", "never")[0] == 0


def test_clean_is_said(project) -> None:
    project("numpy==2.0")
    code, data = report("--security")
    assert (code, data["advisories"], data["audit"]["audited"]) == (0, [], 1)
    assert "security: pip-audit: no advisories about 1 package\n" in run("check", "requirements.txt", "--security").out


def test_what_was_not_audited_is_said_and_fails_under_strict(project) -> None:
    project("numpy==2.0", "private==1.0", "ranged>=1")
    code, data = report("--security")
    assert code == 0
    assert {entry["package"]: entry["reason"] for entry in data["audit"]["not_audited"]} == {
        "private": "Dependency not found",
        "ranged": "no exact version is known",
    }
    assert report("--security", "--strict")[0] == 4
    page = run("check", "requirements.txt", "--security").out
    assert "no advisories about 1 package, 2 packages could not be audited" in page.replace("\n", " ")
    assert "Dependency not found: private 1.0" in page
    assert "2 not audited" in page


def test_audit_without_an_answer_is_no_success(project) -> None:
    project("numpy==2.0", "down==1.0")
    code, data = report("--security")
    assert code == 4
    assert data["audit"]["failure"] == "pip-audit gave no answer: ConnectionError: refused"
    assert data["summary"]["not_audited"] == 2
    page = run("check", "requirements.txt", "--security").out.replace("\n", " ")
    assert "nothing was audited: pip-audit gave no answer: ConnectionError: refused" in page


WAIVER = '[[waivers]]\nrule = "{}"\nreason = "not reachable"\n{}\n'


@pytest.mark.parametrize("rule", ["GHSA-aaaa-bbbb-cccc", "CVE-2026-1", "CVE-*"])
def test_advisories_are_waived_by_id_or_alias(project, rule) -> None:
    project("requests==2.31.0", policy=WAIVER.format(rule, ""))
    code, data = report("--security")
    assert code == 0
    assert data["advisories"][0]["suppressed"]["reason"] == "not reachable"
    assert data["advisories"][0]["fails"] is False
    assert (data["summary"]["advisories"], data["summary"]["waivers"]) == (0, [])
    assert "GHSA-aaaa-bbbb-cccc (requests): not reachable" in run("check", "requirements.txt", "--security").out


@pytest.mark.parametrize("rule", ["*", "requests/*", "CVE-2026-2", "ghsa-aaaa-bbbb-cccc"])
def test_other_waivers_do_not_cover_advisories(project, rule) -> None:
    project("requests==2.31.0", policy=WAIVER.format(rule, ""))
    assert report("--security")[0] == 1


def test_waivers_of_advisories_end(project) -> None:
    project("requests==2.31.0", policy=WAIVER.format("CVE-2026-1", "expires = 2020-01-01"))
    code, data = report("--security")
    assert code == 1
    assert "expired on 2020-01-01 and no longer covers GHSA-aaaa-bbbb-cccc" in data["summary"]["waivers"][0]
    project("requests==2.31.0", policy=WAIVER.format("CVE-2026-1", 'package = "requests>=3"'))
    assert report("--security")[0] == 1


def test_unused_waiver_of_an_advisory_is_said_only_where_it_could_be_used(project) -> None:
    project("numpy==2.0", policy=WAIVER.format("CVE-2026-9", ""))
    assert report()[1]["summary"]["waivers"] == []
    assert "covers nothing: remove it" in run("check", "--security").err + str(
        report("--security")[1]["summary"]["waivers"]
    )
    project("numpy==2.0", "private==1.0", policy=WAIVER.format("CVE-2026-9", ""))
    assert report("--security")[1]["summary"]["waivers"] == []


def test_every_format_shows_the_advisory(project) -> None:
    project("requests==2.31.0", "private==1.0")
    names = ("text", "json", "sarif", "junit", "markdown", "github")
    outputs = [part for name in names for part in ("--output", f"{name}:report.{name}")]
    assert run("check", "requirements.txt", "--security", *outputs).code == 1
    for name in names:
        page = Path(f"report.{name}").read_text(encoding="utf-8")
        for wanted in ("GHSA-aaaa-bbbb-cccc", "2.31.0", "private", "Dependency not found"):
            assert wanted in page, (name, wanted)
    (result,) = json.loads(Path("report.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "GHSA-aaaa-bbbb-cccc"
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert (
        "::error file=requirements.txt,line=1,title=advisory GHSA-aaaa-bbbb-cccc" in Path("report.github").read_text()
    )


def test_misspelt_service_is_refused_before_anything_is_read(project) -> None:
    project("requests==2.31.0")
    done = run("check", "no-such-file", "--security-service", "pipy")
    assert (done.code, done.out) == (2, "")
    assert "--security-service 'pipy' is not understood" in done.err


def test_missing_pip_audit_is_said(tmp_path, monkeypatch) -> None:
    (tmp_path / "requirements.txt").write_text("numpy==2.0\n")
    monkeypatch.setattr(pip_audit.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(pip_audit, "find_program", lambda name: Program(name, None))
    done = run("check", tmp_path / "requirements.txt", "--no-policy", "--security")
    assert done.code == 2
    assert "pip install pip-audit" in done.err


def test_installed_environment_is_audited(project, tmp_path) -> None:
    project()
    for name in ("requests-2.31.0", "numpy-2.0"):
        folder = tmp_path / "prefix" / f"{name}.dist-info"
        folder.mkdir(parents=True)
        stem, _, version = name.partition("-")
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {stem}\nVersion: {version}\n")
    done = run("env", "--prefix", tmp_path / "prefix", "--no-policy", "--security", "--format", "json")
    data = json.loads(done.out)
    assert (done.code, data["audit"]["audited"]) == (1, 2)
    assert [entry["id"] for entry in data["advisories"]] == ["GHSA-aaaa-bbbb-cccc"]


def test_diff_has_no_such_option() -> None:
    assert run("diff", "a", "b", "--security").code == 2
