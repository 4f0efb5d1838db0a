"""`compatcheck confirm`: measure whether a rule holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options, probing
from compatcheck.cli.explain import find_rule
from compatcheck.cli.progress import Progress
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, CompatcheckError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.measurement import Measurement
    from compatcheck.lab.confirmation import Confirmation
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.pairs import Request, Trial
    from compatcheck.rules.database import CompiledRule, RuleSet


@click.command("confirm", cls=options.GroupedCommand, short_help="Measure whether a rule holds.")
@click.argument("rule_ids", nargs=-1, required=True, metavar="RULE...")
@click.option(
    "--suspect",
    metavar="RELEASE",
    help="Release of the suspect side. Default: that of the rule's evidence, else the newest affected.",
)
@click.option(
    "--baseline",
    metavar="RELEASE",
    help="Healthy release. Default: that of the rule's evidence, else the nearest not affected.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be measured, and build nothing.")
@options.rule_directory_option
@probing.laboratory_options
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    rule_ids: tuple[str, ...],
    suspect: str | None,
    baseline: str | None,
    dry_run: bool,
    rule_directories: tuple[str, ...],
    format_name: str,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Measure a rule's suspect side and a healthy one, and set the difference beside the rule's formula.

    Exit code 1: a rule was confirmed. 0: none was, and one was refuted. 3: nothing was decided.
    """
    from compatcheck.lab.confirm import judge  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.pairs import Request, Trial, plan  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.reporters import confirmation as reporter  # noqa: PLC0415 (beside its use)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (beside its use)

    settings = probing.Settings(**given)
    rules = open_rules(rule_directories)
    sizes = probing.parse_one_set(settings.parameters)
    found: list[Confirmation] = []
    progress = Progress(None, quiet=settings.quiet)
    overlays = None
    request = Request(suspect, baseline, sizes)
    for rule_id in rule_ids:
        rule = find_rule(rule_id, rules)
        trial = plan(rule, rules.texts(rule), rules, request)
        if not isinstance(trial, Trial):
            found.append(trial)
            continue
        trial = _on_installed_torch(trial, rule, rules, request, settings.environment)
        if dry_run:
            planned = reporter.format_plan(
                rule.id,
                f"{trial.probe.name} {trial.metric}",
                suspect=(f"{trial.package} {trial.suspect}", trial.parameters),
                baseline=None
                if trial.baseline is None
                else (f"{trial.package} {trial.baseline}", trial.baseline_parameters),
                defaults=trial.probe.module.DEFAULTS,
                loss=trial.loss,
            )
            click.echo(planned, nl=False)
            continue
        backend = settings.backend or trial.backend
        if (backend or trial.probe.module.BACKENDS[0]) == "cuda" and not _sees_cuda(settings.environment):
            found.append(_without_cuda(rule.id, trial))
            continue
        releases = [release for release in (trial.suspect, trial.baseline) if release is not None]
        laboratory = probing.open_laboratory(
            settings, trial.package, releases, rules, progress=progress, overlays=overlays
        )
        overlays = laboratory.overlays
        bad = _measure(laboratory, trial, trial.suspect, trial.parameters, backend)
        good = (
            None
            if trial.baseline is None
            else _measure(laboratory, trial, trial.baseline, trial.baseline_parameters, backend)
        )
        found.append(judge(rule, trial, bad, good, rules))
    progress.close()
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

        click.echo(json.dumps([reporter.to_json(one) for one in found], indent=2))
    else:
        click.echo("\n".join(reporter.format_text(one) for one in found), nl=False)
    verdicts = {one.verdict for one in found}
    if "confirmed" in verdicts:
        return EXIT_FINDINGS
    return EXIT_CLEAN if "refuted" in verdicts or dry_run else EXIT_NOTHING_TO_CHECK


def _on_installed_torch(
    trial: Trial, rule: CompiledRule, rules: RuleSet, request: Request, choice: probing.EnvironmentChoice
) -> Trial:
    """Take the torch that is there as both sides, where a setting tells them apart and the rule is about that release too.

    Torch is never laid over an interpreter, so another release would need another interpreter.
    """
    from packaging.version import Version  # noqa: PLC0415 (beside its use)

    from compatcheck.lab.pairs import Trial, plan  # noqa: PLC0415 (beside its use)

    if trial.package != "torch" or request.suspect or trial.baseline not in {None, trial.suspect}:
        return trial
    try:
        installed = Version(choice.torch or choice.base().versions["torch"]).public
        here = plan(rule, rules.texts(rule), rules, request._replace(suspect=installed))
    except (CompatcheckError, ValueError):
        return trial
    return here if isinstance(here, Trial) and here.baseline in {None, installed} else trial


def _sees_cuda(choice: probing.EnvironmentChoice) -> bool:
    """Ask torch of the base whether there is a device, before anything is installed for nothing."""
    from compatcheck.core.process import run  # noqa: PLC0415 (beside its use)

    asked = "import torch; print('cuda' if torch.cuda.is_available() else 'none')"
    return "cuda" in run([choice.base().python, "-c", asked], timeout_seconds=120).output.split()


def _without_cuda(rule_id: str, trial: Trial) -> Confirmation:
    from compatcheck.lab.confirmation import Confirmation  # noqa: PLC0415 (beside its use)

    sides = f"{trial.package} {trial.suspect}" + (
        f" against {trial.baseline}" if trial.baseline != trial.suspect else ""
    )
    return Confirmation(
        rule_id=rule_id,
        verdict="inconclusive",
        reason=f"torch sees no CUDA device here, and {trial.probe.name} needs one ({sides} remains to be measured). "
        f"On a machine that has one: compatcheck confirm {rule_id}",
        probe=trial.probe.name,
    )


def _measure(
    laboratory: Laboratory, trial: Trial, version: str, parameters: Mapping[str, Any], backend: str | None
) -> Measurement:
    from compatcheck.lab.probes.runner import make_task  # noqa: PLC0415 (beside its use)

    return laboratory.measure(version, [make_task(trial.probe, parameters, backend)])[0]
