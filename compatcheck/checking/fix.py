"""Clear the findings of a run: check it, find the changes, and check what they make of its files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.checking.report import build_report, describes_run, mark_failing
from compatcheck.checking.runs import gather_all
from compatcheck.core.files import Overlay
from compatcheck.core.fix import Fix, Plan
from compatcheck.fixing.evaluation import target_of, targets_of
from compatcheck.fixing.plan import find_plans
from compatcheck.matching.engine import match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.checking.checks import Checks
    from compatcheck.checking.request import Gathered
    from compatcheck.checking.runs import Plan as Inputs
    from compatcheck.checking.waivers import Waivers
    from compatcheck.core.fail_on import Threshold
    from compatcheck.core.report import Finding, Report
    from compatcheck.fixing.plan import Ways
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


class Judging(NamedTuple):
    """What makes a finding count."""

    rules: RuleSet
    checks: Checks
    threshold: Threshold
    waivers: Waivers | None

    def report(self, gathered: Gathered) -> Report:
        """Check subjects."""
        return build_report(gathered, self.rules, self.checks, self.threshold, self.waivers)

    def judge(self, subject: Subject) -> Sequence[Finding]:
        """Return the findings of one subject as a report has them, without lines and measurements."""
        found = match(subject, self.rules, self.checks.selects).findings
        found = found if self.waivers is None else tuple(self.waivers.apply(found, subject))
        if describes_run(subject):
            from compatcheck.checking.fit import rate_by_fit  # noqa: PLC0415 (only where a run is described)

            found, _ = rate_by_fit(found, subject)
        return [mark_failing(one, (subject,), self.threshold, strict=self.checks.strict) for one in found]


def find_fix(inputs: Inputs, judging: Judging, ways: Ways, *, unsafe: bool) -> Fix:
    """Find the changes that clear what fails.

    Args:
        inputs: what is read.
        judging: which findings count.
        ways: how releases are looked up and checked.
        unsafe: whether unsafe changes are made too.

    Raises:
        CompatcheckError: nothing could be read at all.
    """
    gathered = gather_all(inputs, judging.rules, os.environ)
    report = judging.report(gathered)
    failing = [finding for finding in report.findings if finding.fails]
    if not failing:
        return Fix(report, (), applied=False, exit_code=report.exit_code)
    plans, evaluations = find_plans(gathered.subjects, failing, judging.rules, judging.judge, ways, unsafe=unsafe)
    plans = _prove(plans, inputs, gathered, report, judging)
    asked = 0 if ways.resolver is None else ways.resolver.asked
    return Fix(report, tuple(plans), applied=False, exit_code=0, evaluations=evaluations, resolutions=asked)


def _prove(plans: list[Plan], inputs: Inputs, gathered: Gathered, report: Report, judging: Judging) -> list[Plan]:
    """Read everything again as if the files were written: what the new texts do not clear was not cleared."""
    texts = {file.path: file.after.encode("utf-8") for plan in plans for file in plan.files}
    if not texts:
        return plans
    files = Overlay(gathered.files, texts)
    inputs = inputs._replace(requests=tuple(request._replace(files=files) for request in inputs.requests))
    after = judging.report(gather_all(inputs, judging.rules, os.environ))
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
