"""The closed-form estimate: facts in, components by phase and a verdict out, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Assumption, Component, Estimate, Phase, Size, Unmodelled, exactly, total
from compatcheck.memory.closed_form import gradients as gradient
from compatcheck.memory.closed_form.activations import activations
from compatcheck.memory.closed_form.activations import components as activation_components
from compatcheck.memory.closed_form.communication import backward_buffers, lasting_buffers, step_buffers
from compatcheck.memory.closed_form.context import context, workspaces
from compatcheck.memory.closed_form.layers import RECIPES
from compatcheck.memory.closed_form.live_parameters import autocast_weights, live_parameters
from compatcheck.memory.closed_form.logits import logits
from compatcheck.memory.closed_form.masks import masks
from compatcheck.memory.closed_form.offload import offload_buffers
from compatcheck.memory.closed_form.optimizer_states import optimizer_states, step_workspace
from compatcheck.memory.closed_form.parallel import held
from compatcheck.memory.closed_form.parameters import parameters
from compatcheck.memory.closed_form.reserve import reserve
from compatcheck.memory.closed_form.verdict import judge
from compatcheck.memory.run import read_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Fact, Value
    from compatcheck.memory.run import Run

Parts = tuple[Component, ...]


def estimate(
    facts: Mapping[str, Fact | Value],
    environment: Environment | None = None,
    *,
    role: str = "train",
    trains: bool = True,
) -> Estimate:
    """Estimate what one device of a run needs.

    Args:
        facts: by vocabulary name: resolved facts, or plain values.
        environment: where releases of packages are looked up; the loss code depends on them.
        role: the role the facts are of, for the names of components.
        trains: False for a role that only runs forward (a reference or reward model).

    Returns:
        Phases and a verdict; without phases, `needs` names the facts that are missing.

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    reading = read_run(facts, environment, role=role, trains=trains)
    if reading.run is None:
        verdict = judge((), None)
        return Estimate("closed_form", (), verdict, reading.assumptions, (), reading.needs)
    return estimate_run(reading.run, reading.assumptions)


def estimate_run(run: Run, assumptions: tuple[Assumption, ...] = ()) -> Estimate:
    """Estimate a run that was read before."""
    phases = training_phases(run) if run.optimizer is not None else scoring_phases(run)
    return Estimate("closed_form", phases, judge(phases, run.limit), assumptions, tuple(_unmodelled(run)))


def resident(run: Run) -> Parts:
    """Return what is on the device in every phase once training runs, the allocator's cache apart."""
    return (*parameters(run), *optimizer_states(run), *lasting_buffers(run), *workspaces(run), *context(run))


def training_phases(run: Run) -> tuple[Phase, ...]:
    """Return load, forward, backward and step of a role that trains."""
    always = resident(run)
    grads = gradient.gradients(run)
    found = activations(run)
    earlier = gradient.component(run, max(grads.before, grads.persistent))
    forward = (
        *always, *earlier, *live_parameters(run), *autocast_weights(run), *activation_components(run, found, block=False),
        *masks(run), *logits(run, backward=False),
    )  # fmt: skip
    load = (*parameters(run), *context(run))
    step = (*always, *gradient.component(run, grads.complete), *step_workspace(run), *step_buffers(run))
    return (
        _phase("load", run, load),
        _phase("forward", run, forward),
        max(_backward(run, always), key=lambda phase: phase.size.expected),
        _phase("step", run, step),
    )


def _backward(run: Run, always: Parts) -> tuple[Phase, ...]:
    """Return the instants of backward one of which is its peak: in the loss, the last block, the first block, at the end."""
    grads = gradient.gradients(run)
    found = activations(run)
    earlier = gradient.component(run, max(grads.before, grads.persistent))
    weights = () if run.checkpointing else autocast_weights(run)
    live = live_parameters(run, backward=True)
    kept = activation_components(run, found, block=False)
    in_loss = (*always, *earlier, *live, *weights, *kept, *masks(run), *logits(run, backward=True))
    own = held(run)
    reducing = backward_buffers(run)
    head = 0.0
    if not run.adapters and run.parallel.stage < 2:
        head = run.precision.gradient * (own.lm_head or own.embedding)
    begun = max(grads.before, grads.persistent, head)
    in_last_block = (
        *always, *gradient.component(run, begun), *live, *weights, *activation_components(run, found, block=True),
        *masks(run), *reducing,
    )  # fmt: skip
    one = found._replace(kept=_share(found.kept, own.layers), outside=0.0)
    nearly = max(begun, grads.complete - gradient.of_block_and_embedding(run))
    in_first_block = (
        *always, *gradient.component(run, nearly), *live, *activation_components(run, one, block=True), *masks(run),
        *reducing, *offload_buffers(run),
    )  # fmt: skip
    at_the_end = (
        *always, *gradient.component(run, grads.complete), *live, *_second_embedding_gradient(run, own.embedding),
        *reducing, *offload_buffers(run),
    )  # fmt: skip
    return tuple(_phase("backward", run, parts) for parts in (in_loss, in_last_block, in_first_block, at_the_end))


def scoring_phases(run: Run) -> tuple[Phase, ...]:
    """Return load and forward of a role that only scores."""
    always = resident(run)
    found = activations(run)
    forward = (
        *always, *live_parameters(run), *activation_components(run, found, block=True), *masks(run),
        *logits(run, backward=False),
    )  # fmt: skip
    return (_phase("load", run, always), _phase("forward", run, forward))


def _share(size: Size, count: int) -> Size:
    return Size(size.low // count, size.expected // count, size.high // count)


def _second_embedding_gradient(run: Run, embedding: float) -> Parts:
    """Return the embedding's own gradient where the head's, of the same tensor, is there already; autograd adds them up."""
    if not run.model.tied or run.adapters or run.trainable < run.model.parameters:
        return ()
    size = exactly(run.precision.gradient * embedding)
    words = f"{run.precision.gradient:g} B × {embedding:,.0f}"
    return (
        Component("embedding gradient before it is added to the head's", "gradients", size, words,
                  "torch autograd AccumulateGrad", run.role, ("model.tie_word_embeddings",)),
    )  # fmt: skip


def _phase(name: str, run: Run, parts: Parts) -> Phase:
    inside = total(part.size for part in parts if part.kind not in {"context", "other"})
    return Phase(name, run.role, (*parts, reserve(run, inside)))


def _unmodelled(run: Run) -> list[Unmodelled]:
    found = []
    if run.model.vision:
        reason = "patches of images and frames are not known; their activations are left out"
        found.append(Unmodelled("activations of vision and audio towers", "more", reason))
    if run.compiled:
        reason = "torch.compile recomputes norms and activations instead of keeping them"
        found.append(Unmodelled("fusion by torch.compile", "less", reason))
    if run.model.model_type not in RECIPES:
        reason = f"blocks of {run.model.model_type or 'an unknown model type'} were not read; taken as llama's"
        found.append(Unmodelled("architecture", "either", reason))
    if run.parallel.context > 1:
        reason = "keys and values of other ranks that ring attention holds"
        found.append(Unmodelled("context-parallel exchange", "more", reason))
    if run.parallel.expert > 1:
        reason = "tokens exchanged between expert-parallel ranks"
        found.append(Unmodelled("all-to-all buffers", "more", reason))
    if run.peft is not None and not run.rank:
        reason = f"what {run.peft} keeps for backward is not modelled"
        found.append(Unmodelled("adapter activations", "more", reason))
    return found
