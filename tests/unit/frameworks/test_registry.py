"""Every program of the registry: what its folder offers, and that its keys mean facts of the vocabulary."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import compatcheck.frameworks
from compatcheck.core.document import ROLES
from compatcheck.frameworks.keys import ANYTHING, KeyTable, Names
from compatcheck.frameworks.reader import CommandReader, ConfigurationReader
from compatcheck.frameworks.registry import (
    FOLDERS,
    Folder,
    command_folders,
    configuration_readers,
    find_configuration_reader,
    find_refinement,
)
from compatcheck.rules.vocabulary import vocabulary

PACKAGE = Path(compatcheck.frameworks.__file__).parent
NO_PROGRAMS = {"launch", "launch_script", "python_script"}
"""Folders that read scripts of any program."""


def data_files() -> Iterator[KeyTable | Names]:
    """Yield what the modules of the package read from data files, each once."""
    for found in walk_packages(compatcheck.frameworks.__path__, "compatcheck.frameworks."):
        yield from (value for value in vars(import_module(found.name)).values() if isinstance(value, KeyTable | Names))


TABLES = {found.path: found for found in data_files() if isinstance(found, KeyTable)}
NAMES = {found.path: found for found in data_files() if isinstance(found, Names)}


def offers(module: object, protocol: type) -> None:
    for name, member in vars(protocol).items():
        if name.startswith("_"):
            continue
        assert hasattr(module, name), f"{module} has no {name}"
        if inspect.isfunction(member):
            wanted = [word for word in inspect.signature(member).parameters if word != "self"]
            given = list(inspect.signature(getattr(module, name)).parameters)
            assert [word for word in given if word != "_"] == wanted[: len(given)] or given[-1] == "_"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_offers_what_the_registry_says(folder: Folder) -> None:
    modules = {path.stem for path in (PACKAGE / folder.name).glob("*.py")}
    assert folder.has_files == ("configuration" in modules)
    assert folder.has_commands == ("command" in modules)
    if folder.has_files:
        offers(folder.configuration, ConfigurationReader)
        assert find_configuration_reader(folder.configuration.READER) is folder.configuration
    if folder.has_commands:
        offers(folder.command, CommandReader)


def test_every_folder_is_in_the_registry() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    listed = {folder.name for folder in FOLDERS}
    assert folders - NO_PROGRAMS <= listed, "add the folder to FOLDERS of frameworks/registry.py"
    assert listed <= folders, "a folder of FOLDERS is missing, or has no __init__.py"


def test_every_data_file_is_read() -> None:
    read = {*TABLES, *NAMES}
    assert {str(path) for path in PACKAGE.rglob("*.txt")} == read, (
        "read by no module of a package: is there an __init__.py?"
    )


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(Path(path).relative_to(PACKAGE)))
def test_keys_mean_facts_of_the_vocabulary(path: str) -> None:
    meanings = {(key, meaning) for key, found in TABLES[path].items() for meaning in found}
    assert meanings
    assert {(key, meaning.fact) for key, meaning in meanings if meaning.fact not in {*vocabulary(), ANYTHING}} == set()
    assert {meaning.role for _, meaning in meanings} <= {None, *ROLES}


@pytest.mark.parametrize("path", NAMES, ids=lambda path: str(Path(path).relative_to(PACKAGE)))
def test_names_are_listed_once(path: str) -> None:
    words = [word for line in Path(path).read_text("utf-8").splitlines() for word in line.partition("#")[0].split()]
    assert words
    assert sorted(words) == sorted(set(words))


def test_files_with_keys_of_their_own_are_told_first() -> None:
    own = [reader.READER for reader in configuration_readers(shares_keys=False)]
    shared = [reader.READER for reader in configuration_readers(shares_keys=True)]
    assert shared == ["model", "trl", "hf_trainer"]
    assert [reader.READER for reader in configuration_readers()] == [*own, *shared]
    assert len(list(command_folders())) == sum(folder.has_commands for folder in FOLDERS)


def test_a_special_case_and_what_is_no_program_of_the_registry() -> None:
    assert find_refinement("hf_trainer") == "trl"
    assert find_refinement("verl") is None
    assert find_configuration_reader("config") is None
    assert find_configuration_reader("openrlhf") is None
