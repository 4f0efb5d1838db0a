"""ROLL's configurations (``examples/*/*.yaml``): YAML of Hydra with a section for each model, which says how and where it runs.

Read at v0.1.0 to v0.3.0 and 8eb27cc2 (``roll/configs``, ``roll/pipeline``, ``roll/distributed/strategy``). The sections of a
file tell the pipeline. Megatron's workers (mcore_adapter) and those on FSDP2 look at different keys of a section.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import LEFT_OUT, Document, Gap, Statement
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.composition import merge_options, retell_counted
from compatcheck.frameworks.conversions import LEAVE, constant, share
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import (
    OptionMeanings,
    name_roles,
    state_forward_only,
    state_value_heads,
)
from compatcheck.frameworks.launch.interpolation import follow_all
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.sglang import command as sglang
from compatcheck.frameworks.translation import flatten
from compatcheck.frameworks.vllm import command as vllm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "roll", "ROLL"


def _modules(value: Any) -> Any:  # noqa: ANN401 (configuration)
    names = value.split(",") if isinstance(value, str) else value
    return LEAVE if names is None else [str(name).strip() for name in names]


TABLE = KeyTable(__file__, conversions={"modules": _modules})
"""Key → meaning."""
NAMES = Names(__file__)
MODEL, ENGINE = "actor_train.", "actor_infer."
"""Sections whose keys the table has."""
STRATEGY, CONFIG = "strategy_args.strategy_name", "strategy_args.strategy_config."
_MARKS = frozenset(
    {
        "actor_train",
        "actor_infer",
        "reference",
        "rewards",
        "sft_train",
        "student_train",
        "student_infer",
        "student",
        "teacher",
    }
)
_ENVIRONMENTS = ("custom_envs.", "tracker_kwargs.", "train_env_manager.", "val_env_manager.")
"""Beginnings of keys without models, which point into files of environments."""
_MOST_DEVICES = 1 << 16


class Pipeline(NamedTuple):
    """What one of ROLL's programs runs."""

    models: Mapping[str, str | None]
    """Section → role."""
    engine: str | None = None
    trainer: str | None = None
    moves: bool | None = True
    """Whether models leave the device while others work; None where ``is_offload_states`` says so."""
    scores: tuple[str, int] = ("infer_batch_size", 16)
    """Key that says how many sequences a model that only runs forward takes at once, and its default."""


_LEARNS = Pipeline({"actor_train": "actor", "reference": "reference", "critic": "critic"}, "actor_infer")
_ON_POLICY = Pipeline({"student_train": "actor", "teacher": "reference"}, "student_infer", "reinforce")
_SUPERVISED = Pipeline({"sft_train": None}, None, "sft", moves=False)
_PREFERS = Pipeline({"actor_train": "actor", "reference": "reference"}, None, "dpo", moves=None)
_GENERATES = Pipeline({}, "actor_infer")
_DISTILLS = Pipeline(
    {"student": "actor", "teacher": "reference"},
    None,
    "gkd",
    moves=None,
    scores=("training_args.per_device_train_batch_size", 8),
)
"""Its teacher takes batches of training (roll/pipeline/distill/distill_worker.py TeacherWorker.forward, from 0.1.1 on)."""
MODELS = {*_LEARNS.models, *_ON_POLICY.models, *_SUPERVISED.models, *_DISTILLS.models}
_ENGINES = {"actor_infer", "student_infer"}


def tell_pipeline(sections: set[str]) -> Pipeline | None:
    """Return the pipeline whose sections these are; None for a file that trains nothing."""
    if "student_train" in sections:
        return _ON_POLICY
    if "sft_train" in sections:
        return _SUPERVISED
    if {"student", "teacher"} <= sections:
        return _DISTILLS
    if "actor_train" in sections:
        return _LEARNS if "actor_infer" in sections else _PREFERS
    return _GENERATES if "actor_infer" in sections else None


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of ROLL: a section of it says with which strategy a model runs.

    One that composes from another file may leave that to it.
    """
    told = {"strategy_args", *(("training_args", "model_args") if "defaults" in data else ())}
    return any(isinstance(data.get(name), dict) and not told.isdisjoint(data[name]) for name in _MARKS)


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration."""
    options = {key: Argument(value, None) for key, value in flatten(data) if not key.startswith("hydra.")}
    bases, gaps = _read_defaults(data.get("defaults"), Source(path, key="defaults"))
    references = tuple((READER, name, "defaults") for name in bases)
    return Reading(compose(Document(READER, Source(path), (), references=references, gaps=gaps, options=options)))


def compose(*documents: Document) -> tuple[Document, ...]:
    """Translate a file, or a command, and all that it composes from as one configuration; what comes first wins."""
    whole = merge_options(documents)
    followed = follow_all(whole)
    settled = {key: one if key.startswith(_ENVIRONMENTS) else followed[key] for key, one in whole.items()}
    values = {key: one.value for key, one in settled.items() if one.why is None}
    pipeline = tell_pipeline({key.partition(".")[0] for key in whole})
    roles = _roles(pipeline, values)
    table, unused = table_for(values, pipeline, roles)
    meanings = OptionMeanings(READER, table, is_plain, dict(_name_models(pipeline, roles, values)))
    known = tuple(_infer(values, pipeline, roles)) if pipeline is not None else ()
    first = next((one for one in documents if not one.is_command), documents[-1])
    others = tuple(_find_others(first, values, roles))
    said = {one.reason for one in others}
    return tuple(
        retell_counted(
            document._replace(
                skipped=(
                    *(one for one in document.skipped if one.reason not in said),
                    *(others if document is first else ()),
                )
            ),
            whole,
            settled,
            meanings,
            known if document is first else (),
            unused,
        )
        for document in documents
    )


def is_plain(key: str) -> bool:
    """Tell whether a key is known and has no bearing; every model and engine has the keys of the first."""
    section, _, rest = key.partition(".")
    if section in _ENGINES:
        option = rest.removeprefix(CONFIG)
        return f"{ENGINE}{rest}" in NAMES or (option != rest and (option in vllm.NAMES or option in sglang.NAMES))
    return (f"{MODEL}{rest}" if section in MODELS else key) in NAMES


def _roles(pipeline: Pipeline | None, values: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the models that a run has, by section.

    The reference is there where a KL term asks for it, with a coefficient of 0.2 where it is left out, and no adapters stand in
    for it; the critic where advantages are estimated with one, which is the default (``PPOConfig``, ``rlvr_pipeline.py``).
    """
    found = dict(pipeline.models) if pipeline is not None else {}
    if pipeline is _LEARNS:
        if _ask_reference(values) is None or values.get(f"{MODEL}model_args.lora_target"):
            del found["reference"]
        if values.get("adv_estimator", "gae") != "gae":
            del found["critic"]
    there = (one for one in found.items() if one[0] in MODELS and f"{one[0]}.{STRATEGY}" in values)
    return dict(there)


def _ask_reference(values: Mapping[str, Any]) -> str | None:
    """Name the key that has the policy compared with a reference (``roll/configs/base_config.py`` __post_init__)."""
    asked = (key for key in ("enable_reference", "use_kl_loss") if values.get(key))
    coefficient = "init_kl_coef" if "init_kl_coef" in values else f"init_kl_coef{LEFT_OUT}"
    return next(asked, coefficient if values.get("init_kl_coef", _KL) else None)


_KL = 0.2
"""Default of ``init_kl_coef``."""


def _compare(values: Mapping[str, Any]) -> Iterator[Statement]:
    """Say whether a reference scores, and the weight of the term that uses it: in the loss, or in rewards where it is asked for.

    Source: 8eb27cc2 roll/pipeline/base_worker.py loss_func(), roll/utils/functionals.py compute_token_reward().
    """
    asked = _ask_reference(values)
    yield Statement("training.reference_model", asked or "init_kl_coef", asked is not None)
    in_loss, in_rewards = values.get("use_kl_loss") is True, values.get("add_token_level_kl") is True
    key, default = ("kl_loss_coef", 0) if in_loss else ("init_kl_coef", _KL)
    key, weight = (key, values.get(key, default)) if in_loss or in_rewards else ("add_token_level_kl", 0)
    yield Statement("training.kl_coefficient", key if key in values else f"{key}{LEFT_OUT}", weight)


def table_for(
    values: Mapping[str, Any], pipeline: Pipeline | None, roles: Mapping[str, str | None]
) -> tuple[Table, tuple[str, ...]]:
    """Return what keys mean in a run, and the beginnings of those that it does not look at."""
    table: Table = {key: meanings for key, meanings in TABLE.items() if not key.startswith((MODEL, ENGINE))}
    unused = [f"{section}." for section in MODELS - roles.keys()]
    if pipeline is not None and pipeline.trainer is not None:
        table["adv_estimator"] = SILENT
    engine = None if pipeline is None else pipeline.engine
    unused += [f"{section}." for section in _ENGINES - {engine}]
    for key, meanings in TABLE.items():
        if key.startswith(ENGINE) and engine is not None:
            table[f"{engine}.{key.removeprefix(ENGINE)}"] = meanings
    for section, role in roles.items():
        for key, meanings in TABLE.items():
            if key.startswith(MODEL):
                table[f"{section}.{key.removeprefix(MODEL)}"] = tuple(one._replace(role=role) for one in meanings)
        _settle(table, values, section, role, pipeline)
    return table, tuple(unused)


def _settle(table: Table, values: Mapping[str, Any], section: str, role: str | None, pipeline: Pipeline | None) -> None:
    """Settle what keys of a model mean beside one another: each back end passes over keys of the other."""
    strategy = str(values.get(f"{section}.{STRATEGY}"))
    of_fsdp = strategy.startswith("fsdp2")
    silent = [f"{CONFIG}{name}" for name in (_OF_MEGATRON if of_fsdp else _OF_FSDP)]
    if of_fsdp:
        silent.append("model_args.dtype")
    elif strategy.startswith("megatron"):
        silent += [
            "model_args.disable_gradient_checkpointing",
            "model_args.ulysses_size",
            "model_args.attn_implementation",
        ]
        dtype = f"{section}.model_args.dtype"
        table[dtype] = (*table[dtype], Key("training.mixed_precision", _name_precision, role))
    frozen = f"{section}.model_args.freeze_module_prefix"
    if not values.get(f"{section}.model_args.lora_target"):
        silent += ["model_args.lora_rank", "model_args.lora_dropout"]
        if strategy.startswith("megatron") and values.get(frozen) == _TOWER:
            table[frozen] = (Key("run.trains_tower", constant(value=False), role),)
    else:  # then adapters alone are trained (roll/models/model_providers.py)
        silent.append("model_args.freeze_module_prefix")
    table.update(dict.fromkeys((f"{section}.{name}" for name in silent), SILENT))
    _settle_batches(table, values, section, role, (pipeline or _LEARNS).scores[0])


_TOWER = "vision_model"
"""What mcore_adapter calls the whole tower of a model that sees."""
_OF_MEGATRON = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "sequence_parallel", "recompute_granularity", "use_distributed_optimizer", "optimizer",
)  # fmt: skip
_OF_FSDP = (
    "param_dtype", "reduce_dtype", "reshard_after_forward", "offload_policy", "ep_size", "fsdp_size",
    "reduce_scatter_during_grad_accumulation",
)  # fmt: skip


def _name_precision(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return {"bf16": "bf16", "fp16": "fp16"}.get(value, "no")


def _settle_batches(table: Table, values: Mapping[str, Any], section: str, role: str | None, scores: str) -> None:
    """Count batches in sequences, or in tokens where they are filled, which context parallel ranks share.

    Models that only run forward take those of scoring. A limit in tokens is one of whole sequences (8eb27cc2
    roll/utils/dynamic_batching.py); the strategies split these afterwards.
    """
    on_megatron = _is_on_megatron(values, section)
    split = f"{CONFIG}context_parallel_size" if on_megatron else "model_args.ulysses_size"
    each = share(values.get(f"{section}.{split}"))
    updated = ("training.micro_batch_size", "training.micro_batch_tokens")
    scored = ("rollout.log_prob_micro_batch_size", "rollout.log_prob_micro_batch_tokens")
    train, score = f"{section}.training_args.per_device_train_batch_size", f"{section}.infer_batch_size"
    if role == "reference":
        table[train] = table[score] = table[f"{section}.training_args.gradient_accumulation_steps"] = SILENT
        score = f"{section}.{scores}"
        table[score] = (Key(updated[0], None, role),)
        scored = updated
    elif role != "actor" or not _generates(values):
        table[score] = SILENT
    else:
        table[score] = (Key(scored[0]),)
    for way, sequences, facts in (("infer", score, scored), ("train", train, updated)):
        limit = _name_limit(values, section, way)
        if limit is not None and (table[sequences] is not SILENT):
            of = role if facts is updated else None
            table[sequences] = SILENT
            table[f"{section}.{limit}"] = (Key(facts[1], each, of),)


def _is_on_megatron(values: Mapping[str, Any], section: str) -> bool:
    return str(values.get(f"{section}.{STRATEGY}")).startswith("megatron")


def _name_limit(values: Mapping[str, Any], section: str, way: str) -> str | None:
    """Return the key that limits the tokens of a batch in ``train`` or ``infer``; None where batches count sequences.

    Megatron's workers alone pack, and share sequences out anew by load (roll/utils/sequence_packing.py LoadBalancePacker); a
    batch in which these are all long may be beyond the limit by one of them.
    """
    if values.get(f"{section}.use_dynamic_batching_in_{way}") is True:
        return f"max_tokens_per_microbatch_in_{way}"
    packs = _is_on_megatron(values, section) and values.get(f"{section}.use_sequence_packing") is True
    if packs and values.get(f"{section}.{_PACKING}algorithm") == "load_balance":
        return f"{_PACKING}max_packed_sequence_length_{'train' if way == 'train' else 'forward'}"
    return None


_PACKING = "sequence_packing_args."


def _generates(values: Mapping[str, Any]) -> bool:
    return any(f"{section}.{STRATEGY}" in values for section in _ENGINES)


def _name_models(
    pipeline: Pipeline | None, roles: Mapping[str, str | None], values: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Name the keys that name models: one for all, unless each has its own (``PPOConfig.__post_init__``)."""
    if pipeline is _GENERATES:
        yield "pretrain", "model"
    for section, role in roles.items():
        own = f"{section}.model_args.model_name_or_path"
        first = role in {None, "actor"}
        kind = "model" if first else f"model:{role}"
        shared = {"critic": "reward_pretrain", "teacher": "teacher_pretrain", "student": "student_pretrain"}.get(
            section, "pretrain"
        )
        alone = (
            pipeline is _LEARNS
            and section != "critic"
            and not all(
                values.get(f"{name}.model_args.model_name_or_path")
                for name in ("actor_train", "actor_infer", "reference")
            )
        )
        if values.get(own) and not alone and pipeline is not _SUPERVISED:
            yield own, kind
        elif shared in values and (first or shared != "pretrain"):
            yield shared, kind


_OF_TEACHERS = re.compile(rf"teacher\.\w+\.{re.escape(STRATEGY)}$")
"""Key of a section of one teacher among several, each for data of its own (8eb27cc2 roll/pipeline/agentic/agentic_config.py)."""


def _infer(values: Mapping[str, Any], pipeline: Pipeline, roles: Mapping[str, str | None]) -> Iterator[Statement]:
    """Say what follows from several keys, or from the pipeline."""
    key = "(program)"
    if pipeline.trainer is not None:
        yield Statement("training.trainer", key, pipeline.trainer)
    if pipeline is _GENERATES:
        yield Statement("program.serves", key, True)
    yield from name_roles(role for role in roles.values() if role is not None)
    if any(_OF_TEACHERS.match(key) for key in values):
        yield Statement(None, "teacher", value=True)
    yield from state_value_heads(role for role in roles.values() if role is not None)
    if "reference" in roles.values():
        yield from state_forward_only("reference")
        yield Statement("training.peft", "(only run forward)", None, "reference")
    if pipeline is _LEARNS:
        yield from _compare(values)
    for section, role in roles.items():
        yield from _of_model(values, section, role, pipeline)
    places = {section: _devices(values, section) for section in (*roles, pipeline.engine) if section}
    main = next(iter(roles), "")
    together = _overlaps(places.get(main), places.get(pipeline.engine or ""))
    if pipeline.engine is not None:
        yield from _of_engine(values, pipeline.engine, together=together)
    moves = pipeline.moves if pipeline.moves is not None else values.get("is_offload_states") is True
    for section, role in roles.items():
        devices = places[section]
        if devices:
            yield from _count_ranks(len(devices), values.get("num_gpus_per_node", 8), f"{section}.device_mapping", role)
        if section != main and _overlaps(places[main], devices):
            yield Statement("training.colocated_with", f"{section}.device_mapping", "actor", role)
        yield Statement(
            "training.sleeps_while_idle",
            key,
            moves and not str(values[f"{section}.{STRATEGY}"]).startswith("fsdp2"),
            role,
        )
        if moves:
            yield Statement("training.offload_param", key, "cpu", role)
    prompts, each = values.get("rollout_batch_size"), values.get("num_return_sequences_in_group", 1)
    if type(prompts) is int and prompts > 0 and type(each) is int:
        yield Statement("rollout.global_batch_size", "rollout_batch_size", prompts * each)


def _count_ranks(ranks: int, each: object, key: str, role: str | None) -> Iterator[Statement]:
    """Say on how many nodes a model runs, and on how many devices of each, where they are filled evenly."""
    each = each if type(each) is int and 0 < each < ranks else ranks
    if ranks % each:
        yield Statement("hardware.world_size", key, ranks, role)
    else:
        yield Statement("hardware.gpus_per_node", key, each, role)
        yield Statement("hardware.nodes", key, ranks // each, role)


def _of_model(values: Mapping[str, Any], section: str, role: str | None, pipeline: Pipeline) -> Iterator[Statement]:
    """Say what workers do with a model where a section leaves it out (``roll/distributed/strategy``)."""
    strategy, trains = str(values[f"{section}.{STRATEGY}"]), role != "reference"
    filled = _name_limit(values, section, "train" if trains else "infer") is not None

    def left_out(fact: str, name: str, value: object) -> Iterator[Statement]:
        if values.get(f"{section}.{name}") is None:
            yield Statement(fact, f"{section}.{name} (left out)", value, role)

    if strategy.startswith("fsdp2"):
        yield Statement("training.tensor_parallel", "(only FSDP2)", 1, role)
        yield from left_out("training.param_dtype", f"{CONFIG}param_dtype", "float32" if trains else "bfloat16")
        yield from left_out("training.compute_dtype", f"{CONFIG}param_dtype", "bfloat16")
        yield from left_out("training.reduce_dtype", f"{CONFIG}reduce_dtype", "float32")
        yield from left_out("training.fsdp_reshard_after_forward", f"{CONFIG}reshard_after_forward", True)
        yield from left_out("training.fsdp_offload_params", f"{CONFIG}offload_policy", False)
        size, devices = values.get(f"{section}.{CONFIG}fsdp_size"), _devices(values, section) or ()
        if type(size) is int and 1 < size < len(devices):
            yield Statement("training.replicas", f"{section}.{CONFIG}fsdp_size", len(devices) // size, role)
        if trains:
            yield Statement("training.optimizer", "(program)", "adamw", role)
    else:
        yield from left_out("training.param_dtype", "model_args.dtype", "bfloat16")
    if strategy.startswith("megatron"):
        yield Statement("model.attn_implementation", "(only fused attention)", "flash_attention_2", role)
        yield from left_out("training.mixed_precision", "model_args.dtype", "bf16")
        for fact, name in (
            ("tensor", "tensor_model"),
            ("pipeline", "pipeline_model"),
            ("context", "context"),
            ("expert", "expert_model"),
        ):
            yield from left_out(f"training.{fact}_parallel", f"{CONFIG}{name}_parallel_size", 1)
        yield from left_out("training.sequence_parallel", f"{CONFIG}sequence_parallel", False)
        if trains:
            yield from left_out("training.distributed_optimizer", f"{CONFIG}use_distributed_optimizer", False)
            yield from left_out("training.gradient_checkpointing", f"{CONFIG}recompute_granularity", False)
            yield from left_out("training.optimizer", f"{CONFIG}optimizer", "adam")
            half = values.get(f"{section}.model_args.dtype", "bf16")
            if half in ("bf16", "fp16"):  # bf16 alone turns it on (mcore_adapter/training_args.py)
                wide = half == "bf16" or values.get(f"{section}.{CONFIG}accumulate_allreduce_grads_in_fp32") is True
                yield Statement(
                    "training.grad_accum_dtype", f"{section}.model_args.dtype", "float32" if wide else "float16", role
                )
    elif trains:
        yield from left_out("training.gradient_checkpointing", "model_args.disable_gradient_checkpointing", True)
    if trains:
        yield from left_out("training.peft", "model_args.lora_target", None)
        yield from left_out("training.use_remove_padding", "use_sequence_packing", False)
        if not filled:
            yield from left_out("training.micro_batch_size", "training_args.per_device_train_batch_size", 8)
        yield from left_out("training.gradient_accumulation_steps", "training_args.gradient_accumulation_steps", 1)
    elif not filled:
        yield from left_out("training.micro_batch_size", *pipeline.scores)


def _of_engine(values: Mapping[str, Any], section: str, *, together: bool | None) -> Iterator[Statement]:
    """Say what an engine does without being asked (``vllm_strategy.py``, ``sglang_strategy.py``)."""
    kind, key = values.get(f"{section}.{STRATEGY}"), f"{section}.device_mapping"
    if together is not None:
        yield Statement("rollout.colocated", key, together)
        saves = values.get(f"{section}.{CONFIG}enable_memory_saver") is not False
        yield Statement("rollout.sleep_mode", key, together and saves)
        yield Statement("rollout.multi_stage_wake_up", key, together)
    if f"{section}.{CONFIG}tensor_parallel_size" not in values:
        each = values.get(f"{section}.num_gpus_per_worker", 1) if kind == "sglang" else 1
        if type(each) is int:
            yield Statement("rollout.tensor_parallel", f"{section}.{CONFIG}tensor_parallel_size (left out)", each)
    if kind == "vllm":
        for fact, name, value in (
            ("rollout.enforce_eager", "enforce_eager", False),
            ("rollout.max_num_batched_tokens", "max_num_batched_tokens", 8192),
        ):
            if f"{section}.{CONFIG}{name}" not in values:
                yield Statement(fact, f"{section}.{CONFIG}{name} (left out)", value)


def _devices(values: Mapping[str, Any], section: str) -> frozenset[int] | None:
    """Return the devices of a section; None where they are not known."""
    written = values.get(f"{section}.device_mapping")
    if isinstance(written, list):
        return frozenset(one for one in written if type(one) is int)
    if not isinstance(written, str):
        return None
    try:
        return frozenset(_evaluate(ast.parse(written.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _evaluate(node: ast.expr) -> list[int]:
    """Evaluate lists of numbers, ranges, and their sums: ``list(range(0, 8)) + [9]``.

    Raises:
        ValueError: it is something else, or too long.
    """
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_evaluate(left), *_evaluate(right)]
        case ast.Call(func=ast.Name(id="list"), args=[inner], keywords=[]):
            return _evaluate(inner)
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if args:
            numbers = range(*map(_number, args))
            if len(numbers) <= _MOST_DEVICES:
                return list(numbers)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_number(one) for one in parts]
    msg = "no list of devices"
    raise ValueError(msg)


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    msg = "no number"
    raise ValueError(msg)


def _overlaps(one: frozenset[int] | None, other: frozenset[int] | None) -> bool | None:
    return None if one is None or other is None else not one.isdisjoint(other)


_OF_ENVIRONMENTS = ("traj_envs", "step_envs", "vl_traj_envs", "envs")
"""Beginnings of the files under ``defaults`` that hold environments, which have no model (``examples/config``)."""


def _read_defaults(listed: object, source: Source) -> tuple[tuple[str, ...], tuple[Gap, ...]]:
    """Return the files that one composes from beneath its own keys, what wins last, and what is not read of the others.

    Read are those whose keys count from the root: of the same directory, or behind ``@_here_``. The file itself is laid over all
    of them unless ``_self_`` stands elsewhere (held against Hydra 1.3.2).
    """
    names = listed if isinstance(listed, list) else [] if listed is None else [listed]
    own = names.index("_self_") if "_self_" in names else len(names)
    bases, gaps = list[str](), list[Gap]()
    for place, one in enumerate(names):
        name, _, package = str(one).partition("@")
        if one == "_self_" or name.rpartition("/")[2].startswith(_OF_ENVIRONMENTS):
            continue
        if isinstance(one, str) and place < own and (package in {"_here_", "_global_"} or not (package or "/" in name)):
            bases.append(f"{name.removesuffix('.yaml')}.yaml")
        else:
            why = f"composes from {name.rpartition('/')[2] if isinstance(one, str) else one}, which is not read"
            gaps.append(Gap(source, why))
    return tuple(bases), tuple(gaps)


def _find_others(file: Document, values: Mapping[str, Any], roles: Mapping[str, str | None]) -> Iterator[Skipped]:
    """Say which further models share the devices of those that are counted: they leave them while these train."""
    taken = frozenset().union(*(_devices(values, section) or () for section in roles))
    for key in values:
        section = key.removesuffix(f".{STRATEGY}")
        known = section in roles or section in _ENGINES or section in {"critic", "reference", "validation"}
        devices = _devices(values, section) if section != key and not known else None
        if devices and not devices.isdisjoint(taken):
            reason = f"runs {section} on devices of the others while they wait; what it takes there is left out"
            yield Skipped(file.place(section), reason, passes=True)
