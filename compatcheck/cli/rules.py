"""`compatcheck rules`: the database, and what rule writers need."""

from __future__ import annotations

from pathlib import Path

import click

from compatcheck.cli import options
from compatcheck.cli.help import Group
from compatcheck.cli.laboratory import find_evidence_check
from compatcheck.cli.progress import showing_progress
from compatcheck.cli.rules_export import command as export_command
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS
from compatcheck.core.terminal import disarm, escape_lines
from compatcheck.rules.locate import CHECKOUT, is_checkout, open_rules
from compatcheck.rules.named_rule import find_rule, list_rules

NO_PROOF = "probes and evidence are not checked: that needs the measuring laboratory (compatcheck.lab)"


@click.group("rules", cls=Group)
def command() -> None:
    """List, show, lint, start and export rules."""


command.add_command(export_command)


@command.command("list")
@options.argument("globs", "[GLOB]...", "rule", nargs=-1)
@options.take("rules list", "rules", "text json")
def list_command(
    globs: tuple[str, ...],
    rule_directories: tuple[str, ...],
    include_inactive: bool,  # noqa: FBT001 (click's signature)
    format_name: str,
) -> int:
    """List rules, all of them or those whose id matches a GLOB."""
    from compatcheck.reporters import rule_list  # noqa: PLC0415 (beside its use)

    rules = open_rules(rule_directories)
    listed = list_rules(rules, globs, inactive=include_inactive)
    click.echo(rule_list.format_json(listed) if format_name == "json" else rule_list.format_text(listed), nl=False)
    if format_name == "text":
        click.echo(f"{_count(len(listed), 'rule')} · db {rules.date} ({rules.id})", err=True)
    return EXIT_CLEAN


@command.command("show")
@options.argument("rule_id", "RULE", "rule")
@options.take("rules")
def show_command(rule_id: str, rule_directories: tuple[str, ...]) -> int:
    """Show a rule: range, condition, size, mechanism, remedies, references."""
    from compatcheck.reporters.rule_page import format_rule  # noqa: PLC0415 (beside its use)

    rules = open_rules(rule_directories)
    rule = find_rule(rule_id, rules)
    click.echo(format_rule(rule, rules.texts(rule)), nl=False)
    return EXIT_CLEAN


@command.command("lint")
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take("rules")
def lint_command(paths: tuple[str, ...], rule_directories: tuple[str, ...]) -> int:
    """Check rule files: shape, vocabulary, types, ranges, evidence, and that the examples hold and cover every boundary.

    PATHs are rule files or directories of them; without any, the rules of a checkout. Rules in a directory of your own are
    checked with the built-in tables and defaults.
    """
    from compatcheck.checking.linting import lint  # noqa: PLC0415 (imports YAML)

    with showing_progress():
        found = lint(paths, rule_directories, find_evidence_check)
    for problem in found.problems:
        click.echo(disarm(escape_lines(str(problem))))
    if not found.proven:
        click.echo(NO_PROOF, err=True)
    if found.readable:
        click.echo(f"{_count(found.files, 'rule')}, {_count(len(found.problems), 'problem')}", err=True)
    return EXIT_FINDINGS if found.problems else EXIT_CLEAN


@command.command("stale")
@options.argument("globs", "[GLOB]...", "rule", nargs=-1)
@options.take("rules stale", "rules", "text json")
def stale_command(
    globs: tuple[str, ...],
    rule_directories: tuple[str, ...],
    offline: bool,  # noqa: FBT001 (click's signature)
    format_name: str,
) -> int:
    """List rules whose range is open and holds releases that are newer than the newest one that was looked at.

    The package index is asked for what came out since the database was made. All rules, or those whose id matches a GLOB.
    """
    from compatcheck.reporters import rule_list  # noqa: PLC0415 (beside its use)
    from compatcheck.rules.staleness import find_stale  # noqa: PLC0415 (beside its use)
    from compatcheck.services.known_releases import KnownReleases  # noqa: PLC0415 (beside its use)

    rules = open_rules(rule_directories)
    releases = KnownReleases(rules, ask=not offline)
    stale = list(find_stale(rules, list_rules(rules, globs, inactive=False), releases))
    click.echo(rule_list.format_stale_json(stale) if format_name == "json" else rule_list.format_stale(stale), nl=False)
    for problem in releases.problems:
        click.echo(problem, err=True)
    click.echo(f"{_count(len({one.rule_id for one in stale}), 'rule')}", err=True)
    return EXIT_FINDINGS if stale else EXIT_CLEAN


@command.command("new")
@options.argument("rule_id", "PACKAGE/SLUG", "text")
@options.take("rules new")
def new_command(rule_id: str, directory: str | None) -> int:
    """Write the skeleton of a rule file."""
    from compatcheck.rules.skeleton import write_skeleton  # noqa: PLC0415 (beside its use)

    click.echo(str(write_skeleton(rule_id, Path(directory or (CHECKOUT if is_checkout() else "rules")))))
    return EXIT_CLEAN


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
