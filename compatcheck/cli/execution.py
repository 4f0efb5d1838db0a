"""Execute a check: run it, and write its report."""

from __future__ import annotations

import os
import time

from compatcheck.checking.report import check, describe_nothing
from compatcheck.cli.laboratory import annotate
from compatcheck.cli.output import Output, format_report, parse_outputs, write_formatted
from compatcheck.cli.progress import showing_progress
from compatcheck.core.errors import NothingToCheckError
from compatcheck.rules.locate import open_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.checking.checks import Checks
    from compatcheck.checking.inspection import Inspection
    from compatcheck.core.report import Report


def execute(inspection: Inspection, checks: Checks, output: Output) -> int:
    """Run a check, write its reports and return the exit code.

    Raises:
        CompatcheckError: nothing could be checked at all, or a format needs a package that is not there.
    """
    started = time.perf_counter()
    targets = parse_outputs(output.outputs)
    if any(name == "html" for name in (output.format_name, *(name for name, _ in targets))):
        from compatcheck.reporters.html import check_page  # noqa: PLC0415 (before anything is read)

        check_page()
    rules = open_rules(checks.rule_directories)

    def write(report: Report, *, to_person: bool = True) -> None:
        timed = report._replace(seconds=time.perf_counter() - started)
        write_formatted(
            lambda name, color: format_report(name, timed, output, color=color), output, targets, to_person=to_person
        )

    try:
        with showing_progress():
            report = check(inspection, rules, os.environ, checks, annotate=annotate)
    except NothingToCheckError as error:
        write(describe_nothing(error, rules, checks), to_person=False)
        raise
    write(report)
    return report.exit_code
