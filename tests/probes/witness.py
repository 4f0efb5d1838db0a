"""Peak bytes of a probe's whole run as somebody else counts them; runs inside the interpreter that has torch.

Usage: ``python witness.py REQUEST`` with JSON: ``worker`` (folder above the worker package), ``probe`` (file), ``parameters``,
and ``runs``, pairs of a back end and a witness (``own``, ``memtracker``, ``profiler``). Prints the peaks as JSON.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from typing import Any


class Uncounted:
    """Stands where the recorder asks for numbers between phases: the witness has one number for all of them."""

    def reset(self) -> None: ...

    def operator(self) -> None: ...

    def peak(self) -> int:
        return 0

    def live(self) -> int:
        return 0

    def device_numbers(self) -> dict[str, int]:
        return {}


def main(request: dict[str, Any]) -> list[int]:
    sys.path.append(request["worker"])  # at its end: a module there has the name of one of Python's
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("probe_under_test", request["probe"])
    assert spec is not None
    assert spec.loader is not None
    probe = importlib.util.module_from_spec(spec)
    sys.modules["probe_under_test"] = probe
    spec.loader.exec_module(probe)
    return [measure(probe, request, *run) for run in request["runs"]]


def measure(probe: Any, request: dict[str, Any], backend: str, witness: str) -> int:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from worker.accounting import StorageAccounting
    from worker.recorder import Recorder

    with FakeTensorMode() if backend == "fake" else contextlib.nullcontext():
        recorder = Recorder(
            backend=backend,
            accounting=Uncounted(),
            write=lambda _: None,
            rank=0,
            world_size=1,
            folder=os.path.dirname(request["probe"]),
            shares=getattr(probe, "SHARES", ()),
        )

        def run() -> None:
            probe.run(request["parameters"], recorder)

        if witness == "own":
            with StorageAccounting() as own:
                run()
            return int(own.peak())
        if witness == "memtracker":
            from torch.distributed._tools.mem_tracker import MemTracker

            tracker = MemTracker()
            with tracker:
                run()
            return int(sum(found["Total"] for found in tracker.get_tracker_snapshot("peak").values()))
        return watch_allocator(run)


def watch_allocator(run: Any) -> int:
    """Add up what the profiler saw of the CPU allocator: this includes what operators take and give back inside."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    live = peak = 0
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
