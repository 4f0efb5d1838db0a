"""OSV records: valid by the official schema where it is at hand, and of the same meaning as the rules."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
from packaging.version import Version

from compatcheck.core.versions import all_ordered, contains, parse_version
from compatcheck.rules.compile import compile_directory, open_compiled
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from compatcheck.rules.osv import describe_rules, record_id

SCHEMA_VARIABLE = "OSV_SCHEMA"
"""Path of validation/schema.json as ossf/osv-schema publishes it, 1.7 or later; it is not copied into this repository."""

REFERENCE_TYPES = {
    "ADVISORY", "ARTICLE", "DETECTION", "DISCUSSION", "REPORT", "FIX", "INTRODUCED", "GIT", "PACKAGE", "EVIDENCE", "WEB",
}  # fmt: skip
FIELDS = {
    "schema_version", "id", "modified", "aliases", "summary", "details", "affected", "references", "database_specific",
}  # fmt: skip

RULE = """
title: {title}
kind: regression
status: active
affected: {affected}
{more}
impact: {{effect: memory, memory: device, scope: rank, phase: forward, bytes: "1"}}
confidence: reported
verifiable: []
what: |
  It keeps memory.
why: |
  It does.
remedies:
  - {{upgrade: {{demo: ">=1.5"}}, safety: safe}}
references:
  - {{type: FIX, url: "https://example.org/pull/1"}}
examples:
  match: []
"""


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


@pytest.fixture(scope="module")
def described(rules):
    return describe_rules(rules, lambda _: True)


@pytest.fixture
def write(tmp_path):
    """Compile rules of one's own."""

    def build(releases: dict[str, list[str]] | None = None, **files: tuple[str, str]) -> RuleSet:
        root = tmp_path / "rules"
        (root / "demo").mkdir(parents=True)
        (root / "_database.yaml").write_text('date: "2026-11-21"\n')
        for slug, (affected, more) in files.items():
            text = RULE.format(title=f"About {slug}", affected=affected, more=more)
            (root / "demo" / f"{slug}.yaml").write_text(text)
        for name, versions in (releases or {}).items():
            (root / "_releases").mkdir(exist_ok=True)
            listed = "".join(f'  "{version}": "2026-01-01"\n' for version in versions)
            (root / "_releases" / f"{name}.yaml").write_text(
                f'package: {name}\ndate: "2026-11-21"\nreleases:\n{listed}', encoding="utf-8"
            )
        return RuleSet((open_compiled(compile_directory(root), "test"),))

    return build


def official_schema() -> dict | None:
    path = os.environ.get(SCHEMA_VARIABLE)
    return json.loads(Path(path).read_text(encoding="utf-8")) if path else None


def in_ranges(affected: dict, version: Version) -> bool:
    """Evaluate events as the format's own page does: https://ossf.github.io/osv-schema/#evaluation."""
    for entry in affected["ranges"]:
        held = False
        steps = []
        for event in entry["events"]:
            ((kind, text),) = event.items()
            steps.append((Version("0.dev0") if text == "0" else Version(text), kind))
        for at, kind in sorted(steps, key=lambda step: step[0]):
            if kind == "introduced" and version >= at:
                held = True
            elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
                held = False
        if held:
            return True
    return False


def test_records_are_well_formed(described) -> None:
    ids = [record.id for record in described.records]
    assert len(set(ids)) == len(ids) > 100
    for record in described.records:
        data = record.data
        assert set(data) <= FIELDS
        assert re.fullmatch(r"x_COMPATCHECK-[a-z0-9_-]+\.[a-z0-9-]+", data["id"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", data["modified"])
        assert "\n" not in data["summary"]
        assert data["affected"]
        for affected in data["affected"]:
            assert set(affected) <= {"package", "ranges", "versions", "database_specific"}
            assert affected["package"]["ecosystem"] == "PyPI"
            for entry in affected["ranges"]:
                kinds = {kind for event in entry["events"] for kind in event}
                assert entry["type"] == "ECOSYSTEM"
                assert "introduced" in kinds
                assert not {"fixed", "last_affected"} <= kinds
                assert all(len(event) == 1 for event in entry["events"])
        assert data["references"]
        assert {reference["type"] for reference in data["references"]} <= REFERENCE_TYPES
        assert any(reference["type"] == "WEB" for reference in data["references"])
        assert data["database_specific"]["rule"] == record.rule_id


def test_records_meet_the_official_schema(described) -> None:
    schema = official_schema()
    if schema is None:
        pytest.skip(f"{SCHEMA_VARIABLE} does not name the schema of ossf/osv-schema")
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for record in described.records:
        validator.validate(json.loads(json.dumps(record.data)))


def test_records_affect_the_releases_of_the_rules(described, rules) -> None:
    checked = 0
    for record in described.records:
        for affected in record.data["affected"]:
            package = affected["package"]["name"]
            bounds = [clauses for entry in record.affected if entry.package == package for clauses in entry.bounds]
            for release in rules.releases(package):
                version = parse_version(release)
                assert version is not None
                expected = all_ordered(bounds, version)
                assert in_ranges(affected, version) == expected, (record.id, release)
                assert (release in affected.get("versions", [])) == expected, (record.id, release)
                if not version.is_prerelease:
                    assert (contains(bounds, release) == "yes") == expected, (record.id, release)
                checked += 1
    assert checked > 10_000


def test_the_condition_comes_first(described) -> None:
    (record,) = (entry for entry in described.records if entry.rule_id == "deepspeed/zero3-params-kept-in-backward")
    assert record.conditional
    assert record.data["summary"].startswith("Only if training.zero_stage == 3 and ")
    assert "unless hardware.single_rank and (" in record.data["summary"]
    assert record.data["details"].startswith("Only if `training.zero_stage == 3 and ")
    assert record.data["affected"][0]["ranges"] == [
        {"type": "ECOSYSTEM", "events": [{"introduced": "0.16.0"}, {"fixed": "0.16.8"}]}
    ]


def test_folklore_and_drafts_are_no_records(rules, described) -> None:
    by_id = {rule.id: rule for rule in rules.all_rules()}
    assert {by_id[record.rule_id].kind for record in described.records} == {
        "regression", "default-change", "pitfall", "incompatibility",
    }  # fmt: skip
    assert {by_id[record.rule_id].status for record in described.records} == {"active"}


def test_every_rule_is_told_or_left_out_for_a_reason(rules, described) -> None:
    wanted = {rule.id for rule in rules.all_rules() if rule.status == "active" and rule.kind != "folklore"}
    told = {record.rule_id for record in described.records}
    assert told | {rule_id for rule_id, _ in described.left_out} == wanted


def test_what_a_record_cannot_say_is_left_out(write) -> None:
    rules = write(
        both=('{demo: ">=1,<2", torch: ">=2"}', ""),
        component=('{cudnn: ">=9"}', ""),
        either=('[{demo: ">=1,<2"}, {demo: ">=3", torch: ">=2"}]', ""),
        literal=('{demo: "===1.0"}', ""),
        absence=("{demo: absent}", ""),
    )
    described = describe_rules(rules, lambda _: True)
    assert [record.rule_id for record in described.records] == ["demo/either"]
    assert dict(described.left_out) == {
        "demo/both": "is about demo and torch together, and a record says only one or the other",
        "demo/component": "is about cudnn, which is no distribution",
        "demo/either": "is about demo and torch together, and a record says only one or the other",
        "demo/literal": "has a range of demo that is no interval: === 1.0 compares texts",
        "demo/absence": "is about demo being absent",
    }
    assert described.records[0].data["affected"][0]["ranges"] == [
        {"type": "ECOSYSTEM", "events": [{"introduced": "1"}, {"fixed": "2"}]}
    ]


def test_rule_without_condition_needs_none(write) -> None:
    rules = write(
        plain=('{demo: ">=1,<1.5"}', "former_ids: [demo/older]"),
        open=("{demo: present}", "when: training.zero_stage == 3"),
        one=('{demo: "==1.2 || >=1.3,<1.4"}', "unless: training.zero_stage == 3"),
        own=('[{demo: "<1"}, {demo: ">=2", when: "training.zero_stage == 2"}]', ""),
        releases={"demo": ["0.9", "1.2", "1.3rc1", "1.5"]},
    )
    by_id = {record.rule_id: record for record in describe_rules(rules, lambda _: True).records}
    assert {name: record.conditional for name, record in by_id.items()} == {
        "demo/plain": False, "demo/open": True, "demo/one": False, "demo/own": True,
    }  # fmt: skip
    plain = by_id["demo/plain"].data
    assert plain["summary"] == "About plain"
    assert plain["aliases"] == [record_id("demo/older")] == ["x_COMPATCHECK-demo.older"]
    assert plain["affected"][0]["versions"] == ["1.2", "1.3rc1"]
    assert "upgrade demo >=1.5" in plain["details"]
    assert by_id["demo/open"].data["affected"][0]["ranges"] == [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]
    assert by_id["demo/one"].data["summary"] == "Unless training.zero_stage == 3: About one"
    assert by_id["demo/one"].data["affected"][0]["ranges"] == [
        {"type": "ECOSYSTEM", "events": [{"introduced": "1.3"}, {"fixed": "1.4"}]},
        {"type": "ECOSYSTEM", "events": [{"introduced": "1.2"}, {"last_affected": "1.2"}]},
    ]
    own = by_id["demo/own"].data
    assert own["summary"].startswith("Only if (always) or (training.zero_stage == 2): ")
    assert [entry["condition"] for entry in own["affected"][0]["database_specific"]["conditions"]] == [
        None, "training.zero_stage == 2",
    ]  # fmt: skip
