"""Where version environments and compiled counters are kept."""

from __future__ import annotations

import os
from pathlib import Path

from compatcheck.core.cache import find_cache
from compatcheck.core.errors import UsageError


def cache_directory() -> Path:
    """Return the cache of this process's environment."""
    return Path(find_cache(os.environ))


def make_folder(*parts: str) -> Path:
    """Return a folder of the cache, made where it is missing.

    Raises:
        UsageError: it cannot be made.
    """
    folder = cache_directory().joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(cache_directory(), error) from None
    return folder


def unwritable(folder: Path, error: OSError) -> UsageError:
    """Return the error that says that a folder of the cache cannot be written, and what to do."""
    msg = f"the cache {folder} cannot be written: {error.strerror}"
    return UsageError(msg, hint="name another place in COMPATCHECK_CACHE")
