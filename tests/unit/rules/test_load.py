"""A rule file is loaded whole or refused, naming file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from compatcheck.core.errors import RuleError
from compatcheck.rules.load import load_rule, load_rules, rule_files
from compatcheck.rules.rule import Clause, Comparison, EvidenceSelection, ProbeUse
from compatcheck.rules.skeleton import write_skeleton

TEXT = """\
title: Something is kept
kind: regression
status: active
affected: {deepspeed: ">=0.16.0,<0.16.8"}
checked_through: {deepspeed: "0.19.8"}
when: "training.zero_stage == 3"
impact:
  effect: memory
  memory: device
  scope: rank
  phase: backward
  bytes: "2 * model.parameters"
  high: "3 * model.parameters"
confidence: explained
verifiable: [cpu]
what: What.
why: Why.
remedies:
  - {upgrade: {deepspeed: ">=0.16.8"}, safety: safe}
  - {note: do without, safety: unsafe}
references:
  - {type: FIX, url: "https://example.invalid/1", date: "2025-05-19"}
examples:
  match:
    - {packages: {deepspeed: "0.16.4"}, training: {zero_stage: 3}}
"""


def load(text: str, root: Path, name: str = "deepspeed/slug.yaml"):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load_rule(path, root)


def test_a_bound_may_stand_without_a_size(tmp_path: Path) -> None:
    bounded = TEXT.replace('  bytes: "2 * model.parameters"\n', "")
    impact = load(bounded, tmp_path).impact
    assert (impact.expected, impact.high) == (None, "3 * model.parameters")
    with pytest.raises(RuleError, match="need `bytes`"):
        load(bounded.replace("  high:", "  low:"), tmp_path)


def test_a_whole_rule(tmp_path: Path) -> None:
    rule = load(TEXT, tmp_path)
    assert rule.id == "deepspeed/slug"
    assert rule.clauses == (Clause(packages={"deepspeed": ">=0.16.0,<0.16.8"}),)
    assert (rule.impact.expected, rule.impact.low, rule.impact.high) == (
        "2 * model.parameters",
        None,
        "3 * model.parameters",
    )
    assert [(remedy.verb, remedy.safety, remedy.note) for remedy in rule.remedies] == [
        ("upgrade", "safe", None),
        ("note", "unsafe", "do without"),
    ]
    assert rule.examples.match[0]["training"] == {"zero_stage": 3}
    assert rule.unless is None


def test_clauses_are_alternatives_with_conditions_of_their_own(tmp_path: Path) -> None:
    text = TEXT.replace(
        'affected: {deepspeed: ">=0.16.0,<0.16.8"}',
        'affected:\n  - {torch: ">=2.8", flash-attn: absent, when: "training.packing"}\n  - {deepspeed: "<1"}',
    )
    first, second = load(text, tmp_path).clauses
    assert (dict(first.packages), first.when) == ({"torch": ">=2.8", "flash-attn": "absent"}, "training.packing")
    assert (dict(second.packages), second.when) == ({"deepspeed": "<1"}, None)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("kind: regression", "kind: regresion", "2 (kind)"),
        ("status: active", "status: draft", "3 (status)"),
        ("status: active", "statuss: active", "3 (statuss)"),
        ("title: Something is kept", "title: '  '", "1 (title)"),
        ("title: Something is kept", "title: [a]", "1 (title)"),
        ('{deepspeed: ">=0.16.0,<0.16.8"}', "[]", "4 (affected)"),
        ('{deepspeed: ">=0.16.0,<0.16.8"}', "text", "4 (affected)"),
        ('{deepspeed: ">=0.16.0,<0.16.8"}', "{deepspeed: 1}", "4 (affected.deepspeed)"),
        ('{deepspeed: ">=0.16.0,<0.16.8"}', '{Deep_Speed: ">=1"}', "4 (affected.Deep_Speed)"),
        ('{deepspeed: ">=0.16.0,<0.16.8"}', '[{flash_attn: ">=1"}]', "4 (affected.0.flash_attn)"),
        ("effect: memory", "effect: money", "8 (impact.effect)"),
        ("phase: backward", "fase: backward", "11 (impact.fase)"),
        ("verifiable: [cpu]", "verifiable: [tpu]", "15 (verifiable.0)"),
        ("verifiable: [cpu]", "verifiable: cpu", "15 (verifiable)"),
        ("safety: safe}", "safety: maybe}", "19 (remedies.0.safety)"),
        ('{upgrade: {deepspeed: ">=0.16.8"}, safety: safe}', "{safety: safe}", "19 (remedies.0)"),
        ('{upgrade: {deepspeed: ">=0.16.8"}', "{set: {a.b: [x, z]}", "19 (remedies.0.set.a.b)"),
        ('{upgrade: {deepspeed: ">=0.16.8"}', '{set: {a: 1}, upgrade: {deepspeed: ">=0.16.8"}', "19 (remedies.0)"),
        ('{upgrade: {deepspeed: ">=0.16.8"}', '{done: {run: {}}, upgrade: {deepspeed: ">=0.16.8"}', "19 (remedies.0)"),
        ('{upgrade: {deepspeed: ">=0.16.8"}', "{note: words, done: {run: {}}, unseen: words", "19 (remedies.0)"),
        ("https://example.invalid/1", "http://example.invalid/1", "22 (references.0.url)"),
        ("type: FIX", "type: FIXED", "22 (references.0.type)"),
        ("  match:", "  matches:", "24 (examples.matches)"),
        ("    - {packages", "    - a\n    - {packages", "25 (examples.match.0)"),
    ],
)
def test_each_slip_is_named_with_its_line_and_key(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert old in TEXT
    with pytest.raises(RuleError) as caught:
        load(TEXT.replace(old, new, 1), tmp_path)
    assert str(caught.value.source) == f"{tmp_path}/deepspeed/slug.yaml:{place}"


@pytest.mark.parametrize("key", ["title", "kind", "affected", "impact", "what", "references", "examples"])
def test_required_keys(tmp_path: Path, key: str) -> None:
    data = yaml.safe_load(TEXT)
    del data[key]
    with pytest.raises(RuleError, match=f"missing key '{key}'"):
        load(yaml.safe_dump(data), tmp_path)


def test_an_unknown_key_is_told_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        load(TEXT.replace("confidence:", "confidense:"), tmp_path)
    assert caught.value.hint == "did you mean 'confidence'?"


def test_data_files_and_folders_are_no_rules_but_the_stack_folder_is(tmp_path: Path) -> None:
    for name in ("a/x.yaml", "_stack/y.yaml", "_tables/t.yaml", "a/_z.yaml", "_models.yaml", "a/readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(TEXT, encoding="utf-8")
    assert [rule.id for rule in load_rules(tmp_path)] == ["_stack/y", "a/x"]
    assert len(rule_files(tmp_path)) == 2


def test_a_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    for text in ("", "a", "- a\n", "{}"):
        with pytest.raises(RuleError):
            load(text, tmp_path)


def test_the_skeleton_of_a_new_rule_loads(tmp_path: Path) -> None:
    written = write_skeleton("deepspeed/slug", tmp_path / "rules").read_text(encoding="utf-8")
    assert load(written, tmp_path).status == "draft"


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ("probe: zero3_release", ProbeUse(name="zero3_release", parameters={})),
        ("probe: {name: zero3_release}", ProbeUse(name="zero3_release", parameters={})),
        (
            "probe: {name: zero3_release, parameters: {layers: 4}, metric: kept_bytes}",
            ProbeUse(name="zero3_release", parameters={"layers": 4}, metric="kept_bytes"),
        ),
    ],
)
def test_a_probe_is_a_name_or_says_how_it_is_run(tmp_path: Path, text: str, use: ProbeUse) -> None:
    assert load(TEXT, tmp_path).probe is None
    assert load(f"{TEXT}{text}\n", tmp_path).probe == use


def test_evidence_is_files_and_comparisons(tmp_path: Path) -> None:
    rule = load(
        TEXT
        + """\
evidence:
  - fixtures/a.json
  - metric: step.live_bytes
    suspect: fixtures/b.json
    baseline: {file: fixtures/c.jsonl, versions: {deepspeed: "0.16.8"}, parameters: {config.layers: 2}}
    facts: {model.parameters: 5}
  - {metric: kept_bytes, suspect: fixtures/b.json}
""",
        tmp_path,
    )
    assert rule.evidence == ("fixtures/a.json", "fixtures/b.json", "fixtures/c.jsonl")
    suspect = EvidenceSelection(file="fixtures/b.json", versions={}, parameters={})
    baseline = EvidenceSelection(
        file="fixtures/c.jsonl", versions={"deepspeed": "0.16.8"}, parameters={"config.layers": 2}
    )
    assert rule.comparisons == (
        Comparison(metric="step.live_bytes", suspect=suspect, baseline=baseline, facts={"model.parameters": 5}),
        Comparison(metric="kept_bytes", suspect=suspect, baseline=None, facts={}),
    )


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("probe: {parameters: {}}", "probe.name", "expected text"),
        ("probe: {name: x, metrics: z}", "probe.metrics", "did you mean 'metric'"),
        ("probe: {name: x, parameters: [1]}", "probe.parameters", "expected a mapping"),
        ("probe: [x]", "probe", "expected text"),
        ("evidence: {a: b}", "evidence", "expected a list"),
        ("evidence: [3]", "evidence.0", "expected a mapping"),
        ("evidence: [{suspect: a.json}]", "evidence.0.metric", "expected text"),
        ("evidence: [{metric: m}]", "evidence.0.suspect", "expected a mapping"),
        ("evidence: [{metric: m, suspect: {versions: {a: '1'}}}]", "evidence.0.suspect.file", "expected text"),
        (
            "evidence: [{metric: m, suspect: {file: a.json, versions: {a: 1}}}]",
            "evidence.0.suspect.versions.a",
            "quoted",
        ),
        ("evidence: [{metric: m, suspekt: a.json}]", "evidence.0.suspekt", "did you mean 'suspect'"),
    ],
)
def test_a_malformed_probe_or_evidence_is_named_by_key(tmp_path: Path, text: str, key: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        load(f"{TEXT}{text}\n", tmp_path)
    assert caught.value.source is not None
    assert caught.value.source.key == key
    assert message in f"{caught.value.message} {caught.value.hint}"
