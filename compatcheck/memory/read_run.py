"""Read one run on one device from facts, with what had to be assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.adapters import LOW_RANK, OF_TOWER, name_linears
from compatcheck.architectures.heads import has_vocabulary
from compatcheck.core.estimate import Assumption
from compatcheck.core.units import DTYPE_BYTES
from compatcheck.memory.adapter_counts import AdapterCount, count_adapters, list_layouts, usual_targets
from compatcheck.memory.asked_facts import Given
from compatcheck.memory.precision import adapter_bytes, copy_bytes, read_precision
from compatcheck.memory.run import EVALUATED_BY_LOSS, Model, Parallelism, Precision, Run, RunReading, read_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.adapters import Adapted
    from compatcheck.architectures.parts import LinearLayer
    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Fact, Value


def read_run(
    facts: Mapping[str, Fact | Value],
    environment: Environment | None = None,
    *,
    role: str = "train",
    trains: bool = True,
) -> RunReading:
    """Read a run from facts.

    Args:
        facts: by vocabulary name, resolved facts or plain values.
        environment: where releases of packages are looked up.
        role: name of the role the facts are of.
        trains: False for a role that only runs forward.

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    source = Given(facts)
    versions = read_versions(environment)
    model = read_model(source, versions)
    parallel = _read_parallelism(source)
    micro = source.positive("training.micro_batch_size", 1, "nobody says how many sequences a device takes at once")
    assumed = source.assumptions.pop("training.micro_batch_size", None)
    if assumed is not None:
        name = assumed.fact if role == "train" else f"{assumed.fact} ({role})"
        source.assumptions[name] = assumed._replace(fact=name)
    if source.get("training.micro_batch_is_global") and parallel.data > 1:
        micro = max(1, micro // parallel.data)
    sequence = source.positive("training.sequence_length")
    source.needs += _hidden(source)
    if source.needs:
        return RunReading(None, tuple(source.assumptions.values()), tuple(dict.fromkeys(source.needs)))
    positions = source.integer("model.max_position_embeddings", 0)
    if positions and sequence > positions:
        reason = f"taken as stated, though the model was built for {positions:,} positions"
        source.assumptions["training.sequence_length"] = Assumption("training.sequence_length", sequence, reason)
    peft = source.assume("training.peft", None, "no adapter method is named: full fine-tuning")
    peft = str(peft) if isinstance(peft, str) else None
    precision = read_precision(source, parallel, model, peft, versions, trains=trains)
    if source.needs:
        return RunReading(None, tuple(source.assumptions.values()), tuple(dict.fromkeys(source.needs)))
    count = source.positive if peft in LOW_RANK else source.integer  # peft refuses a rank of 0
    rank = count("training.lora_rank", 8, "peft's default rank" if peft in LOW_RANK else "")
    targets = source.get("training.lora_target_modules")
    if peft in LOW_RANK and not isinstance(targets, tuple):
        targets = source.assume(
            "training.lora_target_modules",
            usual_targets(model.linears or "llama"),
            "what peft adapts for the model type, or all linear layers where it has no default",
        )
    names = tuple(str(name) for name in targets) if isinstance(targets, tuple) else ()
    found = count_adapters(source, model, peft, rank, names, versions)
    adapters, copied, trainable = _count_trainable(source, model, peft, rank, found)
    if peft == "prompt_tuning" and source.get("model.trainable_parameters") is not None:
        sequence += (
            adapters // model.hidden
        )  # each trained vector stands before the data's (peft_model.py, inputs_embeds)
    taught = trains and source.get("training.trainer") == "gkd" and parallel.sharding != "megatron"
    loads = source.get("program.code") == "trl" or source.get("training.teacher_parameters") is not None
    teacher = source.positive("training.teacher_parameters") if taught and loads else 0
    if source.needs:
        return RunReading(None, tuple(source.assumptions.values()), tuple(dict.fromkeys(source.needs)))
    width = adapter_bytes(source, precision, versions.get("peft"))
    if parallel.sharding == "zero":
        width = precision.stored  # DeepSpeed casts the whole module
    optimizer = source.assume("training.optimizer", "adamw", "the usual optimizer") if trains else None
    implementation = _read_implementation(source, parallel, versions, asked=trains and optimizer in {"adamw", "adam"})
    loop_read = source.is_read()
    kept = "what `out = model(...)` returns lives through backward in most loops that people write themselves"
    mask = source.get("run.attention_mask")
    packed, coefficient = source.get("training.use_remove_padding"), source.get("training.entropy_coefficient")
    asked = source.flag("training.gradient_checkpointing", default=False, reason="off unless somebody turns it on")
    checkpointing = (asked and not source.get("program.ignores_checkpointing")) or source.flag(
        "training.fsdp_activation_checkpointing", default=False
    )
    policy = str(source.get("training.checkpointing_policy") or "full") if checkpointing else ""
    run = Run(
        role=role,
        model=model,
        parallel=parallel,
        precision=precision,
        trainable=trainable,
        adapters=adapters,
        adapted=found.layers,
        summed=_count_summed(source, model, found.layers),
        adapters_range=(adapters - found.fewer, adapters + found.more),
        experts_open=_leaves_experts_open(source, model, versions),
        copied=copied,
        copy_bytes=copy_bytes(source, precision, parallel.sharding),
        peft=peft,
        rank=rank,
        targets=found.targets,
        adapter_bytes=width,
        mixed=source.get("training.mixed_precision") in {"bf16", "fp16"},
        lora_dropout=float(source.get("training.lora_dropout") or 0),  # type: ignore[arg-type]  # a float fact
        optimizer=None if optimizer is None else str(optimizer),
        implementation=str(implementation),
        in_backward=source.flag("training.optimizer_in_backward", default=False),
        micro_batch=micro,
        evaluated=_read_evaluated(source) if trains else 0,
        sequence=sequence,
        accumulation=_read_accumulation(source, parallel) if trains else 1,
        unsharded_gradients=_unsharded(source, parallel, precision, versions) if trains else 0.0,
        no_sync=_runs_unsynchronised(source) if trains else False,
        mixed_units=_mixes_units(source, parallel) if trains and trainable < model.parameters else False,
        gradients_apart=bool(source.get("program.makes_gradients_apart")),
        loop_read=loop_read,
        unread_release=str(source.get("program.unread_release") or ""),
        quantised_read=source.get("program.quantised_read") is not False,
        checkpointing=checkpointing and policy != "core_attention",
        policy=policy,
        checkpoint_every=max(1, int(source.get("training.checkpoint_every") or 1)),  # type: ignore[arg-type]  # an int fact
        activation_offloading=source.flag("training.activation_offloading", False),
        padded=None if mask is None else mask == "padding",
        loss=_read_loss(source, trains=trains),
        loss_by_free_memory=bool(source.get("program.sizes_loss_by_free_memory")),
        trainer=_read_trainer(source),
        reference_offloads=source.get("program.reference_offloads_with_policy") is not False,
        loss_type=str(source.get("training.loss_type") or ""),
        precomputed=source.flag("training.precompute_ref_log_probs", default=False),
        framework=str(source.get("training.framework") or ""),
        code=str(source.get("program.code") or ""),
        makes_logits=source.get("program.makes_logits") is not False
        and has_vocabulary(model.model_type, str(source.get("model.architecture") or "")),
        entropy_computed=str(source.get("program.computes_entropy") or "asked"),
        offload_optimizer=_offloads_states(source, returning=False)
        or source.flag("training.fsdp_offload_params", False),
        states_for_step=_offloads_states(source, returning=True),
        offload_param=source.get("training.offload_param") is not None
        or source.flag("training.fsdp_offload_params", False),
        reduce_bucket=source.integer("training.reduce_bucket_size", 500_000_000),
        gather_bucket=source.integer("training.allgather_bucket_size", 500_000_000),
        prefetch_bucket=source.integer("training.prefetch_bucket_size", 50_000_000),
        max_live=source.integer("training.max_live_parameters", 1_000_000_000),
        overlap=source.flag("training.overlap_comm", parallel.stage == 3),
        bucket_view=source.flag("training.gradient_as_bucket_view", False),
        compiled=source.flag("training.compile", False),
        expandable=source.flag("allocator.expandable_segments", default=False)
        or source.flag("program.trains_with_expandable_segments", default=False),
        gathers_ahead=_gathers_ahead(source, versions),
        sequence_parallel=_splits_sequences(source, parallel),
        # DeepSpeed's engine lets go of them in its step (runtime/engine.py)
        clears_late=bool(source.get("program.clears_gradients_late")) and parallel.sharding != "zero",
        longest_first=source.flag("run.longest_first", default=False),
        outputs_kept=source.flag("run.outputs_kept", not loop_read, "" if loop_read or not trains else kept),
        # where blocks are checkpointed by transformers itself, it makes none
        use_cache=source.flag("model.use_cache", False)
        and not source.flag("training.gradient_checkpointing", default=False),
        other_resident=source.integer("run.other_resident_bytes", 0),
        limit=source.integer("hardware.memory_bytes", 0) or None,
        unpadded=True if source.get("training.padding_free") and not source.get("training.packing") else _truth(packed),
        pads_to_longest=bool(source.get("program.pads_to_longest"))
        and not source.get("training.packing")
        and source.get("training.trainer") != "pretrain",
        keeps_long_rows=source.flag("training.keeps_long_rows", default=False),
        positions=positions or None,
        response=source.integer("training.max_response_length", 0) or None,
        entropy=None if coefficient is None else bool(coefficient),
        entropy_compiled=_truth(source.get("training.entropy_compile")),
        entropy_chunked=source.flag("training.entropy_chunking", False),
        capability=_number(source.get("hardware.compute_capability")),
        versions=versions,
        attention_open=_leaves_attention_open(source, versions),
        unpriced=(
            *_words(source.get("training.unpriced")),
            *(_unpriced_evaluation(source) if trains else ()),
            *(("stored_otherwise",) if _is_stored_otherwise(source) else ()),
        ),
        known=frozenset(facts),
        teacher=teacher,
        reference_bytes=DTYPE_BYTES.get(str(source.get("training.reference_load_dtype"))),
    )
    return RunReading(run, tuple(source.assumptions.values()), ())


def _read_evaluated(source: Given) -> int:
    """Return the batch of evaluations: with the loss of Trainer.prediction_step(), the model's or smoothed, or one of TRL."""
    if source.get("training.evaluates") is not True:
        return 0
    trainer = source.get("training.trainer")
    smoothed = source.get("training.loss_implementation") == "smoothed"
    of_model = (source.get("program.passes_labels") is True or smoothed) and trainer in {"causal_lm", "pretrain", "sft"}
    of_trl = source.get("program.code") == "trl" and trainer in {"sft", *EVALUATED_BY_LOSS}
    return source.integer("training.eval_batch_size", 0) if of_model or of_trl else 0


def _leaves_experts_open(source: Given, model: Model, versions: Mapping[str, tuple[int, ...]]) -> bool:
    """Tell whether bitsandbytes may pass by the experts of a layer, which it does where they are one parameter.

    Where both releases are known, transformers/fused-experts-not-quantised decides.
    """
    if model.quantization not in {"nf4", "fp4", "int8"} or not model.expert or source.get("program.quantises_experts"):
        return False
    if {"transformers", "bitsandbytes"} <= versions.keys() or source.get("program.runs_transformers") is False:
        return False
    return any(layout.fused for layout in list_layouts(model.model_type, versions))


def _is_stored_otherwise(source: Given) -> bool:
    """Tell whether weights are stored in fewer bits, of a kind that says nothing about what they are held in."""
    return source.get("model.stored_quantization") is not None and not source.knows("model.quantization")


def _unpriced_evaluation(source: Given) -> tuple[str, ...]:
    """Name evaluation where the run evaluates batches larger than those it trains on, in a way nobody read."""
    batch, trained = source.get("training.eval_batch_size"), source.get("training.micro_batch_size")
    larger = isinstance(batch, int) and isinstance(trained, int) and batch > trained
    unread = larger and source.get("training.evaluates") is True and not _read_evaluated(source)
    return ("evaluation",) if unread else ()


def _offloads_states(source: Given, *, returning: bool) -> bool:
    """Tell whether optimizer states are offloaded: to come back for every step, or for good, with the gradients."""
    returns = bool(source.get("program.states_return_for_step"))
    return source.get("training.offload_optimizer") is not None and returns is returning


def _words(value: Value) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


def _hidden(source: Given) -> list[str]:
    """Name what nothing may be assumed about, where parts of the configuration were not read."""
    if not source.get("configuration.unread"):
        return []
    dtypes = ("training.param_dtype", "training.mixed_precision", "model.load_dtype")
    wanted = ["training.sharding", "training.micro_batch_size", "training.peft"]
    return [
        *(name for name in wanted if not source.knows(name)),
        *([] if any(map(source.knows, dtypes)) else dtypes[:1]),
    ]


def _read_implementation(
    source: Given, parallel: Parallelism, versions: Mapping[str, tuple[int, ...]], *, asked: bool
) -> str:
    """Return how the step goes over its tensors; what is not stated is torch's own choice where torch's optimizer steps.

    DeepSpeed's own, made by its name in a configuration, is fused. One that accelerate hands over is torch's
    (transformers integrations/deepspeed.py deepspeed_optim_sched, 4.38.2: ``trainer.create_optimizer()``), on the default of
    ``TrainingArguments`` fused from transformers 4.54 and torch 2.8 on.
    """
    of_deepspeed = parallel.sharding == "zero" and source.get("training.optimizer_by_deepspeed") is True
    stated = source.get("training.optimizer_implementation")
    if isinstance(stated, str) and not of_deepspeed:
        return stated
    handed = parallel.sharding == "zero" and source.get("program.uses_accelerate") is True and not of_deepspeed
    if not handed and parallel.sharding not in {"none", "ddp", "fsdp"}:
        return "fused"
    torch, trainer = versions.get("torch"), versions.get("transformers")
    # before torch 2.0 one parameter after the other (torch/optim/adamw.py v1.13.1)
    chosen = "foreach" if torch is None or torch >= (2, 0) else "for_loop"
    if handed and (torch is None or torch >= (2, 8)) and (trainer is None or trainer >= (4, 54)):
        chosen = "fused"
    if asked:
        source.assume("training.optimizer_implementation", chosen, "torch's own choice on a GPU")
    return chosen


def _splits_sequences(source: Given, parallel: Parallelism) -> bool:
    """Tell whether tensor-parallel ranks split norms and residual stream too, as Megatron and torchtitan can."""
    if parallel.tensor == 1:
        return False
    on_megatron = (
        parallel.sharding == "megatron" and source.get("training.framework") != "megatron"
    )  # Megatron's own: off
    usual = bool(source.get("program.splits_sequences")) or on_megatron
    reason = "programs with tensor parallelism of this kind mostly split norms along the sequence" if usual else ""
    return source.flag("training.sequence_parallel", usual, reason)


def _unsharded(
    source: Given, parallel: Parallelism, precision: Precision, versions: Mapping[str, tuple[int, ...]]
) -> float:
    """Return bytes of one gradient that FSDP leaves whole between micro batches; 0 where it does not.

    Under ``no_sync`` nothing is scattered: FSDP1 keeps whole gradients in the compute dtype (torch 2.8.0
    distributed/fsdp/_runtime_utils.py, _post_backward_hook), FSDP2 in the reduce dtype; that of accelerate reaches FSDP2
    from 1.11.0 on (accelerator.py, no_sync: ``set_requires_gradient_sync``).
    """
    if (
        parallel.sharding != "fsdp"
        or parallel.stage < 2
        or parallel.shard == 1
        or _runs_unsynchronised(source) is False
    ):
        return 0.0
    accelerate = versions.get("accelerate") if source.get("program.uses_accelerate") is not False else None
    if source.get("training.fsdp_version") == 2:
        return 0.0 if accelerate is not None and accelerate < (1, 11) else precision.reduce
    return precision.compute


def _runs_unsynchronised(source: Given) -> bool | None:
    """Tell whether all micro batches of a step but the last run under ``no_sync``; None where nobody says or read it."""
    stated, waits = source.get("training.sync_each_batch"), source.get("program.accumulates_without_sync")
    if stated and source.get("program.heeds_sync_each_batch") is not False:
        return False
    if waits is None and stated is False:
        return True
    return _unless_unread(source) if waits is None else bool(waits)


def _unless_unread(source: Given) -> bool | None:
    """Return that a program has none of the unusual ways that would have been read of it; None where nobody read it."""
    return False if source.is_read() else None


def _mixes_units(source: Given, parallel: Parallelism) -> bool | None:
    """Tell whether FSDP1 has frozen and trained parameters in one unit, which ``use_orig_params`` allows from torch 2.1 on."""
    if parallel.sharding != "fsdp" or parallel.stage < 2 or source.get("training.fsdp_version") != 1:
        return False
    if source.get("training.fsdp_use_orig_params") is False:
        return False
    apart = source.get("training.fsdp_wraps_frozen_apart")
    return _unless_unread(source) if apart is None else not apart


def _gathers_ahead(source: Given, versions: Mapping[str, tuple[int, ...]]) -> bool:
    """Tell whether FSDP1 runs without its rate limiter, as before torch 2.1 and accelerate 0.26 where nobody asked for it.

    torch v2.0.1 and v2.1.0 distributed/fsdp/fully_sharded_data_parallel.py: ``limit_all_gathers`` was False, then True;
    transformers 4.28.1 trainer.py hands on False of its own.
    """
    if source.get("training.fsdp_version") != 1:
        return False
    limits, torch, accelerate = (
        source.get("training.fsdp_limit_all_gathers"),
        versions.get("torch"),
        versions.get("accelerate"),
    )
    if limits is not None:
        return not limits
    return torch is not None and torch < (2, 1) and (accelerate is None or accelerate < (0, 26))


def _read_accumulation(source: Given, parallel: Parallelism) -> int:
    """Return micro batches of a step; where nobody says, one, or what fills a pipeline."""
    whole, micro = source.integer("training.global_batch_size", 0), source.integer("training.micro_batch_size", 0)
    count, reason = 1, "nobody says how many micro batches a step has"
    if whole and micro and not source.get("training.micro_batch_is_global"):
        count, reason = max(1, whole // (micro * parallel.data)), "global batch / (micro batch × data-parallel ranks)"
    elif parallel.pipeline > 1:
        count, reason = parallel.pipeline, f"{reason}; as many as there are stages fill a pipeline"
    return source.positive("training.gradient_accumulation_steps", count, reason)


def _leaves_attention_open(source: Given, versions: Mapping[str, tuple[int, ...]]) -> bool:
    """Tell whether the kernel of attention hangs on the release of torch: transformers 4.36 to 4.55 takes sdpa from 2.1.1 on."""
    if source.knows("model.attn_implementation") or source.knows("program.attn_implementation") or "torch" in versions:
        return False
    release = versions.get("transformers")
    return release is not None and (4, 36) <= release < (4, 56)


def _truth(value: Value) -> bool | None:
    return None if value is None else bool(value)


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def read_model(source: Given, versions: Mapping[str, tuple[int, ...]]) -> Model:
    """Read a model's shape; what nobody states is assumed, or needed."""
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
    gated = source.flag("model.gated_mlp", default=True)
    each = hidden * (3 if gated else 2)
    spread = layers if experts else 0  # blocks that have experts
    if experts and source.knows("model.expert_parameters"):
        spread = min(layers, source.integer("model.expert_parameters") // max(1, experts * each * width))
    routed = spread * experts * each * width
    dense = spread * hidden * experts + (layers - spread) * each * intermediate
    blocks = layers * (2 * hidden * (heads + kv_heads) * head_dim + 2 * hidden) + dense + routed
    of = "routed experts" if experts else f"{'a gated' if gated else 'a plain'} MLP"
    reason = f"counted as a decoder with {of} of these dimensions"
    if source.knows("model.parameters"):
        total = source.positive("model.parameters")
        blocks = source.integer("model.parameters_in_blocks", max(0, total - embedding - head))
    else:
        blocks = source.integer("model.parameters_in_blocks", blocks, "" if source.needs else reason)
        total = source.integer("model.parameters", blocks + embedding + head + hidden, "" if source.needs else reason)
    own, release = source.get("program.attn_implementation"), versions.get("transformers")
    usual, reason = "sdpa", "the default of transformers since 4.36"
    if release is not None and release < (4, 36):
        usual, reason = "eager", "the only one of most types before transformers 4.36"
    reason = reason if own is None else source.reason("program.attn_implementation")
    attention = source.assume("model.attn_implementation", own or usual, reason)
    quantization = source.get("model.quantization")
    model_type = str(source.get("model.model_type") or "")
    linears = name_linears(
        model_type, source.get("training.sharding"), runs_transformers=source.get("program.runs_transformers")
    )
    return Model(
        model_type=model_type,
        parameters=total,
        in_blocks=min(blocks, total),
        embedding=min(embedding, total),
        lm_head=head,
        vision=source.integer("model.vision_parameters", 0),
        expert=source.integer(
            "model.expert_parameters", min(routed, blocks), reason if routed and not source.needs else ""
        ),
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
        attention=str(attention),
        activation=str(source.get("model.hidden_act") or ""),
        quantization=str(quantization) if isinstance(quantization, str) else None,
        double_quantization=_truth(source.get("model.double_quantization")),
        linears=linears,
        gated=gated,
        tower=_read_layers(source, "model.tower_linears"),
        listed=_read_layers(source, "model.block_linears"),
        latent=source.integer("model.latent_cache_width", 0),
        encoder_positions=source.integer("model.encoder_positions", 0),
    )


def _read_parallelism(source: Given) -> Parallelism:
    sharding = source.get("training.sharding")
    stage = source.get("training.zero_stage")
    if isinstance(stage, int) and (sharding is None or (sharding == "none" and not stage)):
        sharding = "zero"  # an engine of DeepSpeed at stage 0 and on one rank too: weights of 16 bits, masters, no DDP
    tensor = source.positive("training.tensor_parallel", 1)
    pipeline = source.positive("training.pipeline_parallel", 1)
    context = source.positive("training.context_parallel", 1)
    expert = source.positive("training.expert_parallel", 1)
    inside = source.positive("training.expert_tensor_parallel", tensor if expert == 1 or sharding == "megatron" else 1)
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
    shared = (world, tensor, pipeline, context, expert, inside, data)
    devices = source.positive("hardware.devices_per_rank", 1)
    version = source.integer("training.fsdp_version", 0) if sharding == "fsdp" else 0
    return Parallelism(*shared, str(sharding), level, max(1, shard), version, devices)


def _level_of_megatron(source: Given, stage: Value) -> int:
    """Return 1 where optimizer states are split.

    Left out, Megatron-LM does not; what is built on it does, as far as it was read, and is taken to otherwise.
    """
    if isinstance(stage, int) and not source.knows("training.distributed_optimizer"):
        return stage
    splits = source.get("program.distributed_optimizer")
    if splits is None:
        splits = source.knows("training.framework")
    reason = "what programs built on Megatron turn on" if splits else "Megatron-LM's default"
    return int(source.assume("training.distributed_optimizer", splits, reason) is True)


def _read_trainer(source: Given) -> str:
    """Return what trains; where that is not known, and keys of preferences stand there, it is said that no pairs are taken."""
    trainer = source.get("training.trainer")
    if trainer is not None:
        return str(trainer)
    if any(source.get(name) is not None for name in ("training.max_prompt_length", "training.kl_coefficient")):
        why = "nobody says what trains; one that runs pairs of answers needs twice the activations and logits"
        source.assume("training.trainer", "causal_lm", why)
    return "causal_lm"


def _read_loss(source: Given, *, trains: bool) -> str:
    """Return how the loss over next tokens is computed; trainers of preferences and policies have losses of their own."""
    loss = source.get("training.loss_implementation")
    if isinstance(loss, str):
        return loss
    if source.get("training.use_liger_kernel"):
        return "fused_linear"
    if trains and source.get("program.makes_logits") is not False and source.get("training.trainer") in _OF_TOKENS:
        reason = "nobody says that it takes the logits in pieces"
        source.assume("training.loss_implementation", "cross_entropy", reason, is_most=True)
    return "cross_entropy"


_OF_TOKENS = {None, "causal_lm", "pretrain", "sft"}
"""Trainers whose loss is cross entropy over tokens, and one that nobody names."""


def _count_trainable(
    source: Given, model: Model, peft: str | None, rank: int, found: AdapterCount
) -> tuple[int, int, int]:
    """Return adapter parameters, parameters trained in full beside them, and all trainable ones."""
    adapters = full = 0
    if peft in LOW_RANK:
        adapters = found.parameters + _count_of_parameters(source, model, rank)
        if model.vision and not model.tower and any(name.startswith(OF_TOWER) for name in found.targets):
            source.integer("model.trainable_parameters")  # of a tower that nobody listed
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
    if peft == "freeze":
        return 0, 0, source.integer("model.trainable_parameters")
    reason = f"how many parameters {peft} trains follows from settings the estimate does not read; taken as 0.5 %"
    trainable = source.integer("model.trainable_parameters", model.parameters // 200, reason)
    return trainable, 0, trainable


def _read_layers(source: Given, fact: str) -> tuple[LinearLayer, ...]:
    """Return the linear layers that a fact lists, where it does.

    Raises:
        UsageError: they are told otherwise than a file's are.
    """
    lines = source.get(fact)
    if not isinstance(lines, tuple):
        return ()
    from compatcheck.architectures.parts import read_linear_layer  # noqa: PLC0415 (only of a model with some)

    try:
        return tuple(map(read_linear_layer, map(str, lines)))
    except ValueError as error:
        from compatcheck.core.errors import UsageError  # noqa: PLC0415 (on the way to an error)

        hint = "give each as: attn.proj 32x1280x1280 (name, blocks x inputs x outputs)"
        raise UsageError(f"{fact} holds what is no linear layer", hint=hint) from error


def _count_summed(source: Given, model: Model, layers: tuple[Adapted, ...]) -> int:
    """Count the parameters of routed experts that adapters are made for as a whole, by their names or those of their layers."""
    named = source.get("training.lora_target_parameters")
    kinds = {str(name).rpartition("experts.")[2] for name in named} if isinstance(named, tuple) else set()
    thirds = 2 * ("gate_up_proj" in kinds) + ("down_proj" in kinds)
    turned = sum(one.layer.blocks * one.layer.inputs * one.layer.outputs for one in layers if one.is_parameter)
    return max(turned, model.expert * thirds // 3)


def _count_of_parameters(source: Given, model: Model, rank: int) -> int:
    """Count the adapters beside the parameters of routed experts that are named; of others, how many are trained is asked for.

    Each expert has some of the rank (peft 0.18.1 tuners/lora/layer.py ParamWrapper: ``r * num_experts``).
    """
    names = source.get("training.lora_target_parameters")
    if not isinstance(names, tuple) or not names or source.knows("model.trainable_parameters"):
        return 0
    experts = model.expert // (3 * model.hidden * model.expert_width) if model.expert else 0
    both = {"gate_up_proj": model.hidden + 2 * model.expert_width, "down_proj": model.expert_width + model.hidden}
    kinds = {str(name).rpartition("experts.")[2] for name in names}
    if not experts or not kinds <= both.keys():
        return source.integer("model.trainable_parameters")
    return experts * rank * sum(both[kind] for kind in kinds)


def read_versions(environment: Environment | None) -> Mapping[str, tuple[int, ...]]:
    """Return the releases that formulas depend on, by distribution."""
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
        "bitsandbytes",
        "unsloth",
        "unsloth-zoo",
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
