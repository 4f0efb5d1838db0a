"""A loop of accelerate's, checked before its first step and measured until its last.

model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
with watch(accelerator, model, optimizer, micro_batch_size=4, sequence_length=4096):
    for batch in loader: …
"""

from __future__ import annotations

from typing import Any

from compatcheck.integrations.watch import MemoryWatch

_OPTIMIZERS = {"AdamW": "adamw", "Adam": "adam", "SGD": "sgd", "Adafactor": "adafactor", "AdamW8bit": "adamw_8bit"}
_FSDP = {
    "fsdp_version": "fsdp_version",
    "cpu_offload": "fsdp_offload_params",
    "activation_checkpointing": "fsdp_activation_checkpointing",
    "use_orig_params": "fsdp_use_orig_params",
    "limit_all_gathers": "fsdp_limit_all_gathers",
    "cpu_ram_efficient_loading": "fsdp_cpu_ram_efficient_loading",
    "reshard_after_forward": "fsdp_reshard_after_forward",
}
"""Attribute of accelerate's plugin → key of its file."""


def watch(
    accelerator: Any,  # noqa: ANN401 (an accelerate.Accelerator)
    model: Any,  # noqa: ANN401 (a torch.nn.Module)
    optimizer: Any = None,  # noqa: ANN401 (a torch.optim.Optimizer, prepared or not)
    *,
    micro_batch_size: int,
    sequence_length: int,
    settings: dict[str, object] | None = None,
    **options: Any,  # noqa: ANN401 (of `MemoryWatch`)
) -> MemoryWatch:
    """Return what checks a loop where it is entered, and measures it.

    Args:
        accelerator: as it was made: its precision, accumulation, DeepSpeed and FSDP are read.
        model: the model, prepared or not.
        optimizer: likewise; one of a class that is not known leaves its states open.
        micro_batch_size: sequences a process takes at once.
        sequence_length: tokens of the longest.
        settings: further facts by name; they win.
        options: of `MemoryWatch` and `compatcheck.check`.
    """
    module = accelerator.unwrap_model(model)
    found: dict[str, object] = {
        "training.framework": "accelerate",
        "hardware.world_size": accelerator.num_processes,
        "training.micro_batch_size": micro_batch_size,
        "training.sequence_length": sequence_length,
        "training.gradient_accumulation_steps": accelerator.gradient_accumulation_steps,
        "training.gradient_checkpointing": any(
            getattr(part, "gradient_checkpointing", False) for part in module.modules()
        ),
    }
    inner = getattr(optimizer, "optimizer", optimizer)
    name = _OPTIMIZERS.get(type(inner).__name__)
    if name is not None:
        found["training.optimizer"] = name
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    file: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind if kind in {"DEEPSPEED", "FSDP", "MULTI_GPU"} else "NO",
        "mixed_precision": accelerator.mixed_precision,
        "num_processes": accelerator.num_processes,
    }
    files: dict[str, Any] = {"accelerate.json": file}
    if kind == "DEEPSPEED":
        files["ds_config.json"] = accelerator.state.deepspeed_plugin.deepspeed_config
        file["deepspeed_config"] = {"deepspeed_config_file": "ds_config.json"}
    elif kind == "FSDP":
        plugin = accelerator.state.fsdp_plugin
        read = ((key, getattr(plugin, attribute, None)) for attribute, key in _FSDP.items())
        file["fsdp_config"] = {key: value for key, value in read if isinstance(value, (bool, int))}
    return MemoryWatch(
        files, module, settings={**found, **(settings or {})}, told=accelerator.is_main_process, **options
    )
