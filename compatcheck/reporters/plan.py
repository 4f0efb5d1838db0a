"""What a plan does, as every report says it: its changes, their price and places, and what a run needs then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.columns import measure
from compatcheck.core.effects import CHANGES_TRAINING, PATCH_RELEASE
from compatcheck.core.estimate import say_outcome
from compatcheck.core.fix import NOT_NEEDED, REFUSED, RESOLVED, SETTING, VERSION, install_command
from compatcheck.core.language import translate
from compatcheck.core.summary import range_text, size_text
from compatcheck.core.units import format_bytes
from compatcheck.reporters.plain_data import pick
from compatcheck.reporters.text import COLORS, Terminal, fill, wrap_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.fix import Change, Plan, Resolution
    from compatcheck.core.report import Finding, Report
    from compatcheck.core.suggestions import Suggestion

MOST_MOVED = 8
"""Packages that move along in a lock which are listed; the rest are counted."""


def plan_lines(report: Report, *, color: bool, width: int) -> Iterator[str]:
    """Write the plans of a report in short: what moves, what it costs, and what the run needs then."""
    writer = PlanWriter(color=color, width=width, verbose=0)
    for plan in report.plans:
        if not plan.changes:
            continue
        yield from (writer.paint(line, "1") for line in fill(f"plan: {plan_title(report, plan)}", width))
        for change in plan.changes:
            told = change.kind != VERSION or change.effect == CHANGES_TRAINING
            price = f": {effect_text(change)}" if told else ""
            because = f": {change.why}" if change.follows else ""
            lines = fill(f"{change_text(change)}{price}{because}", width - 6)
            yield from (f"    {line}" if not index else f"      {line}" for index, line in enumerate(lines))
            for text in list_places(change) if change.kind == SETTING else ():
                yield from (f"      {line}" for line in fill(text, width - 6))
        moves = [change for change in plan.changes if change.kind == VERSION]
        command = install_command(plan.changes)
        if command is not None:
            yield f"      {writer.paint(command, '1')}"
        if plan.brings:
            yield from writer.labelled("brings in", brings_text(plan))
        for _, estimate in plan.outcomes:
            yield from writer.labelled("then", outcome_text(estimate))
        if moves:
            yield from writer.labelled("resolver", resolution_text(plan.resolution))
        if plan.exhausted and plan.remaining:
            yield from writer.labelled("note", "looked for within limits; `compatcheck fix` looks further")
        yield ""


def plan_title(report: Report, plan: Plan) -> str:
    """Say how much a plan of a report clears, and of what where there are several."""
    cleared, all_failing = len(plan.cleared), len(plan.cleared) + len(plan.remaining)
    name = f" ({plan.subjects[0]})" if len(report.subjects) > 1 else ""
    return (
        f"clears {cleared} of {all_failing} {'findings that fail' if all_failing > 1 else 'finding that fails'}{name}"
    )


class PlanWriter(Terminal):
    """Writes plans and diffs for a terminal."""

    def diff(self, diff: str) -> Iterator[str]:
        """Colour a diff, where there are colours."""
        codes = {"+": "32", "-": "31", "@": "36"}
        for line in diff.splitlines(keepends=True) if self.color else [diff]:
            bare = line.rstrip("\r\n")
            code = codes.get(line[:1]) if self.color else None
            yield f"{self.paint(bare, code)}{line[len(bare) :]}" if code else line

    def plan(self, plan: Plan, *, applied: bool) -> Iterator[str]:
        """Write a plan whole: its changes, what the resolver says of them, and what stays."""
        head = plan.subjects[0] + (f" and {len(plan.subjects) - 1} more" if len(plan.subjects) > 1 else "")
        yield from (self.paint(line, "1") for line in fill(head, self.width))
        for change in plan.changes:
            yield from self.change(change, applied=applied)
        if not plan.changes:
            yield f"  {translate('no change that is known here clears anything')}"
        yield from self.resolution(plan.resolution)
        if plan.brings:
            yield from self.labelled("brings in", brings_text(plan))
        for note in plan.notes:
            yield from self.labelled("note", shorten(translate(note)))
        if plan.exhausted:
            yield from self.labelled(
                "note", "a smaller set may exist: only pairs were looked at together, and within limits"
            )
        for finding, why in plan.remaining:
            yield from self.remains(finding, why)
        for _, estimate in plan.outcomes:
            yield from self.labelled("then", outcome_text(estimate))
        yield ""

    def change(self, change: Change, *, applied: bool) -> Iterator[str]:
        """Say what changes, at what price and why, where it is written, and what it clears."""
        lines = fill(change_text(change), self.width - 2, self.width - 4)
        yield from (f"  {self.paint(line, '1')}" if not index else f"    {line}" for index, line in enumerate(lines))
        yield from self.labelled("costs", effect_text(change))
        yield from self.labelled("why", change.why + (f" ({change.note})" if change.note else ""))
        if change.kind == SETTING:
            for text in list_places(change):
                yield from self.labelled("in" if change.edits else "by hand", text)
            if unlisted := [name for name in change.installs if name not in change.written]:
                yield from self.labelled(
                    "needs", f"{', '.join(unlisted)}, not listed here: {install_command([change])}"
                )
        elif change.places:
            yield from self.labelled("in", ", ".join(change.places))
        elif change.command:
            yield from self.labelled("not written" if applied else "run", change.command)
        if change.clears:
            yield from self.labelled("clears", ", ".join(change.clears))

    def resolution(self, resolution: Resolution) -> Iterator[str]:
        """Say what the resolver said, and what moves along in a lock."""
        if resolution.verdict == NOT_NEEDED:
            return
        yield from self.labelled("resolver", resolution_text(resolution))
        if resolution.moved:
            shown = resolution.moved if self.verbose else resolution.moved[:MOST_MOVED]
            rest = len(resolution.moved) - len(shown)
            text = ", ".join(moved_text(*item) for item in shown) + (f" and {rest} more; -v lists them" if rest else "")
            yield from self.labelled("moves too", text)

    def remains(self, finding: Finding, why: str) -> Iterator[str]:
        """Say which finding stays and why."""
        label = finding.severity if finding.status == "affected" else f"{finding.severity}, possible"
        text = f"{finding.rule_id} ({label}, {size_text(finding.impact)})"
        first, *more = fill(text, self.width - 9)
        yield f"  {self.paint(translate('stays'), COLORS[finding.severity])}  {first}"
        yield from (f"         {line}" for line in more)
        yield from self.labelled("", shorten(why))

    def labelled(self, label: str, text: str) -> Iterator[str]:
        """Write a text behind a label."""
        label = translate(label)
        room = max(10, measure(label) + 1)
        head = f"    {self.paint(label, '2')}{' ' * (room - measure(label))}"
        for line in fill(text, self.width - 4 - room):
            yield f"{head if label else ' ' * (room + 4)}{line}"
            label = ""


def suggestion_lines(suggestions: Sequence[Suggestion], estimate: Estimate) -> Iterator[str]:
    """Write what would help a run, each with what it needs then and how it is stated; say where nothing makes it fit."""
    yield ""
    yield f"  {translate('what would help')}"
    fits = estimate.verdict.outcome == "fits" or any(one.outcome == "fits" for one in suggestions)
    if not fits and estimate.untold is not None:
        yield from wrap_text(estimate.untold, 4, 6)
    elif not fits:
        nearest = min(suggestions, key=lambda one: one.needed.expected, default=None)
        words = "" if nearest is None else f"; nearest is {' + '.join(map(change_text, nearest.changes))}"
        yield from wrap_text(f"nothing that costs less than a major release makes it fit for certain{words}", 4, 6)
    elif not suggestions:
        yield f"    {translate('nothing that can be changed here needs less')}"
    for one in suggestions:
        asked = [change for change in one.changes if not change.follows]
        yield from wrap_text(" + ".join(map(change_text, asked)), 4, 4)
        yield from wrap_text(
            f"saves {format_bytes(one.saved_bytes)}, then needs {format_bytes(one.needed.expected)}: "
            f"{say_outcome(one.outcome, one.unless)}; {one.effect}",
            6, 8,
        )  # fmt: skip
        for change in one.changes:
            if change.follows:
                yield from wrap_text(f"with {change_text(change)}: {change.why}", 6, 8)
            elif change.note:
                yield from wrap_text(change.note, 6, 8)
        for change in one.changes:
            for text in [f"{place}: {text}" for place, text in change.where] or [" ".join(change.options)]:
                yield from wrap_text(text, 6, 8) if text else ()


def effect_text(change: Change) -> str:
    """Say what a change costs the person."""
    return change.effect if change.effect != PATCH_RELEASE else "a patch release"


def outcome_text(estimate: Estimate) -> str:
    """Say whether a run fits, and what it needs."""
    limit = estimate.verdict.limit_bytes
    of = "" if limit is None else f" of {format_bytes(limit)}"
    words = say_outcome(estimate.verdict.outcome, estimate.verdict.unless)
    return f"{words}: needs {range_text(estimate.needed)}{of} a device"


def change_text(change: Change) -> str:
    """Say a change in words: ``deepspeed 0.16.4 → 0.16.8 (patch)``."""
    if change.words is not None:
        return change.words
    move = f" ({change.move})" if change.move else ""
    return f"{change.name} {change.before or '(not written)'} → {change.after}{move}"


def list_places(change: Change) -> list[str]:
    """Say what a setting is in the files of the run, or the options that state it."""
    return [f"{place}: {text}" for place, text in zip(change.places, change.written, strict=True)] or [
        " ".join(change.options)
    ]


def brings_text(plan: Plan) -> str:
    """Say which findings a plan brings in."""
    return f"{', '.join(plan.brings)} (below --fail-on, or possible only)"


def moved_text(name: str, before: str | None, after: str | None) -> str:
    """Say how a package of a lock moves along."""
    return f"{name} {before or 'new'} → {after or 'gone'}"


MOST_CHARACTERS = 420
"""Length of a resolver's reason that is shown; JSON has it whole."""


def shorten(text: str) -> str:
    """Cut a resolver's reason behind a word."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 2].rsplit(' ', 1)[0]} …"


def resolution_text(resolution: Resolution) -> str:
    """Say what the resolver said."""
    detail = shorten(resolution.detail or "")
    unbuilt = f"; without building {', '.join(resolution.unbuilt)}" if resolution.unbuilt else ""
    if resolution.verdict == RESOLVED:
        return f"uv finds releases that fit {detail}{unbuilt}".replace("  ", " ")
    if resolution.verdict == REFUSED:
        return f"unresolvable: {detail}"
    return f"not checked by a resolver{f': {detail}' if detail else ''}"


_OF_A_CHANGE = "kind name before after words move follows effect safe why places written clears command note installs"


def describe_change(change: Change) -> dict[str, object]:
    """Describe a change as plain data."""
    return pick(change, _OF_A_CHANGE) | {"facts": dict(change.facts)}


def describe_suggestion(suggestion: Suggestion) -> dict[str, object]:
    """Describe a suggestion as plain data."""
    return {
        "changes": [describe_change(change) | {"options": list(change.options)} for change in suggestion.changes],
        "needed_bytes": suggestion.needed._asdict(),
        "saved_bytes": suggestion.saved_bytes,
        "verdict": suggestion.outcome,
        "effect": suggestion.effect,
        "clears": list(suggestion.clears),
    }


def describe_outcomes(plan: Plan) -> list[dict[str, object]]:
    """Describe whether the runs of a plan fit after it."""
    return [
        {"subject": name, "verdict": estimate.verdict.outcome, "needed_bytes": estimate.needed._asdict()}
        for name, estimate in plan.outcomes
    ]


def describe_resolution(resolution: Resolution | None) -> dict[str, object] | None:
    """Describe what the resolver said as plain data."""
    if resolution is None:
        return None
    moved = [dict(zip(("name", "before", "after"), item, strict=True)) for item in resolution.moved]
    return {**resolution._asdict(), "moved": moved}
