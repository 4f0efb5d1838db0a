"""How the files of a run write a fact: the keys by which their programs read it, the ones of this release alone."""

from __future__ import annotations

import json
from operator import itemgetter

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.frameworks.conversions import contradicts
from compatcheck.frameworks.keys import Expression, find_keys
from compatcheck.resolution.known_keys import name_of, releases_of_keys, values_beside
from compatcheck.rules.programs import find_program, lineage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from compatcheck.core.document import Document
    from compatcheck.resolution.scope import FactScope
    from compatcheck.rules.program import Program


def as_python(value: object) -> str:
    """Return a value as Python has it."""
    if isinstance(value, Expression):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    return str(list(value)) if isinstance(value, tuple) else repr(value)


def as_mapping(key: str, literal: str) -> str:
    """Return the mapping with one entry in Python, of mappings where its key is dotted: ``{"outer": {"inner": 1}}``."""
    for name in reversed(key.split(".")):
        literal = f"{{{json.dumps(name)}: {literal}}}"
    return literal


class Spelling(NamedTuple):
    """One key that states a fact."""

    document: Document
    """Of the file or command that takes it."""
    key: str
    value: Any
    """As the file has it."""

    @property
    def is_inside(self) -> bool:
        """Whether it lies in a section that the command names by an option: ``--deepspeed zero3`` takes no keys of it."""
        outer, dot, _ = self.key.partition(".")
        lines = self.document.lines
        return bool(dot) and outer in lines and not any("." in one for one in lines)

    @property
    def is_entry(self) -> bool:
        """Whether it is one of a mapping that the option holds itself (``--gradient_checkpointing_kwargs '{…}'``).

        A file that an option names is a document of its own, in which all keys are of that section.
        """
        outer = self.key.partition(".")[0]
        return self.is_inside and {one.key.startswith(f"{outer}.") for one in self.document.statements} == {True, False}

    @property
    def name(self) -> str:
        """Return the key as its file or command gives it: to Hydra with the signs that add one which its file lacks.

        https://hydra.cc/docs/advanced/override_grammar/basic/
        """
        document = self.document
        added = document.is_command and self.key not in document.lines
        hydra = added and any(one.takes_overrides for one in lineage(document.reader))
        return f"++{self.key}" if hydra else self.key

    @property
    def written(self) -> tuple[str, str]:
        """Return key and value as a person writes them; in Python, what lies in a mapping is an entry of one there."""
        outer, _, inner = self.key.partition(".")
        if self.is_inside and self.document.is_command and not self.is_entry:
            lower = isinstance(self.value, bool) or self.value is None
            return outer, f"a file with {inner}: {str(self.value).lower() if lower else self.value}"
        if not self.document.source.path.endswith(".py"):
            lower = isinstance(self.value, bool) or self.value is None
            return self.name, str(self.value).lower() if lower else str(self.value)
        literal = as_python(self.value)
        beside = any(one.key.startswith(f"{outer}.") and one.key != self.key for one in self.document.statements)
        if not inner or beside:  # the other entries stay
            return self.key.rpartition(".")[2], literal
        return outer, as_mapping(inner, literal)


def find_spellings(
    documents: Iterable[Document], name: str, value: object, role: str, scope: FactScope
) -> Iterator[Spelling]:
    """Yield the keys that can give a fact a value: files before commands, keys that this release is known to have first.

    Of the words of one key those come first that leave alone what else it says: ``optim`` names kernels and optimizer.
    """
    documents = sorted(documents, key=lambda one: one.is_command)
    made_by_code = any("" in document.calls for document in documents)
    for document in documents:
        if made_by_code and document.is_command and find_program(document.reader).kind != "library":
            continue  # its program has a parser of its own
        found, beside = find_keys(document.table, name, value, role), values_beside(document, documents)
        ranked = [
            ((rank, _changes_more(document, name, key, given, scope)), key, given)
            for key, given in found
            for rank in [_rank(document, beside, name, value, key, scope)]
            if rank is not None
        ]
        for _, key, given in sorted(ranked, key=itemgetter(0)):
            yield Spelling(document, key, given)


def _rank(
    document: Document, beside: Collection[str], name: str, value: object, key: str, scope: FactScope
) -> int | None:
    """Return how far down its program has a key at the installed release, last where nothing tells, None where it has not.

    A key that does not take the value there counts as one that it has not.
    """
    programs, releases = lineage(document.reader), releases_of_keys(document, scope.rules)
    known_as = name_of(key, document)
    if any(
        _is_unknown(one, releases, scope)
        for one in (known_as, *(f"{known_as}@{one}" for one in (*beside, f"{name}={value}")))
    ):
        return None
    rows = [
        (row["key"], index, _judge(row, scope))
        for index, program in enumerate(programs)
        for row in scope.rules.section(f"defaults/{program.name}") or ()
        if row["fact"] == name and row["key"] is not None
    ]
    own = [(known, index, verdicts) for known, index, verdicts in rows if known == key]
    absent = rows and all("no" in verdicts for _, _, verdicts in own or rows)
    if absent and any(
        _is_read(programs[index], scope) or _is_unknown(known, releases, scope) for known, index, _ in own or rows
    ):
        return None  # a name of another release, or of somebody's script
    many = len(programs)
    return min((index if verdicts <= {"yes"} else many + index for _, index, verdicts in own), default=2 * many)


def _changes_more(document: Document, name: str, key: str, given: object, scope: FactScope) -> bool:
    """Tell whether a word that states one fact gives another, which is known, another value."""
    known = [(one, scope.facts[one.fact].value) for one in document.table[key] if one.fact in scope.facts]
    return any(
        one.fact != name and one.convert is not None and contradicts(one.convert, given, value) for one, value in known
    )


def _is_unknown(key: str, releases: Mapping[str, Mapping[str, Any]], scope: FactScope) -> bool:
    """Tell whether no release that may be installed has a key, of those whose releases are known by themselves."""
    return any(scope.in_range(package, bounds) == "no" for package, (_, bounds) in releases.get(key, {}).items())


def _judge(row: Mapping[str, Any], scope: FactScope) -> set[str]:
    return {scope.in_range(package, bounds) for package, bounds in row["ranges"].items()}


def _is_read(program: Program, scope: FactScope) -> bool:
    """Tell whether the keys of this release are known: older ones than were read have no rows at all."""
    return any(_judge(row, scope) == {"yes"} for row in scope.rules.section(f"defaults/{program.name}") or ())


def is_own_code(documents: Sequence[Document]) -> bool:
    """Tell whether code of the user's own sets what no file does: a script, or a program of which no file is there."""
    return any(one.source.path.endswith(".py") for one in documents) or not any(
        find_program(one.reader).kind == "program" for one in documents
    )
