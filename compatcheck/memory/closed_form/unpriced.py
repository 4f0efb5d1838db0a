"""What a run is told to do that no formula has: it is said, and the range of each phase holds what it may change.

A bound is arithmetic on what it multiplies, or the range of an unknown block; nothing is expected, for nothing was measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.architectures.adapters import LOW_RANK, target_shapes
from compatcheck.core.estimate import Component, Size, Unmodelled, total
from compatcheck.memory.closed_form.activations import UNKNOWN_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.memory.run import Run

STATES = ("parameters", "gradients", "optimizer_states", "live_parameters")


class Feature(NamedTuple):
    """One feature without a formula."""

    name: str
    direction: str
    """As `Unmodelled.direction`."""
    reason: str
    less: Mapping[str, float] = {}
    """Share of components of a kind that may be gone, by kind."""
    more: Mapping[str, float] = {}
    """Share that may come on top."""


def _of(kinds: Sequence[str], share: float) -> dict[str, float]:
    return dict.fromkeys(kinds, share)


_BLOCK = {"activations": UNKNOWN_TYPE}
FEATURES: Mapping[str, Feature] = {
    "latent_attention": Feature(
        "latent attention", "either", "projections to and from the latent are not counted; taken as attention of whole heads",
        {**_BLOCK, **_of(STATES, 0.2)}, {**_BLOCK, **_of(STATES, 0.2)},
    ),
    "token_prediction": Feature(
        "multi-token prediction", "more", "each further token adds a block, and logits of its own",
        more={"logits": 1.0, "activations": 0.25, **_of(STATES, 0.25)},
    ),
    "shared_experts": Feature(
        "shared experts", "more", "what every token goes through beside its routed experts is not counted",
        more={**_BLOCK, **_of(STATES, 0.2)},
    ),
    "dense_layers": Feature(
        "layers without experts", "less", "all layers are taken to have experts", _of(STATES, 0.5)
    ),
    "experts_on_host": Feature(
        "experts in host memory", "less", "they, and what trains them, are counted on the device", _of(STATES, 0.98)
    ),
    # (stages - 1) / (stages × virtual stages) more, less than one whole: arXiv 2205.05198, section 4
    "virtual_stages": Feature(
        "virtual pipeline stages", "more", "an interleaved schedule keeps up to twice the micro batches",
        more={"activations": 1.0},
    ),
    "uneven_stages": Feature(
        "uneven pipeline stages", "either", "blocks are taken as spread evenly over the stages; one may hold more",
        {"activations": 0.5, **_of(STATES, 0.5)}, {"activations": 1.0, **_of(STATES, 1.0)},
    ),
    "megatron_fsdp": Feature(
        "FSDP of Megatron", "less", "parameters and gradients that it splits over ranks are taken as whole", _of(STATES, 0.9)
    ),
    # a weight and its transpose of one byte each beside two; inputs of one byte instead of two
    "low_precision_products": Feature(
        "products in 8 bits or fewer", "either", "copies of weights in fewer bits, and inputs kept in them, are not counted",
        {"activations": 0.3}, {"parameters": 1.0, "live_parameters": 1.0},
    ),
    # logits and a gradient written over them, without float32 copies of either: 4 of 12 bytes and more stay
    "loss_kernel": Feature(
        "kernel of the loss", "less", "what its kernel keeps was not read; taken as cross entropy of whole logits",
        {"logits": 0.67},
    ),
    # of prompt + answers once instead of as often as there are answers, at most nearly all is the prompt
    "shared_prefix": Feature(
        "shared prompts", "less", "prompts are taken to be computed once for each answer", {"activations": 0.9, "logits": 0.9}
    ),
    "tiled_mlp": Feature(
        "MLP in tiles", "less", "the MLP of a block is taken to be there for all tokens at once", {"activations": 0.6}
    ),
    "hybrid_layers": Feature(
        "layers of other kinds", "either", "all blocks are taken as attention and an MLP", {**_BLOCK, **_of(STATES, 0.5)},
        {**_BLOCK, **_of(STATES, 0.5)},
    ),
    "vision_model": Feature(
        "vision model", "more", "the program is given images; its towers and what they keep are not counted",
        more={**_BLOCK, **_of(STATES, 0.5)},
    ),
    "split_activations": Feature(
        "split or offloaded checkpoints", "less", "inputs of blocks are taken to be whole on each rank", {"activations": 0.9}
    ),
    "all_forward": Feature(
        "all micro batches forward, then all backward", "more", "one micro batch is counted, and all of a step are kept",
        more={"activations": 7.0, "logits": 3.0},
    ),
    "recomputed_parts": Feature(
        "further parts computed again", "less", "what backward computes again beside attention's core is taken as kept",
        {"activations": 0.8},
    ),
    # inputs of attention, MLP and two norms are kept where those of a block would be
    "checkpointed_parts": Feature(
        "checkpointed parts of blocks", "more", "attention, MLP and norms are checkpointed one by one, and keep inputs each",
        more={"activations": 3.0},
    ),
    "draft_model": Feature(
        "draft model", "more", "a model that proposes tokens is trained beside the policy, and is not counted",
        more={"logits": 1.0, "activations": 0.25, **_of(STATES, 0.25)},
    ),
    "evaluation": Feature(
        "evaluation", "more", "its batches are larger than those of training, and nobody read what this program holds in it",
        more={"logits": 3.0, "activations": 0.5},
    ),
    "changing_adapters": Feature("adapters of another kind", "either", "they are taken as LoRA's", _BLOCK, _BLOCK),
    "trained_in_turns": Feature(
        "blocks trained in turns", "less", "all that is trained in the run is taken to be trained at once",
        _of(("gradients", "optimizer_states"), 0.95),
    ),
    "simulated_quantisation": Feature(
        "simulated quantisation", "more", "quantised copies of weights and inputs that it keeps are not counted",
        more={"activations": 1.0, "parameters": 1.0},
    ),
    # dQ in float32 once per split, of which there are at most as many as multiprocessors for a head, beside sorted scatters
    "deterministic_kernels": Feature(
        "deterministic kernels", "more", "what they hold beside those that add in any order is not counted",
        more={"activations": 2.0},
    ),
    "quantised_engine": Feature(
        "quantised engine", "less", "its weights are taken to be in 16 bits", {"parameters": 0.5}
    ),
    "stored_otherwise": Feature(
        "quantised weights", "less", "they are stored in fewer bits, and counted as not quantised",
        {"parameters": 0.7, "live_parameters": 0.7},
    ),
    "distillation": Feature(
        "distillation", "more", "the teacher, or its logits, and a loss over both are not counted",
        more={"logits": 2.0, "parameters": 1.0},
    ),
    # float32 instead of 16 bits: weights twice as wide and copies that autocast keeps, gradients and moments twice as wide, norms
    # a fifth more of a block; from_config takes the dtype that the configuration names, before transformers 4.46 float32
    "random_weights": Feature(
        "weights made at random", "more", "their dtype is not that of loading; taken to be, and may be float32",
        more={"parameters": 2.0, "gradients": 1.0, "optimizer_states": 1.0, "activations": 0.2},
    ),
    "shifted_attention": Feature("shifted attention", "either", "taken as attention over the whole sequence", _BLOCK, _BLOCK),
}  # fmt: skip
"""By their words in ``training.unpriced``."""


def name_unpriced(run: Run) -> Iterator[Unmodelled]:
    """Name what no formula has."""
    for word in run.unpriced:
        feature = FEATURES.get(word)
        if feature is None:
            yield Unmodelled(word.replace("_", " "), "either", "no formula has it")
        else:
            yield Unmodelled(feature.name, feature.direction, feature.reason)
    fewest, most = run.adapters_range
    if fewest < most:
        reason = f"from {fewest:,} to {most:,} parameters: {_open_reason(run)}"
        yield Unmodelled(_OPEN_ADAPTERS, "either", reason)
    count = count_expert_adapters(run)
    if count:
        reason = (
            f"{count:,} parameters if each routed expert has some, as where experts are linear layers: "
            "before transformers 5, in Megatron"
        )
        yield Unmodelled(_EXPERT_ADAPTERS, "more", reason)


def _open_reason(run: Run) -> str:
    if run.model.experts and not {"peft", "transformers"} <= run.versions.keys():
        return "what names of layers reach hangs on the releases of peft and transformers"
    return "nobody read whether names of layers are looked for in the tower"


_EXPERT_ADAPTERS, _OPEN_ADAPTERS = "adapters of experts", "number of adapters"
_FUSED_EXPERTS = frozenset({"dbrx", "gpt_oss", "granitemoe", "llama4", "llama4_text", "qwen3_vl_moe"})
"""Types whose experts were parameters, and no linear layers, before transformers 5 as well (4.57.6 modeling files)."""


def count_expert_adapters(run: Run) -> int:
    """Count the parameters of adapters beside the three matrices of each routed expert, where targets may name these.

    From transformers 5 on the experts of a block are parameters, of which ``all-linear`` takes none.
    """
    model = run.model
    if run.peft not in LOW_RANK or not (model.experts and model.expert and run.adapters) or run.adapted:
        return 0
    feeds = {feed for feed, _, _ in target_shapes(model, run.targets)}
    later = run.versions.get("transformers", (0,)) >= (5,) or model.model_type in _FUSED_EXPERTS
    if feeds.isdisjoint({"mlp", "down"}) or (later and run.parallel.sharding != "megatron"):
        return 0
    matrices = model.expert // (model.hidden * model.expert_width)
    return matrices * run.rank * (model.hidden + model.expert_width)


def widen_unpriced(run: Run, parts: Sequence[Component]) -> tuple[Component, ...]:
    """Return what unpriced features may add to, or take from, the components of a phase."""
    found = []
    for word in run.unpriced:
        feature = FEATURES.get(word, Feature(word, "either", "", _BLOCK, _BLOCK))
        less = sum(share * _sum(parts, kind).expected for kind, share in feature.less.items())
        more = sum(share * _sum(parts, kind).expected for kind, share in feature.more.items())
        size = Size(-int(less), 0, int(more))
        words = "no formula has it; the range holds what it may change"
        name = feature.name if feature.reason else word.replace("_", " ")
        found.append(
            Component(name, "workspace", size, words, "docs/memory-model.md, ranges", run.role, ("training.unpriced",))
        )
    count = count_expert_adapters(run)
    fewest, most = (bound - run.adapters for bound in run.adapters_range)
    if count or fewest < most:
        of_adapters = (one for one in parts if one.name == "adapters" or one.kind in {"gradients", "optimizer_states"})
        each = total(one.size for one in of_adapters).expected / max(1, run.adapters)
        size = Size(int(each * fewest), 0, int(each * (most + count)))
        words = "no formula has it; the range holds what it may change"
        source = "docs/memory-model.md, ranges"
        name = _EXPERT_ADAPTERS if count else _OPEN_ADAPTERS
        found.append(Component(name, "workspace", size, words, source, run.role, ("training.lora_target_modules",)))
    return tuple(found)


def _sum(parts: Sequence[Component], kind: str) -> Size:
    return total(part.size for part in parts if part.kind == kind)
