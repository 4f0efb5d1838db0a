"""The nodes of a job: where they differ above the report on each kind of them, for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compatcheck.core.fleet import split_names
from compatcheck.core.language import translate
from compatcheck.reporters.folding import shorten
from compatcheck.reporters.json import describe_report
from compatcheck.reporters.markdown import escape, table
from compatcheck.reporters.markdown import format_report as format_markdown_report
from compatcheck.reporters.text import Terminal, fill
from compatcheck.reporters.text import format_report as format_text_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.fleet import Fleet, Skew


MOST_VALUES = 8
"""Values of one thing that are listed; a variable of which every node has its own has as many as there are nodes."""


def format_text(fleet: Fleet, *, verbose: int, quiet: bool, color: bool, width: int) -> str:
    """Format the nodes of a job for a terminal."""
    report = format_text_report(fleet.report, verbose=verbose, quiet=quiet, color=color, width=width, most=1)
    if quiet:
        return report
    return "\n".join(_Writer(color=color, width=width, verbose=verbose).lines(fleet)) + "\n" + report


class _Writer(Terminal):
    def lines(self, fleet: Fleet) -> Iterator[str]:
        for line in fill(count_text(fleet), self.width):
            yield self.paint(line, "1")
        for name, nodes in fleet.kinds if len(fleet.kinds) > 1 else ():
            yield from self.broken(f"{name}: " + self.names(nodes))
        yield ""
        shown = [skew for skew in fleet.skews if skew.is_told or self.verbose]
        for skew in shown:
            yield from self.skew(skew)
        rest = len(fleet.skews) - len(shown)
        if rest:
            yield from self.broken(rest_text(rest))
        if fleet.skews:
            yield ""

    def skew(self, skew: Skew) -> Iterator[str]:
        title = translate(f"{skew.kind} {skew.name}")
        yield f"  {self.paint(title, '33' if skew.why is not None else '2')}"
        for value, nodes in skew.values[:MOST_VALUES]:
            usual = value == skew.majority
            yield from self.broken(f"{translate(value)}: {holders_text(skew, nodes, usual=usual)}", 4)
        left = len(skew.values) - MOST_VALUES
        yield from self.broken(f"{left} more values", 4) if left > 0 else ()
        if self.verbose and skew.why is not None:
            yield from self.broken(f"why: {skew.why}", 4)

    def names(self, nodes: tuple[str, ...]) -> str:
        return ", ".join(nodes) if self.verbose else shorten(nodes)

    def broken(self, text: str, indent: int = 2) -> Iterator[str]:
        for index, line in enumerate(fill(text, self.width - indent, self.width - indent - 2)):
            yield " " * (indent + 2 * bool(index)) + line


def count_text(fleet: Fleet) -> str:
    """Say how many nodes there are, of how many kinds, and how many said nothing."""
    matter = sum(skew.why is not None for skew in fleet.skews)
    nodes = f"{fleet.nodes} node{'' if fleet.nodes == 1 else 's'}"
    lost = f", {len(fleet.lost)} more said nothing" if fleet.lost else ""
    if not matter:
        return f"{nodes}, alike in what matters{lost}"
    differ = "1 difference that matters" if matter == 1 else f"{matter} differences that matter"
    return f"{nodes} of {len(fleet.kinds)} kinds{lost}; {differ}"


def rest_text(count: int) -> str:
    """Say how many differences are not shown."""
    return (
        "1 more that matters to no rank; -v lists it"
        if count == 1
        else f"{count} more that matter to no rank; -v lists them"
    )


def holders_text(skew: Skew, nodes: tuple[str, ...], *, usual: bool) -> str:
    """Say which nodes have a value; most of them are only counted."""
    return translate(f"{len(nodes)} of {skew.nodes} nodes") if usual and len(nodes) > 1 else shorten(nodes, 8)


def format_markdown(fleet: Fleet) -> str:
    """Format the nodes of a job as Markdown."""
    lines = [f"## {escape(count_text(fleet))}", ""]
    shown = [skew for skew in fleet.skews if skew.is_told]
    if shown:
        rows = [
            (
                escape(f"{skew.kind} {skew.name}"),
                escape(value),
                escape(holders_text(skew, nodes, usual=value == skew.majority)),
                escape(skew.why or ""),
            )
            for skew in shown
            for value, nodes in skew.values
        ]
        lines += table(("what", "value", "nodes", "why it matters"), rows)
    if rest := len(fleet.skews) - len(shown):
        lines += [f"{rest} more that matter to no rank.", ""]
    return "\n".join(lines) + "\n" + format_markdown_report(fleet.report)


def format_json(fleet: Fleet) -> str:
    """Format the nodes of a job as JSON: a report, and beside it what is of all nodes (``report.schema.json``)."""
    return json.dumps(describe_fleet(fleet), indent=2, ensure_ascii=False) + "\n"


def describe_fleet(fleet: Fleet) -> dict[str, object]:
    """Describe the nodes of a job as plain data."""
    excluded, unnamable = split_names(fleet.excluded)
    return {
        **describe_report(fleet.report),
        "fleet": {
            "kinds": [{"subject": name, "nodes": list(nodes)} for name, nodes in fleet.kinds],
            "differences": [_describe_skew(skew) for skew in fleet.skews],
            "lost": [{"node": name, "reason": why} for name, why in fleet.lost],
            "excluded": list(excluded),
            "unnamable": list(unnamable),
        },
    }


def _describe_skew(skew: Skew) -> dict[str, object]:
    return {
        "kind": skew.kind,
        "name": skew.name,
        "matters": skew.why is not None,
        "why": skew.why,
        "majority": skew.majority,
        "values": [{"value": value, "nodes": list(nodes)} for value, nodes in skew.values],
    }
