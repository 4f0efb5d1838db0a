"""What an installation can do, as text and JSON."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatcheck.core.installation import Installation, Part

_KINDS = {"archive": "an archive", "checkout": "a checkout", "package": "a package"}


def format_text(found: Installation) -> str:
    """Format what is there, then what is missing and how to get it."""
    lines = [
        f"compatcheck {found.version}, {_KINDS.get(found.kind, f'installed by {found.kind}')} at {found.place}",
        f"Python {found.python} ({found.interpreter})",
        f"{found.rules_count} rules of {found.rules_date}, reviewed {found.rules_age_days} days ago ({found.rules_id})",
        "",
        "there",
        *(line for part in found.parts if part.remedy is None for line in _format_part(part)),
    ]
    missing = [part for part in found.parts if part.remedy is not None]
    if missing:
        lines += [
            "",
            "missing; everything else works without",
            *(line for part in missing for line in _format_part(part)),
        ]
    return "\n".join(lines) + "\n"


def format_json(found: Installation) -> str:
    """Format as one JSON object."""
    parts = [{**part._asdict(), "found": part.remedy is None} for part in found.parts]
    return json.dumps({**found._asdict(), "parts": parts}, indent=2, ensure_ascii=False) + "\n"


def _format_part(part: Part) -> list[str]:
    version = part.version or ("" if part.remedy else "version not known")
    head = f"  {part.name:<11} {version}" + (f"  ({part.place})" if part.place else "")
    get = [] if part.remedy is None else [f"    get it  {part.remedy}"]
    return [head.rstrip(), *wrap(part.enables, 80, initial_indent="    ", subsequent_indent="    "), *get]
