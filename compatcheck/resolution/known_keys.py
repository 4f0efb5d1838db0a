"""Keys that a release of their program does not know: what they say counts for nothing there.

Which releases have a key is data (``keys`` of ``rules/_programs/<name>.yaml``). A key is left out only where no release that
the environment allows has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Gap
from compatcheck.core.source import Skipped
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.core.document import Document
    from compatcheck.resolution.scope import FactScope


def drop_unknown_keys(documents: Sequence[Document], scope: FactScope) -> tuple[Document, ...]:
    """Return the documents without the keys that the program's release does not know, each of which becomes skipped."""
    return tuple(_drop(document, scope) for document in documents)


def _drop(document: Document, scope: FactScope) -> Document:
    rows = scope.rules.section(f"keys/{document.reader}") or {}
    unknown = {}
    for key in {statement.key for statement in document.statements} & rows.keys():
        for package, (specifier, bounds) in rows[key].items():
            if scope.in_range(package, bounds) == "no":
                found = scope.package(package)
                release = "" if found is None else f" {found.version or found.specifier}"
                source = document.place(key)
                unknown[key] = Skipped(source, f"unknown to {package}{release}", f"{package}{specifier} has it")
    if not unknown:
        return document
    gaps = document.gaps
    if find_program(document.reader).refuses_unknown_keys:
        first = next(iter(unknown.values()))
        why = f"is {first.reason}: a fork or another release reads the command, and its defaults are not known"
        gaps = (*gaps, Gap(first.source, why))
    return document._replace(
        gaps=gaps,
        statements=tuple(statement for statement in document.statements if statement.key not in unknown),
        skipped=(*document.skipped, *(unknown[key] for key in sorted(unknown))),
    )
