"""Find and open the rule data: the compiled file of an installed package, or ``rules/`` of a checkout."""

from __future__ import annotations

from pathlib import Path

from compatcheck.core.errors import RuleError
from compatcheck.core.source import Source
from compatcheck.rules.database import Database, RuleSet

_PACKAGE = Path(__file__).resolve().parent.parent
COMPILED = _PACKAGE / "_database.jsonl"
CHECKOUT = _PACKAGE.parent / "rules"


def open_rules(directories: tuple[Path, ...] = ()) -> RuleSet:
    """Open the built-in database and the person's own rule directories.

    Raises:
        RuleError: a directory holds a malformed rule, or there is no database at all.
    """
    return RuleSet((open_builtin(), *(open_directory(path) for path in directories)))


def open_builtin() -> Database:
    """Open the compiled database; in a checkout compile ``rules/`` first, once per change."""
    if COMPILED.exists():
        return Database.open(COMPILED)
    if CHECKOUT.is_dir():
        return _open_checkout(CHECKOUT)
    msg = "the rule database is missing from this installation"
    raise RuleError(msg, hint="reinstall compatcheck")


def open_directory(path: Path) -> Database:
    """Compile and open a directory of rule files.

    Raises:
        RuleError: not a directory, or a file in it is malformed.
    """
    from compatcheck.rules.compile import compile_directory, open_compiled  # noqa: PLC0415 (imports YAML)

    if not path.is_dir():
        msg = "not a directory"
        raise RuleError(msg, source=Source(str(path)))
    return open_compiled(compile_directory(path), str(path))


def _open_checkout(directory: Path) -> Database:
    """Compile a checkout's rules into its ignored ``.cache`` folder, keyed by names, sizes and times of the files."""
    import hashlib  # noqa: PLC0415 (only in a checkout)

    from compatcheck.rules.compile import compile_directory, open_compiled  # noqa: PLC0415 (imports YAML)

    digest = hashlib.sha256()
    for path in (*sorted(directory.rglob("*.yaml")), *sorted((_PACKAGE / "rules").glob("*.py"))):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    cache = directory.parent / ".cache"
    cached = cache / f"rules-{digest.hexdigest()[:16]}.jsonl"
    if cached.exists():
        return Database.open(cached)
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
    return Database.open(cached)
