"""What was not read of a run's configuration, and which keys it may set: none of these is known to be left out.

A list of words or a file may set every key of its program. A key that nobody understood may be another name of a key of its
section, or of one that says the same in its name; outside of sections of any key, unless its name is plainly about something
else. A key that a command adds to a configuration that does not have it (``+key=value``: Hydra refuses it where there is one
with a value) is no other name of one of its section: what its name says alone is open then.
"""

from __future__ import annotations

from collections import Counter

from compatcheck.core.document import HIDDEN, LEFT_OUT, NOT_UNDERSTOOD, Document, Gap, Statement, Unresolved
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.setting_names import is_elsewhere, split_name, words_about_memory
from compatcheck.rules.programs import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

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
        for key in (key for key, _ in document.unread if key != HIDDEN):  # what one of those may set, a gap says
            yield Gap(document.place(key), NOT_UNDERSTOOD, key, key in document.added)


def may_set(gap: Gap, key: str, fact: str) -> bool:
    """Tell whether something that was not read may set a key, or what it decides."""
    return Gaps((gap,)).may_set(key, fact)


class Gaps:
    """Gaps that are asked together what they may set: however many there are, by their words and sections."""

    def __init__(self, gaps: Iterable[Gap]) -> None:
        """Sort them by what alone they may set, where that is known."""
        by_facts: dict[frozenset[str] | None, list[Gap]] = {}
        for gap in gaps:
            by_facts.setdefault(gap.facts, []).append(gap)
        self._groups = {facts: _Alike(alike) for facts, alike in by_facts.items()}

    def __eq__(self, other: object) -> bool:
        """Tell whether others may set the same."""
        return isinstance(other, Gaps) and self._groups == other._groups

    __hash__ = None  # type: ignore[assignment]  # nothing keeps them by it

    def may_set(self, key: str, fact: str) -> bool:
        """Tell whether any of them may set a key, or what it decides."""
        return any(
            (facts is None or fact in facts) and alike.may_set(key, fact) for facts, alike in self._groups.items()
        )


class _Alike:
    """Gaps that may set the same facts."""

    def __init__(self, gaps: Iterable[Gap]) -> None:
        self.sets_any = False
        self.sections: set[str] = set()
        self.about: set[str] = set()
        self.names: dict[str, set[frozenset[str]]] = {}
        """Word → the names with it, each as its words."""
        for gap in gaps:
            if gap.key is None:
                self.sets_any |= not gap.assumed
                continue
            section, _, name = gap.key.rpartition(".")
            if not gap.added and section:
                self.sections.add(section)
            elif not gap.added:
                self.sets_any |= not is_elsewhere(name)
            self.about |= words_about_memory(name)
            words = split_name(name)
            for word in words:
                self.names.setdefault(word, set()).add(words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # as above

    def may_set(self, key: str, fact: str) -> bool:
        if self.sets_any or not self.about.isdisjoint(split_name(key) | split_name(fact)):
            return True
        parts = key.split(".")
        if any(".".join(parts[:length]) in self.sections for length in range(1, len(parts))):
            return True
        wanted = split_name(parts[-1])
        fewest = min((self.names.get(word, set()) for word in wanted), key=len)
        return bool(key) and any(wanted <= words for words in fewest)


def is_worth_a_word(gap: Gap) -> bool:
    """Tell whether a gap is more than a key that is plainly about something else."""
    return gap.key is None or "." in gap.key or not is_elsewhere(gap.key)


def open_facts(documents: Iterable[Document], role: str | None, stated: Container[str]) -> frozenset[str]:
    """Return the facts of a role, or of any, that something not read may state, by what the keys of its program mean."""
    found: set[str] = set()
    documents = tuple(documents)
    idle = find_idle(documents)
    for document in documents:
        gaps = tuple(find_gaps((document,)))
        if not gaps:
            continue
        found.update(name for gap in gaps for name in gap.facts or () if may_set(gap, "", name))
        from compatcheck.frameworks.registry import find_configuration_reader  # noqa: PLC0415 (only where something was not read)

        reader = find_configuration_reader(find_program(document.reader).runs_as or document.reader)
        index = Gaps(gaps)
        for key, meanings in reader.TABLE.items() if reader is not None else ():
            if key not in idle and index.may_set(key, ""):
                found.update(meaning.fact for meaning in meanings if role is None or meaning.role in (None, role))
    return frozenset(name for name in found if name not in stated)


def find_idle(documents: Iterable[Document]) -> dict[str, bool]:
    """Return the switches that documents write and that say nothing as they stand: ``use_vllm: false``."""
    found: dict[str, set[bool]] = {}
    speaking: set[str] = set()
    for document in documents:
        for one in document.statements:
            if one.fact is None and isinstance(one.value, bool):
                found.setdefault(one.key, set()).add(one.value)
            elif one.fact is not None:
                speaking.add(one.key)
        speaking.update(one.key for one in document.unresolved)
    return {key: values.pop() for key, values in found.items() if len(values) == 1 and key not in speaking}


class Opened(NamedTuple):
    """Facts of a role that something which was not read may state."""

    names: frozenset[str]
    gaps: Gaps

    @classmethod
    def of(cls, subject: Subject, role: str, facts: Container[str]) -> Opened:
        """Collect them."""
        waiting = frozenset(name for name, _, _ in subject.unresolved)
        return cls(waiting | open_facts(subject.documents, role, facts), Gaps(subject.gaps))

    def holds(self, name: str) -> bool:
        """Tell whether a fact that nobody is known to state may be stated all the same."""
        return name in self.names or self.gaps.may_set("", name)


def withhold(documents: Iterable[Document]) -> Iterator[tuple[Document, frozenset[tuple[str, str | None]]]]:
    """Yield every document without the statements that rest on a key being left out which it may hold after all.

    A key that another document of its program holds, a command's or the file's it composes from, is not left out either.

    A model that is there only because a key is left out goes with all that is said about it, unless a key is its own.

    Yields:
        The document, and what those statements were about: fact and role.
    """
    programs: dict[str, list[Document]] = {}
    documents = _leave_asked(tuple(documents))
    for document in documents:
        programs.setdefault(_program_of(document), []).append(document)
    gaps = {name: Gaps(find_gaps(own)) for name, own in programs.items()}
    holders = {name: Counter(key for one in own for key in _keys_of(one)) for name, own in programs.items()}
    for document in documents:
        program, mine = _program_of(document), _keys_of(document)
        unresolved = {entry.key for entry in document.unresolved}

        def is_given(key: str) -> bool:
            return key in unresolved or holders[program][key] > (key in mine)  # noqa: B023 (called before the next round)

        doubts = [(one, _may_be_wrong(one, gaps[program], is_given)) for one in document.statements]
        taken = [one for one, doubt in doubts if doubt is not None]
        unsure = {statement.role for statement in taken if statement.fact is None and statement.role is not None}
        unsure -= {one.role for one in document.statements if one not in taken and _is_own(one)}
        kept = tuple(one for one in document.statements if one not in taken and one.role not in unsure)
        about = frozenset((one.fact, one.role) for one in taken if one.fact is not None)
        told = tuple(
            Unresolved(
                one.fact,
                one.key,
                f"counts only without {doubt.strip('()')}, which what was not read may hold",
                one.role,
            )
            for one, doubt in doubts
            if one.fact is not None and doubt and not one.key.startswith("(") and not one.key.endswith(LEFT_OUT)
        )
        still = (one for one in document.unresolved if not any(map(is_given, one.without)))
        yield document._replace(statements=kept, unresolved=(*still, *told)), about


def _leave_asked(documents: tuple[Document, ...]) -> tuple[Document, ...]:
    """Leave open what statements say that ask keys whose values nobody can tell."""
    why = {(_program_of(one), entry.key): entry.why for one in documents for entry in one.unresolved}
    if not why:
        return documents
    found: list[Document] = []
    for document in documents:
        program = _program_of(document)
        asked = [(one, [key for key in one.asks if (program, key) in why]) for one in document.statements]
        open_facts = (
            Unresolved(one.fact, keys[0], why[program, keys[0]], one.role)
            for one, keys in asked
            if keys and one.fact is not None
        )
        kept = tuple(one for one, keys in asked if not keys)
        found.append(document._replace(statements=kept, unresolved=(*document.unresolved, *open_facts)))
    return tuple(found)


def _keys_of(document: Document) -> set[str]:
    """Return the keys that a document holds."""
    stated, unresolved = (one.key for one in document.statements), (one.key for one in document.unresolved)
    return {*stated, *unresolved, *(key for _, _, key in document.references)}


def _program_of(document: Document) -> str:
    return find_program(document.reader).runs_as or document.reader


def _is_own(statement: Statement) -> bool:
    """Tell whether a key is about one model by its name."""
    return (
        statement.role is not None and not statement.key.endswith(LEFT_OUT) and statement.key.startswith(statement.role)
    )


def _may_be_wrong(statement: Statement, gaps: Gaps, is_given: Callable[[str], bool]) -> str | None:
    """Return which key that a statement takes to be left out may be given after all; empty where one is, None where none may."""
    left_out = statement.without
    if statement.key.endswith(LEFT_OUT):
        left_out = (*left_out, statement.key.removesuffix(LEFT_OUT))
    if any(map(is_given, left_out)):
        return ""
    return next((key for key in left_out if gaps.may_set(key, statement.fact or "")), None)
