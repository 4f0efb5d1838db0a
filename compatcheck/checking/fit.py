"""Price the run of a subject, and rate the findings that decide whether it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.core.estimate import Assumption, Estimate, Verdict
from compatcheck.core.units import format_bytes
from compatcheck.matching.engine import order
from compatcheck.memory.job import estimate_job
from compatcheck.memory.regressions import find_deciding, lay_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject

_WORLD = frozenset({"hardware.world_size", "hardware.nodes", "hardware.gpus_per_node"})
_SPLITS = frozenset(
    {
        "model.quantization",
        "training.context_parallel",
        "training.pipeline_parallel",
        "training.tensor_parallel",
        "training.zero_stage",
    }
)
"""Facts that an estimate takes as none without a word, and that change it by a multiple."""


def price(subject: Subject) -> Estimate:
    """Estimate the run of a subject in closed form.

    Returns:
        An estimate; without phases, and with what is needed, where it would assume a fact which an input sets to something
        nobody can tell.

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    found = estimate_job(subject.roles, subject.environment)
    opened = {name for name, _, _ in subject.unresolved}
    not_understood = {entry.fact for entry in subject.skipped if entry.fact is not None}
    opened |= {name for name in not_understood if not all(name in facts for facts in subject.roles.values())}
    assumed = {entry.fact.partition(" (")[0] for entry in found.assumptions}
    needs = [name for name in sorted(opened) if name in assumed | _SPLITS]
    if opened & _WORLD and "hardware.world_size" in assumed and "hardware.world_size" not in needs:
        needs.append("hardware.world_size")
    if not found.phases or not needs:
        said = (*_overruled(subject), *_models_not_read(subject))
        return found._replace(assumptions=(*found.assumptions, *said))
    return Estimate(found.method, (), Verdict("unknown", None, None), found.assumptions, (), tuple(needs))


def _overruled(subject: Subject) -> Iterator[Assumption]:
    """Say where a declared device stands against the number of devices or nodes that a script starts on."""
    for facts in subject.roles.values():
        for name in sorted(_WORLD & facts.keys()):
            fact = facts[name]
            if fact.origin == "declared" and fact.alternatives:
                value, place = fact.alternatives[0]
                told = fact.sources[0].path if fact.sources else "declared"
                yield Assumption(name, fact.value, f"as {told} says; {place} says {value}")
        return


def _models_not_read(subject: Subject) -> Iterator[Assumption]:
    """Say which roles have a model of their own that nobody could read, so that the policy's stands for it."""
    references = [reference for document in subject.documents for reference in document.references]
    policy = {name for kind, name, _ in references if kind == "model"}
    first = next(iter(subject.roles.values()))
    for kind, name, key in dict.fromkeys(references):
        role = kind.partition(":")[2]
        if not kind.startswith("model:") or role not in subject.roles or name in policy:
            continue
        if subject.roles[role].get("model.hidden_size") == first.get("model.hidden_size"):
            reason = f"{name} ({key}) was not read; taken to be as large as the policy's model"
            yield Assumption(f"model ({role})", "the policy's", reason)


def rate_by_fit(findings: Iterable[Finding], subject: Subject) -> tuple[tuple[Finding, ...], Estimate | None]:
    """Rate findings critical without which the run fits, and with which it does not.

    Returns:
        The findings, and the estimate they were held against; None where the inputs describe no run.
    """
    findings = tuple(findings)
    try:
        estimate = price(subject)
    except UsageError:
        return findings, None  # `compatcheck estimate` says which size makes no sense
    if not estimate.phases:
        return findings, None
    regressed = lay_over(estimate, findings)
    if regressed is None:
        return findings, estimate
    deciding = find_deciding(estimate, regressed)
    limit, before, after = (
        format_bytes(count or 0)
        for count in (estimate.verdict.limit_bytes, estimate.needed.expected, regressed.needed.expected)
    )
    words = f"the run is estimated to need {before} of {limit} a device without this, and {after} with it"
    rated = [
        finding._replace(severity="critical", rating=words) if (finding.rule_id, finding.role) in deciding else finding
        for finding in findings
    ]
    return tuple(sorted(rated, key=order)), estimate
