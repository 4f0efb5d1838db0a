"""What an installation can do, as text and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compatcheck.core.columns import measure
from compatcheck.core.language import translate
from compatcheck.reporters.text import wrap_names, wrap_text

if TYPE_CHECKING:
    from compatcheck.core.installation import Installation, Part

_WIDTH = 80
_KINDS = {"archive": "an archive", "checkout": "a checkout", "package": "a package"}


def format_text(found: Installation) -> str:
    """Format what is there, then what is missing and how to get it."""
    age = found.rules_age_days
    kind = _KINDS.get(found.kind, f"installed by {found.kind}")
    lines = [
        *wrap_names(f"compatcheck {found.version}, {kind} at {found.place}", "", "  "),
        *wrap_names(f"Python {found.python} ({found.interpreter})", "", "  "),
        *wrap_names(
            f"{found.rules_count} rules of {found.rules_date}, reviewed {age} days ago ({found.rules_id})", "", "  "
        ),
    ]
    there = [part for part in found.parts if part.remedy is None]
    if there:
        lines += ["", translate("there"), *(line for part in there for line in _format_part(part))]
    missing = [part for part in found.parts if part.remedy is not None]
    if missing:
        lines += [
            "",
            translate("missing; everything else works without"),
            *(line for part in missing for line in _format_part(part)),
        ]
    return "\n".join(lines) + "\n"


def format_json(found: Installation) -> str:
    """Format as one JSON object."""
    parts = [{**part._asdict(), "found": part.remedy is None} for part in found.parts]
    return json.dumps({**found._asdict(), "parts": parts}, indent=2, ensure_ascii=False) + "\n"


def _format_part(part: Part) -> list[str]:
    version = part.version or ("" if part.remedy else translate("version not known"))
    head = f"  {part.name:<11} {version}".rstrip()
    place = f"({translate(part.place)})" if part.place else ""
    whole = f"{head}  {place}".rstrip()
    heads = [whole] if measure(whole) <= _WIDTH else [head, *wrap_names(place, " " * 14, " " * 14)]
    get = [] if part.remedy is None else [f"    {translate('get it')}  {translate(part.remedy)}"]
    if part.remedy is not None and measure(get[0]) > _WIDTH:  # a command is never broken
        get = [f"    {translate('get it')}", f"      {translate(part.remedy)}"]
    return [*heads, *wrap_text(part.enables, 4, 4), *get]
