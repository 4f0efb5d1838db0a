"""Files that a program changes where they lie, so that what lies there is not what is read of them afterwards."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_IN_PLACE = re.compile(r"-[A-Za-z]*i|--in-?place")
_EDITORS = frozenset({"sed", "gsed", "perl", "ruby", "yq", "awk", "gawk"})
"""Programs that write what they print into their input where ``-i`` says so."""
_MOVERS = frozenset({"cp", "mv", "ln", "install", "rsync"})
"""Programs whose last word is where what stands before it goes."""
_OPENED = re.compile(
    r"""\bopen\(\s*(?P<a>['"])(?P<opened>[^'"\n]{1,4096})(?P=a)\s*,\s*['"][wa]"""
    r"""|\bPath\(\s*(?P<b>['"])(?P<written>[^'"\n]{1,4096})(?P=b)\s*\)\.write_text\("""
)
"""Where a program of Python that stands in the script writes a file."""


def changes_unknown_file(name: str, arguments: Sequence[str | None]) -> bool:
    """Tell whether a command edits a file in place whose name is not known: ``sed -i … "$f"``."""
    edits = posixpath.basename(name) in _EDITORS and any(_IN_PLACE.match(word) for word in arguments if word)
    return edits and arguments[-1] is None


def changed_files(name: str, arguments: Sequence[str | None], stdin: str | None) -> Iterator[str]:
    """Yield paths of files that a command leaves with other contents.

    Args:
        name: the program.
        arguments: its arguments; None is unknown.
        stdin: the text on its standard input; None is unknown.
    """
    name = posixpath.basename(name)
    known = [argument for argument in arguments if argument is not None]
    words = [word for word in known if not word.startswith("-")]
    if name in _EDITORS and any(_IN_PLACE.match(word) for word in known):
        yield from words
    elif name in _MOVERS and len(words) > 1:
        *sources, target = words
        yield target
        yield from (posixpath.join(target, posixpath.basename(source)) for source in sources)
        yield from sources if name == "mv" else ()
    elif name.startswith("python"):
        for text in (*known, stdin or ""):
            yield from (match["opened"] or match["written"] for match in _OPENED.finditer(text))
