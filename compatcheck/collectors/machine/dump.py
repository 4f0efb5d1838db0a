"""Nodes of a job as `compatcheck env --dump` wrote them: one line each, whatever a launcher put around the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.node import CUT, FORMAT, MARK, Node, read_line
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.environment import Environment

_ANY_FORM = lazy_compile(r'\{"compatcheck_node": (\d+), ')
_LABEL = lazy_compile(r"^ *(?:\[([^]\s]+)\]|([^\s:]+):) ")
"""What a launcher puts in front of a node's lines: ``n3: `` of pdsh, `` 7: `` of srun, ``[pod/train-3/main] `` of kubectl."""
_NUMBER = lazy_compile(r"\d+")
_MOST_LINES = 3
"""Other lines that are shown of a file; more are a log."""


class Lines(NamedTuple):
    """What a file of nodes holds."""

    nodes: tuple[Node, ...]
    labels: tuple[str | None, ...]
    """What a launcher put in front of each node."""
    skipped: tuple[Skipped, ...]
    """What is no node."""
    silent: Mapping[str, str]
    """The last words of nodes that a launcher names there and that wrote none."""


def read_nodes(path: str, files: Files = LOCAL) -> Lines:
    """Read the nodes of a file.

    Raises:
        InputError: it cannot be read, or holds no node.
    """
    nodes: list[tuple[Node, str | None]] = []
    skipped: list[Skipped] = []
    other: list[tuple[int, str]] = []
    labels: set[str] = set()
    called = False  # whether labels are names of nodes: srun's are numbers of tasks, kubectl's are pods
    begun: dict[str, tuple[int, str]] = {}  # what stands in front → where a node begins that is not there whole yet
    for number, line in _split_nodes(read_text(path, files)):
        begin = line.find(MARK)
        front = line[:begin] if begin >= 0 else next((front for front in begun if line.startswith(front)), None)
        if front is None:
            form = _ANY_FORM.search(line)
            if form is not None:
                skipped.append(_other_form(path, number, form[1]))
            elif line.strip():
                other.append((number, line.strip()))
            continue
        started, text = begun.pop(front, (number, ""))
        if begin >= 0:
            if text:
                skipped.append(_cut(path, started))
            started, text = number, ""
        text += line[len(front) :]
        label = _label(front)
        if label is not None:
            labels.add(label)
            if not text.endswith(
                "}"
            ):  # srun breaks what it labels after 1,024 bytes, and mixes the pieces of all tasks
                begun[front] = (started, text)
                continue
        try:
            nodes.append((read_line(text), label))
            called |= label == nodes[-1][0].name
        except ValueError as error:
            if label is not None and str(error) == CUT:
                begun[front] = (started, text)
            else:
                skipped.append(_cut(path, started, str(error)))
    skipped += (_cut(path, started) for started, _ in begun.values())
    if not nodes and not skipped:
        said = f": {echo(other[-1][1])}" if other else ": it is empty"
        hint = "`compatcheck env --dump` writes a line for each node"
        raise InputError(f"holds no node{said}", source=Source(path), hint=hint)
    shapes = {_NUMBER.sub("#", label) for label in labels}
    silent = {
        name: f"wrote no node: {echo(line)}"
        for _, line in other
        if (name := _label(line)) is not None and name not in labels and _NUMBER.sub("#", name) in shapes
    }
    other = [(number, line) for number, line in other if _label(line) not in silent]
    if not called:
        silent = {f"what {path} labels {name}": why for name, why in silent.items()}
    for number, line in other[:_MOST_LINES]:
        skipped.append(Skipped(Source(path, line=number), f"is no node: {echo(line)}", passes=True))
    if len(other) > _MOST_LINES:
        skipped.append(Skipped(Source(path), f"{len(other) - _MOST_LINES} more lines are no node", passes=True))
    found, callers = zip(*nodes, strict=True) if nodes else ((), ())
    return Lines(found, callers, tuple(skipped), silent)


def _split_nodes(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, one that holds several nodes in pieces; no value holds `MARK`, for quotes are escaped."""
    for number, line in enumerate(text.splitlines(), start=1):
        first, *others = line.split(MARK)
        if not others:
            yield number, line
            continue
        yield number, first + MARK + others[0]
        for other in others[1:]:
            yield number, MARK + other


def _other_form(path: str, line: int, form: str) -> Skipped:
    reason = f"is of form {form}, written by another release of compatcheck; this one reads form {FORMAT}"
    return Skipped(Source(path, line=line), reason, "install one release everywhere", named=True)


def _cut(path: str, line: int, why: str = CUT) -> Skipped:
    return Skipped(Source(path, line=line), why, "write a file for each node, or use `srun --label`", named=True)


def _label(line: str) -> str | None:
    found = _LABEL.match(line)
    return None if found is None else found[1] or found[2]


def read_dump(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a file of nodes as environments: one for each.

    Raises:
        InputError: it cannot be read, or holds no whole node.
    """
    nodes, _, skipped, silent = read_nodes(path, files)
    skipped += tuple(Skipped(Source(path), f"{name} {why}", named=True) for name, why in silent.items())
    if not nodes:
        raise InputError(skipped[0].reason, source=skipped[0].source, hint=skipped[0].hint)
    first, *rest = (node.environment._replace(origin=f"{path}: {node.name}") for node in nodes)
    return first._replace(skipped=(*first.skipped, *skipped)), *rest
