"""Where what can be made again is kept."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def find_cache(environ: Mapping[str, str]) -> str:
    """Return ``$COMPATCHECK_CACHE``, else ``compatcheck`` in the user's cache directory (``$XDG_CACHE_HOME``, ``~/.cache``)."""
    if stated := environ.get("COMPATCHECK_CACHE"):
        return os.path.abspath(os.path.expanduser(stated))
    # The base directory specification ignores relative paths.
    base = environ.get("XDG_CACHE_HOME") or ""
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser(os.path.join("~", ".cache")), "compatcheck")
