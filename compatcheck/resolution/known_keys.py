"""Keys that a release of their program does not know: what they say counts for nothing there.

Which releases have a key is data (``keys`` of ``rules/_programs/<name>.yaml``), and which take a value: ``training.trainer=xpo``
there is about whatever says so, ``activation_offloading@training.trainer=reward`` about a key beside it. A key is left out only
where no release that the environment allows has it. What it would decide is then open: the run does not start, or a script takes
the key itself. A program that takes no such keys (``refuses_unknown_keys``: argparse, HfArgumentParser, hydra) is then not the
one that reads the others either, and no default of its release holds. One that passes over them (``ignores_unknown_keys``) reads
the rest as if they were left out.
"""

from __future__ import annotations

from compatcheck.core.document import Gap, Unresolved, enclosing_keys
from compatcheck.core.source import Skipped
from compatcheck.rules.programs import lineage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from compatcheck.core.document import Document
    from compatcheck.resolution.scope import FactScope
    from compatcheck.rules.database import RuleSet

NEVER = "<0"
"""Releases of a key that stands in files and that none ever looked at."""


def drop_unknown_keys(documents: Sequence[Document], scope: FactScope) -> tuple[Document, ...]:
    """Return the documents without the keys that the program's release does not know, each of which becomes skipped."""
    return tuple(_drop(document, scope, values_beside(document, documents)) for document in documents)


def values_beside(document: Document, documents: Iterable[Document]) -> frozenset[str]:
    """Return what stands beside a document's keys, ``training.trainer=sft``: in it, or in a command of its program."""
    beside = (one for one in documents if one is document or (one.is_command and one.reader == document.reader))
    return frozenset(f"{entry.fact}={entry.value}" for one in beside for entry in one.statements)


def releases_of_keys(document: Document, rules: RuleSet) -> Mapping[str, Mapping[str, Any]]:
    """Return which releases have a key, of those that did not always: its own first, then what it is built on."""
    known: dict[str, Mapping[str, Any]] = {}
    if document.of_others:
        known.update(rules.section("keys/transformers") or {})
    for program in lineage(document.reader):
        known = {**(rules.section(f"keys/{program.name}") or {}), **known}
        if program.own_keys_only:
            break
    return known


def name_of(key: str, document: Document) -> str:
    """Return how the table names a key: without the section of another program's file, with the function that takes it."""
    return f"from_pretrained.{key}" if key in document.of_others else key.removeprefix(f"{document.reader}.")


def _find_unknown(document: Document, scope: FactScope, given: Collection[str]) -> dict[str, Skipped]:
    rows = releases_of_keys(document, scope.rules)
    if not rows:
        return {}
    beside = {f"@{value}" for _, _, value in (name.partition("@") for name in rows) if value}
    programs = lineage(document.reader)
    ignoring = {key for one in programs for key in one.ignores_unknown_keys}
    refusing = document.named and any(one.refuses_unknown_keys for one in programs)
    written = {entry.key for entry in document.statements} | {entry.key for entry in document.unresolved}
    written.update(key for _, _, key in document.references)
    names = {name_of(key, document): key for key in written}
    values = {f"{entry.fact}={entry.value}": entry.key for entry in document.statements if entry.fact is not None}
    names.update({f"{name}@{value}": key for name, key in names.items() for value in given if f"@{value}" in beside})
    names.update(values)
    unknown = {}
    for name in sorted(names.keys() & rows.keys()):
        for package, (specifier, bounds) in rows[name].items():
            if scope.in_range(package, bounds) == "no":
                found = scope.package(package)
                release = "" if found is None else f" {found.version or found.specifier}"
                source, passes = (
                    document.place(names[name]),
                    not ignoring.isdisjoint(("*", name, *enclosing_keys(name))),
                )
                reason = f"unknown to {package}{release}" + ", which passes over it" * passes
                hint = "no release has it" if specifier == NEVER else f"{package}{specifier} has it"
                unknown[names[name]] = Skipped(source, reason, hint, named=refusing and not passes, passes=passes)
    return unknown


def _drop(document: Document, scope: FactScope, given: Collection[str]) -> Document:
    unknown = _find_unknown(document, scope, given)
    if not unknown:
        return document
    gaps = document.gaps
    refused = [entry for entry in unknown.values() if not entry.passes]
    if refused and any(one.refuses_unknown_keys for one in lineage(document.reader)):
        why = f"is {refused[0].reason}: a fork or another release reads the command, and its defaults are not known"
        gaps = (*gaps, Gap(refused[0].source, why))
    open_keys = {key for key, entry in unknown.items() if not entry.passes}
    left_open = (
        Unresolved(entry.fact, entry.key, f"is {unknown[entry.key].reason}", entry.role)
        for entry in document.statements
        if entry.key in open_keys
    )
    return document._replace(
        gaps=gaps,
        statements=tuple(entry for entry in document.statements if entry.key not in unknown),
        unresolved=(*(one for one in document.unresolved if one.key not in unknown.keys() - open_keys), *left_open),
        skipped=(*document.skipped, *unknown.values()),
    )
