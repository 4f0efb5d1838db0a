"""`compatcheck rules export`: the rules in formats of other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.output import write_files
from compatcheck.core.errors import EXIT_CLEAN, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.rules.osv import Record

MAX_LEFT_OUT_LINES = 10


@click.command("export", cls=Command)
@options.take("rules export", "select", "rules")
def command(format_name: str, output: str | None, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Write rules for other tools.

    osv: records of the Open Source Vulnerability format, the condition first in the summary. constraints, uv, uv-overrides,
    renovate: ranges that leave out the releases the selected rules are about. Those know no conditions, so name the rules whose
    condition your project meets: --select deepspeed/zero3-params-kept-in-backward.
    """
    from compatcheck.checking.exporting import describe_selected, exclude, format_exclusions  # noqa: PLC0415 (beside its use)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (beside its use)

    rules = open_rules(given["rule_directories"])
    described = describe_selected(given["select"], given["ignore"], rules)
    if format_name == "osv":
        explain_left_out(described.left_out)
        write_records(described.records, output)
        return EXIT_CLEAN
    excluded = exclude(described, rules, format_name, selected=bool(given["select"]))
    explain_left_out([*described.left_out, *excluded.left_out])
    text = format_exclusions(excluded, rules, format_name)
    write_text(text, output)
    return EXIT_CLEAN


def explain_left_out(left_out: Sequence[tuple[str, str]]) -> None:
    """Say on standard error what a format cannot say."""
    for rule_id, reason in left_out[:MAX_LEFT_OUT_LINES]:
        click.echo(f"left out: {rule_id} {reason}", err=True)
    if len(left_out) > MAX_LEFT_OUT_LINES:
        click.echo(f"left out: {len(left_out) - MAX_LEFT_OUT_LINES} more", err=True)


def write_records(records: Sequence[Record], output: str | None) -> None:
    """Write OSV records as a list, an archive or one file each.

    Raises:
        UsageError: nothing to write, or it cannot be written there.
    """
    from compatcheck.rules.osv_files import format_list, write_osv_files  # noqa: PLC0415 (one format)

    if not records:
        msg = "the format can say none of these rules"
        raise UsageError(msg, hint="choose other rules with --select")
    if output is None or output.endswith(".json"):
        write_text(format_list(records), output)
    else:
        write_osv_files(records, output)


def write_text(text: str, output: str | None) -> None:
    """Write to a file, or to standard output."""
    if output is None:
        click.echo(text, nl=False)
    else:
        write_files([(f"--output {output}", output, text)])
