"""The checkout a run works in: its root, and paths as a code host knows them."""

from __future__ import annotations

import os


def find_root(directory: str) -> str:
    """Return the directory at or above this one that holds ``.git``, or this one when none does."""
    here = os.path.abspath(directory)
    start = here
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            return start
        here = above
    return here


def path_in_checkout(path: str, root: str) -> str | None:
    """Return an existing file's path below ``root`` with forward slashes, or None when it is no file of the checkout.

    Spoken places (``--gpu``, ``default of deepspeed``) are no files.
    """
    try:
        if not os.path.isfile(path):
            return None
    except ValueError:
        return None
    relative = os.path.relpath(os.path.abspath(path), root)
    if relative == os.pardir or relative.startswith(os.pardir + os.sep) or os.path.isabs(relative):
        return None
    return relative.replace(os.sep, "/")
