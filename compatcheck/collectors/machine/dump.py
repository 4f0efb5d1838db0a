"""Nodes of a job as `compatcheck env --dump` wrote them: one line each, whatever a launcher put around the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.node import FORMAT, MARK, Node, read_line
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo, read_text

if TYPE_CHECKING:
    from compatcheck.core.environment import Environment

_ANY_FORM = lazy_compile(r'\{"compatcheck_node": (\d+), ')
_MOST_LINES = 3
"""Other lines that are shown of a file; more are a log."""


def read_nodes(path: str, files: Files = LOCAL) -> tuple[tuple[Node, ...], tuple[Skipped, ...]]:
    """Read the nodes of a file, and what of it is none.

    Raises:
        InputError: it cannot be read, or holds no node.
    """
    nodes: list[Node] = []
    skipped: list[Skipped] = []
    other: list[tuple[int, str]] = []
    for number, line in enumerate(read_text(path, files).splitlines(), start=1):
        begin = line.find(MARK)
        if begin < 0:
            form = _ANY_FORM.search(line)
            if form is not None:
                reason = (
                    f"is of form {form[1]}, written by another release of compatcheck; this one reads form {FORMAT}"
                )
                skipped.append(Skipped(Source(path, line=number), reason, "install one release everywhere", named=True))
            elif line.strip():
                other.append((number, line.strip()))
            continue
        try:
            nodes.append(read_line(line[begin:]))
        except ValueError as error:
            skipped.append(Skipped(Source(path, line=number), str(error), named=True))
    if not nodes and not skipped:
        said = f": {echo(other[-1][1])}" if other else ": it is empty"
        hint = "`srun compatcheck env --dump` writes a line for each node"
        raise InputError(f"holds no node{said}", source=Source(path), hint=hint)
    for number, line in other[:_MOST_LINES]:
        skipped.append(Skipped(Source(path, line=number), f"is no node: {echo(line)}", passes=True))
    if len(other) > _MOST_LINES:
        skipped.append(Skipped(Source(path), f"{len(other) - _MOST_LINES} more lines are no node", passes=True))
    return tuple(nodes), tuple(skipped)


def read_dump(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a file of nodes as environments: one for each.

    Raises:
        InputError: it cannot be read, or holds no whole node.
    """
    nodes, skipped = read_nodes(path, files)
    if not nodes:
        raise InputError(skipped[0].reason, source=skipped[0].source, hint=skipped[0].hint)
    first, *rest = (node.environment._replace(origin=f"{path}: {node.name}") for node in nodes)
    return first._replace(skipped=(*first.skipped, *skipped)), *rest
