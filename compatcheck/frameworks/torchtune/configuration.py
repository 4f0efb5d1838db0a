"""Configurations of torchtune's recipes (YAML), and the ``key=value`` words that ``tune run`` lays over them.

Keys as in the configurations of the releases 0.1.0 to 0.6.1. Components are named by dotted paths (``_component_``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Source
from compatcheck.frameworks.keys import LEAVE, Key, flatten, make_document, stated, translate
from compatcheck.frameworks.text import expect_mapping, parse_json_or_yaml, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.document import Document

READER = "torchtune"
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adam",
    "SGD": "sgd",
    "PagedAdamW": "paged_adamw",
    "PagedAdamW8bit": "paged_adamw_8bit",
    "AdamW8bit": "adamw_8bit",
    "CPUOffloadOptimizer": LEAVE,
}


def _last(value: Any) -> str:  # noqa: ANN401 (configuration)
    return str(value).rpartition(".")[2]


def _optimizer(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return _OPTIMIZERS.get(_last(value), LEAVE)


def _adapter(value: Any) -> Any:  # noqa: ANN401 (configuration)
    name = _last(value)
    return "lora" if name.startswith("lora_") else "qlora" if name.startswith("qlora_") else None


def _quantization(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return "nf4" if _last(value).startswith("qlora_") else LEAVE


def _loss(value: Any) -> Any:  # noqa: ANN401 (configuration)
    name = _last(value)
    chunked = "Chunked" in name or name.startswith("LinearCrossEntropy")
    return "chunked" if chunked else "cross_entropy" if name == "CrossEntropyLoss" else LEAVE


def _dtype(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None else _DTYPES.get(str(value), value)


TABLE: dict[str, Key | tuple[Key, ...]] = {
    "batch_size": Key("training.micro_batch_size"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    "tokenizer.max_seq_len": Key("training.sequence_length", stated),
    "enable_activation_checkpointing": Key("training.gradient_checkpointing"),
    "enable_activation_offloading": Key("training.activation_offloading"),
    "dtype": Key("training.param_dtype", _dtype),
    "compile": Key("training.compile", lambda value: value if isinstance(value, bool) else LEAVE),
    "fsdp_cpu_offload": Key("training.fsdp_offload_params"),
    "fsdp_reshard_after_forward": Key("training.fsdp_reshard_after_forward"),
    "tensor_parallel_dim": Key("training.tensor_parallel"),
    "context_parallel_dim": Key("training.context_parallel"),
    "dataset.packed": Key("training.packing"),
    "optimizer._component_": Key("training.optimizer", _optimizer),
    "optimizer": Key("training.optimizer", _optimizer),
    "optimizer.fused": Key("training.optimizer_implementation", lambda on: "fused" if on is True else LEAVE),
    "loss._component_": Key("training.loss_implementation", _loss),
    "loss": Key("training.loss_implementation", _loss),
    "model._component_": (Key("training.peft", _adapter), Key("model.quantization", _quantization)),
    "model": (Key("training.peft", _adapter), Key("model.quantization", _quantization)),
    "model.lora_rank": Key("training.lora_rank"),
    "model.lora_dropout": Key("training.lora_dropout"),
    "model.lora_attn_modules": Key(
        "training.lora_target_modules", lambda names: names if isinstance(names, list) else LEAVE
    ),
}
"""Dotted key → meaning."""

_RECIPES = {
    "full_finetune_distributed": {"training.trainer": "sft", "training.sharding": "fsdp"},
    "full_finetune_single_device": {"training.trainer": "sft", "training.sharding": "none"},
    "lora_finetune_distributed": {"training.trainer": "sft", "training.sharding": "fsdp", "training.peft": "lora"},
    "lora_finetune_single_device": {"training.trainer": "sft", "training.sharding": "none", "training.peft": "lora"},
    "qat_distributed": {"training.trainer": "sft", "training.sharding": "fsdp"},
    "lora_dpo_distributed": {"training.trainer": "dpo", "training.sharding": "fsdp", "training.peft": "lora"},
    "lora_dpo_single_device": {"training.trainer": "dpo", "training.sharding": "none", "training.peft": "lora"},
    "full_dpo_distributed": {"training.trainer": "dpo", "training.sharding": "fsdp"},
    "ppo_full_finetune_single_device": {"training.trainer": "ppo", "training.sharding": "none"},
}
"""What the choice of a recipe settles (``recipes/*.py``)."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of torchtune: components named by their paths."""
    sections = [section for section in data.values() if isinstance(section, dict)]
    return any(
        str(section.get("_component_", "")).startswith(("torchtune.", "torch.", "bitsandbytes."))
        for section in sections
    )


def read(path: str, files: Files = LOCAL) -> Document:
    """Read a configuration.

    Raises:
        InputError: not readable, or not torchtune's.
    """
    data = expect_mapping(parse_json_or_yaml(read_text(path, files), path), path, "a torchtune configuration")
    return read_data(data, path)


def read_data(data: Mapping[str, Any], path: str) -> Document:
    """Translate a parsed configuration; the program takes any key, so that none is unread."""
    source = Source(path)
    table = {key: meaning for key, meaning in TABLE.items() if key not in {"model", "loss", "optimizer"}}
    translation = translate(flatten(data), table, irrelevant=lambda _: True, source=source)
    return make_document(READER, source, translation)


def of_recipe(name: str) -> Iterator[Statement]:
    """Say what a recipe settles."""
    for fact, value in _RECIPES.get(name.rpartition("/")[2].removesuffix(".py"), {}).items():
        yield Statement(fact, "(recipe)", value)
