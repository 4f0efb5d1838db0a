"""`compatcheck watch`: what came out since the last look, measured against the release before."""

from __future__ import annotations

import os
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.measuring.progress import Progress, announce
from compatcheck.cli.output import write_files, write_notice
from compatcheck.core.errors import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    EXIT_NOTHING_TO_CHECK,
    CompatcheckError,
    UsageError,
)
from compatcheck.lab.enumeration import enumerate_runs
from compatcheck.lab.environments.installer import UnbuildableError
from compatcheck.lab.parameters import parse_parameters
from compatcheck.lab.releases import choose_releases
from compatcheck.lab.reporters.page import format_page
from compatcheck.lab.reporters.sweep import draw_series
from compatcheck.lab.reporters.watch import describe_change
from compatcheck.lab.settings import Settings, open_laboratory
from compatcheck.lab.sweep import find_changes, find_varying, group_changes
from compatcheck.lab.watch import PACKAGES, State, choose_pairs, choose_tasks, look, read_series, write_look
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.runner import Task
    from compatcheck.lab.watch import Look


@click.command("watch", cls=Command)
@options.argument("names", "[PROBE...]", "probe", nargs=-1)
@options.take("watch", "interpreter", "releases", "measurement", "again", "progress")
def command(
    names: tuple[str, ...],
    packages: tuple[str, ...],
    state: str,
    output: str,
    since: str | None,
    until: str | None,
    every_option: bool,
    pre: bool,
    dry_run: bool,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Ask the package index what is new, measure each new release against the one before, and write up what grew.

    Every probe that uses a package is run, whole runs in few combinations that cover each pair of settings. What grows is
    measured again with all other packages held. A draft rule and a page for the maintainers are written for what is the
    package's own; what could not be told is printed alone. Where nothing could be measured in the release before, the newest
    of the three before it that can be measured takes its place. With `--every-option` the configuration classes of both
    releases are asked for their fields besides, and an option that is new is named.
    """
    for option, day in (("--since", since), ("--until", until)):
        _check_day(option, day)
    settings = Settings(**given)
    backend = settings.backend or "cpu"
    axes = parse_parameters(settings.parameters)
    looked = State(state)
    rules = open_rules()
    overlays = None
    if not dry_run:
        announce("watch", settings.environment, quiet=settings.quiet)
        overlays = settings.environment.overlays()
    measured, grown, new, asked, unknown = 0, 0, 0, 0, 0
    for package in packages or PACKAGES:
        tasks, beside = choose_tasks(names, package, backend, axes)
        if not tasks:
            if not settings.quiet:
                write_notice(f"{package}: no probe that uses it runs on {backend}")
            continue
        try:
            axis = choose_releases(rules, package, ">=0.dev0" if pre else None, ask=True)
        except CompatcheckError as error:
            unknown += 1
            write_notice(f"{package}: {error}")
            continue
        asked += axis.note is None
        if axis.note is not None:
            unknown += 1
            write_notice(f"{package}: {axis.note}")
        pairs = [
            pair
            for pair in choose_pairs(axis, looked.looked.get(package), since, looked.again(package))
            if until is None or axis.dates.get(pair[1], "") <= until
        ]
        new += len(pairs)
        if dry_run:
            told = ", ".join(pair[1] for pair in pairs) or "nothing new"
            click.echo(f"{package}: {told}; {len(tasks)} measurements of each")
            continue
        chosen = settings._replace(beside=(*settings.beside, *beside))
        for pair in pairs:
            progress = Progress(3 * len(tasks), quiet=settings.quiet, varying=find_varying(tasks))
            laboratory = open_laboratory(chosen, package, axis, progress=progress, overlays=overlays)
            wanted = [*tasks, *(_enumerate(laboratory, pair, backend) if every_option else ())]
            found = look(laboratory, pair, wanted, axis.names[: axis.names.index(pair[0])])
            progress.close()
            measured += found.measured
            grown += bool(found.grown or found.doubtful)
            for change in (*found.grown, *found.doubtful, *found.dropped):
                defaults = next(one.probe.module.DEFAULTS for one in wanted if one.probe.name == change.series.probe)
                click.echo(f"{package} {found.before} -> {found.after}: {describe_change(change, defaults)}")
            for path in write_look(found, output, wanted, laboratory):
                click.echo(f"wrote {path}", err=True)
            looked.keep(package, pair[1], axis, installed=found.installed)
            _say_what_is_missing(found, len(wanted), tried_again=pair[1] in looked.again(package))
            _write_page(output, names)
    if grown:
        return EXIT_FINDINGS
    lacking = new or (unknown and not asked)
    return EXIT_NOTHING_TO_CHECK if lacking and not measured and not dry_run else EXIT_CLEAN


def _enumerate(laboratory: Laboratory, pair: tuple[str, str], backend: str) -> tuple[Task, ...]:
    """Return the runs of every option that both releases have, and say which only the newer one has."""
    try:
        listed = enumerate_runs(laboratory, *pair, backend)
    except UnbuildableError as error:
        write_notice(f"{laboratory.package}: its options are not known; {error}")
        return ()
    releases = f"{laboratory.package} {pair[0]} -> {pair[1]}"
    if listed.new:
        write_notice(f"{releases}: not compared, for the older release has none: {', '.join(listed.new)}")
    if listed.failed:
        write_notice(
            f"{releases}: {len(listed.failed)} values of options cannot be run here; {listed.failed[0].reason}"
        )
    return listed.tasks


def _say_what_is_missing(found: Look, runs: int, *, tried_again: bool) -> None:
    """Say what could not be compared, and why."""
    releases = f"{found.package} {found.before} -> {found.after}"
    if not found.measured:
        again = "; the next look tries it again" if tried_again else ""
        write_notice(f"{releases}: nothing was compared; {found.reason}{again}")
    elif found.lost:
        count = f"{len(found.lost)} of {runs} runs end there and did not before"
        write_notice(f"{releases}: {count}; {found.lost[0].reason}")


def _write_page(output: str, names: tuple[str, ...]) -> None:
    """Renew the page of memory across releases with all that was looked at."""
    sections = {
        package: (len(series), draw_series(package, group_changes(find_changes(series))))
        for package, series in read_series(output, names).items()
    }
    page = os.path.join(output, "memory.html")
    write_files([(page, page, format_page(sections))])


def _check_day(option: str, day: str | None) -> None:
    """Refuse what is no date.

    Raises:
        UsageError: it is none.
    """
    try:
        date.fromisoformat(day or "2025-01-01")
    except ValueError:
        msg = f"{option} {day!r} is no date"
        raise UsageError(msg, hint="as 2025-05-19") from None
