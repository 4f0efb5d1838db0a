"""Where version environments and compiled counters are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return ``$COMPATCHECK_CACHE``, else ``compatcheck`` in the user's cache directory (``$XDG_CACHE_HOME``, ``~/.cache``)."""
    if stated := os.environ.get("COMPATCHECK_CACHE"):
        return Path(stated)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "compatcheck"
