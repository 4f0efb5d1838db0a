"""Parameters that ZeRO-3 and FSDP have gathered at one moment, and the 16-bit weights autocast makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size, exactly
from compatcheck.memory.closed_form.parallel import held, is_gathered_for_a_step
from compatcheck.memory.closed_form.parameters import quantised_bytes

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


def live_parameters(run: Run, *, blocks: bool = True, given_back: bool = False) -> tuple[Component, ...]:
    """Return gathered parameters while the model computes.

    FSDP: the unit at work and the one being prefetched (two blocks), and the root unit, which holds embedding, head and
    final norm and stays gathered from the first forward to the end of backward (torch _fsdp_state.py: the root is not
    resharded after forward). FSDP2 has what it gathered for a block until the next one is gathered, the last of them
    through the loss (_fsdp_param_group.py wait_for_unshard, ``all_gather_state``, v2.13.0). ZeRO-3: up to
    ``stage3_max_live_parameters`` elements: a module's parameters are given back after use only if they are not used again
    within ``max_reuse_distance``, and fetching goes on while fewer are live (partitioned_parameter_coordinator.py
    fetch_sub_module, v0.16.4); a smaller model stays gathered (our rule deepspeed/zero3-reuse-window-stays-gathered). Without
    its rate limiter FSDP1 has from two blocks to all of them, as far as the host runs ahead (torch v2.0.1 _runtime_utils.py
    _unshard, _limiter_utils.py; our rule torch/fsdp1-unlimited-all-gathers).

    Args:
        run: the run.
        blocks: whether blocks are at work; in the loss FSDP has only its root unit gathered.
        given_back: whether backward is at the first block, and the others are resharded whatever forward did.
    """
    parallel, own = run.parallel, held(run)
    if is_gathered_for_a_step(run) and not given_back:
        size = exactly(run.precision.compute * own.total)
        return (_component(run, "gathered parameters", size, f"{run.precision.compute:g} B × {own.total:,.0f}"),)
    if (parallel.stage != 3 and not is_gathered_for_a_step(run)) or (
        parallel.shard == 1 and not run.offload_param and parallel.sharding != "zero"
    ):
        return ()
    each = run.precision.compute if run.model.quantization is None else quantised_bytes(run)
    block = (own.blocks + own.experts) / max(1, own.layers)
    outside = own.embedding + own.lm_head + own.other
    if parallel.sharding == "zero":
        low = max(block, own.lm_head or own.embedding)
        window = min(own.total, max(run.max_live, 2 * block))
        expected = max(low, window)
        high = min(own.total, max(window, low) + run.prefetch_bucket + max(block, own.embedding))
        words = f"{each:g} B × min(parameters, max_live_parameters {run.max_live:,})"
        return (
            _component(run, "live parameters", Size(int(each * low), int(each * expected), int(each * high)), words),
        )
    dense = run.precision.compute
    pair = min(2 * block, own.blocks + own.experts)
    left = block if parallel.fsdp == 2 else 0
    low = each * (block if blocks else 0) + dense * outside
    expected = each * (pair if blocks else left) + dense * outside
    at_work = f"two blocks of {block:,.0f} and " if blocks else f"one block of {block:,.0f} and " if left else ""
    words = f"{at_work}{outside:,.0f} outside of blocks"
    high = each * (pair + block if blocks else pair) + dense * outside
    if run.gathers_ahead:
        words, high = (
            f"{words}; without the rate limiter up to all blocks",
            each * (own.blocks + own.experts) + dense * outside,
        )
    return (_component(run, "gathered parameters", Size(int(low), int(expected), int(high)), words),)


def _component(run: Run, name: str, size: Size, words: str) -> Component:
    facts = ("training.sharding", "training.zero_stage", "training.max_live_parameters")
    return Component(name, "live_parameters", size, words, "torch FSDP; DeepSpeed stage 3", run.role, facts)


def autocast_weights(run: Run, at: str = "forward") -> tuple[Component, ...]:
    """Return the 16-bit copies of weights that autocast, or the graph, keeps.

    A trained float32 weight is cast once and cached until the context ends (torch autocast_mode.cpp cached_cast: only leaves that
    require a gradient); the copies live through forward, and without checkpointing the graph keeps them for backward. Measured:
    probe autocast_cache. The frozen base of adapters is not cached: the graph keeps its copies. Under checkpointing it keeps the
    head's until the loss is differentiated, and then those of the block that is computed again.

    Args:
        run: the run.
        at: ``forward``, ``loss`` while that is differentiated, or ``blocks`` while they are.
    """
    own = held(run)
    head = own.lm_head or own.embedding
    count = own.linear
    if run.checkpointing and at == "blocks":
        count = (own.blocks + own.experts) / max(1, own.layers) if run.adapters else 0.0
    elif run.checkpointing and (run.adapters or at == "loss"):
        count = head
    if run.precision.unquantised > run.precision.compute and run.model.quantization is not None:
        # the head in float32, of which the graph keeps a 16-bit copy
        count = 0.0 if run.checkpointing and at == "blocks" else head
    elif not run.precision.autocast or run.optimizer is None:
        return ()
    if not count:
        return ()
    size = exactly(run.precision.compute * count)
    return (
        Component("16-bit weights of autocast", "live_parameters", size, f"{run.precision.compute:g} B × {count:,.0f}",
                  "torch autocast_mode.cpp cached_cast", run.role, ("training.mixed_precision", "training.param_dtype")),
    )  # fmt: skip
