"""What a document states, by the names of the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatcheck.core.document import Document


def facts(document: Document) -> dict[str, object]:
    """Return the values of a document's facts; of two statements about one fact, the last."""
    return {statement.fact: statement.value for statement in document.statements if statement.fact is not None}
