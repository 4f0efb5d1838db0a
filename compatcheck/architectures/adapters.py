"""Where low-rank adapters lie in a decoder, and how many parameters they have."""

from __future__ import annotations

from typing import Protocol


class Widths(Protocol):
    """Widths of a decoder's blocks."""

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


LOW_RANK = frozenset({"lora", "dora", "qlora", "adalora"})
"""Methods that put two narrow matrices beside a weight."""
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_SAME_AS = {
    "c_attn": "qkv", "qkv_proj": "qkv", "query_key_value": "qkv", "W_pack": "qkv", "Wqkv": "qkv",
    "out_proj": "o_proj", "dense": "o_proj", "attn.c_proj": "o_proj",
    "gate_up_proj": "gate_up", "w1": "gate_proj", "w2": "up_proj", "w3": "down_proj",
    "c_fc": "up_proj", "fc1": "up_proj", "dense_h_to_4h": "up_proj", "fc2": "down_proj", "dense_4h_to_h": "down_proj",
}  # fmt: skip
"""Names of other architectures; which of gate and up a ``w1`` is does not matter, they have the same shape."""


def target_shapes(model: Widths, targets: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return the adapted linear layers of one block: what feeds it, inputs and outputs."""
    query, key, hidden, width = model.query_width, model.key_width, model.hidden, model.intermediate
    shapes = {
        "q_proj": ("attention", hidden, query),
        "k_proj": ("attention", hidden, key),
        "v_proj": ("attention", hidden, key),
        "qkv": ("attention", hidden, query + 2 * key),
        "o_proj": ("output", query, hidden),
        "gate_proj": ("mlp", hidden, width),
        "up_proj": ("mlp", hidden, width),
        "gate_up": ("mlp", hidden, 2 * width),
        "down_proj": ("down", width, hidden),
    }
    if "c_proj" in targets:  # the name of both output projections in GPT-2 and Qwen
        targets = (*(name for name in targets if name != "c_proj"), "o_proj", "down_proj")
    names = ALL_LINEAR if any(name in {"all-linear", "all"} for name in targets) else targets
    ends = [_SAME_AS.get(name) or _SAME_AS.get(name.rpartition(".")[2]) or name.rpartition(".")[2] for name in names]
    return tuple(shapes[end] for end in ends if end in shapes)


def count_adapters(model: Widths, rank: int, targets: tuple[str, ...], *, decomposed: bool = False) -> int:
    """Count the parameters of LoRA adapters: rank × (inputs + outputs) for each adapted layer, and DoRA's magnitudes.

    Source: equation 3 of LoRA (arXiv 2106.09685), equation 5 of DoRA (arXiv 2402.09353); peft tuners/lora/layer.py.
    """
    shapes = target_shapes(model, targets)
    block = sum(rank * (inputs + outputs) + (outputs if decomposed else 0) for _, inputs, outputs in shapes)
    return model.layers * block
