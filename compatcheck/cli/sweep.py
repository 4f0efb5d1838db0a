"""`compatcheck sweep`: probes over many releases, and where their numbers change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options, probing
from compatcheck.cli.bisect import choose_releases
from compatcheck.cli.progress import Progress, find_varying
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, UsageError

if TYPE_CHECKING:
    from compatcheck.core.measurement import Measurement


@click.command(
    "sweep", cls=options.GroupedCommand, short_help="Measure probes over many releases and find what changed."
)
@click.argument("names", nargs=-1, required=True, metavar="PROBE...")
@click.option("--package", required=True, metavar="PACKAGE", help="Package whose releases are measured.")
@click.option("--versions", "specifier", metavar="SPEC", help="Only releases in this range: '>=4.30'.")
@click.option("--every-metric", is_flag=True, help="Compare every phase and result, not each probe's headline alone.")
@click.option("--dry-run", is_flag=True, help="Say what would be measured, and build nothing.")
@click.option(
    "--drafts",
    type=click.Path(file_okay=False),
    help="Write a draft rule and its evidence for each change, into this directory.",
)
@click.option("--export", type=click.Path(dir_okay=False), help="Write all measurements to this file (JSON lines).")
@probing.laboratory_options
@probing.jobs_option
@click.option(
    "--format", "format_name", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True
)
def command(
    names: tuple[str, ...],
    package: str,
    specifier: str | None,
    every_metric: bool,
    dry_run: bool,
    drafts: str | None,
    export: str | None,
    format_name: str,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Measure every combination of probes and parameters in every release, and say where numbers change.

    One process per release runs all combinations that can share one. Results are kept as they come; an interrupted sweep goes
    on where it was.

    Exit code 1: a number changed. 0: none did. 3: nothing could be measured.
    """
    from compatcheck.lab.probes.probe import find_probe  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.probes.runner import make_task  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.reporters import sweep as reporter  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.sweep import collect_series, find_changes, group_changes, vary  # noqa: PLC0415 (beside its use)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (beside its use)

    if export is not None and not export.endswith((".json", ".jsonl")):
        msg = f"--export {export} ends neither in .json nor in .jsonl"
        raise UsageError(msg, hint="as --export sweep.jsonl")
    settings = probing.Settings(**given)
    probes = [find_probe(name) for name in names]
    tasks = []
    for probe, own in probing.share_parameters(probes, probing.parse_parameters(settings.parameters)):
        tasks += [make_task(probe, one, settings.backend) for one in vary(own)]
    rules = open_rules()
    releases = choose_releases(rules, package, specifier)
    if dry_run:
        from compatcheck.lab.reporters.measurement import wrap_text  # noqa: PLC0415 (beside its use)

        counts = f"releases of {package}: {len(releases)}, measurements of each: {len(tasks)}"
        click.echo("\n".join([counts, *wrap_text(", ".join(releases), "  ")]))
        return EXIT_CLEAN
    progress = Progress(len(releases) * len(tasks), quiet=settings.quiet, varying=find_varying(tasks))
    laboratory = probing.open_laboratory(settings, package, releases, rules, progress=progress)
    results: dict[str, list[Measurement]] = dict(laboratory.measure_all(releases, tasks))
    progress.close()
    if export is not None:
        from compatcheck.lab.evidence.files import write_measurements  # noqa: PLC0415 (beside its use)

        write_measurements(export, [one for measured in results.values() for one in measured if one.device != "none"])
    series = collect_series(tasks, results, every_metric=every_metric)
    groups = group_changes(find_changes(series))
    if drafts is not None:
        from compatcheck.lab.drafts import write_drafts  # noqa: PLC0415 (beside its use)

        written = write_drafts(drafts, package, groups, results)
        for path in written or ["no draft was written: no number grew"]:
            click.echo(path, err=True)
    formats = {"text": reporter.format_text, "json": reporter.format_json, "markdown": reporter.format_markdown}
    click.echo(formats[format_name](package, series, groups, results), nl=False)
    if not series:
        return EXIT_NOTHING_TO_CHECK
    return EXIT_FINDINGS if groups else EXIT_CLEAN
