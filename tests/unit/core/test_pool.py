"""Children that crash or hang cost one piece of work, and nothing is lost or done twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

from compatcheck.core.pool import PIECES, Pool, Result, Share

CHILD = """
import os, sys, time
for piece in sys.argv[2:]:
    if piece == "crash":
        os.kill(os.getpid(), 9)
    if piece == "hang":
        time.sleep(600)
    with open(sys.argv[1], "a") as file:
        file.write(f"{piece} is done")
        file.flush()
        if piece == "torn":
            os._exit(3)
        file.write("\\n")
"""


def start(pieces: Sequence[str], path: str) -> list[str]:
    return [sys.executable, "-I", "-c", CHILD, path, *pieces]


def make(timeout_seconds: float) -> Callable[[Sequence[str]], Share]:
    return lambda pieces: Share(command=start, pieces=pieces, timeout_seconds=timeout_seconds)


def test_results_come_in_the_order_of_the_pieces():
    pieces = [str(number) for number in range(3 * PIECES)]
    found = list(Pool(make(60), 3).run(pieces))
    assert found == [Result(piece, f"{piece} is done") for piece in pieces]


def test_one_that_crashes_hangs_or_writes_half_a_line_costs_itself():
    pieces = [*map(str, range(9)), "crash", "a", "hang", "b", "torn", "c"]
    found = {result.piece: result for result in Pool(make(2), 2).run(pieces)}
    assert list(found) == pieces
    lost = {piece: str(result.failure) for piece, result in found.items() if result.line is None}
    assert lost.keys() == {"crash", "hang", "torn"}
    assert lost["hang"] == "did not end within 2 s"
    assert "-9" in lost["crash"]


def test_only_so_many_pieces_are_taken_as_are_worked_on():
    taken = 0

    def count() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield str(taken)

    results = Pool(make(60), 1).run(count())
    for _ in range(10):
        next(results)
    results.close()
    assert taken < 10 + 3 * PIECES


def test_what_cannot_be_started_is_said():
    share = Share(command=lambda *_: ["/nowhere/python"], pieces=["a"], timeout_seconds=5)
    (result,) = Pool(lambda _: share, 1).run(["a"])
    assert "could not be started" in str(result.failure)
