"""An estimate for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from compatcheck.core.estimate import KINDS, Size, total
from compatcheck.core.summary import value_text
from compatcheck.core.units import GIB, TIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.estimate import Component, Estimate, Phase
    from compatcheck.core.suggestion import Placement, Suggestion, Wall

_WIDTH = 80
_BAR = 22
_OUTCOMES = {
    "fits": "fits",
    "marginal": "marginal",
    "does_not_fit": "does not fit",
    "unknown": "no device to compare with",
}


class EstimateReport:
    """What one subject's estimate says, with all that was asked for beside it."""

    def __init__(
        self,
        subject: str,
        estimate: Estimate,
        *,
        suggestions: Sequence[Suggestion] = (),
        walls: Sequence[Wall] = (),
        placements: Sequence[Placement] = (),
    ) -> None:
        """Keep the parts."""
        self.subject = subject
        self.estimate = estimate
        self.suggestions = tuple(suggestions)
        self.walls = tuple(walls)
        self.placements = tuple(placements)
        self.details: tuple[str, ...] = ()
        """Sentences about how it became known."""
        self.timeline: tuple[tuple[int, int, int], ...] = ()
        """Event, allocated bytes and reserved bytes of a traced run."""


def format_text(report: EstimateReport, *, verbose: int = 0) -> str:
    """Format an estimate for a terminal of 80 columns."""
    return "\n".join(line.rstrip() for line in _lines(report, verbose)) + "\n"


def _lines(report: EstimateReport, verbose: int) -> Iterator[str]:
    estimate = report.estimate
    yield report.subject
    if not estimate.phases and estimate.verdict.primary is not None:
        yield from wrap(
            f"no estimate: {estimate.verdict.primary}", _WIDTH, initial_indent="  ", subsequent_indent="    "
        )
        return
    if not estimate.phases:
        yield "  no estimate: it needs"
        model = [name for name in estimate.needs if name.startswith("model.")]
        if len(model) > 1:
            yield "    the model   (name it: --model CONFIG.JSON, a directory or a known id)"
        for name in estimate.needs:
            if len(model) <= 1 or name not in model:
                yield f"    {name}   (state it: --set {name}=…)"
        return
    yield ""
    yield from _verdict(estimate)
    yield ""
    peak = estimate.peak_phase
    assert peak is not None  # noqa: S101 (there are phases)
    yield from _phase(peak, verbose)
    yield ""
    yield from _instants(estimate, peak)
    for detail in report.details:
        yield from wrap(detail, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    yield from _reasons(estimate)
    yield from _unknowns(estimate)
    for lines in (_suggestions(report.suggestions), _walls(report.walls), _placements(report.placements)):
        yield from lines


def _verdict(estimate: Estimate) -> Iterator[str]:
    verdict, size = estimate.verdict, estimate.device
    text = f"{_OUTCOMES[verdict.outcome]}: {_range(size)} a device"
    if verdict.limit_bytes is not None and verdict.margin_bytes is not None:
        margin = verdict.margin_bytes
        rest = f"{format_bytes(margin)} left" if margin >= 0 else f"{format_bytes(-margin)} too much"
        text += f" of {format_bytes(verdict.limit_bytes)}, {rest}"
    yield from wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    if verdict.condition:
        yield from wrap(verdict.condition, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    text = f"allocated {_range(estimate.allocated)}, reserved {_range(estimate.reserved)}"
    yield from wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    yield f"  estimated, {'in closed form' if estimate.method == 'closed_form' else 'traced on fake tensors'}; not measured"


def _range(size: Size) -> str:
    if size.low == size.high:
        return format_bytes(size.expected)
    if size.high >= TIB:
        return f"{format_bytes(size.expected)} ({format_bytes(size.low)} to {format_bytes(size.high)})"
    return f"{format_bytes(size.expected)} ({size.low / GIB:.1f} to {size.high / GIB:.1f})"


def name_phase(phase: Phase) -> str:
    """Name a phase, with its role where there are several."""
    return phase.name if phase.role in {"train", phase.name} else f"{phase.role} {phase.name.replace('_', ' ')}"


def _phase(phase: Phase, verbose: int) -> Iterator[str]:
    yield f"  at the peak ({name_phase(phase)})"
    largest = max((part.size.expected for part in phase.components), default=0)
    for part in sorted(phase.components, key=_order):
        if not part.size.expected and not verbose:
            continue
        width = round(_BAR * part.size.expected / largest) if largest else 0
        label = part.name if len({other.role for other in phase.components}) == 1 else f"{part.role}: {part.name}"
        yield f"    {label[:34]:<34} {format_bytes(part.size.expected):>10}  {'█' * width}"
        if verbose:
            yield from wrap(f"= {part.formula}", _WIDTH, initial_indent="        ", subsequent_indent="          ")
        if verbose > 1:
            yield from wrap(f"[{part.source}]", _WIDTH, initial_indent="        ", subsequent_indent="          ")


def _order(part: Component) -> tuple[str, int]:
    return (part.role, KINDS.index(part.kind))


def _instants(estimate: Estimate, peak: Phase) -> Iterator[str]:
    parts = [
        f"{name_phase(phase)} {phase.needed.expected / GIB:.1f}" + (" (peak)" if phase is peak else "")
        for phase in estimate.phases
    ]
    text = "phases, GiB needed: " + " · ".join(parts)
    yield from wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _reasons(estimate: Estimate) -> Iterator[str]:
    verdict = estimate.verdict
    if verdict.primary:
        heading = "cause" if verdict.outcome in {"does_not_fit", "marginal"} else "largest"
        yield from wrap(f"{heading}: {verdict.primary}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    for heading, texts in (("contributing", verdict.contributing), ("ruled out", verdict.ruled_out)):
        if texts:
            yield from wrap(f"{heading}: {'; '.join(texts)}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    if verdict.verify:
        yield from wrap(f"verify: {verdict.verify}", _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _unknowns(estimate: Estimate) -> Iterator[str]:
    if estimate.assumptions:
        yield ""
        yield "  assumed"
        for entry in estimate.assumptions:
            text = f"{entry.fact} = {value_text(entry.value)}" + (f": {entry.reason}" if entry.reason else "")
            yield from wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="      ")
    if estimate.unmodelled:
        yield ""
        yield "  not modelled"
        for left in estimate.unmodelled:
            needs = {"more": "the run needs more", "less": "the run needs less", "either": "more or less"}[
                left.direction
            ]
            yield from wrap(
                f"{left.name} ({needs}): {left.reason}", _WIDTH, initial_indent="    ", subsequent_indent="      "
            )


def _suggestions(suggestions: Sequence[Suggestion]) -> Iterator[str]:
    if not suggestions:
        return
    yield ""
    yield "  what would help"
    for one in suggestions:
        words = " + ".join(change.words for change in one.changes)
        yield from wrap(words, _WIDTH, initial_indent="    ", subsequent_indent="    ")
        numbers = f"saves {format_bytes(one.saved_bytes)}, then {format_bytes(one.device.expected)}"
        yield f"      {numbers}: {_OUTCOMES[one.outcome]}; {one.effect}"
        for change in one.changes:
            if change.note:
                yield from wrap(change.note, _WIDTH, initial_indent="      ", subsequent_indent="        ")


def _walls(walls: Sequence[Wall]) -> Iterator[str]:
    if not walls:
        return
    yield ""
    yield "  how far it goes"
    for wall in walls:
        if wall.fits is None:
            text = f"{wall.fact}: not even {wall.step:,} fits"
        elif wall.fails is None:
            text = f"{wall.fact}: {wall.fits:,} fits, and no larger value was found that does not"
        else:
            text = f"{wall.fact}: {wall.fits:,} fits, {wall.fails:,} does not"
        text += f"; one more costs {format_bytes(wall.bytes_per_step)}"
        if wall.current is not None:
            text += f" (now {wall.current:,})"
        yield from wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="      ")


def _placements(placements: Sequence[Placement]) -> Iterator[str]:
    if not placements:
        return
    yield ""
    yield "  the smallest hardware it fits on"
    for place in placements:
        name = f"{place.gpus} × {place.gpu}" + (f"  {place.instance}" if place.instance else "")
        yield f"    {name:<44} {format_bytes(place.device.expected):>10} of {format_bytes(place.limit_bytes)}"


def format_markdown(report: EstimateReport, *, verbose: int = 0) -> str:  # noqa: ARG001 (one signature for all formats)
    """Format an estimate as Markdown."""
    estimate = report.estimate
    lines = [f"### {report.subject}", ""]
    if not estimate.phases and estimate.verdict.primary is not None:
        return "\n".join([*lines, f"No estimate: {estimate.verdict.primary}", ""])
    if not estimate.phases:
        return "\n".join([*lines, "No estimate: it needs " + ", ".join(f"`{name}`" for name in estimate.needs), ""])
    verdict = estimate.verdict
    limit = "" if verdict.limit_bytes is None else f" of {format_bytes(verdict.limit_bytes)}"
    lines += [f"**{_OUTCOMES[verdict.outcome]}**: {_range(estimate.device)} a device{limit} (estimated)", ""]
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
        words = " + ".join(change.words for change in one.changes)
        lines.append(f"- {words}: saves {format_bytes(one.saved_bytes)}, then {_OUTCOMES[one.outcome]}; {one.effect}")
    return "\n".join(lines) + "\n"


def format_json(reports: Sequence[EstimateReport]) -> str:
    """Format estimates as JSON."""
    return json.dumps({"schema_version": "1", "subjects": [describe(report) for report in reports]}, indent=2) + "\n"


def describe(report: EstimateReport) -> dict[str, Any]:
    """Return an estimate as a JSON object."""
    estimate = report.estimate
    return {
        "id": report.subject,
        "details": list(report.details),
        "estimate": describe_estimate(estimate),
        "suggestions": [
            {
                "changes": [
                    {"words": change.words, "facts": dict(change.facts), "effect": change.effect, "note": change.note}
                    for change in one.changes
                ],
                "device_bytes": _size(one.device),
                "saved_bytes": one.saved_bytes,
                "verdict": one.outcome,
                "effect": one.effect,
            }
            for one in report.suggestions
        ],
        "walls": [wall._asdict() | {"points": [list(point) for point in wall.points]} for wall in report.walls],
        "placements": [place._asdict() | {"device": _size(place.device)} for place in report.placements],
    }


def describe_estimate(estimate: Estimate) -> dict[str, Any] | None:
    """Return the estimate of the report's contract; None when there is none."""
    if not estimate.phases:
        return None
    verdict = estimate.verdict
    return {
        "method": estimate.method,
        "peak_bytes": _size(estimate.device),
        "allocated_bytes": _size(estimate.allocated),
        "reserved_bytes": _size(estimate.reserved),
        "limit_bytes": verdict.limit_bytes,
        "margin_bytes": verdict.margin_bytes,
        "verdict": verdict.outcome,
        "primary": verdict.primary,
        "contributing": list(verdict.contributing),
        "ruled_out": list(verdict.ruled_out),
        "verify": verdict.verify,
        "condition": verdict.condition,
        "phases": [
            {
                "name": phase.name,
                "role": phase.role,
                "bytes": _size(phase.size),
                "components": [
                    {
                        "name": part.name,
                        "kind": part.kind,
                        "role": part.role,
                        "bytes": _size(part.size),
                        "formula": part.formula,
                        "source": part.source,
                        "facts": list(part.facts),
                    }
                    for part in phase.components
                ],
            }
            for phase in estimate.phases
        ],
        "assumptions": [{"fact": one.fact, "value": one.value, "reason": one.reason} for one in estimate.assumptions],
        "unmodelled": [one._asdict() for one in estimate.unmodelled],
        "needs": list(estimate.needs),
    }


def _size(size: Size) -> dict[str, int]:
    return size._asdict()
