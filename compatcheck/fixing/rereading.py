"""The documents of a subject as they are once its files are edited: each changed text is read again, as any file is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Overlay
from compatcheck.fixing.edits.text import apply_edits, read_exact
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
            text = apply_edits({path: read_exact(path)}, [edit for edit in edits if edit.path == path])[path]
            readings = read_configurations(path, Overlay(LOCAL, {path: text.encode()}), named=True)
        except InputError:
            return None
        exchanged = _exchange(documents, path, [document for reading in readings for document in reading.documents])
        if exchanged is None:
            return None
        documents = exchanged
    return tuple(documents)


def _exchange(documents: Sequence[Document], path: str, new: Sequence[Document]) -> tuple[Document, ...] | None:
    """Put what a file reads as now in the place of what it read as; None where it reads as something else."""
    result, taken = [], set[int]()
    for document in documents:
        if document.source.path != path:
            result.append(document)
            continue
        matching = (
            index
            for index, one in enumerate(new)
            if index not in taken
            and (one.source.line, one.is_command) == (document.source.line, document.is_command)
            and bool(one.table) is bool(document.table)
        )
        index = next(matching, None)
        if index is None:
            return None
        taken.add(index)
        result.append(_as_followed(new[index], document))
    return tuple(result)


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
