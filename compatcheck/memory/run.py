"""One run on one device: the numbers every memory model needs, read from facts, with what had to be assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.estimate import NOTHING, Assumption, Size
from compatcheck.core.facts import Fact
from compatcheck.core.units import DTYPE_BYTES
from compatcheck.memory.closed_form.adapters import LOW_RANK, count_adapters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Value

LARGEST = 2**63 - 1
"""No count is larger: it would not fit the integers of any program that trains."""


class Model(NamedTuple):
    """A model's shape and where its parameters are."""

    model_type: str
    parameters: int
    in_blocks: int
    """Inside the repeated blocks, experts included."""
    embedding: int
    lm_head: int
    """0 when tied to the embedding."""
    vision: int
    expert: int
    """Inside routed experts, part of ``in_blocks``."""
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    experts: int
    experts_per_token: int
    expert_width: int
    window: int | None
    """Local attention window in tokens."""
    attention: str
    quantization: str | None

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Width of all key heads together, which is that of the value heads."""
        return self.kv_heads * self.head_dim

    @property
    def other(self) -> int:
        """Parameters outside blocks, embedding, head and towers: final norm, learned positions."""
        return max(0, self.parameters - self.in_blocks - self.embedding - self.lm_head - self.vision)


class Parallelism(NamedTuple):
    """How ranks share the work."""

    world: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int
    """Ranks that hold different data: world / (tensor × pipeline × context)."""
    sharding: str
    """``none``, ``ddp``, ``zero``, ``fsdp`` or ``megatron``."""
    stage: int
    """ZeRO stage that says what is split over `shard` ranks: 0 nothing, 1 optimizer states, 2 gradients too, 3 parameters too.
    FSDP's full_shard is 3, shard_grad_op 2."""
    shard: int
    """Ranks one copy of the split state is spread over."""


class Precision(NamedTuple):
    """Bytes per element of what a run holds."""

    stored: float
    """Working parameters between steps."""
    frozen: float
    """Frozen parameters, quantisation apart."""
    unquantised: float
    """Frozen parameters that a quantised model keeps unquantised: embedding, head, norms."""
    compute: float
    """Inputs of matrix products."""
    residual: float
    """The residual stream: float32 under autocast with float32 weights."""
    gradient: float
    reduce: float
    """Gradients while they are reduced."""
    master: float
    """Master weights beside the working parameters; 0 when there are none."""
    moments: float
    """One moment of the optimizer."""
    autocast: bool
    """Products run in a 16-bit dtype on weights kept in float32."""


class Run(NamedTuple):
    """One role of a job on one of its devices."""

    role: str
    model: Model
    parallel: Parallelism
    precision: Precision
    trainable: int
    """Parameters that receive gradients, adapters included."""
    adapters: int
    """Parameters added by the adapter method, part of `trainable`."""
    copied: int
    """Parameters of modules that peft trains in full and keeps a frozen original of (``modules_to_save``)."""
    peft: str | None
    rank: int
    targets: tuple[str, ...]
    adapter_bytes: float
    mixed: bool
    """Mixed precision: where nothing shards with a dtype of its own, autocast."""
    lora_dropout: float
    optimizer: str | None
    """None when the role does not train."""
    implementation: str
    in_backward: bool
    """The optimizer applies each gradient in backward and gives it back."""
    micro_batch: int
    sequence: int
    accumulation: int
    checkpointing: bool
    """Whole blocks are computed again in backward, as far as `policy` says."""
    policy: str
    """``full``, ``every_other_product`` or ``core_attention``; empty without checkpointing."""
    activation_offloading: bool
    padded: bool | None
    """Whether batches carry a mask with padding; None when not known."""
    loss: str
    """``cross_entropy``, ``chunked``, ``fused_linear``."""
    trainer: str
    framework: str
    """Program that trains, as ``training.framework`` names it; empty when not known."""
    offload_optimizer: bool
    offload_param: bool
    reduce_bucket: int
    gather_bucket: int
    prefetch_bucket: int
    max_live: int
    overlap: bool
    bucket_view: bool
    compiled: bool
    expandable: bool
    """The allocator uses expandable segments."""
    sequence_parallel: bool
    """Tensor-parallel ranks split norms and residual stream along the sequence, as Megatron and torchtitan do."""
    outputs_kept: bool
    use_cache: bool
    other_resident: int
    limit: int | None
    unpadded: bool | None
    """Sequences of a batch are strung together without padding (verl's ``use_remove_padding``); None when not known."""
    response: int | None
    """Tokens of a completion, at most."""
    entropy: bool | None
    """The policy's loss has an entropy term; None when not known."""
    capability: float | None
    versions: Mapping[str, tuple[int, ...]]
    """Releases of packages as numbers, by name; absent when not known."""
    known: frozenset[str]
    """Facts that somebody stated or that follow from what was stated."""
    references: Size = NOTHING
    """Frozen copies of the model beside it, 0 to 1, where the reference is no role of its own."""

    @property
    def tokens(self) -> int:
        """Tokens of one micro batch on one device; context-parallel ranks share a sequence."""
        return self.micro_batch * -(-self.sequence // self.parallel.context)

    def release(self, package: str) -> tuple[int, ...] | None:
        """Return the numbers of a package's release, or None when not known."""
        return self.versions.get(package)


class Reading(NamedTuple):
    """What reading facts came to."""

    run: Run | None
    """None when something is needed."""
    assumptions: tuple[Assumption, ...]
    needs: tuple[str, ...]


class _Facts:
    """Facts with a memory of what was assumed and what is missing."""

    def __init__(self, facts: Mapping[str, Fact | Value]) -> None:
        self._facts = facts
        self.assumptions: dict[str, Assumption] = {}
        self.needs: list[str] = []

    def get(self, name: str) -> Value:
        fact = self._facts.get(name)
        return fact.value if isinstance(fact, Fact) else fact

    def knows(self, name: str) -> bool:
        return name in self._facts

    def assume(self, name: str, value: Value, reason: str) -> Value:
        if name in self._facts:
            return self.get(name)
        self.assumptions[name] = Assumption(name, value, reason)
        return value

    def integer(self, name: str, default: int | None = None, reason: str = "") -> int:
        value = self.get(name) if name in self._facts else None
        if isinstance(value, int) and not isinstance(value, bool):
            if 0 <= value <= LARGEST:
                return value
            from compatcheck.core.errors import UsageError  # noqa: PLC0415 (on the way to an error)

            raise UsageError(f"{name} cannot be {value}", hint=f"give a whole number from 0 to {LARGEST}")
        if default is None:
            self.needs.append(name)
            return 0
        if reason:
            self.assumptions[name] = Assumption(name, default, reason)
        return default

    def positive(self, name: str, default: int | None = None, reason: str = "") -> int:
        value = self.integer(name, default, reason)
        if value == 0 and name not in self.needs:
            from compatcheck.core.errors import UsageError  # noqa: PLC0415 (on the way to an error)

            raise UsageError(f"{name} cannot be 0", hint="give a whole number from 1 on")
        return value

    def flag(self, name: str, default: bool, reason: str = "") -> bool:  # noqa: FBT001 (as assume)
        if name in self._facts and self.get(name) is not None:
            return bool(self.get(name))
        if reason:
            self.assumptions[name] = Assumption(name, default, reason)
        return default

    def dtype(self, name: str) -> float | None:
        value = self.get(name)
        return DTYPE_BYTES.get(value) if isinstance(value, str) else None


def read_run(
    facts: Mapping[str, Fact | Value],
    environment: Environment | None = None,
    *,
    role: str = "train",
    trains: bool = True,
) -> Reading:
    """Read a run from facts.

    Args:
        facts: by vocabulary name, resolved facts or plain values.
        environment: where releases of packages are looked up.
        role: name of the role the facts are of.
        trains: False for a role that only runs forward.

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    source = _Facts(facts)
    model = _read_model(source)
    parallel = _read_parallelism(source)
    micro = source.positive("training.micro_batch_size", 1, "nobody says how many sequences a device takes at once")
    assumed = source.assumptions.pop("training.micro_batch_size", None)
    if assumed is not None:
        name = assumed.fact if role == "train" else f"{assumed.fact} ({role})"
        source.assumptions[name] = assumed._replace(fact=name)
    if source.get("training.micro_batch_is_global") and parallel.data > 1:
        micro = max(1, micro // parallel.data)
    sequence = source.positive("training.sequence_length")
    if source.needs:
        return Reading(None, tuple(source.assumptions.values()), tuple(dict.fromkeys(source.needs)))
    positions = source.integer("model.max_position_embeddings", 0)
    if positions and sequence > positions:
        reason = f"taken as stated, though the model was built for {positions:,} positions"
        source.assumptions["training.sequence_length"] = Assumption("training.sequence_length", sequence, reason)
    peft = source.assume("training.peft", None, "no adapter method is named: full fine-tuning")
    peft = str(peft) if isinstance(peft, str) else None
    versions = _versions(environment)
    precision = _read_precision(source, parallel, model, peft, versions.get("trl"))
    rank = source.integer("training.lora_rank", 8, "peft's default rank" if peft in LOW_RANK else "")
    targets = source.get("training.lora_target_modules")
    if peft in LOW_RANK and not isinstance(targets, tuple):
        targets = source.assume(
            "training.lora_target_modules",
            DEFAULT_TARGETS,
            "query and value projections, peft's default for most types",
        )
    names = tuple(str(name) for name in targets) if isinstance(targets, tuple) else ()
    adapters, copied, trainable = _count_trainable(source, model, peft, rank, names)
    adapter_bytes = _adapter_bytes(source, precision, versions.get("peft"))
    if parallel.sharding == "zero":
        adapter_bytes = precision.stored  # DeepSpeed casts the whole module
    optimizer = source.assume("training.optimizer", "adamw", "the usual optimizer") if trains else None
    implementation = source.get("training.optimizer_implementation")
    if implementation is None:
        plain = parallel.sharding in {"none", "ddp", "fsdp"}
        implementation = "foreach" if plain else "fused"
        if plain and trains and optimizer in {"adamw", "adam"}:
            source.assume("training.optimizer_implementation", implementation, "torch's own choice on a GPU")
    mask = source.get("run.attention_mask")
    packed, coefficient = source.get("training.use_remove_padding"), source.get("training.entropy_coefficient")
    checkpointing = source.flag(
        "training.gradient_checkpointing", default=False, reason="off unless somebody turns it on"
    ) or source.flag("training.fsdp_activation_checkpointing", default=False)
    policy = str(source.get("training.checkpointing_policy") or "full") if checkpointing else ""
    run = Run(
        role=role,
        model=model,
        parallel=parallel,
        precision=precision,
        trainable=trainable,
        adapters=adapters,
        copied=copied,
        peft=peft,
        rank=rank,
        targets=names,
        adapter_bytes=adapter_bytes,
        mixed=source.get("training.mixed_precision") in {"bf16", "fp16"},
        lora_dropout=float(source.get("training.lora_dropout") or 0),  # type: ignore[arg-type]  # a float fact
        optimizer=None if optimizer is None else str(optimizer),
        implementation=str(implementation),
        in_backward=source.flag("training.optimizer_in_backward", default=False),
        micro_batch=micro,
        sequence=sequence,
        accumulation=source.positive("training.gradient_accumulation_steps", 1),
        checkpointing=checkpointing and policy != "core_attention",
        policy=policy,
        activation_offloading=source.flag("training.activation_offloading", False),
        padded=None if mask is None else mask == "padding",
        loss=_read_loss(source),
        trainer=str(source.get("training.trainer") or "causal_lm"),
        framework=str(source.get("training.framework") or ""),
        offload_optimizer=source.get("training.offload_optimizer") is not None
        or source.flag("training.fsdp_offload_params", False),
        offload_param=source.get("training.offload_param") is not None
        or source.flag("training.fsdp_offload_params", False),
        reduce_bucket=source.integer("training.reduce_bucket_size", 500_000_000),
        gather_bucket=source.integer("training.allgather_bucket_size", 500_000_000),
        prefetch_bucket=source.integer("training.prefetch_bucket_size", 50_000_000),
        max_live=source.integer("training.max_live_parameters", 1_000_000_000),
        overlap=source.flag("training.overlap_comm", parallel.stage == 3),
        bucket_view=source.flag("training.gradient_as_bucket_view", False),
        compiled=source.flag("training.compile", False),
        expandable=source.flag("allocator.expandable_segments", default=False),
        sequence_parallel=source.get("training.framework") in {"megatron", "torchtitan", "nemo-rl"},
        outputs_kept=source.flag("run.outputs_kept", False),
        use_cache=source.flag("model.use_cache", False),
        other_resident=source.integer("run.other_resident_bytes", 0),
        limit=source.integer("hardware.memory_bytes", 0) or None,
        unpadded=None if packed is None else bool(packed),
        response=source.integer("training.max_response_length", 0) or None,
        entropy=None if coefficient is None else bool(coefficient),
        capability=_number(source.get("hardware.compute_capability")),
        versions=versions,
        known=frozenset(facts),
    )
    return Reading(run, tuple(source.assumptions.values()), ())


BITSANDBYTES = frozenset({"nf4", "fp4", "int8"})
DEFAULT_TARGETS = ("q_proj", "v_proj")


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _read_model(source: _Facts) -> Model:
    hidden = source.positive("model.hidden_size")
    layers = source.positive("model.num_hidden_layers")
    heads = source.positive("model.num_attention_heads")
    vocab = source.positive("model.vocab_size")
    intermediate = source.integer("model.intermediate_size", 4 * hidden, "four times the hidden size" if hidden else "")
    kv_heads = source.positive("model.num_key_value_heads", heads or 1)
    head_dim = source.positive("model.head_dim", max(1, hidden // heads) if heads else 1)
    tied = source.flag("model.tie_word_embeddings", False)
    experts = source.integer("model.num_experts", 0)
    width = source.integer("model.moe_intermediate_size", intermediate)
    embedding = source.integer("model.embedding_parameters", vocab * hidden)
    head = source.integer("model.lm_head_parameters", 0 if tied else vocab * hidden)
    blocks = _guess_blocks(hidden, layers, heads * head_dim, kv_heads * head_dim, intermediate)
    reason = "counted as a decoder with a gated MLP of these dimensions"
    if source.knows("model.parameters"):
        total = source.positive("model.parameters")
        blocks = source.integer("model.parameters_in_blocks", max(0, total - embedding - head))
    else:
        blocks = source.integer("model.parameters_in_blocks", blocks, "" if source.needs else reason)
        total = source.integer("model.parameters", blocks + embedding + head + hidden, "" if source.needs else reason)
    attention = source.assume("model.attn_implementation", "sdpa", "the default of transformers since 4.36")
    quantization = source.get("model.quantization")
    return Model(
        model_type=str(source.get("model.model_type") or ""),
        parameters=total,
        in_blocks=min(blocks, total),
        embedding=min(embedding, total),
        lm_head=head,
        vision=source.integer("model.vision_parameters", 0),
        expert=source.integer("model.expert_parameters", 0),
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        tied=tied,
        experts=experts,
        experts_per_token=source.integer("model.num_experts_per_token", 1 if experts else 0),
        expert_width=width,
        window=source.integer("model.sliding_window", 0) or None if source.get("model.sliding_window") else None,
        attention=str(attention),
        quantization=str(quantization) if isinstance(quantization, str) else None,
    )


def _guess_blocks(hidden: int, layers: int, query: int, key: int, intermediate: int) -> int:
    """Count the blocks of a decoder with a gated MLP, two norms and no biases."""
    return layers * (hidden * (2 * query + 2 * key + 3 * intermediate) + 2 * hidden)


def _read_parallelism(source: _Facts) -> Parallelism:
    sharding = source.get("training.sharding")
    stage = source.get("training.zero_stage")
    if sharding is None and isinstance(stage, int) and stage:
        sharding = "zero"
    tensor = source.positive("training.tensor_parallel", 1)
    pipeline = source.positive("training.pipeline_parallel", 1)
    context = source.positive("training.context_parallel", 1)
    expert = source.positive("training.expert_parallel", 1)
    splits = tensor * pipeline * context
    if sharding in {"zero", "fsdp", "megatron"} or splits > 1:
        world = source.positive("hardware.world_size")
    else:
        world = source.positive("hardware.world_size", 1, "one device")
    if sharding is None:
        sharding = source.assume("training.sharding", "ddp" if world > 1 else "none", "no ZeRO or FSDP is configured")
    data = max(1, world // splits)
    level, shard = 0, 1
    if sharding == "zero":
        level = stage if isinstance(stage, int) else source.integer("training.zero_stage")
        shard = data * context
    elif sharding == "fsdp":
        strategy = source.get("training.fsdp_sharding_strategy")
        keep = source.get("training.fsdp_reshard_after_forward") is False
        level = {"shard_grad_op": 2, "hybrid_shard_zero2": 2, "no_shard": 0}.get(str(strategy), 2 if keep else 3)
        shard = source.positive("training.hsdp_shard_size", data * context)
        if str(strategy).startswith("hybrid") and not source.knows("training.hsdp_shard_size"):
            shard = min(shard, source.positive("hardware.gpus_per_node", shard))
    elif sharding == "megatron":
        level, shard = _level_of_megatron(source, stage), data * context
    return Parallelism(world, tensor, pipeline, context, expert, data, str(sharding), level, max(1, shard))


def _level_of_megatron(source: _Facts, stage: Value) -> int:
    """Return 1 where optimizer states are split.

    Left out, Megatron-LM does not (``--use-distributed-optimizer``); what is built on it does: verl utils/megatron_utils.py
    v0.2.0 to v0.7.0, ms-swift megatron/arguments/megatron_args.py, NeMo-RL examples/configs/grpo_math_1B.yaml.
    """
    if isinstance(stage, int) and not source.knows("training.distributed_optimizer"):
        return stage
    own = source.get("training.framework") in {None, "megatron"}
    reason = "Megatron-LM's default" if own else "what programs built on Megatron turn on"
    return int(source.assume("training.distributed_optimizer", not own, reason) is True)


_KEEPS_DTYPES = frozenset({"axolotl", "llamafactory", "ms_swift"})
"""Programs that leave what is not quantised in the dtype it computes in: axolotl casts it back (loaders/model.py,
_configure_embedding_dtypes, 0.5 to 0.12 and main), LLaMA-Factory only casts norms and only when asked (upcast_layernorm, 0.3 on),
ms-swift has no such call."""
_TRL_WITHOUT_CAST = (0, 29)
"""First TRL whose trainers do not call peft's prepare_model_for_kbit_training (SFT since 0.27, DPO since 0.29)."""


def _casts_unquantised(source: _Facts, model: Model, trl: tuple[int, ...] | None) -> bool:
    """Tell whether embedding, head and norms beside a quantised base become float32 before training.

    ``peft.prepare_model_for_kbit_training`` does that. TRL calls it up to 0.28, and under bf16 with a 4-bit base turns embedding
    and head back (peft_module_casting_to_bf16, trl/trainer/utils.py), so that what is kept between layers is bfloat16 again.
    """
    framework = source.get("training.framework")
    if framework in _KEEPS_DTYPES:
        return False
    if framework == "trl":
        four_bits = model.quantization in {"nf4", "fp4"}
        back = four_bits and source.get("training.mixed_precision") == "bf16"
        return not back and (trl is None or trl < _TRL_WITHOUT_CAST)
    return True


def _read_precision(
    source: _Facts, parallel: Parallelism, model: Model, peft: str | None, trl: tuple[int, ...] | None
) -> Precision:
    mixed = source.get("training.mixed_precision")
    words = {"bf16": 2.0, "fp16": 2.0, "fp8": 2.0, "no": 4.0}
    stored = source.dtype("training.param_dtype")
    loaded = source.dtype("model.load_dtype") or stored
    compute = source.dtype("training.compute_dtype")
    if compute is None and isinstance(mixed, str):
        compute = words.get(mixed) if mixed != "no" else stored or loaded
    sharding = parallel.sharding
    if stored is None:
        if sharding == "zero":
            known = words.get(mixed) if isinstance(mixed, str) else loaded
            stored = known or _assume_bytes(source, "training.param_dtype", "bfloat16", "DeepSpeed in bf16")
        elif sharding == "megatron" and mixed in {"bf16", "fp16"}:
            dtype = "bfloat16" if mixed == "bf16" else "float16"
            stored = _assume_bytes(source, "training.param_dtype", dtype, "Megatron casts the parameters themselves")
        elif loaded is not None:
            stored = loaded
        elif mixed in {"bf16", "fp16"} and peft is None:
            stored = _assume_bytes(source, "training.param_dtype", "float32", "what mixed precision starts from")
        else:
            stored = _assume_bytes(source, "training.param_dtype", "bfloat16", "the usual dtype of these weights")
    compute = 2.0 if compute == 1 else min(compute or stored, 4.0)
    frozen = loaded or stored
    if sharding == "fsdp" and mixed in {"bf16", "fp16"} and peft is None and not source.knows("training.param_dtype"):
        stored = 4.0  # accelerate and the trainers keep float32 shards under mixed precision
    autocast = stored == 4 and compute < stored and sharding in {"none", "ddp"}
    unquantised, upcast = frozen, False
    if (
        model.quantization in BITSANDBYTES
        and peft in LOW_RANK
        and sharding in {"none", "ddp"}
        and mixed in {"bf16", "fp16"}
        and _casts_unquantised(source, model, trl)
    ):
        reason = "peft's prepare_model_for_kbit_training casts what is not quantised"
        source.assume("dtype of unquantised weights", "float32", reason)
        unquantised, upcast = 4.0, True
    stated = source.get("training.master_dtype") if source.knows("training.master_dtype") else "unknown"
    if stated is None:
        master = 0.0
    elif isinstance(stated, str) and stated in DTYPE_BYTES:
        master = DTYPE_BYTES[stated] if DTYPE_BYTES[stated] > stored or sharding == "zero" else 0.0
    else:
        kept = bool(source.get("training.bf16_master_weights_and_grads"))
        master = 4.0 if sharding in {"zero", "megatron"} and stored < 4 and not kept else 0.0
    gradient = (source.dtype("training.grad_accum_dtype") if sharding in {"zero", "megatron"} else None) or stored
    if sharding == "megatron" and mixed == "bf16" and not source.knows("training.grad_accum_dtype"):
        reason = "Megatron accumulates gradients of bfloat16 weights in float32 unless told not to"
        gradient = _assume_bytes(source, "training.grad_accum_dtype", "float32", reason)
    reduce = source.dtype("training.reduce_dtype") or (compute if sharding == "fsdp" else gradient)
    moments = master or stored
    return Precision(
        stored=stored,
        frozen=frozen,
        unquantised=unquantised,
        compute=compute,
        residual=4.0 if autocast or upcast else compute,
        gradient=gradient,
        reduce=reduce,
        master=master,
        moments=moments,
        autocast=autocast,
    )


def _assume_bytes(source: _Facts, name: str, dtype: str, reason: str) -> float:
    source.assume(name, dtype, reason)
    return DTYPE_BYTES[dtype]


def _read_loss(source: _Facts) -> str:
    loss = source.get("training.loss_implementation")
    if isinstance(loss, str):
        return loss
    return "fused_linear" if source.get("training.use_liger_kernel") else "cross_entropy"


def _adapter_bytes(source: _Facts, precision: Precision, peft: tuple[int, ...] | None) -> float:
    """Return bytes of one adapter parameter.

    peft made adapters in float32 until 0.5, in the dtype of the base from 0.6, and casts 16-bit ones to float32 from 0.12 unless
    told not to (tuners/lora.py of v0.5.0, tuners/lora/layer.py of v0.6.0, ``autocast_adapter_dtype``).
    """
    if peft is not None and peft < (0, 12):
        return 4.0 if peft < (0, 6) else precision.frozen
    return 4.0 if source.flag("training.autocast_adapter_dtype", default=True) else precision.frozen


def _count_trainable(
    source: _Facts, model: Model, peft: str | None, rank: int, targets: tuple[str, ...]
) -> tuple[int, int, int]:
    """Return adapter parameters, parameters trained in full beside them, and all trainable ones."""
    adapters = full = 0
    if peft in LOW_RANK:
        adapters = count_adapters(model, rank, targets, decomposed=peft == "dora")
    saved = source.get("training.lora_modules_to_save")
    if peft is not None and isinstance(saved, tuple):
        full += model.embedding if {"embed_tokens", "wte"} & set(saved) else 0
        full += (model.lm_head or model.embedding) if "lm_head" in saved else 0
    if source.get("model.trainable_parameters") is not None:
        trainable = source.integer("model.trainable_parameters")
        return (0 if peft in {None, "freeze"} else max(0, trainable - full)), full, trainable
    if peft is None:
        return 0, 0, model.parameters
    if peft in LOW_RANK:
        return adapters, full, adapters + full
    reason = f"how many parameters {peft} trains follows from settings the estimate does not read; taken as 0.5 %"
    trainable = source.integer("model.trainable_parameters", model.parameters // 200, reason)
    return (0 if peft == "freeze" else trainable), 0, trainable


def _versions(environment: Environment | None) -> Mapping[str, tuple[int, ...]]:
    if environment is None:
        return {}
    found = {}
    for name in (
        "transformers",
        "trl",
        "torch",
        "deepspeed",
        "accelerate",
        "peft",
        "verl",
        "openrlhf",
        "vllm",
        "sglang",
    ):
        package = environment.packages.get(name)
        if package is not None and package.version is not None:
            numbers = read_numbers(package.version)
            if numbers:
                found[name] = numbers
    return found


def read_numbers(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version; what follows them (``rc1``, ``+cu121``) is dropped."""
    numbers = []
    for part in version.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
