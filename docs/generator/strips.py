"""Strips: one line for each thing, over the releases of a package, in bands of what holds there."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.reporters.figure import Figure, draw_line, draw_text, wrap_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STYLE = """\
.figure .band { stroke: var(--edge); stroke-width: 1; }
.figure .none { fill: var(--ink); fill-opacity: .08; }
.figure .good { fill: #5b9bd5; fill-opacity: .45; }
.figure .doubt { fill: #8a8a8a; fill-opacity: .55; }
.figure .bad { fill: #d1390f; }
"""
"""Colours of bands; each also has its text."""
_MARKS = 5
"""Releases named below."""
_NARROW = 340
"""Width in pixels for which texts of bands are chosen: a phone."""
_LETTER = 6.6
_GAP = 6
"""Pixels between two names of releases."""
_LONGEST = 56
"""Letters of a label, which has to fit that width."""


class Band(NamedTuple):
    """Neighbouring releases of which the same holds."""

    first: int
    """Place among the releases."""
    last: int
    kind: str
    """A class of `STYLE`."""
    text: str
    """What holds, shown where there is room."""
    strength: float = 0.7
    """How strongly a bad one is coloured."""


class Strip(NamedTuple):
    """One line."""

    label: str
    bands: tuple[Band, ...]


def draw_strips(name: str, title: str, releases: Sequence[str], strips: Sequence[Strip]) -> Figure:
    """Draw strips below each other over the same releases, each as wide as the next.

    Args:
        name: identifier of the figure in its page.
        title: what it shows.
        releases: of one package, oldest first.
        strips: what holds of which.
    """
    width, top, parts, said = 100 / len(releases), 0.0, [], []
    for strip in strips:
        label = strip.label if len(strip.label) <= _LONGEST else f"{strip.label[: _LONGEST - 1]}…"
        parts.append(draw_text("0", top + 13, label, kind="small"))
        top += 18
        for band in strip.bands:
            parts += _draw_band(band, releases, width, top)
        said.append(f"{strip.label}: " + "; ".join(f"{_span(band, releases)} {band.text}" for band in strip.bands))
        top += 28
    places = _choose_marks(releases, width)
    for place in places:
        x = (place + 0.5) * width
        end, middle = place == places[-1], place not in (places[0], places[-1])
        at = "100%" if end else f"{x:.3f}%" if middle else "0"
        parts += [
            draw_line(x, top - 2, x, top + 3, "grid"),
            draw_text(at, top + 15, releases[place], end=end, middle=middle, kind="small number"),
        ]
    return wrap_shapes(name, title, ". ".join(said) + ".", top + 22, "".join(parts))


def _choose_marks(releases: Sequence[str], width: float) -> list[int]:
    """Return the releases that are named: the first, the last, and between them those whose names have room on a phone."""
    last = len(releases) - 1
    places = sorted({round(index * last / (_MARKS - 1)) for index in range(_MARKS)})
    chosen, free = places[:1], len(releases[0]) * _LETTER
    for place in places[1:-1]:
        middle, half = (place + 0.5) * width / 100 * _NARROW, len(releases[place]) * _LETTER / 2
        if free + _GAP < middle - half and middle + half + _GAP < _NARROW - len(releases[last]) * _LETTER:
            chosen.append(place)
            free = middle + half
    return [*chosen, *places[1:][-1:]]


def _draw_band(band: Band, releases: Sequence[str], width: float, top: float) -> Iterator[str]:
    x, wide = band.first * width, (band.last - band.first + 1) * width
    told = escape(f"{_span(band, releases)}: {band.text}")
    strong = f' fill-opacity="{band.strength:.2f}"' if band.kind == "bad" else ""
    yield (
        f'<rect class="band {band.kind}"{strong} x="{x:.3f}%" y="{top:g}" width="{wide:.3f}%" height="20">'
        f"<title>{told}</title></rect>"
    )
    if band.kind != "none" and wide / 100 * _NARROW > len(band.text) * _LETTER:
        yield draw_text(f"{x + wide / 2:.3f}%", top + 14, band.text, middle=True, kind="small number")


def _span(band: Band, releases: Sequence[str]) -> str:
    first, last = releases[band.first], releases[band.last]
    return first if first == last else f"{first} to {last}"
