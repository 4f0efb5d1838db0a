"""A page of the site as plain Markdown, and what its parts are written with."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compatcheck.reporters.figure import Figure

_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)


class Page(NamedTuple):
    """One file of the site."""

    path: str
    """Relative to the site: ``rules/index.md``."""
    text: str


def make_page(path: str, parts: Iterable[str]) -> Page:
    """Join parts, each a block of Markdown, to a page."""
    return Page(path, "\n\n".join(part.rstrip() for part in parts if part.strip()) + "\n")


def write_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; a head that ends with a colon is of numbers."""
    lines = [head, ["---:" if name.endswith(":") else "---" for name in head], *rows]
    cells = [[cell.replace("\n", " ").replace("|", "&#124;") for cell in line] for line in lines]
    cells[0] = [name.removesuffix(":") for name in cells[0]]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def write_code(text: str) -> str:
    """Write code inside a line."""
    mark = "``" if "`" in text else "`"
    return f"{mark}{text}{mark}"


def escape_prose(text: str) -> str:
    """Write text in which backticks are code and double asterisks strong, and all else stays as it is."""
    out, at = [], 0
    for found in _CODE.finditer(text):
        out += [_escape(text[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*out, _escape(text[at:])])


def _escape(text: str) -> str:
    text = re.sub(r"(?<!\*)\*(?!\*)|[_\[\]~^#]", lambda found: "\\" + found[0], text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def link(text: str, page: str, target: str) -> str:
    """Write a link from one page of the site to another, or to a heading there."""
    path, mark, heading = target.partition("#")
    relative = posixpath.relpath(path, posixpath.dirname(page) or ".") if path and path != page else ""
    return f"[{text}]({relative}{mark}{heading})"


def show_figure(figure: Figure) -> str:
    """Write a figure under its title, drawn in the page."""
    return f'<figure class="plot">{figure.svg}<figcaption>{_escape(figure.title)}</figcaption></figure>'.replace(
        "\\", ""
    )


def fold(summary: str, *parts: str) -> str:
    """Write parts that open when their summary is chosen."""
    return f'<details markdown="1"><summary>{summary}</summary>\n\n' + "\n\n".join(parts) + "\n\n</details>"
