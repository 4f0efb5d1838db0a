"""One run on one device: the numbers every memory model needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import NOTHING, Assumption, Size
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.adapters import Adapted
    from compatcheck.architectures.parts import LinearLayer


EVALUATED_BY_LOSS = frozenset({"dpo", "kto"})
"""Trainers of TRL whose evaluations take their own loss without gradients (get_batch_loss_metrics, _compute_loss)."""


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
    attention: str
    activation: str
    """Of the MLP, as transformers names it; empty when not known."""
    quantization: str | None
    double_quantization: bool | None = None
    """Whether the constants of 4-bit weights are quantised, too; None where nobody says."""
    linears: str = ""
    """Whose names the linear layers of a block have (`architectures.adapters.name_linears`)."""
    gated: bool = True
    """The MLP has a gate, where its recipe leaves it open."""
    encoder_positions: int = 0
    """Positions that an encoder always has, 0 where it reads what it is given."""
    tower: tuple[LinearLayer, ...] = ()
    """Linear layers in the blocks of the vision tower, where its type is known."""
    listed: tuple[LinearLayer, ...] = ()
    """Linear layers of the language model, where its blocks have experts or differ and its formula tells them."""
    latent: int = 0
    """Width of what latent attention keeps of a token in each layer; 0 where keys and values are kept."""

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
    expert_tensor: int
    """Ranks that split the matrices of one expert."""
    data: int
    """Ranks that hold different data: world / (tensor × pipeline × context)."""
    sharding: str
    """``none``, ``ddp``, ``zero``, ``fsdp`` or ``megatron``."""
    stage: int
    """ZeRO stage that says what is split over `shard` ranks: 0 nothing, 1 optimizer states, 2 gradients too, 3 parameters too.
    FSDP's full_shard is 3, shard_grad_op 2."""
    shard: int
    """Ranks one copy of the split state is spread over."""
    fsdp: int = 0
    """Version of FSDP; 0 where there is none, or nobody says."""
    devices: int = 1
    """Devices that one process spreads the blocks of its model over, which work one after the other."""


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
    float16: bool
    """These are float16, not bfloat16."""
    quantised: float
    """The same of products with quantised weights, which are dequantised to it (bitsandbytes nn/modules.py Linear4bit.forward:
    ``bnb_4bit_compute_dtype``)."""
    residual: float
    """The residual stream: float32 under autocast with float32 weights."""
    gradient: float
    reduce: float
    """Gradients while they are reduced."""
    master: float
    """Master weights beside the working parameters; 0 when there are none."""
    logits: float
    """Logits as the model's forward returns them, to a loss outside of it: float32 where the model, the program's code or
    accelerate's wrapper casts them."""
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
    adapted: tuple[Adapted, ...]
    """Layers that get them, where `Model.listed` tells them."""
    summed: int
    """Parameters of routed experts to which an update is added as a whole, beside the frozen ones."""
    adapters_range: tuple[int, int]
    """Fewest and most parameters that adapters may have, by releases that nobody names."""
    experts_open: bool
    """Whether routed experts may stay in 16 bits where other weights are quantised, by releases that nobody names."""
    copied: int
    """Parameters of modules that peft trains in full and keeps a frozen original of (``modules_to_save``)."""
    copy_bytes: float
    """Bytes of one of these parameters."""
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
    evaluated: int
    """Sequences that one device takes at once in evaluations between steps; 0 where there are none, or nobody read how."""
    sequence: int
    accumulation: int
    unsharded_gradients: float
    """Bytes of one gradient that FSDP leaves whole until the last micro batch of a step where micro batches are not synchronised;
    0 where it splits each batch's."""
    no_sync: bool | None
    """All micro batches of a step but the last run under ``no_sync``; None where nobody read the loop."""
    mixed_units: bool | None
    """FSDP1 units hold frozen parameters beside trained ones, and make gradients of all of them; None where nobody knows."""
    gradients_apart: bool
    """Gradients of parameters are there beside the buffer that they are added to, until all of a micro batch are."""
    loop_read: bool
    """Somebody read the code of the program that trains, or none is named."""
    unread_release: str
    """The release of the program, or of what it is built on, where it is none of those that somebody read; else empty."""
    quantised_read: bool
    """What the program makes of a quantised base was read, too."""
    checkpointing: bool
    """Whole blocks are computed again in backward, as far as `policy` says."""
    policy: str
    """``full``, ``every_other_product`` or ``core_attention``; empty without checkpointing."""
    checkpoint_every: int
    """One block of so many is checkpointed, the last of each; the others keep what backward needs."""
    activation_offloading: bool
    padded: bool | None
    """Whether batches carry a mask with padding; None when not known."""
    loss: str
    """``cross_entropy``, ``chunked``, ``fused_linear``, ``smoothed``."""
    loss_by_free_memory: bool
    """The fused loss takes as many logits at a time as fit a share of the memory that is free."""
    trainer: str
    reference_offloads: bool
    """A reference is sharded and offloaded by the same configuration as the policy."""
    loss_type: str
    """As the trainer names it; empty when not known."""
    precomputed: bool
    """The reference's log-probabilities were computed before the training."""
    framework: str
    """Program that trains, as ``training.framework`` names it; empty when not known."""
    code: str
    """Distribution whose trainers or workers run; empty when not known."""
    makes_logits: bool
    """Whether its head has a value for each word of the vocabulary; classifiers and embedding models have none."""
    entropy_computed: str
    """Whether every forward of the policy computes its entropy: ``always``, ``asked`` or ``never``."""
    offload_optimizer: bool
    states_for_step: bool
    """Whether optimizer states are on the device for the step alone."""
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
    gathers_ahead: bool
    """FSDP1 runs without its rate limiter: the host queues gathers of later units before earlier ones are given back."""
    sequence_parallel: bool
    """Tensor-parallel ranks split norms and residual stream along the sequence, as Megatron and torchtitan do."""
    outputs_kept: bool
    use_cache: bool
    """The model makes a cache of keys and values while it trains."""
    other_resident: int
    limit: int | None
    unpadded: bool | None
    """Sequences of a batch are strung together without padding (verl's ``use_remove_padding``); None when not known."""
    pads_to_longest: bool
    """The longest sequence of a micro batch decides its length, and `sequence` is only what it may be at most."""
    keeps_long_rows: bool
    """Samples longer than `sequence` are neither cut nor dropped."""
    positions: int | None
    """Tokens that the model was built for; None when not known."""
    response: int | None
    """Tokens of a completion, at most."""
    entropy: bool | None
    """The policy's loss has an entropy term; None when not known."""
    entropy_compiled: bool | None
    """The entropy is computed by a compiled function; None when not known."""
    entropy_chunked: bool
    """The entropy is computed in chunks of tokens."""
    capability: float | None
    versions: Mapping[str, tuple[int, ...]]
    """Releases of packages as numbers, by name; absent when not known."""
    attention_open: bool
    """Which attention runs hangs on the release of torch, which nobody states."""
    unpriced: tuple[str, ...]
    """What it is told to do that no formula has, in the words of ``training.unpriced``."""
    known: frozenset[str]
    """Facts that somebody stated or that follow from what was stated."""
    clears_late: bool = False
    """Gradients of a step live until the forward pass of the next is through."""
    longest_first: bool = False
    """The longest sequence of the data is in the first micro batch of the run, and in no other."""
    first_batch: bool = False
    """What is priced is that micro batch: no gradients and outputs of one before are there."""
    teacher: int = 0
    """Parameters of a frozen model that is distilled, on this device."""
    reference_bytes: float | None = None
    """Bytes of one element of the reference that a trainer loads itself; None where it is in the policy's dtype."""
    references: Size = NOTHING
    """Frozen copies of the model beside it, 0 to 1, where the reference is no role of its own."""

    @property
    def blocks_read(self) -> bool:
        """The code of the blocks that this program runs was read, in the precision of this run."""
        return self.loop_read and (self.quantised_read or self.model.quantization is None)

    @property
    def tokens(self) -> int:
        """Tokens of one micro batch on one device; context-parallel ranks share a sequence."""
        return self.micro_batch * -(-self.sequence // self.parallel.context)

    def release(self, package: str) -> tuple[int, ...] | None:
        """Return the numbers of a package's release, or None when not known."""
        return self.versions.get(package)


class RunReading(NamedTuple):
    """What reading facts came to."""

    run: Run | None
    """None when something is needed."""
    assumptions: tuple[Assumption, ...]
    needs: tuple[str, ...]


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
