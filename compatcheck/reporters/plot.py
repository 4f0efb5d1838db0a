"""Pictures of an estimate: what each phase holds, the peak against a setting, memory over time. Needs matplotlib."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import UsageError
from compatcheck.core.estimate import KINDS, total
from compatcheck.core.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.core.estimate_report import EstimateReport
    from compatcheck.core.suggestions import Wall

_COLOURS = {
    "parameters": "#1f4e79", "gradients": "#2e75b6", "optimizer_states": "#9dc3e6", "activations": "#c55a11",
    "logits": "#f4b183", "masks": "#ffd966", "communication": "#548235", "live_parameters": "#a9d18e", "kv_cache": "#7030a0",
    "workspace": "#b4a7d6", "regression": "#ffffff", "context": "#7f7f7f", "reserve": "#d0cece", "other": "#404040",
}  # fmt: skip
"""One colour per kind: model state blue, what grows with tokens orange, communication green, the rest grey."""
_LIMIT = "#c00000"
SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: str) -> None:
    """Check that a picture can be drawn into this file, before anything is computed.

    Raises:
        UsageError: its suffix says another format, its directory cannot be written, or matplotlib is missing.
    """
    if os.path.splitext(path)[1].lower() not in SUFFIXES:
        raise UsageError(
            f"--plot writes {', '.join(SUFFIXES)}, not {os.path.basename(path)!r}",
            hint="name a file such as memory.png",
        )
    directory = os.path.dirname(path) or os.curdir
    if os.path.isdir(path) or not os.path.isdir(directory) or not os.access(directory, os.W_OK):
        raise UsageError(
            f"--plot {path}: " + ("is a directory" if os.path.isdir(path) else f"cannot write into {directory}"),
            hint="name a file in a directory that is there",
        )
    from importlib.util import find_spec  # noqa: PLC0415 (only with --plot)

    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib", hint="pip install 'compatcheck[plot]'")


def write_plot(report: EstimateReport, path: str, timeline: Sequence[tuple[int, int, int]] = ()) -> None:
    """Draw an estimate into a file.

    One picture per thing known: components stacked by phase, one curve per wall with the limit drawn, and memory over time
    where the run was traced.

    Raises:
        UsageError: another suffix, or matplotlib is missing.
    """
    check_plot(path)
    from matplotlib.figure import Figure  # noqa: PLC0415 (heavy, and an extra)

    rows = 1 + len(report.walls) + bool(timeline)
    figure = Figure(figsize=(9, 4.2 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
    limit = report.estimate.verdict.limit_bytes
    _draw_phases(axes[0], report, limit)
    for axis, wall in zip(axes[1:], report.walls, strict=False):
        _draw_wall(axis, wall, limit)
    if timeline:
        _draw_timeline(axes[-1], timeline, limit)
    figure.savefig(path, dpi=150)


def _draw_phases(axis: Any, report: EstimateReport, limit: int | None) -> None:  # noqa: ANN401 (matplotlib is untyped here)
    phases = report.estimate.phases
    names = [phase.name if phase.role == "train" else f"{phase.role}\n{phase.name}" for phase in phases]
    bottoms = [0.0] * len(phases)
    for kind in KINDS:
        heights = [
            total(part.size for part in phase.components if part.kind == kind).expected / GIB for phase in phases
        ]
        if any(heights):
            label = kind.replace("_", " ")
            known = {"hatch": "///", "edgecolor": _LIMIT} if kind == "regression" else {}
            axis.bar(names, heights, bottom=bottoms, label=label, color=_COLOURS[kind], width=0.6, **known)
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    lows = [(phase.size.expected - phase.size.low) / GIB for phase in phases]
    highs = [(phase.size.high - phase.size.expected) / GIB for phase in phases]
    axis.errorbar(names, bottoms, yerr=[lows, highs], fmt="none", ecolor="black", capsize=4, linewidth=1)
    _draw_limit(axis, limit)
    axis.set_ylabel("GiB a device (estimated)")
    axis.set_title(report.subject, fontsize=10)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)


def _draw_wall(axis: Any, wall: Wall, limit: int | None) -> None:  # noqa: ANN401 (see _draw_phases)
    axis.plot(
        [value for value, _ in wall.points], [size / GIB for _, size in wall.points], color=_COLOURS["activations"]
    )
    _draw_limit(axis, limit)
    if wall.fits is not None and wall.fails is not None:
        axis.axvline(wall.fits, color="black", linewidth=0.8, linestyle=":")
        axis.annotate(f"{wall.fits:,} fits", (wall.fits, 0), xytext=(4, 6), textcoords="offset points", fontsize=8)
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.set_xlabel(wall.fact)
    axis.set_ylabel("peak of what is needed, GiB a device")


def _draw_timeline(axis: Any, timeline: Sequence[tuple[int, int, int]], limit: int | None) -> None:  # noqa: ANN401 (see _draw_phases)
    times = [event for event, _, _ in timeline]
    axis.fill_between(times, [size / GIB for _, size, _ in timeline], color=_COLOURS["gradients"], label="allocated")
    axis.plot(times, [size / GIB for _, _, size in timeline], color=_COLOURS["context"], label="reserved")
    _draw_limit(axis, limit)
    axis.set_xlabel("allocator events")
    axis.set_ylabel("GiB a device")
    axis.legend(fontsize=8, frameon=False)


def _draw_limit(axis: Any, limit: int | None) -> None:  # noqa: ANN401 (see _draw_phases)
    if limit is not None:
        axis.axhline(limit / GIB, color=_LIMIT, linewidth=1.2)
        axis.annotate(
            f"{limit / GIB:.1f} GiB", (1, limit / GIB), xycoords=("axes fraction", "data"), xytext=(-4, 3),
            textcoords="offset points", ha="right", fontsize=8, color=_LIMIT,
        )  # fmt: skip
