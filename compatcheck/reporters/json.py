"""The report as JSON: the contract other programs build on (``report.schema.json``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compatcheck.core.headline import open_lines
from compatcheck.core.summary import summarise
from compatcheck.reporters.fingerprint import fingerprint
from compatcheck.reporters.plain_data import describe_value, pick

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.core.advisory import Advisory, Audit
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Fact
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
        "fleet": None,
        "summary": {
            **pick(summary, "findings affected possible folded"),
            "suppressed": summary.waived,
            **pick(summary, "failing not_checked advisories not_audited"),
            "fail_on": report.threshold,
            "strict": report.strict,
            "open": open_lines(report),
            "exit_code": report.exit_code,
            "waivers": list(report.waiver_notes),
            "stood_before": report.stood_before,
            "policy": report.policy,
            "seconds": round(report.seconds, 3),
        },
    }


def describe_origin(report: Report) -> dict[str, object]:
    """Describe what a document was written by, and by which rules."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "compatcheck", "version": report.version},
        "database": describe_database(report),
    }


def describe_database(report: Report) -> dict[str, object]:
    """Describe which rules were checked."""
    return {"id": report.database_id, "date": report.database_date, "rules": report.database_rules}


def describe_skipped(skipped: Iterable[Skipped]) -> list[dict[str, object]]:
    """Describe what was not read."""
    return [
        {"source": str(entry.source), "reason": entry.reason, "hint": entry.hint, "named": entry.named}
        for entry in skipped
    ]


def _plans(report: Report) -> list[dict[str, object]]:
    if not report.plans:
        return []
    from compatcheck.reporters.plan import describe_change, describe_outcomes  # noqa: PLC0415 (only where something fails)

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
        **pick(subject, "id origin aside"),
        "environment": {
            "python": subject.python,
            "complete": subject.complete,
            "packages": [
                {"name": name, "version": version, "source": source, "optional": name in subject.optional}
                for name, version, source in subject.packages
            ],
            "notes": list(subject.notes),
        },
        "facts": [{**describe_fact(fact), "role": role} for role, fact in subject.facts],
        "not_read": [{**_place(source), "reason": why} for source, why in subject.gaps],
        "unread_keys": [{**_place(source), "nearest": near} for source, near in subject.unread_keys],
        "conflicts": [
            {
                "fact": name,
                "values": [{"value": describe_value(value), "source": str(source)} for value, source in values],
            }
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
    return {
        **pick(finding, "rule_id subject role kind title status severity rating confidence message"),
        "impact": None if finding.impact is None else pick(finding.impact, _OF_AN_IMPACT),
        **pick(finding, "needs assumptions"),
        "facts": [describe_fact(fact) for fact in finding.facts],
        "locations": [_place(source) for source in finding.locations],
        "remedies": [
            {
                **pick(remedy, "text command safety note"),
                "releases": dict(remedy.releases),
                "settings": {name: describe_value(value) for name, value in remedy.settings},
            }
            for remedy in finding.remedies
        ],
        "references": [reference._asdict() for reference in finding.references],
        "folklore": [{"rule_id": rule_id, "title": title} for rule_id, title in finding.folklore],
        "measured": None
        if finding.measured is None
        else {**finding.measured._asdict(), "points": [list(point) for point in finding.measured.points]},
        "measured_here": None if finding.measured_here is None else dict(finding.measured_here),
        "suppressed": _suppression(finding.suppressed),
        **pick(finding, "fails advice folded"),
        "fingerprint": fingerprint(finding),
    }


_OF_AN_IMPACT = "low_bytes expected_bytes high_bytes effect memory scope phase needs formula"


def _advisory(advisory: Advisory) -> dict[str, object]:
    return {
        **pick(advisory, "id aliases package version fixed_versions description url subject"),
        "location": _place(advisory.source),
        "suppressed": _suppression(advisory.suppressed),
        "fails": advisory.fails,
    }


def _audit(audit: Audit) -> dict[str, object]:
    return {
        **pick(audit, "service audited failure"),
        "not_audited": [
            {**pick(entry, "package version subject"), "location": _place(entry.source), "reason": entry.reason}
            for entry in audit.unaudited
        ],
        "notes": list(audit.notes),
    }


def _suppression(suppressed: Suppression | None) -> dict[str, object] | None:
    if suppressed is None:
        return None
    source = None if suppressed.source is None else str(suppressed.source)
    return {**pick(suppressed, "reason expires until owner"), "source": source}


def describe_fact(fact: Fact) -> dict[str, object]:
    """Describe a fact as plain data."""
    return {
        **pick(fact, "name value origin"),
        "source": str(fact.sources[0]) if fact.sources else None,
        "note": fact.note,
        "alternatives": [
            {"value": describe_value(value), "source": str(source)} for value, source in fact.alternatives
        ],
    }


def _place(source: Source) -> dict[str, object]:
    return pick(source, "path line key")
