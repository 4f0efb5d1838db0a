"""OpenRLHF's command lines, in both spellings: ``--micro_train_batch_size`` and, from 0.10.2, ``--train.micro_batch_size``.

With Ray every model has GPUs of its own, so that ranks are facts of a role. The critic is there for the estimator ``gae`` only,
the reference unless the KL coefficient is zero (from 0.8.1, always before), the reward model unless rewards come from a
server (``cli/train_ppo_ray.py`` at v0.5.9.post1, v0.8.1 and v0.10.4). Reference and reward model keep ZeRO stage 3 and drop
any other (``get_ds_eval_config``, ``utils/deepspeed/deepspeed.py``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement, Unresolved
from compatcheck.frameworks.conversions import LEAVE, opens
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import (
    FurtherContent,
    OptionMeanings,
    make_command_document,
    state_forward_only,
    state_value_heads,
)
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from compatcheck.core.document import Document
    from compatcheck.frameworks.conversions import Convert
    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

READER = "openrlhf"
_PROGRAMS = {"sft": "sft", "dpo": "dpo", "kto": "kto", "rm": "reward", "prm": "prm"}
"""``train_X`` → training algorithm; knowledge distillation (``kd``) has no name in the vocabulary."""
_TRAINED = ("actor", "critic")
_FROZEN = ("reference", "reward")


_EVERY = KeyTable(__file__)
"""Options that hold for every model, in their two spellings."""
_OF_TRAINING = KeyTable(__file__, "training_keys.txt")
"""Options about the models that are trained."""
NAMES = Names(__file__)
SWITCHES = Names(__file__, "switches.txt")
"""Options that take no value."""
_TOKENS = {
    ("train_max_tokens_per_gpu", "train.max_tokens_per_gpu"): "training.micro_batch_tokens",
    ("rollout_max_tokens_per_gpu", "rollout.max_tokens_per_gpu"): "rollout.log_prob_micro_batch_tokens",
}
"""Options that count with dynamic batches only."""
_TOGETHER = (
    (("colocate_actor_ref", "train.colocate_actor_ref"), "reference", "actor"),
    (("colocate_critic_reward", "train.colocate_critic_reward"), "reward", "critic"),
)
"""Options that put two models on the same devices (``cli/train_ppo_ray.py``, placement groups): option, role, role it joins."""
_COLOCATE_ALL = ("colocate_all_models", "train.colocate_all")
_ASYNC = ("async_train", "train.async_enable")
"""With it ``colocate_all_models`` leaves the engines on devices of their own (``cli/train_ppo_ray.py``)."""
_DYNAMIC = ("use_dynamic_batch", "train.dynamic_batch_enable")
_TENSORS = ("ds_tensor_parallel_size", "ds.tensor_parallel_size")
_SHORT = {"actor": "actor", "critic": "critic", "reference": "ref", "reward": "reward"}

MODELS = {"pretrain": "model", "actor.model_name_or_path": "model", "model.model_name_or_path": "model"}
_CRITIC = ("critic_pretrain", "critic.model_name_or_path")
_REWARD = ("reward_pretrain", "reward.model_name_or_path", "reward_model_path")
_REMOTE = ("remote_rm_url", "reward.remote_url", "agent_func_path", "train.agent_func_path")


def recognise(launch: Launch) -> str | None:
    """Tell which program of OpenRLHF a launch starts: ``ppo_ray``, ``sft`` …; None for others."""
    match = re.search(r"(?:^|[./])train_(sft|dpo|kto|rm|prm|kd|ppo|ppo_ray)(?:\.py)?$", launch.program)
    if match is None:
        return None
    if "openrlhf" in launch.program:
        return match[1]
    names = {name for word in launch.arguments for name in [(word.text or "").removeprefix("--").partition("=")[0]]}
    return match[1] if len(names.intersection(_MARKS)) >= _ENOUGH else None


_MARKS = Names(__file__, "marks.txt")
_ENOUGH = 2


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch of OpenRLHF."""
    flags = parse_flags(launch.arguments, switches=SWITCHES)
    options = flags.options
    is_rl = kind in {"ppo", "ppo_ray"}
    roles = _roles(options) if is_rl else ()
    table, models = _table(options, roles)
    if _is_on(options, _ASYNC):
        table = {**table, **dict.fromkeys(_COLOCATE_ALL, ())}
    ray = (Statement(None, "(on Ray)", True),) if kind == "ppo_ray" else ()
    known = (*ray, *_of_roles(options, roles)) if is_rl else tuple(_of_program(kind))
    if kind == "ppo":  # without Ray all models are in every process (cli/train_ppo.py, v0.5.9)
        key = _WITHOUT_RAY if "openrlhf" in launch.program else "(all models in every process)"
        known = (Statement("rollout.colocated", key, True), Statement("rollout.engine", key, "hf"), *known)
    known = (*known, *_packed(options))
    further = FurtherContent(known, tuple(_critic_model(options, roles)), unknown=flags.unknown)
    meanings = OptionMeanings(READER, table, is_plain, models)
    document = make_command_document(meanings, launch.command.source, options, further)
    return (document._replace(unresolved=(*document.unresolved, _STEPS)),)


_WITHOUT_RAY = "openrlhf.cli.train_ppo"
"""A module that not every release has (``keys`` of ``rules/_programs/openrlhf.yaml``); of a fork nobody knows."""
_STEPS = Unresolved(
    "training.gradient_accumulation_steps",
    "(batch of the optimizer)",
    "follows from the number of ranks and the micro batch",
    follows=True,
)
"""DeepSpeed is given the whole batch and the micro batch (``get_ds_train_config``, ``utils/deepspeed/deepspeed.py``)."""


_ATTENTION = ("flash_attn", "attn_implementation", "ds.attn_implementation")


def _packed(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say that packing turns flash attention on where no option does (every ``cli/train_*.py``, v0.4.0 to v0.10.0)."""
    packed = _given(options, ("packing_samples", "ds.packing_samples"))
    if packed is not None and packed[1].value is True and _given(options, _ATTENTION) is None:
        yield Statement("model.attn_implementation", packed[0], "flash_attention_2")


def _critic_model(options: Mapping[str, Argument], roles: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Name the critic's model where it is left out: the reward model, else the policy's own (``train_ppo_ray.py``)."""
    reward = _given(options, _REWARD)
    if (
        "critic" in roles
        and _given(options, _CRITIC) is None
        and reward is not None
        and isinstance(reward[1].value, str)
    ):
        yield "model:critic", reward[1].value.split(",")[0], reward[0]


def _given(options: Mapping[str, Argument], names: tuple[str, ...]) -> tuple[str, Argument] | None:
    return next(((name, options[name]) for name in names if name in options), None)


def _is_on(options: Mapping[str, Argument], names: tuple[str, ...]) -> bool:
    given = _given(options, names)
    return given is not None and given[1].value is True


def _roles(options: Mapping[str, Argument]) -> tuple[str, ...]:
    estimator = _given(options, ("advantage_estimator", "algo.advantage.estimator"))
    roles = ["actor"]
    if estimator is None or estimator[1].value == "gae":
        roles.append("critic")
    roles.append("reference")
    if _given(options, _REWARD) is not None and _given(options, _REMOTE) is None:
        roles.append("reward")
    return tuple(roles)


def _select(keys: Iterable[Key], role: str) -> tuple[Key, ...]:
    return tuple(key for key in keys if key.role == role)


def _fill(options: Mapping[str, Argument]) -> Convert:
    """Make the conversion of a limit in tokens, which ranks of tensor parallelism lend each other, and each goes through all of.

    Source: v0.11.0 utils/seqlen_balancing.py get_minimum_num_micro_batch_size().
    """
    split = _given(options, _TENSORS)
    if split is not None and split[1].why is not None:
        return opens
    ranks = split[1].value if split is not None and type(split[1].value) is int else 1

    def fill(limit: object) -> object:
        return limit * ranks if type(limit) is int and limit > 0 else LEAVE

    return fill


def _table(options: Mapping[str, Argument], roles: tuple[str, ...]) -> tuple[Table, dict[str, str]]:
    trained: tuple[str | None, ...] = tuple(role for role in _TRAINED if role in roles) or (None,)
    table: Table = dict(_EVERY)
    for name, keys in _OF_TRAINING.items():
        table[name] = tuple(key._replace(role=role) for key in keys for role in trained)
    models = dict(MODELS)
    dynamic = _given(options, _DYNAMIC)
    if dynamic is not None and dynamic[1].value is True:
        for names, fact in _TOKENS.items():
            roles_of = trained if fact.startswith("training.") else (None,)
            table.update(dict.fromkeys(names, tuple(Key(fact, _fill(options), role) for role in roles_of)))
        for names in (
            ("micro_train_batch_size", "train.micro_batch_size"),
            ("micro_rollout_batch_size", "rollout.micro_batch_size"),
        ):
            table.update(dict.fromkeys(names, SILENT))
    if not roles:
        return table, models
    table["actor.optim"], table["critic.optim"] = (_select(table["optim"], role) for role in ("actor", "critic"))
    for role in roles:
        short = _SHORT[role]
        for name in (f"{short}_num_nodes", f"{short}.num_nodes"):
            table[name] = (Key("hardware.nodes", role=role),)
        for name in (f"{short}_num_gpus_per_node", f"{short}.num_gpus_per_node"):
            table[name] = (Key("hardware.gpus_per_node", role=role),)
    frozen = tuple(role for role in _FROZEN if role in roles)
    offload = _OF_TRAINING["adam_offload"][0]._replace(fact="training.offload_param")
    for name, of in (("ref_reward_offload", _FROZEN), ("ref.offload", ("reference",)), ("reward.offload", ("reward",))):
        table[name] = tuple(offload._replace(role=role) for role in of if role in roles)
    for name in ("micro_rollout_batch_size", "rollout.micro_batch_size"):
        forward = tuple(Key("training.micro_batch_size", None, role) for role in frozen)
        if table[name] != SILENT:
            table[name] = (*_EVERY[name], *forward)
    for name in ("bf16", "param_dtype", "ds.param_dtype"):
        table[name] = tuple(table[name][0]._replace(role=role) for role in roles)
    if "critic" in roles:
        models.update(dict.fromkeys(_CRITIC, "model:critic"))
    if "reward" in roles:
        models.update(dict.fromkeys(_REWARD, "model:reward"))
    return table, models


def _of_roles(options: Mapping[str, Argument], roles: tuple[str, ...]) -> Iterator[Statement]:
    """Say what the program does about its models without being asked."""
    names = ("advantage_estimator", "algo.advantage.estimator")
    estimator = _given(options, names)
    for role in roles:
        left_out = names if role == "critic" and estimator is None else ()
        yield Statement(None, "(a model of this run)", True, role, left_out)
    coefficient = _given(options, ("init_kl_coef", "algo.kl.init_coef"))
    if coefficient is not None and coefficient[1].why is None:
        on = bool(coefficient[1].value)
        key = coefficient[0]
        yield Statement("training.reference_model", key, True) if on else Statement(None, "(no KL term)", (key,))
    batch = _given(options, ("rollout_batch_size", "rollout.batch_size"))
    count = _given(options, ("n_samples_per_prompt", "rollout.n_samples_per_prompt"))
    samples = 1 if count is None else count[1].value
    if batch is not None and isinstance(batch[1].value, int) and isinstance(samples, int):
        once = ("n_samples_per_prompt", "rollout.n_samples_per_prompt") if count is None else ()
        yield Statement("rollout.global_batch_size", batch[0], batch[1].value * samples, None, once)
    pairs = [*_TOGETHER]
    apart = _given(options, _ASYNC)
    if apart is not None and apart[1].value is True and _is_on(options, _COLOCATE_ALL):
        yield Statement("rollout.colocated", apart[0], False)
        pairs = [(_COLOCATE_ALL, role, "actor") for role in roles if role != "actor"]
    for names, role, other in pairs:
        together = _given(options, names)
        if together is not None and together[1].value is True and role in roles and other in roles:
            yield Statement("training.colocated_with", together[0], other, role)
    yield from state_value_heads(roles)
    stage = _given(options, ("zero_stage", "ds.zero_stage"))
    for role in roles:
        if role not in _FROZEN:
            continue
        yield from state_forward_only(role)
        yield Statement("training.peft", "(only run forward)", None, role)
        if stage is None:
            yield Statement("training.zero_stage", "zero_stage (left out)", 0, role)
        elif stage[1].why is None and isinstance(stage[1].value, int):
            yield Statement("training.zero_stage", stage[0], 3 if stage[1].value == 3 else 0, role)


def _of_program(program: str) -> Iterator[Statement]:
    if program in _PROGRAMS:
        yield Statement("training.trainer", f"(program train_{program})", _PROGRAMS[program])
    if program in {"dpo", "kto"}:
        yield Statement("training.reference_model", f"(program train_{program})", True)


def is_plain(key: str) -> bool:
    """Tell whether an option is one of OpenRLHF's."""
    return key in NAMES or key == "local_rank" or _OF_OPTIMIZER.match(key) is not None


_OF_OPTIMIZER = re.compile(r"(actor|critic)\.(adam|muon)\.|(actor|critic)\.(lr_|min_lr|max_norm)")
"""Options that ``train_ppo_ray`` adds for both models in a loop (from 0.10.2)."""
