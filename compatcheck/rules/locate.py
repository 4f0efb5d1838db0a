"""Find and open the rule data: the compiled file of an installed package, or ``rules/`` of a checkout."""

from __future__ import annotations

import os
from functools import lru_cache
from io import BytesIO

from compatcheck.core.cache import find_cache
from compatcheck.core.data_file import read_file
from compatcheck.core.errors import RuleError
from compatcheck.core.source import Source
from compatcheck.rules.database import Database, RuleSet

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMPILED = os.path.join(_PACKAGE, "_database.jsonl")
CHECKOUT = os.path.join(os.path.dirname(_PACKAGE), "rules")
"""The rules of a checkout. Beside an installed package the same path is someone else's, so ask `is_checkout` first."""


_MEASUREMENTS = os.path.join(os.path.dirname(_PACKAGE), "fixtures", "measurements")
"""What the evidence of a checkout's rules names; their database has numbers of it."""


def is_checkout() -> bool:
    """Tell whether this is a checkout with its own ``rules``, and not an installation beside a distribution of that name."""
    return not os.path.exists(COMPILED) and os.path.isdir(CHECKOUT)


def open_rules(directories: tuple[str, ...] = (), *, replacing: bool = False) -> RuleSet:
    """Open the built-in database and the person's own rule directories.

    Args:
        directories: directories of rule files; one that is named twice is read once.
        replacing: whether a rule may have the id of a built-in one, as a newer copy of it that is being worked on.

    Raises:
        RuleError: a directory holds a malformed rule or one whose id is taken, or there is no database at all.
    """
    distinct = tuple({os.path.realpath(path): path for path in reversed(directories)}.values())[::-1]
    rules = RuleSet((open_builtin(), *(open_directory(path) for path in distinct)))
    if distinct and not replacing:
        _require_own_ids(rules)
    return rules


def _require_own_ids(rules: RuleSet) -> None:
    """Refuse two rules of one id: both would be reported, and a selection, a waiver or `explain` would mean either.

    Raises:
        RuleError: naming both files.
    """
    taken: dict[str, tuple[str, str]] = {}
    for rule in rules.all_rules():
        directory = rules.databases[rule.database].name
        path = os.path.join(directory, f"{rule.id}.yaml") if rule.database else f"rules/{rule.id}.yaml of compatcheck"
        for name, words in ((rule.id, "id"), *((former, "former id") for former in rule.former_ids)):
            other, its_words = taken.setdefault(name, (path, words))
            if other != path and "id" in {words, its_words}:
                msg = f"{name} is the {its_words} of {other} already"
                if words != "id":
                    msg = f"its former id {name} is the id of {other}"
                hint = f"rename the file; to check by your own rule only, rename it and --ignore {name}"
                raise RuleError(msg, source=Source(path), hint=hint)


@lru_cache(maxsize=1)
def open_builtin() -> Database:
    """Open the compiled database, once per process; in a checkout compile ``rules/`` first, once per change."""
    if os.path.exists(COMPILED):
        return Database.open(COMPILED)
    if is_checkout():
        return _open_checkout()
    if not os.path.isdir(_PACKAGE):  # in an archive that Python runs
        data = read_file(COMPILED)
        return Database(lambda: BytesIO(data), COMPILED)
    raise RuleError("the rule database is missing from this installation", hint="reinstall compatcheck")


def open_directory(path: str) -> Database:
    """Compile and open a directory of rule files.

    Raises:
        RuleError: not a directory, or a file in it is malformed.
    """
    from pathlib import Path  # noqa: PLC0415 (3 ms; not for the built-in rules)

    from compatcheck.rules.compile import compile_directory, open_compiled  # noqa: PLC0415 (imports YAML)

    if not os.path.isdir(path):
        raise RuleError(
            "is not a directory" if os.path.exists(path) else "does not exist",
            source=Source(path),
            hint="name a directory of rule files",
        )
    return open_compiled(compile_directory(Path(path)), path)


def _open_checkout() -> Database:
    """Open a checkout's rules as compiled into its ignored ``.cache`` folder, or the user's cache, for these rules and this code.

    A process whose rules or code changed while it ran keeps to itself what it compiled: the files no longer say what that is of.
    """
    from hashlib import sha256  # noqa: PLC0415 (only in a checkout)

    files = _list_files(CHECKOUT, _MEASUREMENTS, *_COMPILER)
    own = os.path.join(find_cache(os.environ), "rules", sha256(CHECKOUT.encode()).hexdigest()[:16])
    caches = os.path.join(os.path.dirname(CHECKOUT), ".cache"), own
    name = f"rules-{sha256(repr(files).encode()).hexdigest()[:16]}.jsonl"
    data = next(filter(None, (_read(os.path.join(cache, name)) for cache in caches)), None)
    if data is None:
        from pathlib import Path  # noqa: PLC0415 (only in a checkout)

        from compatcheck.rules.compile import compile_directory  # noqa: PLC0415 (imports YAML)

        data = compile_directory(Path(CHECKOUT))
        if _list_files(*_COMPILER) == _LOADED and _list_files(CHECKOUT, _MEASUREMENTS, *_COMPILER) == files:
            any(_keep(data, cache, name) for cache in caches)
    return Database(lambda: BytesIO(data), CHECKOUT)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()  # at once: another process may remove it
    except OSError:
        return None


def _keep(data: bytes, cache: str, kept: str) -> bool:
    """Put the one compiled file of a checkout into its place, in one move; tell whether that could be done."""
    temporary = os.path.join(cache, f"{kept}.{os.getpid()}")
    try:
        os.makedirs(cache, exist_ok=True)
        with open(temporary, "wb") as stream:
            stream.write(data)
        os.replace(temporary, os.path.join(cache, kept))
        for name in os.listdir(cache):
            if name.startswith("rules-") and name.endswith(".jsonl") and name != kept:
                os.unlink(os.path.join(cache, name))
    except OSError:
        return False
    return True


def _list_files(*folders: str) -> list[tuple[str, int, int]]:
    """Return the names, sizes and times of all files in folders."""
    found = []
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for path in (os.path.join(parent, name) for name in names if not parent.endswith("__pycache__")):
                status = os.stat(path)
                found.append((path, status.st_size, status.st_mtime_ns))
    return sorted(found)


_COMPILER = tuple(os.path.join(_PACKAGE, name) for name in ("core", "rules"))
"""The folders of the code that compiles."""
_LOADED = _list_files(*_COMPILER) if is_checkout() else []
"""That code as it was when this process began to load it."""
