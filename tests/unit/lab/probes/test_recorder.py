"""What a recorder makes the same each time."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import pytest

from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.worker.recorder import Recorder


def test_no_run_gets_a_file_that_its_hash_leaves_out() -> None:
    probe = find_probe("whole_run")
    for parameters, left_out in (({"trainer": "zero3"}, "fsdp"), ({"trainer": "fsdp2"}, "tiny_trainers")):
        shares = probe.shares(parameters)
        recorder = Recorder(backend="cpu", accounting=None, write=print, rank=0, world_size=1, shares=shares)
        assert left_out not in shares
        with pytest.raises(LookupError, match=f"does not get {left_out}"):
            recorder.load(left_out)


def test_weights_are_read_in_their_order_and_before_anything_is_made_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers 5 reads them: it takes the pool's name from its own module when it loads."""
    loading = ModuleType("transformers.core_model_loading")
    loading.ThreadPoolExecutor = ThreadPoolExecutor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, loading.__name__, loading)
    accounting = SimpleNamespace(live=lambda: 0)
    recorder = Recorder(backend="cpu", accounting=accounting, write=lambda _: None, rank=0, world_size=1)
    recorder.live_bytes()
    pool = loading.ThreadPoolExecutor(max_workers=4)
    read: list[tuple[int, int]] = []
    futures = [pool.submit(lambda n=n: read.append((n, threading.get_ident()))) for n in range(8)]
    assert read == [(n, threading.get_ident()) for n in range(8)]
    assert all(one.done() for one in futures)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result()
    pool.shutdown(wait=False, cancel_futures=True)
