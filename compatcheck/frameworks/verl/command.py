"""verl's command lines (Hydra): PPO, GRPO and their kin on FSDP or Megatron, and the forks that share its keys.

Keys are read as the program that reads them means them. ``*_micro_batch_size`` counts sequences over all ranks in every
release; the forks taken in January 2025 (Search-R1, Logic-RL, TinyZero) multiply it by ``rollout.n`` as well
(``verl/workers/fsdp_workers.py``), and ``*_micro_batch_size_per_gpu`` exists from 0.2. The critic is there for
``algorithm.adv_estimator=gae``, its default, and the reference as `training.reference_model` tells.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.keys import LEAVE, Key, flatten, positive, stated, translate
from compatcheck.frameworks.launch.arguments import (
    Beyond,
    Program,
    Table,
    make_command_document,
    name_roles,
    skip_refused,
)
from compatcheck.frameworks.launch.hydra import Overrides, interpolate, parse_overrides, parse_value
from compatcheck.frameworks.launch.values import Argument
from compatcheck.rules.vocabulary import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.frameworks.launch.launchers import Launch

ACTOR, CRITIC, REFERENCE, REWARD = "actor", "critic", "reference", "reward"
_A, _M, _R, _F = (
    "actor_rollout_ref.actor.",
    "actor_rollout_ref.model.",
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.ref.",
)

ESTIMATORS = {
    "gae": "ppo",
    "grpo": "grpo",
    "grpo_passk": "grpo",
    "grpo_vectorized": "grpo",
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "reinforce_plus_plus": "reinforce",
    "reinforce_plus_plus_baseline": "reinforce",
    "remax": "reinforce",
    "opo": "reinforce",
    "gpg": "reinforce",
}
"""``algorithm.adv_estimator`` → training algorithm (``verl/trainer/ppo/core_algos.py``, ``AdvantageEstimator``)."""


def _stated(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None or (isinstance(value, str) and "${" in value) else value


def on_host(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Return where state lies that a switch offloads: ``cpu``, None when it stays on the device."""
    return "cpu" if value is True else None if value is False else LEAVE


def _sharding(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return {"fsdp": "fsdp", "fsdp2": "fsdp", "megatron": "megatron", "mcore": "megatron"}.get(str(value), LEAVE)


def _fsdp_version(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return {"fsdp": 1, "fsdp2": 2}.get(str(value), LEAVE)


def _trainer(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return ESTIMATORS.get(str(value), LEAVE)


def _adapter(rank: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if not isinstance(rank, int) else "lora" if rank > 0 else None


def _fused(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return "fused_linear" if value is True else LEAVE


def _optimizer(value: Any) -> Any:  # noqa: ANN401 (configuration)
    known = {"adamw": "adamw", "adam": "adam", "sgd": "sgd", "adamw8bit": "adamw_8bit", "muon": "muon", "lion": "lion"}
    return known.get(str(value).lower(), LEAVE)


def _dtype(value: Any) -> Any:  # noqa: ANN401 (configuration)
    known = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    return LEAVE if value is None else known.get(str(value), value)


def _engine(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None else str(value).removesuffix("_v6").removesuffix("_async")


def _batch(role: str | None, *, is_global: bool) -> tuple[Key, ...]:
    return (
        Key("training.micro_batch_size", _stated, role),
        Key("training.micro_batch_is_global", lambda value: LEAVE if value is None else is_global, role),
    )


def _score(*, is_global: bool) -> tuple[Key, ...]:
    return (
        Key("rollout.log_prob_micro_batch_size", _stated),
        Key("rollout.log_prob_micro_batch_is_global", lambda value: LEAVE if value is None else is_global),
    )


def _parallel(prefix: str, role: str) -> Table:
    """Return the keys that split one model over ranks: Ulysses, FSDP's own sizes, Megatron's."""
    megatron = prefix + "megatron."
    return {
        prefix + "strategy": (
            Key("training.sharding", _sharding, role),
            Key("training.fsdp_version", _fsdp_version, role),
        ),
        prefix + "ulysses_sequence_parallel_size": Key("training.context_parallel", _stated, role),
        megatron + "tensor_model_parallel_size": Key("training.tensor_parallel", _stated, role),
        megatron + "pipeline_model_parallel_size": Key("training.pipeline_parallel", _stated, role),
        megatron + "context_parallel_size": Key("training.context_parallel", _stated, role),
        megatron + "expert_model_parallel_size": Key("training.expert_parallel", _stated, role),
        megatron + "param_offload": Key("training.offload_param", on_host, role),
        megatron + "optimizer_offload": Key("training.offload_optimizer", on_host, role),
    }


def _fsdp(prefix: str, role: str) -> Table:
    """Return the keys of one ``fsdp_config`` section."""
    mixed = prefix + "mixed_precision."
    return {
        prefix + "param_offload": Key("training.offload_param", on_host, role),
        prefix + "optimizer_offload": Key("training.offload_optimizer", on_host, role),
        prefix + "offload_policy": Key("training.fsdp_offload_params", lambda on: True if on is True else LEAVE, role),
        prefix + "fsdp_size": Key("training.hsdp_shard_size", positive, role),
        prefix + "reshard_after_forward": Key("training.fsdp_reshard_after_forward", _stated, role),
        prefix + "use_orig_params": Key("training.fsdp_use_orig_params", _stated, role),
        prefix + "model_dtype": Key("training.param_dtype", _dtype, role),
        mixed + "param_dtype": Key("training.compute_dtype", _dtype, role),
        mixed + "reduce_dtype": Key("training.reduce_dtype", _dtype, role),
    }


TABLE: Table = {
    "algorithm.adv_estimator": Key("training.trainer", _trainer),
    "data.max_prompt_length": Key("training.max_prompt_length", _stated),
    "data.max_start_length": Key("training.max_start_length", _stated),
    "data.max_response_length": Key("training.max_response_length", _stated),
    "trainer.n_gpus_per_node": Key("hardware.gpus_per_node", _stated),
    "trainer.nnodes": Key("hardware.nodes", _stated),
    _M + "trust_remote_code": Key("model.trust_remote_code", _stated),
    _M + "override_config.attn_implementation": Key("model.attn_implementation", _stated),
    _M + "enable_gradient_checkpointing": Key("training.gradient_checkpointing", _stated, ACTOR),
    _M + "enable_activation_offload": Key("training.activation_offloading", _stated, ACTOR),
    _M + "use_remove_padding": tuple(Key("training.use_remove_padding", _stated, role) for role in (ACTOR, REFERENCE)),
    _M + "use_liger": tuple(Key("training.use_liger_kernel", _stated, role) for role in (ACTOR, REFERENCE)),
    _M + "use_fused_kernels": tuple(Key("training.loss_implementation", _fused, role) for role in (ACTOR, REFERENCE)),
    _M + "lora_rank": (Key("training.lora_rank", _stated, ACTOR), Key("training.peft", _adapter, ACTOR)),
    _M + "lora.rank": (Key("training.lora_rank", positive, ACTOR), Key("training.peft", _adapter, ACTOR)),
    _M + "target_modules": Key("training.lora_target_modules", stated, ACTOR),
    _A + "ppo_micro_batch_size": _batch(ACTOR, is_global=True),
    _A + "ppo_micro_batch_size_per_gpu": _batch(ACTOR, is_global=False),
    _A + "entropy_coeff": Key("training.entropy_coefficient", _stated, ACTOR),
    _A + "kl_loss_coef": Key("training.kl_coefficient", _stated, ACTOR),
    _A + "use_kl_loss": Key("training.reference_model", lambda on: True if on is True else LEAVE),
    "algorithm.use_kl_in_reward": Key("training.reference_model", lambda on: True if on is True else LEAVE),
    _A + "optim.optimizer": Key("training.optimizer", _optimizer, ACTOR),
    **_parallel(_A, ACTOR),
    **_fsdp(_A + "fsdp_config.", ACTOR),
    _F + "log_prob_micro_batch_size": _batch(REFERENCE, is_global=True),
    _F + "log_prob_micro_batch_size_per_gpu": _batch(REFERENCE, is_global=False),
    **_parallel(_F, REFERENCE),
    **_fsdp(_F + "fsdp_config.", REFERENCE),
    _R + "name": Key("rollout.engine", _engine),
    _R + "tensor_model_parallel_size": Key("rollout.tensor_parallel", _stated),
    _R + "expert_parallel_size": Key("rollout.expert_parallel", _stated),
    _R + "gpu_memory_utilization": Key("rollout.gpu_memory_utilization", _stated),
    _R + "enforce_eager": Key("rollout.enforce_eager", _stated),
    _R + "free_cache_engine": Key("rollout.free_cache_engine", _stated),
    _R + "max_num_seqs": Key("rollout.max_num_seqs", _stated),
    _R + "max_num_batched_tokens": Key("rollout.max_num_batched_tokens", _stated),
    _R + "layered_summon": Key("rollout.layered_summon", _stated),
    _R + "n": Key("rollout.n", _stated),
    _R + "n_agent": Key("training.num_generations", _stated),
    _R + "log_prob_micro_batch_size": _score(is_global=True),
    _R + "log_prob_micro_batch_size_per_gpu": _score(is_global=False),
    "critic.ppo_micro_batch_size": _batch(CRITIC, is_global=True),
    "critic.ppo_micro_batch_size_per_gpu": _batch(CRITIC, is_global=False),
    "critic.model.enable_gradient_checkpointing": Key("training.gradient_checkpointing", _stated, CRITIC),
    "critic.model.enable_activation_offload": Key("training.activation_offloading", _stated, CRITIC),
    "critic.model.use_remove_padding": Key("training.use_remove_padding", _stated, CRITIC),
    "critic.model.lora_rank": (Key("training.lora_rank", _stated, CRITIC), Key("training.peft", _adapter, CRITIC)),
    "critic.model.target_modules": Key("training.lora_target_modules", stated, CRITIC),
    "critic.optim.optimizer": Key("training.optimizer", _optimizer, CRITIC),
    **_parallel("critic.", CRITIC),
    **_fsdp("critic.model.fsdp_config.", CRITIC),
    **_fsdp("critic.fsdp.", CRITIC),
    "reward_model.micro_batch_size": _batch(REWARD, is_global=True),
    "reward_model.micro_batch_size_per_gpu": _batch(REWARD, is_global=False),
    "reward_model.model.use_remove_padding": Key("training.use_remove_padding", _stated, REWARD),
    **_parallel("reward_model.", REWARD),
    **_fsdp("reward_model.model.fsdp_config.", REWARD),
}
"""Key → meaning, over verl 0.1 to 0.9.1 and its forks."""

MODELS = {_M + "path": "model", "critic.model.path": "model:critic", "reward_model.model.path": "model:reward"}

SFT_TABLE: Table = {
    "data.micro_batch_size": (
        Key("training.micro_batch_size", _stated),
        Key("training.micro_batch_is_global", lambda value: LEAVE if value is None else True),
    ),
    "data.micro_batch_size_per_gpu": _batch(None, is_global=False),
    "data.train_batch_size": Key("training.global_batch_size", _stated),
    "data.max_length": Key("training.sequence_length", _stated),
    "model.enable_gradient_checkpointing": Key("training.gradient_checkpointing", _stated),
    "model.use_liger": Key("training.use_liger_kernel", _stated),
    "model.trust_remote_code": Key("model.trust_remote_code", _stated),
    "model.lora_rank": (Key("training.lora_rank", _stated), Key("training.peft", _adapter)),
    "model.target_modules": Key("training.lora_target_modules", stated),
    "model.strategy": (Key("training.sharding", _sharding), Key("training.fsdp_version", _fsdp_version)),
    "model.fsdp_config.cpu_offload": Key("training.fsdp_offload_params", _stated),
    "model.fsdp_config.model_dtype": Key("training.param_dtype", _dtype),
    "ulysses_sequence_parallel_size": Key("training.context_parallel", _stated),
    "use_remove_padding": Key("training.use_remove_padding", _stated),
}
"""Keys of ``verl.trainer.fsdp_sft_trainer``."""

_SEARCH_R1 = {
    "actor_rollout_ref.actor.state_masking", "actor_rollout_ref.rollout.n_agent", "algorithm.no_think_rl",
    "data.max_obs_length", "data.max_start_length", "do_search", "max_turns", "retriever.topk", "retriever.url",
}  # fmt: skip
"""Keys only Search-R1 has."""
_PROJECTS = {"search-r1": "search-r1", "grpo_logic_kk": "logic-rl", "tinyzero": "tinyzero", "logic-rl": "logic-rl"}
"""Project names in the scripts of forks whose keys are all verl's own."""


def recognise(launch: Launch) -> str | None:
    """Tell which trainer of verl a launch starts: ``rl``, ``sft``, or None."""
    words = [word.text or word.written for word in launch.arguments]
    if any(word.lstrip("+~'\"").startswith("actor_rollout_ref.") for word in words):
        return "rl"
    name = launch.program
    if launch.kind == "module" and re.fullmatch(r"verl\.trainer\.(main_ppo\w*)", name):
        return "rl"
    if re.search(r"(^|[./])(fsdp_sft_trainer|sft_trainer)(\.py)?$", name) and "verl" in name:
        return "sft"
    return None


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch of verl."""
    overrides = parse_overrides(launch.arguments)
    options = {key: interpolate(key, overrides.values) or argument for key, argument in overrides.values.items()}
    skipped = tuple(skip_refused(overrides.refused))
    references = tuple(_configurations(overrides))
    source = launch.command.source
    if kind == "sft":
        program = Program("verl", SFT_TABLE, is_plain, {"model.partial_pretrain": "model"})
        known = (Statement("training.trainer", "(program)", "sft"), *_of_supervised(launch, options))
        return (make_command_document(program, source, options, Beyond(known, references, skipped, overrides.unknown)),)
    table, models = table_for(options)
    program = Program(tell_fork(launch, options), table, is_plain, models)
    known = tuple(infer(options, overrides))
    return (make_command_document(program, source, options, Beyond(known, references, skipped, overrides.unknown)),)


def _of_supervised(launch: Launch, options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say what ``fsdp_sft_trainer`` does without being asked.

    It always shards with FSDP, in float32 unless ``model_dtype`` says otherwise, and takes four sequences of 1,024 tokens a
    rank: ``verl/trainer/fsdp_sft_trainer.py`` and ``config/sft_trainer.yaml`` of v0.2.0.post2 to v0.7.0, which agree.
    """
    if "fsdp_sft_trainer" not in launch.program:
        return
    key = "(program fsdp_sft_trainer)"
    if "model.strategy" not in options:
        yield Statement("training.sharding", key, "fsdp")
    yield Statement("training.compute_dtype", key, "bfloat16")
    yield Statement("training.reduce_dtype", key, "float32")
    yield Statement("model.attn_implementation", key, "flash_attention_2")
    if "model.fsdp_config.model_dtype" not in options:
        yield Statement("training.param_dtype", "model.fsdp_config.model_dtype (left out)", "float32")
    if not {"data.micro_batch_size", "data.micro_batch_size_per_gpu"} & options.keys():
        left = "data.micro_batch_size_per_gpu (left out)"
        yield Statement("training.micro_batch_size", left, 4)
        yield Statement("training.micro_batch_is_global", left, value=False)
    if "data.max_length" not in options:
        yield Statement("training.sequence_length", "data.max_length (left out)", 1024)


def tell_fork(launch: Launch, options: Mapping[str, Argument]) -> str:
    """Tell verl itself from the forks that share its keys: by keys of their own, else by the project their scripts name."""
    if _SEARCH_R1 & options.keys():
        return "search-r1"
    if any(key.endswith("_per_gpu") for key in options):
        return "verl"
    words = [str(options[key].value).lower() for key in ("trainer.project_name",) if key in options]
    words += re.split(r"[/\\]", launch.command.source.path.lower())
    return next((fork for mark, fork in _PROJECTS.items() if mark in words), "verl")


def value_of(options: Mapping[str, Argument], key: str) -> object:
    """Return a known value, None otherwise."""
    argument = options.get(key)
    return argument.value if argument is not None and argument.why is None else None


def has_critic(options: Mapping[str, Argument]) -> bool:
    """Tell whether a value model is trained (``need_critic``, ``verl/trainer/ppo/utils.py``)."""
    enabled = value_of(options, "critic.enable")
    if isinstance(enabled, bool):
        return enabled
    estimator = options.get("algorithm.adv_estimator")
    return (
        estimator is None or estimator.value == "gae" or (estimator.why is not None and "critic.model.path" in options)
    )


def table_for(options: Mapping[str, Argument]) -> tuple[Table, dict[str, str]]:
    """Return the key table and the keys that name models, without the models this run does not have."""
    absent = set() if has_critic(options) else {CRITIC}
    if value_of(options, "reward_model.enable") is not True:
        absent.add(REWARD)
    table: Table = {}
    for key, entry in TABLE.items():
        meanings = (entry,) if isinstance(entry, Key) else entry
        table[key] = tuple(meaning for meaning in meanings if meaning.role not in absent)
    if value_of(options, _A + "use_dynamic_bsz") is True:
        _cut_by_length(table, _A + "ppo_max_token_len_per_gpu", ACTOR)
    if value_of(options, "critic.use_dynamic_bsz") is True or value_of(options, _A + "use_dynamic_bsz") is True:
        table["critic.ppo_micro_batch_size"] = table["critic.ppo_micro_batch_size_per_gpu"] = ()
        table["critic.ppo_max_token_len_per_gpu"] = (
            () if CRITIC in absent else Key("training.micro_batch_tokens", _stated, CRITIC)
        )
    models = {key: kind for key, kind in MODELS.items() if kind.partition(":")[2] not in absent}
    return table, models


def _cut_by_length(table: Table, key: str, role: str) -> None:
    """Read micro batches as counts of tokens, which ``use_dynamic_bsz`` makes them; the keys in sequences count for nothing."""
    for name in ("ppo_micro_batch_size", "ppo_micro_batch_size_per_gpu"):
        table[_A + name] = ()
    for section in (_R, _F):
        for name in ("log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu"):
            table[section + name] = ()
    table[key] = Key("training.micro_batch_tokens", _stated, role)
    table[_R + "log_prob_max_token_len_per_gpu"] = Key("rollout.log_prob_micro_batch_tokens", _stated)
    table[_F + "log_prob_max_token_len_per_gpu"] = Key("training.micro_batch_tokens", _stated, REFERENCE)


def infer(options: Mapping[str, Argument], overrides: Overrides) -> Iterator[Statement]:
    """Say what follows from several keys, or from a key that is left out where the chosen configuration settles it."""
    name = overrides.config_name
    base = "ppo_trainer" if name is None else str(name.value).removesuffix(".yaml")
    engine = overrides.values.get("model_engine") or overrides.groups.get("model_engine")
    key = "--config-name (left out)" if name is None else "--config-name"
    if engine is not None and engine.value == "megatron":
        base, key = "ppo_megatron_trainer", "model_engine"
    roles = [ACTOR, REFERENCE, *([CRITIC] if has_critic(options) else [])]
    yield from name_roles(roles)
    strategy = value_of(options, _A + "strategy")
    for role, section in ((ACTOR, _A), (REFERENCE, _F), (CRITIC, "critic.")):
        if role not in roles or section + "strategy" in options:
            continue
        if role == REFERENCE and isinstance(strategy, str):
            yield from _sharded(strategy, _A + "strategy", role)
        elif base in {"ppo_trainer", "ppo_megatron_trainer"}:
            yield from _sharded("megatron" if "megatron" in base else "fsdp", key, role)
    if "algorithm.adv_estimator" not in options and base in {"ppo_trainer", "ppo_megatron_trainer"}:
        yield Statement("training.trainer", "algorithm.adv_estimator (left out)", "ppo")
    terms = [key for key in (_A + "use_kl_loss", "algorithm.use_kl_in_reward") if key in options]
    if terms and all(value_of(options, key) is False for key in terms):
        yield Statement(None, "(no KL term)", True)
    forward = "(only run forward)"
    frozen = [REFERENCE, *([REWARD] if value_of(options, "reward_model.enable") is True else [])]
    for role in frozen:
        yield Statement("training.gradient_checkpointing", forward, False, role)
        yield Statement("training.offload_optimizer", forward, None, role)
        yield Statement("model.trainable_parameters", forward, 0, role)
        yield Statement("training.peft", forward, None, role)
    if value_of(options, _A + "use_dynamic_bsz") is True:
        yield from _left_out_tokens(options)
    sequences = _per_step(options)
    if sequences is not None:
        yield Statement("training.global_batch_size", _A + "ppo_mini_batch_size", sequences, ACTOR)
        if has_critic(options) and "critic.ppo_mini_batch_size" not in options:
            yield Statement("training.global_batch_size", "critic.ppo_mini_batch_size (left out)", sequences, CRITIC)
    generated = _generated(options)
    if generated is not None:
        yield Statement("rollout.global_batch_size", "data.train_batch_size", generated)


def _left_out_tokens(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say what limits in tokens are where they are left out: the actor's for scoring (``trainer/config/ppo_trainer.yaml``)."""
    key = _A + "ppo_max_token_len_per_gpu"
    limit: object = _ACTOR_TOKENS
    if key in options:
        limit = value_of(options, key)
    else:
        yield Statement("training.micro_batch_tokens", f"{key} (left out)", limit, ACTOR)
    others: list[tuple[str, str, str | None, object]] = []
    others.append((_R + "log_prob_", "rollout.log_prob_micro_batch_tokens", None, limit))
    others.append((_F + "log_prob_", "training.micro_batch_tokens", REFERENCE, limit))
    if has_critic(options):
        others.append(("critic.ppo_", "training.micro_batch_tokens", CRITIC, _CRITIC_TOKENS))
    for section, fact, role, tokens in others:
        name = section + "max_token_len_per_gpu"
        if name not in options and isinstance(tokens, int):
            yield Statement(fact, f"{name} (left out)", tokens, role)


_ACTOR_TOKENS, _CRITIC_TOKENS = 16384, 32768
"""Defaults of ``ppo_max_token_len_per_gpu`` in verl 0.2 to 0.7 and Search-R1."""


def _sharded(strategy: str, key: str, role: str) -> Iterator[Statement]:
    if _sharding(strategy) is not LEAVE:
        yield Statement("training.sharding", key, _sharding(strategy), role)
    if _fsdp_version(strategy) is not LEAVE:
        yield Statement("training.fsdp_version", key, _fsdp_version(strategy), role)


def _per_step(options: Mapping[str, Argument]) -> int | None:
    """Count the sequences of one optimizer step: prompts of a mini batch × n, at most those of the whole batch.

    ``ppo_mini_batch_size`` counts prompts and is multiplied by ``rollout.n`` (``fsdp_workers.py``); a batch holds
    ``data.train_batch_size`` × n sequences, in Search-R1 × ``n_agent`` as well.
    """
    mini, generated = value_of(options, _A + "ppo_mini_batch_size"), _generated(options)
    n = 1 if _R + "n" not in options else value_of(options, _R + "n")
    if generated is None or not isinstance(mini, int) or not isinstance(n, int) or isinstance(mini, bool):
        return None
    return min(mini * n, generated)


def _generated(options: Mapping[str, Argument]) -> int | None:
    """Count the completions of one batch over all ranks: prompts × ``rollout.n``, in Search-R1 × ``n_agent`` as well."""
    count = 1
    for key, left_out in (("data.train_batch_size", None), (_R + "n", 1), (_R + "n_agent", 1)):
        value = left_out if key not in options else value_of(options, key)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        count *= value
    return count


def _configurations(overrides: Overrides) -> Iterator[tuple[str, str, str]]:
    """Name the YAML file a command composes from, where its directory is given."""
    path, name = overrides.config_path, overrides.config_name
    if path is None or name is None or not isinstance(path.value, str) or not isinstance(name.value, str):
        return
    if name.value.removesuffix(".yaml") in _OWN:
        return
    file = name.value if name.value.endswith((".yaml", ".yml")) else f"{name.value}.yaml"
    yield "verl", f"{path.value.rstrip('/')}/{file}", "--config-name"


_OWN = {"ppo_trainer", "ppo_megatron_trainer", "sft_trainer", "sft_trainer_engine"}
"""Configurations verl itself brings; their defaults are rows of its table."""


@lru_cache(maxsize=1)
def key_names() -> frozenset[str]:
    """Return the last parts of verl's keys."""
    from compatcheck.frameworks.verl.names import VERL_KEY_NAMES  # noqa: PLC0415 (long; only for verl)

    return frozenset(VERL_KEY_NAMES.split())


_SECTIONS = ("actor_rollout_ref.", "critic.", "reward_model.")
_FREE = (
    "reward_model.reward_kwargs.",
    "reward_model.overlong_buffer",
    ".override_optimizer_config.",
    ".override_config.",
    ".engine_kwargs.",
    ".override_transformer_config.",
    ".override_ddp_config.",
    ".megatron.override",
)


def is_plain(key: str) -> bool:
    """Tell whether a key is one of verl's that has no bearing on memory, or a recipe's own outside the models' sections."""
    if key.rpartition(".")[2] in key_names() or any(part in key for part in _FREE):
        return True
    return not key.startswith(_SECTIONS) and nearest(key, list(TABLE)) is None


def recognise_data(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of verl."""
    return "actor_rollout_ref" in data


def read_data(data: Mapping[str, Any], path: str) -> Document:
    """Translate a configuration file of verl: one that a command composes from, or a complete one."""
    source = Source(path)
    leaves = {key: value for key, value in flatten(data, stop=_WHOLE) if not key.startswith(("defaults", "hydra."))}
    options = {key: Argument(_follow(value, leaves), None) for key, value in leaves.items()}
    table, models = table_for(options)
    overrides = Overrides(options, {}, {}, None, Argument("", None), (), ())
    reader = "search-r1" if _SEARCH_R1 & options.keys() else "verl"
    translation = translate(
        ((key, argument.value) for key, argument in options.items() if key not in models),
        table,
        irrelevant=is_plain,
        source=source,
    )
    references = tuple(
        (kind, str(options[key].value), key)
        for key, kind in models.items()
        if key in options and isinstance(options[key].value, str)
    )
    statements = (*translation.statements, *infer(options, overrides))
    return Document(reader, source, statements, translation.unread, translation.skipped, references)


_WHOLE = ("actor_rollout_ref.rollout.engine_kwargs", "actor_rollout_ref.model.override_config.rope_scaling")
_POINTER = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,\s*([^{}]*))?\}")


def _follow(value: object, leaves: Mapping[str, object], depth: int = 0) -> object:
    """Follow ``${other.key}`` and ``${oc.select:other.key,default}``; what leads nowhere stands for null."""
    match = _POINTER.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or depth > _MAX_DEPTH:
        return value
    if match[1] in leaves:
        return _follow(leaves[match[1]], leaves, depth + 1)
    return None if match[2] is None else parse_value(match[2].strip())


_MAX_DEPTH = 16
