"""Execute an estimate: price the runs, and write what they need."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from compatcheck.checking.asked import inspect
from compatcheck.checking.estimates import EstimateOptions, estimate
from compatcheck.cli.laboratory import find_traceability, find_tracer
from compatcheck.cli.output import unread_lines, write_figures
from compatcheck.cli.progress import showing_progress
from compatcheck.core.errors import UsageError
from compatcheck.core.language import speaking, translate
from compatcheck.core.terminal import make_harmless
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.core.estimate_report import EstimateReport


def execute_estimate(  # noqa: PLR0913 (the options of the command)
    *,
    suggest: bool = False,
    axes: str | None = None,
    trace: bool = False,
    module: str | None = None,
    plot: str | None = None,
    format_name: str = "text",
    verbose: int = 0,
    **given: Any,  # noqa: ANN401 (what is read, by parameter)
) -> int:
    """Estimate what the parameters name, write it and return the exit code; the parameters are those of the command.

    Raises:
        CompatcheckError: nothing could be estimated, or a parameter makes no sense.
    """
    if format_name == "html":
        from compatcheck.reporters.html import check_page  # noqa: PLC0415 (only when asked)

        check_page()
    inspection = inspect(given, files=bool(given.get("paths") or given.get("run")))
    rules = open_rules(() if inspection.policy is None else inspection.policy.rules)
    names = tuple(name.strip().replace("-", "_") for name in (axes or "").split(",") if name.strip())
    if axes is not None and not names:
        msg = f"--sweep {axes!r} names no setting"
        raise UsageError(msg, hint="for example --sweep micro_batch_size,sequence_length")
    tracer = find_tracer(given.get("python"), module) if trace or module else None
    wanted = EstimateOptions(given.get("model"), suggest, names, tracer, None if tracer else find_traceability())
    with showing_progress():
        found = estimate(inspection, rules, os.environ, wanted)
    with speaking(os.environ):
        for entry in found.failed:
            place = f"{entry.source}: " if entry.source is not None else ""
            said = translate(f"not estimated: {entry.subject}: {place}{entry.reason}")
            sys.stderr.write(f"{make_harmless(said)}\n")
    if not found.reports and found.failed:
        msg = f"none of the {len(found.failed)} subjects can be estimated"
        raise UsageError(msg, hint="mend what is named above")
    with speaking(os.environ, format_name):
        sys.stdout.write(_format(found.reports, format_name, verbose))
        sys.stdout.flush()
        sys.stderr.writelines(f"{line}\n" for line in unread_lines(found.skipped))
    if plot is not None:
        from compatcheck.reporters.estimate_figure import draw_estimates  # noqa: PLC0415 (only when asked)

        write_figures(plot, draw_estimates(found.reports), "no subject has an estimate")
    return found.exit_code


def _format(reports: Sequence[EstimateReport], name: str, verbose: int) -> str:
    if name == "html":
        from compatcheck.reporters.html import format_estimates  # noqa: PLC0415 (only when asked)

        return make_harmless(format_estimates(reports))
    from compatcheck.reporters import estimate as reporter  # noqa: PLC0415 (beside its use)

    if name == "json":
        return reporter.format_json(reports)
    format_one = reporter.format_markdown if name == "markdown" else partial(reporter.format_text, verbose=verbose)
    return make_harmless("\n".join(map(format_one, reports)))
