"""The worker with a caching allocator that is a model: blocks of 512 bytes, and a workspace for each handle of a matrix library.

It runs inside the interpreter under test, in place of the worker's own entry. Tensors stay on the CPU; what CUDA's statistics
would say of them is counted here, so that the accounting for CUDA and what it takes into its base are tried without a GPU.
"""

import functools
import os
import runpy
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ENTRY = sys.argv.pop(1)
WORKSPACE_BYTES = 8_519_680
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class Device(TorchDispatchMode):
    """Counts what is requested and what is allocated, with workspaces that stay."""

    def __init__(self):
        super().__init__()
        self.handles = set()
        self.storages = {}
        self.live = {"requested": 0, "allocated": 0}
        self.peak = dict(self.live)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        import weakref

        from torch.utils._pytree import tree_leaves

        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in PRODUCTS:
            # autograd's thread has a handle of its own; a CPU's backward runs in the caller's, so it is told by the graph task.
            handle = torch._C._current_graph_task_id() != -1
            if handle not in self.handles:
                self.handles.add(handle)
                self.add(WORKSPACE_BYTES)
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                key = storage._cdata
                if key not in self.storages:
                    size = storage.nbytes()

                    def forget(_, key=key):
                        self.add(-self.storages.pop(key)[0])

                    self.storages[key] = (size, weakref.ref(storage, forget))
                    self.add(size)
        return result

    def add(self, size):
        rounded = -(-abs(size) // 512) * 512 * (1 if size > 0 else -1)
        for name, change in (("requested", size), ("allocated", rounded)):
            self.live[name] += change
            self.peak[name] = max(self.peak[name], self.live[name])

    def reset(self):
        self.peak = dict(self.live)

    def statistics(self):
        counts = {"current": self.live, "peak": self.peak}
        return {
            f"{name}_bytes.all.{which}": found[name]
            for which, found in counts.items()
            for name in ("requested", "allocated")
        }


DEVICE = Device()
os.environ.pop("RANK", None)
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.synchronize = torch.cuda.empty_cache = lambda: None
torch.cuda.set_per_process_memory_fraction = lambda _fraction: None
torch.cuda.get_device_name = lambda: "a model"
torch.cuda.mem_get_info = lambda: (0, 0)
torch.cuda.memory_stats = DEVICE.statistics
torch.cuda.reset_peak_memory_stats = DEVICE.reset
torch.cuda.max_memory_reserved = lambda: DEVICE.peak["allocated"]

entry = runpy.run_path(ENTRY)
recorder = sys.modules["probe_worker.recorder"].Recorder
recorder.device = property(lambda _: "cpu", lambda _, __: None)


def load(self, name, plain=recorder.load):
    """Load what a probe shares; trl's trainers put their model on a device themselves."""
    module = plain(self, name)
    if name == "tiny_trainers":
        module.configure = functools.partial(module.configure, use_cpu=True)
    return module


recorder.load = load
accounting = __import__("probe_worker.accounting", fromlist=["x"])
take = accounting.take_workspaces
if "cold" not in sys.argv:
    accounting.take_workspaces = lambda _device: take("cpu")
else:
    sys.argv.remove("cold")
    accounting.take_workspaces = lambda _device: None
with DEVICE:
    sys.exit(entry["main"](sys.argv[1:]))
