"""A pasted log made readable: quotes, colours, timestamps and boxes removed, the lines of each rank or process put together.

Messages break over lines, or lose their line breaks, on the way into an issue; so each stream is one text with single
blanks, and a position in it leads back to the line it came from.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.out_of_memory import Frame
from compatcheck.core.pasted_text import fold_case, remove_colours, strip_prefixes
from compatcheck.oom.needles import find_needles

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOX = re.compile(r"[│┃╭╮╰╯─━┏┓┗┛┌┐└┘├┤]+")
_BEFORE, _AFTER = 800, 60
"""Lines of a traceback (of several ranks, at that) and of a message broken into short lines."""
_BLOCK = 64 * 1024
"""Characters that are split into lines together."""
_FRAME = re.compile(
    r"""File\s"(?P<a_file>[^"\n]{1,400})",\s+line\s+(?P<a_line>\d{1,18})(?:,\s+in\s+(?P<a_function>[\w<>.]+))?
    |File\s(?P<b_file>[^\s"]{1,400}?):(?P<b_line>\d{1,18}),\s+in\s+(?P<b_function>[\w<>.]+)
    |\.py:(?P<c_line>\d{1,18})\s+in\s+(?P<c_function>[\w<>.]+)
    |\.py\s+in\s+(?P<d_function>[\w<>]+)\(""",
    re.VERBOSE,
)
_CODE_LENGTH = 400
_ARROW = re.compile(r"(?:❱|-+>)\s*\d+\s*(.{1,200}?)(?=\s+\d+\s|$)")
_ERROR = re.compile(r"\s*(?:[\w.]+(?:Error|Exception|Warning)\s*:?\s*)+$")
"""Name of the exception behind the last source line."""
_BARE_FRAME = re.compile(r"\.py\",\s+line\s+(?P<e_line>\d{1,18}),\s+in\s+(?P<e_function>[\w<>.]+)")
"""A frame whose beginning was not copied."""
_PATH_LENGTH = 400
_PATHS = {
    kind: re.compile(rf"{first}[^\s\"]{{1,{_PATH_LENGTH}}}\Z") for kind, first in (("c", "/"), ("d", "[/~]"), ("e", ""))
}
"""How the path begins that stands before the end of a frame: looked for behind a frame alone, not at every slash of a log."""
TRACEBACK = "Traceback (most recent call last)"


class Stream(NamedTuple):
    """The lines of one rank or process, as one text."""

    name: str
    """Prefix of its lines, empty for lines without one."""
    text: str
    starts: tuple[int, ...]
    """Positions in the text where lines start."""
    lines: tuple[int, ...]
    """Their numbers in the log, the first is 1."""

    def line_at(self, position: int) -> int:
        """Return the line of the log that a position comes from."""
        return self.lines[max(0, bisect_right(self.starts, position) - 1)]


def split_streams(log: str, hits: list[int] | None = None) -> tuple[Stream, ...]:
    """Split what stands near some positions of a log into streams, the one whose first line comes first at the front.

    Args:
        log: the log.
        hits: the positions, None for those of the known messages.
    """
    pieces: dict[str, list[tuple[int, str]]] = {}
    for number, line in _near(log, sorted(find_needles(fold_case(log)) if hits is None else hits)):
        name, rest = strip_line(line)
        if rest:
            pieces.setdefault(name, []).append((number, rest))
    return tuple(_join(name, parts) for name, parts in pieces.items())


def _near(log: str, hits: list[int]) -> Iterator[tuple[int, str]]:
    """Yield the lines around those with a needle with their numbers; of a long log few lines are held at a time."""
    before: list[str] = []
    number, begin, index, after = 1, 0, 0, 0
    while index < len(hits) or after:
        end = log.find("\n", begin + _BLOCK) + 1 or len(log)
        lines = log[begin:end].splitlines(keepends=True)
        if begin == end:
            return
        rows = before + lines
        first, until = number - len(before), 0
        spans = [(len(before), len(before) + after)] if after else []
        if index < len(hits) and hits[index] < end:
            ends = list(accumulate(map(len, lines), initial=begin))[1:]
            last = bisect_left(hits, end)
            hit_rows = sorted({len(before) + bisect_right(ends, hit) for hit in hits[index:last]})
            spans += [(row - _BEFORE, row + _AFTER) for row in hit_rows]
            index = last
        for low, high in spans:
            for row in range(max(until, low), min(len(rows), high)):
                yield first + row, rows[row]
            until = max(until, high)
        after = max(0, until - len(rows))
        before = rows[max(until, len(rows) - _BEFORE) :]
        number += len(lines)
        begin = end


def strip_line(line: str) -> tuple[str, str]:
    """Take the prefixes off a line; return those that tell a rank or process, and the rest with single blanks."""
    if not line.isascii() or "\x1b" in line or "[" in line:
        line = _BOX.sub(" ", remove_colours(line))
    name, rest = strip_prefixes(line)
    return name, " ".join(rest.split())


def _join(name: str, parts: list[tuple[int, str]]) -> Stream:
    starts, position = [], 0
    for _, text in parts:
        starts.append(position)
        position += len(text) + 1
    return Stream(name, " ".join(text for _, text in parts), tuple(starts), tuple(number for number, _ in parts))


def find_frames(text: str) -> tuple[Frame, ...]:
    """Read the frames of the last traceback in a text, outermost first: Python's, IPython's and rich's."""
    start = text.rfind(TRACEBACK)
    if start >= 0:
        text = text[start:]
    found = list(_locate(_FRAME, text)) or list(_locate(_BARE_FRAME, text))
    ends = [begin for begin, *_ in found[1:]] + [len(text)] * bool(found)
    frames = []
    for (_, path, match), end in zip(found, ends, strict=True):
        groups = {key[2:]: value for key, value in match.groupdict().items() if value is not None}
        code = text[match.end() : min(end, match.end() + _CODE_LENGTH)].strip()
        code = _ERROR.sub("", code)
        arrow = _ARROW.search(code)
        frames.append(
            Frame(
                path.replace("\\", "/").replace("//", "/"),
                int(groups.get("line", 0)),
                groups.get("function", ""),
                re.sub(r"\s*[\^~]{2,}\s*", " ", arrow.group(1) if arrow else code).strip(),
            ),
        )
    return tuple(frames)


def _locate(frame: re.Pattern[str], text: str) -> Iterator[tuple[int, str, re.Match[str]]]:
    """Yield where frames begin, with their paths; of most kinds these stand before what is searched for."""
    until = 0
    for match in frame.finditer(text):
        kind = next(key[0] for key, value in match.groupdict().items() if value is not None)
        if kind in _PATHS:
            before = text[max(until, match.start() - _PATH_LENGTH - (kind != "e")) : match.start()]
            path = _PATHS[kind].search(before)
            if path is None:
                continue
            yield match.start() - len(path[0]), f"{path[0]}.py", match
        else:
            yield match.start(), match[f"{kind}_file"], match
        until = match.end()
