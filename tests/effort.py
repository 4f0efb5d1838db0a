"""Bounds of CPU time that hold on a slow machine as on a fast one: multiples of a work of known size, done beside."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ROUNDS = 30


def spend() -> float:
    """CPU seconds of one unit: text split, matched, put into dictionaries and sorted, 0.2 to 0.3 seconds on a machine of 2024."""
    begin = time.process_time()
    line = " ".join(f"--option_{n} value{n}" for n in range(500))
    for _ in range(ROUNDS):
        table: dict[str, list[str]] = {}
        for _ in range(20):
            words = line.split()
            for name, value in zip(words[::2], words[1::2], strict=True):
                if name.startswith("--") and not value.endswith("_"):
                    table.setdefault(name.removeprefix("--").replace("_", "-"), []).append(value)
        assert sum(len(values) for _, values in sorted(table.items())) == 10_000
    return time.process_time() - begin


@contextmanager
def at_most(units: float) -> Iterator[None]:
    """Fail where the body spends more CPU time than ``units`` of ``spend``, each side of it measured beside the body."""
    before = spend()
    begin = time.process_time()
    yield
    spent = time.process_time() - begin
    unit = max(before, spend()) if spent > units * before else before
    assert spent <= units * unit, f"{spent / unit:.1f} units of work, at most {units:g} are meant"


def cpu_of(work: Callable[[], object]) -> float:
    """CPU seconds of some work, without the collections of garbage that what other tests left behind makes long."""
    gc.collect()
    gc.disable()
    try:
        begin = time.process_time()
        work()
        return time.process_time() - begin
    finally:
        gc.enable()
