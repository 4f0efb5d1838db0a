"""Memory that captured CUDA graphs keep: one shared pool, or one for each graph.

``graphs`` graphs are captured one after another. Each makes two tensors of ``mebibytes`` and drops both. With ``pool:
shared`` all are captured into the pool of the first (``torch.cuda.graph_pool_handle``), as inference engines do for
their batch sizes; with ``pool: private`` each gets a pool of its own.

Prediction. What a graph allocates stays reserved for its replays. Both tensors are alive together, so a graph needs 2
x size. A shared pool is reused by the next capture once its tensors are dropped: 2 x size altogether. Private pools
add up: graphs x 2 x size. Segments for large blocks are counted (sizes are multiples of their 2 MiB), by the
allocator's snapshot; the few bytes of the random generator's state lie in segments for small ones. ``freed_bytes``,
what comes back after the graphs are deleted and the cache is emptied, is all of it.

Sources: Note [Interaction with CUDA graph capture] in c10/cuda/CUDACachingAllocator.cpp;
https://docs.pytorch.org/docs/stable/notes/cuda.html#sharing-memory-across-captures. Derived by reading; `compatcheck
probe list` says whether it was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"pool": "shared", "graphs": 4, "mebibytes": 32}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"pool": "private"},
    {"mebibytes": 64, "graphs": 3},
    {"pool": "private", "mebibytes": 64, "graphs": 3},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"pool": ("shared", "private")}
METRIC = "graph_pool_bytes"


def environ(parameters: Mapping[str, Any]) -> dict[str, str | None]:
    """Return that the allocator is as it is by default: expandable segments would be counted in other pages."""
    return {"PYTORCH_CUDA_ALLOC_CONF": None, "PYTORCH_ALLOC_CONF": None}


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return two tensors for each pool."""
    pools = parameters["graphs"] if parameters["pool"] == "private" else 1
    size = pools * 2 * parameters["mebibytes"] * 2**20
    return {"graph_pool_bytes": size, "freed_bytes": size}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all sizes are multiples of what the allocator rounds to."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {"rollout.cuda_graphs": True}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Capture graphs, replay them, delete them."""
    import torch

    source = torch.ones(parameters["mebibytes"] * 2**20 // 4, dtype=torch.float32, device=recorder.device)

    def work() -> None:
        first = source * 2
        second = first + 1
        del first, second

    def large_segments() -> int:
        return sum(
            segment["total_size"] for segment in torch.cuda.memory_snapshot() if segment["segment_type"] == "large"
        )

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = large_segments()
    handle = torch.cuda.graph_pool_handle() if parameters["pool"] == "shared" else None
    graphs = []
    with recorder.phase("capture"):
        for _ in range(parameters["graphs"]):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=handle):
                work()
            graphs.append(graph)
    held = large_segments() - before
    with recorder.phase("replay"):
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()
    recorder.result("graph_pool_bytes", held)
    recorder.result("graph_pool_after_replay_bytes", large_segments() - before)
    del graph
    graphs.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    recorder.result("freed_bytes", held - (large_segments() - before))
