"""What commands take, what JSON reports hold and what facts there are, from the code."""

from __future__ import annotations

import inspect
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli.group import group
from compatcheck.cli.help import find_lesson, read_codes
from compatcheck.cli.options import TableOption, make_option, read_table
from compatcheck.rules.syntax import functions
from compatcheck.rules.vocabulary import vocabulary
from docs.generator.page import escape_prose, link, make_page, write_code, write_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from docs.generator.page import Page

COMMAND_PAGE = "reference/cli.md"
JSON_PAGE = "reference/json.md"
FACT_PAGE = "reference/facts.md"
SCHEMAS = {"report": "`--format json` of `env`, `check` and `image`", "difference": "`--format json` of `diff`"}


def make_reference_pages() -> Iterator[Page]:
    """Make the pages of commands, of JSON and of facts."""
    yield make_page(COMMAND_PAGE, _write_commands())
    yield make_page(JSON_PAGE, _write_schemas())
    yield make_page(FACT_PAGE, _write_facts())


def _write_commands() -> Iterator[str]:
    yield "# Command line"
    yield "Every command, its options, examples and exit codes, from the code. `compatcheck help COMMAND` prints the same."
    outer = click.Context(group, info_name="compatcheck", **group.context_settings)
    for command, context in _walk(group, outer):
        yield from _write_command(command, context)
    yield "## Shared options"
    yield "A command says which of these it takes."
    sections: dict[str, dict[str, tuple[str, str]]] = {}
    for row in (row for rows in read_table().values() for row in rows if row.heading):
        record = make_option(row).get_help_record(outer)
        if record is not None:
            sections.setdefault(row.heading or "", {})[record[0]] = record
    for heading, records in sections.items():
        yield f"### {heading}"
        yield _tabulate(records.values())
    yield "## Exit codes"
    yield write_table(("code", "meaning"), [(f"`{code}`", escape_prose(words)) for code, words in read_codes().items()])


def _walk(outer: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command below a group, groups before their members."""
    for name in outer.list_commands(context):
        command = outer.get_command(context, name)
        if command is not None and name != "help":
            inner = click.Context(command, info_name=name, parent=context)
            yield command, inner
            if isinstance(command, click.Group):
                yield from _walk(command, inner)


def _write_command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}"
    yield escape_prose(inspect.cleandoc(command.help or "").replace("\b", ""))
    usage = " ".join(command.collect_usage_pieces(context))
    lesson = find_lesson(context)
    yield "\n".join(["```sh", f"{context.command_path} {usage}", "```"])
    if lesson.examples:
        yield "\n".join(["Examples:", "", "```sh", *(text for _, text in lesson.examples), "```"])
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    own = [record for option in options if not _is_shared(option) and (record := option.get_help_record(context))]
    yield _tabulate(own)
    shared = [write_code(option.opts[0]) for option in options if _is_shared(option)]
    if shared:
        yield f"{link('Shared options', COMMAND_PAGE, '#shared-options')}: " + ", ".join(shared) + "."
    if lesson.codes:
        yield write_table(
            ("exit code", "meaning"), [(f"`{code}`", escape_prose(words)) for code, words in lesson.codes.items()]
        )
    yield f"Read on: {link(lesson.page.removesuffix('.md').replace('-', ' '), COMMAND_PAGE, lesson.page)}."


def _is_shared(option: click.Option) -> bool:
    return isinstance(option, TableOption) and option.row.heading is not None


def _tabulate(records: Iterable[tuple[str, str]]) -> str:
    return write_table(("option", "meaning"), [(write_code(names), escape_prose(text)) for names, text in records])


def _write_schemas() -> Iterator[str]:
    yield "# JSON reports"
    yield (
        "The reports' JSON Schemas, as tables. Sizes are bytes; what is not known is `null`; nothing but these keys is there."
    )
    for name, where in SCHEMAS.items():
        file = f"{name}.schema.json"
        schema = json.loads(resources.files("compatcheck.reporters").joinpath(file).read_text(encoding="utf-8"))
        yield f"## {schema.get('title', name)}"
        yield f"{where}; the schema is `compatcheck/reporters/{file}`."
        yield _tabulate_schema(schema, name)
        for part, definition in schema.get("$defs", {}).items():
            yield f"### {name}: {part}"
            yield escape_prose(definition.get("description", ""))
            yield _tabulate_schema(definition, name)


def _tabulate_schema(schema: Mapping[str, Any], name: str) -> str:
    rows = [
        row
        for key, value in schema.get("properties", {}).items()
        for row in _rows(key, value, name, key in schema.get("required", ()))
    ]
    return write_table(("key", "type", "meaning"), rows) if rows else f"Type: {_type(schema, name)}."


def _rows(key: str, value: Mapping[str, Any], name: str, required: bool) -> Iterator[tuple[str, str, str]]:  # noqa: FBT001
    """Yield the row of a key, and those of keys inside it."""
    yield (
        write_code(key),
        _type(value, name) + ("" if required else ", may be missing"),
        escape_prose(value.get("description", "")),
    )
    items = value.get("items", {})
    for inner, mark in ((value, "."), (items, "[].")):
        for below, told in inner.get("properties", {}).items():
            yield from _rows(f"{key}{mark}{below}", told, name, below in inner.get("required", ()))


def _type(value: Mapping[str, Any], name: str) -> str:
    """Say the type of a value in words, with a link to the part it refers to."""
    if "$ref" in value:
        file, _, part = value["$ref"].rpartition("#/$defs/")
        name = file.split(":")[2] if file else name  # urn:compatcheck:report:1
        return link(part, JSON_PAGE, f"#{name}-{part}")
    if "const" in value:
        return write_code(json.dumps(value["const"]))
    if "enum" in value:
        return " or ".join(write_code(json.dumps(one)) for one in value["enum"])
    for choice in ("oneOf", "anyOf"):
        if choice in value:
            return " or ".join(_type(one, name) for one in value[choice])
    kinds = value.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "array" in kinds and "properties" not in value.get("items", {}):
        kinds = [
            f"array of {_type(value['items'], name)}" if kind == "array" and value.get("items") else kind
            for kind in kinds
        ]
    return " or ".join(kinds)


def _write_facts() -> Iterator[str]:
    yield "# Facts"
    yield (
        "The names that configurations, `--set NAME=VALUE`, facts files and rules share. `compatcheck facts .` shows"
        " the value of each, with the file and line it comes from. Those of `program` are known from the program's"
        " code, and nobody states them."
    )
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for name, term in vocabulary().items():
        kind = term.type + (" or none" if term.nullable else "")
        words = ": " + ", ".join(map(write_code, term.words)) if term.words else f", {term.unit}" if term.unit else ""
        groups.setdefault(name.partition(".")[0], []).append(
            (write_code(name), kind + words, escape_prose(term.meaning))
        )
    for name, rows in groups.items():
        yield f"## {name}"
        yield write_table(("name", "type", "meaning"), rows)
    yield "## Functions"
    yield "Conditions and formulas of rules are written in a small part of Python, over these names and with these functions."
    yield write_table(
        ("function", "gives"), [(write_code(f"{name}()"), one.meaning) for name, one in functions().items()]
    )
