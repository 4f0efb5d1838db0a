"""Make DeepSpeed importable and usable without compilers at work, on a machine without a GPU too."""

from __future__ import annotations

import gc
import importlib.util
import os
import socket
import sys
import types
from typing import Any


def prepare(device: str = "cpu") -> Any:
    """Import DeepSpeed with nothing compiled behind the back, and join the process group.

    DeepSpeed's CPU communication compiles ``deepspeed_shm_comm`` (Intel's until 0.14.0) when the group is made, and waits for
    ever on the lock of a build that was killed; ordinary gloo is what is wanted. ``sys.modules`` is used because the attribute
    of the package is another object. What the imports left is put where the collector does not look: a third of a million
    objects, walked several times a phase, take longer than all the rest of a probe.

    Args:
        device: ``cpu`` or ``cuda``.
    """
    os.environ["DS_ACCELERATOR"] = device
    _stand_in(device)
    import deepspeed
    from deepspeed.ops import __compatible_ops__ as operators

    operators["deepspeed_shm_comm"] = False
    for module, build in (("torch", "build_shm_op"), ("ccl", "build_ccl_op")):
        if (communication := sys.modules.get(f"deepspeed.comm.{module}")) is not None:
            setattr(communication, build, lambda: None)
    engine: Any = sys.modules.get("deepspeed.runtime.engine")
    if device == "cpu" and engine is not None:
        engine.split_half_float_double_sparse = _split_as(engine.split_half_float_double_sparse)
    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ.update(_SINGLE_RANK, MASTER_PORT=str(port))
    deepspeed.init_distributed("gloo" if device == "cpu" else "nccl")
    gc.collect()
    gc.freeze()
    return deepspeed


def _split_as(split: Any) -> Any:
    """Return what sorts gradients by type as an engine does; before 0.14 it refuses a CPU's, whose names it has wrong."""

    def sort(tensors: Any) -> Any:
        try:
            return split(tensors)
        except AssertionError:
            names = dict.fromkeys(one.type() for one in tensors)
            return [(name, [one for one in tensors if one.type() == name]) for name in names]

    return sort


def _stand_in(device: str) -> None:
    """Put empty modules where releases import what no probe uses, and what this machine or its torch may not have.

    The agent of elastic runs imports what newer torch has dropped. Until 0.14.0 a CPU is one only where Intel's two packages are.
    """
    agent: Any = types.ModuleType("deepspeed.elasticity.elastic_agent")
    agent.DSElasticAgent = None
    sys.modules[agent.__name__] = agent
    for name in ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch") if device == "cpu" else ():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)


_SINGLE_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "LOCAL_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
}
"""What a launcher sets for one process; without it DeepSpeed looks for MPI."""
