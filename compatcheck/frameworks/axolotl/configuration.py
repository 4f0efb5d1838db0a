"""Configurations of axolotl (YAML): what it hands to the HF Trainer and TRL, under names and with meanings of its own.

Read in the source of 0.5.0 to 0.21.0 (``utils/config``, ``utils/schemas``, ``core/builders``, ``loaders``); a key whose meaning
depends on the release leaves the decision to rows of ``rules/_programs/axolotl.yaml``, which find a mark here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from compatcheck.core.document import Document, Statement
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.conversions import (
    LEAVE,
    OPEN,
    ByWords,
    constant,
    is_off,
    is_on,
    kernel,
    multiplied,
    opens,
    state_nothing,
)
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.hf_trainer.arguments import TRAINER_TABLE, read_fsdp_words
from compatcheck.frameworks.keys import ANYTHING, SILENT, Key, KeyTable, Names, Table
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten, make_document, not_understood, translate
from compatcheck.rules.vocabulary import nearest

READER, LABEL = "axolotl", "axolotl"

_MARKS = Names(__file__, "marks.txt")
"""Keys that stand beside ``base_model`` in axolotl's files; two of them tell one."""

_ENOUGH = 2
_LOAD, _MIXED, _REENTRANT = "model.load_dtype", "training.mixed_precision", "training.use_reentrant"
_LOSS = "training.loss_implementation"

NAMES = Names(__file__)
_FSDP_NAMES = Names(__file__, "fsdp_names.txt")
_ATTENTION_FLAGS = {
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
"""Switches that chose the attention before ``attn_implementation``, most specific first (``LEGACY_ATTN_FLAG_TO_IMPL``)."""

_GIVEN_ATTENTION = ("model_kwargs.attn_implementation", "overrides_of_model_kwargs.attn_implementation")
"""What from_pretrained is given where nothing of the above replaces it (``loaders/model.py``)."""
_OTHER_ATTENTION = frozenset(["xformers", "sage", "fp8", "s2", "varlen"])
_LOSSES = ("ipo", "simpo")
"""Values of ``rl`` that choose a loss as well."""

LIGER_LOSSES = {"dpo_use_liger_kernel": ("dpo", "ipo"), "trl.use_liger_loss": ("grpo",)}
"""Keys that choose a loss of Liger's, with the values of ``rl`` that read them."""

_ADAPTERS = ("lora", "qlora")
_OFFLOADING_CHECKPOINTS = ("offload", "offload_disk", "unsloth")


def _optimizer(name: Any) -> Any:  # noqa: ANN401 (configuration)
    optimizers = {**TRAINER_TABLE.words["optimizer"], **TABLE.words["own_optimizer"]}
    if str(name) not in optimizers:
        known = sorted(optimizers)
        near = nearest(str(name), known)
        raise ValueError(f"did you mean {near}?" if near else f"known: {', '.join(known)}")
    return optimizers[str(name)]


def _optimizer_implementation(name: Any) -> Any:  # noqa: ANN401 (configuration)
    return TRAINER_TABLE.words["optimizer_implementation"].get(str(name), LEAVE)


def _read_checkpointing(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read ``gradient_checkpointing``; the words for offloading turn it on as well."""
    return True if value in _OFFLOADING_CHECKPOINTS else value


def _attention(value: Any) -> Any:  # noqa: ANN401 (configuration)
    name = str(kernel(value))
    return LEAVE if name in _OTHER_ATTENTION or "/" in name else name


def _adapter(value: Any) -> Any:  # noqa: ANN401 (configuration)
    if not isinstance(value, str):
        msg = "expected lora, qlora or the name of an adapter of a plugin"
        raise TypeError(msg)
    return value if value in _ADAPTERS else OPEN  # llama-adapter, and what plugins add


def _reinforcement(value: Any) -> Any:  # noqa: ANN401 (configuration)
    trainers = TABLE.words["trainers"]
    if value is False:
        return LEAVE
    if str(value) not in trainers:
        msg = f"expected {', '.join(trainers)}"
        raise ValueError(msg)
    return trainers[str(value)]


def _sole(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return value[0] if isinstance(value, list) and len(value) == 1 else LEAVE


TABLE = KeyTable(
    __file__,
    conversions={
        "adapter": _adapter,
        "attention": _attention,
        "checkpointing": _read_checkpointing,
        "optimizer": _optimizer,
        "optimizer_implementation": _optimizer_implementation,
        "sole_of_list": _sole,
        "trainer": _reinforcement,
    },
    fields=dict.fromkeys(
        ("model_config.", "overrides_of_model_config.", "model_kwargs.", "overrides_of_model_kwargs.")
    ),
)
"""Key → meaning, over the releases that spell it so; what depends on several keys is decided in `_decide`."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is an axolotl configuration."""
    return "base_model" in data and len(data.keys() & _MARKS) >= _ENOUGH


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration; a DeepSpeed configuration written inside it becomes a document of its own.

    Raises:
        InputError: nothing in it was understood.
    """
    source = Source(path)
    references, documents, skipped = _follow(data, path)
    leaves = dict(flatten(data, stop={"deepspeed", "device_map", "selective_checkpointing"}))
    leaves.pop("deepspeed", None)
    for key, _, _ in references:
        leaves.pop(key, None)
    table = dict(TABLE)
    for key, loops in LIGER_LOSSES.items():
        if str(data.get("rl") or "").lower() not in loops:
            del table[key]
    stated = _decide(data, table, skipped, source)
    # a key without a value is a key left out, which may be given one
    empty = {
        key: (Key("training.framework", state_nothing),)
        for key, value in leaves.items()
        if value is None or value == ""
    }
    told = table | {key: meaning for key, meaning in empty.items() if key in table}
    translation = translate(iter(leaves.items()), told, irrelevant=_is_plain, source=source, names=sorted(NAMES))
    translation = translation._replace(
        statements=(*translation.statements, *stated), skipped=(*translation.skipped, *skipped), table=table
    )
    named = tuple((kind, name, key) for key, kind, name in references)
    return Reading((make_document(READER, source, translation, named), *documents))


def _follow(data: Mapping[str, Any], path: str) -> tuple[list[tuple[str, str, str]], list[Document], list[Skipped]]:
    """Find what the configuration names: (key, kind, name); read a DeepSpeed configuration that is written inside it."""
    source = Source(path)
    references: list[tuple[str, str, str]] = []
    documents: list[Document] = []
    skipped: list[Skipped] = []
    key = "base_model_config" if data.get("base_model_config") else "base_model"
    model = data.get(key)
    if isinstance(model, str) and model:
        references.append((key, "model", model))
    else:
        skipped.append(not_understood(source, key, "the path or hub id of a model"))
    inner = data.get("deepspeed")
    if isinstance(inner, str) and inner:
        references.append(("deepspeed", "deepspeed", inner))
    elif isinstance(inner, dict) and inner:
        documents.append(deepspeed.read_section(inner, path, "deepspeed."))
    elif inner:
        wanted = "the path of a DeepSpeed configuration, or its content"
        skipped.append(not_understood(source, "deepspeed", wanted))
    return references, documents, skipped


def _decide(
    data: Mapping[str, Any],
    table: Table,
    skipped: list[Skipped],
    source: Source,
) -> list[Statement]:
    """Settle what depends on several keys: change rows of the table in place, return statements beside it."""
    stated: list[Statement] = []
    for key, facts in (
        *_trainer(data),
        *_precision(data),
        *_sharding(data, skipped, source),
        *_loss(data, skipped, source),
        *_frozen(data),
    ):
        for fact, value in facts:
            if key[:1] == "(":
                stated.append(Statement(fact, key, value, None, _TRAINERS))
            else:
                table[key] = (*table.get(key, ()), Key(fact, constant(value)))
    stated += _checkpoints(data, table)
    stated += _uncut(data)
    if not all(name.removeprefix(_OWN_PLUGINS).startswith(_WITHOUT_LOSS) for name in _name_plugins(data)):
        replaced = () if any(_loss(data, [], source)) else (Key(_LOSS, opens),)
        table["plugins"] = (*table.get("plugins", ()), Key(ANYTHING, opens), *replaced)
    _attention_flags(data, table)
    _adapters(data, table)
    if data.get("val_set_size", 0) == 0 and not data.get(
        "test_datasets"
    ):  # core/builders/base.py at 067b021c: evaluates nothing
        for key in _EVALUATES & table.keys():
            table[key] = (Key("training.evaluates", constant(False)),)
    if data.get("dp_replicate_size") not in (None, "", 1):
        # FSDP's mesh joins dp_shard with cp (0.12.2 utils/distributed.py; accelerate 1.12.0 parallelism_config.py fsdp_dim_names)
        table["dp_shard_size"] = (Key("training.hsdp_shard_size", multiplied(data.get("context_parallel_size"))),)
    steps, whole, micro = (data.get(key) for key in ("gradient_accumulation_steps", "batch_size", "micro_batch_size"))
    if (
        "gradient_accumulation_steps" in data
        and not steps
        and isinstance(whole, int)
        and isinstance(micro, int)
        and micro
    ):
        # left out, the schema's 1 holds and batch_size decides nothing (normalize_config, 0.5.0 to 0.19.0)
        table["batch_size"] = (Key("training.gradient_accumulation_steps", constant(whole // micro)),)
    if data.get("rl"):
        table["max_prompt_len"] = (Key("training.max_prompt_length"),)
    if data.get("bf16") == "auto":
        stated.append(Statement(None, "bf16", None))
        table["bf16"] = ()
    return stated


_EVALUATES = frozenset({"eval_steps", "eval_strategy", "evals_per_epoch", "evaluation_strategy"})
_TRAINERS = ("rl", "reward_model", "process_reward_model", "pretraining_dataset", "trainer_cls")
"""Keys that choose another training algorithm."""
_Facts = tuple[tuple[str, object], ...]


def _trainer(data: Mapping[str, Any]) -> list[tuple[str, _Facts]]:
    """Tell the training algorithm; a class of the user's own is not guessed at."""
    rl = data.get("rl")
    if rl:
        return [("rl", (("training.loss_type", str(rl)),))] if str(rl) in _LOSSES else []
    if data.get("trainer_cls"):
        return []
    for key, name in (("reward_model", "reward"), ("process_reward_model", "prm")):
        if is_on(data.get(key)):
            return [(key, (("training.trainer", name),))]
    if data.get("model_type") == "MambaLMHeadModel":
        return [("model_type", _OF_MAMBA)]
    if data.get("pretraining_dataset"):
        return [("pretraining_dataset", (("training.trainer", "pretrain"),))]
    return [("(no rl, no reward model)", (("training.trainer", "causal_lm"),))]


_OF_MAMBA = (
    ("training.trainer", "causal_lm"),
    ("program.runs_transformers", False),
    ("program.computes_loss", "program"),
    ("program.passes_labels", False),
)
"""What is run of mamba_ssm's class (0.18.0 src/axolotl/loaders/model.py, core/trainers/mamba.py)."""


def _precision(data: Mapping[str, Any]) -> list[tuple[str, _Facts]]:
    """Tell autocast and the dtype that weights are loaded in, as ``resolve_dtype`` does; ``auto`` is left to the defaults."""
    bf16, fp16 = data.get("bf16"), data.get("fp16")
    found: list[tuple[str, _Facts]] = [("fp8", ((_MIXED, "fp8"),))] if is_on(data.get("fp8")) else []
    mixed = not found
    if bf16 == "full":
        return [*found, ("bf16", ((_LOAD, "bfloat16"), *(((_MIXED, "no"),) if mixed else ())))]
    if is_on(bf16):
        return [*found, ("bf16", ((_LOAD, "bfloat16"), *(((_MIXED, "bf16"),) if mixed else ())))]
    if is_on(data.get("bfloat16")):
        precision = ((_MIXED, "bf16"),) if mixed and not is_off(bf16) else ()
        return [*found, ("bfloat16", ((_LOAD, "bfloat16"), *precision))]
    if is_on(fp16):
        return [*found, ("fp16", ((_LOAD, "float16"), *(((_MIXED, "fp16"),) if mixed else ())))]
    if is_off(bf16):
        half = is_on(data.get("float16")) or is_on(data.get("load_in_8bit"))
        dtype = "float16" if half else "float32"
        return [*found, ("bf16", ((_LOAD, dtype), *(((_MIXED, "no"),) if mixed else ())))]
    return found


def _sharding(data: Mapping[str, Any], skipped: list[Skipped], source: Source) -> list[tuple[str, _Facts]]:
    """Tell that FSDP shards, and how: by words in ``fsdp`` (until 0.20), else by ``fsdp_config`` being there."""
    value = data.get("fsdp")
    if value and not isinstance(value, str | list):
        skipped.append(not_understood(source, "fsdp", "a list of words such as full_shard and auto_wrap"))
        return [("fsdp", ())]
    words = value.split() if isinstance(value, str) else [str(word) for word in value or ()]
    found = [("fsdp", tuple(read_fsdp_words(words)))] if words else []
    section = data.get("fsdp_config")
    if isinstance(section, Mapping) and section and not words:
        found.append(("(fsdp_config)", (("training.sharding", "fsdp"),)))
    return found


def _loss(data: Mapping[str, Any], skipped: list[Skipped], source: Source) -> list[tuple[str, _Facts]]:
    """Tell how logits become a loss: plugins replace it; without any the HF Trainer's own derivation holds.

    The Liger plugin patches modules by itself and leaves the HF Trainer's ``use_liger_kernel`` off, so only what it does to the
    loss is stated. ``cut_cross_entropy`` is on with its plugin from 0.9 on; 0.6 to 0.8 needed the key as well.
    """
    if not isinstance(data.get("plugins") or [], str | list):
        skipped.append(not_understood(source, "plugins", "a list of plugin classes"))
    names = _name_plugins(data)
    cut = data.get("cut_cross_entropy")
    if any("cut_cross_entropy" in name for name in names) and not is_off(cut):
        return [("cut_cross_entropy" if cut is not None else "plugins", ((_LOSS, "fused_linear"),))]
    if any("liger" in name for name in names):
        fused = "liger_fused_linear_cross_entropy"
        if is_on(data.get(fused)):
            return [(fused, ((_LOSS, "fused_linear"),))]
    if is_on(data.get("chunked_cross_entropy")):
        return [("chunked_cross_entropy", ((_LOSS, "chunked"),))]
    return []


_OWN_PLUGINS = "axolotl.integrations."
_WITHOUT_LOSS = (
    "cut_cross_entropy.",
    "expert_parallel.",
    "grokfast.",
    "kernels.",
    "liger.",
    "llm_compressor.",
    "lm_eval.",
    "spectrum.",
    "swanlab.",
)
"""Plugins of axolotl's own that were read: they replace neither trainer nor loss beyond what `_loss` tells."""


def _name_plugins(data: Mapping[str, Any]) -> list[str]:
    plugins = data.get("plugins") or []
    return [str(one).lower() for one in (plugins if isinstance(plugins, list) else [plugins])]


def _frozen(data: Mapping[str, Any]) -> list[tuple[str, _Facts]]:
    """Tell that only a part of the model trains, without an adapter."""
    if data.get("adapter"):
        return []
    for key in ("unfrozen_parameters", "spectrum_top_fraction", "lisa_n_layers"):
        if data.get(key):
            return [(key, (("training.peft", "freeze"),))]
    return []


def _checkpoints(data: Mapping[str, Any], table: Table) -> list[Statement]:
    """Settle checkpointing under activation offloading; leave a mark, and the fact out, where the release decides.

    ``activation_offloading: true`` (0.12 on) wraps layers in torch's non-reentrant wrapper, whatever the kwargs say;
    ``hidden_states`` (0.18 on) keeps the kwargs and fills in non-reentrant. Beside an adapter the others replace
    recomputation from 0.18 on. Only ``true`` and ``offload`` are TRL's streams (``legacy`` is without them).
    ``selective_checkpointing`` writes its own variant over the kwargs' (0.18.0 ``monkeypatch/selective_checkpointing.py``).
    """
    selective = data.get("selective_checkpointing")
    if selective is not None and not is_off(selective):
        table["gradient_checkpointing_kwargs.use_reentrant"] = (Key(_REENTRANT, state_nothing),)
    kwargs = data.get("gradient_checkpointing_kwargs")
    stated = isinstance(kwargs, Mapping) and kwargs.get("use_reentrant") is not None
    mode, word = data.get("activation_offloading"), data.get("gradient_checkpointing")
    mode = "true" if is_on(mode) else mode
    offloads = Key("training.activation_offloading", constant(True))
    not_reentrant = Key(_REENTRANT, constant(False))
    by_itself = Key("program.offloads_by_trl", constant(False))
    if mode == "hidden_states":
        table["activation_offloading"] = (offloads, by_itself) if stated else (offloads, by_itself, not_reentrant)
        return []
    if mode in ("true", "legacy", "disk"):
        mark = f"(activation_offloading: {mode})"
        table["activation_offloading"] = (offloads, not_reentrant if mode == "true" else by_itself)
        checkpointing: tuple[Key, ...] = (Key("training.gradient_checkpointing", _read_checkpointing),)
    elif word in _OFFLOADING_CHECKPOINTS:
        mark = f"(gradient_checkpointing: {'offload_disk' if word == 'offload_disk' else 'offload'})"
        checkpointing = (Key("training.gradient_checkpointing", _read_checkpointing), offloads)
        if "disk" in mark:
            checkpointing += (by_itself,)
    else:
        return []
    marks = [Statement(None, mark, word)]
    if data.get("adapter") and word and not is_off(word):
        checkpointing = checkpointing[1:] or (Key("training.gradient_checkpointing", state_nothing),)
        marks.append(Statement(None, "(offloading beside an adapter)", word))
    table["gradient_checkpointing"] = checkpointing
    if "disk" not in mark:
        table["gradient_checkpointing_kwargs.use_reentrant"] = (Key(_REENTRANT, state_nothing),)
    return marks


def _uncut(data: Mapping[str, Any]) -> list[Statement]:
    """Leave a mark for each kind of dataset that a release passes on without cutting samples at ``sequence_len``."""
    datasets = data.get("datasets")
    found = [one.get("type") for one in (datasets if isinstance(datasets, list) else []) if isinstance(one, Mapping)]
    kinds = {str(kind).partition(".")[0] for kind in found if kind}
    return [Statement(None, f"(datasets: {kind})", kind) for kind in _UNCUT if kind in kinds]


_UNCUT = ("chat_template", "input_output")


def _attention_flags(data: Mapping[str, Any], table: Table) -> None:
    """Let the most specific switch decide, and none beside ``attn_implementation`` or a kernel that rules do not know."""
    if data.get("attn_implementation") or any(is_on(data.get(f"{name}_attention")) for name in ("xformers", "sage")):
        table.update(dict.fromkeys(_GIVEN_ATTENTION, SILENT))
        return
    deciding = next((flag for flag in _ATTENTION_FLAGS if is_on(data.get(flag))), None)
    for flag, name in _ATTENTION_FLAGS.items():
        beside = flag != deciding and is_on(data.get(flag))
        convert = ByWords({"true": name, "false": LEAVE, "null": LEAVE}, "error")
        table[flag] = SILENT if beside else (Key("model.attn_implementation", convert),)
    if deciding is not None:
        table.update(dict.fromkeys(_GIVEN_ATTENTION, SILENT))


def _adapters(data: Mapping[str, Any], table: Table) -> None:
    """Settle what several keys say about adapters and about the quantisation beneath them."""
    if data.get("adapter") in _ADAPTERS and is_on(data.get("peft_use_dora")):
        table["peft_use_dora"] = (Key("training.peft", constant("dora")),)
        table["adapter"] = (Key("training.peft", state_nothing),)
    if is_on(data.get("lora_target_linear")):
        table["lora_target_modules"] = (Key("training.lora_target_modules", state_nothing),)
    bnb = data.get("bnb_config_kwargs")
    if isinstance(bnb, Mapping) and bnb.get("bnb_4bit_quant_type") == "fp4":
        table["load_in_4bit"] = (Key("model.quantization", lambda on: "fp4" if is_on(on) else LEAVE),)
    options = data.get("model_quantization_config_kwargs")
    kind = {"Mxfp4Config": "mxfp4", "FineGrainedFP8Config": "fp8"}.get(str(data.get("model_quantization_config")))
    if kind is not None:
        dequantised = isinstance(options, Mapping) and is_on(options.get("dequantize"))
        table["model_quantization_config"] = (Key("model.quantization", constant(None if dequantised else kind)),)


@cache
def _names() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of axolotl's keys, and which of them are sections whose keys are all known."""
    return frozenset(NAMES), frozenset(name.rpartition(".")[0] for name in NAMES if "." in name)


def _is_plain(key: str) -> bool:
    """Tell whether a key is known to have no bearing on memory; a section without a schema may hold anything."""
    section, _, name = key.partition(".")
    if section == "fsdp_config" and name:
        return name.removeprefix("fsdp_") in _FSDP_NAMES
    names, sections = _names()
    parent = key
    while parent not in names:
        if "." not in parent:
            return False
        parent = parent.rpartition(".")[0]
        if parent in sections:
            return False
    return True
