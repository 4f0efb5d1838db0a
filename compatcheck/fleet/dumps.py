"""Dumps of nodes as they lie in a directory: one file for each node, or the output of a launcher with all of them."""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TYPE_CHECKING

from compatcheck.collectors.machine.dump import read_nodes
from compatcheck.core.errors import InputError
from compatcheck.core.node import Answers
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo, read_utf8

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from compatcheck.core.node import Node

_MOST_NAMED = 3
"""Files or nodes that are named of those of one kind."""


def read_dumps(paths: Iterable[str], expected: str | None = None) -> Answers:
    """Read the dumps of a job.

    Args:
        paths: files, and directories with one file for each node.
        expected: file with the names of all nodes of the job, as ``scontrol show hostnames`` prints them.

    Raises:
        InputError: a path is not there, or the list cannot be read.
    """
    nodes: list[Node] = []
    lost: dict[str, str] = {}
    silent_files: dict[str, str] = {}
    holders: dict[
        str, set[str]
    ] = {}  # names → the files with one node of that name, where they are not called after it
    called = False  # whether files are called as their nodes are, and not by the number of a task
    unread: list[Skipped] = []
    names = [] if expected is None else _read_names(expected)
    for path in _list_files(paths):
        try:
            found, labels, other, silent = read_nodes(path)
        except InputError as error:
            silent_files[path] = error.message
            continue
        broken = [entry for entry in other if entry.named]
        if not found and len(broken) == 1:
            silent_files[path] = broken[0].reason
            other = tuple(entry for entry in other if not entry.named)
        if names:
            place = _stem(path) if len(found) == 1 else None
            found = tuple(_rename(node, (label, place), names) for node, label in zip(found, labels, strict=True))
        nodes += found
        if len(found) == 1 and found[0].name not in _stem(path):
            holders.setdefault(found[0].name, set()).add(_stem(path))
        called |= any(_short(node.name) == _short(_stem(path)) for node in found)
        unread += other
        lost |= silent
    for path, why in silent_files.items():
        is_name = _stem(path) in names or called or not nodes
        lost[_stem(path) if is_name else f"file {path}"] = why
    unread += (_doubt(name, stems) for name, stems in holders.items() if len(stems) > 1)
    if expected is not None:
        nodes = [node._replace(name=_spell(node.name, names)) for node in nodes]
        lost = {_spell(name, names): why for name, why in lost.items()}
        listed = {_short(name) for name in names}
        others = sorted({node.name for node in nodes if _short(node.name) not in listed})
        if others:
            first = ", ".join(others[:_MOST_NAMED]) + (", …" if others[_MOST_NAMED:] else "")
            said = f"does not name {first}, whose dumps are there"
            unread.append(Skipped(Source(expected), said, "dumps of another job are not of this one", passes=True))
        there = {_short(node.name) for node in nodes} | {_short(name) for name in lost}
        lost |= {name: f"is in {expected} and wrote nothing" for name in names if _short(name) not in there}
    return Answers(tuple(nodes), tuple(lost.items()), tuple(unread))


def _list_files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            if not os.path.exists(path):
                raise InputError(
                    "no such file", source=Source(path), hint="name the dumps, or the directory they lie in"
                )
            yield path
            continue
        for name in sorted(os.listdir(path)):
            if not name.startswith("."):
                yield os.path.join(path, name)


def _read_names(path: str) -> list[str]:
    """Read a list of nodes, or a hostfile of MPI or DeepSpeed (``node1 slots=8``).

    Raises:
        InputError: it cannot be read, names no node, or holds ranges.
    """
    lines = [line.partition("#")[0].replace(",", " ") for line in read_utf8(path).splitlines()]
    names = [word for line in lines for word in line.split() if "=" not in word]
    ranges = next((word for word in names if "[" in word), None)
    if ranges is not None:
        said = f"holds ranges of names, as {echo(ranges)}"
        raise InputError(said, source=Source(path), hint="`scontrol show hostnames LIST` writes each")
    if not names:
        raise InputError(
            "names no node", source=Source(path), hint="`scontrol show hostnames` inside the job writes them"
        )
    return names


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _doubt(name: str, stems: Collection[str]) -> Skipped:
    """Say of files that are called otherwise and hold a node of one name that they count once where they are alike."""
    first = ", ".join(sorted(stems)[:_MOST_NAMED])
    said = f"{len(stems)} files ({first}, …) hold a node that calls itself {name}: one node, where they are alike"
    hint = "where they are several, --expect with the names of the files tells them apart"
    return Skipped(Source(name), said, hint, passes=True)


def _rename(node: Node, callers: Iterable[str | None], names: Collection[str]) -> Node:
    """Call a node that the list does not know as its label or its file is called, if the list knows that.

    Machines of one image may all call themselves alike, and those that are reached by address or alias otherwise.
    """
    known = {_short(name) for name in names}
    if _short(node.name) in known:
        return node
    return next((node._replace(name=name) for name in callers if name is not None and _short(name) in known), node)


def _spell(name: str, names: Iterable[str]) -> str:
    """Call a node as the list does, which may know its host without or with a domain."""
    bare = _short(name)
    alike = [other for other in names if _short(other) == bare and bare in {name, other}]
    return name if name in alike or not alike else alike[0]


def _short(name: str) -> str:
    """Return a host name without its domain: schedulers and machines do not agree on that."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name.partition(".")[0]
