"""The place that `--ray` names: where a command's pieces of work are done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from compatcheck.cli.output import write_notice
from compatcheck.core.place import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.place import Place


@contextmanager
def open_place(address: str | None) -> Iterator[Place]:
    """Connect to a cluster, and leave it again; without an address it is this machine.

    Raises:
        UsageError: Ray is not there.
        InputError: no cluster answers.
    """
    if address is None:
        yield HERE
        return
    from compatcheck.fleet.cluster import open_cluster  # noqa: PLC0415 (only with a cluster)

    with open_cluster(address, write_notice) as place:
        yield place
