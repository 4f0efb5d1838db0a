"""The report as SARIF 2.1.0, for code scanning and for viewers of static analysis results.

A possible finding has the kind ``open`` (there was not enough information to decide) and, as SARIF demands of everything
but ``fail``, the level ``none``. Places inside the checkout are relative to ``%SRCROOT%``, so that the file says nothing
about the machine it was written on.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from compatcheck.core.advisory import audit_text, fix_text, fold_unaudited
from compatcheck.core.headline import open_lines
from compatcheck.core.report import severity_rank
from compatcheck.core.summary import closing_line, needs_text, size_text, summarise
from compatcheck.reporters.checkout import find_root, path_in_checkout
from compatcheck.reporters.fingerprint import fingerprint, fingerprint_advisory
from compatcheck.reporters.json import describe_database
from compatcheck.reporters.plain_data import pick

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.advisory import Advisory, Audit
    from compatcheck.core.report import Finding, FindingReference, FindingRemedy, Report
    from compatcheck.core.source import Skipped, Source
    from compatcheck.core.suppression import Suppression

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS: Mapping[str, str] = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note"}
PRECISIONS: Mapping[str, str] = {
    "measured": "very-high",
    "fixed-upstream": "high",
    "explained": "high",
    "reported": "medium",
}
"""How sure a rule is, in the words code hosts sort by."""

_PREFERRED_REFERENCES = ("FIX", "INTRODUCED", "REPORT")


def format_report(report: Report) -> str:
    """Format a report as SARIF text."""
    return json.dumps(describe_log(report, find_root(os.getcwd())), indent=2, ensure_ascii=False) + "\n"


def describe_log(report: Report, root: str) -> dict[str, Any]:
    """Describe a report as a SARIF log."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_rule.setdefault(finding.rule_id, []).append(finding)
    by_advisory: dict[str, list[Advisory]] = {}
    for advisory in () if report.audit is None else report.audit.advisories:
        by_advisory.setdefault(advisory.id, []).append(advisory)
    indices = {rule_id: index for index, rule_id in enumerate((*by_rule, *by_advisory))}
    summary = summarise(report)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "compatcheck",
                "semanticVersion": report.version,
                "rules": [
                    *(_rule(findings) for findings in by_rule.values()),
                    *(_advisory_rule(advisories[0]) for advisories in by_advisory.values()),
                ],
                "properties": {
                    "database": describe_database(report),
                },
            },
        },
        "columnKind": "utf16CodeUnits",
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "The root of the checkout."}}},
        "invocations": [_invocation(report, root)],
        "results": [
            *(_result(finding, indices[finding.rule_id], root) for finding in report.findings),
            *(
                _advisory_result(advisory, indices[advisory.id], root)
                for advisories in by_advisory.values()
                for advisory in advisories
            ),
        ],
        "properties": {
            "closing": closing_line(report),
            **pick(summary, "findings affected possible"),
            "suppressed": summary.waived,
            "failing": summary.failing,
            "notChecked": summary.not_checked,
            "advisories": summary.advisories,
            "notAudited": summary.not_audited,
            "audit": None if report.audit is None else audit_text(report.audit),
            "failOn": report.threshold,
            "strict": report.strict,
            "policy": report.policy,
            "seconds": round(report.seconds, 3),
            "subjects": [{"id": subject.id, "origin": subject.origin} for subject in report.subjects],
        },
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(findings: list[Finding]) -> dict[str, Any]:
    first = findings[0]._replace(title=findings[0].title.removesuffix(f" ({findings[0].role})"))  # of the rule alone
    worst = max(findings, key=lambda finding: severity_rank(finding.severity))
    rule: dict[str, Any] = {
        "id": first.rule_id,
        "shortDescription": {"text": first.title},
        "fullDescription": {"text": " ".join(first.message.split()) or first.title},
        "help": {"text": _help_text(first), "markdown": _help_markdown(first)},
        "defaultConfiguration": {"level": LEVELS[worst.severity]},
        "properties": {
            "tags": list(dict.fromkeys(("memory", first.kind, first.rule_id.partition("/")[0]))),
            "precision": PRECISIONS.get(first.confidence, "medium"),
            "confidence": first.confidence,
            "kind": first.kind,
        },
    }
    reference = best_reference(first.references)
    if reference is not None:
        rule["helpUri"] = reference.url
    return rule


def best_reference(references: tuple[FindingReference, ...]) -> FindingReference | None:
    """Return the reference that tells most: the fix, else where it came in, else the first."""
    for kind in _PREFERRED_REFERENCES:
        for reference in references:
            if reference.type == kind:
                return reference
    return references[0] if references else None


def _help_text(finding: Finding) -> str:
    parts = [" ".join(paragraph.split()) for paragraph in finding.message.split("\n\n")]
    parts += [f"Fix: {_remedy_text(remedy)}" for remedy in finding.remedies]
    parts += [f"See {reference.url}" for reference in finding.references]
    return "\n\n".join(part for part in parts if part) or finding.title


def _help_markdown(finding: Finding) -> str:
    lines = [f"## {finding.title}", "", finding.message.strip()]
    if finding.remedies:
        lines += ["", "## Remedy", ""]
        lines += [f"- {_remedy_text(remedy)}" for remedy in finding.remedies]
    if finding.folklore:
        lines += ["", "## Not true", ""]
        lines += [f"- {title}" for _, title in finding.folklore]
    if finding.references:
        lines += ["", "## References", ""]
        lines += [f"- {reference.type}: <{reference.url}>" for reference in finding.references]
    return "\n".join(lines) + "\n"


def _remedy_text(remedy: FindingRemedy) -> str:
    text = remedy.text + (f" ({remedy.note})" if remedy.note else "")
    return f"{text}: {remedy.command}" if remedy.command else text


def _result(finding: Finding, index: int, root: str) -> dict[str, Any]:
    certain = finding.status == "affected"
    result: dict[str, Any] = {
        "ruleId": finding.rule_id,
        "ruleIndex": index,
        "kind": "fail" if certain else "open",
        "level": "none" if not certain else "note" if finding.aside else LEVELS[finding.severity],
        "message": {"text": _message(finding)},
        "locations": _locations(finding, root),
        "partialFingerprints": {"compatcheckFinding/v1": fingerprint(finding)},
        "properties": _properties(finding),
    }
    if finding.suppressed is not None:
        result["suppressions"] = [_suppression(finding.suppressed)]
    return result


def _suppression(waiver: Suppression) -> dict[str, Any]:
    suppression: dict[str, Any] = {"kind": "external", "status": "accepted", "justification": waiver.reason}
    ends = {"expires": waiver.expires, "until": waiver.until, "owner": waiver.owner}
    if any(ends.values()):
        suppression["properties"] = {name: value for name, value in ends.items() if value is not None}
    return suppression


def _advisory_rule(advisory: Advisory) -> dict[str, Any]:
    text = advisory.description or advisory.id
    rule: dict[str, Any] = {
        "id": advisory.id,
        "shortDescription": {"text": text},
        "help": {"text": f"{text}\n\n{fix_text(advisory)}", "markdown": _advisory_markdown(advisory)},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["security"], "aliases": list(advisory.aliases)},
    }
    if advisory.url is not None:
        rule["helpUri"] = advisory.url
    return rule


def _advisory_markdown(advisory: Advisory) -> str:
    lines = [
        f"## {advisory.id}",
        "",
        advisory.description or advisory.id,
        "",
        f"{advisory.package}: {fix_text(advisory)}",
    ]
    if advisory.url is not None:
        lines += ["", f"<{advisory.url}>"]
    return "\n".join(lines) + "\n"


def _advisory_result(advisory: Advisory, index: int, root: str) -> dict[str, Any]:
    physical = physical_location(advisory.source, root)
    place: dict[str, Any] = (
        {"logicalLocations": [{"fullyQualifiedName": advisory.subject, "kind": "environment"}]}
        if physical is None
        else {"physicalLocation": physical}
    )
    result: dict[str, Any] = {
        "ruleId": advisory.id,
        "ruleIndex": index,
        "kind": "fail",
        "level": "error",
        "message": {
            "text": f"{advisory.package} {advisory.version}: {advisory.description or advisory.id} ({fix_text(advisory)})."
        },
        "locations": [place],
        "partialFingerprints": {"compatcheckAdvisory/v1": fingerprint_advisory(advisory)},
        "properties": {
            **pick(advisory, "subject package version"),
            "fixedVersions": list(advisory.fixed_versions),
            "aliases": list(advisory.aliases),
            "fails": advisory.fails,
        },
    }
    if advisory.suppressed is not None:
        result["suppressions"] = [_suppression(advisory.suppressed)]
    return result


def _message(finding: Finding) -> str:
    size = size_text(finding.impact)
    parts = [f"{finding.title}{f' ({size})' if size else ''}."]
    if finding.status == "possible":
        parts.append(f"Possible; decided by {needs_text(finding.needs)}." if finding.needs else "Possible.")
    parts += [f"Fix: {_remedy_text(remedy)}." for remedy in finding.remedies[:1]]
    return " ".join(parts)


def _properties(finding: Finding) -> dict[str, Any]:
    impact = finding.impact
    return {
        **pick(finding, "subject role status severity confidence fails needs assumptions"),
        "impact": None
        if impact is None
        else {
            "lowBytes": impact.low_bytes,
            "expectedBytes": impact.expected_bytes,
            "highBytes": impact.high_bytes,
            **pick(impact, "effect memory scope phase"),
        },
    }


def _locations(finding: Finding, root: str) -> list[dict[str, Any]]:
    """Return the files the decision rests on; the subject by its name when it rests on none."""
    files: dict[str, dict[str, Any]] = {}
    for source in finding.locations:
        physical = physical_location(source, root)
        if physical is not None:
            files.setdefault(json.dumps(physical), {"physicalLocation": physical})
    if files:
        return list(files.values())
    return [{"logicalLocations": [{"fullyQualifiedName": finding.subject, "kind": "environment"}]}]


def physical_location(source: Source, root: str) -> dict[str, Any] | None:
    """Return the place of a source in a file, or None when it is a spoken one."""
    relative = path_in_checkout(source.path, root)
    if relative is not None:
        artifact = {"uri": quote(os.fsencode(relative)), "uriBaseId": "%SRCROOT%"}
    elif os.path.exists(source.path):
        artifact = {"uri": Path(os.path.abspath(source.path)).as_uri()}
    else:
        return None
    location: dict[str, Any] = {"artifactLocation": artifact}
    if source.line is not None:
        location["region"] = {"startLine": source.line}
    return location


def _invocation(report: Report, root: str) -> dict[str, Any]:
    invocation: dict[str, Any] = {
        "executionSuccessful": report.exit_code in {0, 1},
        "exitCode": report.exit_code,
        "toolExecutionNotifications": [
            *(_notification(entry, root) for entry in report.skipped),
            *(
                {"descriptor": {"id": "open"}, "level": "warning", "message": {"text": line}}
                for line in open_lines(report, inputs=False)
            ),
            *(_unaudited_notifications(report.audit) if report.audit is not None else ()),
        ],
    }
    if report.waiver_notes:
        invocation["toolConfigurationNotifications"] = [
            {"descriptor": {"id": "waiver"}, "level": "warning", "message": {"text": note}}
            for note in report.waiver_notes
        ]
    return invocation


def _unaudited_notifications(audit: Audit) -> Iterator[dict[str, Any]]:
    """Yield one notification per reason, so that what was not audited does not read as clean."""
    for reason, names in fold_unaudited(audit.unaudited):
        yield {
            "descriptor": {"id": "not-audited"},
            "level": "warning" if audit.failure is None else "error",
            "message": {"text": f"not audited: {reason}: {', '.join(names)}"},
        }


def _notification(entry: Skipped, root: str) -> dict[str, Any]:
    notification: dict[str, Any] = {
        "descriptor": {"id": "not-checked"},
        "level": "error" if entry.named else "warning",
        "message": {"text": f"not checked: {entry}"},
    }
    physical = physical_location(entry.source, root)
    if physical is not None:
        notification["locations"] = [{"physicalLocation": physical}]
    return notification
