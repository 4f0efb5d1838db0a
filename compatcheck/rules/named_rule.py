"""The rules that a person means by names."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.rules.database import CompiledRule, RuleSet


def find_rule(name: str, rules: RuleSet) -> CompiledRule:
    """Find a rule by id, former id, or a part of its id that no other has.

    Raises:
        UsageError: there is none, or there are several; with the nearest ids.
    """
    rule = rules.find(name)
    if rule is not None:
        return rule
    ids = [candidate.id for candidate in rules.all_rules()]
    holding = [rule_id for rule_id in ids if name in rule_id]
    if len(holding) == 1:
        found = rules.find(holding[0])
        if found is not None:
            return found
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    near = holding or get_close_matches(name, ids, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near[:5])}?" if near else "see `compatcheck rules list`"
    raise UsageError(f"there is no rule {name!r}", hint=hint)


def list_rules(rules: RuleSet, globs: Sequence[str], *, inactive: bool) -> list[CompiledRule]:
    """Return rules by id, all of them or those whose id matches one of the patterns.

    Args:
        rules: to choose from.
        globs: patterns of ids.
        inactive: whether drafts and withdrawn rules are among them.
    """
    return [
        rule
        for rule in sorted(rules.all_rules(), key=lambda rule: rule.id)
        if (inactive or rule.status == "active") and (not globs or any(fnmatchcase(rule.id, glob) for glob in globs))
    ]
