"""Files outside of what is inspected, to which a checkout links or which it names: their words are not said."""

from __future__ import annotations

import re

from compatcheck.core.document import HIDDEN, NOT_UNDERSTOOD
from compatcheck.core.programs import leads_out
from compatcheck.resolution.gaps import find_gaps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.core.document import Document, Gap
    from compatcheck.core.environment import Environment
    from compatcheck.core.source import Skipped, Source

_QUOTED = r"(?s)(['\"]).*\1"
_WHY_HIDDEN = "the file lies outside of what was named, and its text is not shown"
_UNTOLD = f"is not known here; {_WHY_HIDDEN}"
"""Of values and changes: what is said of them may be a piece of code."""


def hide_words(document: Document) -> Document:
    """Leave out what a document of such a file quotes of it: words that were not understood, keys that nobody knows."""
    if not leads_out(document.source.path):
        return document
    return document._replace(
        unread=tuple((HIDDEN, None) for _ in document.unread),
        skipped=hide_reasons(document.skipped),
        unresolved=tuple(entry._replace(why=_UNTOLD) for entry in document.unresolved),
        gaps=tuple(gap._replace(source=_hide_key(gap.source), why=_hide_why(gap)) for gap in find_gaps((document,))),
    )


def hide_lines(environment: Environment | None) -> Environment | None:
    """Leave out what an environment quotes of such files."""
    return None if environment is None else environment._replace(skipped=hide_reasons(environment.skipped))


def hide_reasons(skipped: Iterable[Skipped]) -> tuple[Skipped, ...]:
    """Leave out what is quoted of such files where they were not read."""
    known: dict[str, bool] = {}
    entries = []
    for entry in skipped:
        path = entry.source.path
        if path not in known:
            known[path] = leads_out(path)
        hidden = entry._replace(source=_hide_key(entry.source), reason=_hide(entry.reason)) if known[path] else entry
        entries.append(hidden)
    return tuple(entries)


def _hide_why(gap: Gap) -> str:
    if gap.why == NOT_UNDERSTOOD:
        return gap.why
    return _hide(gap.why) if gap.assumed else _UNTOLD


def _hide(text: str) -> str:
    hidden = re.sub(_QUOTED, HIDDEN, text)
    return text if hidden == text else f"{hidden}; {_WHY_HIDDEN}"


def _hide_key(source: Source) -> Source:
    return source._replace(key=None if source.key is None else HIDDEN)
