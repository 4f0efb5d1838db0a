"""NeMo RL's configurations (``examples/configs``): YAML of OmegaConf that composes from the files under ``defaults``.

Read at 7ea279a (0.6.0). A policy is trained by DTensor workers (FSDP2 of torch) or by Megatron's, as ``enabled`` tells; keys of
the other one are there and not looked at. The teacher of a distillation and the value model of PPO are such policies, too. Micro
batches count sequences of one device, or tokens where they are packed or filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Gap, Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.composition import merge_options, retell_counted
from compatcheck.frameworks.conversions import LEAVE, OPEN, constant, share, stated
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
from compatcheck.frameworks.translation import flatten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "nemo-rl", "NeMo RL"
TRAINERS = {"grpo": "grpo", "ppo": "ppo", "distillation": "gkd", "sft": "sft", "dpo": "dpo", "rm": "reward"}
"""Section of a program → what it trains with."""
_SECTIONS = {*TRAINERS, "policy", "checkpointing", "cluster", "loss_fn"}
_OTHERS = {
    "async_rl",
    "data",
    "data_plane",
    "defaults",
    "env",
    "logger",
    "on_policy_distillation",
    "reward_penalties",
    "teacher",
    "teachers",
    "value",
}
_MARKS = 3
_MEGATRON, _DTENSOR = "megatron_cfg.", "dtensor_cfg."
_COLOCATED = "policy.generation.colocated."
_ENGINES = {"vllm", "sglang", "trtllm"}
_MODULES = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
}
"""Megatron's linears, and what they are fused of."""


def _all_linear(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return ["all-linear"] if value is True else LEAVE


def _fused_modules(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read names of Megatron's linears; without any all of them get an adapter (Megatron-Bridge peft/module_matcher.py)."""
    names = value if isinstance(value, list) else []
    if not names:
        return ["all-linear"]
    return [one for name in names for one in _MODULES[name]] if _MODULES.keys() >= set(names) else OPEN


TABLE = KeyTable(
    __file__,
    conversions={"all_linear": _all_linear, "fused_modules": _fused_modules},
    fields={"policy.hf_config_overrides.": None},
)
"""Key → meaning."""
NAMES = Names(__file__)
MODELS = {"policy": None, "teacher": "reference", "value": "critic"}
"""Section of a model → its role beside the policy."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of NeMo RL, or composes from a file and holds its sections."""
    if len(_SECTIONS & data.keys()) >= _MARKS and "policy" in data:
        return True
    sections = data.keys() - {"defaults"}
    told = "policy" in sections or sections <= _SECTIONS | _OTHERS
    return bool(_parents(data)) and bool(sections) and told


def _parents(data: Mapping[str, Any]) -> list[str]:
    return [name for name in _listed(data) if _is_file(name)]


def _listed(data: Mapping[str, Any]) -> list[Any]:
    listed = data.get("defaults")
    return listed if isinstance(listed, list) else [] if listed is None else [listed]


def _is_file(name: object) -> bool:
    return isinstance(name, str) and name.endswith((".yaml", ".yml"))


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration."""
    leaves = flatten({name: value for name, value in data.items() if name != "defaults"})
    options = {key: Argument(value, None) for key, value in leaves}
    references = tuple((READER, name, "defaults") for name in _parents(data))
    others = (f"composes from {name}, which is not read" for name in _listed(data) if not _is_file(name))
    gaps = tuple(Gap(Source(path, key="defaults"), why) for why in others)
    return Reading(compose(Document(READER, Source(path), (), references=references, gaps=gaps, options=options)))


def compose(*documents: Document) -> tuple[Document, ...]:
    """Translate a file, or a command, and all that it composes from as one configuration; what comes first wins."""
    whole = merge_options(documents)
    settled = follow_all(whole)
    values = {key: one.value for key, one in settled.items() if one.why is None}
    trainer = next(
        (name for section, name in TRAINERS.items() if any(key.startswith(f"{section}.") for key in whole)), ""
    )
    roles = _roles(trainer, values)
    table, unused = table_for(settled, values, roles)
    models = {
        f"{section}.model_name": f"model:{role}" if section != "policy" else "model" for section, role in roles.items()
    }
    meanings = OptionMeanings(READER, table, _is_plain, models)
    known = [(_find_owner(one.key, documents, whole), one) for one in _infer(values, trainer, roles)]
    means = {key: one for key, one in settled.items() if not key.endswith("._override_")}
    return tuple(
        retell_counted(
            document, whole, means, meanings, (one for owner, one in known if owner is document), tuple(unused)
        )
        for document in documents
    )


def _find_owner(key: str, documents: tuple[Document, ...], whole: Mapping[str, Argument]) -> Document:
    """Return the document whose key counts; the first where none has it."""
    return next((one for one in documents if key in whole and one.options.get(key) is whole[key]), documents[0])


def _is_plain(key: str) -> bool:
    """Tell whether a key is known and has no bearing; models beside the policy have its keys."""
    section, _, rest = key.partition(".")
    return key in NAMES or (section in MODELS and f"policy.{rest}" in NAMES)


def _roles(trainer: str, values: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the sections of models that a run has, with the roles that they are."""
    generates = trainer in {"grpo", "ppo", "gkd"}
    found: dict[str, str | None] = {"policy": "actor" if generates else None}
    if trainer == "gkd" and "teacher.model_name" in values:
        found["teacher"] = "reference"
    if trainer == "ppo" and "value.model_name" in values:
        found["value"] = "critic"
    return found


def table_for(
    settled: Mapping[str, Argument], values: Mapping[str, Any], roles: Mapping[str, str | None]
) -> tuple[Table, tuple[str, ...]]:
    """Return what keys mean in a run, and the beginnings of those that it does not look at: the other back end's."""
    table: Table = {key: meanings for key, meanings in TABLE.items() if not key.startswith("policy.")}
    if any(values.get(key) for key in _TAKE_NODES):
        table["cluster.num_nodes"] = (Key("hardware.nodes", constant(OPEN)),)
    unused = [f"{section}." for section in MODELS if section not in roles]
    engine = values.get("policy.generation.backend")
    unused += [f"policy.generation.{name}_{part}." for name in _ENGINES if name != engine for part in ("cfg", "kwargs")]
    for section, role in roles.items():
        megatron = is_on_megatron(values, section)
        own = f"{section}.{_DTENSOR if megatron else _MEGATRON}"
        unused += [own, f"{section}.optimizer."] if megatron else [own]
        unused += [] if section == "policy" else [f"{section}.generation."]
        for key, meanings in TABLE.items():
            if key.startswith("policy.generation."):
                table[key] = meanings
            elif key.startswith("policy."):
                mine = f"{section}{key.removeprefix('policy')}"
                table[mine] = tuple(one._replace(role=role) for one in meanings)
        _settle(table, settled, values, section, role)
    if (
        "teacher" in roles
    ):  # it scores; the policy only learns from that (algorithms/distillation.py distillation_train)
        of_policy = [key for key in table if key.startswith("policy.")]
        table.update((key, SILENT) for key in of_policy if {one.fact for one in table[key]} & {*_SCORING})
    return table, tuple(unused)


def is_on_megatron(values: Mapping[str, Any], section: str = "policy") -> bool:
    """Tell whether Megatron's workers train a model; two back ends at once are refused (models/policy/lm_policy.py)."""
    return values.get(f"{section}.{_MEGATRON}enabled") is True


def _settle(
    table: Table, settled: Mapping[str, Argument], values: Mapping[str, Any], section: str, role: str | None
) -> None:
    """Settle what keys of a model mean beside one another."""
    megatron = is_on_megatron(values, section)
    _settle_batches(table, settled, values, section, role)
    precision = table[f"{section}.precision"]
    if values.get(f"{_COLOCATED}enabled") is not True:
        table[f"{section}.offload_optimizer_for_refit"] = SILENT
    if megatron:
        own = f"{section}.{_MEGATRON}"
        table[f"{section}.precision"] = (*precision, precision[0]._replace(fact="training.param_dtype"))
        granularity = f"{own}recompute_granularity"
        if values.get(f"{own}activation_checkpointing") is not True:
            table[granularity] = SILENT
        elif values.get(granularity) == "selective" and values.get(f"{own}recompute_modules") in (None, ["core_attn"]):
            table[granularity] = (Key(_POLICY, constant("core_attention"), role),)
        if values.get(f"{own}optimizer.optimizer_cpu_offload") is True:
            table[f"{own}optimizer.optimizer_cpu_offload"] = (Key("training.offload_optimizer", constant(OPEN), role),)
        lora = f"{own}peft."
    else:
        lora = f"{section}.{_DTENSOR}lora_cfg."
        if values.get(f"{lora}match_all_linear", True) is True:
            table[f"{lora}target_modules"] = SILENT
    if role == "reference":
        table[f"{section}.{_MEGATRON if megatron else _DTENSOR}activation_checkpointing"] = SILENT
    if values.get(f"{lora}enabled") is not True:
        table.update((key, SILENT) for key in [*table] if key.startswith(lora) and not key.endswith(".enabled"))


def _settle_batches(
    table: Table, settled: Mapping[str, Argument], values: Mapping[str, Any], section: str, role: str | None
) -> None:
    """Count batches in sequences, or in tokens where they are packed or filled up to a limit, which context parallel ranks share.

    A model that only runs forward takes the batches of scoring.
    """
    forward = role == "reference"
    updated, scored = ("training.micro_batch_size", "training.micro_batch_tokens"), _SCORING
    train, score = f"{section}.train_micro_batch_size", f"{section}.logprob_batch_size"
    if forward:
        table[train], table[score] = SILENT, (Key(updated[0], stated, role),)
        table[f"{section}.train_global_batch_size"] = SILENT
    back_end = (
        f"{_MEGATRON}context_parallel_size" if is_on_megatron(values, section) else f"{_DTENSOR}context_parallel_size"
    )
    ranks = values.get(f"{section}.{back_end}")
    for way in ("sequence_packing", "dynamic_batching"):
        enabled = f"{section}.{way}.enabled"
        limits = f"{section}.{way}.train_mb_tokens", f"{section}.{way}.logprob_mb_tokens"
        if enabled not in settled or values.get(enabled) is False:
            continue
        if settled[enabled].why is not None:
            table[enabled] = (Key(updated[0], None, role), Key(updated[1], None, role))
            continue
        table[train] = table[score] = SILENT
        of_limits = ((), updated) if forward else (updated, scored)
        for limit, facts in zip(limits, of_limits, strict=True):
            table[limit] = tuple(Key(fact, share(ranks), role) for fact in facts[1:])


_POLICY = "training.checkpointing_policy"
_SCORING = ("rollout.log_prob_micro_batch_size", "rollout.log_prob_micro_batch_tokens")


def _infer(values: Mapping[str, Any], trainer: str, roles: Mapping[str, str | None]) -> Iterator[Statement]:
    """Say what follows from several keys, or from the program that reads them."""
    if trainer:
        yield Statement("training.trainer", "(program)", trainer)
    yield from name_roles(role for role in roles.values() if role is not None)
    for section, role in roles.items():
        if is_on_megatron(values, section):
            yield Statement("training.sharding", f"{section}.{_MEGATRON}enabled", "megatron", role)
            continue
        if values.get(f"{section}.{_DTENSOR}enabled") is True:
            yield Statement("training.sharding", f"{section}.{_DTENSOR}enabled", "fsdp", role)
        if values.get(f"{section}.{_DTENSOR}activation_checkpointing") is True and role != "reference":
            yield Statement(None, "(parts of blocks)", True, role)
        packing = f"{section}.sequence_packing.enabled"
        if values.get(packing) is True and values.get(f"{section}.{_DTENSOR}context_parallel_size", 1) == 1:
            yield Statement("model.attn_implementation", packing, "flash_attention_2", role)
        kernels = [values.get(f"{section}.optimizer.kwargs.{name}") for name in ("fused", "foreach")]
        if kernels[0] is True or kernels == [False, False]:
            kind = "fused" if kernels[0] else "for_loop"
            yield Statement("training.optimizer_implementation", f"{section}.optimizer.kwargs.fused", kind, role)
    if "reference" in roles.values():
        yield from state_forward_only("reference")
    yield from state_value_heads(role for role in roles.values() if role)
    for section in TRAINERS:
        prompts, each = (values.get(f"{section}.num_{name}") for name in ("prompts_per_step", "generations_per_prompt"))
        if type(prompts) is int and type(each) is int:
            yield Statement("rollout.global_batch_size", f"{section}.num_prompts_per_step", prompts * each)
    tensor, experts = (values.get(f"policy.generation.vllm_cfg.{name}_parallel_size") for name in ("tensor", "expert"))
    if type(tensor) is int and type(experts) is int and experts > tensor > 0:  # EP = DP × TP (vllm_generation.py)
        yield Statement("rollout.data_parallel", "policy.generation.vllm_cfg.expert_parallel_size", experts // tensor)
    yield from _count_devices(values)


def _count_devices(values: Mapping[str, Any]) -> Iterator[Statement]:
    """Count the devices that train: those of the cluster less the ones of an engine and of reward models (algorithms/grpo.py)."""
    nodes, each = values.get("cluster.num_nodes"), values.get("cluster.gpus_per_node")
    if type(nodes) is not int or type(each) is not int or any(values.get(key) for key in _TAKE_NODES):
        return
    taken = [("env.reward_model.resources.", "reward_model" in _environments(values))]
    taken.append((f"{_COLOCATED}resources.", values.get(f"{_COLOCATED}enabled") is False))
    for place, counts in taken:
        own = values.get(f"{place}{'gpus_per_node' if nodes == 1 else 'num_nodes'}") if counts else 0
        if type(own) is not int:
            return
        nodes, each = (nodes, each - own) if values["cluster.num_nodes"] == 1 else (nodes - own, each)
    if nodes > 0 and each > 0:
        yield Statement("hardware.gpus_per_node", "cluster.gpus_per_node", each)
        yield Statement("hardware.nodes", "cluster.num_nodes", nodes)


_TAKE_NODES = ("on_policy_distillation.teachers", "on_policy_distillation.enabled")
"""Keys that give nodes to models that are not read; NeMo Gym's are beside the cluster's (7ea279a algorithms/grpo.py)."""


def _environments(values: Mapping[str, Any]) -> set[str]:
    """Return the environments that data sets name (data/utils.py extract_necessary_env_names)."""
    return {str(value) for key, value in values.items() if key.startswith("data.") and key.endswith(".env_name")}
