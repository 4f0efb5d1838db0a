"""Programs that are read, each with what is read of it and what is not; models and devices that are known."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from compatcheck.architectures.count import CLASS_DEFAULTS_RELEASE, known_model_types
from compatcheck.frameworks.keys import ANYTHING, KeyTable, Names
from compatcheck.frameworks.registry import FOLDERS
from compatcheck.frameworks.unread import PROGRAMS
from compatcheck.rules.programs import programs
from docs.generator.page import escape_prose, fold, link, make_page, write_code, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.frameworks.registry import Folder
    from compatcheck.rules.database import RuleSet
    from compatcheck.rules.program import Program
    from docs.generator.page import Page

PROGRAM_PAGE = "reference/programs.md"
MODEL_PAGE = "reference/models.md"
FACT_PAGE = "reference/facts.md"
_KINDS = {"program": "trains", "engine": "serves", "library": "is configured by its own file"}


def make_program_pages(rules: RuleSet) -> Iterator[Page]:
    """Make the pages of programs, and of models and devices."""
    yield make_page(PROGRAM_PAGE, _write_programs(rules))
    yield make_page(MODEL_PAGE, _write_models(rules))


def _write_programs(rules: RuleSet) -> Iterator[str]:
    yield "# Programs"
    yield (
        "What each program's configuration files and command lines tell, and what they cannot. A key with a meaning"
        " states a fact; a key without bearing on memory is known and left alone; **any other key is listed as"
        " unread**, never passed over. What a file leaves out has the default of that very release of the program, as"
        " a fact with its own origin."
    )
    records = [record for record in programs().values() if record.kind in _KINDS]
    rows = [
        (
            record.label,
            _KINDS[record.kind],
            ", ".join(f"`{name}`" for name in record.packages),
            _built_on(record),
            str(len(rules.section(f"defaults/{record.name}") or ())),
        )
        for record in sorted(records, key=lambda record: record.label.lower())
    ]
    yield write_table(("program", "it", "packages of a run", "built on", "defaults:"), rows)
    yield (
        "Told by their files, and not read: "
        + ", ".join(dict.fromkeys(marks.framework for marks in PROGRAMS))
        + f". Any program can be described by a facts file ({link('facts', PROGRAM_PAGE, FACT_PAGE)})."
    )
    for folder in FOLDERS:
        tables, names = _collect(folder)
        if tables or names:
            yield from _write_folder(folder, tables, names)


def _built_on(record: Program) -> str:
    outer = record.runs_as or record.inherits
    return programs()[outer].label if outer is not None and outer in programs() else ""


def _collect(folder: Folder) -> tuple[Mapping[str, tuple[str, ...]], set[str]]:
    """Return the keys of a program's folder with the facts that they state, and the names without bearing on memory."""
    package = import_module(f"compatcheck.frameworks.{folder.name}")
    keys: dict[str, tuple[str, ...]] = {}
    names: set[str] = set()
    for module in (
        import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)
    ):
        for value in vars(module).values():
            if isinstance(value, KeyTable) and f"/{folder.name}/" in value.path:
                keys |= {key: tuple(dict.fromkeys(one.fact for one in meanings)) for key, meanings in value.items()}
            elif isinstance(value, Names) and value.path.endswith(f"/{folder.name}/names.txt"):
                names |= set(value)
    return keys, names


def _write_folder(folder: Folder, keys: Mapping[str, tuple[str, ...]], names: set[str]) -> Iterator[str]:
    record = programs().get(folder.name) or programs().get(folder.name.replace("_", "-"))
    yield f"## {record.label if record else folder.name}"
    readers = [
        reader for reader, there in (("configuration", folder.has_files), ("command", folder.has_commands)) if there
    ]
    modules = [getattr(folder, reader) for reader in readers]
    yield "\n".join(
        f"- {escape_prose(inspect.cleandoc(module.__doc__ or '').partition(chr(10))[0])}" for module in modules
    )
    if folder.forks:
        yield (
            "Its keys are also those of "
            + ", ".join(programs()[name].label for name in folder.forks if name in programs())
            + "."
        )
    if not folder.has_files:
        yield "It has no configuration file: its command line is read."
    stated: dict[str, list[str]] = {}
    for key, facts in keys.items():
        for fact in facts:
            stated.setdefault(fact, []).append(key)
    code = stated.pop(ANYTHING, [])
    beside = [key for key, facts in keys.items() if not facts]
    if stated:
        rows = [(write_code(fact), ", ".join(map(write_code, found))) for fact, found in sorted(stated.items())]
        yield fold(
            f"Read: {len(keys) - len(code)} keys, {len(stated)} facts",
            write_table(("fact", "keys that state it"), rows),
        )
    if beside:
        yield "Read together with others: " + ", ".join(map(write_code, sorted(beside))) + "."
    if code:
        yield "Code of one's own, so that what follows from it is open: " + ", ".join(map(write_code, code)) + "."
    if names:
        yield f"Known and without bearing on memory: {len(names)} names. Everything else is unread, and said."


def _write_models(rules: RuleSet) -> Iterator[str]:
    yield "# Models and devices"
    yield (
        "Any `config.json`, model directory or model in the local hub cache is read. Parameters are counted exactly,"
        " component by component, for the model types below (formulas checked with transformers"
        f" {CLASS_DEFAULTS_RELEASE}); of another type the count is unknown, never guessed."
    )
    types = known_model_types()
    yield f"## {len(types)} model types"
    yield ", ".join(map(write_code, types))
    yield "## Models by name"
    yield "`--model NAME` takes these without a file:"
    models = rules.section("models")
    rows = [
        (
            write_code(name),
            f"{one['parameters']:,}",
            f"`{one['config']['model_type']}`",
            escape_prose(", ".join(one.get("aliases", ()))),
        )
        for name, one in models.items()
    ]
    yield write_table(("name", "parameters:", "type", "ids on the hub"), rows)
    yield "## Devices"
    yield "`--gpu 8xNAME`; cloud instances are taken too (`rules/_instances.yaml`)."
    gpus = rules.section("gpus")
    yield write_table(
        ("name", "memory:", "architecture", "also called"),
        [
            (
                write_code(name),
                f"{one['gib']} GiB",
                one["architecture"],
                escape_prose(", ".join(one.get("aliases", ()))),
            )
            for name, one in gpus.items()
        ],
    )
