"""Defaults of keys that were left out: they belong to the program that reads the configuration, at its release.

A default applies only where a document of that reader is present. Rows are data (``rules/_defaults/<reader>.yaml``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.rules.expression import Unknown, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.document import Document
    from compatcheck.resolution.scope import FactScope
    from compatcheck.rules.database import RuleSet

READERS_BENEATH = {
    "trl": ("hf_trainer",),
    "llamafactory": ("hf_trainer",),
    "axolotl": ("hf_trainer",),
}
"""Programs built on another one: keys they leave alone keep that program's default."""

SECTIONS = {
    "fsdp_config": ("training.sharding", ("fsdp",)),
    "deepspeed_config": ("training.sharding", ("zero",)),
    "zero_optimization.offload_optimizer": ("training.offload_optimizer", ("cpu", "nvme")),
    "zero_optimization.offload_param": ("training.offload_param", ("cpu", "nvme")),
}
"""What a section being there amounts to where no file of that reader was read: another program or a person stated the fact."""

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


def stated_keys(documents: Iterable[Document]) -> dict[str, frozenset[str]]:
    """Collect the keys that the files of each program hold, with the sections they stand in; null and an empty section state nothing."""
    stated: dict[str, set[str]] = {}
    for document in documents:
        for reader in (document.reader, *READERS_BENEATH.get(document.reader, ())):
            keys = stated.setdefault(reader, set())
            for statement in document.statements:
                if statement.fact is None and statement.value in (None, {}, []):
                    continue
                key = statement.key.removeprefix("deepspeed.") if reader == "deepspeed" else statement.key
                while key:
                    keys.add(key)
                    key = key.rpartition(".")[0]
    return {reader: frozenset(keys) for reader, keys in stated.items()}


def apply_defaults(
    readers: Iterable[str],
    scope: FactScope,
    facts: dict[str, Fact],
    stated: Mapping[str, frozenset[str]] | None = None,
) -> None:
    """Add the default of every fact that no document states.

    Args:
        readers: the programs that read this run's configuration, strongest first.
        scope: a scope over ``facts``.
        facts: grown in place.
        stated: the keys that the files of each reader hold.
    """
    present = reader_chain(readers)
    programs = [reader for reader in present if reader not in LIBRARIES]
    libraries = [library for library in LIBRARIES if library in present or programs]
    for reader in (*programs, *libraries):
        rows = scope.rules.section(f"defaults/{reader}")
        if rows:
            origin = "library-default" if reader in LIBRARIES else "reader-default"
            _apply_rows(rows, reader, origin, scope, facts, (stated or {}).get(reader))


def _apply_rows(
    rows: list[list[Any]],
    reader: str,
    origin: str,
    scope: FactScope,
    facts: dict[str, Fact],
    keys: frozenset[str] | None,
) -> None:
    pending = [row for row in rows if row[0] not in facts and not (keys and keys.intersection(row[7]))]
    progress = True
    while progress and pending:
        progress = False
        for row in list(pending):
            name, ranges, condition, value, expression, _, sections, _ = row
            if name in facts:
                pending.remove(row)
                continue
            if not all(_is_there(section, keys, facts) for section in sections):
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


def _is_there(section: str, keys: frozenset[str] | None, facts: Mapping[str, Fact]) -> bool:
    """Tell whether a section is in a file of this reader or, without such a file, whether a fact says as much."""
    if keys is not None:
        return section in keys
    name, values = SECTIONS.get(section, ("", ()))
    fact = facts.get(name)
    return fact is not None and fact.value in values


def _certain(ranges: dict[str, Any], condition: str | None, scope: FactScope) -> bool:
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
