"""An estimate for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from compatcheck.core.columns import measure, pad
from compatcheck.core.estimate import ASLEEP, KINDS, OUTCOMES, WHOLE, Size, say_outcome, total
from compatcheck.core.language import translate
from compatcheck.core.summary import find_lead, gap_text, range_text, value_text
from compatcheck.core.units import GIB, format_bytes
from compatcheck.reporters.plain_data import pick
from compatcheck.reporters.plan import change_text, describe_suggestion, suggestion_lines
from compatcheck.reporters.text import wrap_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.estimate import Component, Estimate, Phase, Regression
    from compatcheck.core.estimate_report import Doubts, EstimateReport
    from compatcheck.core.suggestions import Placement, Wall

_BAR = 22
_LABEL = (34, 41)
"""Least and most columns of a component's name, so that a line with the longest bar has 80."""


def format_text(report: EstimateReport, *, verbose: int) -> str:
    """Format an estimate for a terminal of 80 columns."""
    return "\n".join(line.rstrip() for line in _lines(report, verbose)) + "\n"


def _lines(report: EstimateReport, verbose: int) -> Iterator[str]:
    estimate = report.estimate
    yield report.subject
    if report.id and report.id != report.subject:
        yield f"  {report.id}"
    yield from _gaps(report.doubts)
    for text in report.doubts.unselected:
        yield from wrap_text(text, 2, 4)
    if not estimate.phases and estimate.verdict.primary is not None:
        yield from wrap_text(f"no estimate: {estimate.verdict.primary}", 2, 4)
        yield from _doubts(report.doubts)
        return
    if not estimate.phases:
        yield f"  {translate('no estimate: it needs')}"
        model = [name for name in estimate.needs if name.startswith("model.")]
        if len(model) > 1:
            yield f"    {translate('the model   (name it: --model CONFIG.JSON, a directory or a known id)')}"
        for name in estimate.needs:
            if len(model) <= 1 or name not in model:
                yield f"    {name}   {translate(f'(state it: --set {name}=…)')}"
        yield from _doubts(report.doubts)
        yield from _walls(report.walls)
        return
    yield ""
    yield from _verdict(report)
    yield ""
    peak = estimate.peak_phase
    assert peak is not None  # noqa: S101 (there are phases)
    yield from _phase(peak, verbose)
    yield ""
    yield from _instants(estimate, peak)
    for detail in report.details:
        yield from wrap_text(detail, 2, 4)
    for line in reason_lines(estimate):
        yield from wrap_text(line, 2, 4)
    yield from _unknowns(estimate)
    yield from _doubts(report.doubts)
    if report.placements or report.no_placement:
        yield from suggestion_lines(report.suggestions, estimate)
    yield from _walls(report.walls)
    yield from _placements(report)


def _gaps(doubts: Doubts) -> Iterator[str]:
    for place, why in doubts.gaps[:_SHOWN_GAPS]:
        yield from wrap_text(f"not read: {place}: {gap_text(why)}", 2, 4)
    if len(doubts.gaps) > _SHOWN_GAPS:
        yield from wrap_text(f"not read: {len(doubts.gaps) - _SHOWN_GAPS} more (`compatcheck facts` shows all)", 2, 4)


_SHOWN_GAPS = 3


def _verdict(report: EstimateReport) -> Iterator[str]:
    estimate, verdict = report.estimate, report.estimate.verdict
    yield from wrap_text(headline(report), 2, 4)
    for line in regression_lines(estimate):
        yield from wrap_text(line, 2, 4)
    if verdict.condition and find_lead(estimate) is None:
        yield from wrap_text(verdict.condition, 2, 4)
    yield from wrap_text(capacity_text(estimate), 2, 4)
    yield from wrap_text(f"allocated {range_text(estimate.allocated)}, reserved {range_text(estimate.reserved)}", 2, 4)
    method = "in closed form" if estimate.method == "closed_form" else "traced on fake tensors"
    yield from wrap_text(f"estimated, {method}; not measured", 2, 4)


def headline(report: EstimateReport) -> str:
    """Return the verdict in one sentence: need, what may be held beside it, limit and margin."""
    estimate, verdict = report.estimate, report.estimate.verdict
    need, held = range_text(estimate.needed), format_bytes(estimate.device.expected)
    text = f"needs {need}"
    if verdict.limit_bytes is not None and verdict.outcome == "marginal":  # what is expected may be far on either side
        text += f" of {format_bytes(verdict.limit_bytes)} a device"
    elif verdict.limit_bytes is not None and verdict.margin_bytes is not None:
        margin = verdict.margin_bytes
        rest = f"{format_bytes(margin)} left" if margin >= 0 else f"{format_bytes(-margin)} too much"
        text += f" of {format_bytes(verdict.limit_bytes)} a device, {rest}"
    else:
        text += " a device"
    if held != format_bytes(estimate.needed.expected):
        text += f"; may hold {held} with the allocator's cache"
    lead = find_lead(estimate)
    if lead is not None:
        return f"{OUTCOMES[verdict.outcome]}: {lead}; if not, {text}"
    return f"{say_outcome(verdict.outcome, verdict.unless)}: {text}"


def capacity_text(estimate: Estimate) -> str:
    """Say what the cache of a server holds; empty for what trains."""
    if estimate.capacity is None or not estimate.capacity.tokens.high:
        return ""
    tokens, length = estimate.capacity
    text = f"its KV cache holds {tokens.expected:,} tokens ({tokens.low:,} to {tokens.high:,})"
    if length is None:
        return text
    return f"{text}: {tokens.expected / length:.1f} sequences of {length:,} at once"


_WHEN = {WHOLE: "throughout", ASLEEP: "while the engine sleeps"}


def regression_lines(estimate: Estimate) -> Iterator[str]:
    """Say what of the need is a known regression, and what the run needs without."""
    if estimate.without is None:
        return
    for one in estimate.regressions:
        role = "" if one.role == "train" else f" of {one.role}"
        where = _WHEN.get(one.phase) or f"in {one.phase.replace('_', ' ')}"
        text = f"{one.rule_id} +{format_bytes(one.size.expected)} {where}{role}"
        yield f"known regression: {text}" + ("" if one.adds else ", a phase the estimate does not have")
    if any(one.adds for one in estimate.regressions):
        before = estimate.without
        without = "it" if len(estimate.regressions) == 1 else "them"
        words = say_outcome(before.verdict.outcome, before.verdict.unless)
        yield f"without {without}: {words}, needs {range_text(before.needed)}"


def _doubts(doubts: Doubts) -> Iterator[str]:
    lines = doubt_lines(doubts)
    if lines:
        yield ""
        yield f"  {translate('not known')}"
    for line in lines:
        yield from wrap_text(line, 4, 6)


def doubt_lines(doubts: Doubts) -> list[str]:
    """Say what stands against the facts: values nobody can tell, conflicts, keys about memory that no reader knows."""
    lines = [f"unresolved: {name} at {place}: {why}" for name, place, why in doubts.unresolved]
    for name, values in doubts.conflicts:
        told = "; ".join(f"{value_text(value)} at {place}" for value, place in values)
        lines.append(f"conflict: {name}: {told}")
    if doubts.unread:
        keys = list(dict.fromkeys(str(place.key) for place in doubts.unread))
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        words = "key that looks" if len(keys) == 1 else "keys that look"
        listed = ", ".join(keys[:_NAMED])
        lines.append(f"not understood: {len(keys)} {words} like memory: {listed}{more} (`compatcheck facts` shows all)")
    return lines


_NAMED = 6
"""Keys named in a line."""


def name_phase(phase: Phase) -> str:
    """Name a phase, with its role where there are several."""
    words = phase.name.replace("_", " ")
    return words if phase.role in {"train", phase.name} else f"{phase.role} {words}"


def _phase(phase: Phase, verbose: int) -> Iterator[str]:
    yield f"  {translate(f'at the peak ({name_phase(phase)})')}"
    largest = max((part.size.expected for part in phase.components), default=0)
    alone = len({part.role for part in phase.components}) == 1
    shown = [part for part in sorted(phase.components, key=_order) if part.size.expected or verbose]
    labels = [translate(part.name) if alone else part.role + translate(": ") + translate(part.name) for part in shown]
    wide = min(_LABEL[1], max([_LABEL[0], *map(measure, labels)]))
    for part, label in zip(shown, labels, strict=True):
        width = round(_BAR * part.size.expected / largest) if largest else 0
        yield f"    {pad(label[:wide], wide)} {format_bytes(part.size.expected):>10}  {'█' * width}"
        if verbose:
            yield from wrap_text(f"= {translate(part.formula)}", 8, 10)
        if verbose > 1:
            yield from wrap_text(f"[{part.source}]", 8, 10)


def _order(part: Component) -> tuple[str, int]:
    return (part.role, KINDS.index(part.kind))


def _instants(estimate: Estimate, peak: Phase) -> Iterator[str]:
    parts = [
        f"{name_phase(phase)} {phase.needed.expected / GIB:.1f}" + (" (peak)" if phase is peak else "")
        for phase in estimate.phases
    ]
    yield from wrap_text("phases, GiB needed: " + " · ".join(parts), 2, 4)


def reason_lines(estimate: Estimate) -> Iterator[str]:
    """Say what a verdict rests on: what takes most, what else, what does not matter, and what would settle it."""
    verdict = estimate.verdict
    if verdict.primary:
        heading = "cause" if verdict.outcome in {"does_not_fit", "marginal"} else "largest"
        yield f"{heading}: {verdict.primary}"
    for heading, texts in (("contributing", verdict.contributing), ("ruled out", verdict.ruled_out)):
        if texts:
            yield f"{heading}: {'; '.join(texts)}"
    if verdict.verify:
        yield f"verify: {verdict.verify}"


def _unknowns(estimate: Estimate) -> Iterator[str]:
    for heading, lines in (("assumed", assumption_lines(estimate)), ("not modelled", unmodelled_lines(estimate))):
        if lines:
            yield ""
            yield f"  {translate(heading)}"
        for line in lines:
            yield from wrap_text(line, 4, 6)


def assumption_lines(estimate: Estimate) -> list[str]:
    """Say what was taken for facts that nobody stated."""
    return [
        f"{entry.fact} = {value_text(entry.value)}" + (f": {entry.reason}" if entry.reason else "")
        for entry in estimate.assumptions
    ]


def unmodelled_lines(estimate: Estimate) -> list[str]:
    """Say what the run has that the estimate leaves out, and which way that goes."""
    needs = {"more": "the run needs more", "less": "the run needs less", "either": "more or less"}
    return [f"{left.name} ({needs[left.direction]}): {left.reason}" for left in estimate.unmodelled]


def _walls(walls: Sequence[Wall]) -> Iterator[str]:
    if walls:
        yield ""
        yield f"  {translate('how far it goes')}"
    for wall in walls:
        yield from wrap_text(wall_text(wall), 4, 6)


def wall_text(wall: Wall) -> str:
    """Say how far one setting can go, and what a step of it costs."""
    nodes = wall.fact == "hardware.nodes"
    if wall.fits is None:
        text = f"not even {wall.fails:,} fit" if nodes else f"not even {wall.step:,} fits"
    elif wall.fails is None:
        text = (
            f"it fits on {wall.fits:,}" if nodes else f"{wall.fits:,} fits, and no larger value was found that does not"
        )
    else:
        text = f"{wall.fits:,} fits, {wall.fails:,} does not"
    verb = "saves" if wall.bytes_per_step < 0 else "costs"
    least = f"; {wall.points[0][0]:,} needs {format_bytes(wall.points[0][1])}" if wall.points else ""
    current = least if wall.current is None else f" (now {wall.current:,})"
    return f"{wall.fact}: {text}; one more {verb} {format_bytes(abs(wall.bytes_per_step))}{current}"


def _placements(report: EstimateReport) -> Iterator[str]:
    if not (report.placements or report.no_placement):
        return
    yield ""
    yield f"  {translate('the smallest hardware it fits on')}"
    for place in report.placements:
        name, needs = placement_texts(place)
        yield f"    {name:<44} {translate(needs)}"
        if place.gradient_accumulation_steps is not None:
            yield from wrap_text(_batch_text(place.gradient_accumulation_steps), 6, 8)
    if not report.placements:
        yield from wrap_text(no_placement_text(report), 4, 6)


def no_placement_text(report: EstimateReport) -> str:
    """Say that no known hardware is enough, or why that cannot be told."""
    return f"none: {report.no_placement}" if report.estimate.untold is None else report.no_placement


def placement_texts(place: Placement) -> tuple[str, str]:
    """Name hardware that a run fits on, and say what each device needs of what it has."""
    name = f"{place.gpus} × {place.gpu}" + (f"  {place.instance}" if place.instance else "")
    return name, f"{format_bytes(place.device.expected):>10} of {format_bytes(place.limit_bytes)}"


def _batch_text(steps: int) -> str:
    return f"accumulating {steps} times, for the same global batch" if steps else "with another global batch"


def format_markdown(report: EstimateReport) -> str:
    """Format an estimate as Markdown."""
    estimate = report.estimate
    lines = [f"### {report.subject}", ""]
    if report.id and report.id != report.subject:
        lines += [f"`{report.id}`", ""]
    rest = [f"- {line.strip()}" for line in _joined(_doubts(report.doubts))]
    if report.doubts.unselected:
        lines += [*(f"- {text}" for text in report.doubts.unselected), ""]
    if not estimate.phases and estimate.verdict.primary is not None:
        return "\n".join([*lines, f"No estimate: {estimate.verdict.primary}", *(["", *rest] if rest else []), ""])
    if not estimate.phases:
        needs = "No estimate: it needs " + ", ".join(f"`{name}`" for name in estimate.needs)
        rest += [f"- {wall_text(wall)}" for wall in report.walls]
        return "\n".join([*lines, needs, *(["", *rest] if rest else []), ""])
    outcome, _, text = headline(report).partition(": ")
    lines += [f"**{outcome}**: {text} (estimated)", ""]
    capacity = capacity_text(estimate)
    if capacity:
        lines += [capacity, ""]
    names = [name_phase(phase) for phase in estimate.phases]
    lines += ["| component | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    labels = list(dict.fromkeys((part.role, part.name) for phase in estimate.phases for part in phase.components))
    for role, name in labels:
        sizes = [
            total(part.size for part in phase.components if (part.role, part.name) == (role, name)).expected
            for phase in estimate.phases
        ]
        if any(sizes):
            label = name if role == "train" else f"{role}: {name}"
            lines.append(f"| {label} | " + " | ".join(format_bytes(size) if size else "" for size in sizes) + " |")
    lines.append(
        "| **all** | " + " | ".join(f"**{format_bytes(phase.size.expected)}**" for phase in estimate.phases) + " |"
    )
    lines.append("")
    lines += [f"- assumed `{entry.fact}` = {entry.value}: {entry.reason}" for entry in estimate.assumptions]
    lines += [f"- not modelled: {left.name} ({left.direction}): {left.reason}" for left in estimate.unmodelled]
    for one in report.suggestions:
        words = " + ".join(map(change_text, one.changes))
        lines.append(
            f"- {words}: saves {format_bytes(one.saved_bytes)}, then {say_outcome(one.outcome, one.unless)}; {one.effect}"
        )
    lines += [f"- {line}" for line in regression_lines(estimate)]
    lines += rest
    return "\n".join(lines) + "\n"


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Undo the wrapping of a section of the text: entries have four spaces in front, what continues them more."""
    entry = ""
    for line in lines:
        if line.startswith("      "):
            entry += " " + line.strip()
        else:
            if entry.startswith("    "):
                yield entry
            entry = line
    if entry.startswith("    "):
        yield entry


def format_json(reports: Sequence[EstimateReport]) -> str:
    """Format estimates as JSON."""
    return json.dumps({"schema_version": "1", "subjects": [describe(report) for report in reports]}, indent=2) + "\n"


def describe(report: EstimateReport) -> dict[str, Any]:
    """Return an estimate as a JSON object."""
    estimate = report.estimate
    return {
        "id": report.id or report.subject,
        "job": report.subject,
        "unresolved": [
            {"fact": name, "source": str(place), "reason": why} for name, place, why in report.doubts.unresolved
        ],
        "conflicts": [
            {"fact": name, "values": [{"value": value, "source": str(place)} for value, place in values]}
            for name, values in report.doubts.conflicts
        ],
        "not_read": [{"source": str(place), "reason": why} for place, why in report.doubts.gaps],
        "not_selected": list(report.doubts.unselected),
        "unread_keys": [str(place) for place in report.doubts.unread],
        "needs": list(estimate.needs),
        "details": list(report.details),
        "estimate": describe_estimate(estimate),
        "suggestions": [describe_suggestion(one) for one in report.suggestions],
        "walls": [wall._asdict() | {"points": [list(point) for point in wall.points]} for wall in report.walls],
        "placements": [place._asdict() | {"device": _size(place.device)} for place in report.placements],
        "no_placement": report.no_placement or None,
    }


def describe_estimate(estimate: Estimate) -> dict[str, Any] | None:
    """Return the estimate of the report's contract; None when there is none."""
    if not estimate.phases:
        return None
    verdict = estimate.verdict
    return {
        "method": estimate.method,
        "peak_bytes": _size(estimate.device),
        "needed_bytes": _size(estimate.needed),
        "allocated_bytes": _size(estimate.allocated),
        "reserved_bytes": _size(estimate.reserved),
        **pick(verdict, "limit_bytes margin_bytes"),
        "verdict": verdict.outcome,
        **pick(verdict, "primary contributing ruled_out verify condition"),
        "phases": [
            {
                **pick(phase, "name role"),
                "bytes": _size(phase.size),
                "components": [
                    {**pick(part, "name kind role"), "bytes": _size(part.size), **pick(part, "formula source facts")}
                    for part in phase.components
                ],
            }
            for phase in estimate.phases
        ],
        "assumptions": [pick(one, "fact value reason") for one in estimate.assumptions],
        "unmodelled": [one._asdict() for one in estimate.unmodelled],
        "needs": list(estimate.needs),
        "regressions": list(map(_regression, estimate.regressions)),
        "possible_regressions": list(map(_regression, estimate.possible)),
        "without_regressions": None
        if estimate.without is None
        else {"needed_bytes": _size(estimate.without.needed), "verdict": estimate.without.verdict.outcome},
        "capacity": None
        if estimate.capacity is None
        else {"tokens": _size(estimate.capacity.tokens), "length": estimate.capacity.length},
    }


def _regression(one: Regression) -> dict[str, Any]:
    return {"rule": one.rule_id, "role": one.role, "phase": one.phase, "bytes": _size(one.size), "in_peak": one.adds}


def _size(size: Size) -> dict[str, int]:
    return size._asdict()
