"""Pictures of an estimate: what each phase holds, the peak against a setting, memory over time. Needs matplotlib."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import UsageError
from compatcheck.core.programs import LED_ASTRAY, is_led_astray
from compatcheck.core.units import GIB, format_bytes
from compatcheck.reporters.estimate import headline, name_phase
from compatcheck.reporters.figure import COLOURS, HATCHED, LIMIT, check_picture, kind_text, make_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.core.estimate_report import EstimateReport
    from compatcheck.core.suggestions import Wall

_TITLE = 100
"""Characters of a line of the title."""
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}
SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: str) -> None:
    """Check that a picture can be drawn into this file, before anything is computed.

    Raises:
        UsageError: its suffix says another format, its directory cannot be written, or matplotlib is missing.
    """
    check_picture(path, SUFFIXES)
    from importlib.util import find_spec  # noqa: PLC0415 (only with --plot)

    if find_spec("matplotlib") is None:
        from compatcheck.core.installation import tell_remedy  # noqa: PLC0415 (only where it is missing)

        raise UsageError("--plot needs matplotlib", hint=tell_remedy("matplotlib"))


def write_plot(report: EstimateReport, path: str, timeline: Sequence[tuple[int, int, int]] = ()) -> None:
    """Draw an estimate into a file.

    One picture per thing known: components stacked by phase, one curve per wall with the limit drawn, and memory over time
    where the run was traced.

    Raises:
        UsageError: another suffix, or matplotlib is missing.
    """
    check_plot(path)
    if is_led_astray(path):
        raise UsageError(f"--plot {path} is not written: {LED_ASTRAY}", hint="name another file")
    from matplotlib.figure import Figure  # noqa: PLC0415 (heavy, and an extra)

    phases = len(report.estimate.phases)
    heights = [1.6 + 0.55 * phases, *(3.6 for _ in report.walls), *([3.6] if timeline else [])]
    figure = Figure(figsize=(9, sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    limit = report.estimate.verdict.limit_bytes
    _draw_phases(axes[0], report, limit)
    for axis, wall in zip(axes[1:], report.walls, strict=False):
        _draw_wall(axis, wall, limit)
    if timeline:
        _draw_timeline(axes[-1], timeline, limit)
    figure.savefig(path, dpi=150)


def _draw_phases(axis: Any, report: EstimateReport, limit: int | None) -> None:  # noqa: ANN401 (matplotlib is untyped here)
    bars = [make_bar(name_phase(phase), phase) for phase in report.estimate.phases]
    lines = range(len(bars))
    lefts = [0.0] * len(bars)
    for kind in COLOURS:
        widths = [sum(part.size for part in bar.parts if part.kind == kind) / GIB for bar in bars]
        if any(widths):
            shown: dict[str, Any] = {"color": COLOURS[kind], "edgecolor": "white"}
            if kind in HATCHED:
                shown = {"color": "white", "edgecolor": COLOURS[kind], "hatch": "////"}
            axis.barh(lines, widths, left=lefts, height=0.6, label=kind_text(kind), linewidth=0.6, **shown)
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    needed = [bar.size for bar in bars]
    lows, highs = (
        [(size.expected - size.low) / GIB for size in needed],
        [(size.high - size.expected) / GIB for size in needed],
    )
    below, ends = [line + 0.38 for line in lines], [size.expected / GIB for size in needed]
    axis.errorbar(ends, below, xerr=[lows, highs], fmt="none", ecolor="black", capsize=3, linewidth=1)
    widest = max([*lefts, *(size.high / GIB for size in needed), (limit or 0) / GIB])
    for line, size in enumerate(needed):
        axis.annotate(
            format_bytes(size.expected), (widest * 1.02, line), va="center", fontsize=9, annotation_clip=False
        )
    axis.set_xlim(0, widest * 1.15)
    axis.set_yticks(lines, [bar.label for bar in bars])
    axis.invert_yaxis()
    if limit is not None:
        axis.axvline(limit / GIB, color=LIMIT, linewidth=1.4)
        place = {"xy": (limit / GIB, 1), "xycoords": ("data", "axes fraction"), "xytext": (0, 3)}
        words = f"device {format_bytes(limit)}"
        axis.annotate(words, **place, textcoords="offset points", ha="center", fontsize=9, color=LIMIT)
    axis.set_xlabel("GiB a device, estimated; the range of what is needed below each bar")
    axis.set_title("\n".join([report.subject, *wrap(headline(report), _TITLE)]), fontsize=10, pad=16)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.6 / (0.55 * len(bars))), ncols=4, fontsize=8, frameon=False)


def _draw_wall(axis: Any, wall: Wall, limit: int | None) -> None:  # noqa: ANN401 (see _draw_phases)
    points = dict(wall.points)
    axis.plot(
        list(points), [size / GIB for size in points.values()], color=COLOURS["activations"], marker=".", markersize=4
    )
    _draw_limit(axis, limit)
    axis.set_ylim(0, 1.2 * max([limit or GIB, *points.values()]) / GIB)
    axis.set_xlim(0, 1.03 * max(points, default=1))
    shown = ((wall.fits, "fits", "o", 10), (wall.current, "this run", "D", -20))
    for value, words, marker, above in shown if wall.fits != wall.current else shown[1:]:
        if value is None or value not in points:
            continue
        size = points[value]
        axis.plot([value], [size / GIB], marker=marker, color="black")
        text = f"{value:,} {words}, {format_bytes(size)}"
        side = "right" if value > max(points) / 2 else "left"
        place = {"xytext": (0, above), "textcoords": "offset points", "ha": side, "bbox": _PAPER}
        axis.annotate(text, (value, size / GIB), **place, fontsize=8)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel(wall.fact)
    axis.set_ylabel("GiB needed a device")


def _draw_timeline(axis: Any, timeline: Sequence[tuple[int, int, int]], limit: int | None) -> None:  # noqa: ANN401 (see _draw_phases)
    times = [event for event, _, _ in timeline]
    axis.fill_between(times, [size / GIB for _, size, _ in timeline], color=COLOURS["gradients"], label="allocated")
    axis.plot(times, [size / GIB for _, _, size in timeline], color=COLOURS["context"], label="reserved")
    _draw_limit(axis, limit)
    axis.set_xlabel("allocator events")
    axis.set_ylabel("GiB a device")
    axis.legend(fontsize=8, frameon=False)


def _draw_limit(axis: Any, limit: int | None) -> None:  # noqa: ANN401 (see _draw_phases)
    if limit is not None:
        axis.axhline(limit / GIB, color=LIMIT, linewidth=1.2)
        axis.annotate(
            f"{limit / GIB:.1f} GiB", (1, limit / GIB), xycoords=("axes fraction", "data"), xytext=(-4, 3),
            textcoords="offset points", ha="right", fontsize=8, color=LIMIT,
        )  # fmt: skip
