"""`compatcheck estimate`: how much memory a run needs on each device, whether it fits, and what would make it fit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from compatcheck.checking.report import place_skipped
from compatcheck.checking.runs import gather_all, make_plan
from compatcheck.cli import options
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT, UsageError
from compatcheck.core.terminal import escape_controls
from compatcheck.frameworks.lines import LineFinder
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Facts
    from compatcheck.core.source import Source
    from compatcheck.reporters.estimate import EstimateReport
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

ESTIMATE = "Estimate"
FORMATS = ("text", "markdown", "json")


estimate_options = options.apply_options(
    [
        options.grouped_option(
            ESTIMATE,
            "--suggest",
            is_flag=True,
            help="Rank changes that would need less; find the smallest hardware that fits.",
        ),
        options.grouped_option(
            ESTIMATE,
            "--sweep",
            "axes",
            metavar="NAME[,NAME]",
            help="Find the largest value that fits: micro_batch_size, sequence_length, …",
        ),
        options.grouped_option(
            ESTIMATE,
            "--trace",
            is_flag=True,
            help="Run the model's own class on fake tensors, in an interpreter with torch and the releases at hand.",
        ),
        options.grouped_option(
            ESTIMATE, "--plot", metavar="FILE", help="Draw it: .png, .svg or .pdf (needs matplotlib)."
        ),
    ]
)


class Asked(NamedTuple):
    """What the person wants to know beside the estimate."""

    model: str | None
    suggest: bool
    axes: tuple[str, ...]
    trace: bool
    python: str | None
    lines: LineFinder


@click.command("estimate", cls=options.GroupedCommand, short_help="Estimate the memory of a run.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@options.environment_options
@options.image_options
@options.input_options
@estimate_options
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("-v", "--verbose", count=True, help="Show the arithmetic; -vv its sources too.")
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

    With PATHs the files are read as `check` does, without them the installed environment, as `env` does. Exits with 1 when the
    run does not fit. With --trace one training step runs on fake tensors, full size and without weights: exact, for one role
    without ZeRO; releases that the interpreter lacks are installed beside it.
    """
    from compatcheck.reporters import estimate as reporter  # noqa: PLC0415 (beside its use)

    if plot is not None:
        from compatcheck.reporters.plot import check_plot  # noqa: PLC0415 (only when asked)

        check_plot(plot)
    plan = make_plan(given, files=bool(given["paths"] or given["run"]))
    rules = open_rules(() if plan.policy is None else plan.policy.rules)
    gathered = gather_all(plan, rules, os.environ)
    lines = LineFinder(gathered.files)
    names = tuple(name.strip().replace("-", "_") for name in (axes or "").split(",") if name.strip())
    if axes is not None and not names:
        msg = f"--sweep {axes!r} names no setting"
        raise UsageError(msg, hint="for example --sweep micro_batch_size,sequence_length")
    asked = Asked(given["model"], suggest, names, trace, given["python"], lines)
    reports, failed = _report_all(gathered.subjects, rules, asked)
    if format_name == "json":
        click.echo(reporter.format_json(reports), nl=False)
    else:
        write = {"text": reporter.format_text, "markdown": reporter.format_markdown}[format_name]
        click.echo(escape_controls("\n".join(write(report, verbose=verbose) for report in reports)), nl=False)
    skipped = place_skipped(
        (*gathered.skipped, *(entry for subject in gathered.subjects for entry in subject.skipped)), lines
    )
    for entry in skipped:
        text = f"not read: {entry.source}: {entry.reason}" + (f" ({entry.hint})" if entry.hint else "")
        click.echo(escape_controls(text), err=True)
    if plot is not None:
        _plot(reports, plot)
    return _code(reports, unread=bool(failed) or any(entry.named for entry in skipped))


def _report_all(subjects: Sequence[Subject], rules: RuleSet, asked: Asked) -> tuple[list[EstimateReport], int]:
    """Estimate every subject; one that makes no sense is said and does not lose the others.

    Returns:
        The estimates, and how many subjects have none because of an error.

    Raises:
        UsageError: there is but one subject, and it makes no sense.
    """
    reports, failed = [], 0
    for subject in subjects:
        try:
            report = _report(subject, rules, asked)
        except UsageError as error:
            source = error.source or _place(error.message, subject)
            if len(subjects) == 1:
                raise UsageError(error.message, source=source, hint=error.hint) from error
            place = f"{source}: " if source is not None else ""
            click.echo(escape_controls(f"not estimated: {subject.id}: {place}{error.message}"), err=True)
            failed += 1
            continue
        if len(subjects) > 1:
            report.id = subject.id
        reports.append(report)
    if failed and not reports:
        msg = f"none of the {failed} subjects can be estimated"
        raise UsageError(msg, hint="mend what is named above")
    return reports, failed


def _place(message: str, subject: Subject) -> Source | None:
    """Return where the fact that an error begins with was stated."""
    name = message.partition(" ")[0]
    found = (facts[name] for facts in subject.roles.values() if name in facts)
    return next((fact.sources[0] for fact in found if fact.sources), None)


def _report(subject: Subject, rules: RuleSet, asked: Asked) -> EstimateReport:
    from compatcheck.checking.fit import price as price_subject  # noqa: PLC0415 (beside its use)
    from compatcheck.matching.engine import match  # noqa: PLC0415 (beside its use)
    from compatcheck.memory.job import describe_job, estimate_job  # noqa: PLC0415 (beside its use)
    from compatcheck.memory.regressions import lay_over  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters.estimate import EstimateReport, Inputs, is_about_memory  # noqa: PLC0415 (beside its use)

    def price(roles: Mapping[str, Facts]) -> Estimate:
        return estimate_job(roles, subject.environment)

    found = price_subject(subject)
    report = EstimateReport(describe_job(subject.roles, asked.model) or subject.id, found)
    report.inputs = Inputs(
        subject.unresolved,
        tuple((conflict.fact, conflict.values) for conflict in subject.conflicts if _matters(conflict.fact)),
        tuple(asked.lines.with_line(source) for source, _ in subject.unread if is_about_memory(source.key or "")),
    )
    if not found.phases:
        return report
    if asked.trace:
        _trace(report, subject, rules, asked.python)
    report.regressed = lay_over(report.estimate, match(subject, rules).findings)
    if asked.suggest:
        from compatcheck.memory.smallest_hardware import place  # noqa: PLC0415 (only when asked)
        from compatcheck.memory.suggest import suggest as rank  # noqa: PLC0415 (only when asked)

        report.suggestions, report.placements = rank(subject.roles, price), place(subject.roles, price, rules)
    if asked.axes:
        from compatcheck.memory.largest_settings import find_wall  # noqa: PLC0415 (only when asked)

        report.walls = tuple(find_wall(name, subject.roles, price) for name in asked.axes)
    return report


def _matters(fact: str) -> bool:
    """Tell whether a conflict is about a number of the estimate."""
    return fact.startswith(("model.", "training.", "rollout.", "hardware."))


def _trace(report: EstimateReport, subject: Subject, rules: RuleSet, python: str | None) -> None:
    """Put a traced estimate in the place of the other, or say why there is none."""
    from compatcheck.lab.traced.request import Untraceable  # noqa: PLC0415 (only when asked)
    from compatcheck.lab.tracing import describe_peak, trace_subject  # noqa: PLC0415 (only when asked)

    found = trace_subject(subject, rules, python)
    if isinstance(found, Untraceable):
        report.details = (f"not traced: {found.reason}",)
        return
    report.estimate, report.timeline = found.estimate, found.timeline
    releases = ", ".join(f"{name} {found.versions[name]}" for name in sorted(found.versions) if name != "python")
    report.details = (*describe_peak(found), f"traced with {releases}")


def _plot(reports: list[EstimateReport], path: str) -> None:
    from compatcheck.reporters.plot import write_plot  # noqa: PLC0415 (only when asked)

    drawn = [report for report in reports if report.estimate.phases]
    if not drawn:
        return
    if len(drawn) > 1:
        msg = f"--plot draws one subject, and there are {len(drawn)}"
        raise UsageError(msg, hint="name the files of one run")
    write_plot(drawn[0], path, drawn[0].timeline)
    click.echo(f"wrote {path}", err=True)


def _code(reports: list[EstimateReport], *, unread: bool) -> int:
    outcomes = [report.estimate.verdict.outcome for report in reports]
    outcomes += [report.regressed.outcome for report in reports if report.regressed is not None]
    if "does_not_fit" in outcomes:
        return EXIT_FINDINGS
    if unread:
        return EXIT_UNREADABLE_INPUT
    return EXIT_CLEAN if any(report.estimate.phases for report in reports) else EXIT_NOTHING_TO_CHECK
