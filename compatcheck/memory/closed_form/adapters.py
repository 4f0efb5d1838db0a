"""LoRA, QLoRA and DoRA: what adapters keep for backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.adapters import LOW_RANK, is_expert, target_shapes
from compatcheck.memory.closed_form.layers import LITGPT

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


def kept_per_token(run: Run) -> float:
    """Return bytes per token and block that adapters keep for backward beside what the frozen base keeps.

    An adapter in the dtype of its input keeps the input, once for all adapters that share it. peft's float32 adapters on a
    16-bit base cast the input for each adapter and keep every copy; under autocast what is multiplied, and kept, is a
    16-bit copy for each adapter, of whose making nothing stays, and none where a quantised base hands its input over as it
    is (peft tuners/lora/bnb.py: ``requires_conversion = not torch.is_autocast_enabled()``). Dropout keeps a mask. Source:
    our measurements of peft 0.11.1 to 0.21.2 (fixtures/measurements/peft_lora_forward; a CPU's mask is as wide as its
    input, a GPU's one byte).
    """
    if not run.adapters:
        return 0.0
    if run.adapted:
        return _kept_of_listed(run)
    shapes = target_shapes(run.model, run.targets)
    compute, own = run.precision.compute, run.adapter_bytes
    inputs, outputs = sum(width for _, width, _ in shapes), sum(width for _, _, width in shapes)
    if run.peft == "vera":  # of shared factors that are frozen, both products are kept for the vectors that scale them
        return _product_bytes(run) * (run.rank * len(shapes) + outputs)
    if (
        run.peft == "ia3"
    ):  # scales the input of ``down`` in float32 and the output of others in theirs (peft tuners/ia3/layer.py)
        return sum(own * width if feed == "down" else compute * outputs for feed, width, outputs in shapes)
    if run.code == LITGPT:
        return _litgpt(run, shapes)
    if run.peft not in LOW_RANK:
        return (
            own * inputs
        )  # each multiplies or rotates a tensor of that width, and keeps it for the gradient of its factor
    once = sum({feed: width for feed, width, _ in shapes}.values())
    return _kept_of_low_rank(run, inputs, once, run.rank * len(shapes), outputs)


def _product_bytes(run: Run) -> float:
    """Return bytes of a value that an adapter multiplies out."""
    compute, own = run.precision.compute, run.adapter_bytes
    return own if own > compute and not run.mixed else compute


_REUSES = (0, 14)
"""Release of peft from which DoRA takes the base's own result, without dropout before the adapter (tuners/lora/dora.py)."""


def _kept_of_low_rank(run: Run, inputs: float, once: float, ranks: float, outputs: float) -> float:
    """Return bytes per token of so many inputs, with shared ones counted ``once``, and of products with the first factors.

    DoRA's magnitude multiplies the results of the base and of the update, and keeps both for its gradient, in the dtype of the
    product: 2 and 4 B an output with float32 adapters, 4 and 4 where the base is multiplied anew, 2 and 2 in 16 bits. Counted in
    peft 0.13.2, 0.15.2 and 0.21.2 on a CPU: exact in all of dropout, autocast and cast adapters.
    """
    compute, own = run.precision.compute, run.adapter_bytes
    shared = run.mixed and run.model.quantization is not None and run.precision.residual <= compute
    if own > compute and not shared:
        kept = (compute if run.mixed else own) * (inputs + ranks)
    elif run.lora_dropout:
        kept = compute * (inputs + ranks)
    else:
        kept = compute * (once + ranks)
    if run.peft == "dora":
        product = _product_bytes(run)
        reuses = not run.lora_dropout and run.versions.get("peft", _REUSES) >= _REUSES
        kept += outputs * (product + (compute if reuses else product))
    return kept + (inputs if run.lora_dropout else 0)


def _kept_of_listed(run: Run) -> float:
    """Return the same where the layers of a model are listed, on average of its blocks; a token goes through some experts."""
    model = run.model
    inputs = ranks = outputs = 0.0
    feeds: dict[tuple[str, int], float] = {}
    listed = set(model.listed)
    for one in run.adapted:
        layer = one.layer
        if (
            one.is_parameter or layer not in listed
        ):  # what parameters keep is a matter of weights, and a tower has tokens of its own
            continue
        each = layer.blocks / model.layers
        if is_expert(layer):
            each *= model.experts_per_token / max(1, model.experts)
        inputs += each * layer.inputs
        ranks += each * run.rank
        outputs += each * layer.outputs
        feeds[layer.path.rpartition(".")[0], layer.inputs] = each * layer.inputs
    return _kept_of_low_rank(run, inputs, sum(feeds.values()), ranks, outputs)


def summed_experts(run: Run) -> tuple[float, float]:
    """Return bytes that adapters of expert parameters keep for each block, and of the largest gradient in its backward.

    A parameter is replaced by its sum with the update while the layer runs, and the layer keeps the sum, in the dtype of the
    parameter, for the gradient of its input. The gradient of the sum is as large. Source: our measurement of peft 0.19.1 and
    0.21.2 (transformers 5.24.0, a layer of Qwen3-MoE): 2.0 bytes more for each adapted bfloat16 parameter, 4.0 float32, and
    copies of float32 factors in the parameter's dtype. What peft before 0.21 makes beside it is our rule
    peft/expert-update-made-whole.
    """
    if not run.summed or run.optimizer is None:
        return 0.0, 0.0
    each = run.precision.compute if run.model.quantization is not None else run.precision.frozen
    block = run.summed / run.model.layers / (run.parallel.expert * run.parallel.expert_tensor)
    third = run.model.expert / run.model.layers / 3
    return each * block, each * min(block, 2 * third if run.summed * 2 > run.model.expert else third)


_PROJECTIONS = frozenset({"q_proj", "k_proj", "v_proj"})
_FUSED = frozenset({"query_key_value", "qkv_proj", "c_attn", "Wqkv"})


def _litgpt(run: Run, shapes: tuple[tuple[str, int, int], ...]) -> float:
    """Return what LitGPT's LoRA keeps: one adapter, with one input, for queries, keys and values.

    Unless all three are adapted, ``index_copy`` puts its output between zeros and keeps it (litgpt/lora.py at 8641822 and 0.5.13,
    LoRAQKVLinear.zero_pad; measured with 0.5.13: 2 B for each element of it). Of a projection that a model has as one, queries
    and values are adapted, as by default.
    """
    feeds = {feed: width for feed, width, _ in shapes}
    kept = run.precision.compute * (sum(feeds.values()) + run.rank * len(shapes))
    named = _PROJECTIONS.intersection(run.targets)
    if _FUSED.intersection(run.targets):
        named = frozenset({"q_proj", "v_proj"})
    if named != _PROJECTIONS:
        widths = {"q_proj": run.model.query_width, "k_proj": run.model.key_width, "v_proj": run.model.key_width}
        kept += run.precision.compute * sum(widths[name] for name in named)
    return kept + (sum(feeds.values()) if run.lora_dropout else 0)
