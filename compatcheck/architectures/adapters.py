"""Where low-rank adapters lie in a decoder, and how many parameters they have."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Protocol

from compatcheck.core.data_file import read_data
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.architectures.parts import LinearLayer


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


def target_shapes(model: Widths, targets: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return the adapted linear layers of one block: what feeds it, inputs and outputs."""
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
    shapes = target_shapes(model, targets)
    block = sum(_count(rank, inputs, outputs, decomposed=decomposed) for _, inputs, outputs in shapes)
    head = 0 if HEADS.isdisjoint(targets) else _count(rank, model.hidden, model.vocab, decomposed=decomposed)
    return model.layers * block + head


class Layout(NamedTuple):
    """What the names of a model's linear layers reach, by the releases of transformers and peft."""

    fused: bool = False
    """Routed experts of a layer are parameters, gate and up projections in one of them, and no modules."""
    router_apart: bool = False
    """Their router is no linear layer."""
    turned: bool = False
    """peft turns listed names of an expert's layers, and of the router, into the parameters that these have become."""
    all_turned: bool = False
    """It does the same with ``all-linear``."""
    listed: bool = False
    """Instead of ``all-linear`` peft gets the names of the linear layers that a program found."""


class Adapted(NamedTuple):
    """A linear layer with adapters."""

    layer: LinearLayer
    parameters: int
    """Of all its adapters, for each rank."""
    is_parameter: bool = False
    """It is a part of a parameter, to which the update is added as a whole."""


_ROUTERS = frozenset({"gate", "layer", "router", "wg"})
_FUSED = frozenset({"gate_proj", "up_proj", "w1", "w3"})
"""Layers of an expert whose outputs lie in one parameter; the adapter of that has both ranks, for all of its outputs."""


def list_adapted(
    layers: Sequence[LinearLayer], targets: Iterable[str], layout: Layout, *, tower: Sequence[LinearLayer] = ()
) -> tuple[Adapted, ...]:
    """Return the layers of a model that get adapters where its blocks are listed, and those of its tower that names reach.

    Source: peft 0.18.1, 0.19.1, 0.20.0 and 0.21.2 utils/transformers_weight_conversion.py _convert_peft_config_moe,
    tuners/lora/layer.py ParamWrapper; fixtures/adapters/peft_counts.json.
    """
    names = [name for name in targets if not name.startswith(OF_TOWER)]
    if layout.listed and not _ALL.isdisjoint(names):
        names = sorted({_end(one) for one in layers if _is_module(one, layout)})
    every, ends = not _ALL.isdisjoint(names), {name.rpartition(".")[2] for name in names}
    turning = {_end(one) for one in layers if is_expert(one)} | {"gate"}
    turned = turning if layout.all_turned and every else turning & ends if layout.turned else set()
    found = []
    for one in layers:
        end, kept = _end(one), None
        if is_expert(one) and layout.fused:
            if end in turned:
                kept = Adapted(one, one.blocks * (one.inputs + one.outputs * (2 if end in _FUSED else 1)), True)
        elif end == "gate" and end in turned:
            kept = _adapt(one)
        elif end in turned or not _is_module(one, layout):
            continue
        elif every or _kind(one) in names or _is_named(one.path, names):
            kept = _adapt(one)
        found += [] if kept is None else [kept]
    return (*found, *(_adapt(one) for one in _in_tower(tower, targets) if _end(one) not in turned))


def _is_module(layer: LinearLayer, layout: Layout) -> bool:
    """Tell whether a listed layer is a module of the model, and not a parameter of another one."""
    return not (layout.fused if is_expert(layer) else layout.router_apart and _end(layer) in _ROUTERS)


def _adapt(layer: LinearLayer) -> Adapted:
    return Adapted(layer, layer.blocks * (layer.inputs + layer.outputs))


def _kind(layer: LinearLayer) -> str:
    return ALL_ATTENTION if layer.is_attention else ALL_MLP if layer.is_mlp else ""


def _end(layer: LinearLayer) -> str:
    return layer.path.rpartition(".")[2]


def is_expert(layer: LinearLayer) -> bool:
    """Tell whether each routed expert has the layer."""
    return "*" in layer.path


def names_recur(layers: Sequence[LinearLayer]) -> bool:
    """Tell whether linear layers outside of the routed experts, of a shared expert or of dense blocks, are named as theirs."""
    ends = {_end(one) for one in layers if is_expert(one)}
    return any(_end(one) in ends for one in layers if not is_expert(one))


def count_adapted(layers: Iterable[Adapted], rank: int, *, decomposed: bool = False) -> int:
    """Count the parameters of the adapters of layers, with DoRA's magnitudes."""
    return sum(rank * one.parameters + (one.layer.blocks * one.layer.outputs if decomposed else 0) for one in layers)


def count_tower_adapters(
    tower: Iterable[LinearLayer], rank: int, targets: Iterable[str], *, decomposed: bool = False
) -> int:
    """Count the parameters of adapters in the blocks of a vision tower, of the targets that are looked for there."""
    return count_adapted(map(_adapt, _in_tower(tower, targets)), rank, decomposed=decomposed)


def _in_tower(tower: Iterable[LinearLayer], targets: Iterable[str]) -> Iterator[LinearLayer]:
    names = [name.removeprefix(OF_TOWER) for name in targets if name.startswith(OF_TOWER)]
    every = not _ALL.isdisjoint(names)
    for one in tower:
        if every or _kind(one) in names or _is_named(one.path, names):
            yield one


def _count(rank: int, inputs: int, outputs: int, *, decomposed: bool) -> int:
    return rank * (inputs + outputs) + (outputs if decomposed else 0)
