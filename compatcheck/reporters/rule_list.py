"""Rules in a list, one row each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from compatcheck.reporters.text import wrap_names

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEWEST = 5
"""So many releases are named in a line."""
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


def format_stale(stale: Iterable[Any]) -> str:
    """Format open ranges with what came out since they were checked: id, and how far it was looked at."""
    lines: list[str] = []
    for one in stale:
        lines.append(one.rule_id)
        newer = ", ".join(one.newer[-_NEWEST:])
        more = f" and {len(one.newer) - _NEWEST} more" if len(one.newer) > _NEWEST else ""
        lines += wrap_names(
            f"{one.package}: checked through {one.checked_through}; since then {newer}{more}", "  ", "  "
        )
    return "".join(f"{line}\n" for line in lines)


def format_stale_json(stale: Iterable[Any]) -> str:
    """Format them as a JSON list."""
    return json.dumps([one._asdict() for one in stale], indent=2) + "\n"
