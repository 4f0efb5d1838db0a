"""Find and open the rule data: the compiled file of an installed package, or ``rules/`` of a checkout."""

from __future__ import annotations

import os
from functools import lru_cache

from compatcheck.core.errors import RuleError
from compatcheck.core.source import Source
from compatcheck.rules.database import Database, RuleSet

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMPILED = os.path.join(_PACKAGE, "_database.jsonl")
CHECKOUT = os.path.join(os.path.dirname(_PACKAGE), "rules")
"""The rules of a checkout. Beside an installed package the same path is someone else's, so ask `is_checkout` first."""


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
    """Compile a checkout's rules into its ignored ``.cache`` folder, keyed by names, sizes and times of the files."""
    import hashlib  # noqa: PLC0415 (only in a checkout)
    from pathlib import Path  # noqa: PLC0415 (only in a checkout)

    directory = Path(CHECKOUT)
    digest = hashlib.sha256()
    for path in (*sorted(directory.rglob("*.yaml")), *sorted(Path(_PACKAGE, "rules").glob("*.py"))):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    cache = directory.parent / ".cache"
    cached = cache / f"rules-{digest.hexdigest()[:16]}.jsonl"
    if cached.exists():
        return Database.open(str(cached))
    from compatcheck.rules.compile import compile_directory, open_compiled  # noqa: PLC0415 (imports YAML)

    data = compile_directory(directory)
    try:
        cache.mkdir(exist_ok=True)
        temporary = cached.with_suffix(f".{id(data)}")
        temporary.write_bytes(data)
        temporary.replace(cached)
    except OSError:
        return open_compiled(data, str(directory))
    for old in cache.glob("rules-*.jsonl"):
        if old != cached:
            old.unlink(missing_ok=True)
    return Database.open(str(cached))
