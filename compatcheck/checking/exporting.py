"""Rules for other tools: which of them are written, and as what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck import __version__
from compatcheck.checking.checks import Checks, require_rules, require_selection
from compatcheck.core.errors import UsageError
from compatcheck.rules import exclusion
from compatcheck.rules.osv import describe_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.rules.database import RuleSet
    from compatcheck.rules.osv import Described


def describe_selected(select: Sequence[str], ignore: Sequence[str], rules: RuleSet) -> Described:
    """Describe the rules of a selection.

    Raises:
        UsageError: a glob that no rule meets.
    """
    require_rules(rules)
    checks = Checks(select=tuple(select), ignore=tuple(ignore))
    require_selection(checks, rules)
    return describe_rules(rules, checks.selects)


def exclude(described: Described, rules: RuleSet, format_name: str, *, selected: bool) -> exclusion.Excluded:
    """Find ranges that leave out the releases that rules are about, for a format that knows no conditions.

    Args:
        described: the rules.
        rules: the database they are of.
        format_name: what is written.
        selected: whether the person chose them, and so answers for their conditions.

    Raises:
        UsageError: each of the rules has a condition.
    """
    records = described.records if selected else [entry for entry in described.records if not entry.conditional]
    if not records:
        msg = f"{format_name} knows no conditions, and every rule has one"
        raise UsageError(
            msg,
            hint="choose the rules whose condition your project meets: --select deepspeed/zero3-params-kept-in-backward",
        )
    return exclusion.exclude(records, rules)


def format_exclusions(excluded: exclusion.Excluded, rules: RuleSet, format_name: str) -> str:
    """Write what is left of packages as ``constraints``, ``renovate``, ``uv`` or ``uv-overrides``.

    Raises:
        UsageError: nothing can be said.
    """
    if not excluded.exclusions:
        msg = "none of the rules can be kept out by version"
        raise UsageError(msg, hint="see `compatcheck rules show RULE` for what else helps")
    title = f"compatcheck {__version__}, rules of {rules.date} ({rules.id})"
    if format_name == "constraints":
        return exclusion.format_constraints(excluded.exclusions, title)
    if format_name == "renovate":
        return exclusion.format_renovate(excluded.exclusions, title)
    key = "override-dependencies" if format_name == "uv-overrides" else "constraint-dependencies"
    return exclusion.format_uv(excluded.exclusions, title, key)
