"""Make DeepSpeed importable and usable on a machine without a GPU and without compilers at work."""

from __future__ import annotations

import sys
from typing import Any


def prepare() -> Any:
    """Import DeepSpeed with nothing compiled behind the back, and join the process group.

    DeepSpeed's CPU communication compiles ``deepspeed_shm_comm`` when the group is made, and waits for ever on the lock of a
    build that was killed; ordinary gloo is what is wanted. ``sys.modules`` is used because the attribute of the package is
    another object.
    """
    import deepspeed
    from deepspeed.ops import __compatible_ops__ as operators

    operators["deepspeed_shm_comm"] = False
    communication: Any = sys.modules.get("deepspeed.comm.torch")
    if communication is not None:
        communication.build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    return deepspeed
