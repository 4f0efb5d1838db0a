"""`compatcheck confirm`: measure whether a rule holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.measuring.progress import Progress, announce
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


@click.command("confirm", cls=Command)
@options.argument("rule_ids", "RULE...", "rule", nargs=-1, required=True)
@options.take("confirm", "text json", "rules", *options.LABORATORY)
def command(
    rule_ids: tuple[str, ...],
    suspect: str | None,
    baseline: str | None,
    cells: str | None,
    dry_run: bool,
    rule_directories: tuple[str, ...],
    format_name: str,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Measure a rule's suspect side and a healthy one, and set the difference beside the rule's formula."""
    settings = Settings(**given)
    rules = open_rules(rule_directories)
    request = TrialRequest(suspect, baseline, parse_one_set(settings.parameters))
    progress = Progress(None, quiet=settings.quiet)
    announce("confirm", settings.environment, quiet=settings.quiet or dry_run)
    trials = Trials(settings, rules, progress)
    if cells is not None:
        results = [
            trials.run_experiment(find_rule(rule_id, rules), _parse_cells(cells), measured=not dry_run)
            for rule_id in rule_ids
        ]
        progress.close()
        if format_name == "json":
            click.echo(json.dumps([reporter.experiment_to_json(one) for one in results], indent=2))
        else:
            click.echo("\n".join(reporter.format_experiment(one) for one in results), nl=False)
        return EXIT_CLEAN if dry_run else exit_code_of_cells(results)
    found: list[Confirmation] = []
    for rule_id in rule_ids:
        rule = find_rule(rule_id, rules)
        trial = trials.plan(rule, request)
        if not isinstance(trial, Trial):
            found.append(trial)
        elif dry_run:
            click.echo(reporter.format_trial(rule.id, trial), nl=False)
        else:
            found.append(trials.run(rule, trial, request))
    progress.close()
    if format_name == "json":
        click.echo(json.dumps([reporter.to_json(one) for one in found], indent=2))
    else:
        click.echo("\n".join(reporter.format_text(one) for one in found), nl=False)
    return EXIT_CLEAN if dry_run else exit_code_of(found)


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
