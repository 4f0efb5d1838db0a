"""LoRA, QLoRA and DoRA: what adapters keep for backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.adapters import LOW_RANK, target_shapes

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


def kept_per_token(run: Run) -> float:
    """Return bytes per token and block that adapters keep for backward beside what the frozen base keeps.

    An adapter in the dtype of its input keeps the input, once for all adapters that share it. peft's float32 adapters on a
    16-bit base cast the input for each adapter and keep every copy; under autocast what is multiplied, and kept, is a
    16-bit copy for each adapter, of whose making nothing stays, and none where a quantised base hands its input over as it
    is (peft tuners/lora/bnb.py: ``requires_conversion = not torch.is_autocast_enabled()``). Dropout keeps a mask. Source:
    our measurements of peft 0.11.1 to 0.21.2 (fixtures/measurements/peft_lora_forward; a CPU's mask is as wide as its
    input, a GPU's one byte).
    """
    if not run.adapters:
        return 0.0
    shapes = target_shapes(run.model, run.targets)
    compute, own = run.precision.compute, run.adapter_bytes
    inputs = sum(width for _, width, _ in shapes)
    if (
        run.peft == "ia3"
    ):  # scales the input of ``down`` in float32 and the output of others in theirs (peft tuners/ia3/layer.py)
        return sum(own * width if feed == "down" else compute * outputs for feed, width, outputs in shapes)
    if run.peft not in LOW_RANK:
        return (
            own * inputs
        )  # each multiplies or rotates a tensor of that width, and keeps it for the gradient of its factor
    ranks = run.rank * len(shapes)
    shared = run.mixed and run.model.quantization is not None and run.precision.residual <= compute
    if own > compute and not shared:
        kept = (compute if run.mixed else own) * (inputs + ranks)
    elif run.lora_dropout:
        kept = compute * (inputs + ranks)
    else:
        kept = compute * (sum({feed: width for feed, width, _ in shapes}.values()) + ranks)
    return kept + (inputs if run.lora_dropout else 0)
