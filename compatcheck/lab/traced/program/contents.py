"""What is in small tensors of whole numbers, which a person's code may look into: tokens, masks, and what is made of them.

Fake tensors have no numbers. Those of tensors that are made of nothing but known ones are computed beside them, as far as they
are small; what hangs on weights, or on what a model computes, stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATEN = torch.ops.aten
_READS = frozenset({_ATEN._local_scalar_dense.default, _ATEN.equal.default})
_MOST = 1 << 22
"""Elements of the largest tensor whose numbers are computed: a mask of 2,048 × 2,048."""


class Contents(TorchDispatchMode):
    """Computes the numbers of fake tensors beside them; is entered right behind the mode that makes tensors fake."""

    def __init__(self) -> None:
        """Know nothing yet."""
        super().__init__()
        self._spoiled: dict[int, Any] = {}
        """Storages of numbers that unknown ones were written over, held so that no other has their address."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Let torch wrap no call of this mode for a compiler that is not there."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and compute what it gives where all that it takes is known."""
        kwargs = kwargs or {}
        leaves, structure = tree_flatten((args, kwargs))
        real = [self._find(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        unknown = any(one is None and isinstance(leaf, torch.Tensor) for one, leaf in zip(real, leaves))
        if func is _ATEN.index.Tensor:
            args = (args[0], [part for index in args[1] for part in self._spell_out(index)])
        if unknown:
            self._spoil(func, args, kwargs)
            return func(*args, **kwargs)
        there = any(isinstance(leaf, torch.Tensor) for leaf in leaves)
        given = tree_unflatten(real, structure)
        if there and func in _READS:
            return _compute(func, given)
        if there and func is _ATEN.nonzero.default:
            return _fake(_compute(func, given))
        result = func(*args, **kwargs)
        made = list(_tensors(result))
        # weights and noise are made of nothing, too
        counts = there or not any(value.is_floating_point() or value.is_complex() for value in made)
        if counts and (made or func._schema.is_mutable) and all(value.numel() <= _MOST for value in made):
            try:
                numbers = list(_tensors(_compute(func, given)))
            except Exception:  # what cannot be computed here stays unknown
                self._spoil(func, args, kwargs)
                numbers = []
            for value, number in zip(made, numbers):
                value._numbers = number
        else:
            self._spoil(func, args, kwargs)
        return result

    def _find(self, tensor: Any) -> Any:
        """Return the numbers of a tensor, None where they are not known."""
        if type(tensor) is torch.Tensor:
            return tensor if tensor.device.type == "cpu" and tensor.numel() <= _MOST else None
        numbers = getattr(tensor, "_numbers", None)
        return None if numbers is None or numbers.untyped_storage()._cdata in self._spoiled else numbers

    def _spoil(self, func: Any, args: Any, kwargs: Any) -> None:
        """Forget the numbers of what an operator writes to."""
        if not func._schema.is_mutable:
            return
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for value in _tensors(args[index] if index < len(args) else kwargs.get(argument.name)):
                numbers = getattr(value, "_numbers", None)
                if numbers is not None:
                    self._spoiled[numbers.untyped_storage()._cdata] = numbers.untyped_storage()

    def _spell_out(self, index: Any) -> list[Any]:
        """Return a mask that is known as the positions that it takes, whose number no fake tensor tells."""
        numbers = self._find(index) if isinstance(index, torch.Tensor) and index.dtype == torch.bool else None
        if numbers is None:
            return [index]
        with _disable_current_modes():
            taken = numbers.nonzero().unbind(1)
        return [_fake(positions) for positions in taken]


def _tensors(value: Any) -> Iterator[Any]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _compute(func: Any, given: Any) -> Any:
    with _disable_current_modes(), torch.no_grad():
        return func(*given[0], **given[1])


def _fake(numbers: Any) -> Any:
    """Return a fake tensor of known numbers."""
    made: Any = torch.empty(numbers.shape, dtype=numbers.dtype)
    made._numbers = numbers
    return made
