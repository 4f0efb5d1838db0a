"""Working parameters on the device, quantised or not, whole or sharded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, exactly
from compatcheck.memory.closed_form.parallel import count_parts, held, is_gathered_for_a_step, kept_share, name_share

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

QUANTISED_BYTES = {
    "nf4": 0.5 + 4 / 64,
    "fp4": 0.5 + 4 / 64,
    "int8": 1.0,
    "gptq": 0.5 + 2 / 128 + 0.5 / 128,
    "awq": 0.5 + 2 / 128 + 0.5 / 128,
    "fp8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp8": 1.0 + 1 / 32,
    "mxfp4": 0.5 + 1 / 32,
    "hqq": 0.5 + 4 / 64,
    "eetq": 1.0,
}
"""Bytes per quantised parameter, constants included: bitsandbytes keeps a float32 maximum for each 64 values (functional.py
quantize_4bit, blocksize 64), gptq and awq a 16-bit scale and a
4-bit zero for each group of 128, mxfp4 and mxfp8 one byte for each 32 (OCP MX 1.0), nvfp4 an 8-bit scale for each 16
(compressed-tensors 0.20.1 quantization/quant_scheme.py NVFP4A16, MXFP8). What else fp8 keeps is left out: a float32 for a whole
weight, or for a block of 128 × 128 values of it."""

DOUBLY_QUANTISED = 0.5 + 1 / 64 + 4 / (64 * 256)
"""The same of 4-bit values whose maxima are quantised to a byte, with a float32 for each 256 of them (quantize_4bit,
``compress_statistics``)."""

_EXPERTS_ALONE = frozenset({"mxfp4"})
"""Kinds in which nothing but routed experts is stored (transformers 5.23 integrations/mxfp4.py)."""


def quantised_bytes(run: Run, *, unless_stated: float | None = None) -> float:
    """Return bytes of a quantised parameter; where nobody says if constants are quantised too, another number may be given."""
    kind = str(run.model.quantization)
    plain = QUANTISED_BYTES.get(kind, run.precision.compute)
    if kind not in {"nf4", "fp4"}:
        return plain
    stated = run.model.double_quantization
    return DOUBLY_QUANTISED if stated else plain if stated is False or unless_stated is None else unless_stated


def name_quantised(run: Run) -> str:
    """Return the name of the component that quantised parameters are."""
    return f"{run.model.quantization} parameters"


def count_quantised(kind: str | None, blocks: float, experts: float) -> float:
    """Return how many parameters are stored quantised, of so many in blocks, experts apart, and in routed experts."""
    if kind not in QUANTISED_BYTES:
        return 0.0
    return experts if kind in _EXPERTS_ALONE else blocks + experts


def parameters(run: Run) -> tuple[Component, ...]:
    """Return what stays on the device between steps.

    ZeRO-3 and FSDP hold 1 / ranks of every parameter (arXiv 1910.02054 section 5.3), with shard_grad_op too, which gathers them
    for as long as forward and backward take (`live_parameters`); parameters that are offloaded hold nothing between uses.
    """
    own, precision = held(run), run.precision
    base_bytes = precision.unquantised if run.peft else precision.stored
    ranks = run.parallel.shard if run.parallel.stage == 3 or is_gathered_for_a_step(run) else 1
    quantised = count_quantised(run.model.quantization, own.blocks, own.experts)
    plain = own.total - quantised
    parts = []
    if run.offload_param:
        ranks_words = ", offloaded"
        factor = 0.0
    else:
        ranks_words = name_share(run, ranks)
        factor = kept_share(run, ranks)
    if quantised:
        each, least = quantised_bytes(run), quantised_bytes(run, unless_stated=DOUBLY_QUANTISED)
        parts.append(
            Component(
                name_quantised(run),
                "parameters",
                exactly(quantised * each * factor)._replace(low=int(quantised * least * factor)),
                f"{each:.3f} B × {quantised:,.0f}{ranks_words}",
                "bitsandbytes functional.py, blocks of 64; gptq groups of 128",
                run.role,
                ("model.quantization", "model.parameters_in_blocks"),
            )
        )
    parts.append(
        Component(
            "parameters",
            "parameters",
            exactly(plain * base_bytes * factor),
            f"{base_bytes:g} B × {plain:,.0f}{ranks_words}",
            "ZeRO, arXiv 1910.02054",
            run.role,
            ("model.parameters", "training.param_dtype", "training.sharding"),
        )
    )
    if run.copied:
        parts.append(
            Component(
                "trained copies of modules",
                "parameters",
                exactly(run.copy_bytes * run.copied * factor / run.parallel.tensor),
                f"{run.copy_bytes:g} B × {run.copied:,}{ranks_words}",
                "peft utils/other.py ModulesToSaveWrapper: the original is kept beside the copy",
                run.role,
                ("training.lora_modules_to_save",),
            )
        )
    if run.adapters:
        here = run.adapters / count_parts(run)
        parts.append(
            Component(
                "adapters",
                "parameters",
                exactly(here * run.adapter_bytes * factor),
                f"{run.adapter_bytes:g} B × {here:,.0f}{ranks_words}",
                "peft tuners/lora/layer.py, cast_adapter_dtype",
                run.role,
                ("training.lora_rank", "training.lora_target_modules"),
            )
        )
    return tuple(part for part in parts if part.size.expected)


def dequantised(run: Run, *, backward: bool) -> tuple[Component, ...]:
    """Return 16-bit copies of quantised weights while a block works.

    bitsandbytes makes one weight at a time, in forward and again in backward (autograd/_functions.py MatMul4Bit, which saves the
    quantised weight). gptq's PyTorch kernel unpacks through 32-bit integers, 4 + 1 bytes for each value of one weight, and
    autograd keeps the 16-bit results of a block until its backward (auto_gptq nn_modules/qlinear/qlinear_cuda_old.py, 0.5).
    """
    model, own = run.model, held(run)
    if model.quantization not in QUANTISED_BYTES:
        return ()
    compute = run.precision.quantised
    width = max(model.intermediate, model.query_width + 2 * model.key_width) / run.parallel.tensor
    largest = model.hidden * width
    block = own.blocks / max(1, own.layers)
    if model.quantization == "gptq":
        size = exactly(5 * largest + (compute * block if backward else 0))
        words = f"5 B × {largest:,.0f}" + (f" + {compute:g} B × {block:,.0f}" if backward else "")
    else:
        size = exactly(compute * largest)
        words = f"{compute:g} B × {largest:,.0f}, the largest weight"
    if (
        run.offload_param and run.parallel.sharding == "fsdp"
    ):  # `estimate` says that nobody read how long they live there
        size = size._replace(high=size.high + int(2 * compute * block))
    facts = ("model.quantization", "model.intermediate_size")
    source = "bitsandbytes autograd/_functions.py; auto_gptq qlinear_cuda_old.py"
    return (Component("dequantised weights", "workspace", size, words, source, run.role, facts),)
