"""`compatcheck bisect`: which release broke it, and which one mended it."""

from __future__ import annotations

import json
from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.measuring.progress import Progress, announce
from compatcheck.cli.output import write_figures
from compatcheck.core.errors import EXIT_CLEAN
from compatcheck.lab import history
from compatcheck.lab.parameters import parse_one_set
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.releases import choose_releases
from compatcheck.lab.reporters import bisection
from compatcheck.lab.reporters.measurement import wrap_text
from compatcheck.lab.settings import Settings, open_laboratory
from compatcheck.rules.locate import open_rules


@click.command("bisect", cls=Command)
@options.argument("name", "PROBE", "probe")
@options.take("bisect", "text json markdown", *options.LABORATORY, "jobs")
def command(
    name: str,
    package: str,
    good: str | None,
    bad: str | None,
    specifier: str | None,
    depth: str,
    dry_run: bool,
    report: str | None,
    plot: str | None,
    format_name: str,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Find every release of a package in which a probe's verdict changes.

    The verdict is the probe's own: what it measures against what it derives for a healthy release. Results are kept as they
    come; an interrupted search goes on where it was.
    """
    settings = Settings(**given)
    probe = find_probe(name)
    history.check_package(probe, package)
    task = make_task(probe, parse_one_set(settings.parameters), settings.backend)
    rules = open_rules()
    releases = choose_releases(rules, package, specifier, good, bad)
    if dry_run:
        firsts = history.list_first(releases)
        text = f"releases of {package}: {len(releases)}; tested first: {', '.join(firsts)}"
        click.echo("\n".join(wrap_text(text, "", "  ")))
        return EXIT_CLEAN
    progress = Progress(None, quiet=settings.quiet)
    announce("bisect", settings.environment, quiet=settings.quiet)
    laboratory = open_laboratory(settings, package, releases, rules, progress=progress)
    found = history.find_history(task, laboratory, history.SearchedReleases(releases, good, bad), depth=depth)
    progress.close()
    if report is not None:
        with open(report, "w", encoding="utf-8") as file:
            file.write(history.report_upstream(found, task))
    if plot is not None:
        write_figures(plot, bisection.draw_history(found.bisection), "no release could be tested")
    if format_name == "markdown":
        click.echo(history.report_upstream(found, task), nl=False)
        return found.exit_code
    if format_name == "text":
        click.echo(bisection.format_text(found.bisection), nl=False)
    else:
        click.echo(json.dumps(bisection.to_json(found.bisection), indent=2))
    return found.exit_code
