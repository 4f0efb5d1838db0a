"""The counter of the CPU allocator, compiled once from `worker/memshim.c` where there is a C compiler."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

from compatcheck.core.process import run
from compatcheck.core.programs import find_program
from compatcheck.lab.cache import cache_directory, make_folder

SOURCE = Path(__file__).with_name("worker") / "memshim.c"
_TIMEOUT_SECONDS = 60


@cache
def counter_library() -> tuple[str | None, str | None]:
    """Return the library to preload, or None and why there is none.

    Raises:
        UsageError: the cache cannot be written.
    """
    if not sys.platform.startswith("linux"):
        return None, f"the allocator's counter is for Linux, not {sys.platform}"
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := find_program(name).path)), None)
    text = SOURCE.read_bytes()
    target = cache_directory() / "counter" / f"memshim-{hashlib.sha256(text).hexdigest()[:12]}.so"
    if target.exists():
        return str(target), None
    if compiler is None:
        return None, "there is no C compiler for the allocator's counter; tensor storages are counted instead"
    make_folder("counter")
    scratch = f"{target}.{os.getpid()}"
    done = run(
        [compiler, "-O2", "-shared", "-fPIC", "-pthread", "-o", scratch, str(SOURCE), "-ldl"],
        timeout_seconds=_TIMEOUT_SECONDS,
    )
    if not done.succeeded:
        return None, f"the allocator's counter could not be compiled: {done.describe()}"
    os.replace(scratch, target)
    return str(target), None
