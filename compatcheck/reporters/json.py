"""The report as JSON: the contract other programs build on (``report.schema.json``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compatcheck.core.headline import open_lines
from compatcheck.core.summary import summarise
from compatcheck.reporters.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.core.advisory import Advisory, Audit
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Fact, Value
    from compatcheck.core.report import Finding, Report, SubjectReport
    from compatcheck.core.source import Skipped, Source
    from compatcheck.core.suppression import Suppression

SCHEMA_VERSION = "1"


def format_report(report: Report) -> str:
    """Format a report as JSON text."""
    return json.dumps(describe_report(report), indent=2, ensure_ascii=False) + "\n"


def describe_report(report: Report) -> dict[str, object]:
    """Describe a report as plain data."""
    summary = summarise(report)
    return {
        **describe_origin(report),
        "subjects": [_subject(subject) for subject in report.subjects],
        "findings": [describe_finding(finding) for finding in report.findings],
        "plans": _plans(report),
        "advisories": [] if report.audit is None else [_advisory(entry) for entry in report.audit.advisories],
        "audit": None if report.audit is None else _audit(report.audit),
        "skipped": describe_skipped(report.skipped),
        "summary": {
            "findings": summary.findings,
            "affected": summary.affected,
            "possible": summary.possible,
            "folded": summary.folded,
            "suppressed": summary.waived,
            "failing": summary.failing,
            "not_checked": summary.not_checked,
            "advisories": summary.advisories,
            "not_audited": summary.not_audited,
            "fail_on": report.threshold,
            "strict": report.strict,
            "open": open_lines(report),
            "exit_code": report.exit_code,
            "waivers": list(report.waiver_notes),
            "policy": report.policy,
            "seconds": round(report.seconds, 3),
        },
    }


def describe_origin(report: Report) -> dict[str, object]:
    """Describe what a document was written by, and by which rules."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "compatcheck", "version": report.version},
        "database": {"id": report.database_id, "date": report.database_date, "rules": report.database_rules},
    }


def describe_skipped(skipped: Iterable[Skipped]) -> list[dict[str, object]]:
    """Describe what was not read."""
    return [
        {"source": str(entry.source), "reason": entry.reason, "hint": entry.hint, "named": entry.named}
        for entry in skipped
    ]


def _plans(report: Report) -> list[dict[str, object]]:
    if not report.plans:
        return []
    from compatcheck.reporters.fix import describe_change, describe_outcomes  # noqa: PLC0415 (only where something fails)

    return [
        {
            "subjects": list(plan.subjects),
            "changes": [describe_change(change) for change in plan.changes],
            "clears": [fingerprint(finding) for finding in plan.cleared],
            "leaves": [{"finding": fingerprint(finding), "reason": why} for finding, why in plan.remaining],
            "brings": list(plan.brings),
            "outcomes": describe_outcomes(plan),
        }
        for plan in report.plans
    ]


def _subject(subject: SubjectReport) -> dict[str, object]:
    return {
        "id": subject.id,
        "origin": subject.origin,
        "aside": subject.aside,
        "environment": {
            "python": subject.python,
            "complete": subject.complete,
            "packages": [
                {
                    "name": name,
                    "version": version,
                    "source": source,
                    "optional": name in subject.optional,
                }
                for name, version, source in subject.packages
            ],
            "notes": list(subject.notes),
        },
        "facts": [{**describe_fact(fact), "role": role} for role, fact in subject.facts],
        "not_read": [{**_place(source), "reason": why} for source, why in subject.gaps],
        "unread_keys": [{**_place(source), "nearest": near} for source, near in subject.unread_keys],
        "conflicts": [
            {"fact": name, "values": [{"value": _value(value), "source": str(source)} for value, source in values]}
            for name, values in subject.conflicts
        ],
        "unresolved": [
            {"fact": name, "source": str(source), "reason": why} for name, source, why in subject.unresolved
        ],
        "version_unknown": [{"package": name, "rules": count} for name, count in subject.folded],
        "rules_waiting_for_configuration": subject.waiting,
        "estimate": _estimate(subject.estimate),
    }


def _estimate(estimate: Estimate | None) -> dict[str, object] | None:
    if estimate is None:
        return None
    from compatcheck.reporters.estimate import describe_estimate  # noqa: PLC0415 (only where a run is described)

    return describe_estimate(estimate)


def describe_finding(finding: Finding) -> dict[str, object]:
    """Describe a finding as plain data."""
    impact = finding.impact
    return {
        "rule_id": finding.rule_id,
        "subject": finding.subject,
        "role": finding.role,
        "kind": finding.kind,
        "title": finding.title,
        "status": finding.status,
        "severity": finding.severity,
        "rating": finding.rating,
        "confidence": finding.confidence,
        "message": finding.message,
        "impact": None
        if impact is None
        else {
            "low_bytes": impact.low_bytes,
            "expected_bytes": impact.expected_bytes,
            "high_bytes": impact.high_bytes,
            "effect": impact.effect,
            "memory": impact.memory,
            "scope": impact.scope,
            "phase": impact.phase,
            "needs": list(impact.needs),
            "formula": impact.formula,
        },
        "needs": list(finding.needs),
        "assumptions": list(finding.assumptions),
        "facts": [describe_fact(fact) for fact in finding.facts],
        "locations": [_place(source) for source in finding.locations],
        "remedies": [
            {
                "text": remedy.text,
                "command": remedy.command,
                "safety": remedy.safety,
                "note": remedy.note,
                "releases": dict(remedy.releases),
                "settings": {name: _value(value) for name, value in remedy.settings},
            }
            for remedy in finding.remedies
        ],
        "references": [
            {"type": reference.type, "url": reference.url, "date": reference.date} for reference in finding.references
        ],
        "folklore": [{"rule_id": rule_id, "title": title} for rule_id, title in finding.folklore],
        "measured_here": None if finding.measured_here is None else dict(finding.measured_here),
        "suppressed": _suppression(finding.suppressed),
        "fails": finding.fails,
        "advice": finding.advice,
        "folded": finding.folded,
        "fingerprint": fingerprint(finding),
    }


def _advisory(advisory: Advisory) -> dict[str, object]:
    return {
        "id": advisory.id,
        "aliases": list(advisory.aliases),
        "package": advisory.package,
        "version": advisory.version,
        "fixed_versions": list(advisory.fixed_versions),
        "description": advisory.description,
        "url": advisory.url,
        "subject": advisory.subject,
        "location": _place(advisory.source),
        "suppressed": _suppression(advisory.suppressed),
        "fails": advisory.fails,
    }


def _audit(audit: Audit) -> dict[str, object]:
    return {
        "service": audit.service,
        "audited": audit.audited,
        "failure": audit.failure,
        "not_audited": [
            {
                "package": entry.package,
                "version": entry.version,
                "subject": entry.subject,
                "location": _place(entry.source),
                "reason": entry.reason,
            }
            for entry in audit.unaudited
        ],
        "notes": list(audit.notes),
    }


def _suppression(suppressed: Suppression | None) -> dict[str, object] | None:
    if suppressed is None:
        return None
    return {
        "reason": suppressed.reason,
        "expires": suppressed.expires,
        "until": suppressed.until,
        "owner": suppressed.owner,
        "source": None if suppressed.source is None else str(suppressed.source),
    }


def describe_fact(fact: Fact) -> dict[str, object]:
    """Describe a fact as plain data."""
    return {
        "name": fact.name,
        "value": _value(fact.value),
        "origin": fact.origin,
        "source": str(fact.sources[0]) if fact.sources else None,
        "note": fact.note,
        "alternatives": [{"value": _value(value), "source": str(source)} for value, source in fact.alternatives],
    }


def _value(value: Value) -> object:
    return list(value) if isinstance(value, tuple) else value


def _place(source: Source) -> dict[str, object]:
    return {"path": source.path, "line": source.line, "key": source.key}
