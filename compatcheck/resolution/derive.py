"""Facts that follow from other facts by arithmetic or by the meaning of a setting; each names what it was derived from."""

from __future__ import annotations

from compatcheck.core.document import SPREADING
from compatcheck.core.facts import Fact, Value
from compatcheck.core.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any


class Derivation(NamedTuple):
    """One derived fact."""

    fact: str
    inputs: tuple[str, ...]
    formula: Callable[..., Value]
    """Takes the inputs' values; returns None when they do not decide it. It looks at nothing by ``is``, see `_waits`."""
    words: str
    without: str | None = None
    """Fact that nothing may say for it to hold."""


def _param_dtype(precision: str, sharding: str) -> Value:
    """Dtype of working parameters: DeepSpeed casts the model; autocast leaves parameters as loaded."""
    if sharding != "zero":
        return None
    return {"bf16": "bfloat16", "fp16": "float16", "no": "float32"}.get(precision)


def _loaded_dtype(precision: str, sharding: str, stage: int, dtype: str, quantization: str | None) -> Value:
    """Dtype of parameters that no engine casts: DeepSpeed without fp16 and bf16 takes a model as it was loaded.

    Source: DeepSpeed 0.10.1 to 0.19.8 ``runtime/engine.py`` ``_configure_distributed_model()``; stage 3 loads in float32.
    """
    return dtype if precision == "no" and sharding == "zero" and stage in {1, 2} and not quantization else None


def _compute_dtype(precision: str) -> Value:
    return {"bf16": "bfloat16", "fp16": "float16", "fp8": "float8"}.get(precision)


def _weights_dtype(precision: str, dtype: str, sharding: str, quantization: str | None) -> Value:
    """Dtype of what weights are multiplied with where no autocast converts it and no engine of DeepSpeed has a word in it."""
    return dtype if precision == "no" and sharding != "zero" and not quantization else None


def _precision_of(dtype: str, sharding: str) -> Value:
    """Mixed precision that a stated parameter dtype means under ZeRO."""
    if sharding != "zero":
        return None
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "no"}.get(dtype)


def _steps(batch: int, micro: int, world: int) -> Value:
    """Micro batches of a step on one data-parallel rank; none where the batch is smaller than one of each."""
    return batch // (micro * world) or None


def _share_of_node(world: int, nodes: int) -> Value:
    """Devices of a node, of which each rank has one; a process alone may see more than it is given."""
    return world // nodes if world > 1 and nodes > 0 and world % nodes == 0 else None


SPLIT_SEQUENCES = ("training.tensor_parallel", "training.pipeline_parallel", "training.context_parallel")
"""Ranks that work on the same sequences; with several of them a rank is not a data-parallel rank."""

PLAIN = frozenset({"axolotl", "hf_trainer", "llamafactory"})
"""Programs that leave the loss to transformers unless Liger replaces it."""
_REPLICAS = "a launcher starts ranks, and the Trainer is given nothing that shards"
SPREAD = frozenset({"zero", "fsdp", "ddp", "megatron"})
"""What several ranks are needed for; nobody configures it for one, and a launcher that starts one says so."""
_RANKS = ("hardware.world_size", "hardware.gpus_per_node", "hardware.nodes")
_COUNT_RANKS = ("training.global_batch_size", "training.gradient_accumulation_steps")
"""Facts that count data-parallel ranks."""

DERIVATIONS = (
    Derivation(
        "hardware.world_size",
        ("hardware.gpus_per_node", "hardware.nodes"),
        lambda gpus, nodes: gpus * nodes,
        "gpus_per_node × nodes",
    ),
    Derivation(
        "hardware.gpus_per_node",
        ("hardware.world_size", "hardware.nodes"),
        _share_of_node,
        "ranks ÷ nodes",
    ),
    Derivation("hardware.single_rank", ("hardware.world_size",), lambda world: world == 1, "ranks of the job"),
    Derivation(
        "hardware.devices_per_rank",
        ("model.device_map", "hardware.world_size", "hardware.gpus_per_node"),
        lambda placed, world, gpus: gpus if world == 1 and placed in SPREADING else None,
        "the only process spreads its model over the devices it sees",
    ),
    Derivation("training.sharding", ("training.zero_stage",), lambda stage: "zero" if stage else None, "ZeRO stage"),
    Derivation(
        "training.sharding",
        ("training.fsdp_version",),
        lambda version: "fsdp" if version else None,
        "FSDP is configured",
    ),
    Derivation("training.sharding", ("training.fsdp_sharding_strategy",), lambda _: "fsdp", "FSDP is configured"),
    Derivation(
        "training.mixed_precision",
        ("training.param_dtype", "training.sharding"),
        _precision_of,
        "dtype of the parameters under ZeRO",
    ),
    Derivation(
        "training.param_dtype",
        (
            "training.mixed_precision",
            "training.sharding",
            "training.zero_stage",
            "model.load_dtype",
            "model.quantization",
        ),
        _loaded_dtype,
        "dtype of the weights as they were loaded, which nothing casts",
    ),
    Derivation(
        "training.param_dtype",
        ("training.mixed_precision", "training.sharding"),
        _param_dtype,
        "mixed precision under ZeRO",
    ),
    Derivation("training.compute_dtype", ("training.mixed_precision",), _compute_dtype, "mixed precision"),
    Derivation("training.compute_dtype", ("training.param_dtype",), lambda dtype: dtype, "dtype of the parameters"),
    Derivation(
        "training.compute_dtype",
        ("training.mixed_precision", "model.load_dtype", "training.sharding", "model.quantization"),
        _weights_dtype,
        "dtype of the weights, without mixed precision",
    ),
    Derivation(
        "model.trainable_parameters",
        ("model.parameters", "training.trained_share"),
        lambda parameters, share: round(parameters * share),
        "share of the parameters that is trained",
    ),
    Derivation(
        "model.trainable_parameters",
        ("model.parameters", "training.peft"),
        lambda parameters, peft: None if peft else parameters,
        "full fine-tuning trains every parameter",
    ),
    Derivation(
        "training.global_batch_size",
        ("training.micro_batch_size", "training.gradient_accumulation_steps", "hardware.world_size"),
        lambda micro, steps, world: micro * steps * world,
        "micro_batch_size × gradient_accumulation_steps × world_size",
    ),
    Derivation(
        "training.gradient_accumulation_steps",
        ("training.global_batch_size", "training.micro_batch_size", "hardware.world_size"),
        _steps,
        "global_batch_size / (micro_batch_size × data-parallel ranks)",
    ),
    Derivation(
        "training.steps_per_generation",
        ("training.generation_batch_size", "training.micro_batch_size", "hardware.world_size"),
        lambda rows, micro, world: rows // (micro * world) or None,
        "generation_batch_size / (micro_batch_size × world_size)",
    ),
    Derivation(
        "rollout.tensor_parallel",
        ("rollout.engine",),
        lambda engine: 1 if engine == "hf" else None,
        "the HF engine runs on one rank",
        "rollout.tensor_parallel",
    ),
    Derivation("rollout.cuda_graphs", ("rollout.enforce_eager",), lambda eager: not eager, "enforce_eager"),
    Derivation("rollout.colocated", ("rollout.mode",), {"colocate": True, "server": False}.get, "vllm_mode"),
    Derivation(
        "training.sequence_length",
        ("training.max_start_length", "training.max_prompt_length"),
        lambda start, rest: start + rest,
        "first prompt + what is appended to it, cut at max_prompt_length (Search-R1 search_r1/llm_agent/generation.py)",
    ),
    Derivation(
        "training.sequence_length",
        ("training.max_prompt_length", "training.max_response_length"),
        lambda a, b: a + b,
        "prompt + response",
        "training.max_start_length",
    ),
    Derivation(
        "training.loss_implementation",
        ("training.loss_type", "training.trainer"),
        lambda loss, trainer: "chunked" if loss == "chunked_nll" and trainer == "sft" else None,
        "loss_type",
    ),
    Derivation(
        "training.loss_implementation",
        ("training.use_liger_kernel", "training.trainer"),
        lambda liger, trainer: "cross_entropy" if not liger and trainer in {"causal_lm", "pretrain"} else None,
        "neither Liger nor a chunked loss",
        "training.loss_implementation",
    ),
    Derivation(
        "training.loss_implementation",
        ("training.use_liger_kernel", "training.framework"),
        lambda liger, framework: "cross_entropy" if not liger and framework in PLAIN else None,
        "neither Liger nor a chunked loss",
        "training.loss_implementation",
    ),
    Derivation(
        "training.fsdp_wraps_frozen_apart",
        ("program.wraps_adapters_apart", "training.peft"),
        lambda apart, peft: True if apart and peft in {"lora", "qlora", "dora"} else None,
        "the program gives adapters units of their own",
    ),
    Derivation(
        "training.lora_targets_by_peft",
        ("training.lora_target_modules",),
        lambda _: False,
        "the layers that get adapters are named",
    ),
    Derivation(
        "training.fsdp_activation_checkpointing",
        ("training.sharding",),
        lambda sharding: None if sharding == "fsdp" else False,
        "no FSDP",
    ),
)


class _Widths(NamedTuple):
    """Widths of a decoder's blocks, from facts."""

    hidden: int
    intermediate: int
    query_width: int
    key_width: int
    layers: int
    vocab: int
    linears: str
    gated: bool


_WIDTHS = (
    "model.hidden_size", "model.intermediate_size", "model.num_attention_heads", "model.num_key_value_heads", "model.head_dim",
    "model.num_hidden_layers",
)  # fmt: skip
_UNEQUAL = (
    "training.lora_target_parameters", "model.num_experts", "model.attention_layers", "model.block_linears",
)  # fmt: skip
_BESIDE_LINEARS = ("training.lora_target_parameters", "training.lora_modules_to_save", "model.vision_parameters")
_UNCOUNTED = (*_UNEQUAL, *_BESIDE_LINEARS)
"""What has parameters that the widths of dense and equal blocks do not give."""
FROZEN_INPUTS = "training.frozen_inputs"


def _read_widths(facts: Mapping[str, Fact], besides: tuple[str, ...]) -> _Widths | None:
    """Return the widths of blocks whose linear layers are known, dense and equal; None of others.

    Args:
        facts: of the run.
        besides: facts that no run has whose blocks are such.
    """
    from compatcheck.architectures.adapters import list_linears, name_linears  # noqa: PLC0415 (only with adapters)

    if _waits_for_traits(facts) or any(name not in facts for name in _WIDTHS):
        return None
    hidden, intermediate, heads, kv_heads, width, layers = numbers = tuple(facts[name].value for name in _WIDTHS)
    if not all(isinstance(number, int) for number in numbers):
        return None
    kind, sharding, of_transformers, gated, vocab = (
        facts[name].value if name in facts else None
        for name in ("model.model_type", SHARDING, "program.runs_transformers", "model.gated_mlp", "model.vocab_size")
    )
    linears = name_linears(str(kind or ""), sharding, runs_transformers=of_transformers)
    if any(name in facts and facts[name].value for name in besides) or list_linears(linears) is None:
        return None
    sizes: Any = (hidden, intermediate, heads * width, kv_heads * width, layers, vocab or 0)  # type: ignore[operator]  # as tested
    return _Widths._make((*sizes, linears, gated is not False))


def _count_adapters(facts: Mapping[str, Fact]) -> Fact | None:
    """Count what low-rank adapters train, from their rank and targets."""
    method, asked = facts.get("training.peft"), ("training.lora_rank", "training.lora_target_modules")
    if method is None or "model.trainable_parameters" in facts or any(name not in facts for name in asked):
        return None
    from compatcheck.architectures.adapters import LOW_RANK  # noqa: PLC0415 (only with adapters)

    rank, targets = (facts[name].value for name in asked)
    if method.value not in LOW_RANK or not isinstance(targets, tuple) or not isinstance(rank, int):
        return None
    names, dora = tuple(map(str, targets)), method.value == "dora"
    counted = _count_listed if "model.block_linears" in facts else _count_equal
    count = counted(facts, rank, names, decomposed=dora)
    sources = tuple(dict.fromkeys(source for name in asked for source in facts[name].sources))
    note = "rank × (inputs + outputs) of each adapted layer"
    return Fact("model.trainable_parameters", count, "derived", sources, note) if count else None


def _count_equal(facts: Mapping[str, Fact], rank: int, targets: tuple[str, ...], *, decomposed: bool) -> int | None:
    from compatcheck.architectures.adapters import HEADS, count_adapters  # noqa: PLC0415 (only with adapters)

    shape = _read_widths(facts, _UNCOUNTED)
    if shape is None or (not shape.vocab and not HEADS.isdisjoint(targets)):
        return None
    return count_adapters(shape, rank, targets, decomposed=decomposed)


def _count_listed(facts: Mapping[str, Fact], rank: int, targets: tuple[str, ...], *, decomposed: bool) -> int | None:
    """Count those of blocks that differ; None where some have experts, whose adapters hang on releases."""
    from compatcheck.architectures.adapters import HEADS, Layout, count_adapted, is_expert, list_adapted, name_linears  # noqa: PLC0415 (only with adapters)
    from compatcheck.architectures.parts import read_linear_layer  # noqa: PLC0415 (as above)

    if _waits_for_traits(facts) or any(name in facts and facts[name].value for name in _BESIDE_LINEARS):
        return None
    kind, sharding, of_transformers = (
        facts[name].value if name in facts else None
        for name in ("model.model_type", SHARDING, "program.runs_transformers")
    )
    lines = facts["model.block_linears"].value
    of_type = kind and name_linears(str(kind), sharding, runs_transformers=of_transformers) == kind
    if not of_type or not isinstance(lines, tuple) or not HEADS.isdisjoint(targets):
        return None
    try:
        layers = tuple(map(read_linear_layer, map(str, lines)))
    except ValueError:  # the estimate says what is wrong with them
        return None
    if any(map(is_expert, layers)):
        return None
    return count_adapted(list_adapted(layers, targets, Layout()), rank, decomposed=decomposed)


def _waits_for_traits(facts: Mapping[str, Fact]) -> bool:
    """Tell whether whose models a program trains is not known yet: it is one of its traits, which come last."""
    return "training.framework" in facts and "program.code" not in facts


def derive(facts: dict[str, Fact], undecided: Collection[str] = (), opened: Collection[str] = ()) -> frozenset[str]:
    """Add what follows from the facts, in place, until nothing new follows; stated values are never replaced.

    Where a fact may follow in several ways, a later one counts only if no earlier one waits for what nobody knows.

    Args:
        facts: grown in place.
        undecided: facts set to something nobody knows: what counts them as left out does not follow.
        opened: facts that a key decides in a way nobody knows: they do not follow from others. What rows leave undecided may.

    Returns:
        Facts that may follow from what nobody knows.
    """

    def is_hidden(name: str | None) -> bool:
        return name in undecided and name not in facts

    strung = ("training.packing",) if any(name.startswith("rollout.") for name in facts) else ()
    counted = (*SPLIT_SEQUENCES, "training.micro_batch_is_global", *strung)
    progress, waiting = True, set[str]()
    while progress:
        progress, waiting = False, set()
        for derivation in DERIVATIONS:
            name = derivation.fact
            if name in facts or name in opened or name in waiting or is_hidden(derivation.without):
                continue
            if name in _COUNT_RANKS and any(map(is_hidden, counted)):
                continue
            if _waits(derivation, facts, undecided):
                waiting.add(name)
                continue
            value = _apply(derivation, facts)
            if value is None:
                continue
            inputs = [facts[one] for one in derivation.inputs]
            sources = tuple(dict.fromkeys(source for fact in inputs for source in fact.sources))
            facts[name] = Fact(name, value, "derived", sources, derivation.words)
            progress = True
    adapters = _count_adapters(facts)
    if adapters is not None and adapters.name not in opened:
        facts[adapters.name] = adapters
    build = facts.get("runtime.torch_build")
    known = {*facts, *opened}
    if build is not None and build.value != "cuda" and "hardware.compute_capability" not in known:
        note = f"torch is built for {build.value}"
        facts["hardware.compute_capability"] = Fact("hardware.compute_capability", None, "derived", build.sources, note)
    sharding = facts.get("training.sharding")
    is_told = "hardware.single_rank" in known or any(one in opened for one in _RANKS)  # or by what nobody knows
    if sharding is not None and sharding.value in SPREAD and not is_told:
        note = f"state is spread over ranks: {sharding.value}"
        facts["hardware.single_rank"] = Fact("hardware.single_rank", False, "derived", sharding.sources, note)
    if sharding is not None and sharding.value != "fsdp" and "training.fsdp_version" not in known:
        note = f"state is not sharded by FSDP: {sharding.value}"
        facts["training.fsdp_version"] = Fact("training.fsdp_version", None, "derived", sharding.sources, note)
    return frozenset(waiting - facts.keys())


def derive_unsharded(
    facts: dict[str, Fact], open_facts: frozenset[str], opened: Collection[str] = (), *, replicates: bool = False
) -> bool:
    """State what ranks share where no input names a sharding and no default of a program gave one; tell whether that was so.

    A single rank shards nothing.

    Args:
        facts: grown in place.
        open_facts: facts that are set to something nobody knows.
        opened: facts that a key decides in a way nobody knows.
        replicates: whether several ranks are replicas of DDP, as those are that transformers' Trainer finds.
    """
    world = facts.get("hardware.world_size")
    undecided = SHARDING not in facts and open_facts.isdisjoint(_TELL_SHARDING)
    if world is None or not undecided or (world.value != 1 and not replicates):
        return False
    value, note = ("none", "one rank has nobody to share state with") if world.value == 1 else ("ddp", _REPLICAS)
    facts[SHARDING] = Fact(SHARDING, value, "derived", world.sources, note)
    derive(facts, open_facts, opened)
    return True


def derive_from_code(facts: dict[str, Fact], undecided: Collection[str] = ()) -> None:
    """Add what follows from the traits of the program's code, which come last."""
    derive_own_weights(facts)
    derive_fused_loss(facts, undecided)
    derive_frozen_inputs(facts, undecided)


def derive_frozen_inputs(facts: dict[str, Fact], undecided: Collection[str] = ()) -> None:
    """State the width of what only frozen linear layers of a block take, beside adapters under ZeRO-3; experts are left out.

    Dropout, targets and attention may be defaults of the program, so that they come first.
    """
    method, stage = facts.get("training.peft"), facts.get("training.zero_stage")
    if stage is None or stage.value != 3:
        return
    asked = ("training.lora_target_modules", "training.lora_dropout", "model.attn_implementation", "model.hidden_act")
    if method is None or method.value in {None, "freeze"} or FROZEN_INPUTS in facts:
        return
    if any(name in undecided and name not in facts for name in asked):
        return
    shape = _read_widths(facts, _UNEQUAL)
    targets, dropout, attention, activation = (facts[name].value if name in facts else None for name in asked)
    if shape is None or not isinstance(targets, tuple):
        return
    from compatcheck.architectures.adapters import measure_frozen_inputs  # noqa: PLC0415 (as above)

    width = measure_frozen_inputs(
        shape,
        str(method.value),
        tuple(map(str, targets)),
        dropout=bool(dropout),
        eager=attention == "eager",
        activation=str(activation or ""),
    )
    sources = tuple(
        dict.fromkeys(source for name in ("training.peft", *asked) if name in facts for source in facts[name].sources)
    )
    facts[FROZEN_INPUTS] = Fact(FROZEN_INPUTS, width, "derived", sources, "inputs that no adapter takes")


def derive_own_weights(facts: dict[str, Fact]) -> None:
    """State that a model of the program's own is not quantised where only the file that weights come from is."""
    kind, stored = facts.get("model.quantization"), facts.get("model.stored_quantization")
    own = facts.get("program.runs_transformers")
    if kind is None or stored is None or own is None or own.value is not False or kind.value is None:
        return
    if (kind.value, kind.sources) == (stored.value, stored.sources):
        note = "weights of the file become those of a model of the program's own"
        facts[kind.name] = Fact(kind.name, None, "derived", kind.sources, note)


def derive_fused_loss(facts: dict[str, Fact], undecided: Collection[str] = ()) -> None:
    """State that Liger's loss replaces the model's, which needs labels; trainers of TRL have losses of Liger's own.

    The program's code decides it as much as the setting, so its traits come first.
    """
    liger, name = facts.get("training.use_liger_kernel"), "training.loss_implementation"
    if liger is None or not liger.value or name in facts or name in undecided:
        return
    if any(one in undecided and one not in facts for one in _DECIDE_FUSED):
        return
    if any(one.fact == name and _waits(one, facts, undecided) for one in DERIVATIONS):
        return
    labels, of_trl = facts.get("program.passes_labels"), facts.get("program.runs_trl_trainers")
    patched, own = facts.get("model.has_liger_kernels"), facts.get("program.has_liger_loss")
    has_own = of_trl is not None and of_trl.value and (own is None or own.value)
    # a program that is said to have no Liger loss has the model's own switched off, too, or takes logits
    of_model = labels.value if labels is not None else own is None and not has_own
    if of_model and patched is not None and not patched.value:
        note = "Liger has no kernels for this model type, and leaves it as it is"
        facts[name] = Fact(name, "cross_entropy", "derived", liger.sources, note)
    elif of_model or has_own:
        facts[name] = Fact(name, "fused_linear", "derived", liger.sources, "Liger kernels")
    else:
        note = "Liger replaces the loss of a model that is given labels, and the program gives none"
        facts[name] = Fact(name, "cross_entropy", "derived", liger.sources, note)


_DECIDE_FUSED = (
    "program.passes_labels",
    "program.runs_trl_trainers",
    "program.has_liger_loss",
    "model.has_liger_kernels",
)
SHARDING = "training.sharding"
_TELL_SHARDING = {SHARDING, *(name for one in DERIVATIONS if one.fact == SHARDING for name in one.inputs)}


class _Open:
    """Stands for a value that nobody knows; whatever is asked of it is a `TypeError`."""

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __eq__(self, other: object) -> bool:
        raise TypeError

    def __bool__(self) -> bool:
        raise TypeError


_OPEN = _Open()


def _waits(derivation: Derivation, facts: Mapping[str, Fact], undecided: Collection[str]) -> bool:
    """Tell whether a fact may follow from inputs some of which nobody knows: the known ones do not rule it out."""
    missing = [name for name in derivation.inputs if name not in facts]
    if not missing or not all(name in undecided for name in missing):
        return False
    try:
        return (
            derivation.formula(*(facts[name].value if name in facts else _OPEN for name in derivation.inputs))
            is not None
        )
    except TypeError:
        return True


def _apply(derivation: Derivation, facts: Mapping[str, Fact]) -> Value:
    if any(name not in facts for name in derivation.inputs):
        return None
    values = [facts[name].value for name in derivation.inputs]
    splits = [facts[name].value for name in SPLIT_SEQUENCES if name in facts]
    if derivation.fact == "training.global_batch_size" and any(split not in {1, None} for split in splits):
        return None
    if derivation.fact == "training.gradient_accumulation_steps":
        # DeepSpeed runtime/config.py _set_batch_related_parameters; Megatron-LM core/num_microbatches_calculator.py
        whole = facts.get("training.micro_batch_is_global")
        if (whole is not None and whole.value) or not all(isinstance(value, int) and value > 0 for value in values):
            return None
        packed = facts.get("training.packing")
        if packed is not None and packed.value and any(name.startswith("rollout.") for name in facts):
            return None  # the batch counts answers, of which as many as fit are strung together in a micro batch
        for split in splits:
            if isinstance(split, int) and split > 1:
                values[-1] = max(1, values[-1] // split)  # type: ignore[operator]  # integers, as tested above
    return derivation.formula(*values)
