"""The dtypes a run stores, computes and reduces in, from what was stated and what its programs do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.units import DTYPE_BYTES
from compatcheck.memory.closed_form.adapters import LOW_RANK
from compatcheck.memory.run import Precision

if TYPE_CHECKING:
    from compatcheck.memory.asked_facts import Given
    from compatcheck.memory.run import Model, Parallelism

BITSANDBYTES = frozenset({"nf4", "fp4", "int8"})
_KEEPS_DTYPES = frozenset({"axolotl", "llamafactory", "ms_swift", "openrlhf"})
"""Programs that leave what is not quantised in the dtype it computes in: axolotl casts it back (loaders/model.py,
_configure_embedding_dtypes, 0.5 to 0.12 and main), LLaMA-Factory only casts norms and only when asked (upcast_layernorm, 0.3 on),
ms-swift and OpenRLHF have no such call."""
_TRL_WITHOUT_CAST = {"dpo": (0, 29), "kto": (1, 4)}
_OTHERS_WITHOUT_CAST = (0, 25)
"""First TRL whose trainer does not call peft's prepare_model_for_kbit_training: from 0.25 most call one of TRL's own, which casts
norms alone (trl/models/utils.py), and none from 0.27 (read in *_trainer.py of 0.24.0 to 1.9.0)."""
_STILL_CAST = frozenset({"orpo", "cpo", "bco"})
"""Trainers that call it up to 1.9 (trl/experimental/*)."""


def _casts_unquantised(source: Given, model: Model, trl: tuple[int, ...] | None) -> bool:
    """Tell whether embedding, head and norms beside a quantised base become float32 before training.

    ``peft.prepare_model_for_kbit_training`` does that. TRL calls it up to 0.24, some trainers longer, and under bf16 with a 4-bit
    base turns embedding and head back (peft_module_casting_to_bf16, trl/trainer/utils.py): between layers it is bfloat16 again.
    """
    framework = source.get("training.framework")
    if framework in _KEEPS_DTYPES:
        return False
    if framework == "trl":
        trainer = source.get("training.trainer")
        first = _TRL_WITHOUT_CAST.get(str(trainer), _OTHERS_WITHOUT_CAST)
        return not _trl_in_bfloat16(source, model) and (trl is None or trainer in _STILL_CAST or trl < first)
    return True


def _trl_in_bfloat16(source: Given, model: Model) -> bool:
    four_bits = model.quantization in {"nf4", "fp4"}
    return four_bits and source.get("training.framework") == "trl" and source.get("training.mixed_precision") == "bf16"


def read_precision(
    source: Given, parallel: Parallelism, model: Model, peft: str | None, trl: tuple[int, ...] | None
) -> Precision:
    """Read what a run stores, computes and reduces in.

    Args:
        source: the facts; what is taken for a missing one is noted there.
        parallel: how ranks share the model.
        model: its dimensions and quantisation.
        peft: the adapter method, None for full fine-tuning.
        trl: numbers of TRL's release, None when not known.
    """
    mixed = source.get("training.mixed_precision")
    words = {"bf16": 2.0, "fp16": 2.0, "fp8": 2.0, "no": 4.0}
    stored = source.dtype("training.param_dtype")
    loaded = source.dtype("model.load_dtype") or stored
    compute = source.dtype("training.compute_dtype")
    if compute is None and isinstance(mixed, str):
        compute = words.get(mixed) if mixed != "no" else stored or loaded
    sharding = parallel.sharding
    if stored is None:
        if sharding == "zero":
            known = words.get(mixed) if isinstance(mixed, str) else loaded
            stored = known or _assume_bytes(source, "training.param_dtype", "bfloat16", "DeepSpeed in bf16")
        elif sharding == "megatron" and mixed in {"bf16", "fp16"}:
            dtype = "bfloat16" if mixed == "bf16" else "float16"
            stored = _assume_bytes(source, "training.param_dtype", dtype, "Megatron casts the parameters themselves")
        elif loaded is not None:
            stored = loaded
        elif mixed in {"bf16", "fp16"} and peft is None:
            stored = _assume_bytes(source, "training.param_dtype", "float32", "what mixed precision starts from")
        elif source.get("training.framework") == "trl" and model.quantization is None:
            reason = "TRL loads a model by name in float32 unless told otherwise (create_model_from_path, 0.27 on)"
            stored = _assume_bytes(source, "training.param_dtype", "float32", reason)
        else:
            stored = _assume_bytes(source, "training.param_dtype", "bfloat16", "the usual dtype of these weights")
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
        and mixed in {"bf16", "fp16"}
        and _casts_unquantised(source, model, trl)
    ):
        reason = "peft's prepare_model_for_kbit_training casts what is not quantised"
        source.assume("dtype of unquantised weights", "float32", reason)
        unquantised, upcast = 4.0, True
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
    moments = master or stored
    return Precision(
        stored=stored,
        frozen=frozen,
        unquantised=unquantised,
        compute=compute,
        residual=4.0 if autocast or upcast else compute,
        gradient=gradient,
        reduce=reduce,
        master=master,
        moments=moments,
        autocast=autocast,
    )


def _assume_bytes(source: Given, name: str, dtype: str, reason: str) -> float:
    source.assume(name, dtype, reason)
    return DTYPE_BYTES[dtype]


def adapter_bytes(source: Given, model: Model, precision: Precision, peft: tuple[int, ...] | None) -> float:
    """Return bytes of one adapter parameter.

    TRL turns those on a 4-bit base to bfloat16 under bf16 (peft_module_casting_to_bf16; sft_trainer.py of 1.9). peft made
    adapters in float32 until 0.5, in the dtype of the base from 0.6, and casts 16-bit ones to float32 from 0.12 unless told not
    to (tuners/lora.py of v0.5.0, tuners/lora/layer.py of v0.6.0, ``autocast_adapter_dtype``).
    """
    if _trl_in_bfloat16(source, model):
        return 2.0
    if peft is not None and peft < (0, 12):
        return 4.0 if peft < (0, 6) else precision.frozen
    return 4.0 if source.flag("training.autocast_adapter_dtype", default=True) else precision.frozen
