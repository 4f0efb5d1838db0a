"""Find and open the rule data: the compiled file of an installed package, or ``rules/`` of a checkout."""

from __future__ import annotations

import os

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


def open_rules(directories: tuple[str, ...] = ()) -> RuleSet:
    """Open the built-in database and the person's own rule directories.

    Raises:
        RuleError: a directory holds a malformed rule, or there is no database at all.
    """
    return RuleSet((open_builtin(), *(open_directory(path) for path in directories)))


def open_builtin() -> Database:
    """Open the compiled database; in a checkout compile ``rules/`` first, once per change."""
    if os.path.exists(COMPILED):
        return Database.open(COMPILED)
    if is_checkout():
        return _open_checkout()
    msg = "the rule database is missing from this installation"
    raise RuleError(msg, hint="reinstall compatcheck")


def open_directory(path: str) -> Database:
    """Compile and open a directory of rule files.

    Raises:
        RuleError: not a directory, or a file in it is malformed.
    """
    from pathlib import Path  # noqa: PLC0415 (3 ms; not for the built-in rules)

    from compatcheck.rules.compile import compile_directory, open_compiled  # noqa: PLC0415 (imports YAML)

    if not os.path.isdir(path):
        msg = "not a directory"
        raise RuleError(msg, source=Source(path))
    return open_compiled(compile_directory(Path(path)), path)


def _open_checkout() -> Database:
    """Compile a checkout's rules into its ignored ``.cache`` folder, keyed by names, sizes and times of the files."""
    import hashlib  # noqa: PLC0415 (only in a checkout)
    from pathlib import Path  # noqa: PLC0415 (only in a checkout)

    from compatcheck.rules.compile import compile_directory, open_compiled  # noqa: PLC0415 (imports YAML)

    directory = Path(CHECKOUT)

    digest = hashlib.sha256()
    for path in (*sorted(directory.rglob("*.yaml")), *sorted(Path(_PACKAGE, "rules").glob("*.py"))):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    cache = directory.parent / ".cache"
    cached = cache / f"rules-{digest.hexdigest()[:16]}.jsonl"
    if cached.exists():
        return Database.open(str(cached))
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
