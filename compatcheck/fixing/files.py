"""The files of a group of subjects: what in them can change, what their text becomes, and what only a command can do."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from compatcheck.core.builds import label_of, write_install
from compatcheck.core.errors import InputError
from compatcheck.core.fix import RESOLVED, VERSION, FileChange, TextEdit
from compatcheck.core.markers import canonical_name
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.requirement import Requirement, is_ruled_out
from compatcheck.core.versions import (
    InvalidSpecifierError,
    all_ordered,
    compile_specifier,
    exact_version,
    parse_version,
)
from compatcheck.fixing.edits.project import MANIFEST, is_lock, lock_command, read_project, roots_of
from compatcheck.fixing.edits.requirement_text import RequirementStatement, find_statement, find_statements
from compatcheck.fixing.edits.text import apply_edits, line_of, read_exact
from compatcheck.fixing.moves import rewrite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.core.environment import Package
    from compatcheck.core.fix import Change
    from compatcheck.fixing.edits.project import Project
    from compatcheck.fixing.resolver import UvResolver
    from compatcheck.resolution.subject import Subject

_PLAIN_WORDS = r"(?:[\w ./:=@%+,~-]|'[^'\\]*')*"
"""Words that are nothing but themselves to a shell."""


class Written(NamedTuple):
    """Changes as texts of files."""

    changes: tuple[Change, ...]
    """With the commands for what no text edit does."""
    files: tuple[FileChange, ...]
    moved: tuple[tuple[str, str | None, str | None], ...] = ()
    """Other packages of a lock that move with it: name, before, after."""
    notes: tuple[str, ...] = ()


class EditableFiles:
    """What a group's files state, and how they are changed."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        """Read the requirements of every root of these subjects one by one."""
        self.texts: dict[str, str] = {}
        self.projects: dict[str, Project] = {}
        self.locks: list[str] = []
        self.statements: dict[str, list[RequirementStatement]] = {}
        self._placed: set[RequirementStatement] = set()
        """All of them: one file may be read as a part of several."""
        self.installed = False
        for subject in subjects:
            if subject.environment is None:
                continue
            roots = roots_of(subject.environment)
            self.installed = self.installed or not roots
            for path, kind in roots:
                self._add(path, kind)
        self._drop_included()

    @staticmethod
    def paths_of(subject: Subject) -> list[str]:
        """Return every file that states packages or settings of a subject."""
        environment = subject.environment
        roots = [] if environment is None else [path for path, _ in roots_of(environment)]
        return [
            os.path.realpath(path)
            for path in (*roots, *(document.source.path for document in subject.documents))
            if os.path.isfile(path)
        ]

    @staticmethod
    def manifests_of(subject: Subject, *, locked: bool = False) -> set[str]:
        """Return the ``pyproject.toml`` that a subject is read from, or with ``locked`` those beside its locks."""
        roots = [] if subject.environment is None else [path for path, _ in roots_of(subject.environment)]
        locks = [path for path in roots if is_lock(path)]
        if locked or locks:
            roots = [os.path.join(os.path.dirname(path), MANIFEST) for path in locks if locked]
        return {os.path.realpath(path) for path in roots if os.path.basename(path) == MANIFEST}

    def _add(self, path: str, kind: str) -> None:
        if path in self.projects or path in self.locks:
            return
        try:
            project = read_project(path, kind)
        except InputError:
            return
        if project is None:
            return
        if project.lock is not None:
            self.locks.append(project.lock)
        self.projects[path] = project
        for item in project.statements:
            text = None if is_ruled_out(item) else self.text(item.source.path)
            found = None if text is None else find_statement(text, item)
            known = self.statements.setdefault(item.name, [])
            if found is not None and found not in self._placed:
                self._placed.add(found)
                known.append(found)

    def _drop_included(self) -> None:
        """Leave out files that another root includes: they are resolved as part of it."""
        included = {
            os.path.realpath(item.source.path)
            for path, project in self.projects.items()
            for item in project.statements
            if os.path.realpath(item.source.path) != os.path.realpath(path) and project.lock is None
        }
        self.projects = {
            path: project for path, project in self.projects.items() if os.path.realpath(path) not in included
        } or self.projects

    def text(self, path: str) -> str | None:
        """Return a file's text, None when it is not one that can be edited."""
        if path not in self.texts:
            try:
                self.texts[path] = read_exact(path)
            except InputError:
                return None
        return self.texts[path]

    def can_move(self, package: Package) -> bool:
        """Tell whether there is a place, or a command, that gives a package another version."""
        name = package.name
        if self.locks or self.installed or any(not found.hashed for found in self.statements.get(name, ())):
            return True
        return bool(self.statements.get(name)) or bool(self._edit_elsewhere(package, package.version or "", "0"))

    def _elsewhere(self, package: Package) -> list[RequirementStatement]:
        """Find a package in a file whose requirements are not read one by one: a Dockerfile, a conda environment."""
        wanted = package.specifier if package.version is None else f"=={package.version}"
        if package.source.line is None or not wanted:
            return []
        text = self.text(package.source.path)
        if text is None or is_lock(package.source.path):
            return []
        found = list(find_statements(text, Requirement(package.name, wanted, package.source)))
        return [one for one in found if one.specifier == found[0].specifier]

    def edits(self, package: Package, change: Change) -> list[tuple[str, TextEdit]]:
        """Return the edits that move a package, each with its place."""
        release, version = change.release or "", change.version
        relabelled = label_of(version) != label_of(package.version)
        found = self.statements.get(package.name, [])
        if not found:
            return self._edit_elsewhere(package, change.after, release)
        excluding = [one for one in found if relabelled or not _allows(one, release)]
        if not excluding and package.version is None:
            excluding = [one for one in found if one.specifier == (package.specifier or "")] or found[:1]
        edits = []
        for one in excluding:
            text = self.text(one.path)
            if text is not None and not one.hashed:
                pinned = relabelled and exact_version(one.specifier) is not None
                new = f"=={version}" if pinned else rewrite(one.specifier, release) if one.specifier else f">={release}"
                edits.append((one.place, one.edit(new, text)))
        return edits

    def _edit_elsewhere(self, package: Package, value: str, release: str) -> list[tuple[str, TextEdit]]:
        statements = self._elsewhere(package)
        text = self.text(package.source.path) if os.path.isfile(package.source.path) else None
        if statements and text is not None:
            return [
                (one.place, one.edit(f"=={release if one.form == 'conda' or package.version is None else value}", text))
                for one in statements
            ]
        stated = canonical_name((package.source.key or "").rpartition(".")[2]) == package.name
        if text is None or package.source.key is None or package.version is None or not stated:
            return []
        from compatcheck.fixing.edits.configuration_text import change_value  # noqa: PLC0415 (a release that a key states)

        edit = change_value(package.source.path, text, package.source.key, value)
        return [] if edit is None else [(f"{package.source.path}:{line_of(text, edit.start)}", edit)]

    def place_of_setting(self, edit: TextEdit) -> str:
        """Return where a setting is written."""
        added = len(edit.new) - len(edit.new.lstrip("\r\n,"))
        return f"{edit.path}:{line_of(self.texts[edit.path], edit.start) + edit.new[:added].count(chr(10))}"

    def list_requirement(self, name: str) -> TextEdit | None:
        """Return the edit that lists a distribution, whose release is left to the installer.

        None where not one file of requirements alone says what is installed, or where every line of it needs a hash.
        """
        if len(self.projects) != 1 or self.locks or self.installed:
            return None
        ((path, project),) = self.projects.items()
        text = self.text(path)
        if project.kind != "requirements" or project.lock is not None or text is None or "--hash" in text:
            return None
        newline = "\r\n" if "\r\n" in text else "\n"
        before = "" if not text or text.endswith("\n") else newline
        return TextEdit(path, len(text), len(text), f"{before}{name}{newline}")

    def text_before(self, edit: TextEdit) -> str | None:
        """Return what an edit replaces; None where the key is new."""
        return self.texts[edit.path][edit.start : edit.end] or None

    def change(self, edits: Iterable[TextEdit]) -> tuple[FileChange, ...]:
        """Return the files with the edits made."""
        edits = list(edits)
        paths = list(dict.fromkeys(edit.path for edit in edits))
        after = apply_edits({path: self.texts[path] for path in paths}, edits)
        return tuple(
            FileChange(_shown(path), self.texts[path], after[path]) for path in paths if after[path] != self.texts[path]
        )

    def command(self, targets: Mapping[str, str]) -> str | None:
        """Return the command that moves packages where no text edit does."""
        if self.locks:
            return lock_command(self.locks[0], targets)
        upgrades = " ".join(f"--upgrade-package {name}=={version}" for name, version in targets.items())
        hashed = next((one for name in targets for one in self.statements.get(name, ()) if one.hashed), None)
        if hashed is not None:
            return compile_command(self.text(hashed.path) or "", hashed.path, upgrades)
        return write_install(targets, tool="uv pip install") if self.installed else None

    def write(self, changes: Sequence[Change], resolver: UvResolver | None) -> Written:
        """Write changes into the texts, and let uv renew its lock in a copy of the project; another lock needs a command."""
        files = self.change(edit for change in changes for edit in (*change.edits, *change.listings))
        targets = {change.name: change.release or "" for change in changes if change.kind == VERSION}
        if not targets or not self.locks:
            return Written(tuple(changes), files)
        from compatcheck.fixing.resolver import LOCK, locked_versions  # noqa: PLC0415 (only for a lock)

        command = self.command(targets)
        by_hand = tuple(c._replace(command=command) if c.kind == VERSION else c for c in changes)
        lock = next((path for path in self.locks if os.path.basename(path) == LOCK), None)
        if lock is None or resolver is None:
            return Written(by_hand, files)
        edited = {os.path.realpath(file.path): file.after for file in files}
        copied = {}
        for relative in (LOCK, *_manifests(self.text(lock) or "")):
            path = os.path.join(os.path.dirname(lock), relative)
            if os.path.isfile(path) and not relative.startswith("..") and not os.path.isabs(relative):
                copied[relative] = edited.get(os.path.realpath(path), read_exact(path))
        answer = resolver.lock(copied, [f"{name}=={version}" for name, version in targets.items()])
        if LOCK not in answer.files:
            why = f"is left to its own command: {', '.join(answer.unbuilt)} would have to be built to lock it"
            if answer.verdict != RESOLVED:
                why = f"could not be renewed by uv: {answer.detail}"
            return Written(by_hand, files, notes=(f"{_shown(lock)} {why}",))
        before, after = locked_versions(copied[LOCK]), locked_versions(answer.files[LOCK])
        others = sorted({*before, *after} - {*targets})
        moved = tuple((n, before.get(n), after.get(n)) for n in others if before.get(n) != after.get(n))
        renewed = FileChange(_shown(lock), copied[LOCK], answer.files[LOCK], "uv lock")
        return Written(tuple(c._replace(command=None) for c in changes), (*files, renewed), moved)


def _allows(statement: RequirementStatement, release: str) -> bool:
    version = parse_version(release)
    try:
        return version is not None and all_ordered(compile_specifier(statement.specifier), version)
    except InvalidSpecifierError:
        return False


def _manifests(lock: str) -> list[str]:
    """Return the ``pyproject.toml`` of every local project a lock names, relative to it."""
    places = re.findall(r'source = \{ (?:editable|virtual|directory) = "([^"]+)" \}', lock)
    return list(dict.fromkeys([MANIFEST, *(os.path.normpath(os.path.join(place, MANIFEST)) for place in places)]))


def compile_command(text: str, path: str, upgrades: str) -> str:
    """Return the command that made a requirement file with hashes, as its header has it, with the upgrades.

    A header that is more to a shell than one command and its words is not passed on: a person pastes what is shown.
    """
    for line in text.splitlines()[:12]:
        words = line.lstrip("# \t")
        if line.startswith("#") and re.match(r"(pip-compile|uv pip compile)(?=\s|$)", words):
            if re.fullmatch(_PLAIN_WORDS, words) is None:
                break
            return f"{words} {upgrades}"
    name = os.path.basename(path)
    source = f"{name.removesuffix('.txt')}.in"
    return f"uv pip compile {shlex.quote(source)} --generate-hashes -o {shlex.quote(name)} {upgrades}"


def _shown(path: str) -> str:
    relative = os.path.relpath(path)
    if not relative.startswith(".."):
        return relative
    return path if os.path.isabs(path) else os.path.normpath(path)
