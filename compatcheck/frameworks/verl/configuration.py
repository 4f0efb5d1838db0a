"""verl's configurations (YAML): complete ones, and those that a command composes from; what follows from several keys at once.

Keys are read as the program that reads them means them. ``*_micro_batch_size`` counts sequences over all ranks in every
release; the forks (`forks`) multiply it by ``rollout.n`` as well (``verl/workers/fsdp_workers.py``), and
``*_micro_batch_size_per_gpu`` exists from 0.2. The critic is there for ``algorithm.adv_estimator=gae``, its default, and the
reference as `training.reference_model` tells.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import BENEATH, DEFAULTS, LEFT_OUT, Document, Gap, Statement, enclosing_keys
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.frameworks.composition import merge_options, retell, retell_counted
from compatcheck.frameworks.conversions import LEAVE, kernel, opens, state_nothing
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import (
    OptionMeanings,
    name_roles,
    state_forward_only,
    state_value_heads,
)
from compatcheck.frameworks.launch.hydra import gaps_of_choices, name_defaults, name_searched
from compatcheck.frameworks.launch.interpolation import follow_all
from compatcheck.frameworks.launch.values import Argument, value_of
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten
from compatcheck.frameworks.verl.forks import tell_fork
from compatcheck.rules.vocabulary import nearest, vocabulary

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

READER, LABEL = "verl", "verl"
ACTOR, CRITIC, REFERENCE, REWARD, TEACHER = "actor", "critic", "reference", "reward", "teacher"
_A, _M, _R, _F = (
    "actor_rollout_ref.actor.",
    "actor_rollout_ref.model.",
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.ref.",
)
_TEACHERS, _SOLE = "distillation.teacher_models.", "distillation.teacher_models.teacher_model."
MODELS = {
    _M + "path": "model",
    "critic.model.path": "model:critic",
    "reward_model.model.path": "model:reward",
    _SOLE + "model_path": "model:teacher",
}


def _resolved(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a key that states nothing when it is null, or is that of another key."""
    return LEAVE if value is None or (isinstance(value, str) and "${" in value) else value


def _attention(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if _resolved(value) is LEAVE else kernel(value)


def _engine(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return LEAVE if value is None else str(value).removesuffix("_v6").removesuffix("_async")


def _optimizer(name: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read the class of an optimizer, which another key finds the module for: by itself it writes none."""
    return TABLE.words["optimizer"].get(str(name).lower()) or opens(name)


CONVERSIONS = {"attention_given": _attention, "engine": _engine, "resolved": _resolved, "optimizer_class": _optimizer}
TABLE = KeyTable(
    __file__,
    conversions=CONVERSIONS,
    fields={f"{_M}override_config.": None, "critic.model.override_config.": "critic"},
)
"""Key → meaning, over verl 0.1 to 0.9.1 and its forks."""
_NAMES = Names(__file__)
_INNER = Names(__file__, "sections.txt")
"""Last parts of verl's keys."""


_CHOSEN = frozenset({
    "dp", "megatron", "hf_model", "legacy_data", "reward_manager", "rollout", "rollout_correction",
    *(f"{engine}_{part}" for engine in ("dp", "megatron", "${model_engine}")
      for part in ("actor", "critic", "ref", "reward_loop", "reward_model")),
})  # fmt: skip
"""Files that verl's own configurations compose from (verl/trainer/config of v0.5.0 to v0.9.0)."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of verl: one with its section, or one that composes from its own."""
    listed = data.get("defaults")
    return "actor_rollout_ref" in data or (isinstance(listed, list) and ("ppo_trainer" in listed or MEGATRON in listed))


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a configuration file of verl: one that a command composes from, or a complete one."""
    leaves = ((key, value) for key, value in flatten(data, stop=_WHOLE) if not key.startswith(("defaults.", "hydra.")))
    options = {key: Argument(value, None) for key, value in leaves}
    source = Source(path)
    beside = tuple(name_defaults(data))
    gaps = tuple(
        Gap(source._replace(key=DEFAULTS), f"composes from {one}, which is not at hand")
        for one in _composed(options)
        if one not in {*OWN, *beside}
    )
    if os.path.splitext(os.path.basename(path))[0].removeprefix("_generated_") not in OWN:
        gaps += gaps_of_choices(data, source, _CHOSEN)
    references = tuple((BENEATH if one in OWN else READER, f"{one}.yaml", DEFAULTS) for one in beside)
    searched = name_searched(data)
    file = Document(READER, source, (), gaps=gaps, references=references, options=options, searched=searched)
    return Reading(compose(file))


def compose(*documents: Document) -> tuple[Document, ...]:
    """Translate a file, or a command and the file that it composes from, as one configuration: what the command says wins."""
    whole = merge_options(documents)
    settled = follow_all({key: one for key, one in whole.items() if key != "defaults"}, absent_is_null=True)
    engine = settled.get("model_engine")
    composed = (one for document in documents for one in _composed(document.options))
    name = Argument(next((one for one in composed if one in OWN), ""), None)
    base = MEGATRON if value_of(settled, _A + "strategy") == "megatron" else name_base(name, engine)
    table, models = table_for(settled, base)
    command = documents[0] if documents[0].is_command else None
    reader = tell_reader(settled, base, None if command is None else command.source.path)
    meanings = OptionMeanings(reader, table, is_plain, models)
    inferred = tuple(infer(settled, name, engine, base))
    passed_on = frozenset(name for one in whole.values() for name in _POINTED.findall(str(one.value)))
    return tuple(
        _without_passed_on(
            retell_counted(
                document,
                whole,
                settled,
                meanings,
                (one for one in inferred if command is None or (one.key in command.options) == document.is_command),
            ),
            passed_on,
        )
        for document in documents
    )


def settle_by_file(document: Document, file: Document) -> Document:
    """Read a command anew whose estimator a checkout's own file sets otherwise than verl's: a critic, or none, follows from it.

    Args:
        document: of a command that composes from verl's own configuration.
        file: the one of that name in the checkout.
    """
    left, there, own = "algorithm.adv_estimator", document.options, file.options
    if left in there or left not in own or has_critic({left: own[left], **there}) == has_critic(there):
        return document
    settled = follow_all({**there, left: own[left]._replace(line=None)})
    engine = settled.get("model_engine")
    base = os.path.splitext(os.path.basename(file.source.path))[0].removeprefix("_generated_")
    name = Argument(base, None) if any(one.key == "--config-name" for one in document.statements) else None
    table, models = table_for(settled, base)
    reader = tell_reader(settled, base, document.source.path)
    known = infer(settled, name, engine, base)
    made = retell(document, settled, OptionMeanings(reader, table, is_plain, models), known)
    told = (one._replace(key=f"{left}{LEFT_OUT}") if one.key == left else one for one in made.statements)
    return made._replace(statements=tuple(told))


_POINTED = re.compile(r"\$\{([\w.]+)\}")


def _without_passed_on(document: Document, passed_on: frozenset[str]) -> Document:
    """Leave out of what nobody understood keys that others take their value from; of a file, a foreign section once."""
    own = {key.partition(".")[0] for key in TABLE}
    kept = (one for one in document.unread if one[0] not in passed_on)
    if not document.is_command:
        kept = (one if (section := one[0].partition(".")[0]) in own else (section, None) for one in kept)
    return document._replace(unread=tuple(dict.fromkeys(kept)))


def _composed(options: Mapping[str, Argument]) -> Iterator[str]:
    """Name the configurations that a file composes from; choices of groups are verl's own parts of them."""
    listed = value_of(options, "defaults")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, str) and one != "_self_" and "@" not in one:
            yield one.removesuffix(".yaml")
        elif isinstance(one, dict):
            engines = {str(choice).partition("_")[0] for choice in one.values()}
            yield from {"ppo_trainer"} if "dp" in engines else {MEGATRON} if "megatron" in engines else ()


def tell_reader(options: Mapping[str, Argument], base: str, script: str | None = None) -> str:
    """Tell whose defaults a configuration or a command has: verl's, those for Megatron, or a fork's."""
    fork = tell_fork(options, script)
    return f"{READER}-megatron" if fork == READER and base == MEGATRON else fork


_WHOLE = ("actor_rollout_ref.model.override_config.rope_scaling",)


def has_critic(options: Mapping[str, Argument]) -> bool:
    """Tell whether a value model is trained (``need_critic``, ``verl/trainer/ppo/utils.py``)."""
    enabled = value_of(options, "critic.enable")
    if isinstance(enabled, bool):
        return enabled
    estimator = options.get("algorithm.adv_estimator")
    return (
        estimator is None or estimator.value == "gae" or (estimator.why is not None and "critic.model.path" in options)
    )


REWARD_LOOP = "reward_model.use_reward_loop"


def has_reward_worker(options: Mapping[str, Argument]) -> bool:
    """Tell whether a worker runs a reward model: the reward loop of 0.7 serves it with an engine (``RewardModelManager``)."""
    return value_of(options, "reward_model.enable") is True and value_of(options, REWARD_LOOP) is not True


def has_teacher(options: Mapping[str, Argument]) -> bool:
    """Tell whether one other model scores what was generated; of several, each for data of its own, none is read."""
    several = any(key.startswith(_TEACHERS) and not key.startswith(_SOLE) for key in options)
    return value_of(options, "distillation.enabled") is True and not several


_INFERENCE = {
    "tensor_model_parallel_size": 2,
    "gpu_memory_utilization": 0.5,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 1024,
    "enforce_eager": True,
}
"""Settings of a teacher's engine where they are left out: trainer/config/distillation/distillation.yaml of 0.8.0 to 0.9.1."""


def _left_out_of_inference(options: Mapping[str, Argument]) -> Iterator[Statement]:
    keys = {f"{_SOLE}inference.{name}": value for name, value in _INFERENCE.items()} if has_teacher(options) else {}
    for key, value in keys.items():
        if key not in options:
            yield Statement(TABLE[key][0].fact, key + LEFT_OUT, value, TEACHER)


def table_for(options: Mapping[str, Argument], base: str) -> tuple[Table, dict[str, str]]:
    """Return the key table and the keys that name models, without the models this run does not have.

    Megatron's workers never read what asks FSDP's to compute activations again, to move them or to remove padding, which they
    always do (``workers/megatron_workers.py``, ``models/mcore/model_forward.py``).
    """
    absent = set() if has_critic(options) else {CRITIC}
    if not has_reward_worker(options):
        absent.add(REWARD)
    if not has_teacher(options):
        absent.add(TEACHER)
    table: Table = {
        key: tuple(meaning for meaning in meanings if meaning.role not in absent) for key, meanings in TABLE.items()
    }
    for cut in _CUTS:
        decider = next((key for key in cut.switches if key in options), None)
        if decider is None or value_of(options, decider) is False:
            continue
        counted = tuple(f"{cut.sequences}{suffix}" for suffix in ("", "_per_gpu"))
        if options[decider].why is None:
            table[cut.limits[0]] = () if cut.role in absent else (Key(cut.fact, _resolved, cut.role),)
        else:  # what it decides is open with it
            table[decider] = (*table.get(decider, ()), *table[counted[0]])
        table.update(dict.fromkeys(counted, SILENT))
    for key, fact, role in (
        (_MINI, "training.global_batch_size", ACTOR),
        (_PROMPTS, "rollout.global_batch_size", None),
    ):
        table[key] = (Key(fact, state_nothing, role),)  # open with it; `infer` says what it is with others
    for section in (_A, "critic."):
        settle_offload(table, options, section, section + "megatron.optimizer_offload")
    for key in options.keys() & table.keys():
        outer = key.replace(".fsdp_config.", ".").replace(".fsdp.", ".")
        if outer != key and outer in table and outer in options and options[outer].why is None:
            asked = options[outer].value  # the engine's own key counts where the other one asks for nothing
            table[outer if asked in (None, False, 1) else key] = SILENT
    if (value_of(options, _A + "strategy") or base) in ("megatron", MEGATRON):
        keys = ("enable_gradient_checkpointing", "enable_activation_offload", "use_remove_padding")
        table.update(dict.fromkeys((section + key for section in (_M, "critic.model.") for key in keys), SILENT))
    if tell_fork(options) != "search-r1":  # whoever has the key of Search-R1 appends in a way of its own
        table["data.max_start_length"] = (Key("training.sequence_length", opens),)
    if "trainer.v1.trainer_mode" in options:
        table["actor_rollout_ref.hybrid_engine"] = SILENT
    models = {key: kind for key, kind in MODELS.items() if kind.partition(":")[2] not in absent}
    return table, models


def settle_offload(table: Table, options: Mapping[str, Argument], section: str, moved: str) -> None:
    """Read Megatron's own offloading of the optimizer, or what verl moves while a model waits (key ``moved``)."""
    override = f"{section}optim.override_optimizer_config."
    switch = f"{override}optimizer_cpu_offload"
    on = False if switch not in options else value_of(options, switch)
    if on is not False:
        table[moved] = SILENT
    if on is not True:
        table[f"{override}optimizer_offload_fraction"] = SILENT


class _Cut(NamedTuple):
    """Batches of one model that may be cut by their length instead of counted in sequences."""

    switches: tuple[str, ...]
    """Its own first, then those it follows where it is left out (``trainer/config/ppo_trainer.yaml``)."""
    sequences: str
    """Key in sequences, which counts for nothing then, nor with ``_per_gpu`` behind it."""
    limits: tuple[str, ...]
    """Limit in tokens, and those it follows where it is left out."""
    tokens: int
    """Default of the last of them, in verl 0.2 to 0.9 and Search-R1."""
    role: str | None
    fact: str = "training.micro_batch_tokens"


_DYNAMIC, _LIMIT = _A + "use_dynamic_bsz", _A + "ppo_max_token_len_per_gpu"
_CUTS = (
    _Cut((_DYNAMIC,), _A + "ppo_micro_batch_size", (_LIMIT,), 16384, ACTOR),
    _Cut(
        (_R + "log_prob_use_dynamic_bsz", _DYNAMIC),
        _R + "log_prob_micro_batch_size",
        (_R + "log_prob_max_token_len_per_gpu", _LIMIT),
        16384,
        None,
        "rollout.log_prob_micro_batch_tokens",
    ),
    _Cut(
        (_F + "log_prob_use_dynamic_bsz", _DYNAMIC),
        _F + "log_prob_micro_batch_size",
        (_F + "log_prob_max_token_len_per_gpu", _LIMIT),
        16384,
        REFERENCE,
    ),
    _Cut(
        ("critic.use_dynamic_bsz", _DYNAMIC),
        "critic.ppo_micro_batch_size",
        ("critic.ppo_max_token_len_per_gpu",),
        32768,
        CRITIC,
    ),
    _Cut(
        ("reward_model.use_dynamic_bsz", "critic.use_dynamic_bsz", _DYNAMIC),
        "reward_model.micro_batch_size",
        (
            "reward_model.forward_max_token_len_per_gpu",
            "critic.forward_max_token_len_per_gpu",
            "critic.ppo_max_token_len_per_gpu",
        ),
        32768,
        REWARD,
    ),
)


MEGATRON = "ppo_megatron_trainer"
OWN = frozenset({"ppo_trainer", MEGATRON, "sft_trainer", "sft_trainer_engine"})
"""Configurations verl itself brings; their defaults are rows of its table."""
_CRITICS = ("critic.model.fsdp_config.", "critic.fsdp.")


def name_base(name: Argument | None, engine: Argument | None) -> str:
    """Name the configuration that a command composes from; empty where it is for a back end that nobody read."""
    if engine is not None and engine.value != "dp":
        return MEGATRON if engine.value == "megatron" else ""
    return "ppo_trainer" if name is None else str(name.value).removesuffix(".yaml")


def _tell_back_end(options: Mapping[str, Argument], base: str) -> tuple[str, str] | None:
    """Return a key that only configurations for one back end have, and that back end.

    Hydra refuses a key of another section, and all models have one back end.
    """
    fsdp = next((key for key in options if key.startswith((_A + "fsdp_config.", _F + "fsdp_config.", *_CRITICS))), None)
    if fsdp is not None and base != MEGATRON:
        return fsdp, "fsdp"
    megatron = next((key for key in options if key.startswith((_A + "megatron.", _F + "megatron."))), None)
    return None if megatron is None or base in OWN else (megatron, "megatron")


def infer(
    options: Mapping[str, Argument], name: Argument | None, engine: Argument | None, base: str
) -> Iterator[Statement]:
    """Say what follows from several keys, or from a key that is left out where the chosen configuration settles it.

    Args:
        options: by key.
        name: of the configuration a command composes from; None where it is left out.
        engine: the choice of the group ``model_engine``.
        base: the configuration it composes from; empty where it is a program's own.
    """
    key = "--config-name (left out)" if name is None else "--config-name"
    if engine is not None and engine.value == "megatron":
        key = "model_engine"
    roles = [ACTOR, REFERENCE, *([CRITIC] if has_critic(options) else [])]
    yield from name_roles(roles[:2])
    if CRITIC in roles:
        estimator = "algorithm.adv_estimator"
        yield Statement(None, f"{estimator} (left out)" if estimator not in options else estimator, True, CRITIC)
    strategy = value_of(options, _A + "strategy")
    told = _tell_back_end(options, base)
    frozen = [REFERENCE]
    if base and has_reward_worker(options):  # a program of its own may train it: recipe/prime
        frozen.append(REWARD)
    for role, section in ((ACTOR, _A), (REFERENCE, _F), (CRITIC, "critic."), (REWARD, "reward_model.")):
        if role not in (*roles, *frozen) or section + "strategy" in options:
            continue
        if role == REFERENCE and _A + "strategy" in options:
            yield from _sharded(str(strategy), _A + "strategy", role)
        elif base in {"ppo_trainer", "ppo_megatron_trainer"}:
            yield from _sharded("megatron" if base == MEGATRON else "fsdp", key, role, (section + "strategy",))
        if told is not None and not (role == REFERENCE and _A + "strategy" in options):
            yield Statement("training.sharding", *told, role)
    if "algorithm.adv_estimator" not in options and base in {"ppo_trainer", "ppo_megatron_trainer"}:
        yield Statement("training.trainer", "algorithm.adv_estimator (left out)", "ppo")
    terms = [key for key in (_A + "use_kl_loss", "algorithm.use_kl_in_reward") if key in options]
    if terms and all(value_of(options, key) is False for key in terms):
        yield Statement(None, "(no KL term)", tuple(terms))
    yield from state_value_heads((*roles, *frozen))
    for role in frozen:
        yield from state_forward_only(role)
        yield Statement("training.peft", "(only run forward)", None, role)
    yield from _left_out_of_inference(options)
    yield from _left_out_tokens(options, (*roles, *frozen))
    yield from _infer_batches(options)


def _infer_batches(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """Say how many sequences a step and a rollout have, and how long a first prompt may be that nothing cuts."""
    sequences = _per_step(options)
    once = tuple(key for key in (_R + "n", _R + "n_agent") if key not in options)
    start, prompt = "data.max_start_length", value_of(options, "data.max_prompt_length")
    if tell_fork(options) == "search-r1" and start not in options and isinstance(prompt, int):
        yield Statement("training.max_start_length", f"{start}{LEFT_OUT}", prompt)  # all that a prompt may be
    if sequences:
        yield Statement("training.global_batch_size", _MINI, sequences, ACTOR, once)
        if has_critic(options) and "critic.ppo_mini_batch_size" not in options:
            key = "critic.ppo_mini_batch_size (left out)"
            yield Statement("training.global_batch_size", key, sequences, CRITIC, once)
    prompts = _GENERATED_PROMPTS if _GENERATED_PROMPTS in options else _PROMPTS
    generated = _generated(options, prompts)
    if generated:  # 0 where prompts stream to the trainer: recipe/fully_async_policy
        yield Statement("rollout.global_batch_size", prompts, generated, None, once)


def _left_out_tokens(options: Mapping[str, Argument], roles: Container[str]) -> Iterator[Statement]:
    """Say what limits in tokens are where they are left out: those they follow, or the program's defaults."""
    for cut in _CUTS:
        decider = next((key for key in cut.switches if key in options), "")
        own, followed = cut.limits[0], next((key for key in cut.limits if key in options), None)
        if value_of(options, decider) is not True or own in options or not (cut.role is None or cut.role in roles):
            continue
        tokens = cut.tokens if followed is None else value_of(options, followed)
        if isinstance(tokens, int):
            yield Statement(cut.fact, f"{own}{LEFT_OUT}", tokens, cut.role)


def _sharded(strategy: str, key: str, role: str, without: tuple[str, ...] = ()) -> Iterator[Statement]:
    for words, fact in (("sharding", "training.sharding"), ("fsdp_version", "training.fsdp_version")):
        if strategy in TABLE.words[words]:
            yield Statement(fact, key, TABLE.words[words][strategy], role, without)


def _per_step(options: Mapping[str, Argument]) -> int | None:
    """Count the sequences of one optimizer step: prompts of a mini batch × n, at most those of the whole batch.

    ``ppo_mini_batch_size`` counts prompts and is multiplied by ``rollout.n`` (``fsdp_workers.py``); a batch holds
    ``data.train_batch_size`` × n sequences, in Search-R1 × ``n_agent`` as well.
    """
    mini, generated = value_of(options, _MINI), _generated(options)
    n = 1 if _R + "n" not in options else value_of(options, _R + "n")
    if not generated or not isinstance(mini, int) or not isinstance(n, int) or isinstance(mini, bool):
        return None
    return min(mini * n, generated)


_MINI = _A + "ppo_mini_batch_size"
_PROMPTS, _GENERATED_PROMPTS = "data.train_batch_size", "data.gen_batch_size"
"""Prompts of a batch, and those that are generated for at once where groups are filtered or the sampler draws others
(``verl/trainer/ppo/ray_trainer.py`` of 0.4.0 to 0.7.0, recipe/dapo)."""


def _generated(options: Mapping[str, Argument], prompts: str = _PROMPTS) -> int | None:
    """Count the completions of one batch over all ranks: prompts × ``rollout.n``, in Search-R1 × ``n_agent`` as well."""
    count = 1
    for key, left_out in ((prompts, None), (_R + "n", 1), (_R + "n_agent", 1)):
        value = left_out if key not in options else value_of(options, key)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        count *= value
    return count


_SECTIONS = ("actor_rollout_ref.", "critic.", "reward_model.")
_FREE = ("reward_model.reward_kwargs.", "reward_model.overlong_buffer", ".override_mcore_model_config.")

PASSED_ON = (
    ".engine_kwargs",
    ".override_ddp_config",
    ".override_optimizer_config",
    ".override_transformer_config",
)
"""Sections whose keys go to the engine or to Megatron as they are."""


def is_name(key: str) -> bool:
    """Tell whether the last part of a key is a name that one of verl's keys without bearing has."""
    name = key.rpartition(".")[2]
    return name in _NAMES or name == "_target_"


_KNOWN = frozenset({key.partition(".")[0] for key in _SECTIONS}) | {
    "algorithm", "async_training", "custom_reward_function", "data", "distillation", "global_profiler", "prime_model",
    "ray_init", "ray_kwargs", "recipe", "reward", "reward_manager", "reward_models", "rollout", "teacher", "trainer",
    "transfer_queue",
}  # fmt: skip
"""Sections of verl's configurations and of its recipes'."""
_TOP = frozenset({"do_search", "max_turns", "model_engine", "retriever"})


def is_plain(key: str) -> bool:
    """Tell whether a key is one of verl's that has no bearing on memory, or a recipe's own outside the models' sections."""
    section, dot, _ = key.partition(".")
    if section not in (_KNOWN | _TOP if dot else _TOP):
        return False
    if any(f"{part}." in key for part in PASSED_ON):  # may say in other words what a key of verl's own says
        return is_name(key) and key.rpartition(".")[2] not in {
            known.rpartition(".")[2] for known in TABLE if not any(f"{part}." in known for part in PASSED_ON)
        }
    if ".override_config." in key:  # of the model's own configuration
        return f"model.{key.rpartition('.')[2]}" not in vocabulary()
    if any(part in key for part in _FREE):
        return True
    if is_name(key):
        return all(outer.rpartition(".")[2] in _INNER for outer in enclosing_keys(key))
    return not key.startswith((*_SECTIONS, "algorithm.", "data.")) and nearest(key, list(TABLE)) is None
