"""Where low-rank adapters lie in a decoder, and how many parameters they have."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Protocol

from compatcheck.core.data_file import read_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.architectures.parts import TowerLinear


class Widths(Protocol):
    """Widths of a decoder's blocks, and what their linear layers are called."""

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""

    @property
    def intermediate(self) -> int:
        """Width of the MLP."""

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""

    @property
    def key_width(self) -> int:
        """Width of all key heads together."""

    @property
    def layers(self) -> int:
        """Blocks."""

    @property
    def vocab(self) -> int:
        """Outputs of the head."""

    @property
    def linears(self) -> str:
        """Whose names its linear layers have, as `name_linears` says."""

    @property
    def unequal(self) -> tuple[TowerLinear, ...]:
        """Linear layers of blocks that differ, as transformers names them; none where all blocks are alike."""

    @property
    def gated(self) -> bool:
        """Whether the MLP has a gate, where the names leave it open."""


LOW_RANK = frozenset({"lora", "dora", "qlora", "adalora"})
"""Methods that put two narrow matrices beside a weight."""
ROTATING = frozenset({"oft", "boft"})
"""Methods that rotate the input of a layer, and hand the layer what comes of it."""
MEGATRON = "(megatron)"
_ALL = frozenset({"all-linear", "all"})
ALL_ATTENTION, ALL_MLP = "all-attention", "all-mlp"
"""Targets that stand for all linear layers of attention and of MLPs in the blocks, whatever they are called."""
OF_TOWER = "vision:"
"""What stands before a target that is looked for in the blocks of the vision tower, and not in the language model."""
_ATTENTION = frozenset({"query", "key", "value", "qkv", "output"})
HEADS = frozenset({"lm_head", "output_layer", "output", "embed_out"})
"""Names of the matrix behind the last block; who adapts all linear layers leaves it out, unless he names it."""

PARALLEL = frozenset({"codegen", "cohere", "cohere2", "gptj", "phi"})
"""Types whose attention and MLP read the output of one norm."""
_MULTIPLY_THEMSELVES = frozenset({"falcon", "gpt2"})
"""Types whose blocks do without torch's linear (transformers 5.14.1: FalconLinear, Conv1D)."""


def name_linears(model_type: str, sharding: object, *, runs_transformers: object) -> str:
    """Return whose names the linear layers of a model have: those of its type in transformers, Megatron's, or Llama's.

    Programs with models of their own are taken to translate them.
    """
    if runs_transformers is not False and sharding != "megatron":
        return model_type
    return MEGATRON if sharding == "megatron" else ""


@cache
def list_linears(names: str) -> Mapping[str, str] | None:
    """Return the linear layers of one block, path → what it projects; None of a type that nobody listed."""
    rows = read_data(__file__, "linears")
    return next((row["linears"] for row in rows if names in row["types"]), None)


@cache
def _meanings() -> Mapping[str, str]:
    """Return what a name means wherever it stands, of those that mean one thing."""
    found = defaultdict(set)
    for row in read_data(__file__, "linears"):
        for path, kind in row["linears"].items():
            found[path.rpartition(".")[2]].add(kind)
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1}


def default_targets(names: str) -> tuple[str, ...]:
    """Return the targets that peft takes for a type where none is named: queries and values, or what has both in one.

    Source: peft 0.18.1 utils/constants.py TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING; for phi it adds the MLP; for
    nemotron_h all of attention (0.21.2).
    """
    if names == "nemotron_h":
        return ("q_proj", "k_proj", "v_proj", "o_proj")
    listed = list_linears(names) or list_linears("") or {}
    kinds = {"query", "value", "qkv", *(("up", "down") if names == "phi" else ())}
    return tuple(path.rpartition(".")[2] for path, kind in listed.items() if kind in kinds)


def _find_kinds(names: str, targets: tuple[str, ...]) -> list[str]:
    """Return what the adapted layers of a block project; a target matches a path, or its end behind a dot, as in peft."""
    listed = list_linears(names)
    layers = listed or list_linears("") or {}
    if not _ALL.isdisjoint(targets):
        return [*layers.values()]
    found = {
        path: kind
        for path, kind in layers.items()
        if (ALL_ATTENTION if kind in _ATTENTION else ALL_MLP) in targets or _is_named(path, targets)
    }
    if listed is None or names in {"", MEGATRON}:  # not a type whose every name is known
        ends = {path.rpartition(".")[2] for path in found}
        further = {end: _meanings()[end] for end in (name.rpartition(".")[2] for name in targets) if end in _meanings()}
        found |= {end: kind for end, kind in further.items() if end not in ends}
    return [*found.values()]


def _is_named(path: str, targets: Iterable[str]) -> bool:
    return any(f".{path}".endswith(f".{name}") for name in targets)


def _select(linears: Iterable[TowerLinear], targets: Iterable[str]) -> list[TowerLinear]:
    """Return those of the linear layers that are adapted."""
    return [
        one
        for one in linears
        if not _ALL.isdisjoint(targets)
        or (ALL_ATTENTION if one.is_attention else ALL_MLP if one.is_mlp else "") in targets
        or _is_named(one.path, targets)
    ]


def target_shapes(model: Widths, targets: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return the adapted linear layers of one block: what feeds it, inputs and outputs; of unequal blocks their mean."""
    if model.unequal:
        feeds = {
            "query": "attention",
            "key": "attention",
            "value": "attention",
            "gate": "mlp",
            "up": "mlp",
            "down": "down",
        }
        return tuple(
            (
                feeds.get(_meanings().get(one.path.rpartition(".")[2], ""), one.path),
                one.blocks * one.inputs // model.layers,
                one.blocks * one.outputs // model.layers,
            )
            for one in _select(model.unequal, targets)
        )
    query, key, hidden, width = model.query_width, model.key_width, model.hidden, model.intermediate
    shapes = {
        "query": ("attention", hidden, query),
        "key": ("attention", hidden, key),
        "value": ("attention", hidden, key),
        "qkv": ("attention", hidden, query + 2 * key),
        "output": ("output", query, hidden),
        "gate": ("mlp", hidden, width),
        "up": ("mlp", hidden, width),
        "gate_up": ("mlp", hidden, 2 * width if model.gated else width),
        "down": ("down", width, hidden),
    }
    return tuple(shapes[kind] for kind in _find_kinds(model.linears, targets))


def measure_frozen_inputs(
    model: Widths, method: str | None, targets: tuple[str, ...], *, dropout: bool, eager: bool, activation: str
) -> int:
    """Return the width of all inputs of one block that nothing but frozen linear layers could keep for backward.

    Kept anyway are what adapters of LoRA's kind take as it is, the output of attention, but for eager attention's, which is
    copied, and that of ReLU. Behind dropout adapters keep a copy of their own; rotating ones hand each layer one. Source: what
    autograd keeps of 25 types with DeepSpeed's linear and with torch's (transformers 5.14.1, peft 0.20.0, DeepSpeed 0.19.8).
    """
    if model.linears in _MULTIPLY_THEMSELVES:
        return 0
    shared = {"mlp": "attention"} if model.linears in PARALLEL else {}
    every = {shared.get(feed, feed): width for feed, width, _ in target_shapes(model, ("all-linear",))}
    kept = ({"output"} if not eager else set()) | ({"down"} if activation == "relu" else set())
    adapted = target_shapes(model, targets) if method in LOW_RANK | ROTATING else ()
    if method in ROTATING or not dropout:
        kept |= {shared.get(feed, feed) for feed, _, _ in adapted}
    copies = sum(width for _, width, _ in adapted) if method in ROTATING else 0
    return copies + sum(width for feed, width in every.items() if feed not in kept)


def count_adapters(model: Widths, rank: int, targets: tuple[str, ...], *, decomposed: bool = False) -> int:
    """Count the parameters of LoRA adapters: rank × (inputs + outputs) for each adapted layer, and DoRA's magnitudes.

    Source: equation 3 of LoRA (arXiv 2106.09685), equation 5 of DoRA (arXiv 2402.09353); peft tuners/lora/layer.py.
    """
    head = 0 if HEADS.isdisjoint(targets) else _count(rank, model.hidden, model.vocab, decomposed=decomposed)
    if model.unequal:
        return head + _sum(_select(model.unequal, targets), rank, decomposed=decomposed)
    shapes = target_shapes(model, targets)
    block = sum(_count(rank, inputs, outputs, decomposed=decomposed) for _, inputs, outputs in shapes)
    return model.layers * block + head


def count_tower_adapters(
    tower: Iterable[TowerLinear], rank: int, targets: Iterable[str], *, decomposed: bool = False
) -> int:
    """Count the parameters of adapters in the blocks of a vision tower, of the targets that are looked for there."""
    names = [name.removeprefix(OF_TOWER) for name in targets if name.startswith(OF_TOWER)]
    return _sum(_select(tower, names), rank, decomposed=decomposed)


def _sum(linears: Iterable[TowerLinear], rank: int, *, decomposed: bool) -> int:
    return sum(one.blocks * _count(rank, one.inputs, one.outputs, decomposed=decomposed) for one in linears)


def _count(rank: int, inputs: int, outputs: int, *, decomposed: bool) -> int:
    return rank * (inputs + outputs) + (outputs if decomposed else 0)
