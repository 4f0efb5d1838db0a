"""The documents of a subject as they are once its files are edited: each changed text is read again, as any file is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Overlay
from compatcheck.fixing.edits.text import apply_edits, read_exact
from compatcheck.frameworks.composition import compose
from compatcheck.frameworks.recognise import read_configurations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.fix import TextEdit


def reread(documents: Sequence[Document], edits: Iterable[TextEdit]) -> tuple[Document, ...] | None:
    """Return the documents after edits of files; None where a file no longer reads as what it was."""
    edits = tuple(dict.fromkeys(edits))
    for path in dict.fromkeys(edit.path for edit in edits):
        try:
            text = read_exact(path)
            new = _read(path, apply_edits({path: text}, [edit for edit in edits if edit.path == path])[path])
            exchanged = _exchange(documents, path, new)
            if exchanged is None:
                return None
            documents, others = exchanged
            if others:
                known = {_place(document) for document in _read(path, text)}
                documents = (*documents, *(document for document in others if _place(document) not in known))
        except InputError:
            return None
    return compose(documents)


def _read(path: str, text: str) -> list[Document]:
    readings = read_configurations(path, Overlay(LOCAL, {path: text.encode()}), named=True)
    return [document for reading in readings for document in reading.documents]


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
