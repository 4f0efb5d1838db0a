"""`compatcheck rules`: the database, and what rule writers need."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import click

from compatcheck.cli import options
from compatcheck.cli.laboratory import find_proof
from compatcheck.cli.rules_export import command as export_command
from compatcheck.cli.rules_serve import command as serve_command
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, CompatcheckError, RuleError, UsageError
from compatcheck.rules.locate import CHECKOUT, is_checkout, open_rules
from compatcheck.rules.named_rule import find_rule


@click.group("rules", short_help="List, show, lint, start, export and serve rules.")
def command() -> None:
    """List, show, lint, start, export and serve rules."""


command.add_command(export_command)
command.add_command(serve_command)


@command.command("list", cls=options.GroupedCommand)
@click.argument("globs", nargs=-1, metavar="[GLOB]...")
@options.rule_directory_option
@click.option("--all", "include_inactive", is_flag=True, help="Include drafts and withdrawn rules.")
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_command(
    globs: tuple[str, ...],
    rule_directories: tuple[str, ...],
    include_inactive: bool,  # noqa: FBT001 (click's signature)
    format_name: str,
) -> int:
    """List rules, all of them or those whose id matches a GLOB."""
    rules = open_rules(rule_directories)
    listed = [
        rule
        for rule in sorted(rules.all_rules(), key=lambda rule: rule.id)
        if (include_inactive or rule.status == "active")
        and (not globs or any(fnmatchcase(rule.id, glob) for glob in globs))
    ]
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

        rows = [
            {
                "id": rule.id,
                "title": rule.title,
                "kind": rule.kind,
                "status": rule.status,
                "confidence": rule.confidence,
            }
            for rule in listed
        ]
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return EXIT_CLEAN
    for rule in listed:
        state = "" if rule.status == "active" else f" [{rule.status}]"
        click.echo(f"{rule.id}{state}\n  {rule.title} ({rule.kind}, {rule.confidence})")
    click.echo(f"{len(listed)} rules · db {rules.date} ({rules.id})", err=True)
    return EXIT_CLEAN


@command.command("show", cls=options.GroupedCommand)
@click.argument("rule_id", metavar="RULE")
@options.rule_directory_option
def show_command(rule_id: str, rule_directories: tuple[str, ...]) -> int:
    """Show a rule: range, condition, size, mechanism, remedies, references."""
    from compatcheck.reporters.rule_page import format_rule  # noqa: PLC0415 (beside its use)

    rules = open_rules(rule_directories)
    rule = find_rule(rule_id, rules)
    click.echo(format_rule(rule, rules.texts(rule)), nl=False)
    return EXIT_CLEAN


@command.command("lint", cls=options.GroupedCommand)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@options.rule_directory_option
def lint_command(paths: tuple[str, ...], rule_directories: tuple[str, ...]) -> int:
    """Check rule files: shape, vocabulary, types, ranges, evidence, and that the examples hold and cover every boundary.

    PATHs are rule files or directories of them; without any, the rules of a checkout. Rules in a directory of your own are
    checked with the built-in tables and defaults.
    """
    from compatcheck.matching.examples import check_rule  # noqa: PLC0415 (imports YAML)
    from compatcheck.rules.load import load_rule, rule_files  # noqa: PLC0415 (imports YAML)

    directories = [Path(name) for name in rule_directories]
    files: list[tuple[Path, Path]] = []
    for name in paths or ([CHECKOUT] if is_checkout() else []):
        path = Path(os.path.abspath(name))
        if path.is_dir():
            root = rule_root(path)
            files += [(file, root) for file in rule_files(path)]
        elif path.exists():
            root = rule_root(path.parent)
            files.append((path, root))
        else:
            msg = f"{name} does not exist"
            raise UsageError(msg)
        if root.resolve() != Path(CHECKOUT).resolve() and root not in directories:
            directories.append(root)
    if not files:
        msg = "no rule files"
        raise UsageError(msg, hint="name files or directories of rules")
    count = 0
    try:
        rules = open_rules(tuple(str(path) for path in directories), replacing=True)
    except RuleError as error:
        click.echo(f"{error}" + (f" ({error.hint})" if error.hint else ""))
        return EXIT_FINDINGS
    proof = find_proof(rules)
    if proof is None:
        click.echo(
            "probes and evidence are not checked: that needs the measuring laboratory (compatcheck.lab)", err=True
        )
    for file, root in files:
        try:
            problems = check_rule(load_rule(file, root), rules, root.parent, proof)
        except CompatcheckError as error:
            click.echo(str(error))
            count += 1
            continue
        for problem in problems:
            click.echo(f"{problem.source}: {problem.message}")
        count += len(problems)
    click.echo(f"{len(files)} rules, {count} problems", err=True)
    return EXIT_FINDINGS if count else EXIT_CLEAN


def rule_root(path: Path) -> Path:
    """Return the directory rule ids are relative to: the checkout's ``rules``, else the nearest ``rules`` above, else itself."""
    for candidate in (path, *path.parents):
        if candidate.name == "rules":
            return candidate
    return path


@command.command("new", cls=options.GroupedCommand)
@click.argument("rule_id", metavar="PACKAGE/SLUG")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=None,
    help="Rule directory; the checkout's by default.",
)
def new_command(rule_id: str, directory: Path | None) -> int:
    """Write the skeleton of a rule file."""
    from compatcheck.rules.skeleton import SKELETON  # noqa: PLC0415 (beside its use)

    package, _, slug = rule_id.partition("/")
    if (
        not package
        or not slug
        or not all(part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in (package, slug))
    ):
        msg = f"{rule_id!r} is not PACKAGE/SLUG"
        raise UsageError(
            msg,
            hint="as deepspeed/zero3-params-kept-in-backward: name the bad pattern, not the fix",
        )
    root = directory or Path(CHECKOUT if is_checkout() else "rules")
    path = root / package / f"{slug}.yaml"
    if path.exists():
        msg = f"{path} exists already"
        raise UsageError(msg)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SKELETON.replace("PACKAGE", package), encoding="utf-8")
    click.echo(str(path))
    return EXIT_CLEAN
