"""Where pieces of work are done: this machine, or a cluster; loops, order and what is kept are none of its business."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Work(Protocol[R_co]):
    """A piece of work; one that is done elsewhere is pickled, and so is what comes of it."""

    @property
    def devices(self) -> int:
        """How many GPUs it needs."""

    def run(self, keep: Callable[[R_co], None], cancelled: Callable[[], bool]) -> None:
        """Do it.

        Args:
            keep: takes each result as soon as it is known.
            cancelled: asked now and then; True ends the work.
        """

    def adopt(self) -> Work[R_co]:
        """Return the same work for the machine that this is called on, which is not the one that made it.

        Raises:
            CompatcheckError: it would not have the same results here.
        """


class Place(Protocol):
    """Does pieces of work, several at a time when it is asked from several threads."""

    @property
    def jobs(self) -> int | None:
        """How many it can do at a time; None where that depends on the work."""

    def do(self, work: Work[R], keep: Callable[[R], None], cancelled: Callable[[], bool]) -> None:
        """Do a piece of work and hand over each of its results once; the arguments are those of `Work.run`."""


class Here:
    """This machine."""

    jobs: int | None = None

    def do(self, work: Work[R], keep: Callable[[R], None], cancelled: Callable[[], bool]) -> None:
        """See `Place`."""
        work.run(keep, cancelled)


HERE: Place = Here()
