"""The dtypes a run stores, computes and reduces in, from what was stated and what its programs do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.adapters import LOW_RANK
from compatcheck.core.units import DTYPE_BYTES
from compatcheck.memory.run import Precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.memory.asked_facts import Given
    from compatcheck.memory.run import Model, Parallelism

WORDS = {"bf16": 2.0, "fp16": 2.0, "fp8": 2.0, "no": 4.0}
"""Bytes of a product's inputs by ``training.mixed_precision``."""
BITSANDBYTES = frozenset({"nf4", "fp4", "int8"})


def read_precision(
    source: Given,
    parallel: Parallelism,
    model: Model,
    peft: str | None,
    versions: Mapping[str, tuple[int, ...]],
    *,
    trains: bool = True,
) -> Precision:
    """Read what a run stores, computes and reduces in."""
    mixed = source.get("training.mixed_precision")
    stored = source.dtype("training.param_dtype")
    loaded = source.dtype("model.load_dtype") or stored
    compute = source.dtype("training.compute_dtype")
    if compute is None and isinstance(mixed, str):
        compute = WORDS.get(mixed) if mixed != "no" else stored or loaded
    sharding = parallel.sharding
    if stored is None:
        asks = trains and compute is None
        stored = _find_stored(source, sharding, model, peft, loaded, asks=asks)
    compute = 2.0 if compute == 1 else min(compute or stored, 4.0)
    frozen = loaded or stored
    if sharding == "fsdp" and mixed in {"bf16", "fp16"} and peft is None and not source.knows("training.param_dtype"):
        stored = 4.0  # accelerate and the trainers keep float32 shards under mixed precision
    autocast = stored == 4 and compute < stored and sharding in {"none", "ddp"}
    unquantised, upcast = frozen, False
    if (
        model.quantization in BITSANDBYTES
        and peft in LOW_RANK
        and sharding in {"none", "ddp"}
        and isinstance(mixed, str)
        and _upcasts(source)
    ):
        reason = "peft's prepare_model_for_kbit_training casts what is not quantised"
        source.assume("dtype of unquantised weights", "float32", reason)
        unquantised, upcast = 4.0, True
    quantised = compute
    if upcast and mixed == "no":
        compute = (
            4.0  # nothing casts between the embedding and the head: each product hands back the dtype of its input
        )
    stated = source.get("training.master_dtype") if source.knows("training.master_dtype") else "unknown"
    if stated is None:
        master = 0.0
    elif isinstance(stated, str) and stated in DTYPE_BYTES:
        master = DTYPE_BYTES[stated] if DTYPE_BYTES[stated] > stored or sharding == "zero" else 0.0
    else:
        kept = bool(source.get("training.bf16_master_weights_and_grads"))
        master = 4.0 if sharding in {"zero", "megatron"} and stored < 4 and not kept else 0.0
    gradient = (source.dtype("training.grad_accum_dtype") if sharding in {"zero", "megatron"} else None) or stored
    if sharding == "megatron" and mixed == "bf16" and not source.knows("training.grad_accum_dtype"):
        reason = "Megatron accumulates gradients of bfloat16 weights in float32 unless told not to"
        gradient = _assume_bytes(source, "training.grad_accum_dtype", "float32", reason)
    reduce = source.dtype("training.reduce_dtype") or (compute if sharding == "fsdp" else gradient)
    return Precision(
        stored=stored,
        frozen=frozen,
        unquantised=unquantised,
        compute=compute,
        float16=compute < 4 and _is_float16(source),
        quantised=quantised,
        residual=4.0 if autocast or upcast else compute,
        gradient=gradient,
        reduce=reduce,
        master=master,
        logits=4.0 if compute >= 4 or _casts_logits(source, parallel, model, versions) else compute,
        autocast=autocast,
    )


def _is_float16(source: Given) -> bool:
    """Tell whether 16-bit products are of float16."""
    mixed = source.get("training.mixed_precision")
    if mixed in {"bf16", "fp16"}:
        return mixed == "fp16"
    names = ("training.compute_dtype", "training.param_dtype", "model.load_dtype")
    return next((source.get(name) for name in names if source.get(name) is not None), None) == "float16"


def _upcasts(source: Given) -> bool:
    """Tell whether embedding, head and norms beside a quantised base become float32.

    Where a program is named whose code nobody read, its own way is not taken to be peft's.
    """
    stated = source.get("program.upcasts_unquantised")
    return source.is_read() if stated is None else bool(stated)


_PLAIN_LOSS = frozenset(
    ("gpt2", "gpt_bigcode", "opt", "bloom", "biogpt", "gpt_neox", "falcon", "mpt", "persimmon", "stablelm", "xglm")
)
"""Types that returned the logits as they were, and computed their loss in 16 bits, until transformers 4.48.3."""
_LOSS_OF_TEXT_MODEL = frozenset(
    ("llava", "llava_next", "llava_next_video", "llava_onevision", "video_llava", "vipllava")
)
"""Types that took the loss of what their text model returns, in 16 bits from 4.46 on, until 4.52.1 gave them the shared loss."""
_REMOTE = frozenset(("qwen",))
"""Types of remote code that do so whatever the release: modeling_qwen.py of Qwen/Qwen-7B."""
_NEVER_CAST = _PLAIN_LOSS | _REMOTE | {"olmoe"}
"""Types whose forward without labels casts nothing in any release (rule transformers/logits-upcast-without-labels)."""


def takes_loss_in_16_bits(model_type: str | None, transformers: tuple[int, ...] | None) -> bool:
    """Tell whether a model's class takes the loss of 16-bit logits as they are (rule transformers/causal-lm-loss-in-float32)."""
    if model_type in _REMOTE or (model_type == "qwen2_audio" and (transformers is None or transformers >= (4, 46))):
        return True
    if transformers is None:
        return False
    return (model_type in _PLAIN_LOSS and transformers < (4, 48, 3)) or (
        model_type in _LOSS_OF_TEXT_MODEL and (4, 46) <= transformers < (4, 52, 1)
    )


def _casts_logits(source: Given, parallel: Parallelism, model: Model, versions: Mapping[str, tuple[int, ...]]) -> bool:
    """Tell whether a model that computes in 16 bits hands float32 logits to whoever calls it.

    Models did before transformers 4.46, and some programs cast them. Where accelerate runs autocast it wraps the model's forward
    in ``convert_outputs_to_fp32``: on one device, under DDP and FSDP1, under FSDP2 in 1.6 and 1.7 only; an engine of DeepSpeed it
    leaves alone, whatever the stage (accelerator.py prepare_model; rule accelerate/outputs-cast-to-float32).
    """
    transformers, accelerate = versions.get("transformers"), versions.get("accelerate")
    if source.get("program.casts_logits"):
        return True
    if transformers is not None and transformers < (4, 46) and model.model_type not in _NEVER_CAST:
        return True
    if source.get("training.mixed_precision") not in {"bf16", "fp16"} or not source.get("program.converts_outputs"):
        return False
    if source.get("training.keep_fp32_outputs") is False or source.get("training.zero_stage") is not None:
        return False
    if parallel.sharding == "fsdp" and source.get("training.fsdp_version") == 2:
        return accelerate is not None and (1, 6) <= accelerate < (1, 8)
    return parallel.sharding in {"none", "ddp", "fsdp"}


def _find_stored(
    source: Given, sharding: str, model: Model, peft: str | None, loaded: float | None, *, asks: bool
) -> float:
    """Return bytes of a working parameter where nobody states its dtype; FSDP's states rest on it: it is asked for."""
    mixed = source.get("training.mixed_precision")
    if sharding == "zero":
        known = WORDS.get(mixed) if isinstance(mixed, str) else loaded
        return known or _assume_bytes(source, "training.param_dtype", "bfloat16", "DeepSpeed in bf16")
    if sharding == "megatron" and mixed in {"bf16", "fp16"}:
        dtype = "bfloat16" if mixed == "bf16" else "float16"
        return _assume_bytes(source, "training.param_dtype", dtype, "Megatron casts the parameters themselves")
    if loaded is not None:
        return loaded
    if mixed in {"bf16", "fp16"} and peft is None:
        return _assume_bytes(source, "training.param_dtype", "float32", "what mixed precision starts from")
    if source.knows("program.load_dtype") and model.quantization is None:
        usual, reason = str(source.get("program.load_dtype")), source.reason("program.load_dtype")
        return _assume_bytes(source, "training.param_dtype", usual, reason)
    if asks and sharding == "fsdp" and peft is None:
        source.needs.append("training.mixed_precision")
    return _assume_bytes(source, "training.param_dtype", "bfloat16", "the usual dtype of these weights")


def _assume_bytes(source: Given, name: str, dtype: str, reason: str) -> float:
    source.assume(name, dtype, reason)
    return DTYPE_BYTES[dtype]


def adapter_bytes(source: Given, precision: Precision, peft: tuple[int, ...] | None) -> float:
    """Return bytes of one adapter parameter.

    The program may cast them. peft made adapters in float32 until 0.5, in the dtype of the base from 0.6, and casts 16-bit ones
    to float32 from 0.12 unless told not to (tuners/lora.py of v0.5.0, tuners/lora/layer.py of v0.6.0, autocast_adapter_dtype).
    """
    cast = source.dtype("program.adapter_dtype")
    if cast is not None:
        return cast
    if peft is not None and peft < (0, 12):
        return 4.0 if peft < (0, 6) else precision.frozen
    return 4.0 if source.flag("training.autocast_adapter_dtype", default=True) else precision.frozen


def copy_bytes(source: Given, precision: Precision, sharding: str) -> float:
    """Return bytes of one parameter of a module that is copied and trained in full beside adapters.

    The copy has the dtype of its original (peft utils/other.py ModulesToSaveWrapper), unless the program casts whatever it
    trains; DeepSpeed casts the whole module.
    """
    if sharding == "zero":
        return precision.stored
    cast = source.dtype("program.trained_dtype")
    return max(precision.stored, precision.unquantised) if cast is None else cast
