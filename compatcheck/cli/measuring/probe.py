"""`compatcheck probe`: what can be measured, and measuring it here."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from compatcheck.cli import options
from compatcheck.cli.help import Group
from compatcheck.cli.measuring.progress import Progress, announce
from compatcheck.core.errors import EXIT_CLEAN, UsageError
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.evidence import last_measured
from compatcheck.lab.evidence.files import append_measurement
from compatcheck.lab.location import store_path
from compatcheck.lab.measurement import to_json
from compatcheck.lab.parameters import parse_one_set
from compatcheck.lab.probe_choice import choose_every_task, choose_tasks
from compatcheck.lab.probe_runs import exit_code_of, judge, run_probes
from compatcheck.lab.probes.probe import find_probe, offered_probes, probe_names
from compatcheck.lab.probes.runner import Limits, make_task
from compatcheck.lab.probes.script import make_script
from compatcheck.lab.reporters.measurement import format_measurement
from compatcheck.lab.reporters.predictions import format_predictions
from compatcheck.lab.reporters.probe import format_entry, format_page
from compatcheck.lab.settings import open_store
from compatcheck.lab.sweep import find_varying

if TYPE_CHECKING:
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.probes.runner import Task
    from compatcheck.lab.reporters.predictions import Judged


@click.group("probe", cls=Group)
def command() -> None:
    """Measure a memory claim in an environment, on a GPU or without one."""


@command.command("list")
@options.take("text json")
def list_command(format_name: str) -> int:
    """List the probes: what each measures, on which back ends, and when it was last run there.

    By the evidence of this checkout and the measurements of your own store; a probe nobody ran on a back end says `never run`.
    """
    exported, store = last_measured.exported_evidence(), store_path(os.environ)
    probes = [
        (probe, last_measured.last_measured(probe.name, exported=exported, store=store))
        for probe in map(find_probe, (*probe_names(), *offered_probes()))
    ]
    if format_name == "json":
        rows = [
            {
                "name": probe.name,
                "title": probe.title,
                "packages": list(probe.module.PACKAGES),
                "backends": list(probe.module.BACKENDS),
                "metric": probe.module.METRIC,
                "last_measured": {backend: last.get(backend) for backend in probe.module.BACKENDS},
            }
            for probe, last in probes
        ]
        click.echo(json.dumps(rows, indent=2))
        return EXIT_CLEAN
    for probe, last in probes:
        click.echo(
            format_entry(probe.name, last_measured.describe_last(probe.module.BACKENDS, last), probe.title), nl=False
        )
    click.echo(f"{len(probes)} probes", err=True)
    return EXIT_CLEAN


@command.command("show")
@options.argument("name", "PROBE", "probe")
@options.take("probe show")
def show_command(name: str, script: bool, parameters: tuple[str, ...], backend: str | None) -> int:
    """Show what a probe measures, why its prediction is what it is, and its parameters."""
    probe = find_probe(name)
    if script:
        click.echo(make_script(make_task(probe, parse_one_set(parameters), backend)), nl=False)
    else:
        click.echo(format_page(probe), nl=False)
    return EXIT_CLEAN


@command.command("run")
@options.argument("names", "[PROBE...]", "probe", nargs=-1)
@options.take("probe run", "own probe", "text json", "interpreter", "measurement")
def run_command(
    names: tuple[str, ...],
    probe_files: tuple[str, ...],
    everything: bool,
    python: str | None,
    torch: str | None,
    beside: tuple[str, ...],
    installer: str | None,
    backend: str | None,
    parameters: tuple[str, ...],
    timeout_seconds: float,
    no_store: bool,
    output: str | None,
    snapshots: str | None,
    format_name: str,
) -> int:
    """Run probes in one environment and compare what they measure with what is predicted.

    A name may hold `*` and `?`. On a machine with a GPU, `compatcheck probe run --all --backend cuda --output cuda.jsonl`
    measures all that can be measured there and prints predictions beside measurements in one table.
    """
    if output is not None and not output.endswith(".jsonl"):
        msg = f"--output {output} does not end in .jsonl"
        raise UsageError(msg, hint="measurements are added to it line by line")
    names = (*names, *probe_files)
    tasks = choose_every_task(names, backend, parameters) if everything else choose_tasks(names, backend, parameters)
    choice = EnvironmentChoice(python, torch, beside, installer)
    announce("probe", choice, installs=False)
    overlays = choice.overlays()
    store = open_store(wanted=not no_store)
    progress = Progress(len(tasks), quiet=not everything, varying=find_varying(tasks))
    judged: list[Judged] = []

    def keep(task: Task, measurement: Measurement) -> None:
        if store is not None:
            store.add(measurement)
        if output is not None:
            append_measurement(output, measurement)
        one = judge(task, measurement)
        judged.append(one)
        progress(measurement.versions.get("torch", ""), measurement)
        if format_name == "text" and not everything:
            text = format_measurement(measurement, predictions=one.predictions, metric=one.metric, verdict=one.verdict)
            click.echo(text)

    try:
        limits = Limits(timeout_seconds=timeout_seconds, snapshots=snapshots)
        run_probes(tasks, overlays, beside, keep=keep, limits=limits)
    finally:
        progress.close()
        # What an interrupt leaves is worth showing.
        if format_name == "text" and everything and judged:
            judged.sort(key=lambda one: one.measurement.probe)
            click.echo(format_predictions(judged), nl=False)
    if format_name == "json":
        rows = [{**to_json(one.measurement), "verdict": one.verdict} for one in judged]
        click.echo(json.dumps(rows, indent=2))
    return exit_code_of(judged)
