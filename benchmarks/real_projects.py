"""Measure what compatcheck understands of real training repositories.

    python benchmarks/real_projects.py CHECKOUT [CHECKOUT …]

Each argument is a directory with the files of one repository. A Markdown table goes to standard output. A key of a training
configuration counts as understood when its reader translates it to a fact, or knows that it has no bearing on memory; a key
whose value was not understood does not count. Keys of files of programs that are recognised and not read (torchtune,
ms-swift, …) stand in a column of their own, and the last column counts them all as not understood.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.checking import Checks, Request, gather
from compatcheck.checking.checks import Criteria
from compatcheck.checking.report import build_report
from compatcheck.collectors.recognise import walk
from compatcheck.core.errors import InputError
from compatcheck.core.fail_on import parse_threshold
from compatcheck.frameworks.recognise import SUFFIXES, read_configuration
from compatcheck.frameworks.text import parse_configuration, read_text
from compatcheck.frameworks.translation import flatten
from compatcheck.frameworks.unread import recognise
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.core.document import Document

MAX_FILE_BYTES = 2 << 20
MODEL_READERS = {"model"}
"""Their keys are dimensions of a model, not a training configuration."""


class Keys(NamedTuple):
    """How the distinct keys of one file were understood."""

    facts: int = 0
    irrelevant: int = 0
    unread: int = 0

    def __add__(self, other: object) -> Keys:
        """Add key counts by kind."""
        if not isinstance(other, Keys):
            return NotImplemented
        return Keys(self.facts + other.facts, self.irrelevant + other.irrelevant, self.unread + other.unread)

    @property
    def total(self) -> int:
        """Count all keys."""
        return self.facts + self.irrelevant + self.unread

    @property
    def understood(self) -> int:
        """Count the keys that were understood."""
        return self.facts + self.irrelevant


class Row(NamedTuple):
    """One repository."""

    name: str
    revision: str
    environments: int
    configurations: int
    foreign_files: int
    unreadable: int
    missing_references: int
    subjects: int
    facts: int
    keys: Keys
    foreign_keys: int
    affected: int
    possible: int
    rules: int
    seconds: float


def count_keys(document: Document) -> Keys:
    """Count the distinct keys of a document by how they were understood."""
    failed = {entry.source.key for entry in document.skipped}
    stated = {
        statement.key for statement in document.statements if statement.fact is not None and statement.key[:1] != "("
    }
    known = {statement.key for statement in document.statements if statement.fact is None and statement.key[:1] != "("}
    named = {key for _, _, key in document.references}
    failed -= stated | known | named
    return Keys(len(stated), len(known - stated), len(document.unread) + len(failed - {None}))


def measure(directory: str) -> Row:
    """Check one directory and count what was understood."""
    rules = open_rules(())
    started = time.perf_counter()
    gathered = gather(Request(paths=(directory,)), rules, {})
    report = build_report(gathered, Criteria(rules, Checks(), parse_threshold("medium")))
    seconds = time.perf_counter() - started
    keys = Keys()
    environments = configurations = foreign_files = foreign_keys = unreadable = 0
    for file, kind in walk(directory):
        if kind is not None:
            environments += 1
            continue
        if not file.endswith(SUFFIXES) or os.path.getsize(file) > MAX_FILE_BYTES:
            continue
        try:
            reading = read_configuration(file, named=False)
        except InputError:
            found = _foreign_keys(file)
            foreign_files += found is not None
            foreign_keys += found or 0
            unreadable += found is None
            continue
        if reading is None:
            continue
        configurations += 1
        for document in reading.documents:
            if document.reader not in MODEL_READERS:
                keys += count_keys(document)
    references = {
        str(entry.source)
        for entry in gathered.skipped + report.skipped
        if entry.source.key is not None and entry.reason.startswith("names ")
    }
    return Row(
        name=os.path.basename(os.path.normpath(directory)),
        revision=_revision(directory),
        environments=environments,
        configurations=configurations,
        foreign_files=foreign_files,
        unreadable=unreadable,
        missing_references=len(references),
        subjects=len(report.subjects),
        facts=sum(len(subject.facts) for subject in report.subjects),
        keys=keys,
        foreign_keys=foreign_keys,
        affected=len(
            {(finding.rule_id, finding.subject) for finding in report.findings if finding.status == "affected"}
        ),
        possible=sum(finding.status == "possible" for finding in report.findings),
        rules=len({finding.rule_id for finding in report.findings}),
        seconds=seconds,
    )


def _foreign_keys(file: str) -> int | None:
    """Count the keys of a file of a program that is not read; None when it is something else."""
    try:
        data = parse_configuration(read_text(file), file)
    except InputError:
        return None
    if not isinstance(data, dict) or recognise(data) is None:
        return None
    return sum(1 for _ in flatten(data))


def _revision(directory: str) -> str:
    """Return the short commit of a checkout, or what its ``REVISION`` file beside it says."""
    beside = Path(directory).with_suffix(".revision")
    if beside.exists():
        return beside.read_text(encoding="utf-8").strip()[:10]
    outcome = subprocess.run(
        ["git", "-C", directory, "rev-parse", "--short=10", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return outcome.stdout.strip() or "unknown"


def share(part: int, whole: int) -> str:
    """Format a percentage."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


HEAD = (
    "repository",
    "commit",
    "environment files",
    "configurations read",
    "of programs not read",
    "unreadable",
    "names not found",
    "subjects",
    "facts",
    "keys → fact",
    "keys known irrelevant",
    "keys unread",
    "understood",
    "keys of programs not read",
    "understood, those counted too",
    "findings (affected / possible)",
    "rules",
    "seconds",
)


def cells(row: Row) -> tuple[object, ...]:
    """Lay out one row of the table."""
    keys = row.keys
    return (
        row.name,
        row.revision,
        row.environments,
        row.configurations,
        row.foreign_files,
        row.unreadable,
        row.missing_references,
        row.subjects,
        row.facts,
        keys.facts,
        keys.irrelevant,
        keys.unread,
        share(keys.understood, keys.total),
        row.foreign_keys,
        share(keys.understood, keys.total + row.foreign_keys),
        f"{row.affected} / {row.possible}",
        row.rules,
        f"{row.seconds:.2f}",
    )


def main(directories: list[str]) -> int:
    """Print the table for the checkouts named."""
    if not directories:
        sys.stderr.write(__doc__ or "")
        return 2
    rows = [measure(directory) for directory in directories]
    total = Keys()
    for row in rows:
        total += row.keys
    foreign = sum(row.foreign_keys for row in rows)
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(map(str, cells(row))) + " |" for row in rows]
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.write(
        f"{total.total} keys in files that are read: {total.facts} became facts, {total.irrelevant} are known to have no "
        f"bearing, {total.unread} unread: {share(total.understood, total.total)} understood. With the {foreign} keys of "
        f"programs that are not read: {share(total.understood, total.total + foreign)}.\n",
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
