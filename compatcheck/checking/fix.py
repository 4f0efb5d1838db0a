"""Clear the findings of a run: check it, find the changes, and check what they make of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.checking.gathering import gather_all
from compatcheck.checking.report import build_report
from compatcheck.checking.verdict import Variants
from compatcheck.core.errors import UsageError
from compatcheck.core.files import Overlay
from compatcheck.core.fix import SETTING, Fix, Plan
from compatcheck.core.report import severity_rank
from compatcheck.fixing.evaluation import resolve_changed, target_of, targets_of
from compatcheck.fixing.plan import find_plans
from compatcheck.fixing.remedies import agree_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.checking.checks import Criteria
    from compatcheck.checking.inspection import Inspection
    from compatcheck.core.report import Report
    from compatcheck.fixing.plan import Ways


def find_fix(inspection: Inspection, criteria: Criteria, environ: Mapping[str, str], ways: Ways) -> Fix:
    """Find the changes that clear what fails.

    Raises:
        CompatcheckError: nothing could be read at all.
    """
    gathered = gather_all(inspection, criteria.rules, environ)
    variants = Variants(criteria)
    report = build_report(gathered, criteria, variants=variants)
    failing = [finding for finding in report.findings if finding.fails]
    fails = bool(failing)
    failing = failing or [
        finding
        for finding in report.findings
        if (finding.advice or (finding.rating is not None and finding.suppressed is None))
        and not finding.aside
        and severity_rank(finding.severity) >= severity_rank("medium")
    ]
    if not failing:
        return Fix(report, (), applied=False)
    plans, evaluations = find_plans(gathered.subjects, failing, criteria.rules, variants.of_all_rules(), ways)
    texts = {file.path: file.after.encode("utf-8") for plan in plans for file in plan.files}
    read = report
    if texts:
        files = Overlay(gathered.files, texts)
        requests = tuple(request._replace(files=files) for request in inspection.requests)
        written = gather_all(inspection._replace(requests=requests), criteria.rules, environ)
        read = build_report(written, criteria)
        by_hand = [one for plan in plans for one in plan.changes if one.kind == SETTING and not one.edits]
        subjects = tuple(
            resolve_changed(subject, [one for one in by_hand if subject.id in one.subjects], criteria.rules)
            for subject in written.subjects
        )
        done = build_report(written._replace(subjects=subjects), criteria) if by_hand else read
        plans = _prove(plans, report, done)
    still = targets_of(one for one in read.findings if one.fails or not fails)
    plans = [one._replace(waiting=tuple(f for f in one.cleared if target_of(f) in still)) for one in plans]
    for plan in plans if fails else ():
        report = report._replace(findings=agree_with(plan, report.findings))
    asked = 0 if ways.resolver is None else ways.resolver.asked
    return Fix(report, tuple(plans), applied=False, evaluations=evaluations, resolutions=asked)


def require_safe(fix: Fix) -> None:
    """Refuse to write changes that can alter results.

    Raises:
        UsageError: a plan holds such changes.
    """
    unsafe = [change for plan in fix.plans for change in plan.changes if not change.safe]
    if unsafe:
        names = ", ".join(dict.fromkeys(f"{change.words or change.name} ({change.effect})" for change in unsafe))
        raise UsageError(
            f"the plan can alter results: {names}", hint="look at it, then add --unsafe; nothing was written"
        )


def _prove(plans: list[Plan], report: Report, after: Report) -> list[Plan]:
    """Hold plans against what was read as if all was done as they say: what the new texts do not clear was not cleared."""
    failing = targets_of(finding for finding in after.findings if finding.fails)
    new = failing - targets_of(finding for finding in report.findings if finding.fails)
    proved = []
    for plan in plans:
        if any(change.command for change in plan.changes):
            proved.append(plan)  # a part of it stands in no file yet
            continue
        back = [finding for finding in plan.cleared if target_of(finding) in failing]
        kept = tuple(finding for finding in plan.cleared if finding not in back)
        left = tuple((finding, "the changed files were read again, and it is still there") for finding in back)
        entered = dict.fromkeys(target.rule for target in sorted(new) if target.subject in plan.subjects)
        notes = (f"the changed files bring in {', '.join(entered)}",) if entered else ()
        proved.append(plan._replace(cleared=kept, remaining=(*plan.remaining, *left), notes=(*plan.notes, *notes)))
    return proved
