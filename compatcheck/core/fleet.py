"""What the nodes of one job came to: where they differ, which of them said nothing, and the report on each kind of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.report import Report

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
"""What a scheduler calls a node: a host name or an address. White space and commas part names in its lists; brackets and ``#``
mean something else there."""


class Skew(NamedTuple):
    """One thing of which the nodes of a job have different values."""

    kind: str
    """``package``, ``component``, ``hardware``, ``variable``, ``files`` (editable), ``configuration``, ``tool`` (compatcheck)."""
    name: str
    """Of the package, variable or file; ``nccl``, ``driver``, ``gpu``."""
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """Each value in words with its nodes, what most have first."""
    why: str | None
    """Why ranks should have it alike; None where it does not matter."""

    @property
    def is_told(self) -> bool:
        """Whether it is told unasked: it matters, or a node was asked by another release of compatcheck, which may know less."""
        return self.why is not None or self.kind == "tool"

    @property
    def nodes(self) -> int:
        """Nodes of which the value is known."""
        return sum(len(nodes) for _, nodes in self.values)

    @property
    def majority(self) -> str | None:
        """The value that more than half of them have; None where none has."""
        value, nodes = self.values[0]
        return value if 2 * len(nodes) > self.nodes else None

    @property
    def odd(self) -> tuple[str, ...]:
        """Nodes with another value than most; none where most have no value."""
        return () if self.majority is None else tuple(name for _, nodes in self.values[1:] for name in nodes)


class Fleet(NamedTuple):
    """Everything reporters need of the nodes of a job."""

    report: Report
    """Its subjects are the kinds of nodes: one for all that have alike what matters."""
    kinds: tuple[tuple[str, tuple[str, ...]], ...]
    """Subject and its nodes, the most first."""
    skews: tuple[Skew, ...]
    """Those that matter first."""
    lost: tuple[tuple[str, str], ...]
    """Nodes that said nothing of themselves, and why."""
    twice: Mapping[str, str] = {}
    """Label of a node that answered twice and differently → its name."""

    @property
    def nodes(self) -> int:
        """Nodes that said something."""
        return sum(len(nodes) for _, nodes in self.kinds)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Nodes to start without: those that said nothing, and those unlike most in what matters."""
        odd = (self.twice.get(name, name) for skew in self.skews if skew.why is not None for name in skew.odd)
        return tuple(dict.fromkeys((*(name for name, _ in self.lost), *odd)))


def split_names(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Part nodes to leave out into those that a list of a scheduler can name, and those that it cannot."""
    stated = tuple(names)
    return tuple(filter(_NAME.fullmatch, stated)), tuple(name for name in stated if not _NAME.fullmatch(name))
