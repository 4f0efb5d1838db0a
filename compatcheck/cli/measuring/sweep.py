"""`compatcheck sweep`: probes over many releases, and where their numbers change."""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.measuring.progress import Progress, announce
from compatcheck.cli.output import write_figures
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, UsageError
from compatcheck.lab.drafts import write_drafts
from compatcheck.lab.evidence.files import write_measurements
from compatcheck.lab.parameters import parse_parameters, share_parameters
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.releases import choose_releases
from compatcheck.lab.reporters import sweep as reporter
from compatcheck.lab.reporters.measurement import wrap_text
from compatcheck.lab.settings import Settings, open_laboratory
from compatcheck.lab.sweep import collect_series, find_changes, find_varying, group_changes, vary
from compatcheck.rules.locate import open_rules


@click.command("sweep", cls=Command)
@options.argument("names", "PROBE...", "probe", nargs=-1, required=True)
@options.take("sweep", "text json markdown", *options.LABORATORY, "jobs")
def command(
    names: tuple[str, ...],
    package: str,
    specifier: str | None,
    every_metric: bool,
    dry_run: bool,
    drafts: str | None,
    export: str | None,
    plot: str | None,
    format_name: str,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Measure every combination of probes and parameters in every release, and say where numbers change.

    One process per release runs all combinations that can share one. Results are kept as they come; an interrupted sweep goes
    on where it was.
    """
    if export is not None and not export.endswith((".json", ".jsonl")):
        msg = f"--export {export} ends neither in .json nor in .jsonl"
        raise UsageError(msg, hint="as --export sweep.jsonl")
    settings = Settings(**given)
    probes = [find_probe(name) for name in names]
    tasks = []
    for probe, own in share_parameters(probes, parse_parameters(settings.parameters)):
        tasks += [make_task(probe, one, settings.backend) for one in vary(own)]
    rules = open_rules()
    releases = choose_releases(rules, package, specifier)
    if dry_run:
        counts = f"releases of {package}: {len(releases)}, measurements of each: {len(tasks)}"
        click.echo("\n".join([counts, *wrap_text(", ".join(releases), "  ")]))
        return EXIT_CLEAN
    progress = Progress(len(releases) * len(tasks), quiet=settings.quiet, varying=find_varying(tasks))
    announce("sweep", settings.environment, quiet=settings.quiet)
    laboratory = open_laboratory(settings, package, releases, rules, progress=progress)
    results = dict(laboratory.measure_all(releases, tasks))
    progress.close()
    if export is not None:
        write_measurements(export, [one for measured in results.values() for one in measured if one.device != "none"])
    series = collect_series(tasks, results, every_metric=every_metric)
    groups = group_changes(find_changes(series))
    if plot is not None:
        write_figures(plot, reporter.draw_series(package, groups), "no number changed")
    if drafts is not None:
        written = write_drafts(drafts, package, groups, results)
        for path in written or ["no draft was written: no number grew"]:
            click.echo(path, err=True)
    formats = {"text": reporter.format_text, "json": reporter.format_json, "markdown": reporter.format_markdown}
    click.echo(formats[format_name](package, series, groups, results), nl=False)
    if not series:
        return EXIT_NOTHING_TO_CHECK
    return EXIT_FINDINGS if groups else EXIT_CLEAN
