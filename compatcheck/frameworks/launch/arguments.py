"""From the options of one command to a document: known values by the program's key table, unknown ones listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Gap, Statement, Unresolved
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped
from compatcheck.frameworks.keys import SILENT
from compatcheck.frameworks.launch.flags import gaps_of_words
from compatcheck.frameworks.launch.values import part_joined
from compatcheck.frameworks.translation import translate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from compatcheck.core.command import Word
    from compatcheck.core.source import Source
    from compatcheck.frameworks.keys import Key
    from compatcheck.frameworks.launch.values import Argument

Reference = tuple[str, str, str]


class OptionMeanings(NamedTuple):
    """How one program's options are read."""

    reader: str
    """Whose command line it is; owns the defaults of left-out options."""
    table: Mapping[str, tuple[Key, ...]]
    irrelevant: Callable[[str], bool]
    """Tells whether an option is known and has no bearing on memory."""
    models: Mapping[str, str] = {}
    """Options that name a model, with the kind of reference they make: ``model``, ``model:critic``."""

    def knows(self, key: str) -> bool:
        """Tell whether an option is one of the program's, whatever its value."""
        return key in self.table or self.irrelevant(key)


class FurtherContent(NamedTuple):
    """What a command says beyond the rows of a key table."""

    known: tuple[Statement, ...] = ()
    references: tuple[Reference, ...] = ()
    """Other files the command names."""
    skipped: tuple[Skipped, ...] = ()
    unknown: tuple[Word, ...] = ()
    """Words that may hold any option: ``$EXTRA``."""
    gaps: tuple[Gap, ...] = ()
    """What else was not read and may set any option."""


def make_command_document(
    meanings: OptionMeanings, source: Source, options: Mapping[str, Argument], further: FurtherContent
) -> Document:
    """Translate the options of a command; what nobody can tell is listed as unresolved."""
    models = meanings.models
    options = {**options, **part_joined(options, meanings.table.keys())}
    for key in models.keys() & options.keys():
        given = options[key].value
        if isinstance(given, list):
            options[key] = options[key]._replace(value=None, why=f"is given several words: {' '.join(map(str, given))}")
    unknown = {
        key: one for key, one in options.items() if one.why is not None and (key in models or meanings.knows(key))
    }
    left_out = {*unknown, *models}
    values = ((key, argument.value) for key, argument in options.items() if key not in left_out)
    translation = translate(values, meanings.table, irrelevant=meanings.irrelevant, source=source)
    found = list(further.references)
    for key, kind in models.items():
        argument = options.get(key)
        if argument is not None and argument.why is None and isinstance(argument.value, str) and argument.value:
            found.append((kind, argument.value, key))
    lines = {key: argument.line for key, argument in options.items() if argument.line is not None}
    return Document(
        meanings.reader,
        source,
        (*translation.statements, *further.known),
        translation.unread,
        tuple(
            entry._replace(source=_located(entry.source, lines)) for entry in (*translation.skipped, *further.skipped)
        ),
        tuple(found),
        is_command=True,
        lines=lines,
        uses={key: argument.used for key, argument in options.items() if argument.used is not None},
        unresolved=(*translation.unresolved, *unresolved_options(unknown, meanings.table, models)),
        gaps=(*_place(translation.gaps, lines), *gaps_of_words(further.unknown), *further.gaps),
        table=meanings.table,
    )


def name_roles(roles: Iterable[str]) -> Iterator[Statement]:
    """Say which models a run has, also those of which nothing else is said."""
    for role in roles:
        yield Statement(None, "(a model of this run)", True, role)


def state_forward_only(role: str) -> Iterator[Statement]:
    """Say what holds for a model that is never trained, whatever the keys of the trained ones say."""
    key = "(only run forward)"
    yield Statement("program.keeps_graph", key, False, role)
    yield Statement("training.gradient_checkpointing", key, False, role)
    yield Statement("training.offload_optimizer", key, None, role)
    yield Statement("model.trainable_parameters", key, 0, role)


def state_value_heads(roles: Iterable[str]) -> Iterator[Statement]:
    """Say which models give one value for each token and no logits."""
    for role in {"critic", "reward"}.intersection(roles):
        yield Statement("program.makes_logits", "(a head of one value)", False, role)


def _place(gaps: Iterable[Gap], lines: Mapping[str, int]) -> Iterator[Gap]:
    return (gap._replace(source=_located(gap.source, lines)) for gap in gaps)


def _located(source: Source, lines: Mapping[str, int]) -> Source:
    line = lines.get(source.key or "")
    return source if line is None else source._replace(line=line)


def unresolved_options(
    options: Mapping[str, Argument], table: Mapping[str, tuple[Key, ...]], models: Mapping[str, str]
) -> Iterator[Unresolved]:
    """List the options whose value nobody can tell, by the facts they would decide."""
    for key, argument in options.items():
        if argument.why is None:
            continue
        if key in models:
            role = models[key].partition(":")[2] or None
            yield Unresolved("model.name", key, argument.why, role, argument.written)
            continue
        meanings = table.get(key, ())
        if not meanings or meanings is SILENT:
            yield Unresolved(None, key, argument.why)
            continue
        for meaning in meanings:
            yield Unresolved(meaning.fact, key, argument.why, meaning.role)


def skip_refused(words: Iterable[tuple[Word, str]]) -> Iterator[Skipped]:
    """Say which words the program itself would refuse."""
    for word, why in words:
        yield Skipped(word.source._replace(key=word.written), why, "mend the word")
