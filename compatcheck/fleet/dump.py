"""This node as one line: what is installed and set here, which devices it has, and digests of the code and files it runs with."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from compatcheck import __version__
from compatcheck.checking.digests import digest_file, digest_named
from compatcheck.checking.gathering import measure_hardware, read_installed
from compatcheck.checking.shared import read_shared
from compatcheck.collectors.recognise import SKIPPED_DIRECTORIES
from compatcheck.core.node import Node
from compatcheck.core.source import Skipped, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.checking.request import Request
    from compatcheck.rules.database import RuleSet

NAMES = ("SLURMD_NODENAME", "NODE_NAME")
"""Variables that say how the scheduler calls this node: Slurm's, and what pods are given by convention (``spec.nodeName``)."""

CODE = (".py", ".pyx", ".so", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp")
"""Files of a source tree that decide what is run; a checkout may hold data and checkpoints, too."""
MOST_FILES = 20_000
"""Of one source tree; torch's own has about half as many."""


def describe_node(request: Request, rules: RuleSet, environ: Mapping[str, str]) -> Node:
    """Collect what is known of this node; nothing is judged.

    Args:
        request: the interpreter, and the configuration files whose content is compared between nodes.
        rules: the database.
        environ: variables of this process.

    Raises:
        CompatcheckError: there is no such environment.
    """
    shared = read_shared(request, rules, environ)
    environment, _ = read_installed(request, shared)
    editable: dict[str, Mapping[str, str]] = {}
    skipped = [*environment.skipped, *shared.skipped]
    for package in environment.packages.values():
        root = package.details.get("editable")
        if root is not None:
            try:
                editable[package.name] = digest_tree(root)
            except OSError as error:
                reason = f"the source tree of {package.name} could not be read: {error.strerror}"
                skipped.append(Skipped(Source(root), reason))
    return Node(
        name_node(environ),
        __version__,
        environment._replace(hardware=measure_hardware(environ), skipped=tuple(skipped)),
        editable,
        digest_named(request, rules, environ),
    )


def name_node(environ: Mapping[str, str]) -> str:
    """Return how the scheduler calls this node, else its host name."""
    return next((environ[name] for name in NAMES if environ.get(name)), "") or socket.gethostname()


def digest_tree(root: str) -> dict[str, str]:
    """Return the digests of the code in a source tree, by path in it.

    Raises:
        OSError: it cannot be listed, or holds more than `MOST_FILES` files of code.
    """
    found: dict[str, str] = {}
    for path in _list_code(root):
        if len(found) == MOST_FILES:
            raise OSError(0, f"it holds more than {MOST_FILES} files of code")
        found[os.path.relpath(path, root)] = digest_file(path) or "unreadable"
    return found


def _list_code(root: str) -> Iterator[str]:

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(root, onerror=fail):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_DIRECTORIES and not name.startswith("."))
        folders[:] = [name for name in folders if not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))]
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(CODE) and os.path.isfile(path):
                yield path
