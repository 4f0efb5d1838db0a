"""Figures as SVG: memory of a device in stacked bars against its limit, and a number over releases in steps."""

from __future__ import annotations

import os
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from compatcheck.core.columns import fill
from compatcheck.core.errors import UsageError
from compatcheck.core.estimate import KINDS, total
from compatcheck.core.language import translate
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import GIB, KIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from compatcheck.core.estimate import Component, Phase, Size

COLOURS = {
    "parameters": "#2364aa", "gradients": "#5b9bd5", "optimizer_states": "#a9cdee", "activations": "#c55a11",
    "logits": "#f4a261", "masks": "#ffd966", "communication": "#4f8a3c", "live_parameters": "#a3d18a", "kv_cache": "#8a4fbf",
    "whole": "#6b7f94",
    "workspace": "#b9a9dd", "context": "#8a8a8a", "other": "#5c5c5c", "regression": "#c00000", "reserve": "#9a9a9a",
}  # fmt: skip
"""One colour per kind, as they stack: model state blue, what grows with tokens orange, communication green, the rest grey; then
a need of unknown parts, what a regression takes, so that it is what crosses the limit, and what the allocator caches."""
LIMIT = "#c00000"

STYLE = """\
.figure { display: block; width: 100%; overflow: visible; font: 13px system-ui, sans-serif; }
.figure { --ink: #1b1f24; --edge: #fff; --limit: #c00000; }
.figure text { fill: var(--ink); stroke: var(--edge); stroke-width: 3px; stroke-linejoin: round; paint-order: stroke; }
.figure .small { font-size: 11px; }
.figure .number { font-variant-numeric: tabular-nums; }
.figure .limit { stroke: var(--limit); stroke-width: 2; }
.figure .limit-text { fill: var(--limit); font-weight: 600; }
.figure .grid { stroke: var(--ink); stroke-opacity: .18; }
.figure .range { stroke: var(--ink); stroke-width: 1.5; }
.figure .border { stroke: var(--ink); stroke-width: 2; }
.figure .step { stroke: #2364aa; stroke-width: 3; }
.figure .part { stroke: var(--edge); stroke-width: 1; }
.figure .hatch-red { stroke: #c00000; stroke-width: 4; }
.figure .hatch-grey { stroke: #9a9a9a; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
.figure { --ink: #e6e9ee; --edge: #14181d; --limit: #ff8a80; }
.figure .step { stroke: #7ab8ff; }
.figure .hatch-red { stroke: #ff6b60; }
}
@media print { .figure { --ink: #000; --edge: #fff; --limit: #c00000; } }
"""
"""Colours of figures in the light, in the dark and on paper; a page has it once, a picture alone in itself."""

_HATCHES = (
    '<defs><pattern id="{0}-regression" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hatch-red" d="M2 0V8"/></pattern><pattern id="{0}-reserve" width="7" height="7" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch-grey" d="M1 0V7"/></pattern></defs>'
)
HATCHED = ("regression", "reserve")
"""Kinds behind those of all roles, hatched."""
_TICKS = 5
"""Most marks of an axis."""
_APART = 14
"""How far labels of steps are apart in height where they stand above each other."""
_LETTER = 2.1
"""Width of a letter of a label in percent of that of a phone."""
_LINE = 38
"""Characters of a line of a label, which has to fit a phone beside the number."""


class Figure(NamedTuple):
    """A drawn figure."""

    title: str
    svg: str
    height: float
    """In pixels; it is as wide as there is room."""


class Part(NamedTuple):
    """One stretch of a bar."""

    role: str
    kind: str
    """One of `compatcheck.core.estimate.KINDS`, or ``whole``."""
    size: int


class Bar(NamedTuple):
    """What is resident at one instant, in one line of a figure."""

    label: str
    parts: tuple[Part, ...]
    size: Size
    """What is told of it, with the range it is believed to lie in."""


def make_bar(label: str, phase: Phase, without: Collection[str] = ()) -> Bar:
    """Return the bar of a phase: kinds side by side, role by role, then regressions and the allocator's cache.

    Args:
        label: what it is called.
        phase: what is resident; its size is told without the cache, which is not needed.
        without: kinds to leave out.
    """
    components = [part for part in sorted(phase.components, key=_order) if part.kind not in without]
    sizes: dict[tuple[str, str], list[Size]] = {}
    for part in components:
        sizes.setdefault((part.role, part.kind), []).append(part.size)
    parts = (Part(role, kind, total(found).expected) for (role, kind), found in sizes.items())
    told = total(part.size for part in components if part.kind != "reserve")
    return Bar(label, tuple(part for part in parts if part.size), told)


def _order(part: Component) -> tuple[int, str, int]:
    last = HATCHED.index(part.kind) + 1 if part.kind in HATCHED else 0
    return last, part.role, KINDS.index(part.kind)


def kind_text(kind: str) -> str:
    """Write a kind of components in words."""
    words = {
        "regression": "known regression",
        "reserve": "allocator cache",
        "kv_cache": "KV cache",
        "whole": "all that is needed",
    }
    return words.get(kind, kind.replace("_", " "))


def draw_bars(name: str, title: str, bars: Sequence[Bar], limit: int | None, *, what: str = "needed") -> Figure:
    """Draw bars below each other as an SVG element that is as wide as there is room, with letters that keep their size.

    Args:
        name: identifier of the figure in its page.
        title: what it shows.
        bars: from the first to the last line.
        limit: bytes of a device, drawn through all of them; None where it is not known.
        what: what the number of a bar says.
    """
    widest = max([limit or 0, *(max(bar.size.high, sum(part.size for part in bar.parts)) for bar in bars), 1])
    ticks = choose_ticks(widest)
    scale = 100 / max(widest * 1.02, ticks[-1])
    shapes: list[str] = []
    texts: list[str] = []
    spans: list[tuple[float, float]] = []
    first = top = 6.0 if limit is None else 26.0
    for bar in bars:
        lines = fill(translate(bar.label), _LINE) or [""]
        texts += [draw_text("0", top + 13 + 16 * index, line) for index, line in enumerate(lines)]
        texts.append(draw_text("100%", top + 13, format_bytes(bar.size.expected), end=True, kind="number"))
        top += 16 * len(lines) + 3
        spans.append((top - 3, top + 32))
        shapes += _draw_parts(name, bar, top, scale)
        low, high = bar.size.low * scale, bar.size.high * scale
        if low < high:
            marks = ((low, low, 25, 31), (high, high, 25, 31), (low, high, 28, 28))
            shapes += [draw_line(x, y + top, to, end + top, "range") for x, to, y, end in marks]
        roles = _find_roles(bar)
        if len(roles) > 1:
            texts.append(draw_text("0", top + 44, " | ".join(roles), kind="small"))
            shapes += [
                draw_line(start * scale, top - 4, start * scale, top + 26, "border") for start in [*roles.values()][1:]
            ]
        top += 56 if len(roles) > 1 else 42
    grid = [draw_line(tick * scale, first, tick * scale, top, "grid") for tick in ticks]
    for tick in ticks:
        end = tick * scale > 90
        text = f"{tick / GIB:g}" + (" GiB" if tick == ticks[-1] else "")
        middle = bool(tick) and not end
        texts.append(draw_text(f"{tick * scale:.3f}%", top + 14, text, end=end, middle=middle, kind="small number"))
    if limit is not None:
        x = limit * scale
        # Only beside the bars: a label may be as long as the figure is wide.
        shapes += [draw_line(x, start, x, end, "limit") for start, end in [(20, 26), *spans, (top - 4, top)]]
        texts.append(draw_text(f"{x:.3f}%", 14, f"device {format_bytes(limit)}", end=x > 50, kind="limit-text"))
    kinds = [kind for kind in COLOURS if any(part.kind == kind for bar in bars for part in bar.parts)]
    top += 24
    for index, kind in enumerate(kinds):
        x, y = 50 * (index % 2), top + 18 * (index // 2)
        shapes.append(f'<rect class="part" x="{x}%" y="{y:g}" width="14" height="12" {_paint(name, kind)}/>')
        words = draw_text("20", 11, kind_text(kind), kind="small")
        texts.append(f'<svg x="{x}%" y="{y:g}" overflow="visible">{words}</svg>')
    top += 18 * -(-len(kinds) // 2)
    said = "; ".join(f"{bar.label}: {format_bytes(bar.size.expected)}" for bar in bars)
    told = f"{what.capitalize()} on one device{'' if limit is None else f' of {format_bytes(limit)}'}: {said}."
    return wrap_shapes(name, title, told, top + 4, _HATCHES.format(name) + "".join([*grid, *shapes, *texts]))


def _draw_parts(name: str, bar: Bar, top: float, scale: float) -> Iterator[str]:
    start = 0.0
    for part in bar.parts:
        kind = translate(kind_text(part.kind))
        words = f"{part.role}{translate(': ')}{kind} {format_bytes(part.size)}"
        yield (
            f'<rect class="part" x="{start:.3f}%" y="{top}" width="{part.size * scale:.3f}%" height="22" '
            f"{_paint(name, part.kind)}><title>{escape(words)}</title></rect>"
        )
        start += part.size * scale


def _paint(name: str, kind: str) -> str:
    return f'fill="url(#{name}-{kind})"' if kind in HATCHED else f'fill="{COLOURS[kind]}"'


def _find_roles(bar: Bar) -> dict[str, int]:
    """Return each role of a bar, from the left, with the bytes before it."""
    roles: dict[str, int] = {}
    start = 0
    for part in bar.parts:
        if part.kind not in HATCHED:
            roles.setdefault(part.role, start)
        start += part.size
    return roles


def draw_steps(
    name: str, title: str, points: Sequence[tuple[str, float]], tell: Callable[[float], str] | None = None
) -> Figure:
    """Draw bytes over releases as steps: a column for each release, its number and name where the bytes change and there is room.

    Args:
        name: identifier of the figure in its page.
        title: what it shows.
        points: release and number, oldest first.
        tell: writes a number; None where they are bytes.
    """
    tell = tell or tell_bytes
    highest, width = max([value for _, value in points] or [0]) or 1, 100 / max(len(points), 1)
    shapes, texts = [draw_line(0, 120, 100, 120, "grid")], []
    before: float | None = None
    heights = [120 - 90 * value / highest for _, value in points]
    labelled: list[tuple[float, float, float]] = []

    def is_free(left: float, right: float, base: float) -> bool:
        """Tell whether a label there meets no other one, and no step but one that begins or ends beside it."""
        if any(abs(base - other) <= _APART and left <= last and right >= first for first, last, other in labelled):
            return False
        drawn = [one for index, one in enumerate(heights) if index * width < right and (index + 1) * width > left]
        return not any(min(pair) < base + 2 and max(pair) > base - 11 for pair in pairwise([*drawn[:1], *drawn]))

    for index, (release, value) in enumerate(points):
        x, y = index * width, heights[index]
        shapes.append(draw_line(x, y, x + width, y, "step", f"{release}: {tell(value)}"))
        if before is not None and before != value:
            shapes.append(draw_line(x, heights[index - 1], x, y, "step"))
        label = f"{release}: {tell(value)}"
        wide = len(label) * _LETTER
        end = x + 1 + wide > 100  # only where it has no room
        left = x - 1 - wide if end else x + 1  # beside the step to it
        above, below = y - 6, y + 15
        places = (above, below) if below < 118 else (above,)
        base = next((one for one in places if before != value and is_free(left, left + wide, one)), None)
        if base is not None:
            labelled.append((left, left + wide, base))
            place = f"{left + wide if end else left:.3f}%"
            texts.append(draw_text(place, base, label, end=end, kind="small number"))
        before = value
    texts += [
        draw_text("0", 136, points[0][0], kind="small"),
        draw_text("100%", 136, points[-1][0], end=True, kind="small"),
    ]
    said = "; ".join(f"{release} {tell(value)}" for release, value in points)
    return wrap_shapes(name, title, said + ".", 144, "".join([*shapes, *texts]))


def tell_bytes(count: float) -> str:
    """Format bytes; of the few bytes of a logit the fraction counts."""
    return format_bytes(count) if count == int(count) or count >= KIB else f"{count:.4g} B"


def choose_ticks(widest: int) -> list[int]:
    """Return marks of an axis from 0 on, at round numbers of GiB."""
    step = next(
        unit * 10**power for power in range(-3, 9) for unit in (1, 2, 5) if unit * 10**power * GIB * _TICKS >= widest
    )
    return [round(index * step * GIB) for index in range(_TICKS + 1) if index * step * GIB <= widest * 1.02] or [0]


def draw_text(x: str, y: float, text: str, *, end: bool = False, middle: bool = False, kind: str = "") -> str:
    """Write a text; ``x`` with its unit, ``y`` in pixels, ``kind`` one of the classes of `STYLE`."""
    anchor = ' text-anchor="end"' if end else ' text-anchor="middle"' if middle else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y:g}"{anchor}{named}>{escape(translate(text))}</text>'


def draw_line(x: float, y: float, to: float, end: float, kind: str, title: str = "") -> str:
    """Draw a line; across in percent, down in pixels."""
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<line class="{kind}" x1="{x:.3f}%" y1="{y:g}" x2="{to:.3f}%" y2="{end:g}">{told}</line>'


def wrap_shapes(name: str, title: str, said: str, height: float, body: str) -> Figure:
    """Make a figure of shapes: ``said`` is all it shows, in words."""
    told = translate(said.removesuffix(".")) + ("." if said.endswith(".") else "")
    head = f'<title id="{name}-title">{escape(translate(title))}</title><desc id="{name}-desc">{escape(told)}</desc>'
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" role="img" aria-labelledby="{name}-title {name}-desc"'
    )
    return Figure(title, f'{start} height="{height:g}">{head}{body}</svg>', height)


def check_picture(path: str) -> None:
    """Check that a picture can be drawn into this file, before anything is computed.

    Raises:
        UsageError: its suffix says another format, or its directory cannot be written.
    """
    if os.path.splitext(path)[1].lower() != ".svg":
        hint = "name a file such as memory.svg"
        raise UsageError(f"--plot writes .svg, not {os.path.basename(path)!r}", hint=hint)
    directory = os.path.dirname(path) or os.curdir
    if os.path.isdir(path) or not os.path.isdir(directory) or not os.access(directory, os.W_OK):
        raise UsageError(
            f"--plot {path}: " + ("is a directory" if os.path.isdir(path) else f"cannot write into {directory}"),
            hint="name a file in a directory that is there",
        )


def make_picture(figures: Sequence[Figure]) -> str:
    """Return a picture of its own with figures below each other, each under its title."""
    top, parts = 0.0, []
    for figure in figures:
        parts.append(f'<text class="heading" x="20" y="{top + 30:g}">{escape(translate(figure.title))}</text>')
        parts.append(f'<svg x="20" y="{top + 44:g}" width="760" height="{figure.height:g}">{figure.svg}</svg>')
        top += figure.height + 64
    size = f'viewBox="0 0 800 {top:g}" width="800" height="{top:g}"'
    style = f"<style>{STYLE}.paper {{ fill: var(--edge); }} .figure .heading {{ font-weight: 600; }}</style>"
    body = f'<rect class="paper" width="800" height="{top:g}"/>{"".join(parts)}'
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" {size}>{style}{body}</svg>\n'
