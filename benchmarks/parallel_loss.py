"""Print bytes per logit of one rank at the peak of a loss over a vocabulary that tensor parallelism splits, on a CPU.

The operations are those of torchtitan's train.py (9dec370): 16-bit logits of the rank's part of the vocabulary as a DTensor,
their float32 copy, and cross entropy under torch's `loss_parallel`; the logits are given up before backward. The process group
is a fake one of eight ranks. What DTensor makes to learn of shapes alone takes no memory and is left out.

Usage: python benchmarks/parallel_loss.py  (needs torch)
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import distributed
from torch._subclasses import FakeTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

RANKS, BATCH, LENGTH, VOCAB = 8, 2, 512, 16384


class Peak(TorchDispatchMode):
    """Counts the bytes of real storages that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run an operation; a DTensor's are those of its local tensors."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, DTensor | FakeTensor):
                storage, key = tensor.untyped_storage(), tensor.data_ptr()
                if key not in self.alive:
                    self.alive[key] = storage.nbytes()
                    weakref.finalize(storage, self.alive.pop, key, None)
        self.most = max(self.most, sum(self.alive.values()))
        return found


def main() -> None:
    """Print both peaks."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    count = BATCH * LENGTH * VOCAB // RANKS
    hidden = torch.randn(BATCH, LENGTH, 64, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB // RANKS, 64, dtype=torch.bfloat16)
    labels = torch.randint(0, VOCAB, (BATCH, LENGTH))
    with Peak() as peak, loss_parallel():
        prediction = DTensor.from_local(hidden @ head.T, mesh, [Shard(2)], run_check=False)
        loss = cross_entropy(prediction.flatten(0, 1).float(), labels.flatten(0, 1))
        del prediction
        print(f"forward {peak.most / count:.1f} B per logit")
        peak.most = 0
        loss.backward()  # type: ignore[no-untyped-call]
        print(f"backward {peak.most / count:.1f} B per logit")


if __name__ == "__main__":
    main()
