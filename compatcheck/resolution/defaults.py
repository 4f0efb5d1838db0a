"""Defaults of keys that were left out: they belong to the program that reads the configuration, at its release.

A default applies only where a document of that reader is present, or a facts file names the program. Rows are data
(``rules/_programs/<name>.yaml``): a row applies when ``key`` and every key of ``absent`` are left out of the reader's
documents, every key of ``present`` stands there, the releases fit ``affected`` and ``when`` is true; ``key: null`` stands
for what the program fixes by itself. A ``forced`` row replaces even a stated value. A row with a ``role`` is about that
model alone, and one that ``follows`` a role has the value of that model's fact, which is resolved before. Traits are rows about
what a program's code does whatever the keys.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from compatcheck.core.document import enclosing_keys
from compatcheck.core.facts import Fact
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.versions import compile_specifier
from compatcheck.frameworks.keys import SILENT
from compatcheck.resolution.gaps import Gaps, find_gaps, find_idle
from compatcheck.resolution.gaps import open_facts as find_open_facts
from compatcheck.resolution.imported import UNREAD
from compatcheck.resolution.scope import FactScope
from compatcheck.resolution.subject import Conflict
from compatcheck.rules.expression import Unknown, evaluate
from compatcheck.rules.programs import ANY, find_program, lineage, programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from compatcheck.core.document import Document
    from compatcheck.rules.program import Program

SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fsdp_config": ("training.sharding", ("fsdp",)),
    "deepspeed_config": ("training.sharding", ("zero",)),
    "zero_optimization.offload_optimizer": ("training.offload_optimizer", ("cpu", "nvme")),
    "zero_optimization.offload_param": ("training.offload_param", ("cpu", "nvme")),
}
"""What a section being there amounts to where no file of that reader was read: a facts file or another program said so."""

CODE, READ = "program.code", "program.read"

_CERTAIN, _MAYBE, _NO = "certain", "maybe", "no"


def reader_chain(readers: Iterable[str], documents: Sequence[Document]) -> list[str]:
    """Order the tables that apply: a part before its program, what a program is built on after it, libraries last."""
    chain = {program.name: program for reader in readers for program in lineage(reader)}
    keys = {key for document in documents for key in keys_of(document)}
    for program in chain.values():
        keys.update(_renamed(keys, program))
    tables: list[str] = []
    for program in sorted(chain.values(), key=lambda program: program.order):
        tables += [part.name for part in program.parts if keys.intersection(part.keys)]
        tables.append(program.name)
    return tables


def _renamed(keys: Iterable[str], program: Program) -> set[str]:
    """Return what keys of a program are called in the program it is built on."""
    return {program.renames[key] for key in keys if key in program.renames}


_ANYTHING = "*"
"""Stands for the keys inside a section that was not understood: none of them is known to be left out."""


def keys_of(document: Document) -> set[str]:
    """Return every key a document writes, with the sections around it; null and an empty section state nothing.

    A key that counts for nothing in this run is not known to be left out either: its default counts for nothing too.
    """
    written = {
        statement.key.removeprefix("deepspeed.") if document.reader == "deepspeed" else statement.key
        for statement in document.statements
        if statement.fact is not None or statement.value not in (None, {}, [])
    }
    written.update(key for key, _ in document.unread)
    skipped = {one.source.key: one.passes for one in document.skipped if one.source.key is not None}
    not_understood = {key for key, passes in skipped.items() if not passes}
    written.update(not_understood)
    written.update(entry.key for entry in document.unresolved)
    written.update(key for key, meanings in document.table.items() if meanings is SILENT)
    keys = {f"{key}.{_ANYTHING}" for key in not_understood}
    for key in written:
        keys.update((key, *enclosing_keys(key)))
    for key in skipped:  # the section of a key that is passed over is there
        keys.update(enclosing_keys(key))
    return keys


class Applied(NamedTuple):
    """What defaults leave open."""

    hidden: frozenset[str]
    """Facts that something not read may set."""
    by_release: Mapping[str, tuple[Any, str]]
    """Facts whose default depends on a release that nobody knows: the newest one's, and whose it is in words."""


def apply_defaults(
    readers: Iterable[str],
    documents: Sequence[Document],
    scope: FactScope,
    facts: dict[str, Fact],
    role: str = "train",
    open_facts: frozenset[str] = frozenset(),
) -> Applied:
    """Add the default of every fact that no document states; return what they leave open, as `Defaults` does."""
    return Defaults(readers, scope, facts, role).apply(documents, open_facts)


class Defaults:
    """The default rows of a run's programs over its facts; what its documents alone decide of them is asked once."""

    def __init__(self, readers: Iterable[str], scope: FactScope, facts: dict[str, Fact], role: str = "train") -> None:
        """Take what the rows are asked with.

        Args:
            readers: the programs that read this run's configuration, strongest first.
            scope: a scope over ``facts``.
            facts: grown in place.
            role: whose facts they are; ``train`` gets the actor's rows too.
        """
        self._readers = tuple(readers)
        self._scope = scope
        self._facts = facts
        self._role = role
        self._documents: Sequence[Document] | None = None
        self._chain: Sequence[str] = ()
        self._tables: Sequence[_Table] = ()

    def apply(
        self,
        documents: Sequence[Document],
        open_facts: frozenset[str] = frozenset(),
        waiting: frozenset[str] = frozenset(),
    ) -> Applied:
        """Add the default of every fact that no document states; return what they leave open.

        Args:
            documents: those of the readers; a program that only a facts file names has none.
            open_facts: facts that are set to something nobody knows, whatever the key: they get no default.
            waiting: facts that follow from such ones: they get what is forced alone.
        """
        if self._documents is None or [*map(id, self._documents)] != [*map(id, documents)]:
            self._documents = documents
            self._chain, self._tables = self._collect(documents)
        scope, facts = self._scope, self._facts
        open_to_all = find_open_facts(documents, None, facts)
        undecided, hidden = _left_to_others(self._chain, documents, scope) | open_facts | waiting, set[str]()
        for table in self._tables:  # before any of them states what another may be asked for
            table.begin(open_to_all)
        by_release: dict[str, tuple[Any, str]] = {}
        for table in self._tables:
            hidden |= table.hidden
            undecided |= table.apply(undecided, waiting - open_facts)
            by_release = {**table.by_release, **by_release}
        of_others = (
            {name for table in self._tables for name in table.find_of_others()}
            if any(one.beneath for one in documents)
            else set()
        )
        left = (undecided | by_release.keys() | of_others) - hidden - open_facts - waiting - facts.keys()
        fixed = set().union(*(table.forced for table in self._tables))
        _take_beneath(documents, left, fixed, scope, facts, self._role)
        return Applied(frozenset(hidden), {name: one for name, one in by_release.items() if name not in facts})

    def _collect(self, documents: Sequence[Document]) -> tuple[Sequence[str], Sequence[_Table]]:
        """Return the tables that apply, each with what the documents write of its keys."""
        chain = reader_chain(self._readers, documents)
        owners = {part.name: (program, part) for program in programs().values() for part in program.parts}
        if all(find_program(reader).leaves_model_alone for reader in self._readers):
            chain += [name for name, (_, part) in owners.items() if part.model_left_alone]
        written, idle = [keys_of(document) for document in documents], find_idle(documents)
        tables: list[_Table] = []
        for name in chain:
            rows = [row for row in self._scope.rules.section(f"defaults/{name}") or () if _concerns(row, self._role)]
            if rows:
                program, part = owners.get(name) or (find_program(name), None)
                label = f"default of {program.label if part is None else part.label}"
                about_all = (
                    part is not None and part.model_left_alone
                )  # whoever says it says it in words of transformers
                keys = set().union(*written) if about_all else _keys_for(program, documents, written)
                origin = "library-default" if program.order else "reader-default"
                gaps = _gaps_for(program, documents, everything=about_all)
                marked = [dict(row, idle=True) if _is_at_default(row, idle) else row for row in rows]
                table = _Table(marked, keys, self._scope, self._facts, (label, origin), gaps)
                table.places = _places_of(rows, documents)
                tables.append(table)
        for index, table in enumerate(tables):
            table.beneath = tables[index + 1 :]
        return chain, tables


def _take_beneath(
    documents: Sequence[Document], left: set[str], fixed: set[str], scope: FactScope, facts: dict[str, Fact], role: str
) -> None:
    """Take what the sources of a program have where nobody knows which release this is: its own defaults, not those of releases.

    So where only other releases are known to have one: a fork may have taken it over. Where the release is known, what its
    sources have counts for what its releases differ in. What its code does whatever the keys say (``fixed``) stays.
    """
    of = (None, "actor" if role == "train" else role)
    for document in documents:
        package = scope.package(find_program(document.reader).packages[0]) if document.beneath else None
        is_open = package is None or package.version is None
        for beneath in document.beneath:
            for one in beneath.statements:
                known = facts.get(str(one.fact))
                replaces = (
                    is_open and known is not None and known.origin == "reader-default" and known.value != one.value
                ) and one.fact not in fixed
                if one.fact is not None and one.role in of and (replaces or (one.fact in left and known is None)):
                    place = beneath.place(one.key)
                    label = "default of the checkout"
                    facts[one.fact] = Fact(one.fact, one.value, "reader-default", (place,), label)  # type: ignore[arg-type]  # a vocabulary value


def contradict_defaults(
    names: Iterable[str],
    readers: Iterable[str],
    documents: Sequence[Document],
    scope: FactScope,
    role: str,
    open_facts: frozenset[str],
) -> tuple[Conflict, ...]:
    """Return what a DeepSpeed file states and its trainer, whose arguments leave it out, has another default for.

    It compares its arguments with the file whether they are stated or not (transformers integrations/deepspeed.py fill_match).
    """
    own = [document for document in documents if document.reader != "deepspeed"]
    there = {document.reader for document in own}
    programs = map(find_program, readers)
    trainers = [
        one.name for one in programs if one.kind == "program" and one.reconciles_deepspeed and one.name in there
    ]
    facts = {
        name: fact
        for name, fact in scope.facts.items()
        if name not in names and not (name == STEPS and fact.origin == "derived")
    }
    apply_defaults(
        trainers, own, FactScope(facts, scope.environment, scope.rules, growing=True), facts, role, open_facts
    )
    if trainers:
        _count_batch(facts)
    return tuple(
        Conflict(name, tuple((fact.value, fact.sources[-1]) for fact in (scope.facts[name], facts[name])), refused=True)
        for name in names
        if name in facts and facts[name].value != scope.facts[name].value
    )


def _count_batch(facts: dict[str, Fact]) -> None:
    """Count the sequences of a step as the trainer does, from its own arguments (fill_match of ``train_batch_size``)."""
    whole, parts = "training.global_batch_size", ("training.micro_batch_size", STEPS, "hardware.world_size")
    values = [facts[name].value for name in parts if name in facts]
    if len(values) == len(parts) and all(isinstance(value, int) for value in values):
        micro, steps, ranks = values
        words = f"{micro} × {steps} × {ranks} ranks"
        facts[whole] = Fact(whole, micro * steps * ranks, "derived", facts[parts[0]].sources, words)  # type: ignore[operator]  # integers


STEPS = "training.gradient_accumulation_steps"


def apply_traits(
    scope: FactScope, facts: dict[str, Fact], readers: Iterable[str] = (), opened: Iterable[str] = ()
) -> None:
    """Add what the code of the program that trains does by itself, as far as somebody has read it.

    One that runs the loop of another, whose name ``training.framework`` has, is asked first (``readers``). What a script that
    was not read decides, or a key in a way that nobody knows (``opened``), stays unknown.
    """
    framework = facts.get("training.framework")
    undecided = set(opened)
    names = () if framework is None else (*_of_loop(str(framework.value), readers), str(framework.value))
    found = {program.name: program for name in (*names, ANY) for program in lineage(name)}
    for program in found.values():
        rows = scope.rules.section(f"traits/{program.name}")
        if rows:
            label = f"code of {program.label}"
            if framework is not None and program.name != ANY:
                facts.setdefault(READ, Fact(READ, True, "reader-default", framework.sources, label))
            undecided |= _Table(rows, None, scope, facts, (label, "reader-default")).apply(undecided)
    for program in found.values():
        for name, releases in program.read.items():
            if framework is not None and scope.in_range(name, compile_specifier(releases)) == "no":
                words = f"{name} {_release(scope, name)}, of which {releases} was read"
                facts.setdefault(
                    UNREAD, Fact(UNREAD, words, "reader-default", framework.sources, f"code of {program.label}")
                )
    if framework is not None and CODE not in undecided:
        facts.setdefault(
            CODE, Fact(CODE, framework.value, "reader-default", framework.sources, "the program's own code")
        )


def _release(scope: FactScope, name: str) -> str:
    package = scope.package(name)
    return str((package.version or package.specifier) if package is not None else "")


def _of_loop(framework: str, readers: Iterable[str]) -> Iterator[str]:
    return (reader for reader in readers if find_program(reader).runs_as == framework)


def _concerns(row: Mapping[str, Any], role: str) -> bool:
    wanted = row.get("role")
    return wanted is None or ("actor" if role == "train" else role) in (
        wanted if isinstance(wanted, list) else [wanted]
    )


def _left_to_others(chain: Sequence[str], documents: Sequence[Document], scope: FactScope) -> set[str]:
    """Return the facts whose default depends on which of two programs reads a file.

    The shortest files of TRL and of a script on the plain Trainer hold the same keys. Where the environment has the one that
    resembles the other, nothing tells which of them it is, so the defaults that it changes stay unknown.
    """
    left: set[str] = set()
    for program in programs().values():
        other = program.resembles
        if other is None or other.reader not in chain or program.name in chain or scope.package(other.package) is None:
            continue
        keys = set().union(*(keys_of(document) for document in documents if document.reader == other.reader))
        if keys.issuperset(other.keys):
            left.update(row["fact"] for row in scope.rules.section(f"defaults/{program.name}") or ())
    return left


def _is_at_default(row: Mapping[str, Any], idle: Mapping[str, bool]) -> bool:
    """Tell whether a row's key is written, states nothing, and has the very value that it has where it is left out."""
    return row["key"] in idle and idle[row["key"]] is row.get("raw")


def _places_of(rows: Iterable[Mapping[str, Any]], documents: Iterable[Document]) -> dict[str, tuple[Source, ...]]:
    """Return where the keys stand that rows need written; of one that sums up several, where those stand."""
    wanted = {key for row in rows for key in row["present"]}
    return {
        statement.key: tuple(document.place(key) for key in statement.value)
        if isinstance(statement.value, tuple)
        else (document.place(statement.key),)
        for document in documents
        for statement in document.statements
        if statement.key in wanted
    }


def _keys_for(program: Program, documents: Sequence[Document], written: Sequence[set[str]]) -> set[str] | None:
    """Return the keys of the documents a program's rows are about: its own, or those of the programs built on it."""
    found = []
    for document, own in zip(documents, written, strict=True):
        line = lineage(document.reader)
        if program in line:
            keys = set(own)
            for above in line[: line.index(program)]:
                keys.update(_renamed(keys, above))
            found.append(keys)
    return set().union(*found) if found else None


def _gaps_for(program: Program, documents: Sequence[Document], *, everything: bool) -> Gaps:
    """Return what was not read of the documents a program's rows are about; of all of them where none is its own.

    A script may set what any program reads.
    """
    own = [document for document in documents if program in lineage(document.reader)]
    scripts = [document for document in documents if find_program(document.reader).kind == "script"]
    return Gaps(find_gaps(documents if everything or not own else (*own, *scripts)))


class _Table:
    """The rows of one program, or of one of its parts, over one run."""

    def __init__(
        self,
        rows: list[dict[str, Any]],
        keys: set[str] | None,
        scope: FactScope,
        facts: dict[str, Fact],
        voice: tuple[str, str],
        gaps: Gaps | None = None,
    ) -> None:
        self.label, self.origin = voice
        self.rows = rows
        self.keys = keys
        self.not_understood = any(key.endswith(_ANYTHING) for key in keys or ())
        self.scope = scope
        self.facts = facts
        self.gaps = Gaps(()) if gaps is None else gaps
        self.places: Mapping[str, tuple[Source, ...]] = {}
        """Where keys stand that rows need written."""
        self.open_to_all: frozenset[str] = frozenset()
        """Facts that something not read may set for any model: the others may follow it."""
        self.forced: set[str] = set()
        """Facts that the program's code decides, whatever its configuration says."""
        self.beneath: Sequence[_Table] = ()
        """Those of the programs that this one is built upon: their defaults hold in releases that none of its rows is about."""
        self.about: dict[str, int] = {}
        """Package → its releases that any row with a range of them is about."""
        self.by_release: dict[str, tuple[Any, str]] = {}
        """Facts that are left open because releases differ: value in the newest one that is possible, and whose it is."""
        self.hidden: set[str] = set()
        """Facts of rows that rest on keys which something that was not read may set."""
        self._fitting: dict[int, str] = {}
        """Row → whether its releases are those that are here."""
        self._by_keys: dict[tuple[int, bool], bool] = {}
        """Row, and whether it is asked what was not read → the answer; what the documents write stays as it is."""

    def begin(self, open_to_all: frozenset[str]) -> None:
        """Look at the facts as they are now: which of them something that was not read may set, for this model or for any."""
        self.open_to_all = open_to_all
        self.by_release, self.forced = {}, set()
        self.hidden = {row["fact"] for row in self.rows if row["fact"] not in self.facts and self.may_be_set(row)}

    def apply(self, undecided: set[str], waiting: Container[str] = ()) -> set[str]:
        """Apply the rows until nothing new follows; return the facts whose rows apply but cannot be told apart or evaluated."""
        undecided = undecided | self.hidden
        rows = [
            row
            for row in self.rows
            if (row["fact"] not in undecided or (row["forced"] and row["fact"] in waiting))
            and self.is_possible(row)
            and self.fits_keys(row)
        ]
        rows.sort(key=lambda row: not row["forced"] or row["when"] is not None)  # conditions look at what is fixed
        progress = True
        while progress:
            pending = [row for row in rows if row["forced"] or row["fact"] not in self.facts]
            progress = any([*map(self.settle, pending)])
        open_rows: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            if row["fact"] not in self.facts and not row["forced"] and self.verdict(row) != _NO:
                open_rows.setdefault(row["fact"], []).append(row)
        left = set(self.hidden)
        for row in rows:  # what another row may replace, by what was not read
            stated = self.facts.get(row["fact"])
            if not row["forced"] or stated is None or stated.origin == "set" or stated.value == self.value(row):
                continue
            if self.is_open(row, undecided):
                del self.facts[row["fact"]]
                left.add(row["fact"])
            elif stated.origin == "derived" and self.verdict(row) == _MAYBE and not self.depends_on_facts(row):
                value = self.value(row)  # it replaces what merely follows where a default would be stated
                if not isinstance(value, Unknown) and self.lasts([row], elsewhere=False):
                    self.state(row["fact"], value, "in every release that is possible here", stated)
        for name, found in open_rows.items():
            candidates = [row for row in found if self.verdict(row) != _NO]  # by what the rows before have stated
            if not candidates:
                continue
            values = [self.value(row) for row in candidates]
            differ = isinstance(values[0], Unknown) or any(value != values[0] for value in values)
            waits = differ or all(self.depends_on_facts(row) for row in candidates)
            waits = waits or self.may_be_replaced(name, values[0], rows, undecided)
            if waits or not self.lasts(candidates, elsewhere=self.is_other_beneath(name, values[0])):
                left.add(name)
                self.by_release.update((name, newest) for newest in self.find_newest(candidates))
            else:
                self.state(name, values[0], "in every release that is possible here")
        return left

    def may_be_replaced(
        self, name: str, value: object, rows: Iterable[Mapping[str, Any]], undecided: Container[str]
    ) -> bool:
        """Tell whether a row that is forced has another value for a fact, by what was not read."""
        return any(
            row["forced"] and row["fact"] == name and self.value(row) != value and self.is_open(row, undecided)
            for row in rows
        )

    def find_newest(self, candidates: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, str]]:
        """Yield the default in the newest release that is possible here, where a release alone tells rows apart."""
        found: dict[Any, set[str]] = {}
        for row in candidates:
            value = self.value(row)
            if self.depends_on_facts(row) or isinstance(value, Unknown):
                return
            open_names = {name for name in row["ranges"] if self.scope.in_range(name, row["ranges"][name]) != "yes"}
            if all(self.is_newest_in(row, name) for name in open_names):
                found.setdefault(value, set()).update(open_names)
        if len(found) == 1:
            value, names = found.popitem()
            words = (
                f"{self.label} in its newest release; which release of {' and '.join(sorted(names))} runs is not known"
            )
            yield value, words

    def find_of_others(self) -> Iterator[str]:
        """Yield the facts of which only other releases than those that are possible here have a default."""
        for row in self.rows:
            if not self.is_possible(row) and row["when"] is None and not row["forced"] and self.fits_keys(row):
                yield row["fact"]

    def is_newest_in(self, row: Mapping[str, Any], package: str) -> bool:
        """Tell whether a row is about the newest release of a package that is possible here."""
        known = self.scope.package(package)
        bounds = compile_specifier(known.specifier) if known is not None and known.specifier else "present"
        return self.held(row, package).bit_length() == self.scope.rules.held(bounds, package).bit_length()

    def lasts(self, candidates: Sequence[Mapping[str, Any]], *, elsewhere: bool) -> bool:
        """Tell whether rows hold, once they begin, in every later release that is possible here and any row is about.

        What came before the first of them may not have been read, unless another row is about it and what lies beneath has
        another default (``elsewhere``); a default that ended is none of a release nobody knows.
        """
        for name in dict.fromkeys(name for row in candidates for name in row["ranges"]):
            package = self.scope.package(name)
            if package is not None and package.version is not None:
                continue
            if name not in self.about:
                self.about[name] = self.held_by_any((row for row in self.rows if name in row["ranges"]), name)
            here, about = self.held_by_any(candidates, name), self.about[name]
            if package is not None and package.specifier:
                possible = self.scope.rules.held(compile_specifier(package.specifier), name)
                here, about = here & possible, about & possible
            before = (here & -here) - 1  # every release older than the first that a candidate is about
            missed = about & ~here
            if here and (missed & ~before or (elsewhere and missed & before)):
                return False
        return True

    def held(self, row: Mapping[str, Any], package: str) -> int:
        """Return the releases of a package that a row is about, as bits; all of them where it says nothing of it."""
        return self.scope.rules.held(row["ranges"].get(package, "present"), package)

    def held_by_any(self, rows: Iterable[Mapping[str, Any]], package: str) -> int:
        """Return the releases of a package that any of these rows is about."""
        return reduce(or_, (self.held(row, package) for row in rows), 0)

    def is_other_beneath(self, fact: str, value: object) -> bool:
        """Tell whether a program that this one is built upon may have another default."""
        return any(
            row["fact"] == fact and table.fits_keys(row) and table.verdict(row) != _NO and table.value(row) != value
            for table in self.beneath
            for row in table.rows
        )

    def depends_on_facts(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row waits for its condition, and not only for a release."""
        return row["when"] is not None and isinstance(evaluate(row["when"], self.scope), Unknown)

    def is_open(self, row: Mapping[str, Any], undecided: Container[str]) -> bool:
        """Tell whether a row's condition waits for a fact that something which was not read may set."""
        condition = None if row["when"] is None else evaluate(row["when"], self.scope)
        needs = condition.needs if isinstance(condition, Unknown) else ()
        return any(need in undecided or need in self.open_to_all or self.gaps.may_set("", need) for need in needs)

    def settle(self, row: Mapping[str, Any]) -> bool:
        """Apply one row when it certainly applies; tell whether that changed anything."""
        known = self.facts.get(row["fact"])
        if (known is not None and not row["forced"]) or self.verdict(row) != _CERTAIN:
            return False
        value = self.value(row)
        if isinstance(value, Unknown):
            return False
        if row["forced"]:
            self.forced.add(row["fact"])
        if known is not None and known.value == value:
            return False
        decisive = row["present"] if row["key"] is None else ()  # nothing was left out: what is written decides
        places = tuple(place for key in decisive for place in self.places.get(key, ()))
        followed = None if row.get("follows") is None else self.followed(row)
        if followed is not None:
            places += followed.sources
        self.state(row["fact"], value, row.get("note"), known if row["forced"] else None, places)
        return True

    def fits_keys(self, row: Mapping[str, Any]) -> bool:
        """Tell whether the documents leave out what the row needs left out, and write what it needs written."""
        return self._ask_once(row, self._fits_keys, open_keys=False)

    def may_be_set(self, row: Mapping[str, Any]) -> bool:
        """Tell whether something that was not read may set a key that a row needs left out, or that it needs and nobody writes.

        What is written stays so: a row that needs it left out does not hold whatever else may be set.
        """
        return self._ask_once(row, self._may_be_set, open_keys=True)

    def _ask_once(self, row: Mapping[str, Any], ask: Callable[[Mapping[str, Any]], bool], *, open_keys: bool) -> bool:
        if self.keys is None:  # facts say which sections are there
            return ask(row)
        key = id(row), open_keys
        if key not in self._by_keys:
            self._by_keys[key] = ask(row)
        return self._by_keys[key]

    def _fits_keys(self, row: Mapping[str, Any]) -> bool:
        own = row["key"] is None or row["forced"] or row.get("idle")
        left_out = [*row["absent"], *([] if own else [row["key"]])]
        return not any(map(self.may_stand, left_out)) and all(self.is_there(section) for section in row["present"])

    def _may_be_set(self, row: Mapping[str, Any]) -> bool:
        own = row["key"] is None or row["forced"] or row.get("idle")
        left_out = [*row["absent"], *([] if own else [row["key"]])]
        if self.keys is not None and not self.keys.isdisjoint(left_out):
            return False
        missing = (section for section in row["present"] if not self.is_there(section))
        return any(self.gaps.may_set(key, row["fact"]) for key in (*left_out, *missing))

    def may_stand(self, key: str) -> bool:
        """Tell whether a document writes a key, or may write it inside a section that was not understood."""
        keys = self.keys or set()
        if key in keys or not self.not_understood:
            return key in keys
        parts = key.split(".")
        return any(".".join((*parts[:count], _ANYTHING)) in keys for count in range(1, len(parts)))

    def is_there(self, section: str) -> bool:
        """Tell whether a section is in a file of this reader or, without such a file, whether a fact says as much."""
        if self.keys is not None:
            return section in self.keys
        name, values = SECTIONS.get(section, ("", ()))
        fact = self.facts.get(name)
        return fact is not None and fact.value in values

    def is_possible(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a release that is possible here is one that a row is about."""
        return self._fit(row) != _NO

    def _fit(self, row: Mapping[str, Any]) -> str:
        """Tell whether the releases that are here are those of a row: certain, maybe or no; they stay as they are."""
        known = self._fitting.get(id(row))
        if known is None:
            answers = {self.scope.in_range(name, bounds) for name, bounds in row["ranges"].items()}
            known = _NO if "no" in answers else _CERTAIN if answers <= {"yes"} else _MAYBE
            self._fitting[id(row)] = known
        return known

    def verdict(self, row: Mapping[str, Any]) -> str:
        """Tell whether a row's releases and condition hold: certain, maybe or no."""
        fit = self._fit(row)
        if fit == _NO or row["when"] is None:
            return fit
        condition = evaluate(row["when"], self.scope)
        if isinstance(condition, Unknown):
            return _MAYBE
        return fit if condition else _NO

    def value(self, row: Mapping[str, Any]) -> Any:  # noqa: ANN401 (a vocabulary value, or Unknown)
        """Return the row's value, or Unknown; that of another model's fact where the row follows it."""
        if row.get("follows") is not None:
            followed = self.followed(row)
            return Unknown(frozenset((row["fact"],))) if followed is None else followed.value
        value = row["value"] if row["expression"] is None else evaluate(row["expression"], self.scope)
        return tuple(value) if isinstance(value, list) else value

    def followed(self, row: Mapping[str, Any]) -> Fact | None:
        """Return the fact of the other model that a row follows."""
        return self.scope.others.get(row["follows"], {}).get(row["fact"])

    def state(
        self,
        name: str,
        value: Any,  # noqa: ANN401 (see value)
        note: str | None,
        replaced: Fact | None = None,
        places: tuple[Source, ...] = (),
    ) -> None:
        """Add a fact with the places it rests on; a replaced value stays visible as an alternative."""
        alternatives = () if replaced is None else tuple((replaced.value, source) for source in replaced.sources)
        self.facts[name] = Fact(name, value, self.origin, (*places, Source(self.describe(name))), note, alternatives)

    def describe(self, name: str) -> str:
        """Describe whose default it is: ``default of the HF Trainer (transformers 4.48.0)``."""
        asked = dict.fromkeys(package for row in self.rows if row["fact"] == name for package in row["ranges"])
        found = [(package, self.scope.package(package)) for package in asked]
        versions = [
            f"{label} {package.version or package.specifier}".rstrip()
            + (f", with --{package.brought_by[0]}" if len(package.brought_by) == 1 else "")
            for label, package in found
            if package is not None
        ]
        return f"{self.label} ({', '.join(versions)})" if versions else self.label
