"""`compatcheck explain`: why a rule matches here, with the arithmetic, or which fact rules it out."""

from __future__ import annotations

import os
from typing import Any

import click

from compatcheck.checking.asked import inspect
from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.output import unread_lines
from compatcheck.cli.progress import showing_progress
from compatcheck.core.language import speaking
from compatcheck.core.terminal import make_harmless
from compatcheck.rules.locate import open_rules


@click.command("explain", cls=Command)
@options.argument("rule_id", "RULE", "rule")
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take(*options.INPUTS, "run", "rules", "language")
def command(rule_id: str, rule_directories: tuple[str, ...], **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Show each condition of RULE with the facts it read, the size step by step, and what rules it out or would decide it.

    With PATHs the files are read as `check` does, without them the installed environment, as `env` does.
    """
    from compatcheck.checking.explanation import explain  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters.explanation import format_explanation  # noqa: PLC0415 (beside its use)

    inspection = inspect(given, files=bool(given["paths"] or given["run"]))
    directories = (*(() if inspection.policy is None else inspection.policy.rules), *rule_directories)
    with showing_progress():
        found = explain(rule_id, inspection, open_rules(directories), os.environ)
    with speaking(os.environ):
        for explanation in found.explanations:
            click.echo(make_harmless(format_explanation(explanation)), nl=False)
        for line in unread_lines(found.skipped):
            click.echo(line)
    return found.exit_code
