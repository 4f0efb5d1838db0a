"""ms-swift's configuration files (YAML or JSON): what ``swift sft``, ``swift rlhf`` and ``megatron sft`` take instead of options.

A file holds one flat mapping of ms-swift's arguments, which include the HF Trainer's and TRL's, and may hold variables under
``ENV``. The Ray back end of 4.5 nests some of them under ``train`` and ``rollout``. Read at the tags v3.0.0 to v4.5.2; the
names of 2.x are known as well.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Statement
from compatcheck.core.environment import Environment
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.hf_trainer.arguments import (
    TRAINER_TABLE,
    TRL_TABLE,
    Arguments,
    Table,
    dtype_unless_auto,
    is_plain_trainer_argument,
    open_arguments,
    trainer_argument_names,
    translate_arguments,
)
from compatcheck.frameworks.keys import LEAVE, Key, only_true, stated
from compatcheck.frameworks.text import expect_mapping, parse_json_or_yaml, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compatcheck.core.document import Document

_TUNERS = {"lora": "lora", "full": None, "adalora": "adalora", "vera": "vera", "boft": "boft", "lora_llm": "lora"}
"""``tuner_type`` → adapter; the others (``reft``, ``llamapro``, ``fourierft``, …) have no name here."""
_TRAINERS = {
    "cpo": "cpo",
    "dpo": "dpo",
    "gkd": "gkd",
    "grpo": "grpo",
    "kto": "kto",
    "orpo": "orpo",
    "ppo": "ppo",
    "rm": "reward",
    "simpo": "cpo",
}
"""``rlhf_type`` → trainer; SimPO is a loss of TRL's CPO trainer (``swift/rlhf_trainers``)."""
_ATTENTION = {"flash_attn": "flash_attention_2", "flash_attention_4": LEAVE}
_EXPERTS = {"eager": "loop"}


def _tuner(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return _TUNERS.get(str(value), LEAVE)


def _trainer(value: Any) -> Any:  # noqa: ANN401 (configuration)
    if str(value) not in _TRAINERS:
        msg = f"known: {', '.join(_TRAINERS)}"
        raise ValueError(msg)
    return _TRAINERS[str(value)]


def _modules(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return value or LEAVE


def _loss(value: Any) -> Any:  # noqa: ANN401 (configuration)
    single = value[0] if isinstance(value, list) and len(value) == 1 else value
    return single if isinstance(single, str) else LEAVE


def _sleeps(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return int(value) > 0


def _word(words: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a conversion that replaces some words and leaves null alone."""
    return lambda value: LEAVE if value is None else words.get(str(value), value)


_TRL_NAMES = (
    "beta",
    "ds3_gather_for_generation",
    "max_completion_length",
    "num_generations",
    "packing",
    "padding_free",
    "response_length",
    "use_dora",
    "use_vllm",
    "vllm_mode",
    "vllm_gpu_memory_utilization",
    "vllm_tensor_parallel_size",
    "lora_rank",
    "lora_dropout",
    "use_liger",
)
"""Arguments that mean what TRL's argument of the same name means."""

_SHARED: Table = {
    **{name: TRL_TABLE[name] for name in _TRL_NAMES},
    "max_length": Key("training.sequence_length", stated),
    "tuner_type": Key("training.peft", _tuner),
    "train_type": Key("training.peft", _tuner),
    "sft_type": Key("training.peft", _tuner),
    "rlhf_type": Key("training.trainer", _trainer),
    "task_type": Key("training.trainer", lambda value: "sft" if value == "causal_lm" else LEAVE),
    "torch_dtype": Key("model.load_dtype", dtype_unless_auto),
    "attn_impl": Key("model.attn_implementation", _word(_ATTENTION)),
    "experts_impl": Key("model.experts_implementation", _word(_EXPERTS)),
    "use_flash_attn": Key("model.attn_implementation", lambda on: "flash_attention_2" if on is True else LEAVE),
    "device_map": Key("model.device_map", lambda value: value if isinstance(value, str) else LEAVE),
    "target_modules": Key("training.lora_target_modules", _modules),
    "lora_target_modules": Key("training.lora_target_modules", _modules),
    "target_parameters": Key("training.lora_target_parameters", _modules),
    "modules_to_save": Key("training.lora_modules_to_save", _modules),
    "sequence_parallel_size": Key("training.context_parallel"),
    "loss_type": Key("training.loss_type", _loss),
    "ref_model": Key("training.reference_model", lambda name: True if name else LEAVE),
    "vllm_enforce_eager": Key("rollout.enforce_eager"),
    "vllm_max_num_seqs": Key("rollout.max_num_seqs", stated),
    "sleep_level": (
        Key("rollout.sleep_mode", _sleeps),
        Key("rollout.sleep_level", lambda level: level if _sleeps(level) else LEAVE),
    ),
}
TABLE: Table = {
    **TRAINER_TABLE,
    **_SHARED,
    "batch_size": Key("training.micro_batch_size"),
    "gradient_accumulation_steps": Key("training.gradient_accumulation_steps", stated),
    "zero_hpz_partition_size": Key("training.zero_hpz_partition_size", stated),
    "deepspeed_autotp_size": Key("training.tensor_parallel", stated),
    "use_galore": Key("training.optimizer", lambda on: "galore" if on is True else LEAVE),
    "optimizer": Key("training.optimizer", lambda name: name if name in {"galore", "muon"} else LEAVE),
}
"""Key → meaning for the trainers on transformers, over the releases that spell it so."""

MEGATRON_TABLE: Table = {
    **_SHARED,
    "micro_batch_size": Key("training.micro_batch_size"),
    "global_batch_size": Key("training.global_batch_size"),
    "tensor_model_parallel_size": Key("training.tensor_parallel"),
    "pipeline_model_parallel_size": Key("training.pipeline_parallel"),
    "context_parallel_size": Key("training.context_parallel"),
    "expert_model_parallel_size": Key("training.expert_parallel"),
    "recompute_granularity": Key(
        "training.gradient_checkpointing",
        lambda word: {"full": True, "none": False}.get(word, LEAVE),
    ),
    "optimizer": Key("training.optimizer", lambda name: {"adam": "adamw", "sgd": "sgd", "muon": "muon"}[name]),
    "optimizer_cpu_offload": Key("training.offload_optimizer", lambda on: "cpu" if only_true(on) is True else LEAVE),
    "bf16": Key("training.mixed_precision", lambda on: "bf16" if only_true(on) is True else LEAVE),
    "fp16": Key("training.mixed_precision", lambda on: "fp16" if only_true(on) is True else LEAVE),
}
"""Key → meaning for the trainers on Megatron."""

_AUTO_BATCHES = {
    "fp16": {"enabled": "auto"},
    "bf16": {"enabled": "auto"},
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}
_BUCKETS = {"allgather_bucket_size": 200_000_000, "reduce_bucket_size": 200_000_000, "contiguous_gradients": True}
_STAGE_3 = {
    "stage": 3,
    "contiguous_gradients": True,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1_000_000_000,
    "stage3_max_reuse_distance": 1_000_000_000,
    "stage3_gather_16bit_weights_on_model_save": True,
}


def _offload(device: str) -> dict[str, Any]:
    return {"device": device, "pin_memory": True}


BUILT_IN_DEEPSPEED: dict[str, dict[str, Any]] = {
    "zero0": {"stage": 0, **_BUCKETS},
    "zero1": {"stage": 1, "offload_optimizer": _offload("none"), **_BUCKETS},
    "zero2": {"stage": 2, "offload_optimizer": _offload("none"), **_BUCKETS},
    "zero2_offload": {"stage": 2, "offload_optimizer": _offload("cpu"), **_BUCKETS},
    "zero3": {"offload_optimizer": _offload("none"), "offload_param": _offload("none"), **_STAGE_3},
    "zero3_offload": {"offload_optimizer": _offload("cpu"), "offload_param": _offload("cpu"), **_STAGE_3},
}
"""``zero_optimization`` of the files that ``deepspeed: zero3`` names (``swift/llm/ds_config``, ``swift/config`` from 4.0),
alike in every release from 3.0.3 to 4.5.2 but for ``overlap_comm``, which ``rules/_defaults/ms_swift.yaml`` tells by release."""

BUILT_IN_FSDP: dict[str, dict[str, Any]] = {
    "fsdp2": {
        "fsdp_version": 2,
        "reshard_after_forward": True,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "cpu_ram_efficient_loading": True,
        "state_dict_type": "SHARDED_STATE_DICT",
        "activation_checkpointing": True,
    },
}
"""``fsdp_config`` of the file that ``fsdp: fsdp2`` names (``fsdp2.json``, 3.12.0 to 4.5.2)."""

_MARKS = {
    "custom_train_dataset_path",
    "rlhf_type",
    "sft_type",
    "split_dataset_ratio",
    "train_dataset_sample",
    "tuner_type",
}
"""Keys that only this program's files hold."""
_MEGATRON_MARKS = {
    "attention_backend",
    "expert_model_parallel_size",
    "finetune",
    "lr_warmup_fraction",
    "micro_batch_size",
    "no_save_optim",
    "pipeline_model_parallel_size",
    "recompute_granularity",
    "tensor_model_parallel_size",
}
_ENOUGH = 2
_SECTIONS = ("train", "rollout", "teacher")
"""Groups of workers of the Ray back end, under which their arguments stand."""
_NOT_TRAINING = {"infer_backend", "sampler_type", "eval_backend", "quant_n_samples"}


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a training file of ms-swift."""
    if _NOT_TRAINING & data.keys():
        return False
    if _MARKS & data.keys():
        return bool({"model", "model_type", "model_id_or_path", "mcore_model"} & data.keys())
    return {"train_type", "model"} <= data.keys()


def read(path: str, files: Files = LOCAL) -> tuple[tuple[Document, ...], Environment | None]:
    """Read a training file: its documents, and the variables it sets.

    Raises:
        InputError: not readable, or no training file.
    """
    return read_data(expect_mapping(parse_json_or_yaml(read_text(path, files), path), path, "an ms-swift file"), path)


def read_data(data: dict[str, Any], path: str) -> tuple[tuple[Document, ...], Environment | None]:
    """Translate parsed arguments."""
    source = Source(path)
    given = dict(data)
    variables = given.pop("ENV", None)
    levelled = {**given, **{key: value for name in _SECTIONS for key, value in _section(given, name).items()}}
    megatron = len(_MEGATRON_MARKS & levelled.keys()) >= _ENOUGH
    inner = None if megatron else _take_built_in(given)
    table = MEGATRON_TABLE if megatron else TABLE
    table = {
        **table,
        **{f"{name}.{key}": table[key] for name in _SECTIONS for key in _section(given, name) if key in table},
    }
    arguments = open_arguments(given, source, table, models=("model", "model_id_or_path"), whole=_MAPPINGS)
    _quantisation(given, arguments.table)
    if str(given.get("rlhf_type")) in {"ppo", "grpo", "gkd"}:
        arguments.table["max_length"] = Key("training.max_prompt_length", stated)
    if megatron:
        arguments.known.extend(_on_megatron(levelled))
    else:
        _own_optimizer(given, arguments)
        _parallel(given, source, arguments)
    arguments.known.extend(_allocator(variables))
    if inner is not None:
        arguments.documents.append(
            deepspeed.read_data({**_AUTO_BATCHES, "zero_optimization": inner}, path, "deepspeed.")
        )
        arguments.known.append(Statement(None, f"deepspeed.{data['deepspeed']}", data["deepspeed"]))
    reader = "megatron_swift" if megatron else "ms_swift"
    names = sorted(argument_names() | trainer_argument_names())
    documents = translate_arguments(reader, source, arguments, irrelevant=_irrelevant, names=names)
    return documents, _environment(variables, source)


_MAPPINGS = ("model_kwargs", "rope_scaling", "device_groups", "columns", "max_memory", "device_map", "fsdp")
"""Arguments whose mapping is one value."""
_SILENT = Key("training.trainer", lambda _: LEAVE)
"""A key that states nothing here."""


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = data.get(name)
    return section if isinstance(section, dict) else {}


def _take_built_in(data: dict[str, Any]) -> dict[str, Any] | None:
    """Take the name of a DeepSpeed file of ms-swift out of the arguments; return what stands in that file."""
    name = data.get("deepspeed")
    if isinstance(name, str) and name in BUILT_IN_DEEPSPEED:
        del data["deepspeed"]
        return BUILT_IN_DEEPSPEED[name]
    return None


def _quantisation(data: Mapping[str, Any], table: Table) -> None:
    """Settle what ``quant_method`` and ``quant_bits`` say together."""
    method = data.get("quant_method")
    bits = {"bnb": {4: str(data.get("bnb_4bit_quant_type", "nf4")), 8: "int8"}}
    if method in {"hqq", "eetq", "fp8"}:
        table["quant_method"] = Key("model.quantization")
    elif method == "bnb":

        def convert(value: Any) -> Any:  # noqa: ANN401 (configuration)
            if value not in bits["bnb"]:
                msg = "expected 4 or 8"
                raise ValueError(msg)
            return bits["bnb"][value]

        table["quant_bits"] = Key("model.quantization", convert)


def _own_optimizer(data: Mapping[str, Any], arguments: Arguments) -> None:
    """Say that an optimizer of ms-swift's own replaces what ``optim`` asks for."""
    if data.get("optimizer") or data.get("use_galore") is True or data.get("lorap_lr_ratio"):
        arguments.table["optim"] = _SILENT
        arguments.known.append(Statement(None, "optim", "replaced"))


def _parallel(data: Mapping[str, Any], source: Source, arguments: Arguments) -> None:
    """Read ``fsdp``: a built-in file, a file of one's own, or the words that the Trainer takes."""
    name = data.get("fsdp")
    if not isinstance(name, str) or not (name in BUILT_IN_FSDP or name.endswith(".json")):
        return
    arguments.table["fsdp"] = Key("training.sharding", lambda _: "fsdp")
    if name not in BUILT_IN_FSDP:
        reason = f"names {name!r}, which is not read"
        arguments.skipped.append(Skipped(source._replace(key="fsdp_config"), reason, "--set what it states"))
        return
    arguments.leaves.update({f"fsdp_config.{key}": value for key, value in BUILT_IN_FSDP[name].items()})
    arguments.table["gradient_checkpointing"] = _SILENT  # taken over by FSDP's own (`_check_fsdp2_compatibility`)
    arguments.known.append(Statement("training.gradient_checkpointing", "fsdp", False))


def _on_megatron(data: Mapping[str, Any]) -> list[Statement]:
    """Say what follows from the trainers on Megatron."""
    key = min(_MEGATRON_MARKS & data.keys())
    split = data.get("use_distributed_optimizer", True)  # megatron_args.py: on unless turned off
    return [
        Statement("training.framework", key, "megatron"),
        Statement("training.sharding", key, "megatron"),
        Statement("training.distributed_optimizer", "use_distributed_optimizer", split is True),
        Statement("training.sequence_parallel", "sequence_parallel", data.get("sequence_parallel", False) is True),
    ]


_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_SEGMENTS = re.compile(r"expandable_segments\s*:\s*(true|false)\b", re.IGNORECASE)


def _allocator(variables: Any) -> Iterator[Statement]:  # noqa: ANN401 (configuration)
    """Say what ``ENV`` asks of torch's allocator."""
    for name in _ALLOCATOR_VARIABLES:
        text = variables.get(name) if isinstance(variables, dict) else None
        found = _SEGMENTS.search(str(text or ""))
        if found is not None:
            yield Statement("allocator.expandable_segments", f"ENV.{name}", found[1].lower() == "true")


def _environment(variables: Any, source: Source) -> Environment | None:  # noqa: ANN401 (configuration)
    """Return the variables that a file sets for its own run, where nobody else has set them."""
    if not isinstance(variables, dict) or not variables:
        return None
    return Environment(
        origin=source.path,
        packages={},
        complete=False,
        variables={str(name): str(value) for name, value in variables.items()},
        variables_complete=False,
        variables_source=source._replace(key="ENV"),
    )


@lru_cache(maxsize=1)
def argument_names() -> frozenset[str]:
    """Return the names of ms-swift's own arguments."""
    from compatcheck.frameworks.hf_trainer.names import MS_SWIFT_ARGUMENT_NAMES  # noqa: PLC0415 (long)

    return frozenset(MS_SWIFT_ARGUMENT_NAMES.split())


_OF_RAY = {"colocate_groups", "gpus", "device_groups"}


def _irrelevant(key: str) -> bool:
    section, _, inner = key.partition(".")
    name = inner.partition(".")[0] if section in _SECTIONS and inner else section
    return name in argument_names() or name in _OF_RAY or is_plain_trainer_argument(key)
