"""`compatcheck bisect`: which release broke it, and which one mended it."""

from __future__ import annotations

import json
from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.measuring.axis import open_axis
from compatcheck.cli.measuring.progress import Progress, announce
from compatcheck.cli.output import write_figures
from compatcheck.cli.place import open_place
from compatcheck.core.errors import EXIT_CLEAN
from compatcheck.lab import history
from compatcheck.lab.parameters import parse_one_set
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.reporters import bisection
from compatcheck.lab.reporters.measurement import wrap_text
from compatcheck.lab.settings import Settings, open_laboratory


@click.command("bisect", cls=Command)
@options.argument("name", "PROBE", "probe")
@options.take("bisect", "axis", "text json markdown", *options.LABORATORY, "jobs", "cluster")
def command(
    name: str,
    package: str,
    good: str | None,
    bad: str | None,
    threshold: float | None,
    specifier: str | None,
    commits: str | None,
    source: str | None,
    depth: str,
    dry_run: bool,
    report: str | None,
    plot: str | None,
    format_name: str,
    ray_address: str | None,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Find every release or commit of a package in which a probe's verdict changes.

    PROBE is a name or a FILE.py. The verdict is the probe's own, what it measures against what it derives for a healthy release,
    unless --threshold or both ends say otherwise. A change is the package's own when it is there with all other packages held.
    Results are kept as they come; an interrupted search goes on where it was.
    """
    settings = Settings(**given)
    probe = find_probe(name)
    history.check_package(probe, package)
    task = make_task(probe, parse_one_set(settings.parameters), settings.backend)
    axis = open_axis(package, specifier, commits, source, ends=(good, bad), ask=not dry_run, quiet=settings.quiet)
    releases = axis.names
    if dry_run:
        firsts = history.list_first(releases)
        text = f"{axis.kind} of {package}: {len(releases)}; tested first: {', '.join(firsts)}"
        click.echo("\n".join(wrap_text(text, "", "  ")))
        return EXIT_CLEAN
    progress = Progress(None, quiet=settings.quiet)
    announce("bisect", settings.environment, quiet=settings.quiet)
    with open_place(ray_address) as place:
        laboratory = open_laboratory(settings, package, axis, progress=progress, place=place)
        wanted = history.Wanted(axis.find(good), axis.find(bad), threshold)
        found = history.find_history(task, laboratory, releases, wanted, depth=depth)
    progress.close()
    if report is not None:
        if found.is_own:
            with open(report, "w", encoding="utf-8") as file:
                file.write(history.report_upstream(found, task, laboratory))
        else:
            click.echo(f"no report was written: no change is {package}'s own", err=True)
    if plot is not None:
        write_figures(plot, bisection.draw_history(found.bisection), "no release could be tested")
    if format_name == "markdown":
        click.echo(history.report_upstream(found, task, laboratory), nl=False)
        return found.exit_code
    if format_name == "text":
        click.echo(bisection.format_text(found.bisection), nl=False)
    else:
        click.echo(json.dumps(bisection.to_json(found.bisection), indent=2))
    return found.exit_code
