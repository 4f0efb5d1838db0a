"""`compatcheck probe`: what can be measured, and measuring it here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from compatcheck.cli import options, probing
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK

if TYPE_CHECKING:
    from compatcheck.core.measurement import Measurement
    from compatcheck.probes.runner import Task


@click.group("probe", short_help="Measure a memory claim in an environment.")
def command() -> None:
    """Measure a memory claim in an environment, on a GPU or without one."""


@command.command("list", cls=options.GroupedCommand)
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_command(format_name: str) -> int:
    """List the probes: what each measures, and on which back ends."""
    from compatcheck.probes.probe import find_probe, probe_names  # noqa: PLC0415 (beside its use)

    probes = [find_probe(name) for name in probe_names()]
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

        rows = [
            {
                "name": probe.name,
                "title": probe.title,
                "packages": list(probe.module.PACKAGES),
                "backends": list(probe.module.BACKENDS),
                "metric": probe.module.METRIC,
            }
            for probe in probes
        ]
        click.echo(json.dumps(rows, indent=2))
        return EXIT_CLEAN
    for probe in probes:
        click.echo(f"{probe.name}  [{', '.join(probe.module.BACKENDS)}]\n  {probe.title}")
    click.echo(f"{len(probes)} probes", err=True)
    return EXIT_CLEAN


@command.command("show", cls=options.GroupedCommand)
@click.argument("name", metavar="PROBE")
@click.option("--script", is_flag=True, help="Print one file that measures the same without compatcheck.")
@click.option(
    "--param", "parameters", metavar="NAME=VALUE", multiple=True, help="Parameter for the script; repeatable."
)
@click.option("--backend", type=click.Choice(["fake", "cpu", "cuda"]), help="Back end of the script.")
def show_command(name: str, script: bool, parameters: tuple[str, ...], backend: str | None) -> int:
    """Show what a probe measures, why its prediction is what it is, and its parameters."""
    from compatcheck.probes.probe import find_probe  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters.measurement import show_quantity  # noqa: PLC0415 (beside its use)

    probe = find_probe(name)
    if script:
        from compatcheck.probes.runner import make_task  # noqa: PLC0415 (beside its use)
        from compatcheck.probes.script import make_script  # noqa: PLC0415 (beside its use)
        from compatcheck.probes.sweep import vary  # noqa: PLC0415 (beside its use)

        click.echo(make_script(make_task(probe, vary(probing.parse_parameters(parameters))[0], backend)), nl=False)
        return EXIT_CLEAN
    module = probe.module
    click.echo(f"{probe.name} ({probe.hash})\n\n{probe.documentation}\n")
    click.echo(f"needs: {', '.join(('torch', *module.PACKAGES))}\nback ends: {', '.join(module.BACKENDS)}")
    from compatcheck.probes.backends import BACKENDS  # noqa: PLC0415 (beside its use)

    for backend_name in module.BACKENDS:
        back_end = BACKENDS[backend_name]
        click.echo(f"  {back_end.name}: counts {back_end.measures};\n    cannot say: {back_end.cannot}")
    click.echo("parameters: " + ", ".join(f"{key}={value}" for key, value in module.DEFAULTS.items()))
    for metric, value in module.predict(module.DEFAULTS).items():
        mark = " (decides the verdict)" if metric == module.METRIC else ""
        click.echo(f"predicted with these: {metric} = {show_quantity(metric, value)}{mark}")
    return EXIT_CLEAN


@command.command("run", cls=options.GroupedCommand)
@click.argument("names", nargs=-1, required=True, metavar="PROBE...")
@probing.environment_options
@probing.measuring_options
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True)
def run_command(
    names: tuple[str, ...],
    python: str | None,
    torch: str | None,
    beside: tuple[str, ...],
    installer: str | None,
    backend: str | None,
    parameters: tuple[str, ...],
    timeout_seconds: float,
    fresh: bool,
    no_store: bool,
    format_name: str,
) -> int:
    """Run probes in one environment and compare what they measure with what is predicted.

    Exit code 0: every probe is good. 1: one is bad. 3: none is bad, but one has no result.
    """
    from compatcheck.core.measurement import to_json  # noqa: PLC0415 (beside its use)
    from compatcheck.probes.probe import find_probe  # noqa: PLC0415 (beside its use)
    from compatcheck.probes.runner import make_task, run_tasks  # noqa: PLC0415 (beside its use)
    from compatcheck.probes.sweep import vary  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters.measurement import format_measurement  # noqa: PLC0415 (beside its use)

    varied = vary(probing.parse_parameters(parameters))
    tasks = [make_task(find_probe(name), one, backend) for name in names for one in varied]
    overlays = probing.EnvironmentChoice(python, torch, beside, installer).overlays()
    store = probing.open_store(wanted=not no_store)
    del fresh  # a single run is always made
    verdicts: list[str] = []
    rows: list[dict[str, object]] = []

    def keep(task: Task, measurement: Measurement) -> None:
        if store is not None:
            store.add(measurement)
        verdict, _, _ = task.probe.judge(measurement)
        verdicts.append(verdict)
        if format_name == "json":
            rows.append({**to_json(measurement), "verdict": verdict})
            return
        predictions = task.probe.module.predict(task.parameters)
        metric = task.probe.module.METRIC
        click.echo(format_measurement(measurement, predictions=predictions, metric=metric, verdict=verdict))

    run_tasks(tasks, overlays.open(beside), keep=keep, timeout_seconds=timeout_seconds)
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

        click.echo(json.dumps(rows, indent=2))
    if "bad" in verdicts:
        return EXIT_FINDINGS
    return EXIT_NOTHING_TO_CHECK if "skipped" in verdicts else EXIT_CLEAN
