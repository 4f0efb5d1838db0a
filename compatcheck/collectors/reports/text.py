"""A pasted text as lines that a report can be read from: quotes, colours, times and tags removed, ranks and writers told apart.

An issue holds the words of several people, a log those of several ranks, and both may stand in any line. So the text is split
into parts, each of one writer, one depth of quotation and one rank, and a position in a part leads back to the line it came from.
"""

from __future__ import annotations

import html
import re
from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pasted_text import fold_case, remove_colours, strip_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX = 400
"""Characters at the start of a line in which its prefixes are looked for."""
_ODD = str.maketrans(
    "\u00a0\u202f\u2007\t\v\f\u201c\u201d\u2018\u2019\u2011│┃", "      \"\"''-||", "\u200b\u200c\u200d\u2060\ufeff`"
)
"""What editors, chats and web pages make of plain characters; back quotes are only emphasis here."""
_EMPHASIS = re.compile(r"(?<!\w)\*\*(?=\S)|(?<=\S)\*\*(?!\w)")
_FENCE = re.compile(r"\s{0,8}(?:[>-]\s?){0,4}(?:(?:```|~~~)[\w+-]{0,20}|`)\s*")
_FENCE_LENGTH = 60
FENCE = "—"
"""What a line that opens or closes a block of code becomes: what stands in front of it was seen to end."""
_BREAK = re.compile(
    r"<br ?/?>|</?(?:details|summary|p|pre|code|div|li|tr|table|b|strong)(?: [^<>]{0,80})?>", re.IGNORECASE
)
_QUOTE = re.compile(r"\s{0,8}(?:(?:>|&gt;)\s?){1,16}")
_RANK = re.compile(r"\s{0,8}(\d{1,4}):\s(?=\S)")
"""A rank as ``srun --label`` writes it."""
_REPEATED = re.compile(r"\s*\[repeated \d{1,6}x across cluster\][^\n]{0,200}$")
_LOGGER = re.compile(
    r"(?:(?:\w{3} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,60} [\w./-]{1,60}(?:\[\d+\])?|(?:INFO|WARNING|DEBUG):[\w.]{1,80}):\s?)"
)
"""What syslog and Python's logging put in front."""
_LEVEL = re.compile(r"\s{0,8}\[?(?:ERROR|WARNING|INFO|DEBUG|CRITICAL)\]?:?\s{0,8}")
_WRITERS = (
    re.compile(
        r"[*#\s]{0,8}\[?@?([\w-]{1,39})(?:\[bot\])?\]?(?:\([^()]{1,100}\))?"
        r"[*\s]{1,6}(?:commented|replied|opened this issue|wrote|said)\b.{0,80}"
    ),
    re.compile(r"([\w-]{1,39}) · (?:description|comment|review|answer)\b.{0,60}"),
    re.compile(r"On .{6,60}, (.{1,60}?)(?: <[^<>]{1,80}>)? wrote:"),
    re.compile(r"From: (.{1,60}?)(?: <[^<>]{1,80}>)?"),
)
"""Lines above what somebody wrote: of a copied thread, of its export, of a mail."""
_WRITING = (" commented", " replied", " opened", " wrote", " said", " · ", "From:")


class Part(NamedTuple):
    """The lines of one writer, one depth of quotation and one rank."""

    writer: str
    """Name in the heading above; empty where nothing tells."""
    depth: int
    """How many quotation marks stand in front of its lines."""
    stream: str
    """Rank or process of its lines, empty for lines without one."""
    text: str
    """Lines with a line break behind each."""
    starts: tuple[int, ...]
    """Positions where lines start."""
    lines: tuple[int, ...]
    """Their numbers in the file, the first is 1."""

    def line_at(self, position: int) -> int:
        """Return the line of the file that a position comes from."""
        return self.lines[max(0, bisect_right(self.starts, position) - 1)]


_BEFORE, _AFTER = 60, 160
"""Lines around one with a mark that are looked at: the longest table of processes, the longest list of devices."""


MOST_CHARACTERS = 4 << 20
"""Characters of the lines that are looked at; a thread with ten reports has a fiftieth of it."""
LONGEST_LINE = 256 << 10
"""Characters of one line that are looked at: a report that has lost its line breaks has a tenth of it."""


def split_parts(text: str, marks: Iterable[str]) -> tuple[tuple[Part, ...], str | None]:
    """Split a text into parts, in the order in which they begin; lines far from any mark are left out.

    Returns:
        The parts, and what was left out for its size, in words.

    The last line of a text that does not end with a line break may be cut off; it keeps none in its part, so that a value which
    touches the end can be told from one that is whole.
    """
    pieces: dict[tuple[str, int, str], tuple[list[str], list[int]]] = {}
    writer = ""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    folded = "\n" + fold_case(text)  # so that a position is one behind that of its line's break
    hits = {match.start() for mark in marks for match in re.finditer(mark, folded)}
    if not hits:
        return (), None
    lines = text.split("\n")
    last = len(lines)
    wanted = _near(lines, hits)
    writing = [word for word in _WRITING if word in text]
    left_out = None
    budget = MOST_CHARACTERS
    for number, raw in enumerate(lines, start=1):
        if not raw and number == last:
            break
        if writing and len(raw) <= _PREFIX and any(word in raw for word in writing):
            named = _find_writer(_clean(raw)[0])
            if named is not None:
                writer = named
                continue
        if not wanted[number]:
            continue
        if len(raw) > LONGEST_LINE:
            left_out = f"line {number} is {len(raw):,} characters long; the first {LONGEST_LINE:,} of it were read"
            raw = raw[:LONGEST_LINE].rpartition(" ")[0] + " …"  # noqa: PLW2901 (the same, shortened)
        budget -= len(raw)
        if budget < 0:
            left_out = f"the text goes on like a report from line {number} on, which was not read: it is too long"
            break
        line, depth, stream = _clean(raw)
        found, numbers = pieces.setdefault((writer, depth, stream), ([], []))
        for piece in line.split("\n"):
            found.append(piece.rstrip() + ("\n" if number < last else ""))
            numbers.append(number)
    return tuple(_join(key, found, numbers) for key, (found, numbers) in pieces.items()), left_out


def _near(lines: list[str], hits: Iterable[int]) -> bytearray:
    """Tell of each line by its number whether it is near one with a mark, which the positions of marks tell."""
    near = bytearray(len(lines) + 2)
    begins = array("Q", accumulate((len(line) + 1 for line in lines), initial=0))
    for index in {bisect_right(begins, position) - 1 for position in hits}:
        begin, end = max(0, index - _BEFORE), min(len(lines), index + _AFTER)
        near[begin + 1 : end + 1] = b"\1" * (end - begin)
    return near


def _join(key: tuple[str, int, str], pieces: list[str], numbers: list[int]) -> Part:
    starts, position = [], 0
    for piece in pieces:
        starts.append(position)
        position += len(piece)
    return Part(*key, "".join(pieces), tuple(starts), tuple(numbers))


def _clean(raw: str) -> tuple[str, int, str]:
    """Return a line without what surrounds it, its depth of quotation, and the rank or process it is from."""
    if len(raw) <= _FENCE_LENGTH and ("`" in raw or "~~~" in raw) and _FENCE.fullmatch(raw) is not None:
        return FENCE, raw.count(">"), ""
    line = raw.translate(_ODD) if not raw.isascii() or "\t" in raw or "`" in raw else raw
    if "\x1b" in line or "[" in line or "␛" in line:
        line = remove_colours(line)
    depth = 0
    quoted = _QUOTE.match(line)
    if quoted is not None:
        depth = quoted[0].count(">") + quoted[0].count("&gt;")
        line = line[quoted.end() :]
    if "&" in line:
        line = html.unescape(line).translate(_ODD)
    if "<" in line:
        line = _BREAK.sub("\n", line)
    if "**" in line:
        line = _EMPHASIS.sub("", line)
    if "[repeated" in line:
        line = _REPEATED.sub("", line)
    head, tail = line[:_PREFIX], line[_PREFIX:]
    indent = head[: len(head) - len(head.lstrip())]
    logger = _LOGGER.match(head)
    if logger is not None:
        head = head[logger.end() :]
    stream, rest = strip_prefixes(head)
    logger = _LOGGER.match(rest)
    if logger is not None:
        rest = rest[logger.end() :]
    if _LEVEL.fullmatch(rest) is not None:  # of an empty line of a log
        rest = ""
    rank = _RANK.match(rest)
    if rank is not None:
        stream, rest = f"{stream} {rank[1]}".strip(), rest[rank.end() :]
    return (indent + rest if rest == head.lstrip() else rest) + tail, depth, stream


def _find_writer(line: str) -> str | None:
    for pattern in _WRITERS:
        found = pattern.fullmatch(line.strip())
        if found is not None:
            return found[1]
    return None
