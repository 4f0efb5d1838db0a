"""No statement that the reader cannot see comes back as a default: one at a time is hidden in written runs of every program."""

from __future__ import annotations

import copy
import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.launch_script.commands import read_commands
from compatcheck.frameworks.placeholders import read_filled_in
from compatcheck.frameworks.registry import find_configuration_reader
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from compatcheck.rules.programs import programs
from compatcheck.shell import read_script
from tests.unit.resolution.written_runs import (
    HIDES,
    PROGRAMS,
    Configuration,
    Program,
    leaves,
    write_configurations,
    write_forms,
    write_script,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.document import Document
    from compatcheck.core.facts import Fact

Roles = dict[str, dict[str, "Fact"]]
DEFAULTS = {"reader-default", "library-default"}


def resolved(documents: tuple[Document, ...], packages: Mapping[str, str]) -> Roles:
    known = {name: Package(name, version, Source("env")) for name, version in packages.items()}
    subject = resolve(
        "s", rules=open_rules(()), environment=Environment("env", known, complete=False), documents=documents
    )
    return {role: dict(facts) for role, facts in subject.roles.items()}


def resolved_script(text: str, packages: Mapping[str, str]) -> Roles:
    script = read_script("run.sh", text)
    (run,) = read_commands(script.commands, {})
    return resolved(run.documents, packages)


@cache
def _fixed() -> frozenset[str]:
    """Return the facts that programs fix whatever the keys: in their rows they need no key left out."""
    rows = (row for name in programs() for row in open_rules(()).section(f"defaults/{name}") or ())
    return frozenset(row["fact"] for row in rows if row["key"] is None and not (row["absent"] or row["present"]))


def returned(stated: Roles, without: Roles, hidden: Roles, key: str) -> Iterator[str]:
    """Yield the facts that a statement sets, and that are what they are without it where it is hidden."""
    for role, facts in hidden.items():
        if role not in stated:
            continue  # the statement takes the model away: where it is hidden, nobody knows, and all else holds if it is there
        for name, fact in facts.items():
            first, left_out = stated.get(role, {}).get(name), without.get(role, {}).get(name)
            ranks = (
                name.startswith(("hardware.", "environment.")) and first is None
            )  # what the launcher says, under another role
            if name.startswith(("program.", "configuration.")) or left_out is None or ranks:
                continue
            rests = first is not None and any(source.key == key for source in first.sources)
            differs = first is None or first.value != left_out.value
            back = fact.value == left_out.value and (fact.origin in DEFAULTS or differs)
            if not differs and name in _fixed():
                continue
            if back and (rests or differs) and not (first is not None and first.value == fact.value and not rests):
                yield f"{role} {name} = {fact.value} ({fact.origin}: {fact.sources})"


def hidden_in_scripts(program: Program, form: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what is hidden and how, with what comes back."""
    template, words = next((template, words) for name, words, template in write_forms(program) if name == form)
    stated = resolved_script(write_script(template, words), program.packages)
    for n, (key, value) in enumerate(program.statements):
        rest = [*words[:n], *words[n + 1 :]]
        without = resolved_script(write_script(template, rest), program.packages)
        for how, hide in HIDES.items():
            if how.startswith("option") and value == "":
                continue
            hidden = resolved_script(write_script(template, rest, **hide(program, key, value)), program.packages)
            yield f"{key} ({how})", list(returned(stated, without, hidden, key.replace("-", "_")))


FORMS = ("plain", "array", "string", "eval", "function", "loop", "variables")
PAIRS = [(program, form) for program in PROGRAMS for form in FORMS]
SAMPLE = [(program, FORMS[n % len(FORMS)]) for n, program in enumerate(PROGRAMS)]


def check_script(program: Program, form: str) -> None:
    found = {what: back for what, back in hidden_in_scripts(program, form) if back}
    assert not found


def test_the_corpus_is_large_enough() -> None:
    assert len(PAIRS) >= 100
    assert len(list(write_configurations())) >= 100


@pytest.mark.parametrize(("program", "form"), SAMPLE, ids=[f"{program.name}-{form}" for program, form in SAMPLE])
def test_a_hidden_word_does_not_come_back_as_a_default(program: Program, form: str) -> None:
    check_script(program, form)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "form"), PAIRS, ids=[f"{program.name}-{form}" for program, form in PAIRS])
def test_no_hidden_word_comes_back_as_a_default(program: Program, form: str) -> None:
    check_script(program, form)


def _without(data: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Take a value out, with the sections that are empty then."""
    result = copy.deepcopy(data)
    sections = [result]
    for part in path[:-1]:
        sections.append(sections[-1][part])
    for section, part in zip(reversed(sections), reversed(path), strict=True):
        del section[part]
        if section:
            break
    return result


def _hidden(data: dict[str, Any], path: tuple[str, ...], value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    rest = _without(data, path)
    yield "unknown section", {**rest, "hidden_section": {path[-1]: value}}
    yield "unknown key", {**rest, "hidden_option": value}
    yield "another name", {**rest, f"my_{path[-1]}": value}
    filled = copy.deepcopy(data)
    outer = filled
    for part in path[:-1]:
        outer = outer[part]
    outer[path[-1]] = "${HIDDEN}"
    yield "value filled in later", filled
    if len(path) > 1:
        renamed = copy.deepcopy(rest)
        section = renamed
        for part in path[:-1]:
            section = section.setdefault(part, {})
        section["hidden_option"] = value
        yield "unknown key of the section", renamed


def hidden_in_configuration(configuration: Configuration) -> Iterator[tuple[str, list[str]]]:
    reader = find_configuration_reader(configuration.reader.replace("-", "_"))
    assert reader is not None

    def read(data: dict[str, Any]) -> Roles:
        return resolved(read_filled_in(reader, data, "c.yaml").documents, configuration.packages)

    stated = read(configuration.data)
    for path in leaves(configuration.data):
        if path[-1] == "model_name_or_path":  # which model it is decides no other key
            continue
        value: Any = configuration.data
        for part in path:
            value = value[part]
        without = read(_without(configuration.data, path))
        for how, data in _hidden(configuration.data, path, value):
            yield f"{'.'.join(path)} ({how})", list(returned(stated, without, read(data), ".".join(path)))


def check_configuration(configuration: Configuration) -> None:
    found = {what: back for what, back in hidden_in_configuration(configuration) if back}
    assert not found


CONFIGURATIONS = list(write_configurations())
NAMES = [name for name, _ in CONFIGURATIONS]


@pytest.mark.parametrize("configuration", [found for _, found in CONFIGURATIONS[::9]], ids=NAMES[::9])
def test_a_hidden_key_does_not_come_back_as_a_default(configuration: Configuration) -> None:
    check_configuration(configuration)


@pytest.mark.slow
@pytest.mark.parametrize("configuration", [found for _, found in CONFIGURATIONS], ids=NAMES)
def test_no_hidden_key_comes_back_as_a_default(configuration: Configuration) -> None:
    check_configuration(configuration)


def test_the_written_statements_are_read() -> None:
    """A statement that nobody reads would show nothing when it is hidden."""
    for program, form in itertools.product(PROGRAMS, FORMS):
        template, words = next((template, words) for name, words, template in write_forms(program) if name == form)
        roles = resolved_script(write_script(template, words), program.packages)
        sources = {source.key for facts in roles.values() for fact in facts.values() for source in fact.sources}
        missing = [key for key, _ in program.statements if key.replace("-", "_") not in sources]
        assert len(missing) <= 4, (program.name, form, missing)
