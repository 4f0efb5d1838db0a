"""ms-swift's configuration files (YAML or JSON): what ``swift sft``, ``swift rlhf`` and ``megatron sft`` take instead of options.

A file holds one flat mapping of ms-swift's arguments, which include the HF Trainer's and TRL's, and may hold variables under
``ENV``. The Ray back end of 4.5 nests some of them under ``train`` and ``rollout``. Read at the tags v3.0.0 to v4.5.2; the
names of 2.x are known as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import LEFT_OUT, Statement
from compatcheck.core.environment import Environment
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.conversions import LEAVE, OPEN, constant, is_off, is_on, stated
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.hf_trainer.arguments import (
    TRAINER_NAMES,
    TRAINER_TABLE,
    Arguments,
    is_plain_trainer_argument,
    open_arguments,
    translate_arguments,
)
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names, Table
from compatcheck.frameworks.reader import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "ms_swift", "ms-swift"
MODELS = ("model", "model_id_or_path")


def _sleeps(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return int(value) > 0


def _sleep_level(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return value if _sleeps(value) else LEAVE


_SHARED = KeyTable(__file__, "shared_keys.txt", {"sleeps": _sleeps, "sleep_level": _sleep_level})
TABLE = KeyTable(__file__, beneath=(TRAINER_TABLE, _SHARED))
"""Key → meaning for the trainers on transformers, over the releases that spell it so."""
MEGATRON_TABLE = KeyTable(__file__, "megatron_keys.txt", beneath=(_SHARED,))
"""Key → meaning for the trainers on Megatron."""
NAMES = Names(__file__)

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
alike in every release from 3.0.3 to 4.5.2 but for ``overlap_comm``, which ``rules/_programs/ms_swift.yaml`` tells by release."""

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

_MARKS = Names(__file__, "marks.txt")
"""Keys that only this program's files hold."""
_MEGATRON_MARKS = Names(__file__, "megatron_marks.txt")
_ENOUGH = 2
_SECTIONS = ("train", "rollout", "teacher")
"""Groups of workers of the Ray back end, under which their arguments stand."""
_WITHOUT_VOCABULARY = {"seq_cls", "embedding", "reranker"}
"""Tasks with a head of a few labels or none; a generative reranker keeps that of the vocabulary."""
_TUNERS = ("tuner_type", "train_type", "sft_type")
_NOT_TRAINING = {"infer_backend", "sampler_type", "eval_backend", "quant_n_samples"}


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a training file of ms-swift."""
    if _NOT_TRAINING & data.keys():
        return False
    if data.keys() & _MARKS:
        return bool({"model", "model_type", "model_id_or_path", "mcore_model"} & data.keys())
    return {"train_type", "model"} <= data.keys()


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed file: its documents, and the variables it sets.

    Raises:
        InputError: nothing in it was understood.
    """
    source = Source(path)
    given = dict(data)
    variables = given.pop("ENV", None)
    levelled = {**given, **{key: value for name in _SECTIONS for key, value in _section(given, name).items()}}
    megatron = len(levelled.keys() & _MEGATRON_MARKS) >= _ENOUGH
    inner = None if megatron else _take_built_in(given)
    table = dict(MEGATRON_TABLE if megatron else TABLE)
    table |= {f"{name}.{key}": table[key] for name in _SECTIONS for key in _section(given, name) if key in table}
    arguments = open_arguments(given, source, table, models=MODELS, whole=_MAPPINGS)
    _quantisation(given, arguments.table)
    if given.get("teacher_deepspeed") or given.get(
        "offload_teacher_model"
    ):  # it is sharded by itself, or waits on the host
        arguments.references[:] = [one for one in arguments.references if one[0] != "teacher"]
    if str(given.get("rlhf_type")) in {"ppo", "grpo", "gkd"}:
        arguments.table["max_length"] = (Key("training.max_prompt_length", stated),)
    task = levelled.get("task_type") or ("seq_cls" if levelled.get("num_labels") is not None else None)
    if task in _WITHOUT_VOCABULARY:
        arguments.known.append(Statement("program.makes_logits", "task_type", False))
    _frozen(levelled, arguments, "full" if megatron else "lora")
    if megatron:
        arguments.known.extend(_on_megatron(levelled))
    else:
        _own_optimizer(given, arguments)
        _parallel(given, source, arguments)
    arguments.known.extend(_allocator(variables))
    arguments.known.extend(_leaving(levelled))
    if inner is not None:
        arguments.documents.append(
            deepspeed.read_section({**_AUTO_BATCHES, "zero_optimization": inner}, path, "deepspeed.")
        )
        name = data["deepspeed"]
        arguments.known.extend(Statement(None, key, name) for key in ("deepspeed", f"deepspeed.{name}"))
    reader = "megatron_swift" if megatron else READER
    names = sorted({*NAMES, *TRAINER_NAMES})
    documents = translate_arguments(reader, source, arguments, irrelevant=_irrelevant, names=names)
    return Reading(documents, _environment(variables, source))


_MAPPINGS = ("model_kwargs", "rope_scaling", "device_groups", "columns", "max_memory", "device_map", "fsdp")
"""Arguments whose mapping is one value."""


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
        table["quant_method"] = (Key("model.quantization"),)
    elif method == "bnb":

        def convert(value: Any) -> Any:  # noqa: ANN401 (configuration)
            if value not in bits["bnb"]:
                msg = "expected 4 or 8"
                raise ValueError(msg)
            return bits["bnb"][value]

        table["quant_bits"] = (Key("model.quantization", convert),)


_FREEZES = ("freeze_parameters", "freeze_parameters_regex", "freeze_llm")
_TOWERS = ("freeze_vit", "freeze_aligner")
_THAWS = ("trainable_parameters", "trainable_parameters_regex", "additional_trainable_parameters")


def _frozen(data: Mapping[str, Any], arguments: Arguments, usual: str) -> None:
    """Tell which part of full fine-tuning is frozen (``swift/llm/train/tuner.py``, ``sft.py`` and ``utils/torch_utils.py``).

    A ratio freezes the first parameters by their number; LISA trains as many blocks, and all that is outside of blocks. Of a
    tower without its projector, or the other way round, nobody knows the parameters. ``usual`` is the tuner of a run that
    names none.
    """
    tuner = next((key for key in _TUNERS if data.get(key) is not None), _TUNERS[0])
    if str(data.get(tuner) or usual) != "full":
        return
    trained = [name for name in _TOWERS if is_off(data.get(name))]
    ratio, layers = data.get("freeze_parameters_ratio") or 0, data.get("lisa_activated_layers") or 0
    named = [key for key in _FREEZES if data.get(key) and not is_off(data[key])]
    key = named[0] if named else "freeze_parameters_ratio" if ratio else "lisa_activated_layers" if layers else None
    if key is not None:
        arguments.table[tuner] = SILENT
        arguments.known.append(Statement("training.peft", key, "freeze"))
        thawed = any(data.get(name) for name in _THAWS)
        if key == "freeze_parameters_ratio" and not thawed and not layers and isinstance(ratio, int | float):
            arguments.known.append(Statement("training.trained_share", key, 1 - ratio))
        elif key == "lisa_activated_layers" and isinstance(layers, int):
            arguments.known.append(Statement("training.trained_layers", key, layers))
        elif key == "freeze_llm":  # what is trained lies before it
            arguments.known.append(Statement("run.recomputes_frozen", key, True))
    elif trained:
        arguments.known.append(Statement(None, "(trains a tower)", True))
        if len(trained) < len(_TOWERS):
            arguments.table[trained[0]] = (Key("model.trainable_parameters", constant(OPEN)),)


def _own_optimizer(data: Mapping[str, Any], arguments: Arguments) -> None:
    """Say that an optimizer of ms-swift's own replaces what ``optim`` asks for."""
    if data.get("optimizer") or data.get("use_galore") is True or data.get("lorap_lr_ratio"):
        arguments.table["optim"] = SILENT
        arguments.known.append(Statement(None, "optim", "replaced"))


def _parallel(data: Mapping[str, Any], source: Source, arguments: Arguments) -> None:
    """Read ``fsdp``: a built-in file, a file of one's own, or the words that the Trainer takes."""
    name = data.get("fsdp")
    if not isinstance(name, str) or not (name in BUILT_IN_FSDP or name.endswith(".json")):
        return
    arguments.table["fsdp"] = (Key("training.sharding", constant("fsdp")),)
    if name not in BUILT_IN_FSDP:
        reason = f"names {name!r}, which is not read"
        arguments.skipped.append(Skipped(source._replace(key="fsdp_config"), reason, "--set what it states"))
        return
    arguments.leaves.update({f"fsdp_config.{key}": value for key, value in BUILT_IN_FSDP[name].items()})
    arguments.table["gradient_checkpointing"] = SILENT  # taken over by FSDP's own (`_check_fsdp2_compatibility`)
    arguments.known.append(Statement("training.gradient_checkpointing", "fsdp", False))


def _on_megatron(data: Mapping[str, Any]) -> list[Statement]:
    """Say what follows from the trainers on Megatron."""
    key = min(data.keys() & _MEGATRON_MARKS)
    switches = (  # megatron_args.py
        ("training.distributed_optimizer", "use_distributed_optimizer", True),
        ("training.sequence_parallel", "sequence_parallel", False),
        ("training.log_params_norm", "log_params_norm", False),
    )
    return [
        Statement("training.framework", key, "megatron"),
        Statement("training.sharding", key, "megatron"),
        *(
            Statement(fact, name if name in data else f"{name}{LEFT_OUT}", data.get(name, left_out) is True)
            for fact, name, left_out in switches
        ),
    ]


def _leaving(data: Mapping[str, Any]) -> Iterator[Statement]:
    """Say that policy and reference wait on the host while the engine in their process generates, with its weights handed over.

    Source: v4.5.2, 3602360a swift/rlhf_trainers/rollout_mixin.py _fast_infer(), grpo_trainer.py offload_context(), and the same
    of swift/megatron/trainers/rollout_mixin.py.
    """
    if is_on(data.get("offload_model")) and not str(data.get("deepspeed")).endswith(("_offload", ".json")):
        key = "offload_model"
        yield Statement("training.offload_param", key, "cpu")
        yield Statement("program.moves_idle_state", key, value=True)
        yield Statement("program.policy_at_rollout", key, "before_cache")


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


_OF_RAY = {"colocate_groups", "gpus", "device_groups"}


def _irrelevant(key: str) -> bool:
    section, _, inner = key.partition(".")
    name = inner.partition(".")[0] if section in _SECTIONS and inner else section
    return name in NAMES or name in _OF_RAY or is_plain_trainer_argument(key)
