"""The package index a person has set up for pip, told to uv, which does not read pip's configuration."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache

from compatcheck.core.process import run

_TIMEOUT_SECONDS = 30
_TO_UV = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "extra-index-url": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "find-links": ("UV_FIND_LINKS",),
    "cert": ("SSL_CERT_FILE",),
}
"""pip's option → uv's variables that mean the same; the first is set when none of them is."""


@cache
def pip_options() -> dict[str, str]:
    """Return pip's own options from its variables and files: option → value, lists separated by spaces."""
    found: dict[str, str] = {}
    for python in dict.fromkeys((sys.executable, shutil.which("python3"), shutil.which("python"))):
        if python is None:
            continue
        done = run([python, "-m", "pip", "config", "list"], timeout_seconds=_TIMEOUT_SECONDS)
        if not done.succeeded:
            continue
        # Variables are listed first but win over files.
        for line in sorted(done.output.splitlines(), key=lambda line: line.startswith(":env:")):
            name, _, value = line.partition("=")
            option = name.rpartition(".")[2].strip()
            if option in _TO_UV and value:
                found[option] = value.strip().strip("'\"")
        break
    return found


def uv_variables() -> dict[str, str]:
    """Return the variables that make uv use what pip is set up for; what is set for uv already is left alone."""
    result: dict[str, str] = {}
    for option, value in pip_options().items():
        names = _TO_UV[option]
        if any(os.environ.get(name) for name in names):
            continue
        # uv separates indexes by spaces and links by commas.
        result[names[0]] = value.replace(" ", ",") if option == "find-links" else value
        if option == "extra-index-url" and not os.environ.get("UV_INDEX_STRATEGY"):
            result["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # what pip does: the best of all indexes
    return result
