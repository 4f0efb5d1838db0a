"""A rule to vary, and rules drawn at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from compatcheck.rules.compile import compile_database, open_compiled
from compatcheck.rules.database import RuleSet
from compatcheck.rules.rule import Clause, Examples, Impact, Reference, Remedy, Rule

BASE = Rule(
    id="deepspeed/bad-pattern",
    path="rules/deepspeed/bad-pattern.yaml",
    title="Something is kept",
    kind="regression",
    status="active",
    row="D99",
    clauses=(Clause(packages={"deepspeed": ">=0.16.0,<0.16.8"}),),
    unverified={},
    checked_through={"deepspeed": "0.19.8"},
    when="training.zero_stage == 3 and training.gradient_checkpointing",
    unless=None,
    impact=Impact(
        effect="memory",
        memory="device",
        scope="rank",
        phase="backward",
        expected="dtype_bytes(training.param_dtype) * model.parameters",
    ),
    confidence="explained",
    verifiable=("cpu",),
    what="what",
    why="why",
    known_problems=None,
    debunks=(),
    remedies=(Remedy(verb="upgrade", target={"deepspeed": ">=0.16.8"}, safety="safe"),),
    references=(Reference(type="FIX", url="https://example.invalid/1", date="2025-05-19"),),
    probe=None,
    evidence=(),
    examples=Examples(),
    former_ids=(),
    reason=None,
)
"""A sound rule."""

RELEASES = {"releases/deepspeed": [f"0.{minor}.{patch}" for minor in (15, 16, 17) for patch in range(10)]}
"""Releases to judge by, oldest first."""


def rule(**changes: Any) -> Rule:
    """Return the sound rule with changes."""
    return Rule(**{**{name: getattr(BASE, name) for name in BASE.__dataclass_fields__}, **changes})


def rule_set(*rules: Rule, **sections: Any) -> RuleSet:
    """Compile rules and open them, with the releases above unless others are given."""
    return RuleSet((open_compiled(compile_database(rules, {**RELEASES, **sections}, "2026-01-01"), "drawn"),))


PACKAGES = ("accelerate", "deepspeed", "torch", "cudnn")
SPECIFIERS = st.sampled_from(["present", "absent", ">=1", "<2,>=1 || ==3.*", "!=1.5", ""])
CONDITIONS = st.one_of(
    st.none(),
    st.sampled_from(["training.zero_stage == 3", "training.packing or not training.compile", "env('A') == '1'"]),
)
clauses = st.builds(
    lambda packages, when: Clause(packages=packages, when=when),
    st.dictionaries(st.sampled_from(PACKAGES), SPECIFIERS, max_size=3),
    CONDITIONS,
)
drawn_rules = st.lists(
    st.builds(
        lambda slug, clauses, unverified, when, unless, status, texts, former: rule(
            id=f"pkg/{slug}",
            clauses=tuple(clauses),
            unverified=unverified,
            when=when,
            unless=unless,
            status=status,
            reason=None if status == "active" else "why",
            title=texts[0],
            what=texts[1],
            why=texts[2],
            former_ids=(f"old/{former}",) if former else (),
        ),
        st.from_regex(r"[a-z]{1,6}", fullmatch=True),
        st.lists(clauses, min_size=1, max_size=3),
        st.one_of(st.just({}), st.dictionaries(st.sampled_from(PACKAGES), SPECIFIERS, max_size=2)),
        CONDITIONS,
        CONDITIONS,
        st.sampled_from(["active", "active", "draft", "withdrawn"]),
        st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=20)] * 3),
        st.one_of(st.none(), st.from_regex(r"[a-z]{1,6}", fullmatch=True)),
    ),
    max_size=6,
    unique_by=lambda drawn: drawn.id,
)
