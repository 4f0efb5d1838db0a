"""The optimizer of a request, with the implementation that it has on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from probe_worker.recorder import UnsupportedError

_KINDS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "adagrad": "Adagrad", "rmsprop": "RMSprop"}


def make_optimizer(weights: list[Any], name: str, implementation: str) -> Any:
    """Return an optimizer.

    Args:
        weights: what is trained.
        name: as the vocabulary has it.
        implementation: ``foreach`` (what torch chooses for tensors on a GPU and not on a CPU), ``fused`` or ``for_loop``.

    Raises:
        UnsupportedError: naming what cannot be traced.
    """
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(weights, lr=1e-5, scale_parameter=False, relative_step=False)
    if name not in _KINDS:
        message = f"the optimizer {name} cannot be traced: its steps are kernels of another package"
        raise UnsupportedError(message)
    options: dict[str, Any] = {"fused": True} if implementation == "fused" else {"foreach": implementation == "foreach"}
    try:
        return getattr(torch.optim, _KINDS[name])(weights, lr=1e-5, **options)
    except (RuntimeError, TypeError) as error:
        message = f"torch {torch.__version__} has no {implementation} {_KINDS[name]}: {error}"
        raise UnsupportedError(message) from error
