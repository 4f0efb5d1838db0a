"""`compatcheck probe`: what can be measured, and measuring it here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from compatcheck.cli import options, probing
from compatcheck.cli.progress import Progress, find_varying
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, UsageError

if TYPE_CHECKING:
    from compatcheck.core.measurement import Measurement
    from compatcheck.lab.probes.probe import Probe
    from compatcheck.lab.probes.runner import Task

_WILDCARDS = "*?["


@click.group("probe", short_help="Measure a memory claim in an environment.")
def command() -> None:
    """Measure a memory claim in an environment, on a GPU or without one."""


@command.command("list", cls=options.GroupedCommand)
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_command(format_name: str) -> int:
    """List the probes: what each measures, on which back ends, and when it was last run there.

    By the evidence of this checkout and the measurements of your own store; a probe nobody ran on a back end says `never run`.
    """
    import os  # noqa: PLC0415 (beside its use)

    from compatcheck.lab.evidence.last_measured import describe_last, last_measured  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.evidence.location import store_path  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.probes.probe import find_probe, probe_names  # noqa: PLC0415 (beside its use)

    exported, store = probing.exported_evidence(), store_path(os.environ)
    probes = [
        (probe, last_measured(probe.name, exported=exported, store=store)) for probe in map(find_probe, probe_names())
    ]
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

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
    from compatcheck.lab.reporters.probe import format_entry  # noqa: PLC0415 (one format)

    for probe, last in probes:
        click.echo(format_entry(probe.name, describe_last(probe.module.BACKENDS, last), probe.title), nl=False)
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
    from compatcheck.lab.probes.probe import find_probe  # noqa: PLC0415 (beside its use)

    probe = find_probe(name)
    if script:
        from compatcheck.lab.probes.runner import make_task  # noqa: PLC0415 (beside its use)
        from compatcheck.lab.probes.script import make_script  # noqa: PLC0415 (beside its use)

        click.echo(make_script(make_task(probe, probing.parse_one_set(parameters), backend)), nl=False)
    else:
        _show(probe)
    return EXIT_CLEAN


def _show(probe: Probe) -> None:
    """Print the page of a probe."""
    from compatcheck.core.measurement import show_parameter  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.probes.backends import BACKENDS  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.reporters.measurement import show_quantity, wrap_text  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.reporters.probe import Parameter, format_documentation, format_parameters  # noqa: PLC0415

    module = probe.module
    lines = [f"{probe.name} ({probe.hash})", "", format_documentation(probe.documentation)]
    lines += wrap_text(f"needs: {', '.join(dict.fromkeys(('torch', *module.PACKAGES)))}", "", "  ")
    lines.append(f"back ends: {', '.join(module.BACKENDS)}")
    for back_end in (BACKENDS[name] for name in module.BACKENDS):
        lines += wrap_text(f"{back_end.name}: counts {back_end.measures};", "  ", "    ")
        lines += wrap_text(f"cannot say: {back_end.cannot}", "    ")
    click.echo("\n".join(lines))
    shown = [
        Parameter(name, show_parameter(value), tuple(map(show_parameter, probe.choices.get(name, ()))))
        for name, value in module.DEFAULTS.items()
    ]
    click.echo(format_parameters(shown), nl=False)
    for metric, value in module.predict(module.DEFAULTS).items():
        mark = " (decides the verdict)" if metric == module.METRIC else ""
        text = f"predicted with these: {metric} = {show_quantity(metric, value)}{mark}"
        click.echo("\n".join(wrap_text(text, "", "  ")))


@command.command("run", cls=options.GroupedCommand)
@click.argument("names", nargs=-1, metavar="[PROBE...]")
@click.option(
    "--all", "everything", is_flag=True, help="Every probe that has the back end, at all its sizes; names narrow it."
)
@probing.environment_options
@probing.measuring_options
@click.option(
    "--output", metavar="FILE.jsonl", help="Add each measurement to this file, for `compatcheck evidence import`."
)
@click.option(
    "--snapshots",
    type=click.Path(file_okay=False),
    help="On CUDA, write a snapshot of the allocator and its history for each measurement into this directory.",
)
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True)
def run_command(
    names: tuple[str, ...],
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

    Exit code 0: every probe is good. 1: one is bad. 3: none is bad, but one has no result.
    """
    from compatcheck.core.measurement import to_json  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.environments.installer import UnbuildableError  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.evidence.files import append_measurement  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.measuring import unbuildable  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.probes.runner import Limits, run_tasks  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.reporters.measurement import format_measurement  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.reporters.predictions import Judged, format_predictions  # noqa: PLC0415 (beside its use)

    if output is not None and not output.endswith(".jsonl"):
        msg = f"--output {output} does not end in .jsonl"
        raise UsageError(msg, hint="measurements are added to it line by line")
    tasks = _choose_all(names, backend, parameters) if everything else _choose(names, backend, parameters)
    overlays = probing.EnvironmentChoice(python, torch, beside, installer).overlays()
    store = probing.open_store(wanted=not no_store)
    progress = Progress(len(tasks), quiet=not everything, varying=find_varying(tasks))
    judged: list[Judged] = []

    def keep(task: Task, measurement: Measurement) -> None:
        if store is not None:
            store.add(measurement)
        if output is not None:
            append_measurement(output, measurement)
        module = task.probe.module
        verdict, _, _ = task.probe.judge(measurement)
        changed = {name: value for name, value in task.parameters.items() if module.DEFAULTS[name] != value}
        judged.append(Judged(measurement, changed, module.predict(task.parameters), module.METRIC, verdict))
        progress(measurement.versions.get("torch", ""), measurement)
        if format_name == "text" and not everything:
            predictions = judged[-1].predictions
            click.echo(format_measurement(measurement, predictions=predictions, metric=module.METRIC, verdict=verdict))

    try:
        try:
            interpreter = overlays.open(beside)
        except UnbuildableError as error:
            for task in tasks:
                keep(task, unbuildable(task, _pinned(beside), f"could not be installed: {error}"))
        else:
            limits = Limits(timeout_seconds=timeout_seconds, snapshots=snapshots)
            run_tasks(tasks, interpreter, keep=keep, limits=limits)
    finally:
        progress.close()
        # What an interrupt leaves is worth showing.
        if format_name == "text" and everything and judged:
            judged.sort(key=lambda one: one.measurement.probe)
            click.echo(format_predictions(judged), nl=False)
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

        rows = [{**to_json(one.measurement), "verdict": one.verdict} for one in judged]
        click.echo(json.dumps(rows, indent=2))
    verdicts = {one.verdict for one in judged}
    if "bad" in verdicts:
        return EXIT_FINDINGS
    return EXIT_NOTHING_TO_CHECK if "skipped" in verdicts else EXIT_CLEAN


def _pinned(requirements: tuple[str, ...]) -> dict[str, str]:
    """Return the releases that are asked for exactly: distribution → version."""
    return {name: version for name, equals, version in (text.partition("==") for text in requirements) if equals}


def _choose(names: tuple[str, ...], backend: str | None, parameters: tuple[str, ...]) -> list[Task]:
    """Return the tasks of named probes, with every combination of the parameters.

    Raises:
        UsageError: no name, an unknown one, or one that cannot be run so.
    """
    from compatcheck.lab.probes.runner import make_task  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.sweep import vary  # noqa: PLC0415 (beside its use)

    if not names:
        msg = "no probe is named"
        raise UsageError(msg, hint="name one of `compatcheck probe list`, or run --all")
    probes = _find(names)
    if any(sign in name for name in names for sign in _WILDCARDS):
        probes = _on(backend, probes)
    shared = probing.share_parameters(probes, probing.parse_parameters(parameters))
    return [make_task(probe, one, backend) for probe, own in shared for one in vary(own)]


def _choose_all(names: tuple[str, ...], backend: str | None, parameters: tuple[str, ...]) -> list[Task]:
    """Return the tasks of every probe that has a back end, at all its sizes.

    Raises:
        UsageError: no back end, parameters, or names that leave nothing.
    """
    from compatcheck.lab.probes.runner import make_task  # noqa: PLC0415 (beside its use)

    if backend is None or parameters:
        msg = (
            "--all needs --backend"
            if backend is None
            else "--all takes no --param: every probe is run at its own sizes"
        )
        raise UsageError(msg, hint="as `compatcheck probe run --all --backend cuda --output cuda.jsonl`")
    probes = _on(backend, _find(names or ("*",)))
    return [make_task(probe, size, backend) for probe in probes for size in probe.module.SIZES or ({},)]


def _on(backend: str | None, probes: list[Probe]) -> list[Probe]:
    """Return the probes that have a back end; all where none is asked for.

    Raises:
        UsageError: there is none.
    """
    found = [probe for probe in probes if backend is None or backend in probe.module.BACKENDS]
    if not found:
        msg = f"none of these probes runs on {backend}"
        raise UsageError(msg, hint="`compatcheck probe list` says where each runs")
    return found


def _find(names: tuple[str, ...]) -> list[Probe]:
    """Return probes by name or pattern, each once.

    Raises:
        UsageError: there is none.
    """
    from fnmatch import fnmatchcase  # noqa: PLC0415 (beside its use)

    from compatcheck.lab.probes.probe import find_probe, probe_names  # noqa: PLC0415 (beside its use)

    found: dict[str, Probe] = {}
    for name in names:
        matching = [known for known in probe_names() if fnmatchcase(known, name.replace("-", "_"))]
        if not matching and any(sign in name for sign in _WILDCARDS):
            msg = f"no probe matches {name!r}"
            raise UsageError(msg, hint="`compatcheck probe list` has them all")
        found.update((known, find_probe(known)) for known in matching or [name])
    return list(found.values())
