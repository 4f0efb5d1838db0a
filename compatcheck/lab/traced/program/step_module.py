"""What is trained in a step, whoever made it: a module, its micro batch, how it is called, and the blocks it is made of."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from probe_worker.recorder import UnsupportedError
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

_STEP = "let the function return (module, inputs, step), where step(module, inputs) returns the loss"


class StepModule(NamedTuple):
    """A module with one micro batch of its inputs."""

    module: Any
    inputs: Any = None
    """A tensor or a tuple: positional arguments; a dict: keywords."""
    step: Callable[[Any, Any], Any] | None = None
    """Takes module and inputs and returns what the module would; None calls the module."""
    optimizer: Callable[[Any], Any] | None = None
    """Takes the module; None is the request's."""

    def run(self) -> Any:
        """Take a forward pass; return what it gives."""
        if self.step is not None:
            return self.step(self.module, self.inputs)
        if isinstance(self.inputs, dict):
            return self.module(**self.inputs)
        return self.module(*(self.inputs if isinstance(self.inputs, (tuple, list)) else (self.inputs,)))

    def find_loss(self, output: Any) -> Any:
        """Return the one scalar with gradients of an output: itself, its ``loss``, or an element.

        Raises:
            UnsupportedError: there is none, with what to do.
        """
        named = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        several = output if isinstance(output, (tuple, list)) else (output,)
        candidates = [
            value for value in ((named,) if named is not None else several) if isinstance(value, torch.Tensor)
        ]
        losses = [value for value in candidates if value.numel() == 1 and value.requires_grad]
        if len(losses) == 1:
            return losses[0]
        what = "step" if self.step is not None else type(self.module).__name__
        said = ", ".join(describe_value(value) for value in several)
        message = f"{what} returned {said}, among which {len(losses) or 'none'} can be the loss (a scalar that needs gradients): "
        remedy = (
            "step returns it and leaves backward() and optimizer.step() to the trace"
            if self.step is not None
            else _STEP
        )
        raise UnsupportedError(message + remedy)


def find_blocks(model: Any) -> list[Any]:
    """Return the modules that repeat: those a model of transformers names, else what its outermost lists of one class hold."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    if names:
        return [module for module in model.modules() if type(module).__name__ in names]
    found: list[Any] = []
    inside: set[int] = set()
    for module in model.modules():
        children = list(module.children()) if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)) else []
        if id(module) not in inside and len(children) > 1 and len({type(child) for child in children}) == 1:
            found += children
            inside.update(id(part) for child in children for part in child.modules())
    return found


def checkpoint_blocks(model: Any, *, reentrant: bool | None) -> None:
    """Run every block under ``torch.utils.checkpoint``, as a strategy does that wraps them.

    Raises:
        UnsupportedError: nothing in the model repeats.
    """
    blocks = find_blocks(model)
    if not blocks:
        message = f"which modules of {type(model).__name__} are checkpointed is not known: let build take gradient_checkpointing"
        raise UnsupportedError(message)
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=bool(reentrant))


def describe_value(value: Any) -> str:
    """Say what a value is: a tensor with its shape, else its class."""
    return f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
