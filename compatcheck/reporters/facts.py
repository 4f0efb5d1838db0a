"""Facts as text, JSON or a facts file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from compatcheck.core.columns import measure, pad
from compatcheck.core.language import translate
from compatcheck.core.report import SubjectReport
from compatcheck.core.source import Skipped
from compatcheck.core.summary import gap_text, place_text, shared_directory
from compatcheck.core.units import format_bytes
from compatcheck.reporters.plain_data import pick
from compatcheck.reporters.text import wrap_names

if TYPE_CHECKING:
    from compatcheck.core.facts import Fact, Value

_WIDTH = 80


def show(value: Value, name: str = "") -> str:
    """Show a value as a person writes it; bytes with their unit."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value) or "(none)"
    if name.endswith("_bytes") and isinstance(value, int):
        return format_bytes(value)
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 100_000 else str(value)


def format_text(subjects: Sequence[SubjectReport], skipped: Sequence[Skipped]) -> str:
    """Format facts for a terminal."""
    lines: list[str] = []
    for subject in subjects:
        lines += wrap_names(subject.id, "", "  ")
        if subject.origin != subject.id:
            lines += wrap_names(subject.origin, f"  {pad(translate('environment'), 12)} ", " " * 15)
        if subject.packages:
            known = "complete" if subject.complete else "what is not listed is unknown"
            unsure = f"; {len(subject.optional)} may be there or not" if subject.optional else ""
            counted = translate(f"{len(subject.packages)} ({known}{unsure})")
            lines.append(f"  {pad(translate('packages'), 12)} {counted}")
        notes = [f"not read: {source}: {gap_text(why)}" for source, why in subject.gaps]
        lines.extend(line for note in notes for line in wrap_names(note, "  ", "    "))
        base = shared_directory(source for _, fact in subject.facts for source in fact.sources)
        for role, facts in _by_role(subject.facts):
            if role is not None:
                lines.append(f"  {role}")
            for fact in facts:
                lines += _row(f"{fact.name} = {show(fact.value, fact.name)}", translate(place_text(fact, base)))
                for value, source in fact.alternatives:
                    lines += _row(translate(f"  not {show(value, fact.name)}"), translate(str(source)))
        notes = [
            f"conflict: {name}: " + "; ".join(f"{show(value, name)} at {source}" for value, source in values)
            for name, values in subject.conflicts
        ]
        notes += [f"not filled in: {name} at {source}: {why}" for name, source, why in subject.unresolved]
        notes += [
            f"unread: {source}" + (f" (did you mean {near}?)" if near else "") for source, near in subject.unread_keys
        ]
        notes += [f"note: {note}" for note in subject.notes]
        lines.extend(line for note in notes for line in wrap_names(note, "  ", "    "))
    for entry in skipped:
        lines += wrap_names(f"not read: {entry.source}: {entry.reason}", "", "  ")
        lines += wrap_names(entry.hint, "  ", "  ") if entry.hint else []
    return "\n".join(lines) + "\n"


def _by_role(facts: Sequence[tuple[str, Fact]]) -> Iterator[tuple[str | None, list[Fact]]]:
    """Yield the facts that hold for every role, then those of each role that has any of its own."""
    roles = list(dict.fromkeys(role for role, _ in facts))
    holders: dict[Fact, int] = {}
    for _, fact in facts:
        holders[fact] = holders.get(fact, 0) + 1
    shared = [fact for fact, count in holders.items() if count == len(roles)]
    yield None, sorted(shared, key=lambda fact: fact.name)
    for role in roles:
        own = [fact for name, fact in facts if name == role and holders[fact] < len(roles)]
        if own:
            yield role, sorted(own, key=lambda fact: fact.name)


def _row(text: str, place: str) -> list[str]:
    """Write a fact at the left and where it comes from at the right, on lines of their own when one is too short."""
    room = _WIDTH - 2 - measure(text) - measure(place)
    if room > 1:
        return [f"  {text}{' ' * room}{place}"]
    begun = "  " + " " * (len(text) - len(text.lstrip()))
    return [*wrap_names(text.lstrip(), begun, f"{begun}    "), *wrap_names(place, " " * 6, " " * 6)]


def format_json(subjects: Sequence[SubjectReport], skipped: Sequence[Skipped]) -> str:
    """Format facts as JSON."""
    data = {
        "schema_version": "1",
        "subjects": [
            {
                "id": subject.id,
                "origin": subject.origin,
                "python": subject.python,
                "packages": [
                    {
                        "name": name,
                        "version": version,
                        "source": source,
                        **({"optional": True} if name in subject.optional else {}),
                    }
                    for name, version, source in subject.packages
                ],
                "variables": None if subject.variables is None else dict(subject.variables),
                "variables_complete": subject.variables_complete,
                "facts": [describe(role, fact) for role, fact in subject.facts],
                "conflicts": [
                    {"fact": name, "values": [{"value": value, "source": str(source)} for value, source in values]}
                    for name, values in subject.conflicts
                ],
                "unresolved": [
                    {"fact": name, "source": str(source), "reason": why} for name, source, why in subject.unresolved
                ],
                "not_read": [{"source": str(source), "reason": why} for source, why in subject.gaps],
                "unread_keys": [{"source": str(source), "nearest": near} for source, near in subject.unread_keys],
            }
            for subject in subjects
        ],
        "skipped": [{"source": str(entry.source), "reason": entry.reason, "hint": entry.hint} for entry in skipped],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def describe(role: str, fact: Fact) -> dict[str, object]:
    """Describe a fact as the JSON contract has it."""
    return {
        **pick(fact, "name value origin"),
        "source": str(fact.sources[0]) if fact.sources else None,
        "note": fact.note,
        "role": role,
    }


def format_yaml(subjects: Sequence[SubjectReport], skipped: Sequence[Skipped]) -> str:
    """Write a facts file per subject and role; several become several documents, separated by ``---``."""
    texts = []
    for subject in subjects:
        roles = tuple(dict.fromkeys(role for role, _ in subject.facts)) or (None,)
        texts += [_facts_file(subject, role, alone=len(roles) == 1) for role in roles]
    unread = "".join(f"# not read: {entry.source}: {entry.reason}\n" for entry in skipped)
    return "---\n".join(texts) + unread


def _facts_file(subject: SubjectReport, role: str | None, *, alone: bool) -> str:
    lines = [f"# {subject.id}" if alone else f"# {subject.id}: {role}", "compatcheck: 1"]
    certain = sorted((name, version) for name, version, _ in subject.packages if name not in subject.optional)
    if certain:
        lines.append("packages:")
        lines += [f"  {name}: {json.dumps(version or 'present')}" for name, version in certain]
    sections: dict[str, list[str]] = {}
    for _, fact in (item for item in subject.facts if item[0] == role):
        section, _, name = fact.name.partition(".")
        sections.setdefault(section, []).append(f"  {name}: {json.dumps(fact.value)}")
    for section, rows in sorted(sections.items()):
        lines += [f"{section}:", *sorted(rows)]
    if subject.variables is not None:
        rows = [f"  {_key(name)}: {json.dumps(value)}" for name, value in sorted(subject.variables.items())]
        lines += ["env:", *rows] if rows else ["env: {}"]
        if not subject.variables_complete:
            lines.append("env_complete: false")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    """Write a variable's name; YAML reads short words such as NO and Y as truth values."""
    return name if "_" in name else json.dumps(name)


def format_names(terms: Sequence[object], known: Mapping[str, Sequence[str]]) -> str:
    """List the vocabulary: name and type of each fact, what it means on lines of their own, and names it knows."""
    lines: list[str] = []
    for term in terms:
        lines.append(f"{getattr(term, 'name', '')} ({getattr(term, 'type', '')})")
        lines += wrap_names(str(getattr(term, "meaning", "")), "  ", "  ")
        if names := known.get(getattr(term, "name", "")):
            lines += wrap_names(f"known: {', '.join(names)}", "  ", "    ")
    return "\n".join(lines)


Formatter = Callable[[Sequence[SubjectReport], Sequence[Skipped]], str]
FORMATTERS: dict[str, Formatter] = {"text": format_text, "json": format_json, "yaml": format_yaml}
"""Format name → function."""
