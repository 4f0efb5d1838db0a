"""The documents and variables of a subject once its files are edited: each changed text is read again, as any file is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.collectors.machine.variables import ALLOCATOR_VARIABLES, collect_variables
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Overlay
from compatcheck.core.source import Source
from compatcheck.fixing.edits.text import apply_edits, read_exact
from compatcheck.frameworks.composition import compose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compatcheck.collectors.machine.variables import Variables
    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment
    from compatcheck.core.fix import TextEdit
    from compatcheck.frameworks.reader import Reading


def reread(documents: Sequence[Document], edits: Iterable[TextEdit]) -> tuple[Document, ...] | None:
    """Return the documents after edits of files; None where a file reads as something else, or has a value that is none."""
    edits = tuple(dict.fromkeys(edits))
    for path in dict.fromkeys(edit.path for edit in edits):
        try:
            text = read_exact(path)
            new = _read(path, apply_edits({path: text}, [edit for edit in edits if edit.path == path])[path])
            exchanged = _exchange(documents, path, new)
            if exchanged is None or ((refused := _refused(new)) and refused - _refused(_read(path, text))):
                return None
            documents, others = exchanged
            if others:
                known = {_place(document) for document in _read(path, text)}
                documents = (*documents, *(document for document in others if _place(document) not in known))
        except InputError:
            return None
    return compose(documents)


def reread_variables(environment: Environment | None, edits: Iterable[TextEdit]) -> Environment | None:
    """Return an environment with what the allocator is asked for by launch scripts as they are after edits."""
    if environment is None:
        return None
    edits = tuple(dict.fromkeys(edits))
    for path in dict.fromkeys(edit.path for edit in edits):
        before = {name: fact for name, fact in environment.facts.items() if is_of_allocator(fact[1], path)}
        if not before:
            continue
        text = read_exact(path)
        after = apply_edits({path: text}, [edit for edit in edits if edit.path == path])[path]
        for old, new in zip(_read_variables(path, text), _read_variables(path, after), strict=False):
            if old.facts.items() >= before.items():
                kept = {name: fact for name, fact in environment.facts.items() if name not in before}
                variables = {**(environment.variables or {}), **new.values}
                environment = environment._replace(variables=variables, facts={**kept, **new.facts})
                break
    return environment


def is_of_allocator(source: Source, path: str | None = None) -> bool:
    """Tell whether a place is an option of the allocator's variable, in a file where one is given."""
    return source.key in ALLOCATOR_VARIABLES and path in {None, source.path}


def _read_variables(path: str, text: str) -> Iterator[Variables]:
    for reading in _read_all(path, text):
        yield collect_variables(reading.variables, Source(path))


def _read_all(path: str, text: str) -> Iterable[Reading]:
    from compatcheck.frameworks.recognise import read_configurations  # noqa: PLC0415 (only where a file is edited)

    return read_configurations(path, Overlay(LOCAL, {path: text.encode()}), named=True)


def _read(path: str, text: str) -> list[Document]:
    return [document for reading in _read_all(path, text) for document in reading.documents]


def _refused(documents: Iterable[Document]) -> set[tuple[str | None, str]]:
    """List the values that a program does not take."""
    return {(one.source.key, one.reason) for document in documents for one in document.skipped}


def _place(document: Document) -> tuple[str, int | None, bool]:
    return document.reader, document.source.line, document.is_command


def _exchange(
    documents: Sequence[Document], path: str, new: Sequence[Document]
) -> tuple[tuple[Document, ...], list[Document]] | None:
    """Put what a file reads as now in the place of what it read as.

    Returns:
        The documents, and those of the file that take no other's place; None where it reads as something else.
    """
    result, others = [], list(new)
    for document in documents:
        if document.source.path != path:
            result.append(document)
            continue
        matching = [
            one
            for one in others
            if (one.source.line, one.is_command) == (document.source.line, document.is_command)
            and bool(one.table) is bool(document.table)
        ]
        if not matching:
            return None
        taken = min(matching, key=lambda one: one.reader != document.reader)  # following may have told a program better
        others = [one for one in others if one is not taken]
        result.append(_as_followed(taken, document))
    return tuple(result), others


def _as_followed(new: Document, before: Document) -> Document:
    """Give a document what following its references gave the one before: a program told more exactly, models, gaps."""
    models = tuple(one for one in before.statements if one.fact == "model.name" and one not in new.statements)
    return new._replace(
        reader=before.reader,
        named=before.named,
        statements=(*new.statements, *models),
        skipped=before.skipped,
        gaps=before.gaps,
    )
