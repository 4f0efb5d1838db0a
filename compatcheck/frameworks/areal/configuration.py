"""AReaL's configurations (``examples/*/*.yaml``), complete or with overrides of a command: OmegaConf over dataclasses.

Read at 1.0.4 and 4aef98d8 (areal/api/cli_args.py, areal/api/alloc_mode.py, areal/trainer). A model's ``backend`` names its engine
and how its ranks split the work (``fsdp:d4t2``, ``megatron:(attn:d4p4t2|ffn:d2p4e4)``); the devices of the job's models are apart
unless they are scheduled together.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Gap, Statement, Unresolved, enclosing_keys
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.frameworks.composition import retell
from compatcheck.frameworks.conversions import share
from compatcheck.frameworks.keys import SILENT, KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import OptionMeanings, name_roles, state_forward_only, state_value_heads
from compatcheck.frameworks.launch.interpolation import follow_all
from compatcheck.frameworks.launch.values import Argument, value_of
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Options = Mapping[str, Argument]

READER, LABEL = "areal", "AReaL"
TABLE = KeyTable(__file__)
"""Key → meaning, but for those of one model."""
MODEL_TABLE = KeyTable(__file__, "model_keys.txt")
"""Keys in the section of one model."""
NAMES = Names(__file__)
MODEL_NAMES = Names(__file__, "model_names.txt")
ACTOR, CRITIC, REFERENCE = "actor", "critic", "reference"
SECTIONS = {"actor.": ACTOR, "critic.": CRITIC, "ref.": REFERENCE, "teacher.": REFERENCE}
"""A teacher only runs forward, as a reference does; beside one it stays open."""
_KINDS = {"sft": "sft", "dpo": "dpo", "rw": "reward"}
"""``train_dataset.type`` → what is trained; everything else is reinforcement learning."""
_PAIRS = frozenset({"dpo", "reward"})
_MARKS = frozenset({"enable_offload", "gconfig", "recover", "saver", "stats_logger", "trial_name"})
_ENOUGH = 3


class Backend(NamedTuple):
    """What a ``backend`` says: an engine and sizes of its ranks' groups."""

    engine: str
    sizes: Mapping[str, int]
    """By letter: data, pipeline, tensor, context; ``e`` and ``x`` for experts and their matrices."""
    key: str = ""
    """Where it stands."""

    @property
    def ranks(self) -> int:
        """Return how many devices it takes."""
        return prod(self.sizes.get(letter, 1) for letter in "dptc")


def parse_backend(text: object) -> Backend | None:
    """Parse a ``backend`` (ALLOCATION_GRAMMAR, areal/api/alloc_mode.py); None where it is none."""
    written = "".join(str(text).split())
    match = re.fullmatch(r"(fsdp|megatron|archon|sglang|vllm)(?:\[\w+\])?:(.+)", written)
    if match is None:
        return None
    engine, rest = match.groups()
    hybrid = re.fullmatch(r"\(?attn:((?:[cdtp]\d+)+)\|ffn:((?:[detp]\d+)+)\)?", rest)
    if hybrid is not None:
        experts = _sizes(hybrid[2])
        return Backend(engine, {**_sizes(hybrid[1]), "e": experts.get("e", 1), "x": experts.get("t", 1)})
    return Backend(engine, {"x": 1, **_sizes(rest)}) if re.fullmatch(r"([cdetp]\d+)+", rest) else None


_MODE = "allocation_mode"
"""Names all devices at once in releases up to 0.3: ``sglang.d4p1t1+d4p1t1``, ``sglang:d4+fsdp:d4``."""


def find_backend(options: Options, section: str) -> Backend | None:
    """Return the backend of a section; where it says an engine alone, or nothing, what the allocation of all devices says.

    The part with an engine that generates is that of ``rollout``; the other one trains (AReaL 0.3, areal/api/io_struct.py
    AllocationMode).
    """
    key = f"{section}backend"
    own = value_of(options, key)
    found = parse_backend(own)
    if found is not None:
        return found._replace(key=key)
    parts = "".join(str(value_of(options, _MODE, "")).split()).split("+")
    split = [re.fullmatch(r"(?:(sglang|vllm|fsdp|megatron|archon)[.:])?((?:[cdetp]\d+)+)", part) for part in parts]
    generates = [one is not None and one[1] in {"sglang", "vllm"} for one in split]
    if len(parts) != 2 or None in split or sum(generates) != 1 or (key in options and own is None):
        return None
    match = split[generates.index(section == "rollout.")]
    engine = match and (match[1] or own)
    found = parse_backend(f"{engine}:{match[2]}") if match is not None and own in {None, engine} else None
    return None if found is None else found._replace(key=_MODE)


def _sizes(text: str) -> dict[str, int]:
    return {letter: int(size) for letter, size in re.findall(r"([a-z])(\d{1,9})", text)}


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of AReaL: its sections, and a model that is trained."""
    actor = data.get("actor")
    if not isinstance(actor, dict):
        return False
    return len(_MARKS & data.keys()) >= _ENOUGH or parse_backend(actor.get("backend")) is not None


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration."""
    leaves = flatten({name: value for name, value in data.items() if name != "defaults"})
    options = {key: Argument(value, None) for key, value in leaves}
    listed = Gap(Source(path, key="defaults"), "composes from files, which are not read")
    gaps = (listed,) if data.get("defaults") else ()
    return Reading(compose(Document(READER, Source(path), (), gaps=gaps, options=options)))


def compose(*documents: Document) -> tuple[Document, ...]:
    """Translate a file, or a command and its file, as one configuration: what the command says wins."""
    whole: dict[str, Argument] = {}
    for document in reversed(documents):
        whole |= document.options
    sections = _with_sections(whole)
    followed = follow_all(sections)
    table, models, known, open_facts = settle(followed)
    meanings = OptionMeanings(READER, table, is_plain, models)
    found = []
    for index, document in enumerate(documents):
        own = {key: one for key, one in followed.items() if key not in whole or whole[key] is document.options.get(key)}
        said = (one for one in known if len(documents) == 1 or (index == 0) == (one.key in documents[0].options))
        made = retell(document, own, meanings, said)
        found.append(made._replace(unresolved=(*made.unresolved, *(open_facts if index == 0 else ()))))
    return tuple(found)


_MOST_WRITTEN_OUT = 10_000
"""Keys of sections that are those of another model; of one behind them nothing is known."""


def _with_sections(options: Options) -> dict[str, Argument]:
    """Write out sections that are those of another model: ``ref.mb_spec: ${actor.mb_spec}``."""
    texts = ((key, one.value.strip()) for key, one in options.items() if isinstance(one.value, str))
    meant = {key: match[1] for key, text in texts if (match := _SECTION.fullmatch(text))}
    inner: dict[str, list[str]] = {section: [] for section in meant.values()}
    for key in options:
        for outer in enclosing_keys(key):
            if outer in inner:
                inner[outer].append(key)
    found: dict[str, Argument] = {}
    left = _MOST_WRITTEN_OUT
    for key, argument in options.items():
        keys = inner[meant[key]] if key in meant else []
        left -= len(keys)
        written_out = keys if left >= 0 else []
        found |= {f"{key}{one.removeprefix(meant[key])}": options[one] for one in written_out} or {key: argument}
    return found


_SECTION = re.compile(r"\$\{([\w.]+)\}")


def is_plain(key: str) -> bool:
    """Tell whether a key is known and has no bearing on memory."""
    section = next((name for name in SECTIONS if key.startswith(name)), None)
    return key in NAMES or (section is not None and key.removeprefix(section) in MODEL_NAMES)


class Settled(NamedTuple):
    """What a whole configuration makes of its keys."""

    table: Table
    models: dict[str, str]
    known: tuple[Statement, ...]
    unresolved: tuple[Unresolved, ...]


def settle(options: Options) -> Settled:
    """Say what keys mean beside one another, and what follows from several of them."""
    kind = _KINDS.get(str(value_of(options, "train_dataset.type")), "")
    roles = tuple(_find_roles(options, kind))
    table: Table = dict(TABLE)
    models: dict[str, str] = {}
    known: list[Statement] = []
    unresolved: list[Unresolved] = []
    scores = "ref" if "teacher.backend" not in options or _has_reference(options, kind) else "teacher"
    for section, role in SECTIONS.items():
        backend = find_backend(options, section)
        if backend is not None and backend.key == _MODE:
            table[_MODE] = SILENT
        if role == REFERENCE and section != f"{scores}.":  # defaults of a reference are those of a teacher
            table.update((key, SILENT) for key in options if key.startswith(section) and section == "ref.")
            continue
        if role not in roles:
            table.update(dict.fromkeys((f"{section}{key}" for key in (*MODEL_TABLE, "path")), SILENT))
            continue
        models[f"{section}path"] = "model" if role == ACTOR else f"model:{role}"
        table.update(_of_model(options, section, role, backend, kind))
        if backend is None:
            unresolved.append(_open_backend(options, section, role))
        else:
            known += _split(backend, role)
            known += _move(options, section, role, roles)
    known += name_roles(roles)
    known += state_value_heads(roles)
    if REFERENCE in roles:
        known += state_forward_only(REFERENCE)
        known.append(Statement("training.peft", "(only run forward)", None, REFERENCE))
    critic = "ppo" if CRITIC in roles else "grpo"
    known.append(Statement("training.trainer", "train_dataset.type", kind or critic, asks=("train_dataset.type",)))
    asked = ("actor.kl_ctl", "train_dataset.type")
    known.append(Statement("training.reference_model", scores, REFERENCE in roles, asks=asked))
    known += _batches(options, kind, roles)
    if not kind:
        known += _engine(options, table)
    else:
        table.update((key, SILENT) for key in TABLE if key.startswith(("sglang.", "vllm.", "gconfig.")))
    return Settled(table, models, tuple(known), tuple(unresolved))


def _find_roles(options: Options, kind: str) -> Iterator[str]:
    """Name the models (PPOTrainer.__init__, DPOTrainer.__init__): a reference where a KL term or a preference loss needs it."""
    yield ACTOR
    if not kind and value_of(options, "critic.backend") is not None:
        yield CRITIC
    if _has_reference(options, kind) or (not kind and "teacher.backend" in options):
        yield REFERENCE


def _has_reference(options: Options, kind: str) -> bool:
    weight = value_of(options, "actor.kl_ctl", 0.1)
    needs = kind == "dpo" or (not kind and not (isinstance(weight, int | float) and weight <= 0))
    return needs and any(key.startswith("ref.") for key in options)


def _of_model(options: Options, section: str, role: str, backend: Backend | None, kind: str) -> Table:
    """Return what the keys of one model mean: those of other engines say nothing, nor what recomputes where it is off."""
    engine = "" if backend is None else backend.engine
    others = tuple(f"{name}." for name in ("fsdp", "archon", "megatron") if name != engine)
    table: Table = {}
    for key, meanings in MODEL_TABLE.items():
        silent = key.startswith(others) or (role == REFERENCE and key in {"optimizer.type", "use_lora"})
        table[f"{section}{key}"] = SILENT if silent else tuple(one._replace(role=role) for one in meanings)
    if engine != "fsdp":
        table.update(dict.fromkeys((f"{section}grad_reduce_dtype", f"{section}attn_impl"), SILENT))
    if value_of(options, f"{section}megatron.recompute_granularity") != "selective":
        table[f"{section}megatron.recompute_modules"] = SILENT
    if value_of(options, f"{section}use_lora", left_out=False) is False:
        table.update(dict.fromkeys((f"{section}lora_rank", f"{section}target_modules"), SILENT))
    if value_of(options, f"{section}gradient_checkpointing", left_out=False) is False:
        off = [key for key in table if "recompute_" in key or ".ac_" in key or "selective_ac" in key]
        table.update(dict.fromkeys(off, SILENT))
    elif engine in {"archon", "megatron"}:  # which of them is recomputed its own key says
        table[f"{section}gradient_checkpointing"] = SILENT
    if value_of(options, f"{section}megatron.use_precision_aware_optimizer", left_out=False) is False:
        table.update((f"{section}megatron.{name}", SILENT) for name in _AWARE)
    split = 1 if backend is None else backend.sizes.get("c", 1)
    limit = f"{section}mb_spec.max_tokens_per_mb"
    (tokens,) = MODEL_TABLE["mb_spec.max_tokens_per_mb"]
    tokens = tokens._replace(role=role, convert=share(split * (2 if kind in _PAIRS else 1)))
    scoring = (
        (tokens._replace(fact="rollout.log_prob_micro_batch_tokens", role=None),) if role == ACTOR and not kind else ()
    )
    table[limit] = (tokens, *scoring)
    return table


_AWARE = ("exp_avg_dtype", "exp_avg_sq_dtype", "main_grads_dtype", "main_params_dtype")
"""Dtypes that Megatron's optimizer heeds where it is aware of precision."""


def _open_backend(options: Options, section: str, role: str) -> Unresolved:
    argument = options.get(f"{section}backend")
    why = (
        "is left out, and AReaL asks for it"
        if argument is None
        else argument.why or f"is {argument.value!r}, which is not read"
    )
    return Unresolved("training.sharding", f"{section}backend", why, role)


def _split(backend: Backend, role: str) -> Iterator[Statement]:
    """Say how the ranks of a model split it."""
    key = backend.key
    yield Statement("training.sharding", key, "megatron" if backend.engine == "megatron" else "fsdp", role)
    yield Statement(None, f"(on {backend.engine})", True, role)
    yield Statement("program.runs_transformers", key, backend.engine == "fsdp", role)
    if backend.engine != "megatron":
        # experts of archon/qwen3/infra/parallelize.py are split over a mesh of their own
        yield Statement(
            "program.fsdp_mixes_meshes", key, backend.engine == "archon" and backend.sizes.get("e", 1) > 1, role
        )
    yield Statement("hardware.world_size", key, backend.ranks, role)
    for letter, fact in (
        ("t", "training.tensor_parallel"),
        ("p", "training.pipeline_parallel"),
        ("c", "training.context_parallel"),
        ("e", "training.expert_parallel"),
        ("x", "training.expert_tensor_parallel"),
    ):
        if letter in backend.sizes or letter in "tpce":
            yield Statement(fact, key, backend.sizes.get(letter, 1), role)


def _move(options: Options, section: str, role: str, roles: tuple[str, ...]) -> Iterator[Statement]:
    """Say where a model is, and whether it leaves its devices while another one works (torch_memory_saver)."""
    strategy = f"{section}scheduling_strategy."
    target = value_of(options, f"{strategy}target")
    together = value_of(options, f"{strategy}type") == "colocation"
    if together and target in roles:
        yield Statement("training.colocated_with", f"{strategy}target", str(target), role)
    with_engine = _is_with_engine(options) and role == ACTOR
    moved = with_engine or value_of(options, f"{section}offload", left_out=False) is True
    asked = () if with_engine else (f"{section}offload", *(_STRATEGIES if role == ACTOR else ()))
    yield Statement("training.offload_param", f"{section}offload", "cpu" if moved else None, role, asks=asked)
    if with_engine or f"{section}offload" not in options:
        yield Statement("training.sleeps_while_idle", f"{section}offload", moved, role, asks=asked)


_STRATEGIES = tuple(f"{one}.scheduling_strategy.{part}" for one in ("actor", "rollout") for part in ("type", "target"))


def _is_with_engine(options: Options) -> bool:
    """Tell whether policy and engine share devices (_is_actor_rollout_colocated, areal/trainer/rl_trainer.py)."""
    pairs = (("actor", "rollout"), ("rollout", "actor"))
    return any(
        value_of(options, f"{one}.scheduling_strategy.type") == "colocation"
        and value_of(options, f"{one}.scheduling_strategy.target") == other
        for one, other in pairs
    )


def _batches(options: Options, kind: str, roles: tuple[str, ...]) -> Iterator[Statement]:
    """Say how many sequences a step has, and how long one may get.

    A batch is cut in ``ppo_n_minibatches``; a sequence that does not fit in a micro batch ends the run (ffd_allocate,
    areal/utils/seqpack.py), so that the limit of a micro batch bounds it.
    """
    count, samples = value_of(options, "train_dataset.batch_size", 1), value_of(options, "gconfig.n_samples", 1)
    whole = count if kind else count * samples if isinstance(count, int) and isinstance(samples, int) else None
    if isinstance(whole, int):
        key = "train_dataset.batch_size"
        for role, section in ((ACTOR, "actor."), (CRITIC, "critic.")):
            parts = 1 if kind else value_of(options, f"{section}ppo_n_minibatches", 4)
            if role in roles and isinstance(parts, int) and parts > 0:
                yield Statement("training.global_batch_size", key, max(1, whole // parts), role)
        if not kind or REFERENCE in roles:
            yield Statement("rollout.global_batch_size", key, whole)
    limit = value_of(options, "actor.mb_spec.max_tokens_per_mb")
    limit = limit // 2 if kind in _PAIRS and isinstance(limit, int) else limit
    longest = {
        "train_dataset.max_length": value_of(options, "train_dataset.max_length") if kind else None,
        "gconfig.max_tokens": None if kind else value_of(options, "gconfig.max_tokens", 32768),
        "actor.mb_spec.max_tokens_per_mb": limit,
        **(_engine_limit(options) if not kind else {}),
    }
    bounds = {key: length for key, length in longest.items() if isinstance(length, int)}
    if bounds:
        key = min(bounds, key=lambda name: bounds[name])
        yield Statement("training.sequence_length", key, bounds[key], asks=("train_dataset.type", *longest))


def _engine_limit(options: Options) -> dict[str, Any]:
    """Return the tokens of a sequence that the engine takes, by their key: no sample is longer."""
    backend = find_backend(options, "rollout.")
    key = {"sglang": "sglang.context_length", "vllm": "vllm.max_model_len"}.get(
        "" if backend is None else backend.engine
    )
    return {} if key is None else {key: value_of(options, key, 32768)}


def _engine(options: Options, table: Table) -> Iterator[Statement]:
    """Say which engine generates, on how many ranks and where; settings of the other one say nothing."""
    backend = find_backend(options, "rollout.")
    for name in ("sglang", "vllm"):
        if backend is not None and name != backend.engine:
            table.update((key, SILENT) for key in TABLE if key.startswith(f"{name}."))
    if backend is None:
        return
    key = backend.key
    yield Statement("rollout.engine", key, backend.engine)
    for letter, fact in (("t", "tensor_parallel"), ("p", "pipeline_parallel")):
        yield Statement(f"rollout.{fact}", key, backend.sizes.get(letter, 1))
    yield Statement("rollout.colocated", "rollout.scheduling_strategy", _is_with_engine(options), asks=_STRATEGIES)
