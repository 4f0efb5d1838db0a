"""What a run is told to do that no formula has: it is said, and the range of each phase holds what it may change.

A bound is arithmetic on what it multiplies, or the range of an unknown block; nothing is expected, for nothing was measured.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from compatcheck.architectures.adapters import LOW_RANK, OF_TOWER, target_shapes
from compatcheck.core.data_file import read_text
from compatcheck.core.estimate import Component, Size, Unmodelled, total
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.memory.adapter_counts import has_fused_experts
from compatcheck.memory.closed_form.activations import UNKNOWN_TYPE
from compatcheck.memory.closed_form.parameters import name_quantised, quantised_bytes

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


@cache
def features() -> Mapping[str, Feature]:
    """Return what no formula has, by its word in ``training.unpriced``: the rows of ``data/unpriced.txt``."""
    rows = read_text(__file__, "unpriced").partition("\n\n")[2].splitlines()
    found = (row.split(" | ") for row in rows if not row.startswith("#"))
    return {
        word: Feature(name, direction, reason, _read_shares(less), _read_shares(more))
        for word, name, direction, reason, less, more in found
    }


def _read_shares(text: str) -> dict[str, float]:
    shares: dict[str, float] = {}
    for kind, _, share in (one.partition(" ") for one in text.split(", ") if one != "-"):
        shares |= (
            dict.fromkeys(STATES, float(share))
            if kind == "states"
            else _BLOCK
            if kind == "block"
            else {kind: float(share)}
        )
    return shares


_BLOCK = {"activations": UNKNOWN_TYPE}


def name_unpriced(run: Run) -> Iterator[Unmodelled]:
    """Name what no formula has."""
    for word in run.unpriced:
        feature = features().get(word)
        if feature is None:
            yield Unmodelled(word.replace("_", " "), "either", "no formula has it")
        else:
            yield Unmodelled(feature.name, feature.direction, feature.reason)
    fewest, most = run.adapters_range
    if fewest < most:
        reason = f"from {fewest:,} to {most:,} parameters: {_open_reason(run)}"
        yield Unmodelled(_OPEN_ADAPTERS, "either", reason)
    if run.experts_open:
        reason = (
            "transformers 5 makes those of a layer one parameter, which bitsandbytes leaves in 16 bits; "
            "which release runs is not known"
        )
        yield Unmodelled(_WIDE_EXPERTS, "more", reason)
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
_WIDE_EXPERTS = "experts that are not quantised"


def count_expert_adapters(run: Run) -> int:
    """Count the parameters of adapters beside the three matrices of each routed expert, where targets may name these.

    Where the experts of a block are parameters, ``all-linear`` takes none of them.
    """
    model = run.model
    if run.peft not in LOW_RANK or not (model.experts and model.expert and run.adapters) or run.adapted:
        return 0
    feeds = {feed for feed, _, _ in target_shapes(model, run.targets)}
    fused = has_fused_experts(model.model_type, run.versions.get("transformers", (0,)))
    if feeds.isdisjoint({"mlp", "down"}) or (fused and run.parallel.sharding != "megatron"):
        return 0
    matrices = model.expert // (model.hidden * model.expert_width)
    return matrices * run.rank * (model.hidden + model.expert_width)


TOWER = "activations of vision and audio towers"
PATCHES = 4
"""Patches that one token of the language model stands for: Qwen2-VL and its kin join two by two."""
_TOWER_HIDDEN = 1200
"""Hidden size h of a usual tower (SigLIP 1,152, Qwen2.5-VL 1,280); with 12 h² parameters a block, all / (12 h) are h × blocks."""
_TOWER_VALUES = 17
"""Values of the hidden size that a block of it keeps of a patch: arXiv 2205.05198, equation 2, without dropout and scores."""


def bound_tower(run: Run) -> int:
    """Return what a tower keeps at most, where each token is an image's; a frozen one has one block at work."""
    patches = PATCHES * run.tokens * run.precision.compute
    block = _TOWER_VALUES * _TOWER_HIDDEN * patches
    frozen = run.trainable <= run.model.parameters - run.model.vision if run.peft is None else not _adapts_tower(run)
    if frozen:
        return int(block)
    across = run.model.vision / (12 * _TOWER_HIDDEN)
    return int(block + across * patches if run.checkpointing else _TOWER_VALUES * across * patches)


def _adapts_tower(run: Run) -> bool:
    fewest, most = run.adapters_range
    return fewest < most or any(name.startswith(OF_TOWER) for name in run.targets)


def widen_unpriced(run: Run, parts: Sequence[Component]) -> tuple[Component, ...]:
    """Return what unpriced features may add to, or take from, the components of a phase."""
    found = []
    words, source = "no formula has it; the range holds what it may change", "docs/memory-model.md, ranges"
    for word in run.unpriced:
        feature = features().get(word, Feature(word, "either", "", _BLOCK, _BLOCK))
        less = sum(share * _sum(parts, kind).expected for kind, share in feature.less.items())
        more = sum(share * _sum(parts, kind).expected for kind, share in feature.more.items())
        size = Size(-int(less), 0, int(more))
        name = feature.name if feature.reason else word.replace("_", " ")
        found.append(Component(name, "workspace", size, words, source, run.role, ("training.unpriced",)))
    if run.experts_open:
        stored = _sum([part for part in parts if part.name == name_quantised(run)], "parameters").expected
        share = run.model.expert / run.model.in_blocks * (2 / quantised_bytes(run) - 1)
        size, of = Size(0, 0, int(stored * share)), "rules/transformers/fused-experts-not-quantised.yaml"
        found.append(Component(_WIDE_EXPERTS, "workspace", size, words, of, run.role, ("model.quantization",)))
    if run.model.vision and run.optimizer is not None:
        size = Size(0, 0, bound_tower(run))
        found.append(Component(TOWER, "workspace", size, words, source, run.role, ("model.vision_parameters",)))
    count = count_expert_adapters(run)
    fewest, most = (bound - run.adapters for bound in run.adapters_range)
    if count or fewest < most:
        of_adapters = (one for one in parts if one.name == "adapters" or one.kind in {"gradients", "optimizer_states"})
        each = total(one.size for one in of_adapters).expected / max(1, run.adapters)
        size = Size(int(each * fewest), 0, int(each * (most + count)))
        name = _EXPERT_ADAPTERS if count else _OPEN_ADAPTERS
        found.append(Component(name, "workspace", size, words, source, run.role, ("training.lora_target_modules",)))
    return tuple(found)


def _sum(parts: Sequence[Component], kind: str) -> Size:
    return total(part.size for part in parts if part.kind == kind)
