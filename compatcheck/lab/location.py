"""Where the person's own measurements are kept; apart because asking imports nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "COMPATCHECK_EVIDENCE"


def store_path(environ: Mapping[str, str]) -> str:
    """Return ``$COMPATCHECK_EVIDENCE``, else ``compatcheck/evidence.sqlite3`` in ``$XDG_DATA_HOME`` or ``~/.local/share``."""
    if stated := environ.get(VARIABLE):
        return os.path.expanduser(stated)
    # The base directory specification ignores relative paths.
    base = environ.get("XDG_DATA_HOME") or ""
    home = base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(home, "compatcheck", "evidence.sqlite3")
