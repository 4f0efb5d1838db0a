"""Keys that a release of their program does not know: what they say counts for nothing there.

Which releases have a key is data (``keys`` of ``rules/_programs/<name>.yaml``). A key is left out only where no release that
the environment allows has it. What it would decide is then open: the run does not start, or a script takes the key itself. A
program that takes no such keys (``refuses_unknown_keys``: argparse, HfArgumentParser, hydra) is then not the one that reads the
others either, and no default of its release holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Gap, Unresolved
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
    refuses = find_program(document.reader).refuses_unknown_keys
    unknown = {}
    written = {entry.key for entry in document.statements} | {entry.key for entry in document.unresolved}
    written.update(key for _, _, key in document.references)
    for key in sorted(written & rows.keys()):
        for package, (specifier, bounds) in rows[key].items():
            if scope.in_range(package, bounds) == "no":
                found = scope.package(package)
                release = "" if found is None else f" {found.version or found.specifier}"
                source = document.place(key)
                reason, hint = f"unknown to {package}{release}", f"{package}{specifier} has it"
                unknown[key] = Skipped(source, reason, hint, named=refuses and document.named)
    if not unknown:
        return document
    gaps = document.gaps
    if refuses:
        first = next(iter(unknown.values()))
        why = f"is {first.reason}: a fork or another release reads the command, and its defaults are not known"
        gaps = (*gaps, Gap(first.source, why))
    dropped = [entry for entry in document.statements if entry.key in unknown]
    left_open = (Unresolved(entry.fact, entry.key, f"is {unknown[entry.key].reason}", entry.role) for entry in dropped)
    return document._replace(
        gaps=gaps,
        statements=tuple(entry for entry in document.statements if entry.key not in unknown),
        unresolved=(*document.unresolved, *left_open),
        skipped=(*document.skipped, *unknown.values()),
    )
