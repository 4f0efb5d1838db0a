"""`compatcheck estimate`: how much memory a run needs on each device, whether it fits, and what would make it fit."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from compatcheck.checking.asked import inspect
from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.laboratory import find_traceability, find_tracer
from compatcheck.cli.output import unread_lines, write_figures
from compatcheck.cli.progress import showing_progress
from compatcheck.core.errors import UsageError
from compatcheck.core.language import speaking, translate
from compatcheck.core.redaction import redact
from compatcheck.core.terminal import escape_controls
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.core.estimate_report import EstimateReport


@click.command("estimate", cls=Command)
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take("estimate", *options.INPUTS, "run", "language")
def command(
    *,
    suggest: bool,
    axes: str | None,
    trace: bool,
    plot: str | None,
    format_name: str,
    verbose: int,
    **given: Any,  # noqa: ANN401 (click's signature)
) -> int:
    """Predict what each device holds, phase by phase, from the configuration alone; nothing is run and no GPU is needed.

    With PATHs the files are read as `check` does, without them the installed environment, as `env` does. With --trace one
    training step runs on fake tensors, full size and without weights: exact, for one role without ZeRO; releases that the
    interpreter lacks are installed beside it. With --module the step is of the module that a function of yours returns.
    """
    from compatcheck.checking.estimates import EstimateOptions, estimate  # noqa: PLC0415 (beside its use)

    if format_name == "html":
        from compatcheck.reporters.html import check_page  # noqa: PLC0415 (only when asked)

        check_page()
    module = given.pop("module")
    inspection = inspect(given, files=bool(given["paths"] or given["run"]))
    rules = open_rules(() if inspection.policy is None else inspection.policy.rules)
    names = tuple(name.strip().replace("-", "_") for name in (axes or "").split(",") if name.strip())
    if axes is not None and not names:
        msg = f"--sweep {axes!r} names no setting"
        raise UsageError(msg, hint="for example --sweep micro_batch_size,sequence_length")
    tracer = find_tracer(given["python"], module) if trace or module else None
    wanted = EstimateOptions(given["model"], suggest, names, tracer, None if tracer else find_traceability())
    with showing_progress():
        found = estimate(inspection, rules, os.environ, wanted)
    with speaking(os.environ):
        for entry in found.failed:
            place = f"{entry.source}: " if entry.source is not None else ""
            said = translate(f"not estimated: {entry.subject}: {place}{entry.reason}")
            click.echo(escape_controls(redact(said)), err=True)
    if not found.reports and found.failed:
        msg = f"none of the {len(found.failed)} subjects can be estimated"
        raise UsageError(msg, hint="mend what is named above")
    with speaking(os.environ, format_name):
        click.echo(_format(found.reports, format_name, verbose), nl=False)
        for line in unread_lines(found.skipped):
            click.echo(line, err=True)
    if plot is not None:
        from compatcheck.reporters.estimate_figure import draw_estimates  # noqa: PLC0415 (only when asked)

        write_figures(plot, draw_estimates(found.reports), "no subject has an estimate")
    return found.exit_code


def _format(reports: Sequence[EstimateReport], name: str, verbose: int) -> str:
    if name == "html":
        from compatcheck.reporters.html import format_estimates  # noqa: PLC0415 (only when asked)

        return escape_controls(format_estimates(reports))
    from compatcheck.reporters import estimate as reporter  # noqa: PLC0415 (beside its use)

    if name == "json":
        return reporter.format_json(reports)
    format_one = reporter.format_markdown if name == "markdown" else partial(reporter.format_text, verbose=verbose)
    return escape_controls("\n".join(map(format_one, reports)))
