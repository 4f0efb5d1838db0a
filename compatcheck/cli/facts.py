"""`compatcheck facts`: what was understood."""

from __future__ import annotations

import os
from typing import Any

import click

from compatcheck.checking.report import holds_something, place_skipped
from compatcheck.checking.runs import gather_all, make_plan
from compatcheck.cli import options
from compatcheck.core.errors import EXIT_CLEAN, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.terminal import escape_controls
from compatcheck.rules.locate import open_rules


@click.command("facts", cls=options.GroupedCommand, short_help="Show what was understood.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@options.environment_options
@options.image_options
@options.input_options
@click.option("--names", is_flag=True, help="List every fact name with its meaning, and stop.")
@click.option("--format", "format_name", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
def command(names: bool, format_name: str, **given: Any) -> int:  # noqa: FBT001, ANN401 (click's signature)
    """Show every fact with its value, origin and line; conflicts, `auto` values nobody fills in, unread keys.

    With PATHs the files are read, without them the installed environment, as `check` and `env` do. `--format yaml` writes a
    facts file that can be given back with --training.
    """
    from compatcheck.reporters import facts as reporter  # noqa: PLC0415 (beside its use)

    if names:
        from compatcheck.rules.vocabulary import vocabulary  # noqa: PLC0415 (only to list it)

        click.echo(reporter.format_names(tuple(vocabulary().values())))
        return EXIT_CLEAN
    plan = make_plan(given, files=bool(given["paths"] or given["run"]))
    gathered = gather_all(plan, open_rules(), os.environ)
    from compatcheck.checking.report import describe_subject  # noqa: PLC0415 (beside its use)
    from compatcheck.frameworks.lines import LineFinder  # noqa: PLC0415 (beside its use)

    lines = LineFinder(gathered.files)
    subjects = []
    for subject in gathered.subjects:
        described = describe_subject(subject, (), gathered.reasons.get(subject.id, gathered.chosen))
        located = tuple(
            (role, fact._replace(sources=tuple(map(lines.with_line, fact.sources)))) for role, fact in described.facts
        )
        unread = tuple((lines.with_line(source), near) for source, near in described.unread_keys)
        subjects.append(described._replace(facts=located, unread_keys=unread))
    skipped = place_skipped(
        (*gathered.skipped, *(entry for subject in gathered.subjects for entry in subject.skipped)), lines
    )
    click.echo(escape_controls(reporter.FORMATTERS[format_name](tuple(subjects), skipped)), nl=False)
    if any(entry.named for entry in skipped):
        return EXIT_UNREADABLE_INPUT
    return EXIT_CLEAN if any(map(holds_something, gathered.subjects)) else EXIT_NOTHING_TO_CHECK
