"""Arguments of the HF Trainer and of TRL, which programs built on the Trainer inherit: key tables and how a file is read.

Several readers share them: trainer files themselves (`hf_trainer`), LLaMA-Factory, ms-swift. Each adds the keys that its own
program has, and says what its program changes about an inherited one.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.json_file import parse_json
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.keys import (
    LEAVE,
    Key,
    constant,
    flatten,
    make_document,
    meanings_of,
    not_understood,
    only_true,
    stated,
    translate,
)
from compatcheck.frameworks.text import expect_mapping
from compatcheck.rules.vocabulary import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from compatcheck.core.document import Document, Statement

Table = dict[str, Key | tuple[Key, ...]]

OPTIMIZERS = {
    "adamw_hf": ("adamw", None),
    "adamw_torch": ("adamw", "foreach"),
    "adamw_torch_fused": ("adamw", "fused"),
    "adamw_apex_fused": ("adamw", None),
    "adamw_torch_xla": ("adamw", None),
    "adamw_anyprecision": ("adamw", None),
    "adafactor": ("adafactor", None),
    "sgd": ("sgd", "foreach"),
    "adagrad": ("adagrad", "foreach"),
    "rmsprop": ("rmsprop", "foreach"),
    "adamw_bnb_8bit": ("adamw_8bit", None),
    "adamw_8bit": ("adamw_8bit", None),
    "paged_adamw_8bit": ("paged_adamw_8bit", None),
    "paged_adamw_32bit": ("paged_adamw", None),
    "paged_adamw": ("paged_adamw", None),
    "lion_32bit": ("lion", None),
    "lion_8bit": ("lion", None),
    "paged_lion_32bit": ("lion", None),
    "paged_lion_8bit": ("lion", None),
    "ademamix": ("ademamix", None),
    "ademamix_8bit": ("ademamix", None),
    "galore_adamw": ("galore", None),
    "galore_adamw_8bit": ("galore", None),
    "galore_adafactor": ("galore", None),
    "galore_adamw_layerwise": ("galore", None),
    "lomo": ("lomo", None),
    "adalomo": ("lomo", None),
    "grokadamw": ("grokadamw", None),
    "schedule_free_adamw": ("schedule_free", None),
    "schedule_free_sgd": ("schedule_free", None),
    "schedule_free_radam": ("schedule_free", None),
    "apollo_adamw": ("apollo", None),
    "apollo_adamw_layerwise": ("apollo", None),
    "stable_adamw": ("stable_adamw", None),
    "muon": ("muon", None),
}
"""``optim`` → optimizer and, where torch's own step runs, its kernel family (foreach is torch's default on CUDA)."""


def _optimizer(name: Any) -> Any:  # noqa: ANN401 (configuration)
    if str(name) not in OPTIMIZERS:
        msg = f"known: {', '.join(sorted(OPTIMIZERS))}"
        raise ValueError(msg)
    return OPTIMIZERS[str(name)][0]


def _optimizer_implementation(name: Any) -> Any:  # noqa: ANN401 (configuration)
    return OPTIMIZERS.get(str(name), (None, None))[1] or LEAVE


def _accumulation(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return None if value in (None, "") else value


def dtype_unless_auto(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a dtype; null and ``auto`` state none."""
    return LEAVE if value in (None, "auto") else value


def quantized(kind: str) -> Callable[[Any], Any]:
    """Return a conversion that reads a switch as this quantisation when it is on."""
    return lambda value: kind if value is True or str(value).lower() == "true" else LEAVE


def attention(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read ``attn_implementation``; a kernel of the hub counts as what it implements."""
    return LEAVE if value is None else str(value).removeprefix("kernels-community/")


_REENTRANT = Key("training.use_reentrant", stated)
_FSDP_VERSION = Key("training.fsdp_version")
TRAINER_TABLE: Table = {
    "per_device_train_batch_size": Key("training.micro_batch_size"),
    "per_gpu_train_batch_size": Key("training.micro_batch_size"),
    "per_device_eval_batch_size": Key("training.eval_batch_size"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps"),
    "gradient_checkpointing": Key("training.gradient_checkpointing", stated),
    "gradient_checkpointing_kwargs.use_reentrant": _REENTRANT,
    "activation_checkpointing": Key("training.gradient_checkpointing", stated),
    "activation_checkpointing_kwargs.use_reentrant": _REENTRANT,
    "optim": (
        Key("training.optimizer", _optimizer),
        Key("training.optimizer_implementation", _optimizer_implementation),
    ),
    "eval_accumulation_steps": Key("training.eval_accumulation_steps", _accumulation),
    "prediction_loss_only": Key("training.prediction_loss_only", stated),
    "torch_empty_cache_steps": Key("training.empty_cache_steps", _accumulation),
    "average_tokens_across_devices": Key("training.average_tokens_across_devices", stated),
    "full_determinism": Key("training.full_determinism"),
    "use_liger_kernel": Key("training.use_liger_kernel", stated),
    "auto_find_batch_size": Key("training.auto_find_batch_size"),
    "torch_compile": Key("training.compile"),
    "accelerator_config.gradient_accumulation_kwargs.sync_each_batch": Key("training.sync_each_batch"),
    "ddp_find_unused_parameters": (),
    "fsdp": (),
    "fsdp_config.version": _FSDP_VERSION,
    "fsdp_config.fsdp_version": _FSDP_VERSION,
    "fsdp_config.activation_checkpointing": Key("training.fsdp_activation_checkpointing"),
    "fsdp_config.cpu_ram_efficient_loading": Key("training.fsdp_cpu_ram_efficient_loading"),
    "fsdp_config.fsdp_cpu_ram_efficient_loading": Key("training.fsdp_cpu_ram_efficient_loading"),
    "fsdp_config.use_orig_params": Key("training.fsdp_use_orig_params"),
    "fsdp_config.fsdp_use_orig_params": Key("training.fsdp_use_orig_params"),
    "fsdp_config.offload_params": Key("training.fsdp_offload_params"),
    "fsdp_config.fsdp_offload_params": Key("training.fsdp_offload_params"),
    "fsdp_config.limit_all_gathers": Key("training.fsdp_limit_all_gathers"),
    "fsdp_config.sync_module_states": Key("training.fsdp_sync_module_states"),
    "fsdp_config.state_dict_type": Key("training.fsdp_state_dict_type", lambda value: str(value).lower()),
    "fsdp_config.fsdp_state_dict_type": Key("training.fsdp_state_dict_type", lambda value: str(value).lower()),
    "fsdp_config.reshard_after_forward": Key(
        "training.fsdp_reshard_after_forward",
        lambda value: value if isinstance(value, bool) else LEAVE,
    ),
    "fsdp_config.fsdp_reshard_after_forward": Key(
        "training.fsdp_reshard_after_forward",
        lambda value: value if isinstance(value, bool) else LEAVE,
    ),
    "use_cache": Key("model.use_cache"),
}
"""Arguments of the Trainer itself → meaning, over the releases of transformers that spell them so."""

TRL_TABLE: Table = {
    "use_reentrant": _REENTRANT,
    "use_liger": Key("training.use_liger_kernel", stated),
    "use_liger_loss": Key("training.use_liger_kernel", only_true),
    "packing": Key("training.packing"),
    "padding_free": Key("training.padding_free", stated),
    "loss_type": Key("training.loss_type", lambda value: LEAVE if not isinstance(value, str) else value),
    "max_seq_length": Key("training.sequence_length", stated),
    "max_seq_len": Key("training.sequence_length", stated),
    "max_length": Key("training.sequence_length", stated),
    "model_max_length": Key("training.sequence_length", stated),
    "block_size": Key("training.sequence_length", stated),
    "max_prompt_length": Key("training.max_prompt_length", stated),
    "max_completion_length": Key("training.max_response_length", stated),
    "response_length": Key("training.max_response_length", stated),
    "activation_offloading": Key("training.activation_offloading"),
    "precompute_ref_log_probs": Key("training.precompute_ref_log_probs"),
    "beta": Key("training.kl_coefficient"),
    "num_generations": Key("training.num_generations", stated),
    "use_vllm": Key("rollout.engine", lambda value: "vllm" if value is True else LEAVE),
    "vllm_mode": Key("rollout.mode"),
    "vllm_gpu_memory_utilization": Key("rollout.gpu_memory_utilization", stated),
    "vllm_enable_sleep_mode": Key("rollout.sleep_mode"),
    "vllm_tensor_parallel_size": Key("rollout.tensor_parallel"),
    "ds3_gather_for_generation": Key("training.ds3_gather_for_generation"),
    "attn_implementation": Key("model.attn_implementation", attention),
    "torch_dtype": Key("model.load_dtype", dtype_unless_auto),
    "dtype": Key("model.load_dtype", dtype_unless_auto),
    "trust_remote_code": Key("model.trust_remote_code"),
    "load_in_4bit": Key("model.quantization", quantized("nf4")),
    "load_in_8bit": Key("model.quantization", quantized("int8")),
    "use_peft": Key("training.peft", lambda value: "lora" if value is True else None),
    "use_peft_lora": Key("training.peft", lambda value: "lora" if value is True else LEAVE),
    "use_4bit_quantization": Key("model.quantization", quantized("nf4")),
    "use_8bit_quantization": Key("model.quantization", quantized("int8")),
    "use_dora": Key("training.peft", lambda value: "dora" if value is True else LEAVE),
    "lora_r": Key("training.lora_rank"),
    "lora_rank": Key("training.lora_rank"),
    "lora_dropout": Key("training.lora_dropout"),
    "lora_target_modules": Key("training.lora_target_modules", stated),
    "lora_modules_to_save": Key("training.lora_modules_to_save", stated),
}
"""Arguments of TRL's trainers, of its ``ModelConfig`` and of common scripts → meaning."""


class Arguments(NamedTuple):
    """The arguments in one file, taken apart and not yet translated; a reader may change all of it."""

    leaves: dict[str, Any]
    """Dotted keys with their values, without ``deepspeed``."""
    table: Table
    references: list[tuple[str, str, str]]
    skipped: list[Skipped]
    documents: list[Document]
    """A DeepSpeed configuration that stands inside the file."""
    known: list[Statement]
    """What is said beyond the keys of the table."""


def open_arguments(
    data: Mapping[str, Any],
    source: Source,
    table: Mapping[str, Key | tuple[Key, ...]],
    *,
    models: Iterable[str],
    whole: Collection[str] = (),
) -> Arguments:
    """Take a file of arguments apart: precision, FSDP words, JSON in text, the model and the DeepSpeed file it names.

    Args:
        data: the parsed file.
        source: the file.
        table: what the keys of this program mean.
        models: keys that may name the model, strongest first.
        whole: keys whose mapping is one value.
    """
    opened, skipped = _open_sections(data, source)
    leaves = dict(flatten(opened, stop={"deepspeed", *whole}))
    meanings: Table = dict(table)
    precision = read_precision(opened)
    if precision is not None:
        key, name = precision
        meanings[key] = Key("training.mixed_precision", partial(constant, name))
    for fact, value in _fsdp(opened.get("fsdp")):
        meanings["fsdp"] = (*meanings_of(meanings["fsdp"]), Key(fact, partial(constant, value)))
    references: list[tuple[str, str, str]] = []
    for key in models:
        model = data.get(key)
        if isinstance(model, str) and model:
            references.append(("model", model, key))
            break
        if model:
            skipped.append(not_understood(source, key, "the path or hub id of a model"))
    documents: list[Document] = []
    inner = opened.get("deepspeed")
    if isinstance(inner, str) and inner:
        references.append(("deepspeed", inner, "deepspeed"))
    elif isinstance(inner, dict):
        documents.append(deepspeed.read_data(inner, source.path, "deepspeed."))
    elif inner:
        skipped.append(not_understood(source, "deepspeed", "the path of a DeepSpeed configuration, or its content"))
    leaves.pop("deepspeed", None)
    return Arguments(leaves, meanings, references, skipped, documents, [])


def translate_arguments(
    reader: str,
    source: Source,
    arguments: Arguments,
    *,
    irrelevant: Callable[[str], bool],
    names: Iterable[str],
) -> tuple[Document, ...]:
    """Translate arguments that were taken apart.

    Args:
        reader: whose file it is.
        source: the file.
        arguments: what `open_arguments` gave, and the reader changed.
        irrelevant: tells whether a key is known and has no bearing on memory.
        names: keys without bearing that a misspelt one may have meant.

    Raises:
        InputError: nothing in the file was understood.
    """
    leaves = arguments.leaves.items()
    translation = translate(iter(leaves), arguments.table, irrelevant=irrelevant, source=source)
    candidates = list(names)
    translation = translation._replace(
        statements=(*translation.statements, *arguments.known),
        skipped=(*translation.skipped, *arguments.skipped),
        unread=tuple(
            (key, near or (nearest(key, candidates) if position < _MAX_GUESSES else None))
            for position, (key, near) in enumerate(translation.unread)
        ),
    )
    return (make_document(reader, source, translation, tuple(arguments.references)), *arguments.documents)


_MAX_GUESSES = 100
_SECTION_KEYS = ("accelerator_config", "deepspeed", "fsdp_config", "gradient_checkpointing_kwargs")
"""Arguments that may hold a mapping as JSON text, or the path of a JSON file (``TrainingArguments._VALID_DICT_FIELDS``)."""


def _open_sections(data: Mapping[str, Any], source: Source) -> tuple[dict[str, Any], list[Skipped]]:
    """Parse the arguments whose mapping is written as JSON text, as the HF Trainer does."""
    opened = dict(data)
    skipped = []
    for key in _SECTION_KEYS:
        text = data.get(key)
        if not isinstance(text, str) or not text:
            continue
        if text.lstrip().startswith("{"):
            try:
                opened[key] = expect_mapping(parse_json(text, source.path), source.path, key)
            except InputError as error:
                del opened[key]
                hint = "write a mapping, or its JSON in full"
                skipped.append(Skipped(source._replace(key=key), f"{key}: {error.message}", hint))
        elif key == "fsdp_config":
            del opened[key]
            reason = f"names {text!r}, which is not read"
            skipped.append(Skipped(source._replace(key=key), reason, "write its keys under fsdp_config, or --set them"))
    return opened, skipped


def read_precision(data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key that decides the mixed precision and what it says; None when neither key is there."""
    for key in ("bf16", "fp16"):
        if data.get(key) is True:
            return key, key
    if data.get("bf16") is False and data.get("fp16") in (None, False):
        return "bf16", "no"
    if data.get("fp16") is False and data.get("bf16") is None:
        return "fp16", "no"
    return None


def _fsdp(value: Any) -> list[tuple[str, object]]:  # noqa: ANN401 (configuration)
    """Translate the words of the ``fsdp`` argument (``full_shard auto_wrap offload``)."""
    if value is True:
        return [("training.sharding", "fsdp")]
    return read_fsdp_words(value if isinstance(value, list) else str(value or "").split())


def read_fsdp_words(words: Sequence[Any]) -> list[tuple[str, object]]:
    """Return what words such as ``full_shard`` and ``offload`` say."""
    strategies = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"}
    facts: list[tuple[str, object]] = [
        ("training.fsdp_sharding_strategy", word) for word in words if word in strategies
    ]
    if words:
        facts.append(("training.sharding", "fsdp"))
    if "offload" in words:
        facts.append(("training.fsdp_offload_params", True))
    return facts


@lru_cache(maxsize=1)
def trainer_argument_names() -> frozenset[str]:
    """Return the names of the Trainer's own arguments."""
    from compatcheck.frameworks.hf_trainer.names import TRAINER_ARGUMENT_NAMES  # noqa: PLC0415 (long; only for such files)

    return frozenset(TRAINER_ARGUMENT_NAMES.split())


@lru_cache(maxsize=1)
def trl_argument_names() -> frozenset[str]:
    """Return the names of the arguments that only TRL's trainers have."""
    from compatcheck.frameworks.hf_trainer.names import TRL_ARGUMENT_NAMES  # noqa: PLC0415 (long; only for such files)

    return frozenset(TRL_ARGUMENT_NAMES.split())


_FSDP_PLAIN = frozenset(
    [
        "auto_wrap_policy",
        "backward_prefetch",
        "forward_prefetch",
        "ignored_modules",
        "min_num_params",
        "transformer_layer_cls_to_wrap",
        "xla",
        "xla_fsdp_grad_ckpt",
        "xla_fsdp_settings",
        "xla_fsdp_v2",
    ],
)
"""Keys of ``fsdp_config``, with or without the prefix ``fsdp_``, that have no bearing on memory by themselves."""


_SECTIONS = (
    "accelerator_config.",
    "generation_config.",
    "gradient_checkpointing_kwargs.",
    "lr_scheduler_kwargs.",
    "liger_kernel_config.",
    "optim_args.",
    "parallelism_config.",
    "hub_",
    "push_to_hub",
)


def is_plain_trainer_argument(key: str) -> bool:
    """Tell whether a dotted key is one of the Trainer's own and has no bearing on memory."""
    name, _, inner = key.partition(".")
    if name == "fsdp_config" and inner:
        return inner.removeprefix("fsdp_") in _FSDP_PLAIN
    return name in trainer_argument_names() or key.startswith(_SECTIONS)
