"""Where in a run a traceback points: the phase and the part of the step, from the innermost frame that tells.

Frames inside torch tell where they are specific (an optimizer, the loss, FSDP's gathering) and nothing where they are not
(``Module.__call__``, ``F.linear``); then the next frame outwards is asked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.out_of_memory import Frame, Place

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sign(NamedTuple):
    """A frame that tells a place."""

    file: str
    """Pattern of the path, searched."""
    function: str
    """Pattern of the function, matched in full; empty for every function."""
    phase: str
    part: str
    code: str = ""
    """Pattern of the source line, searched; empty for every line."""


_MODEL = (
    r"model(?:ing|s)?[_/]|/model\.py|modular_|unsloth/(?:models|kernels)|compiled_cache|flash_attn|/attention|/layers?/"
)
SIGNS = (
    # loading and quantising
    Sign(r"modeling_utils\.py|core_model_loading\.py", r"caching_allocator_warmup", "load", "warm_up"),
    Sign(r"bitsandbytes/(?:functional|nn/)", r"dequantize_\w+|quantize_\w+|_quantize|int8_\w+", "load", "quantise", r"^(?!.*dequant).*quantize"),
    Sign(r"bitsandbytes/|gptq|awq|auto_gptq|hqq|dequant\.py", r"dequant\w*", "forward", "dequantise"),
    Sign(r"bitsandbytes/nn/modules\.py", r"_quantize|cuda|to", "load", "quantise"),
    Sign(r"modeling_utils\.py|core_model_loading\.py|accelerate/(?:utils/modeling|big_modeling)\.py|model_loader|weight_utils|/loader\.py|checkpoint_loader",
         r"_?load\w*|set_module_\w+|_init_\w+|from_pretrained|_move_missing\w*|dispatch_model|get_model|\w*weight_loader", "load", "weights"),
    Sign(r"vllm/model_executor/|sglang/srt/(?:layers|models)/", r"__init__|__new__", "load", "weights"),
    Sign(r"fairscale/nn/model_parallel", r"__init__|_initialize_affine_weight", "load", "weights"),
    Sign(r"", r"__init__", "rollout", "kv_cache", r"cache_[kv] = torch\.(?:zeros|empty)"),
    Sign(r"vllm/|sglang/", r"load_model|create_weights|initialize_model|process_weights_after_loading|_init_model", "load", "weights"),
    Sign(r"torch/nn/modules/module\.py", r"convert|_apply|to|cuda|half|float|bfloat16|t", "load", "cast"),
    Sign(r"torch/(?:serialization|storage|_utils|_tensor)\.py", r"load|_load|restore_location|_rebuild\w*|default_restore_location|_cuda|persistent_load", "load", "checkpoint"),
    Sign(r"safetensors/", r"", "load", "checkpoint"),
    # engines that set up their state
    Sign(r"", r"_?setup_caches", "setup", "kv_cache"),
    Sign(r"deepspeed/runtime/zero/|deepspeed/pt/deepspeed_zero|deepspeed/runtime/(?:bf16|fp16)", r"initialize_optimizer_states|_setup_for_real_optimizer|_create_fp(?:16|32)\w*|__init__|_?initialize_gradient\w*", "setup", "optimizer_state"),
    Sign(r"deepspeed/runtime/engine\.py", r"_configure_\w+|__init__", "setup", "optimizer_state"),
    Sign(r"torch/nn/parallel/distributed\.py", r"__init__|_ddp_init_helper", "setup", "buckets"),
    Sign(r"torch/distributed/fsdp/", r"_init_\w+|__init__|_auto_wrap|flatten_tensors\w*|_flatten_\w*|_move_\w*|_materialize\w*|shard|_shard_\w*", "setup", "flat_parameters"),
    # gathering
    Sign(r"deepspeed/runtime/zero/(?:partition|stage3|parameter_offload|linear)|deepspeed/runtime/zero/partitioned", r"_?all_gather\w*|_allgather\w*|fetch_sub_module|__all_gather\w*|partition|gather\w*|_partition\w*", "gather", "parameters"),
    Sign(r"torch/distributed/fsdp/", r"_?all_gather\w*|unshard|_unshard\w*|_alloc_padded\w*|_use_unsharded\w*|foreach_all_gather|_get_padded_unsharded\w*|_alloc_storage", "gather", "parameters"),
    Sign(r"torch/distributed/fsdp/", r"foreach_reduce|_post_backward\w*|_reduce_grad\w*|_get_reduce_scatter\w*", "backward", "reduce"),
    Sign(r"deepspeed/runtime/zero/", r"reduce_\w+|average_\w*|_?allreduce\w*|__?reduce\w*|copy_grads\w*|process_gradients|__avg_scatter\w*|__add_grad\w*|independent_gradient\w*|buffered_reduce\w*|allreduce_\w+|setup_buckets", "backward", "reduce"),
    # saving
    Sign(r"", r"save_checkpoint|_?save_model|save_16bit_model|_zero3_consolidated\w*|state_dict|full_state_dict|_save_\w*|save_pretrained", "save", "state"),
    # the step
    Sign(r"torch/optim/|apex/optimizers|bitsandbytes/optim|deepspeed/ops/adam|transformers/optimization\.py|/optimizers?/", r"", "step", "optimizer"),
    Sign(r"deepspeed/runtime/", r"step|_optimizer_step|_take_model_step|unscale_and_clip\w*|get_flat_partition|flatten\w*", "step", "optimizer"),
    Sign(r"torch/nn/utils/clip_grad\.py|torch/amp/grad_scaler|torch/cuda/amp/grad_scaler|torch/utils/_foreach", r"", "step", "gradients"),
    # engines
    Sign(r"vllm/|sglang/|lmdeploy/", r"_?initialize_kv_cache\w*|_allocate_kv_cache\w*|allocate_\w*cache|init_memory_pool|_create_buffers|initialize_cache|_init_cache_engine|_init_cache", "rollout", "kv_cache"),
    Sign(r"vllm/|sglang/", r"_dummy_sampler_run|sample|compute_logits|_sample|\w*sampler\w*|_compute_logprobs|compute_logprobs|get_logprobs|log_softmax", "rollout", "logits"),
    Sign(r"vllm/|sglang/", r"capture\w*|_capture\w*|capture_model", "rollout", "cuda_graphs"),
    Sign(r"vllm/|sglang/", r"", "rollout", "forward"),
    # the loss and log-probabilities
    Sign(r"", r"logprobs_from_logits\w*|log_probs_from_logits\w*|selective_log_softmax|entropy_from_logits\w*|compute_log_probs?|gather_log_probabilities|_?get_batch_logps|_?get_per_token_logps\w*|compute_entropy\w*|calculate_entropy\w*|get_batch_log_probs"
         r"|\w*log_?probs?_and_entropy\w*|_?vocab_parallel_\w+|from_parallel_logits_to_logprobs\w*", "forward", "log_probabilities"),
    Sign(r"", r"", "forward", "log_probabilities", r"vocab_parallel_(?:logits|softmax|entropy|log_?probs?)|parallel_logits_to_logprobs|exp_logits"),
    # megatron/core/transformer/module.py: Float16Module casts what the last stage of the pipeline gives, which is logits
    Sign(r"transformer/module\.py", r"float_conversion|conversion_helper|float16_to_fp32", "forward", "logits"),
    Sign(r"torch/nn/functional\.py|loss/loss_utils\.py|torch/nn/modules/loss\.py|cross_entropy|/losses?[./]", r"cross_entropy|fixed_cross_entropy|ForCausalLMLoss|log_softmax|nll_loss|forward|\w*cross_entropy\w*", "forward", "loss", r"cross_entropy|log_softmax|nll_loss|logits"),
    Sign(r"", r"", "forward", "loss", r"(?:lm_|shift_)?logits\w*(?:\[.*\])?\s*=\s*(?:\w+\.)*\w*logits[^=]*\.(?:float|contiguous|to)\(|= *(?:F\.|torch\.nn\.functional\.|nn\.functional\.)?cross_entropy|loss_fct\(|\.log_softmax\(|logsumexp"),
    Sign(r"", r"", "forward", "logits", r"logits\s*=\s*(?:self\.)?(?:lm_head|embed_out|output|head)\(|lm_head\("),
    Sign(r"evaluat|trainer", r"nested_concat|nested_truncate|pad_across_processes|_pad_across_processes|torch_pad_and_concatenate|gather_for_metrics|evaluation_loop|prediction_loop", "evaluation", "gathered_logits"),
    Sign(r"", r"nested_concat|torch_pad_and_concatenate|_pad_across_processes|pad_across_processes|nested_detach", "evaluation", "gathered_logits"),
    # parts of a model
    Sign(r"masking_utils|modeling_attn_mask_utils", r"", "forward", "mask"),
    Sign(r"", r"_update_causal_mask|_prepare_decoder_attention_mask|_make_causal_mask|_expand_mask|create_causal_mask|sdpa_mask\w*|_prepare_4d\w*|to_4d|prepare_attention_mask|build_alibi_tensor", "forward", "mask"),
    Sign(r"cache_utils\.py", r"update|__init__", "forward", "kv_cache"),
    Sign(r"", r"", "forward", "kv_cache", r"torch\.cat\(\[?\(?past_key|past_key_value"),
    Sign(r"", r"eager_attention_forward|scaled_dot_product_attention|sdpa_attention_forward|flash_attn\w*|_flash_attention\w*|_attn|repeat_kv|apply_rotary\w*|rotate_half|\w*attention\w*|attn", "forward", "attention"),
    Sign(r"", r"", "forward", "attention", r"attn_weights|attention_scores|baddbmm|torch\.matmul\(quer|query_states|key_states|scaled_dot_product|self_attn|attention_probs|\bscores\b"),
    Sign(r"", r"", "forward", "mlp", r"act_fn|gate_proj|down_proj|up_proj|gate_up|\bmlp\b|\bffn\b|dense_h_to_4h|dense_4h|fc1|fc2|feed_forward|swiglu|expert"),
    Sign(r"", r"", "forward", "norm", r"variance|layernorm|rms_?norm|layer_norm|hidden_states\.(?:to|pow|float)\("),
    Sign(r"", r"", "forward", "embedding", r"embed_tokens|F\.embedding|wte\("),
    Sign(_MODEL, r"forward|__call__|\w*forward\w*", "forward", "forward"),
)  # fmt: skip
_BACKWARD = (
    r"torch/autograd/(?:__init__|graph|function)\.py|torch/_tensor\.py",
    r"backward|_engine_run_backward|apply",
)
_GENERIC = re.compile(
    r"torch/nn/modules/(?!loss)|torch/_dynamo|torch/utils/_contextlib|torch/_ops|accelerate/hooks\.py|accelerate/utils/operations\.py"
    r"|torch/_functorch|torch/_inductor|torch/utils/checkpoint\.py|torch/_prims|torch/_refs|torch/utils/_device|torch/_compile|torch/_tensor\.py$"
    r"|torch/autograd/|peft/(?:peft_model|tuners/tuners_utils)\.py|torch/overrides|<frozen|<string>"
)
_TRAINERS = re.compile(r"generate|rollout|generate_sequences")
_EVALUATION = re.compile(r"evaluate|evaluation_loop|prediction_step|prediction_loop|predict|validate|_validate")


def find_place(frames: Sequence[Frame]) -> Place | None:
    """Find where in a run a traceback points, or None when no frame tells."""
    backward = _last_backward(frames)
    for index in range(len(frames) - 1, -1, -1):
        frame = frames[index]
        sign = _sign(frame)
        if sign is not None and not (sign.part == "forward" and _GENERIC.search(frame.file)):
            return _place(frames, index, sign, backward)
        if backward is not None and index <= backward:
            break
    if backward is not None:
        frame = frames[backward]
        return Place("backward", "backward", frame, f"innermost frame that tells: {describe(frame)}, the backward pass")
    return None


def _sign(frame: Frame) -> Sign | None:
    for sign in SIGNS:
        if sign.file and not re.search(sign.file, frame.file):
            continue
        if sign.function and not re.fullmatch(sign.function, frame.function):
            continue
        if sign.code and not re.search(sign.code, frame.code):
            continue
        if not sign.file and _GENERIC.search(frame.file):
            continue
        if sign.file == r"torch/nn/modules/module\.py" and not re.search(
            r"\.to\(|fn\(|\.cuda\(|_apply\(|module\._apply|convert|\.half\(", frame.code or "fn("
        ):
            continue
        return sign
    return None


def _place(frames: Sequence[Frame], index: int, sign: Sign, backward: int | None) -> Place:
    frame, phase, part = frames[index], sign.phase, sign.part
    why = f"innermost frame that tells: {describe(frame)}"
    outside = frames[:index]
    if phase in {"forward", "gather"} and backward is not None and backward < index:
        return Place("backward", part, frame, f"{why}, recomputed or hooked in the backward pass")
    if phase == "forward" and any(_TRAINERS.fullmatch(outer.function) for outer in outside):
        return Place("rollout", part, frame, f"{why}, inside generate")
    if phase == "forward" and any(_EVALUATION.fullmatch(outer.function) for outer in outside):
        return Place("evaluation", part, frame, f"{why}, inside the evaluation")
    if phase == "forward" and any("vllm/" in outer.file or "sglang/" in outer.file for outer in outside):
        return Place("rollout", part, frame, f"{why}, inside the serving engine")
    return Place(phase, part, frame, why)


def _last_backward(frames: Sequence[Frame]) -> int | None:
    file, function = _BACKWARD
    indices = [
        index
        for index, frame in enumerate(frames)
        if re.search(file, frame.file) and re.fullmatch(function, frame.function)
    ]
    return indices[-1] if indices else None


def find_model_type(frames: Sequence[Frame]) -> str | None:
    """Return the model type whose code of transformers a traceback runs through, the innermost; None without such a frame."""
    found = (re.search(r"/models/(\w+)/modeling_\w+\.py$", frame.file) for frame in reversed(frames))
    return next((match.group(1) for match in found if match is not None), None)


def describe(frame: Frame) -> str:
    """Write a frame short: the last two parts of its path, line and function."""
    short = "/".join(frame.file.split("/")[-2:])
    return f"{short}{f':{frame.line}' if frame.line else ''} in {frame.function or '<module>'}"
