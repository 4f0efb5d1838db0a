"""`compatcheck confirm`: measure whether a rule holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.measuring.progress import Progress, announce
from compatcheck.cli.place import open_place
from compatcheck.core.errors import EXIT_CLEAN, UsageError
from compatcheck.lab.pairs import Trial, TrialRequest
from compatcheck.lab.parameters import parse_one_set
from compatcheck.lab.reporters import confirmation as reporter
from compatcheck.lab.settings import Settings
from compatcheck.lab.trials import Trials, exit_code_of, exit_code_of_cells
from compatcheck.rules.locate import open_rules
from compatcheck.rules.named_rule import find_rule

if TYPE_CHECKING:
    from compatcheck.lab.confirmation import Confirmation
    from compatcheck.rules.database import CompiledRule


@click.command("confirm", cls=Command)
@options.argument("rule_ids", "RULE...", "rule", nargs=-1, required=True)
@options.take("confirm", "text json", "rules", *options.LABORATORY, "jobs", "cluster")
def command(
    rule_ids: tuple[str, ...],
    suspect: str | None,
    baseline: str | None,
    cells: str | None,
    dry_run: bool,
    rule_directories: tuple[str, ...],
    format_name: str,
    ray_address: str | None,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Measure a rule's suspect side and a healthy one, and set the difference beside the rule's formula."""
    settings = Settings(**given)
    rules = open_rules(rule_directories)
    request = TrialRequest(suspect, baseline, parse_one_set(settings.parameters))
    progress = Progress(None, quiet=settings.quiet)
    announce("confirm", settings.environment, quiet=settings.quiet or dry_run)
    with open_place(None if dry_run else ray_address) as place:
        trials = Trials(settings, rules, progress, place)
        if cells is not None:
            count = _parse_cells(cells)
            results = [trials.run_experiment(find_rule(name, rules), count, measured=not dry_run) for name in rule_ids]
        else:
            found = [_try(trials, find_rule(name, rules), request, dry_run=dry_run) for name in rule_ids]
    progress.close()
    if cells is not None:
        if format_name == "json":
            click.echo(json.dumps([reporter.experiment_to_json(one) for one in results], indent=2))
        else:
            click.echo("\n".join(reporter.format_experiment(one) for one in results), nl=False)
        return EXIT_CLEAN if dry_run else exit_code_of_cells(results)
    shown = [one for one in found if one is not None]
    if format_name == "json":
        click.echo(json.dumps([reporter.to_json(one) for one in shown], indent=2))
    else:
        click.echo("\n".join(reporter.format_text(one) for one in shown), nl=False)
    return EXIT_CLEAN if dry_run else exit_code_of(shown)


def _try(trials: Trials, rule: CompiledRule, request: TrialRequest, *, dry_run: bool) -> Confirmation | None:
    """Measure a rule, or say what would be measured; None where that is all."""
    trial = trials.plan(rule, request)
    if not isinstance(trial, Trial):
        return trial
    if not dry_run:
        return trials.run(rule, trial, request)
    click.echo(reporter.format_trial(rule.id, trial), nl=False)
    return None


def _parse_cells(text: str) -> int | None:
    """Return how many cells are wanted; None is all.

    Raises:
        UsageError: neither a number nor ``all``.
    """
    if text == "all":
        return None
    if not text.isdecimal() or not int(text):
        msg = f"--cells {text!r} is neither all nor a number"
        raise UsageError(msg, hint="as --cells 5")
    return int(text)
