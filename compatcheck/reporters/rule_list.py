"""Rules in a list, one row each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from compatcheck.reporters.text import wrap_names

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLUMNS = ("id", "title", "kind", "status", "confidence")


def format_text(rules: Iterable[Any]) -> str:
    """Format rules as text: id and, on a line of its own, what it is about."""
    lines: list[str] = []
    for rule in rules:
        lines.append(rule.id if rule.status == "active" else f"{rule.id} [{rule.status}]")
        lines += wrap_names(f"{rule.title} ({rule.kind}, {rule.confidence})", "  ", "  ")
    return "".join(f"{line}\n" for line in lines)


def format_json(rules: Iterable[Any]) -> str:
    """Format rules as a JSON list."""
    rows = [{name: getattr(rule, name) for name in _COLUMNS} for rule in rules]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
