"""Settings that no formula of the estimate has: which of them the configuration of a run turns on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from compatcheck.core.document import Document
from compatcheck.core.facts import Fact
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from compatcheck.rules.database import RuleSet

UNPRICED = "training.unpriced"
TABLE = "unpriced-settings"
_OFF = (None, False, 0, "", "0", "none", "None", "null", "false", "False", "no", "1F1B", "GPipe")
"""Values that leave a setting off, or are the one that formulas have."""


def describe_unpriced(documents: Sequence[Document], role: str, rules: "RuleSet", facts: dict[str, Fact]) -> None:
    """State which features of a run no formula has, where its documents turn on any.

    A key counts where it is known and has no meaning in the vocabulary: one that got a meaning is priced.
    """
    if UNPRICED in facts:
        return
    found: dict[str, Source] = {}
    cells: Mapping[str, Mapping[str, str]] = rules.section(f"tables/{TABLE}") or {}
    for document in documents:
        keys = cells.get(document.reader)
        if not keys:
            continue
        for statement in document.statements:
            feature = keys.get(statement.key) if statement.fact is None and statement.role in {None, role} else None
            if feature is not None and not _is_off(statement.value):
                found.setdefault(feature, document.place(statement.key))
    if found:
        facts[UNPRICED] = Fact(UNPRICED, tuple(sorted(found)), "derived", tuple(found.values()))


def _is_off(value: object) -> bool:
    return any(value is off or (value == off and type(value) is type(off)) for off in _OFF)
