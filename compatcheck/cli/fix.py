"""`compatcheck fix`: the smallest changes that clear the findings, as a diff or written."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from compatcheck.checking.checks import open_criteria
from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.help import Command
from compatcheck.cli.output import Output, parse_outputs, terminal_width, write_formatted, write_notice
from compatcheck.cli.progress import show_progress, showing_progress
from compatcheck.core.errors import UsageError
from compatcheck.core.programs import is_named
from compatcheck.core.redaction import redact_lines
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.core.fix import Fix

FORMATS = ("text", "json", "markdown", "diff")


@click.command("fix", cls=Command)
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take_check("fix", "environment", "files", formats="text,json,markdown,diff")
def command(apply: bool, unsafe: bool, offline: bool, **given: Any) -> int:  # noqa: ANN401, FBT001 (click's signature)
    """Find a small set of changes that clears the findings of PATHs without bringing in others.

    A change is a release that moves, with what its pins ask for, or a setting; each plan is judged whole, findings and estimate.
    What costs least comes first: settings with the same result, patch releases, slower settings, other releases, changed
    training, more hardware. uv checks that the releases fit together; it builds and installs nothing.

    The diff goes to standard output (`--format diff | git apply`), with what it clears and what stays. Locks are rewritten by
    their own programs alone; of an installed environment only the command is shown.
    """
    from compatcheck.checking.fix import find_fix, require_safe  # noqa: PLC0415 (beside its use)
    from compatcheck.fixing.plan import find_ways  # noqa: PLC0415 (beside its use)

    started = time.perf_counter()
    files = bool(given["paths"]) or not (given["python"] or given["prefix"])
    inspection, checks, output = split({**given, "hook": False}, files=files)
    if files:
        requests = tuple(request._replace(manifests=True) for request in inspection.requests)
        inspection = inspection._replace(requests=requests)
    targets = parse_outputs(output.outputs, FORMATS)
    if "-" in {path for request in inspection.requests for path in request.paths} and apply:
        msg = "standard input cannot be written"
        raise UsageError(msg, hint="name the file")
    rules = open_rules(checks.rule_directories)
    criteria = open_criteria(inspection, rules, checks)
    try:
        ways = find_ways(offline=offline, say=show_line)._replace(announce=show_progress)
        with showing_progress():
            fix = find_fix(inspection, criteria, os.environ, ways)
    finally:
        show_progress("")
    if apply and not unsafe:
        require_safe(fix)
    if apply and fix.files:
        from compatcheck.fixing.edits.text import write_changes  # noqa: PLC0415 (only when asked)

        write_changes(fix.files, is_named)
    fix = fix._replace(applied=apply, seconds=time.perf_counter() - started)
    write_formatted(lambda name, color: format_as(name, fix, output, color=color), output, targets)
    return fix.exit_code


def show_line(line: str) -> None:
    """Write what is run and asked on a line of its own, wherever standard error goes."""
    show_progress("")
    write_notice(line)


def format_as(name: str, fix: Fix, output: Output, *, color: bool) -> str:
    """Format an outcome."""
    from compatcheck.fixing.edits.text import unified_diff  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters import fix as reporter  # noqa: PLC0415 (beside its use)

    whole = unified_diff(fix.files)
    diff = redact_lines(whole)
    if name == "diff":
        if diff != whole:
            click.echo("the diff hides a credential of the files and cannot be applied: use --apply", err=True)
        return diff
    if name == "json":
        return reporter.format_json(fix, diff)
    diff = "" if fix.applied else diff
    if name == "markdown":
        return reporter.format_markdown(fix, diff)
    return reporter.format_text(
        fix, diff, quiet=output.quiet, verbose=output.verbose, color=color, width=terminal_width()
    )
