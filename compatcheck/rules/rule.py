"""A rule: one known regression, pitfall, default change, incompatibility or piece of folklore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("regression", "default-change", "pitfall", "incompatibility", "folklore")
STATUSES = ("draft", "active", "withdrawn")
CONFIDENCES = ("reported", "explained", "fixed-upstream", "measured")
EFFECTS = ("memory", "fails_to_start", "falls_back", "wrong_result", "slower")
MEMORIES = ("device", "host", "shm")
SCOPES = ("rank", "node", "job")
PHASES = ("load", "forward", "backward", "step", "rollout", "asleep", "save", "whole")
BACKENDS = ("fake", "cpu", "cuda")
REFERENCE_TYPES = ("INTRODUCED", "FIX", "REPORT", "DISCUSSION", "DOCUMENTATION", "SOURCE", "EVIDENCE")
SAFETIES = ("safe", "unsafe")
REMEDY_VERBS = ("upgrade", "downgrade", "set", "env", "note")
COMPONENTS = ("cuda", "cudnn", "nccl", "cublas", "driver", "python")
"""Names in ``affected`` that are not distributions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One alternative of ``affected``: every package must lie in its range, and ``when`` must hold."""

    packages: Mapping[str, str]
    """PEP 440 specifier per canonical name, alternatives joined with ``||``, or ``present`` / ``absent``."""
    when: str | None = None
    """Condition of this alternative only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """What a match costs."""

    effect: str
    memory: str
    scope: str
    phase: str
    expected: str | None = None
    """Expression in bytes; None when no formula is established."""
    low: str | None = None
    high: str | None = None
    passing: str | None = None
    """Expression, 0 to 1: the share of `expected` that is there only while one block is computed, never beside the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing a person can do."""

    verb: str
    """``upgrade``, ``downgrade``, ``set``, ``env`` or ``note``."""
    target: Mapping[str, Any]
    """Package → specifier, fact → value, or variable → value; empty for ``note``."""
    safety: str
    """``safe``: same result, slower at most; ``unsafe``: may change behaviour or re-open another rule."""
    note: str | None = None
    when: str | None = None
    """Condition under which it is one, as `Rule.when`; None where it always is."""
    done: Mapping[str, Any] | None = None
    """Of a ``note``: what holds once it was done, laid over an example in the layout of the native facts file."""
    unseen: str | None = None
    """Of a ``note``: why no file can show that it was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One upstream place that supports the rule."""

    type: str
    url: str
    date: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """The rule's own tests, in the layout of the native facts file."""

    match: tuple[Mapping[str, Any], ...] = ()
    no_match: tuple[Mapping[str, Any], ...] = ()
    unknown: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeUse:
    """The probe that confirms a rule, and how it is run for that."""

    name: str
    """A file of ``compatcheck/lab/probes/catalog`` without its suffix."""
    parameters: Mapping[str, Any]
    """What differs from the probe's defaults."""
    metric: str | None = None
    """Quantity the verdict is about; None is the probe's own."""
    baseline: Mapping[str, Any] | None = None
    """Parameters of the healthy side over those above, where a setting and not a release makes the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSelection:
    """One measurement of a file."""

    file: str
    """Path as in ``evidence``."""
    versions: Mapping[str, str]
    """Releases that tell it from the others in the file."""
    parameters: Mapping[str, Any]
    """Parameters that tell it from the others in the file; a dot leads into one that is a mapping, null means not stated."""
    metric: str | None = None
    """What is taken of it; None is the comparison's metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two measurements whose difference the rule's formula gives."""

    metric: str
    """A name of `compatcheck.lab.measurement.Measurement.metric`, in bytes."""
    suspect: EvidenceSelection
    baseline: EvidenceSelection | None
    """What is subtracted; None where the metric is the bytes lost itself."""
    facts: Mapping[str, Any]
    """Vocabulary name → value of the measured run, over what the probe says of its parameters."""
    besides: tuple[str, ...] = ()
    """Rules whose sizes are in the difference, too: what they are about began or ended in the same release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One file of ``rules/``."""

    id: str
    """Path without suffix: ``deepspeed/zero3-params-kept-in-backward``."""
    path: str
    title: str
    kind: str
    status: str
    row: str | None
    """Row or rows of the collected facts the rule encodes: ``D01``."""
    clauses: tuple[Clause, ...]
    unverified: Mapping[str, str]
    checked_through: Mapping[str, str]
    when: str | None
    unless: str | None
    impact: Impact
    confidence: str
    verifiable: tuple[str, ...]
    what: str
    why: str
    known_problems: str | None
    debunks: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    references: tuple[Reference, ...]
    probe: ProbeUse | None
    evidence: tuple[str, ...]
    """Every file named, those of ``comparisons`` included."""
    comparisons: tuple[Comparison, ...] = ()
    examples: Examples
    former_ids: tuple[str, ...]
    reason: str | None
    """Why it is a draft or was withdrawn."""
