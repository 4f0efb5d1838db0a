"""What axolotl's keys mean one by one: the key table of its reader, and the names of values."""

from __future__ import annotations

from typing import Any

from compatcheck.frameworks.hf_trainer.arguments import OPTIMIZERS
from compatcheck.frameworks.keys import LEAVE, Key, lower_case, only_true
from compatcheck.rules.vocabulary import nearest

_OWN_OPTIMIZERS = {
    "optimi_adamw": ("adamw", None),
    "lion_pytorch": ("lion", None),
    "muon": ("muon", None),
    "q_galore_adamw8bit": ("galore", None),
}
"""Optimizers that axolotl adds to those of the HF Trainer (``core/builders/base.py``)."""

_OTHER_OPTIMIZERS = frozenset(
    [
        "adamc",
        "adamw_torch_4bit",
        "adamw_torch_8bit",
        "adamw_torch_npu_fused",
        "adopt_adamw",
        "ao_adamw_4bit",
        "ao_adamw_8bit",
        "ao_adamw_fp8",
        "came_pytorch",
        "dion",
        "flash_adam",
        "flash_adamw",
        "flash_lion",
        "flash_sgd",
        "flash_sgdw",
        "muon_8bit",
        "paged_ademamix_32bit",
        "paged_ademamix_8bit",
        "polora",
        "rmsprop_bnb",
        "rmsprop_bnb_32bit",
        "rmsprop_bnb_8bit",
        "scao",
        "sinkgd",
    ],
)
"""Known optimizers of no family that rules know."""

ATTENTION_FLAGS = {
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
"""Switches that chose the attention before ``attn_implementation``, most specific first (``LEGACY_ATTN_FLAG_TO_IMPL``)."""

_KERNELS = {
    "kernels-community/flash-attn": "flash_attention_2",
    "kernels-community/flash-attn2": "flash_attention_2",
    "kernels-community/flash-attn3": "flash_attention_3",
    "kernels-community/vllm-flash-attn3": "flash_attention_3",
}
_OTHER_ATTENTION = frozenset(["xformers", "sage", "fp8", "s2", "varlen"])
_EXPERTS = frozenset(["eager", "grouped_mm", "batched_mm", "loop"])

_TRAINERS = {
    "dpo": "dpo",
    "ipo": "dpo",
    "kto": "kto",
    "kto_pair": "dpo",
    "orpo": "orpo",
    "simpo": "cpo",
    "grpo": "grpo",
    "gdpo": "grpo",
}
"""``rl`` → the trainer of TRL that runs (``core/builders/rl.py``)."""

LOSSES = ("ipo", "simpo")
"""Values of ``rl`` that choose a loss as well."""

_OTHER_TRAINERS = ("ebft",)
"""Values of ``rl`` for which there is no name that rules know."""

ADAPTERS = ("lora", "qlora")
OFFLOADING_CHECKPOINTS = ("offload", "offload_disk", "unsloth")
REENTRANT = "training.use_reentrant"


def is_on(value: object) -> bool:
    """Tell whether a switch is on, as a boolean or as a word."""
    return value is True or str(value).lower() == "true"


def is_off(value: object) -> bool:
    """Tell whether a switch is off, as a boolean or as a word."""
    return value is False or str(value).lower() == "false"


def nothing(_: object) -> object:
    """Convert any value to "states nothing"."""
    return LEAVE


def _optimizer(name: Any) -> Any:  # noqa: ANN401 (configuration)
    if str(name) in _OTHER_OPTIMIZERS:
        return LEAVE
    found = OPTIMIZERS.get(str(name)) or _OWN_OPTIMIZERS.get(str(name))
    if found is None:
        known = sorted({*OPTIMIZERS, *_OWN_OPTIMIZERS, *_OTHER_OPTIMIZERS})
        near = nearest(str(name), known)
        raise ValueError(f"did you mean {near}?" if near else f"known: {', '.join(known)}")
    return found[0]


def _optimizer_implementation(name: Any) -> Any:  # noqa: ANN401 (configuration)
    return (OPTIMIZERS.get(str(name)) or (None, None))[1] or LEAVE


def read_checkpointing(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read ``gradient_checkpointing``; the words for offloading turn it on as well."""
    return True if value in OFFLOADING_CHECKPOINTS else value


def _attention(value: Any) -> Any:  # noqa: ANN401 (configuration)
    name = str(value)
    return LEAVE if name in _OTHER_ATTENTION or ("/" in name and name not in _KERNELS) else _KERNELS.get(name, name)


def _unless_auto(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value == "auto" else value


def _targets(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return [value] if isinstance(value, str) else value


def _adapter(value: Any) -> Any:  # noqa: ANN401 (configuration)
    if not isinstance(value, str):
        msg = "expected lora, qlora or the name of an adapter of a plugin"
        raise TypeError(msg)
    return value if value in ADAPTERS else LEAVE  # llama-adapter, and what plugins add


def _reinforcement(value: Any) -> Any:  # noqa: ANN401 (configuration)
    if str(value) in _OTHER_TRAINERS or value is False:
        return LEAVE
    if str(value) not in _TRAINERS:
        msg = f"expected {', '.join((*_TRAINERS, *_OTHER_TRAINERS))}"
        raise ValueError(msg)
    return _TRAINERS[str(value)]


def switch(value: str, key: str) -> Key:
    """Make the meaning of a switch that says something only when it is on."""
    return Key(key, lambda stated: value if is_on(stated) else LEAVE)


_FSDP_KEYS: dict[str, Key] = {
    "activation_checkpointing": Key("training.fsdp_activation_checkpointing"),
    "cpu_ram_efficient_loading": Key("training.fsdp_cpu_ram_efficient_loading"),
    "limit_all_gathers": Key("training.fsdp_limit_all_gathers"),
    "offload_params": Key("training.fsdp_offload_params"),
    "reshard_after_forward": Key("training.fsdp_reshard_after_forward"),
    "sharding_strategy": Key("training.fsdp_sharding_strategy", lower_case),
    "state_dict_type": Key("training.fsdp_state_dict_type", lower_case),
    "sync_module_states": Key("training.fsdp_sync_module_states"),
    "use_orig_params": Key("training.fsdp_use_orig_params"),
    "version": Key("training.fsdp_version"),
}
"""Keys of ``fsdp_config``; until 0.11 they carry the prefix ``fsdp_``, which is still taken."""

FSDP_PLAIN = frozenset(
    [
        "auto_wrap_policy",
        "backward_prefetch",
        "cpu_offload_pin_memory",
        "final_state_dict_type",
        "forward_prefetch",
        "min_num_params",
        "mixed_precision_policy",
        "transformer_layer_cls_to_wrap",
    ],
)

TABLE: dict[str, Key | tuple[Key, ...]] = {
    "micro_batch_size": Key("training.micro_batch_size"),
    "eval_batch_size": Key("training.eval_batch_size"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    "sequence_len": Key("training.sequence_length"),
    "sample_packing": Key("training.packing"),
    "batch_flattening": Key("training.padding_free", _unless_auto),
    "gradient_checkpointing": Key("training.gradient_checkpointing", read_checkpointing),
    "gradient_checkpointing_kwargs.use_reentrant": Key(REENTRANT),
    "activation_offloading": Key("training.activation_offloading"),
    "selective_checkpointing": Key(REENTRANT, lambda value: LEAVE if is_off(value) else False),
    "optimizer": (
        Key("training.optimizer", _optimizer),
        Key("training.optimizer_implementation", _optimizer_implementation),
    ),
    "torch_compile": Key("training.compile", _unless_auto),
    "torch_empty_cache_steps": Key("training.empty_cache_steps"),
    "full_determinism": Key("training.full_determinism"),
    "auto_find_batch_size": Key("training.auto_find_batch_size"),
    "deepcompile": Key("training.deepcompile"),
    "resume_from_checkpoint": Key("run.resumes_checkpoint", lambda value: not is_off(value)),
    "attn_implementation": Key("model.attn_implementation", _attention),
    "experts_implementation": Key(
        "model.experts_implementation",
        lambda value: value if str(value) in _EXPERTS else LEAVE,
    ),
    "trust_remote_code": Key("model.trust_remote_code"),
    "device_map": Key("model.device_map", lambda value: value if isinstance(value, str) else LEAVE),
    "load_in_8bit": switch("int8", "model.quantization"),
    "load_in_4bit": switch("nf4", "model.quantization"),
    "gptq": switch("gptq", "model.quantization"),
    "quantize_moe_experts": Key("training.quantize_moe_experts"),
    "adapter": Key("training.peft", _adapter),
    "lora_r": Key("training.lora_rank"),
    "lora_dropout": Key("training.lora_dropout"),
    "lora_target_linear": switch("all-linear", "training.lora_target_modules"),
    "lora_target_modules": Key("training.lora_target_modules", _targets),
    "lora_target_parameters": Key("training.lora_target_parameters", _targets),
    "lora_modules_to_save": Key("training.lora_modules_to_save", _targets),
    "peft_autocast_adapter_dtype": Key("training.autocast_adapter_dtype"),
    "lora_mlp_kernel": Key("training.lora_kernels"),
    "fsdp_version": Key("training.fsdp_version"),
    "tensor_parallel_size": Key("training.tensor_parallel"),
    "context_parallel_size": Key("training.context_parallel"),
    "context_parallel.size": Key("training.context_parallel"),
    "sequence_parallel_degree": Key("training.context_parallel"),
    "expert_parallel_size": Key("training.expert_parallel"),
    "rl": Key("training.trainer", _reinforcement),
    "rl_beta": Key("training.kl_coefficient"),
    "dpo_beta": Key("training.kl_coefficient"),
    "precompute_ref_log_probs": Key("training.precompute_ref_log_probs"),
    "dpo_use_liger_kernel": Key("training.use_liger_kernel", only_true),
    "dpo_padding_free": Key("training.padding_free"),
    "dpo_loss_type": Key(
        "training.loss_type",
        lambda value: value[0] if isinstance(value, list) and len(value) == 1 else LEAVE,
    ),
    "trl.beta": Key("training.kl_coefficient"),
    "trl.max_completion_length": Key("training.max_response_length"),
    "trl.num_generations": Key("training.num_generations"),
    "trl.loss_type": Key("training.loss_type"),
    "trl.use_liger_loss": Key("training.use_liger_kernel", only_true),
    "trl.use_vllm": Key("rollout.engine", lambda value: "vllm" if is_on(value) else "hf"),
    "trl.vllm_mode": Key("rollout.mode"),
    "trl.vllm_enable_sleep_mode": Key("rollout.sleep_mode"),
    "trl.vllm_gpu_memory_utilization": Key("rollout.gpu_memory_utilization"),
    "vllm.gpu_memory_utilization": Key("rollout.gpu_memory_utilization"),
    "vllm.tensor_parallel_size": Key("rollout.tensor_parallel"),
    "vllm.enforce_eager": Key("rollout.enforce_eager"),
    **{f"fsdp_config.{name}": key for name, key in _FSDP_KEYS.items()},
    **{f"fsdp_config.fsdp_{name}": key for name, key in _FSDP_KEYS.items()},
}
"""Key → meaning, over the releases that spell it so; what depends on several keys is decided in `_decide`."""

PLAIN = frozenset(
    f"gradient_checkpointing_kwargs.{name}"
    for name in ("context_fn", "debug", "determinism_check", "early_stop", "preserve_rng_state")
)
