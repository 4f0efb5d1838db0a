"""One rule as a Markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.reporters.text import wrap_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def format_rule(rule: Any, texts: Any) -> str:  # noqa: ANN401 (rules.database types: reporters import only core)
    """Format a rule as Markdown, in lines that a terminal shows whole."""
    lines = (line for block in _blocks(rule, texts) for text in block.split("\n") for line in _wrap(text))
    return "\n".join(lines) + "\n"


def _wrap(text: str) -> list[str]:
    """Break a line of Markdown; a heading is one."""
    if text.startswith("#"):
        return [text]
    item = "- " if text.startswith("- ") else ""
    return wrap_names(text.removeprefix(item), item, " " * len(item)) or [""]


def _blocks(rule: Any, texts: Any) -> Iterator[str]:  # noqa: ANN401 (see format_rule)
    yield f"# {rule.title}"
    yield ""
    yield f"`{rule.id}` · {rule.kind} · {rule.status} · {rule.confidence}"
    if texts.reason:
        yield f"\n{texts.reason}"
    yield "\n## Affected\n"
    for packages, when in texts.affected:
        where = ", ".join(f"{name} {specifier}" for name, specifier in packages.items()) or "any release"
        yield f"- {where}" + (f", when `{when}`" if when else "")
    for name, specifier in texts.unverified.items():
        yield f"- not verified: {name} {specifier}"
    if texts.checked_through:
        yield "- checked through " + ", ".join(f"{name} {version}" for name, version in texts.checked_through.items())
    if texts.when:
        yield f"\nWhen `{texts.when}`"
    if texts.unless:
        yield f"\nUnless `{texts.unless}`"
    yield "\n## Cost\n"
    yield f"{rule.effect.replace('_', ' ')}, {rule.memory} memory, per {rule.scope}, phase {rule.phase}"
    if texts.formula:
        yield f"\n`{texts.formula}` bytes"
    for heading, text in (("What it does", texts.what), ("Why", texts.why), ("Known problems", texts.known_problems)):
        if text:
            yield f"\n## {heading}\n"
            yield text
    if texts.remedies:
        yield "\n## Remedies\n"
        yield from (f"- {_remedy(remedy)}" for remedy in texts.remedies)
    yield "\n## References\n"
    for reference in texts.references:
        date = f" ({reference['date']})" if reference["date"] else ""
        yield f"- {reference['type']}: <{reference['url']}>{date}"
    if texts.evidence:
        yield "\n## Evidence\n"
        yield from (f"- {name}" for name in texts.evidence)
    if texts.probe:
        changed = ", ".join(f"{name} = {value}" for name, value in texts.probe["parameters"].items())
        metric = f", {texts.probe['metric']}" if texts.probe["metric"] else ""
        yield (
            f"\nConfirmed by the probe `{texts.probe['name']}`" + (f" with {changed}" if changed else "") + metric + "."
        )
    if texts.row:
        yield f"\nRow {texts.row} of the collected facts."


def _remedy(remedy: Mapping[str, Any]) -> str:
    target = ", ".join(
        f"{name}{value if remedy['verb'] in {'upgrade', 'downgrade'} else f' = {value}'}"
        for name, value in remedy["target"].items()
    )
    words = f"{remedy['verb']} {target}" if remedy["verb"] != "note" else ""
    note = remedy["note"] or ""
    return f"{' — '.join(part for part in (words, note) if part)} ({remedy['safety']})"
