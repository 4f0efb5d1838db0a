"""`compatcheck sweep`: probes over many releases, and where their numbers change."""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.measuring.axis import open_axis
from compatcheck.cli.measuring.progress import Progress, announce
from compatcheck.cli.output import write_figures, write_files
from compatcheck.cli.place import open_place
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, UsageError
from compatcheck.lab.drafts import write_drafts
from compatcheck.lab.evidence.files import write_measurements
from compatcheck.lab.probe_choice import choose_tasks
from compatcheck.lab.reporters import sweep as reporter
from compatcheck.lab.reporters.measurement import wrap_text
from compatcheck.lab.reporters.page import format_page
from compatcheck.lab.settings import Settings, open_laboratory
from compatcheck.lab.sweep import (
    attribute_changes,
    collect_series,
    find_changes,
    find_varying,
    group_changes,
    list_held,
)


@click.command("sweep", cls=Command)
@options.argument("names", "[PROBE...]", "probe", nargs=-1)
@options.take("sweep", "axis", "own probe", "text json markdown", *options.LABORATORY, "jobs", "cluster")
def command(
    names: tuple[str, ...],
    probe_files: tuple[str, ...],
    package: str,
    specifier: str | None,
    commits: str | None,
    source: str | None,
    every_metric: bool,
    dry_run: bool,
    drafts: str | None,
    export: str | None,
    plot: str | None,
    html: str | None,
    format_name: str,
    ray_address: str | None,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Measure every combination of probes and parameters in every release or commit, and say where numbers change.

    A change is the package's own when it is there with all other packages held; what else moved is said. One process per release
    runs all combinations that can share one. Results are kept as they come; an interrupted sweep goes on where it was.
    """
    if export is not None and not export.endswith((".json", ".jsonl")):
        msg = f"--export {export} ends neither in .json nor in .jsonl"
        raise UsageError(msg, hint="as --export sweep.jsonl")
    settings = Settings(**given)
    tasks = choose_tasks((*names, *probe_files), settings.backend, settings.parameters)
    axis = open_axis(package, specifier, commits, source, ask=not dry_run, quiet=settings.quiet)
    releases = axis.names
    if dry_run:
        counts = f"{axis.kind} of {package}: {len(releases)}, measurements of each: {len(tasks)}"
        click.echo("\n".join([counts, *wrap_text(", ".join(releases), "  ")]))
        return EXIT_CLEAN
    progress = Progress(len(releases) * len(tasks), quiet=settings.quiet, varying=find_varying(tasks))
    announce("sweep", settings.environment, quiet=settings.quiet)
    with open_place(ray_address) as place:
        laboratory = open_laboratory(settings, package, axis, progress=progress, place=place)
        results = dict(laboratory.measure_all(dict.fromkeys(releases, tasks)))
        series = collect_series(tasks, results, every_metric=every_metric)
        changes = attribute_changes(find_changes(series), tasks, laboratory)
    progress.close()
    if export is not None:
        measured = [one for found in results.values() for one in found]
        write_measurements(export, [one for one in (*measured, *list_held(changes)) if one.device != "none"])
    groups = group_changes(changes)
    if plot is not None:
        write_figures(plot, reporter.draw_series(package, groups), "no number changed")
    if html is not None:
        page = format_page({package: (len(series), reporter.draw_series(package, groups))})
        write_files([(f"--html {html}", html, page)])
    if drafts is not None:
        written = write_drafts(drafts, package, changes, results, axis.known)
        nothing = f"no change is {package}'s own and lasts" if changes else "no number grew"
        for path in written or [f"no draft was written: {nothing}"]:
            click.echo(path, err=True)
    formats = {"text": reporter.format_text, "json": reporter.format_json, "markdown": reporter.format_markdown}
    click.echo(formats[format_name](package, series, groups, results), nl=False)
    if not series:
        return EXIT_NOTHING_TO_CHECK
    return EXIT_FINDINGS if groups else EXIT_CLEAN
