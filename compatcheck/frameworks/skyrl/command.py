"""SkyRL's command lines: ``uv run … -m skyrl.train.entrypoints.main_base key=value …``, and ``-m skyrl.train.main_sft``.

It has no files: a command is all of the configuration (``from_cli_overrides``, skyrl/train/config/config.py, 0.1.0 to 0.3.0).
``skyrl_train``, the package before it, composes from a file of its own with Hydra.
Programs of one's own run the same trainers with configurations that add keys (examples/train/*/main_*.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import LEFT_OUT, Document, Statement, Unresolved
from compatcheck.frameworks.conversions import opens, share
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import (
    FurtherContent,
    OptionMeanings,
    make_command_document,
    name_roles,
    skip_refused,
    state_forward_only,
    state_value_heads,
)
from compatcheck.frameworks.launch.hydra import gaps_of_groups, parse_overrides
from compatcheck.frameworks.launch.values import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.command import Word
    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

    Options = Mapping[str, Argument]

READER = "skyrl"
TABLE = KeyTable(__file__)
"""Keys of reinforcement learning."""
MODEL_TABLE = KeyTable(__file__, "model_keys.txt", fields={"model_config_kwargs.": None})
"""Keys in the section of one model."""
SFT_TABLE = KeyTable(__file__, "sft_keys.txt")
NAMES = Names(__file__)
MODEL_NAMES = Names(__file__, "model_names.txt")
SFT_NAMES = Names(__file__, "sft_names.txt")
ACTOR, CRITIC, REFERENCE = "actor", "critic", "reference"
SECTIONS = {"trainer.policy.": ACTOR, "trainer.critic.": CRITIC, "trainer.ref.": REFERENCE}
_T, _P, _G, _E = "trainer.", "trainer.placement.", "generator.", "generator.inference_engine."
_USUAL_MODEL = {"rl": "Qwen/Qwen2.5-1.5B-Instruct", "sft": "Qwen/Qwen3-0.6B"}
_READ = re.compile(
    r"skyrl\.|(^|[./])(main_(async|custom_adv_est|custom_policy_loss|dapo|dapo_fully_async|full_ctx|fully_async|llm_judge"
    r"|multiply|tis_dapo)|(visgym/|geometry3k_)entrypoint)(\.py)?$"
)
"""Programs that leave the length of a sequence to SkyRL's own generators (examples/train at a9564572)."""
_TRAIN_NOTHING = re.compile(r"(^|[./])(serve|main_\w*generate|api)(\.py)?$")


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts a trainer of SkyRL: ``rl``, ``sft``, or None."""
    if re.search(r"(^|[./])main_sft(_with_callbacks)?(\.py)?$", launch.program):
        return "sft"
    words = [word.text or word.written for word in launch.arguments]
    marked = any(word.lstrip("'\"").startswith((_P, "trainer.policy.model.", _E)) for word in words)
    return "rl" if marked and not _TRAIN_NOTHING.search(launch.program) else None


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch."""
    own, words = _take_flags(launch)
    overrides = parse_overrides(words)
    options = overrides.values
    table: Table = dict(SFT_TABLE if kind == "sft" else TABLE)
    megatron = _is_on_megatron(options, kind)
    if kind == "sft":
        models = {"model.path": "model"}
        table.update(_of_section(options, "", None, megatron=megatron))
        known = tuple(_of_supervised(options, table))
    else:
        roles = tuple(role for role in SECTIONS.values() if _has(options, role))
        models = {
            f"{name}model.path": f"model:{role}".removesuffix(":actor")
            for name, role in SECTIONS.items()
            if role in roles
        }
        for section, role in SECTIONS.items():
            meant = _of_section(options, section, role, megatron=megatron)
            table.update(meant if role in roles else dict.fromkeys((*meant, f"{section}model.path"), SILENT))
        known = (*_of_roles(options, table, roles), *_place(options, table, roles))
    model = next(iter(models))
    references = () if model in options else (("model", _USUAL_MODEL[kind], f"{model}{LEFT_OUT}"),)
    before = f"{READER}-train" if "skyrl_train" in launch.program else READER
    meanings = OptionMeanings(before if kind == "rl" else f"{READER}-sft", table, _plain(kind), models)
    gaps = gaps_of_groups(overrides, launch.command.source)
    further = FurtherContent(known, references, tuple(skip_refused(overrides.refused)), overrides.unknown, gaps)
    length = tuple(_leave_length(launch, table)) if kind == "rl" else ()
    document = make_command_document(meanings, launch.command.source, options, further)
    unread = tuple((flag, None) for flag in own if flag not in NAMES)
    return (document._replace(unread=(*document.unread, *unread), unresolved=(*document.unresolved, *length)),)


def _take_flags(launch: Launch) -> tuple[list[str], list[Word]]:
    """Take options of a program's own off its words: ``--env_variant sft`` is none of SkyRL's."""
    flags: list[str] = []
    words: list[Word] = []
    is_value = False
    for word in launch.arguments:
        if (word.text or "").startswith("--"):
            flags.append(str(word.text).partition("=")[0])
        elif not is_value or "=" in word.written:
            words.append(word)
        is_value = bool(flags) and word.text == flags[-1]
    return flags, words


def _plain(kind: str) -> Any:  # noqa: ANN401 (a test of keys)
    """Return what tells whether a key is known and has no bearing on memory."""
    if kind == "sft":
        return lambda key: key in SFT_NAMES or key in MODEL_NAMES

    def is_plain(key: str) -> bool:
        section = next((name for name in SECTIONS if key.startswith(name)), None)
        return key in NAMES or (section is not None and key.removeprefix(section) in MODEL_NAMES)

    return is_plain


def _has(options: Options, role: str) -> bool:
    """Tell whether a run has a model (``build_models``, skyrl/train/trainer.py): a critic that is named, a reference in use."""
    if role == CRITIC:
        critic = options.get("trainer.critic.model.path")
        return critic is not None and (critic.why is not None or bool(critic.value))
    unused = value_of(options, f"{_T}algorithm.use_kl_loss", True) is False
    return role == ACTOR or not (unused and value_of(options, f"{_T}algorithm.use_kl_in_reward", False) is False)


def _is_on_megatron(options: Options, kind: str) -> bool:
    key, left_out = ("strategy", "megatron") if kind == "sft" else (f"{_T}strategy", "fsdp")
    return str(value_of(options, key, left_out)) == "megatron"


def _of_section(options: Options, section: str, role: str | None, *, megatron: bool) -> Table:
    """Return what the keys of one model mean: those of the other back end say nothing.

    Megatron offloads a share of its optimizer where ``optimizer_cpu_offload`` is on, 0 unless one is stated
    (DEFAULT_MEGATRON_OPTIMIZER_KWARGS); without ``trainer.gradient_checkpointing`` its recomputation is off (`init_configs`).
    """
    table: Table = {}
    for key, meanings in MODEL_TABLE.items():
        silent = key.startswith(("fsdp_config.", "model_config_kwargs.") if megatron else "megatron_config.") or (
            megatron and key in {"optimizer_config.offload_after_step", "sequence_parallel_size"}
        )
        table[f"{section}{key}"] = SILENT if silent else tuple(meaning._replace(role=role) for meaning in meanings)
    optimizer = f"{section}megatron_config.optimizer_config_kwargs.optimizer_"
    if value_of(options, f"{optimizer}cpu_offload", left_out=False) is False:
        table[f"{optimizer}offload_fraction"] = SILENT
    if value_of(options, f"{_T}gradient_checkpointing", left_out=True) is False:
        table.update([(key, SILENT) for key in table if ".recompute_" in key])
    if value_of(options, f"{section}megatron_config.transformer_config_kwargs.recompute_granularity") != "selective":
        table[f"{section}megatron_config.transformer_config_kwargs.recompute_modules"] = SILENT
    return table


def _of_roles(options: Options, table: Table, roles: tuple[str, ...]) -> Iterator[Statement]:
    """Say which models there are and what batches they take, counted in completions."""
    yield from name_roles(roles)
    yield from state_value_heads(roles)
    if REFERENCE in roles:
        yield from state_forward_only(REFERENCE)
        yield Statement("training.peft", "(only run forward)", None, REFERENCE)
    drafts = f"{_T}mtp.enabled"
    if (
        value_of(options, drafts, left_out=False) is True
    ):  # the engine, too, proposes tokens (train/utils/utils.py _apply_mtp_config)
        yield Statement("rollout.speculation", drafts, value=True)
    kl = f"{_T}algorithm.use_kl_loss"
    if value_of(options, kl, left_out=True) is not False:
        table[f"{_T}algorithm.use_kl_in_reward"] = SILENT
    elif value_of(options, f"{_T}algorithm.use_kl_in_reward", left_out=False) is not False:
        table[kl] = SILENT
    entropy = f"{_T}algorithm.entropy_loss_coef"
    if value_of(options, f"{_T}algorithm.use_entropy_loss", left_out=False) is False:
        table[entropy] = SILENT
    for key in table:
        table[key] = tuple(one for one in table[key] if one.role in {None, *roles})
    turns = value_of(options, f"{_G}max_turns", 1)
    longer = f"{_G}max_input_length" in options and turns != 1
    table[f"{_T}max_prompt_length" if longer else f"{_G}max_input_length"] = SILENT
    _cut_by_length(options, table)
    if _is_on_megatron(options, "rl"):  # flash or fused attention, which keep no scores
        table[f"{_T}flash_attn"] = SILENT
    samples = value_of(options, f"{_G}n_samples_per_prompt", 5)
    for name, prompts, fact, role in (
        ("policy_mini_batch_size", 256, "training.global_batch_size", ACTOR),
        ("critic_mini_batch_size", 256, "training.global_batch_size", CRITIC),
        ("train_batch_size", 1024, "rollout.global_batch_size", None),
    ):
        key = f"{_T}{name}"
        count = value_of(options, key, prompts)
        if role in {None, *roles} and isinstance(count, int) and isinstance(samples, int):
            yield Statement(fact, key if key in options else f"{key}{LEFT_OUT}", count * samples, role)


def _cut_by_length(options: Options, table: Table) -> None:
    """Read batches in tokens where a limit makes them so."""
    limit = value_of(options, f"{_T}max_tokens_per_microbatch", -1)
    if isinstance(limit, int) and limit <= 0:
        return
    table[f"{_T}micro_train_batch_size_per_gpu"] = table[f"{_T}micro_forward_batch_size_per_gpu"] = SILENT
    key = "megatron_config.context_parallel_size" if _is_on_megatron(options, "rl") else "sequence_parallel_size"
    sections = {role: name for name, role in SECTIONS.items()}
    table[f"{_T}max_tokens_per_microbatch"] = tuple(
        _share(options, meaning, f"{sections.get(str(meaning.role), 'trainer.policy.')}{key}")
        for meaning in table[f"{_T}max_tokens_per_microbatch"]
    )


def _share(options: Options, limit: Key, split: str) -> Key:
    """Divide a limit in tokens among the ranks of a sequence: it counts what all of them hold together."""
    ranks = value_of(options, split, 1)
    return limit._replace(convert=share(ranks) if isinstance(ranks, int) else opens)


def _place(options: Options, table: Table, roles: tuple[str, ...]) -> Iterator[Statement]:
    """Say which models share devices, and what leaves them while another one works (`WorkerDispatch`).

    Models that share devices are moved to the host in turns; where FSDP's own offload is on, it keeps them there.
    """
    together = value_of(options, f"{_P}colocate_all", left_out=True)
    pair = value_of(options, f"{_P}colocate_policy_ref", left_out=True)
    apart = [] if together is not False else [CRITIC, *([] if pair is not False else [REFERENCE])]
    shared = [role for role in roles if role not in apart]
    for word in ("num_nodes", "num_gpus_per_node"):
        (key,) = table[f"{_P}policy_{word}"]
        table[f"{_P}policy_{word}"] = tuple(key._replace(role=role) for role in shared) if apart else (key,)
        for short, role in (("critic", CRITIC), ("ref", REFERENCE)):
            if role in apart and role in roles:
                table[f"{_P}{short}_{word}"] = (key._replace(role=role),)
    if together is False and REFERENCE in shared:
        yield Statement("training.colocated_with", f"{_P}colocate_policy_ref", ACTOR, REFERENCE)
    moved = roles if together is not False else shared if len(shared) > 1 else ()
    for section, role in SECTIONS.items():
        if role not in roles:
            continue
        kept, step = f"{section}fsdp_config.cpu_offload", f"{section}optimizer_config.offload_after_step"
        megatron = _is_on_megatron(options, "rl")
        moves = role in moved and (megatron or value_of(options, kept, left_out=False) is False)
        origin = "(models that share devices take turns)"
        asked = (*_TURNS, kept)
        yield Statement("training.offload_param", origin, "cpu" if moves else None, role, asks=asked)
        if not moves:
            table[step] = SILENT
        if role != REFERENCE and not (moves and step in options and table[step] is not SILENT):
            yield Statement("training.sleeps_while_idle", origin, moves, role, asks=asked)


_TURNS = (
    *(f"{_P}colocate_all", f"{_P}colocate_policy_ref", f"{_T}strategy"),
    *(f"{_T}algorithm.use_kl_loss", f"{_T}algorithm.use_kl_in_reward"),
)
"""Keys that decide which models share devices."""


def _leave_length(launch: Launch, table: Table) -> Iterator[Unresolved]:
    """Say that a program with a generator of its own decides how long a sequence gets."""
    if _READ.search(launch.program):
        return
    for key in (f"{_T}max_prompt_length", f"{_G}max_input_length", f"{_G}sampling_params.max_generate_length"):
        table[key] = SILENT
    yield Unresolved(
        "training.sequence_length", f"({launch.program})", "is decided by this program, which was not read"
    )


def _of_supervised(options: Options, table: Table) -> Iterator[Statement]:
    """Say what ``main_sft`` does with its batches: packed ones are filled up to a number of tokens, those of one sequence."""
    yield Statement("training.trainer", "(program main_sft)", "sft")
    limit, length = "max_tokens_per_microbatch", value_of(options, "max_length")
    if value_of(options, "use_sequence_packing", left_out=False) is False:
        table[limit] = SILENT
        return
    table["micro_train_batch_size_per_gpu"] = SILENT
    table[limit] = tuple(_share(options, key, "megatron_config.context_parallel_size") for key in table[limit])
    if limit not in options and isinstance(length, int):
        (tokens,) = table[limit]
        yield Statement(tokens.fact, f"{limit}{LEFT_OUT}", length if tokens.convert is None else tokens.convert(length))
