"""Master weights and moments of the optimizer, and what its step needs for a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size, exactly
from compatcheck.core.moments import PAGED, bytes_of_moments
from compatcheck.memory.closed_form.gradients import count_trained, trained_here
from compatcheck.memory.closed_form.parallel import kept_share, name_share

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

_OF_TORCH = frozenset({"adam", "adamw", "adagrad", "rmsprop", "sgd"})
"""Optimizers that torch itself steps for all tensors at once, where nothing else is asked for."""
_PROJECTED = 0.345
"""Share of the states that GaLore is expected to keep: it reduces them by up to 65.5 % (arXiv 2403.03507, abstract)."""
SUB_GROUP = 1_000_000_000
"""Elements ZeRO-3 steps at a time: the default of ``sub_group_size`` in every release (deepspeed/runtime/zero/config.py)."""


def optimizer_states(run: Run) -> tuple[Component, ...]:
    """Return what lives between steps: master weights and moments, 1 / ranks of them from ZeRO stage 1 on.

    Source: ZeRO, arXiv 1910.02054 section 3.1 (4 bytes of master weights, 4 + 4 of moments). Megatron's distributed optimizer
    splits the same 12 bytes over data-parallel ranks (docs/source/api-guide/dist_optimizer.md, core_r0.11.0).
    """
    if run.optimizer is None:
        return ()
    ranks = run.parallel.shard if run.parallel.stage else 1
    facts = ("training.optimizer", "training.sharding", "model.trainable_parameters")
    source = "ZeRO, arXiv 1910.02054 section 3.1; torch.optim"
    part = kept_share(run, ranks, trained=True)
    numbers = f"{count_trained(run):,.0f}{name_share(run, ranks, trained=True)}"
    parts = []
    if run.precision.master and not run.offload_optimizer:
        each = run.precision.master
        size = exactly(each * count_trained(run) * part)
        parts.append(
            Component("master weights", "optimizer_states", size, f"{each:g} B × {numbers}", source, run.role, facts)
        )
    moments = moment_bytes(run)
    if moments:
        name = str(run.optimizer)
        size, kind = exactly(0 if run.offload_optimizer else moments * part), "optimizer_states"
        if name.startswith(PAGED):
            # cudaMallocManaged: not in torch's allocator, and pages move to host memory under pressure
            size, kind = Size(0, size.expected, size.high), "other"
        elif name == "galore":  # its rank, and which matrices it projects, are not asked for
            size = Size(0, int(_PROJECTED * size.expected), size.high)
        words = f"{moments / max(1, count_trained(run)):.3g} B × {numbers}"
        parts.append(Component(f"{name} states", kind, size, words, source, run.role, facts))
    return tuple(part for part in parts if part.size.high)


def moment_bytes(run: Run) -> float:
    """Return bytes of all moments before they are sharded; they have the dtype of the master weights, or of the parameters."""
    name = str(run.optimizer)
    return sum(
        part.number * bytes_of_moments(name, run.precision.master or part.bytes_each) for part in trained_here(run)
    )


def step_workspace(run: Run) -> tuple[Component, ...]:
    """Return what the step allocates and gives back.

    torch's ``foreach`` makes one tensor of the size of all parameters (`_foreach_sqrt` of the second moments; "~
    sizeof(params) more peak memory" in its documentation; torch 2.0 made a second), ``for_loop`` three of the largest,
    ``fused`` none; our measurements: probe optimizer_step. DeepSpeed converts gradients to float32 first: this rank's share
    at stages 1 and 2, one sub-group of at most a billion at stage 3 (stage_1_and_2.py get_flat_partition / step, stage3.py
    _prepare_fp32_grad_for_sub_group, v0.16.4). At stage 0 its float16 optimizer converts each gradient, and flattens the
    converted ones while they are still there (fp16/fused_optimizer.py step, v0.16.4). An optimizer of torch steps on the flat
    masters then, of a sub-group at stage 3 (stage3.py _optimizer_step), with its temporaries beside those gradients.
    """
    if run.optimizer is None or run.offload_optimizer or run.in_backward:
        return ()
    ranks = run.parallel.shard if run.parallel.stage else 1
    part = kept_share(run, ranks, trained=True)
    trained = count_trained(run) * part
    facts = ("training.optimizer_implementation", "training.optimizer")
    parts = []
    if run.parallel.sharding == "zero" and run.precision.master > run.precision.gradient:
        count = min(trained, SUB_GROUP) if run.parallel.stage == 3 else trained
        each = run.precision.master + (run.precision.gradient if run.parallel.stage < 3 else 0)
        if run.parallel.stage == 0 and run.precision.float16:
            each = 2 * run.precision.master
        size = exactly(each * count)
        words = f"{each:g} B × {count:,.0f}"
        source = "DeepSpeed v0.16.4 stage3.py _prepare_fp32_grad_for_sub_group, stage_1_and_2.py step"
        parts.append(Component("float32 gradients of the step", "workspace", size, words, source, run.role, facts))
    elif run.parallel.sharding == "megatron" and run.precision.master > run.precision.gradient:
        size, words = exactly(run.precision.master * trained), f"{run.precision.master:g} B × {trained:,.0f}"
        source = "Megatron-LM core/optimizer/distrib_optimizer.py _copy_model_grads_to_main_grads"
        parts.append(Component("float32 gradients of the step", "workspace", size, words, source, run.role, facts))
    copies = _count_temporaries(run)
    if run.parallel.sharding == "zero" and copies:
        count, beside = (
            (min(trained, SUB_GROUP), 0.0) if run.parallel.stage == 3 else (trained, 2 * run.precision.gradient)
        )
        # at stages 1 and 2 the gradients and their flat copy are gone by then
        each = copies * (run.precision.master or run.precision.stored) - beside
        if run.parallel.stage:
            parts.append(_name_temporaries(run, each, count, facts))
    elif copies and run.parallel.sharding != "megatron":
        largest = max(
            trained_here(run), key=lambda part: part.number * part.bytes_each
        )  # tensors of a dtype go together
        parts.append(_name_temporaries(run, copies * largest.bytes_each, largest.number * part, facts))
    return tuple(part for part in parts if part.size.expected)


def _count_temporaries(run: Run) -> int:
    """Return how many tensors as large as what it steps on the optimizer's step makes.

    One flat tensor of masters is all that an optimizer of torch sees under DeepSpeed, so that a loop over parameters makes two
    of its size there: a root and a quotient (torch/optim/adamw.py, _single_tensor_adamw).
    """
    if run.optimizer not in _OF_TORCH or not moment_bytes(run):
        return 0
    if run.implementation == "for_loop":
        return 2 if run.parallel.sharding == "zero" else 0
    release = run.release("torch")
    return 0 if run.implementation != "foreach" else 2 if release is not None and release < (2, 1) else 1


def _name_temporaries(run: Run, each: float, count: float, facts: tuple[str, ...]) -> Component:
    size, words = exactly(max(0.0, each * count)), f"{each:g} B × {count:,.0f}, temporaries of the square root"
    name = f"optimizer step, {run.implementation}"
    return Component(name, "workspace", size, words, "torch.optim foreach", run.role, facts)
