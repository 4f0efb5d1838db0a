"""The package index a person has set up for pip, told to uv, which does not read pip's configuration."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

from compatcheck.core.process import run
from compatcheck.core.programs import find_program
from compatcheck.core.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.process import Completed

_TIMEOUT_SECONDS = 60
_TO_UV = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "extra-index-url": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "find-links": ("UV_FIND_LINKS",),
    "cert": ("SSL_CERT_FILE",),
}
"""pip's option → uv's variables that mean the same; the first is set when none of them is."""


def interpreters() -> list[str]:
    """Return the interpreters whose pip may be asked: this one, and those of ``PATH`` that are not inspected."""
    found = (sys.executable, find_program("python3").path, find_program("python").path)
    return list(dict.fromkeys(path for path in found if path))


def ask_pip(*arguments: str) -> Iterator[Completed]:
    """Run one after the other the interpreters that may have pip, each by itself: ``-I`` keeps out what lies around."""
    for python in interpreters():
        done = run([python, "-I", *arguments], timeout_seconds=_TIMEOUT_SECONDS)
        if done.succeeded:
            yield done


@cache
def pip_options() -> dict[str, str]:
    """Return pip's own options from its variables and files: option → value, lists separated by spaces."""
    found: dict[str, str] = {}
    done = next(ask_pip("-m", "pip", "config", "list"), None)
    # Variables are listed first but win over files.
    for line in sorted(done.output.splitlines() if done else (), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2].strip()
        if option in _TO_UV and value:
            found[option] = value.strip().strip("'\"")
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


def describe_index(program: str) -> str:
    """Say which index uv or pip asks, without its credentials, before it is asked."""
    variables: Mapping[str, str] = {**os.environ, **uv_variables()} if program == "uv" else {}
    stated = [
        next((variables[name] for name in names if variables.get(name)), "")
        if program == "uv"
        else pip_options().get(option, "")
        for option, names in _TO_UV.items()
        if option != "cert"
    ]
    return redact(" ".join(filter(None, (stated[0] or f"{program}'s own default", *stated[1:]))))
