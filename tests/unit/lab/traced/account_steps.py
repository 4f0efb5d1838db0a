"""Take real steps of `own_modules` on a CPU and count live storages, with nothing of compatcheck: ``account_steps.py NAME…``.

Prints, for each function, phase → (peak, live) in bytes, of the second step.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import os
import sys
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


LATER = 30
"""Tokens of all batches but the first."""


class Live(TorchDispatchMode):
    """Bytes of storages that operators have returned and that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and value.device.type != "meta":  # which take no memory
                storage = value.untyped_storage()
                if storage._cdata not in self.sizes:
                    self.sizes[storage._cdata] = storage.nbytes()
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self.forget, storage._cdata)
        self.peak = max(self.peak, self.now)
        return result

    def forget(self, key: int) -> None:
        self.now -= self.sizes.pop(key)


def account(function: Any) -> dict[str, tuple[int, int]]:
    """Take two steps of what a function builds; of one that takes lengths, the first batch is the longest, the others `LATER`."""
    found: dict[str, tuple[int, int]] = {}
    changes = "sequence_length" in inspect.signature(function).parameters
    later = function(sequence_length=LATER)[1] if changes else None
    with Live() as live:

        def end(phase: str) -> None:
            gc.collect()
            if not changes or phase not in found or live.peak >= found[phase][0]:
                found[phase] = (live.peak, live.now)
            live.peak = live.now

        model, inputs, step, optimizer, *_ = (*function(), None, None)
        end("load")
        if optimizer is None:
            trained = [weight for weight in model.parameters() if weight.requires_grad]
            taken = torch.optim.AdamW(trained, lr=1e-5, foreach=True)
        else:
            taken = optimizer(model)
        output = None
        for _ in range(2):
            given = {"tokens": inputs[0], "labels": inputs[1]} if isinstance(inputs, tuple) else inputs
            output = model(**given) if step is None else step(model, inputs)
            loss = output[1] if isinstance(output, tuple) else output
            end("forward")
            if function.__name__ == "cleared_late":
                taken.zero_grad()
                live.peak = live.now
            one = torch.ones_like(loss)
            engine = torch.autograd.Variable._execution_engine
            engine.run_backward((loss,), (one,), False, False, (), allow_unreachable=True, accumulate_grad=True)
            del loss, one
            end("backward")
            output = None
            gc.collect()
            live.peak = live.now
            taken.step()
            end("step")
            if function.__name__ != "cleared_late":
                taken.zero_grad()
            inputs = later or inputs
    return found


if __name__ == "__main__":
    own = importlib.import_module("own_modules")
    print(json.dumps({name: account(getattr(own, name)) for name in sys.argv[1:]}))
