"""What was not read of a run's configuration, and which keys it may set: none of these is known to be left out.

A list of words or a file may set every key of its program. A key that nobody understood may be another name of a key of its
section, or of one that says the same in its name; outside of sections of any key, unless its name is plainly about something
else. A key that a command adds to a configuration that does not have it (``+key=value``: Hydra refuses it where there is one
with a value) is no other name of one of its section: what its name says alone is open then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.document import LEFT_OUT, Document, Gap, Statement
from compatcheck.core.setting_names import is_elsewhere, split_name, words_about_memory
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from compatcheck.resolution.subject import Subject


_MOST_KEYS = 1_000
"""Keys of one document that nobody understood; each is weighed against every setting of its program, and of more any is open."""


def find_gaps(documents: Iterable[Document]) -> Iterator[Gap]:
    """Yield what was not read of some documents, keys that nobody understood among it."""
    for document in documents:
        yield from document.gaps
        if len(document.unread) > _MOST_KEYS:
            yield Gap(document.source, f"holds more than {_MOST_KEYS} keys that are not understood")
            continue
        for key, _ in document.unread:
            yield Gap(document.place(key), "is not understood", key, key in document.added)


def may_set(gap: Gap, key: str, fact: str) -> bool:
    """Tell whether something that was not read may set a key, or what it decides."""
    if gap.facts is not None and fact not in gap.facts:
        return False
    if gap.key is None:
        return not gap.assumed
    section, _, name = gap.key.rpartition(".")
    words, about = split_name(name), words_about_memory(name)
    if not gap.added and (key.startswith(f"{section}.") if section else not is_elsewhere(name)):
        return True
    if key and split_name(key.rpartition(".")[2]) <= words:
        return True
    return bool(about & (split_name(key) | split_name(fact)))


def is_worth_a_word(gap: Gap) -> bool:
    """Tell whether a gap is more than a key that is plainly about something else."""
    return gap.key is None or "." in gap.key or not is_elsewhere(gap.key)


def open_facts(documents: Iterable[Document], role: str | None, stated: Container[str]) -> frozenset[str]:
    """Return the facts of a role, or of any, that something not read may state, by what the keys of its program mean."""
    found: set[str] = set()
    for document in documents:
        gaps = tuple(find_gaps((document,)))
        if not gaps:
            continue
        found.update(name for gap in gaps for name in gap.facts or () if may_set(gap, "", name))
        from compatcheck.frameworks.registry import find_configuration_reader  # noqa: PLC0415 (only where something was not read)

        reader = find_configuration_reader(find_program(document.reader).runs_as or document.reader)
        for key, meanings in reader.TABLE.items() if reader is not None else ():
            if any(may_set(gap, key, "") for gap in gaps):
                found.update(meaning.fact for meaning in meanings if role is None or meaning.role in (None, role))
    return frozenset(name for name in found if name not in stated)


class Opened(NamedTuple):
    """Facts of a role that something which was not read may state."""

    names: frozenset[str]
    gaps: tuple[Gap, ...]

    @classmethod
    def of(cls, subject: Subject, role: str, facts: Container[str]) -> Opened:
        """Collect them."""
        waiting = frozenset(name for name, _, _ in subject.unresolved)
        return cls(waiting | open_facts(subject.documents, role, facts), subject.gaps)

    def holds(self, name: str) -> bool:
        """Tell whether a fact that nobody is known to state may be stated all the same."""
        return name in self.names or any(may_set(gap, "", name) for gap in self.gaps)


def withhold(documents: Iterable[Document]) -> Iterator[tuple[Document, frozenset[tuple[str, str | None]]]]:
    """Yield every document without the statements that rest on a key being left out which it may hold after all.

    A key that another document of its program holds, a command's or the file's it composes from, is not left out either.

    A model that is there only because a key is left out goes with all that is said about it, unless a key is its own.

    Yields:
        The document, and what those statements were about: fact and role.
    """
    documents = tuple(documents)
    for document in documents:
        gaps = tuple(find_gaps(other for other in documents if _program_of(other) == _program_of(document)))
        given = {entry.key for entry in document.unresolved}
        for other in documents:
            if other is not document and _program_of(other) == _program_of(document):
                given.update(statement.key for statement in other.statements)
                given.update(entry.key for entry in other.unresolved)
                given.update(key for _, _, key in other.references)
        taken = [statement for statement in document.statements if _may_be_wrong(statement, gaps, given)]
        unsure = {statement.role for statement in taken if statement.fact is None and statement.role is not None}
        unsure -= {one.role for one in document.statements if one not in taken and _is_own(one)}
        kept = tuple(one for one in document.statements if one not in taken and one.role not in unsure)
        about = frozenset((one.fact, one.role) for one in taken if one.fact is not None)
        yield document._replace(statements=kept), about


def _program_of(document: Document) -> str:
    return find_program(document.reader).runs_as or document.reader


def _is_own(statement: Statement) -> bool:
    """Tell whether a key is about one model by its name."""
    return (
        statement.role is not None and not statement.key.endswith(LEFT_OUT) and statement.key.startswith(statement.role)
    )


def _may_be_wrong(statement: Statement, gaps: Iterable[Gap], given: Container[str]) -> bool:
    """Tell whether a key that a statement takes to be left out is given elsewhere or with a value nobody knows, or may be."""
    left_out = statement.without
    if statement.key.endswith(LEFT_OUT):
        left_out = (*left_out, statement.key.removesuffix(LEFT_OUT))
    return any(key in given or any(may_set(gap, key, statement.fact or "") for gap in gaps) for key in left_out)
