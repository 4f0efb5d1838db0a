"""What a run's facts say about its training step, as the traced program takes it; or why it cannot be traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.estimate import Assumption
from compatcheck.core.facts import Fact
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import canonical_dtype
from compatcheck.memory.closed_form.estimate import later_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Value

TRAINERS = (None, "causal_lm", "sft", "pretrain", "seq2seq")
"""Trainers whose loss is the model's own loss of labels."""
PARALLEL = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
MOST_TOKENS = 2**24
"""Of one micro batch: decisions about its mask are taken on real tokens."""
_DTYPES = (None, "float32", "bfloat16", "float16")


class Untraceable(NamedTuple):
    """Why there is no trace."""

    reason: str
    needs: tuple[str, ...] = ()
    """Facts that are missing."""


class OwnSource(NamedTuple):
    """Where the person's own function lies that builds what is trained."""

    file: str | None
    """Its whole path, where a file was named."""
    module: str | None
    """Its dotted name, where a module was."""
    function: str
    folder: str
    """Where it is run, and what its imports are looked for in, too."""

    def describe(self) -> str:
        """Name the function and where it is."""
        return f"{self.function} of {self.file or f'{self.module}, as imported in {self.folder}'}"


class StepRequest(NamedTuple):
    """One training step to trace."""

    program: Mapping[str, Any]
    """What the traced program takes."""
    assumptions: tuple[Assumption, ...]
    buckets: bool
    """Whether DDP has gradient buckets of its own."""


class _Reader:
    """Takes facts by name, and notes what was taken for those nobody stated."""

    def __init__(self, facts: Mapping[str, Fact | Value]) -> None:
        self.facts = facts
        self.assumptions: list[Assumption] = []

    def get(self, name: str) -> Any:  # noqa: ANN401 (every name has a type of its own)
        """Return a fact's value, None when it is unknown or none."""
        found = self.facts.get(name)
        return found.value if isinstance(found, Fact) else found

    def assume(self, name: str, value: Value, reason: str) -> Any:  # noqa: ANN401 (as `get`)
        """Return a fact's value, or what is assumed where it has none."""
        found = self.get(name)
        if found is not None:
            return found
        self.assumptions.append(Assumption(name, value, reason))
        return value


def make_request(
    facts: Mapping[str, Fact | Value],
    config: Mapping[str, Any],
    own: OwnSource | None = None,
    versions: Mapping[str, tuple[int, ...]] | None = None,
) -> StepRequest | Untraceable:
    """Return what to trace.

    Args:
        facts: of one role of a subject, by the vocabulary's names, as `Fact` or as plain values.
        config: the model's ``config.json``; of no meaning where there is `own`.
        own: the person's function, in the place of a class of transformers.
        versions: releases of what is around the step (accelerate), as numbers, as far as they are known.
    """
    read = _Reader(facts)
    if refusal := _refuse(read, own=own is not None):
        return Untraceable(refusal)
    sizes = ["training.micro_batch_size", "training.sequence_length"]
    needed = sizes if own is None else []
    if read.get("training.sharding") == "fsdp":
        needed = [*needed, "training.fsdp_version", "hardware.world_size"]
    missing = tuple(name for name in needed if read.get(name) is None)
    if missing:
        return Untraceable(f"what a step holds depends on {', '.join(missing)}", missing)
    stated = {name: read.get(name) for name in (*sizes, *needed)}
    if wrong := [name for name, value in stated.items() if value is not None and value < 1]:
        return Untraceable(f"{wrong[0]} is {read.get(wrong[0])}: a step has at least one")
    if own is None and read.get(sizes[0]) * read.get(sizes[1]) > MOST_TOKENS:
        return Untraceable(f"a micro batch of more than {MOST_TOKENS:,} tokens is not traced")
    world = read.get("hardware.world_size") or 1
    sharding = read.get("training.sharding")
    if world > 1 and "training.sharding" not in facts:
        sharding = read.assume("training.sharding", "ddp", "several ranks, and nothing that shards is configured")
    mixed = read.get("training.mixed_precision")
    dtype = _param_dtype(read, config, mixed) if own is None else _stated_dtype(read)
    if dtype not in _DTYPES:
        return Untraceable(f"weights in {dtype} are kernels of other packages")
    attention, mask = read.get("model.attn_implementation"), "none" if own is not None else _mask(read)
    if own is None and attention in {"flash_attention_2", "flash_attention_3", "flash_attention_4"}:
        reason = "flash-attention's package is not run: torch's own copy of its kernel keeps the same tensors"
        read.assumptions.append(Assumption("model.attn_implementation", "sdpa", reason))
        attention, mask = "sdpa", "none"
    fsdp = _fsdp(read, world, versions or {}) if sharding == "fsdp" else None
    precision = {"bf16": "bfloat16", "fp16": "float16"}.get(mixed or "no")
    # accelerate runs autocast around what FSDP1 casts already
    casts = fsdp is None or (fsdp["version"] == 1 and read.get("program.fsdp_by_accelerate"))
    autocast = precision if casts else None
    accumulation = read.assume("training.gradient_accumulation_steps", 1, "gradients do not outlive a step unless told")
    program = {
        "backend": "fake",
        "accounting": "tracker",
        "config": dict(config),
        "architecture": read.get("model.architecture"),
        "dtype": dtype,
        "attn_implementation": attention,
        "experts_implementation": read.get("model.experts_implementation"),
        "batch": read.get("training.micro_batch_size"),
        "length": read.get("training.sequence_length"),
        "mask": mask,
        "routing": "balanced",
        "gradient_checkpointing": bool(
            read.assume("training.gradient_checkpointing", value=False, reason="trainers leave it off unless told")
        ),
        "use_reentrant": read.get("training.use_reentrant"),
        "use_cache": _use_cache(read),
        "lora": _lora(read) if own is None else None,
        "optimizer": read.assume("training.optimizer", "adamw", "what nearly every trainer uses"),
        "optimizer_implementation": read.assume(
            "training.optimizer_implementation", "foreach", "what torch chooses for tensors on a GPU"
        ),
        "autocast": autocast,
        "outputs_to_float32": autocast is not None and _converts(read),
        "outputs_kept": bool(read.get("run.outputs_kept") if own is None else _own_outputs_kept(read)),
        "clears_late": bool(read.get("program.clears_gradients_late")),
        "micro_batches": 2 if accumulation and accumulation > 1 else 1,
        "steps": 2,
        "shorter": _shorter(read, mask),
        "fsdp": fsdp,
        "module": None if own is None else {**own._asdict(), "facts": _plain_facts(facts)},
        "device": {"capability": _capability(read), "cudnn": _cudnn(read.get("runtime.cudnn"))},
    }
    if own is None and (config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts")):
        reason = "which experts tokens go to is in the weights, which a trace has not"
        read.assumptions.append(Assumption("routing of tokens to experts", "balanced", reason))
    buckets = sharding == "ddp" and world > 1 and not read.get("training.gradient_as_bucket_view")
    return StepRequest(program, tuple(read.assumptions), buckets)


def _refuse(read: _Reader, *, own: bool) -> str | None:
    """Say what of a run no trace can follow; a person's own module brings its adapters, its kernels and its loss."""
    optimizer = read.get("training.optimizer_implementation")
    checks = (
        (read.get("training.zero_stage"), "ZeRO's partitioning is DeepSpeed's own code, which fake tensors cannot run"),
        (read.get("training.sharding") in {"zero", "megatron"}, "its sharding cannot run on fake tensors"),
        (
            str(read.get("training.fsdp_sharding_strategy")).startswith("hybrid"),
            "a mesh that shards and replicates is not traced",
        ),
        (read.get("training.fsdp_offload_params"), "parameters that FSDP offloads are not traced"),
        (read.get("training.hsdp_shard_size"), "a mesh that shards and replicates is not traced"),
        (read.get("training.offload_optimizer") or read.get("training.offload_param"), "offloading is not traced"),
        (read.get("training.activation_offloading"), "offloading of activations is not traced"),
        (any((read.get(f"training.{name}") or 1) > 1 for name in PARALLEL), "only data parallel runs are traced"),
        (read.get("model.quantization"), "quantised weights are kernels of other packages"),
        (read.get("training.compile"), "what torch.compile fuses is not traced"),
        (read.get("training.master_dtype"), "master weights that a framework keeps are not traced"),
        (optimizer not in {None, "foreach", "fused", "for_loop"}, f"unknown optimizer implementation {optimizer}"),
    )
    of_transformers = (
        (read.get("training.peft") not in {None, "lora", "dora", "freeze"}, "of adapters, LoRA and DoRA are traced"),
        (read.get("training.peft") == "freeze", "which weights are frozen is not among the facts"),
        (read.get("training.use_liger_kernel"), "Liger's kernels are Triton programs, which fake tensors cannot run"),
        (read.get("training.loss_implementation") not in {None, "cross_entropy"}, "the loss is not the model's own"),
        (read.get("training.trainer") not in TRAINERS, "the trainer's loss is not the model's own"),
        (read.get("model.trust_remote_code"), "the model class comes from the model's repository, which is not run"),
    )
    return next((reason for holds, reason in (*checks, *(() if own else of_transformers)) if holds), None)


def _stated_dtype(read: _Reader) -> str | None:
    stated = read.get("training.param_dtype") or read.get("model.load_dtype")
    return None if stated is None else str(stated)


def _param_dtype(read: _Reader, config: Mapping[str, Any], mixed: str | None) -> str:
    if stated := _stated_dtype(read):
        return stated
    if mixed not in {None, "no"} and read.get("training.peft") is None:
        return str(
            read.assume("training.param_dtype", "float32", "mixed precision keeps the weights it casts in float32")
        )
    stored = canonical_dtype(str(config.get("dtype") or config.get("torch_dtype") or "float32")) or "float32"
    return str(read.assume("training.param_dtype", stored, "what the model's configuration says"))


def _mask(read: _Reader) -> str:
    return str(
        read.assume("run.attention_mask", "ones", "tokenizers and collators give one, and full sequences cost most")
    )


def _own_outputs_kept(read: _Reader) -> Value:
    reason = "a loop keeps what its module returned until the next call of it"
    kept: Value = read.assume("run.outputs_kept", value=True, reason=reason)
    return kept


def _shorter(read: _Reader, mask: str) -> int | None:
    """Return how long micro batches after the longest are, where that is the first; None where all are as long."""
    if not read.get("run.longest_first") or read.get("training.sequence_length") is None:
        return None
    if mask != "none":
        reason = "a mask is declared once, for micro batches that are all as long"
        read.assumptions.append(Assumption("run.longest_first", value=False, reason=reason))
        return None
    return later_length(read.get("training.sequence_length"))


def _plain_facts(facts: Mapping[str, Fact | Value]) -> dict[str, Any]:
    """Return the settings of training and of the model by the last part of their names, as parameters have them."""
    found: dict[str, Any] = {}
    for name, fact in facts.items():
        group, _, last = name.partition(".")
        value = fact.value if isinstance(fact, Fact) else fact
        if group in {"model", "training"} and isinstance(value, (bool, int, float, str)):
            found[last] = value
    return found


def _converts(read: _Reader) -> bool:
    if not read.get("program.converts_outputs") and "training.keep_fp32_outputs" not in read.facts:
        return False
    return bool(read.assume("training.keep_fp32_outputs", value=True, reason="accelerate converts outputs unless told"))


def _use_cache(read: _Reader) -> bool | str | None:
    """Return whether training makes a KV cache; None leaves it to the model, ``hf_trainer`` to what that release does."""
    stated = read.get("model.use_cache")
    if stated is not None:
        return bool(stated)
    asked = read.facts.get("program.use_cache")
    if isinstance(asked, Fact):
        return bool(read.assume("model.use_cache", asked.value, asked.note or ""))
    unknown = read.get("training.framework") is None
    return "hf_trainer" if unknown or read.get("program.converts_outputs") else None


def _capability(read: _Reader) -> list[int]:
    value = read.assume(
        "hardware.compute_capability", 8.0, "the attention kernel of every newer data-centre GPU is like it"
    )
    return [int(value), round(value * 10) % 10] if value < 10 else [int(value), round((value - int(value)) * 10)]


def _cudnn(version: object) -> int | None:
    """Return ``9.15.1.9`` as cuDNN counts it: 91501."""
    parts = str(version or "").split(".")[:3]
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        return None
    major, minor, patch = (*map(int, parts), 0)[:3]
    return major * 10_000 + minor * 100 + patch


def _fsdp(read: _Reader, world: int, versions: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    mixed = {"bf16": "bfloat16", "fp16": "float16"}.get(read.get("training.mixed_precision") or "no")
    reshards = read.get("training.fsdp_reshard_after_forward")
    first = read.get("training.fsdp_version") == 1
    options: dict[str, Any] = {
        "world_size": world,
        "version": 1 if first else 2,
        "param_dtype": mixed,
        "reduce_dtype": read.get("training.reduce_dtype"),
        "no_sync": _waits(read, versions),
    }
    if not first:
        reason = "FSDP's full sharding is the default"
        reshards = read.assume("training.fsdp_reshard_after_forward", value=True, reason=reason)
        return {**options, "reshard_after_forward": reshards}
    usual = "shard_grad_op" if reshards is False else "full_shard"
    return {
        **options,
        "strategy": read.assume("training.fsdp_sharding_strategy", usual, "FSDP's full sharding is the default"),
        "use_orig_params": read.assume(
            "training.fsdp_use_orig_params", value=True, reason="accelerate's and Fabric's way"
        ),
        "wraps_frozen_apart": bool(read.get("training.fsdp_wraps_frozen_apart")),
    }


def _waits(read: _Reader, versions: Mapping[str, tuple[int, ...]]) -> bool:
    """Tell whether gradients are reduced after the last micro batch alone; see `memory.read_run` for who does so."""
    stated, waits = read.get("training.sync_each_batch"), read.get("program.accumulates_without_sync")
    if stated and read.get("program.heeds_sync_each_batch") is not False:
        return False
    if waits is None and stated is None and (read.get("training.gradient_accumulation_steps") or 1) > 1:
        return not read.assume(
            "training.sync_each_batch", value=True, reason="nobody says that micro batches run under no_sync"
        )
    by_accelerate = read.get("training.fsdp_version") == 2 and "accelerate" in versions
    if by_accelerate and read.get("program.fsdp_by_accelerate") and versions["accelerate"] < (1, 11):
        return False  # its no_sync did nothing for FSDP2
    return bool(waits) if waits is not None else stated is False


def _lora(read: _Reader) -> dict[str, Any] | None:
    method = read.get("training.peft")
    if method not in {"lora", "dora"}:
        return None
    options: dict[str, Any] = {
        "r": read.assume("training.lora_rank", 8, "peft's default"),
        "lora_dropout": read.get("training.lora_dropout") or 0.0,
    }
    targets = read.get("training.lora_target_modules")
    if targets:
        options["target_modules"] = "all-linear" if tuple(targets) == ("all-linear",) else sorted(targets)
    if saved := read.get("training.lora_modules_to_save"):
        options["modules_to_save"] = sorted(saved)
    if method == "dora":
        options["use_dora"] = True
    if read.get("training.autocast_adapter_dtype") is False:
        options["autocast_adapter_dtype"] = False
    return options
