"""What optimizers keep of each parameter from step to step."""

from __future__ import annotations

MOMENTS = {
    "adamw": 2, "adam": 2, "adamw_kahan": 3,
    "lion": 1, "sgd": 0, "adafactor": 0, "rmsprop": 1, "adagrad": 1, "muon": 1, "lamb": 2, "cpu_adam": 2,
    "schedule_free": 2, "stable_adamw": 2, "ademamix": 3, "grokadamw": 3, "galore": 2, "apollo": 0, "lomo": 0, "onebit_adam": 3,
}  # fmt: skip
"""Tensors of the parameters' shape an optimizer keeps. Adafactor keeps a row and a column for each matrix, sgd none without
momentum; muon one for matrices (and two for the rest, which are few)."""
EIGHT_BIT = 1 + 4 / 256
"""Bytes of one 8-bit moment: a byte, and a float32 maximum for each 256 (bitsandbytes optim/optimizer.py, blockwise)."""
_PACKED = {"8bit": EIGHT_BIT, "fp8": EIGHT_BIT, "4bit": 0.5 + 4 / 256}
"""How a name ends → bytes of one of its moments; torchao has blocks of 256, too, as the HF Trainer and axolotl make it (0.13.0
optim/adam.py; transformers 5.23.0 trainer_optimizer.py _get_torchao_optimizer)."""
PAGED = "paged_"
"""How optimizers are called that keep their states in memory which the host and the device share."""
_FLOAT32 = 4.0


def bytes_of_moments(optimizer: str, each: float = _FLOAT32) -> float:
    """Return bytes of all moments of one parameter.

    Args:
        optimizer: as `training.optimizer` names it.
        each: bytes of one element of the tensor that is stepped: the master weight, or the parameter. bitsandbytes, whose
            optimizers alone are paged, keeps 32-bit states in float32 whatever that is (optim/optimizer.py, init_state,
            ``optim_bits``).
    """
    name = optimizer.removeprefix(PAGED)
    family, _, width = name.rpartition("_")
    if width in _PACKED:
        return MOMENTS.get(family.removeprefix("ao_"), 2) * _PACKED[width]
    return MOMENTS.get(name, 2) * (_FLOAT32 if optimizer.startswith(PAGED) else each)
