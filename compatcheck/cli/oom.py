"""`compatcheck oom`: why a run died of memory, from its log."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from compatcheck.checking.asked import inspect
from compatcheck.cli import options
from compatcheck.cli.bare import holds_message, is_given
from compatcheck.cli.help import Command
from compatcheck.cli.progress import showing_progress
from compatcheck.core.language import speaking, translate
from compatcheck.core.terminal import make_harmless
from compatcheck.core.textfile import STANDARD_INPUT
from compatcheck.rules.locate import open_rules


@click.command("oom", cls=Command)
@options.argument("log", "[LOG]", required=False)
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take("text json markdown", "environment", "files", "run", "rules", "language")
def command(log: str | None, rule_directories: tuple[str, ...], format_name: str, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Find the tensor whose size was asked for, the phase and the cause in LOG.

    LOG is a log, a traceback or a pasted issue; without it, or as `-`, it is read from standard input.

    The more is known of the run (--model, --training, --set, or PATHs as `check` reads them) the more tensors are tried. What
    the log itself says of it is used where nothing else does.
    """
    from compatcheck.checking.out_of_memory import explain_oom  # noqa: PLC0415 (beside its use)
    from compatcheck.core.out_of_memory import WORDS  # noqa: PLC0415 (beside its use)
    from compatcheck.oom.log import read_log  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters.out_of_memory import FORMATTERS, explain_absence  # noqa: PLC0415 (beside its use)

    if log is None:
        if not is_given():
            raise click.MissingParameter(param_hint="'LOG'", param_type="argument")
        log = "-"
    rules = open_rules(rule_directories)
    place = STANDARD_INPUT if log == "-" else log
    text, skipped = read_log(place)
    inspection = inspect(given, files=bool(given["paths"] or given["run"]), on_targets=False)
    with showing_progress():
        report = explain_oom(text, place, inspection, rules, os.environ, skipped)
    with speaking(os.environ, format_name):
        click.echo(make_harmless(FORMATTERS[format_name](report)), nl=False)
    if all(reading.message.form in WORDS for reading in report.readings):
        name = "standard input" if log == "-" else log
        lines = explain_absence(report, name)
        holder = next((path for path in given["paths"] if path != "-" and holds_message(path)), None)
        if holder is not None and not lines[1:]:
            lines.append(f"hint: {holder} holds one, and is the log: compatcheck oom {shlex.join((holder, log))}")
        with speaking(os.environ):
            click.echo("\n".join(map(translate, lines)), err=True)
    return report.exit_code
