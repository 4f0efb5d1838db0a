"""Thousands of inputs, each checked by itself in a child process, a line of JSON for each in their order."""

from __future__ import annotations

import json
import os
import sys
from contextvars import copy_context
from functools import partial
from io import BufferedReader, TextIOWrapper
from typing import IO, TYPE_CHECKING, Any, cast

import compatcheck
from compatcheck.checking.asked import choose_checks, inspect
from compatcheck.checking.comparison import is_image
from compatcheck.checking.digests import digest_file, digest_named
from compatcheck.checking.inspection import find_policy
from compatcheck.checking.report import check
from compatcheck.core.errors import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    EXIT_INTERNAL_ERROR,
    EXIT_NOTHING_TO_CHECK,
    EXIT_UNREADABLE_INPUT,
    CompatcheckError,
    InputError,
    NothingToCheckError,
    UsageError,
)
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.place import HERE
from compatcheck.core.redaction import redact
from compatcheck.core.source import Source
from compatcheck.core.textfile import open_standard_input
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from compatcheck.checking.likeness import Likeness
    from compatcheck.core.place import Place
    from compatcheck.core.report import Report
    from compatcheck.rules.database import RuleSet

_CHILD = """
import json, os, sys
with open(sys.argv[1], encoding="utf-8") as file:
    given = json.load(file)
sys.path[:] = given["path"]
os.chdir(given["folder"])
os.environ.update(given["environ"])
from compatcheck.checking.bulk import check_pieces
check_pieces(given, sys.argv[1])
"""
"""What a child runs: it finds in the file for its results what it is to do, and imports what its parent does."""
_MOST_CHARACTERS = 1 << 16
"""Of a line of a list; the longest path of Linux has 4,096 bytes."""
_LIST = "a list holds the name of an input in each line"
_CACHES = ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "COMPATCHECK_CACHE")
"""Variables that say where a check finds what was downloaded; a child on another machine has those of its parent."""
ORDER = (EXIT_FINDINGS, EXIT_INTERNAL_ERROR, EXIT_UNREADABLE_INPUT, EXIT_CLEAN, EXIT_NOTHING_TO_CHECK)
"""Codes of inputs, the one that decides first; findings win over what could not be read."""


def list_inputs(inputs: Sequence[str], list_file: str | None) -> Iterator[str]:
    """Yield the names of the inputs, those of a list one by one: it may be as long as it likes.

    Raises:
        UsageError: there are none, or both ways name some.
        InputError: the list cannot be read.
    """
    if (list_file is None) == (not inputs):
        raise UsageError(
            "name inputs, or a list of them with --list", hint="find . -name uv.lock | compatcheck bulk --list -"
        )
    if list_file is None:
        return iter(inputs)
    try:
        file = open_standard_input() if list_file == "-" else open(list_file, "rb")  # noqa: SIM115 (read as it is needed)
    except OSError as error:
        hint = "name a file with an input on each line, or - for standard input"
        raise InputError(f"cannot be read: {error.strerror}", source=Source(list_file), hint=hint) from None
    return read_names(file, list_file)


def read_names(file: IO[bytes], place: str) -> Iterator[str]:
    """Yield the lines of a list, in UTF-8 or, as a Windows shell writes it, in UTF-16.

    Raises:
        InputError: it cannot be read, or holds a line that is no name.
    """
    wide = file.peek(2)[:2] in {b"\xff\xfe", b"\xfe\xff"} if isinstance(file, BufferedReader) else False
    text = TextIOWrapper(
        cast("Any", file), "utf-16" if wide else "utf-8", "strict" if wide else "surrogateescape", newline="\n"
    )
    number = 0
    try:
        while line := text.readline(_MOST_CHARACTERS):
            number += 1
            if len(line) == _MOST_CHARACTERS:
                raise InputError("is longer than any name", source=Source(place, line=number), hint=_LIST)
            if name := line.removeprefix("\ufeff" if number == 1 else "").rstrip("\r\n"):
                yield name
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=Source(place), hint=_LIST) from None
    except UnicodeDecodeError:
        raise InputError("is no UTF-16", source=Source(place, line=number + 1), hint=_LIST) from None
    finally:
        text.detach() if place == "-" else text.close()


PARTS = (
    "another release",
    "other rules",
    "other options",
    "other content of the files that options name",
    "another working directory",
)
"""What tells runs apart that would not write the same lines, in the order of `identify`."""


def identify(given: dict[str, Any], rules: RuleSet) -> str:
    """Return what tells runs apart that would not write the same lines: a part for each of `PARTS`.

    Raises:
        CompatcheckError: options that make no sense, or a policy that cannot be read.
    """
    from hashlib import sha256  # noqa: PLC0415 (beside its use)

    inspection = inspect({**given, "paths": ("-",)}, files=True)
    files: dict[str, str | None] = {}
    for request in inspection.requests:
        files |= digest_named(request, rules, os.environ)
    if inspection.policy is not None:
        files[inspection.policy.path] = digest_file(inspection.policy.path)
    parts = (compatcheck.__version__, rules.id, given, files, os.getcwd())
    stated = (json.dumps(part, sort_keys=True, default=str) for part in parts)
    return "-".join(sha256(part.encode("utf-8", "surrogateescape")).hexdigest()[:6] for part in stated)


class Checker(NamedTuple):
    """How inputs are checked."""

    given: dict[str, Any]
    """Options of the check."""
    asked: str
    """See `identify`."""
    jobs: int | None
    """Shares of the inputs at a time; None as many as the place can take."""
    timeout_seconds: float
    place: Place

    def check_all(self, names: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Check inputs in child processes; yield the line and the exit code of each, in their order."""
        from compatcheck.core.pool import Pool, Share  # noqa: PLC0415 (beside its use)

        variables = {name: os.environ[name] for name in _CACHES if name in os.environ}
        command = partial(
            start_child, {"given": self.given, "run": self.asked, "folder": os.getcwd(), "environ": variables}
        )

        def make(pieces: Sequence[str]) -> Share:
            likeness = None if self.place is HERE else self.describe(pieces)
            return Share(command=command, pieces=pieces, timeout_seconds=self.timeout_seconds, likeness=likeness)

        pool = Pool(make, self.jobs or self.place.jobs or count_processors(), self.place)
        for result in pool.run(names):
            if result.line is None:
                record = describe_failure(result.piece, self.asked, EXIT_INTERNAL_ERROR, str(result.failure), None)
                yield json.dumps(record), EXIT_INTERNAL_ERROR
            else:
                yield result.line, int(json.loads(result.line)["exit_code"])

    def describe(self, pieces: Sequence[str]) -> Likeness:
        """Describe what another machine must have that checks these inputs."""
        from compatcheck.checking.likeness import describe  # noqa: PLC0415 (only with a cluster)
        from compatcheck.frameworks.model.lookup import find_cache  # noqa: PLC0415 (only with a cluster)

        given = self.given
        policy = given["policy"] or find_policy(os.getcwd(), os.path.expanduser("~"))
        named = (*given["training"], *given["rule_directories"], given["model"], given["env_file"], policy)
        return describe((*pieces, *filter(None, named)), find_cache(os.environ))


def check_into(path: str, names: Iterator[str], checker: Checker) -> Generator[int, None, None]:
    """Write a line for each input that has none in a file yet; yield the exit code of each line, of those from before, too.

    Raises:
        InputError: the file is of another run, or of other inputs.
        UsageError: it cannot be written.
    """
    from compatcheck.checking.ledger import Ledger  # noqa: PLC0415 (only with a file)

    ledger = Ledger(path, checker.asked, frozenset(ORDER), PARTS)
    try:
        for record in ledger.read():
            name = next(names, None)
            wanted = None if name is None else redact(name)
            if record.get("input") != wanted:
                said = f"has {record.get('input')!r} where the inputs have {wanted!r}"
                raise InputError(said, source=Source(path), hint="name another file, or remove this one")
            yield record["exit_code"]
        for line, code in checker.check_all(names):
            ledger.write(line)
            yield code
    finally:
        ledger.close()


def start_child(shared: Mapping[str, Any], pieces: Sequence[str], results: str) -> list[str]:
    """Write down for a child what it is to do, and return its command."""
    with open(results, "w", encoding="utf-8") as file:
        json.dump({"path": sys.path, **shared, "pieces": pieces}, file)  # no line as long as it does not end
    return [sys.executable, "-I", "-c", _CHILD, results]


def count_processors() -> int:
    """Return how many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def check_pieces(spec: dict[str, Any], results: str) -> None:
    """Check inputs one after another, and write the line of each as soon as it is known; this runs in a child."""
    rules = open_rules(spec["given"]["rule_directories"])
    with open(results, "w", encoding="utf-8") as file:
        for name in spec["pieces"]:
            record = copy_context().run(check_one, name, spec["given"], spec["run"], rules)
            file.write(redact(json.dumps(record)) + "\n")
            file.flush()


def check_one(name: str, given: dict[str, Any], asked: str, rules: RuleSet) -> dict[str, object]:
    """Check one input as `check` or `image` would; whatever goes wrong with it is its line."""
    if "\0" in name:
        return describe_failure(name, asked, EXIT_UNREADABLE_INPUT, "no file has a NUL in its name", _LIST)
    try:
        image = os.path.exists(name) and is_image(name)
        inputs = {"image": name, "image_environments": ()} if image else {"paths": (name,)}
        named = {**given, **inputs}
        inspection = inspect(named, files=not image)
        checks = choose_checks(named, inspection.policy)
        return describe(name, asked, check(inspection, rules, os.environ, checks, plans=False))
    except CompatcheckError as error:
        code = error.exit_code if isinstance(error, InputError | NothingToCheckError) else EXIT_UNREADABLE_INPUT
        return describe_failure(name, asked, code, str(error), error.hint)
    except MemoryError:
        return describe_failure(name, asked, EXIT_UNREADABLE_INPUT, "needs more memory than there is", None)
    except Exception as error:  # noqa: BLE001 (a bug that one input meets does not stop the others)
        said = f"{type(error).__name__}: {error}"
        return describe_failure(name, asked, EXIT_INTERNAL_ERROR, said, "please report this, with the input")


def describe(name: str, asked: str, report: Report) -> dict[str, object]:
    """Describe what a check found, without what it read: `compatcheck check INPUT --format json` has that."""
    from compatcheck.reporters.json import describe_finding, describe_skipped  # noqa: PLC0415 (in a child)

    left_out = {"facts", "references", "folklore", "measured", "measured_here", "locations", "remedies", "message"}
    findings = (describe_finding(finding) for finding in report.findings if not finding.folded)
    return {
        "input": redact(name),
        "run": asked,
        "exit_code": report.exit_code,
        "error": None,
        "subjects": [subject.id for subject in report.subjects],
        "findings": [{key: value for key, value in one.items() if key not in left_out} for one in findings],
        "skipped": describe_skipped(report.skipped),
    }


def describe_failure(name: str, asked: str, code: int, message: str, hint: str | None) -> dict[str, object]:
    """Describe why there is no report on an input."""
    error = {"message": redact(message), "hint": hint}
    return {
        "input": redact(name),
        "run": asked,
        "exit_code": code,
        "error": error,
        "subjects": [],
        "findings": [],
        "skipped": [],
    }
