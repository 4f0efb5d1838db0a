"""Defaults of keys that were left out: they belong to the program that reads the configuration, at its release.

A default applies only where a document of that reader is present. Rows are data (``rules/_defaults/<reader>.yaml``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.rules.expression import Code, Unknown, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.resolution.scope import FactScope
    from compatcheck.rules.database import RuleSet

READERS_BENEATH = {
    "trl": ("hf_trainer",),
    "llamafactory": ("hf_trainer",),
    "axolotl": ("hf_trainer",),
}
"""Programs built on another one: keys they leave alone keep that program's default."""

LIBRARIES = ("deepspeed", "accelerate", "transformers", "torch", "peft")
"""Libraries whose defaults come after every program's; each applies only when its condition in the rows holds."""


def reader_chain(readers: Iterable[str]) -> list[str]:
    """Order the readers present: programs first, what they are built on next."""
    chain: list[str] = []
    for reader in readers:
        for name in (reader, *READERS_BENEATH.get(reader, ())):
            if name not in chain:
                chain.append(name)
    return chain


def apply_defaults(readers: Iterable[str], scope: FactScope, facts: dict[str, Fact]) -> None:
    """Add the default of every fact that no document states.

    Args:
        readers: the programs that read this run's configuration, strongest first.
        scope: a scope over ``facts``.
        facts: grown in place.
    """
    present = reader_chain(readers)
    programs = [reader for reader in present if reader not in LIBRARIES]
    libraries = [library for library in LIBRARIES if library in present or programs]
    for reader in (*programs, *libraries):
        rows = scope.rules.section(f"defaults/{reader}")
        if rows:
            origin = "library-default" if reader in LIBRARIES else "reader-default"
            _apply_rows(rows, reader, origin, scope, facts)


def _apply_rows(rows: list[list[Any]], reader: str, origin: str, scope: FactScope, facts: dict[str, Fact]) -> None:
    pending = [row for row in rows if row[0] not in facts]
    progress = True
    while progress and pending:
        progress = False
        for row in list(pending):
            name, ranges, condition, value, expression, _ = row
            if name in facts:
                pending.remove(row)
                continue
            if not _certain(ranges, condition, scope):
                continue
            if expression is not None:
                value = evaluate(expression, scope)
                if isinstance(value, Unknown):
                    continue
            if isinstance(value, list):
                value = tuple(value)
            facts[name] = Fact(name, value, origin, (Source(f"default of {_describe(reader, ranges, scope)}"),))
            pending.remove(row)
            progress = True


def _certain(ranges: dict[str, Any], condition: Code | None, scope: FactScope) -> bool:
    if any(scope.in_range(name, bounds) != "yes" for name, bounds in ranges.items()):
        return False
    if condition is None:
        return True
    decided = evaluate(condition, scope)
    return not isinstance(decided, Unknown) and bool(decided)


PROGRAM_NAMES = {"hf_trainer": "HF Trainer", "trl": "TRL", "openrlhf": "OpenRLHF", "llamafactory": "LLaMA-Factory"}


def _describe(reader: str, ranges: dict[str, Any], scope: FactScope) -> str:
    versions = []
    for name in ranges:
        package = scope.package(name)
        if package is not None:
            versions.append(f"{name} {package.version or package.specifier}")
    program = PROGRAM_NAMES.get(reader, reader)
    return f"{program} ({', '.join(versions)})" if versions else program


def known_readers(rules: RuleSet) -> list[str]:
    """List the readers that have default rows."""
    return [name.removeprefix("defaults/") for database in rules.databases for name in database.sections("defaults/")]
