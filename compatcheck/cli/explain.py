"""`compatcheck explain`: why a rule matches here, with the arithmetic, or which fact rules it out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from compatcheck.checking.checks import require_rules
from compatcheck.checking.report import place_skipped
from compatcheck.checking.runs import gather_all, make_plan
from compatcheck.cli import options
from compatcheck.core.errors import EXIT_CLEAN, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT, UsageError
from compatcheck.core.terminal import escape_controls
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.rules.database import CompiledRule, RuleSet


@click.command("explain", cls=options.GroupedCommand, short_help="Show why a rule matches here, or why not.")
@click.argument("rule_id", metavar="RULE")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@options.environment_options
@options.image_options
@options.input_options
@options.rule_directory_option
def command(rule_id: str, rule_directories: tuple[str, ...], **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Show each condition of RULE with the facts it read, the size step by step, and what rules it out or would decide it.

    With PATHs the files are read as `check` does, without them the installed environment, as `env` does.
    """
    from compatcheck.frameworks.lines import LineFinder  # noqa: PLC0415 (beside its use)
    from compatcheck.matching.explain import explain  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters.explanation import format_explanation  # noqa: PLC0415 (beside its use)

    plan = make_plan(given, files=bool(given["paths"] or given["run"]))
    directories = (*(() if plan.policy is None else plan.policy.rules), *rule_directories)
    rules = open_rules(directories)
    require_rules(rules)
    rule = find_rule(rule_id, rules)
    gathered = gather_all(plan, rules, os.environ)
    lines = LineFinder(gathered.files)
    explained = False
    for subject in gathered.subjects:
        for explanation in explain(rule, subject, rules, lines.with_line):
            explained = True
            click.echo(escape_controls(format_explanation(explanation)), nl=False)
    skipped = place_skipped(
        (*gathered.skipped, *(entry for subject in gathered.subjects for entry in subject.skipped)), lines
    )
    for entry in skipped:
        text = f"not read: {entry.source}: {entry.reason}" + (f" ({entry.hint})" if entry.hint else "")
        click.echo(escape_controls(text))
    if any(entry.named for entry in skipped):
        return EXIT_UNREADABLE_INPUT
    return EXIT_CLEAN if explained else EXIT_NOTHING_TO_CHECK


def find_rule(rule_id: str, rules: RuleSet) -> CompiledRule:
    """Find a rule by id, former id, or an unambiguous end of its id.

    Raises:
        UsageError: there is none, or there are several; with the nearest ids.
    """
    rule = rules.find(rule_id)
    if rule is not None:
        return rule
    ids = [candidate.id for candidate in rules.all_rules()]
    ending = [name for name in ids if rule_id in name]
    if len(ending) == 1:
        found = rules.find(ending[0])
        if found is not None:
            return found
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    near = ending or get_close_matches(rule_id, ids, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near[:5])}?" if near else "see `compatcheck rules list`"
    msg = f"there is no rule {rule_id!r}"
    raise UsageError(msg, hint=hint)
