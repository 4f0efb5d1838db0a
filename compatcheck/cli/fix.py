"""`compatcheck fix`: the smallest changes that clear the findings, as a diff or written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from compatcheck.checking.checks import Checks, open_waivers, require_rules, require_selection
from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.output import Output, parse_outputs, terminal_width, write_formatted
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, UsageError
from compatcheck.core.fail_on import parse_threshold
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.checking.runs import Plan
    from compatcheck.core.fix import Fix

FORMATS = ("text", "json", "markdown", "diff")
FIX = "Fix"


@click.command("fix", cls=options.GroupedCommand, short_help="Clear the findings with the smallest changes.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@options.grouped_option(FIX, "--apply", is_flag=True, help="Write the changes. Default: show them as a diff.")
@options.grouped_option(
    FIX,
    "--unsafe",
    is_flag=True,
    help="Also make changes that can alter results: minor and major releases, older ones, settings so marked.",
)
@options.grouped_option(
    FIX, "--offline", is_flag=True, help="Ask no package index: the known releases, not checked by a resolver."
)
@options.environment_options
@options.input_options
@options.check_options
@options.output_options(FORMATS)
def command(apply: bool, unsafe: bool, offline: bool, **given: Any) -> int:  # noqa: ANN401, FBT001 (click's signature)
    """Find a small set of changes that clears the findings of PATHs without bringing in others.

    A change is a release that moves or a setting that a rule advises. uv checks that the releases fit together; it builds and
    installs nothing. The diff goes to standard output (`--format diff | git apply`), with what it clears and what stays. Safe are
    patch releases and settings that rules call safe; others are named, and made with --unsafe. Locks are rewritten by their own
    programs alone; of an installed environment only the command is shown. Exit code 1 when changes are needed or findings
    stay; 0 when nothing fails, or --apply cleared it all.
    """
    if not given["paths"] and (given["python"] or given["prefix"]):
        plan, checks, output = split({**given, "hook": False}, files=False)
    else:
        plan, checks, output = split({**given, "hook": False}, files=True)
        plan = plan._replace(requests=tuple(request._replace(manifests=True) for request in plan.requests))
    return execute(plan, checks, output, apply=apply, unsafe=unsafe, offline=offline)


def execute(plan: Plan, checks: Checks, output: Output, *, apply: bool, unsafe: bool, offline: bool) -> int:
    """Find the changes, write or show them.

    Args:
        plan: what is read.
        checks: which findings count.
        output: formats and files.
        apply: whether to write the files.
        unsafe: whether to make changes that can alter results.
        offline: whether to ask no index.

    Returns:
        The exit code.

    Raises:
        CompatcheckError: nothing could be checked, or a file cannot be written.
    """
    from compatcheck.checking.fix import Judging, find_fix  # noqa: PLC0415 (beside its use)
    from compatcheck.fixing.plan import find_ways  # noqa: PLC0415 (beside its use)

    started = time.perf_counter()
    targets = parse_outputs(output.outputs, FORMATS)
    if "-" in {path for request in plan.requests for path in request.paths} and apply:
        msg = "standard input cannot be written"
        raise UsageError(msg, hint="name the file")
    if checks.security:
        msg = "--security finds advisories, which fix does not clear"
        raise UsageError(msg, hint="`pip-audit --fix` does; or leave it out")
    rules = open_rules(checks.rule_directories)
    require_rules(rules)
    require_selection(checks, rules, plan.policy)
    threshold = parse_threshold(checks.fail_on)
    waivers = open_waivers(plan, checks, rules)

    judging = Judging(rules, checks, threshold, waivers)
    fix = find_fix(plan, judging, find_ways(offline=offline), unsafe=unsafe)
    if apply and fix.files:
        from compatcheck.fixing.edits.text import write_changes  # noqa: PLC0415 (only when asked)

        write_changes(fix.files)
    fix = fix._replace(applied=apply, exit_code=judge(fix, applied=apply), seconds=time.perf_counter() - started)
    write_formatted(lambda name, color: format_as(name, fix, output, color=color), output, targets)
    return fix.exit_code


def judge(fix: Fix, *, applied: bool) -> int:
    """Return the exit code: 1 while findings fail, which they do until the changes are written; else that of the check."""
    failing = sum(finding.fails for finding in fix.report.findings)
    if not failing:
        return fix.report.exit_code
    open_commands = any(change.command for plan in fix.plans for change in plan.changes)
    if applied and not open_commands and not any(plan.remaining for plan in fix.plans):
        return EXIT_CLEAN
    return EXIT_FINDINGS


def format_as(name: str, fix: Fix, output: Output, *, color: bool) -> str:
    """Format an outcome."""
    from compatcheck.fixing.edits.text import unified_diff  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters import fix as reporter  # noqa: PLC0415 (beside its use)

    diff = "" if fix.applied else unified_diff(fix.files)
    if name == "diff":
        return unified_diff(fix.files)
    if name == "json":
        return reporter.format_json(fix, unified_diff(fix.files))
    if name == "markdown":
        return reporter.format_markdown(fix, diff)
    return reporter.format_text(
        fix, diff, quiet=output.quiet, verbose=output.verbose, color=color, width=terminal_width()
    )
