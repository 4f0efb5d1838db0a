"""Rules in a list, one row each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLUMNS = ("id", "title", "kind", "status", "confidence")


def format_text(rules: Iterable[Any]) -> str:
    """Format rules as text: id and, on a line of its own, what it is about."""
    return "".join(
        f"{rule.id}{'' if rule.status == 'active' else f' [{rule.status}]'}\n  {rule.title} ({rule.kind}, {rule.confidence})\n"
        for rule in rules
    )


def format_json(rules: Iterable[Any]) -> str:
    """Format rules as a JSON list."""
    rows = [{name: getattr(rule, name) for name in _COLUMNS} for rule in rules]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
