"""`compatcheck rules export`: the rules in formats of other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from compatcheck import __version__
from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.core.errors import EXIT_CLEAN, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.rules.database import RuleSet
    from compatcheck.rules.osv import Described, Record

MAX_LEFT_OUT_LINES = 10


@click.command("export", cls=Command)
@options.take("rules export", "select", "rules")
def command(format_name: str, output: str | None, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Write rules for other tools.

    osv: records of the Open Source Vulnerability format, the condition first in the summary. constraints, uv, uv-overrides,
    renovate: ranges that leave out the releases the selected rules are about. Those know no conditions, so name the rules whose
    condition your project meets: --select deepspeed/zero3-params-kept-in-backward.
    """
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (beside its use)

    rules = open_rules(given["rule_directories"])
    described = describe_selected(given["select"], given["ignore"], given["rule_directories"], rules)
    if format_name == "osv":
        explain_left_out(described.left_out)
        write_records(described.records, output)
        return EXIT_CLEAN
    from compatcheck.rules import exclusion  # noqa: PLC0415 (imports packaging.specifiers)

    records = described.records if given["select"] else [entry for entry in described.records if not entry.conditional]
    if not records:
        msg = f"{format_name} knows no conditions, and every rule has one"
        raise UsageError(
            msg,
            hint="choose the rules whose condition your project meets: --select deepspeed/zero3-params-kept-in-backward",
        )
    excluded = exclusion.exclude(records, rules)
    explain_left_out([*described.left_out, *excluded.left_out])
    if not excluded.exclusions:
        msg = "none of the rules can be kept out by version"
        raise UsageError(msg, hint="see `compatcheck rules show RULE` for what else helps")
    title = f"compatcheck {__version__}, rules of {rules.date} ({rules.id})"
    if format_name == "constraints":
        text = exclusion.format_constraints(excluded.exclusions, title)
    elif format_name == "renovate":
        text = exclusion.format_renovate(excluded.exclusions, title)
    else:
        key = "override-dependencies" if format_name == "uv-overrides" else "constraint-dependencies"
        text = exclusion.format_uv(excluded.exclusions, title, key)
    write_text(text, output)
    return EXIT_CLEAN


def describe_selected(
    select: Sequence[str], ignore: Sequence[str], directories: Sequence[str], rules: RuleSet | None = None
) -> Described:
    """Describe the rules of a selection.

    Raises:
        UsageError: a glob that no rule meets.
    """
    from compatcheck.checking.checks import Checks, require_rules, require_selection  # noqa: PLC0415 (beside its use)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (beside its use)
    from compatcheck.rules.osv import describe_rules  # noqa: PLC0415 (beside its use)

    rules = open_rules(tuple(directories)) if rules is None else rules
    require_rules(rules)
    checks = Checks(select=tuple(select), ignore=tuple(ignore))
    require_selection(checks, rules)
    return describe_rules(rules, checks.selects)


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
    """Write to a file, or to standard output.

    Raises:
        UsageError: the file cannot be written.
    """
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        msg = f"--output {output} cannot be written: {error.strerror}"
        raise UsageError(msg) from None
