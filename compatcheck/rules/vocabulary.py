"""The typed names that rules, configurations, ``--set`` and facts files share: the rows of ``data/vocabulary.txt``."""

from __future__ import annotations

from functools import lru_cache

from compatcheck.core.data_file import read_text
from compatcheck.core.facts import TRAITS
from compatcheck.core.named_tuple import NamedTuple

PROGRAM = "program"
"""Unit of a name that has a record in ``rules/_programs``."""


class Term(NamedTuple):
    """One name of the vocabulary."""

    name: str
    type: str
    """``bool``, ``int``, ``float``, ``str``, ``bytes``, ``dtype``, ``version`` or ``set``."""
    nullable: bool
    """Whether an explicit None ("there is none") is a value."""
    unit: str | None
    words: tuple[str, ...]
    """Allowed values as the table lists them; empty when free. Those of the unit `PROGRAM`: `compatcheck.rules.values`."""
    meaning: str
    minimum: int = 0
    """Smallest value of an ``int`` or ``bytes``."""


@lru_cache(maxsize=1)
def vocabulary() -> dict[str, Term]:
    """Return every term by name, in the order of the table."""
    terms = {}
    for row in _read_table().partition("\n\n")[2].splitlines():
        name, kind, third, meaning = (cell.strip() for cell in row.split("|", 3))
        nullable = kind.endswith("?")
        kind, _, minimum = kind.rstrip("?").partition(">=")
        closed = "," in third
        allowed = tuple(value.strip() for value in third.split(",")) if closed else ()
        unit = None if closed or not third else third
        terms[name] = Term(name, kind, nullable, unit, allowed, meaning, int(minimum or 0))
    return terms


@lru_cache(maxsize=1)
def _read_table() -> str:
    """Return the rows, behind a head of comments that ends with an empty line."""
    return read_text(__file__, "vocabulary")


@lru_cache(maxsize=512)
def type_of(name: str) -> str:
    """Return the type of a term without parsing the table; empty where there is no such name."""
    return _row_of(name).partition(" ")[0].rstrip("?").partition(">=")[0]


def meaning_of(name: str) -> str:
    """Return the meaning of a term without parsing the table; empty where there is no such name."""
    return _row_of(name).rpartition(" | ")[2]


def _row_of(name: str) -> str:
    return _read_table().partition(f"\n{name} | ")[2].partition("\n")[0]


def nearest(name: str, known: tuple[str, ...] | list[str]) -> str | None:
    """Return the known name most like ``name``, also one without its group (``zero_stage``), or None when none is close."""
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    stated = [full for full in known if not full.startswith(TRAITS)]  # what a program's code does nobody states
    by_end = {full.rpartition(".")[2]: full for full in reversed(stated)}
    candidates = {**dict.fromkeys(by_end), **dict.fromkeys(known)} if "." not in name else known
    matches = get_close_matches(name, candidates, n=1, cutoff=0.75)
    return by_end.get(matches[0], matches[0]) if matches else None
