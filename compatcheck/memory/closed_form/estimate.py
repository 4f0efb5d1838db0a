"""The closed-form estimate: facts in, components by phase and a verdict out, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.adapters import LOW_RANK
from compatcheck.core.estimate import (
    Assumption,
    Component,
    Estimate,
    Least,
    Phase,
    Size,
    Unmodelled,
    Verdict,
    exactly,
    total,
)
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import format_bytes
from compatcheck.memory.closed_form import gradients as gradient
from compatcheck.memory.closed_form.activations import activations
from compatcheck.memory.closed_form.activations import components as activation_components
from compatcheck.memory.closed_form.communication import (
    backward_buffers,
    joined_gradients,
    lasting_buffers,
    step_buffers,
)
from compatcheck.memory.closed_form.context import context, workspaces
from compatcheck.memory.closed_form.layers import RECIPES
from compatcheck.memory.closed_form.live_parameters import autocast_weights, live_parameters
from compatcheck.memory.closed_form.logits import (
    cached_keys,
    divergence_logits,
    hole,
    is_loss_read,
    kept_outputs,
    logits,
    sequences,
)
from compatcheck.memory.closed_form.masks import masks
from compatcheck.memory.closed_form.offload import offload_buffers
from compatcheck.memory.closed_form.optimizer_states import optimizer_states, step_workspace
from compatcheck.memory.closed_form.parallel import held as held_parameters
from compatcheck.memory.closed_form.parameters import dequantised, parameters
from compatcheck.memory.closed_form.policy_logits import POLICY_TRAINERS
from compatcheck.memory.closed_form.reference import count_references, reference_parameters, teacher_parameters
from compatcheck.memory.closed_form.reserve import Held, Shares, not_itemised, reserve, segments
from compatcheck.memory.closed_form.trl_logits import fused_divergence, takes_tiles
from compatcheck.memory.closed_form.unpriced import TOWER, name_unpriced, widen_unpriced
from compatcheck.memory.closed_form.verdict import UNREAD, judge
from compatcheck.memory.read_run import read_run
from compatcheck.memory.run import EVALUATED_BY_LOSS
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Fact, Value
    from compatcheck.memory.run import Run

Parts = tuple[Component, ...]


class Instants(NamedTuple):
    """Instants of a phase one of which is its peak."""

    elsewhere: tuple[Parts, ...]
    """In the loss, or behind all blocks."""
    in_block: tuple[Parts, ...] = ()
    """While one block is computed."""


CHECKPOINTING = "training.gradient_checkpointing"


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
    run = reading.run
    if trains:
        run = run._replace(references=count_references(facts, run.release("trl")))
    found = estimate_run(run, reading.assumptions)
    return leave_out_models(found, run.trainer) if trains else found


def estimate_run(run: Run, assumptions: tuple[Assumption, ...] = ()) -> Estimate:
    """Estimate a run that was read before."""
    phases = training_phases(run) if run.optimizer is not None else scoring_phases(run)
    verdict = judge(phases, run.limit, verification(run))
    if verdict.outcome == "does_not_fit" and CHECKPOINTING not in run.known and not run.checkpointing:
        verdict = _reconsider(run, verdict)
    if verdict.outcome == "does_not_fit" and (run.pads_to_longest or run.unpadded):
        verdict = _doubt_lengths(run, verdict)
    if verdict.outcome == "fits":
        verdict = _doubt_reading(run, verdict, phases)
    if verdict.outcome == "fits" and run.attention_open:
        verdict = _doubt_attention(run, verdict)
    if verdict.outcome == "fits" and run.keeps_long_rows:
        verdict = _doubt_limit(run, verdict)
    if run.optimizer is not None and verdict.outcome in {"fits", "marginal"}:  # what does not fit hangs on nothing
        verdict = verdict._replace(least=_least(run))
    return Estimate("closed_form", phases, verdict, assumptions, tuple(_unmodelled(run)))


def _doubt_reading(run: Run, verdict: Verdict, phases: tuple[Phase, ...]) -> Verdict:
    """Return a verdict that does not rest on a program doing what nobody read that it does."""
    if run.loop_read and not run.unread_release:
        return verdict
    most = int(UNREAD * max(phase.needed.expected for phase in phases))
    if most <= (run.limit or 0):
        return verdict
    condition = (
        f"{_unread(run)}: programs have needed up to {UNREAD:g} times what was expected before theirs was, "
        f"here {format_bytes(most)}"
    )
    return verdict._replace(outcome="marginal", condition=condition, verify=verification(run))


def _unread(run: Run) -> str:
    label = find_program(run.framework).label
    return f"nobody read the code of {run.unread_release if run.loop_read else label}"


def _doubt_attention(run: Run, verdict: Verdict) -> Verdict:
    """Return a verdict that does not rest on a kernel of attention that a torch nobody names may not have."""
    other = run._replace(model=run.model._replace(attention="eager"))
    phases = training_phases(other) if run.optimizer is not None else scoring_phases(other)
    found = judge(phases, run.limit)
    if found.outcome == "fits":
        return verdict
    size = format_bytes(max(phase.needed.expected for phase in phases))
    condition = f"nobody says which attention runs, nor which torch: before 2.1.1 it is eager, with {size} expected"
    return verdict._replace(outcome="marginal", condition=condition, verify=verification(run))


def _least(run: Run) -> Least | None:
    """Return what a run needs with checkpointed activations and short sequences, where nobody stated them."""
    checkpointed, shorter = (
        CHECKPOINTING not in run.known and not run.checkpointing,
        run.pads_to_longest or run.unpadded,
    )
    if not checkpointed and not shorter:
        return None
    least = run._replace(checkpointing=True, policy="full") if checkpointed else run
    if shorter:
        least = least._replace(sequence=max(1, int(run.sequence * _SHORTEST)))
    unless = _CHECKPOINTED_AND_SHORTER if checkpointed and shorter else _SHORTER if shorter else _CHECKPOINTED
    return Least(max(phase.needed.expected for phase in training_phases(least)), unless)


def leave_out_models(found: Estimate, trainer: str) -> Estimate:
    """Say of a trainer of PPO whose only role was priced that whole models are left out: what fits without them may not."""
    if trainer != "ppo" or not found.phases:
        return found
    reason = "PPO keeps a value model, which it trains, and a reward model beside the policy; nothing is said of them"
    verdict = found.verdict
    if verdict.outcome == "fits":
        verdict = verdict._replace(outcome="marginal")
    return found._replace(
        verdict=verdict, unmodelled=(*found.unmodelled, Unmodelled("value and reward models", "more", reason))
    )


def _reconsider(run: Run, verdict: Verdict) -> Verdict:
    """Return a verdict that does not rest on checkpointing being off where nobody said whether it is."""
    other = run._replace(checkpointing=True, policy="full")
    phases = training_phases(other) if run.optimizer is not None else ()
    found = judge(phases, run.limit, verification(other))
    if not phases or found.outcome == "does_not_fit":
        return verdict
    contributing = ("activations, unless they are checkpointed", *found.contributing)
    return verdict._replace(
        outcome="marginal",
        primary=found.primary,
        contributing=contributing,
        ruled_out=found.ruled_out,
        verify=found.verify,
        condition=_condition(phases),
        unless=_CHECKPOINTED,
    )


_CHECKPOINTED = "activations are checkpointed"
_SHORTER = "sequences are shorter"
_CHECKPOINTED_AND_SHORTER = "activations are checkpointed and sequences are shorter"
_SHORTEST = 0.25
"""Share of the limit that sequences, of a padded micro batch the longest one, are taken to reach at least."""


def _doubt_lengths(run: Run, verdict: Verdict) -> Verdict:
    """Return a verdict that does not rest on sequences as long as allowed, where the data decide how long they are."""

    def fits(length: int) -> bool:
        found = training_phases(run._replace(sequence=length))
        return max(phase.needed.expected for phase in found) <= (run.limit or 0)

    most, least = run.sequence, int(run.sequence * _SHORTEST)
    if run.optimizer is None or not least or not fits(least):
        return verdict
    while most - least > run.sequence // 64:
        middle = (most + least) // 2
        most, least = (most, middle) if fits(middle) else (middle, least)
    condition = (
        "sequences are not padded, and all are taken to be as long as allowed: it fits where they are on average up to "
        f"{least:,} of {run.sequence:,} tokens"
        if run.unpadded
        else "micro batches are padded to their longest sequence, which is taken to be as long as allowed: it fits where that is "
        f"up to {least:,} of {run.sequence:,} tokens"
    )
    return verdict._replace(outcome="marginal", condition=condition, verify=verification(run), unless=_SHORTER)


def _doubt_limit(run: Run, verdict: Verdict) -> Verdict:
    """Return a verdict that does not rest on a limit of tokens which samples are neither cut nor dropped at."""

    def fits(length: int) -> bool:
        return judge(training_phases(run._replace(sequence=length)), run.limit).outcome == "fits"

    least, most = run.sequence, max(run.sequence, run.positions or _LONGEST)
    if run.optimizer is None or fits(most):
        return verdict
    while most - least > least // 64:
        middle = (most + least) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    condition = (
        f"samples longer than {run.sequence:,} tokens are neither cut nor dropped: it fits where the longest has up to "
        f"{least:,} tokens"
    )
    return verdict._replace(outcome="marginal", condition=condition, verify=verification(run))


_LONGEST = 2**20
"""Tokens that a sample may have where nobody says how many positions the model was built for."""


def _condition(phases: tuple[Phase, ...]) -> str:
    size = max((phase.size for phase in phases), key=lambda size: size.expected)
    return (
        f"nobody says whether activations are checkpointed: if they are, {format_bytes(size.expected)} "
        f"({format_bytes(size.low)} to {format_bytes(size.high)})"
    )


def verification(run: Run) -> str | None:
    """Return the command that would settle it: the step measured on a GPU, or traced where one process cannot stand for a rank.

    DeepSpeed can be neither measured by one process nor traced.
    """
    model, parallel = run.model, run.parallel
    plain = run.optimizer == "adamw" and not run.adapters and model.quantization is None and not run.precision.autocast
    if parallel.sharding == "zero":
        return None
    if parallel.world > 1 or not plain or not model.model_type or run.loss != "cross_entropy" or run.compiled:
        return "compatcheck estimate --trace"
    parameters = {
        "model_type": model.model_type,
        "attn_implementation": model.attention,
        "dtype": "bfloat16" if run.precision.stored == 2 else "float32",
        "batch": run.micro_batch,
        "sequence": run.sequence,
        "hidden_size": model.hidden,
        "layers": model.layers,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "intermediate_size": model.intermediate,
        "vocab_size": model.vocab,
        "gradient_checkpointing": str(run.checkpointing).lower(),
        "steps": 2,
    }
    settings = " ".join(f"--param {name}={value}" for name, value in parameters.items())
    return f"compatcheck probe run training_step --backend cuda {settings}"


def resident(run: Run) -> Parts:
    """Return what is on the device in every phase once training runs, the allocator's cache apart."""
    return (
        *parameters(run), *reference_parameters(run), *teacher_parameters(run),
        *optimizer_states(run), *lasting_buffers(run), *workspaces(run),
        *context(run),
    )  # fmt: skip


def training_phases(run: Run) -> tuple[Phase, ...]:
    """Return load, forward, backward, step and, where the run evaluates, evaluation of a role that trains."""
    for_step = resident(run)
    always = tuple(part for part in for_step if not (run.states_for_step and part.kind == "optimizer_states"))
    grads = gradient.gradients(run)
    load = (*parameters(run), *reference_parameters(run), *teacher_parameters(run), *context(run))
    left = grads.complete if grads.at_step is None else grads.at_step
    complete = (*gradient.component(run, left), *gradient.beside(run, between=False))
    step = (*for_step, *complete, *step_workspace(run), *step_buffers(run))
    held = segments(_shares(run, always))
    return (
        _phase("load", run, Instants((load,)), None),
        _phase("forward", run, _forward(run, always), held, _batches(run, always, _forward)),
        _phase("backward", run, _backward(run, always), held, _batches(run, always, _backward)),
        _phase("step", run, Instants((step,)), held),
        *_evaluation(run, always),
    )


def _batches(run: Run, always: Parts, instants: Callable[[Run, Parts], Instants]) -> tuple[Instants, ...]:
    """Return the instants of the first micro batch and those of a later one, where the longest sequence comes first.

    Gradients and outputs of another micro batch meet shorter sequences only (`later_length`).
    """
    if not run.longest_first:
        return ()
    later = run._replace(sequence=later_length(run.sequence))
    return (instants(run._replace(first_batch=True), always), instants(later, always))


def later_length(longest: int) -> int:
    """Return the tokens of micro batches after that of the longest: the middle between the least and the most they may have."""
    return max(1, int(longest * (1 + _SHORTEST) / 2))


def _evaluation(run: Run, always: Parts) -> tuple[Phase, ...]:
    """Return the forward over a batch of evaluation, which keeps nothing but makes the logits of it all and their loss.

    Up to transformers 5.14 and trl 0.28 Liger's fused loss makes them, too: transformers/liger-evaluation-makes-logits.
    Unsloth asks for them up to 2026.9 (models/rl.py of 2025.9.1 to 2026.9.14 unsloth_prediction_step(); not 2026.10.9).
    Counted with whole_run on transformers 5.24.0: 10.0 B a logit of a bfloat16 model, 8.0 of a float32 one. TRL's DPO and KTO
    take their own loss: beside transformers of their day half and three quarters of what the step takes at its peak in 0.19.1,
    as much as its forward in 1.13.0. Blocks of the allocator that the step left are given back before anything fails.
    """
    if not run.evaluated:
        return ()
    release, trl = run.release("transformers"), run.release("trl")
    skips = (release is None or release >= (5, 15)) or (run.code == "trl" and trl is not None and trl >= (0, 29))
    if run.loss_by_free_memory:
        skips = (run.release("unsloth") or _NOT_ASKED) >= _NOT_ASKED
    loss = "cross_entropy" if run.loss == "fused_linear" and not skips else run.loss
    own = run._replace(micro_batch=run.evaluated, loss=loss)
    scoring = own._replace(optimizer=None, checkpointing=False)
    left = gradient.component(run, gradient.gradients(run).persistent)
    shared = (*always, *left, *autocast_weights(own), *masks(own))
    in_block = (
        *shared,
        *live_parameters(scoring),
        *activation_components(scoring, activations(scoring), block="forward"),
        *dequantised(own, backward=False),
    )
    in_loss = (
        *shared,
        *live_parameters(scoring, blocks=False),
        *activation_components(scoring, activations(scoring, last_stage=True)),
        *(_share_of_step(run, part) for part in logits(own, backward=False)),
    )
    return (_phase("evaluation", run, Instants((in_loss,), (in_block,)), None),)


_NOT_ASKED = (2026, 10)
"""Unsloth's first releases whose evaluations without metrics make no logits."""


def _share_of_step(run: Run, part: Component) -> Component:
    """Return what an evaluation takes of a figure that is the peak of a step, as those of TRL's own losses are."""
    if run.trainer not in EVALUATED_BY_LOSS or takes_tiles(run):
        return part
    release = run.release("trl")
    newer = release is None or release >= _KEEPS_ALL_LOGITS[run.trainer]
    share = 1.0 if newer else _SHARE_BEFORE[run.trainer]
    least, each = min(_SHARE_BEFORE[run.trainer], share), part.size.expected
    return part._replace(
        size=Size(int(each * least), int(each * share), part.size.high), formula=f"{share:g} × ({part.formula})"
    )


_KEEPS_ALL_LOGITS = {"dpo": (0, 29), "kto": (1, 6)}
_SHARE_BEFORE = {"dpo": 0.5, "kto": 0.75}


def _shares(run: Run, always: Parts) -> Shares:
    """Return what shares the allocator's segments over a step."""
    grads = gradient.gradients(run)
    found = activations(run)
    own_stream = run.parallel.sharding == "fsdp" and run.parallel.shard > 1
    sharded = gradient.component(run, grads.complete - grads.persistent)
    step = (
        *(() if own_stream else sharded),
        *gradient.beside(run, between=False),
        *step_workspace(run),
    )
    kept = activation_components(run, found, block="backward" if run.checkpointing else "")
    early = gradient.component(run, grads.persistent)
    lasting = (
        *always,
        *early,
        *live_parameters(run),
        *autocast_weights(run),
        *masks(run),
        *(backward_buffers(run) if run.parallel.stage else ()),
    )
    spare = hole(run)
    return Shares(
        lasting=_inside(lasting),
        loss=_inside(logits(run, backward=True)) + Size(0, spare, spare),
        kept=_inside(kept),
        step=_inside(step),
        apart=_inside(sharded if own_stream else ()),
    )


def _inside(parts: Parts) -> Size:
    """Return what of the components is in torch's allocator."""
    return total(part.size for part in parts if part.kind not in {"context", "other"})


def _expected(parts: Parts) -> int:
    return total(part.size for part in parts).expected


def _forward(run: Run, always: Parts) -> Instants:
    """Return the instants of forward one of which is its peak: in the loss, or in the last block."""
    grads = gradient.gradients(run)
    found, at_loss = activations(run), activations(run, last_stage=True)
    of_last_step = grads.complete if run.clears_late and not run.first_batch else 0.0
    earlier = gradient.component(run, max(grads.before, grads.persistent, of_last_step))
    waiting = () if run.first_batch else gradient.beside(run, between=True)
    shared = (*always, *earlier, *waiting, *autocast_weights(run), *masks(run), *cached_keys(run))
    in_loss = (
        *shared,
        *live_parameters(run, blocks=False),
        *activation_components(run, at_loss),
        *logits(run, backward=False),
    )
    in_last_block = (
        *shared,
        *live_parameters(run),
        *activation_components(run, found, block="forward"),
        *dequantised(run, backward=False),
    )
    divergence = fused_divergence(run)
    if divergence is None:
        return Instants((in_loss,), (in_last_block,))
    kept = activation_components(run, at_loss) if divergence.beside_kept else ()
    in_divergence = (*shared, *live_parameters(run, blocks=False), *kept, *divergence_logits(run))
    return Instants((in_loss, in_divergence), (in_last_block,))


def _backward(run: Run, always: Parts) -> Instants:
    """Return the instants of backward one of which is its peak: in the loss, the last block, the first block, at the end."""
    grads = gradient.gradients(run)
    found = activations(run)
    earlier = gradient.component(run, max(grads.before, grads.persistent))
    weights = autocast_weights(run, "blocks")
    live, behind = live_parameters(run), live_parameters(run, given_back=True)
    kept = activation_components(run, activations(run, last_stage=True))
    outside = live_parameters(run, blocks=False)
    waiting, last = gradient.beside(run, between=True), gradient.beside(run, between=run.accumulation > 1)
    own = held_parameters(run)
    nearly_all = last
    if run.first_batch:  # there are none yet, and at the first block none of the two at work
        waiting = ()
        nearly_all = gradient.beside(run, between=run.accumulation > 1, blocks=max(0, own.layers - 2))
    for_loss = (*outside, *autocast_weights(run, "loss"), *kept, *masks(run), *logits(run, backward=True))
    for_loss = (*for_loss, *(cached_keys(run) if run.outputs_kept else ()))
    in_loss = (*always, *earlier, *waiting, *for_loss)
    reducing = backward_buffers(run)
    head = 0.0
    if not run.adapters and run.parallel.stage < 2:
        head = run.precision.gradient * (own.lm_head or own.embedding)
    begun = max(grads.before, grads.persistent, head)
    unpacked = (*dequantised(run, backward=True), *kept_outputs(run))
    in_last_block = (
        *always,
        *gradient.component(run, begun),
        *waiting,
        *live,
        *weights,
        *activation_components(run, found, block="backward"),
        *masks(run),
        *reducing,
        *unpacked,
    )
    one = found._replace(kept=_share(found.kept, own.layers), outside=0.0)
    nearly = max(begun, grads.complete - gradient.of_block_and_embedding(run))
    in_first_block = (
        *always,
        *gradient.component(run, nearly),
        *nearly_all,
        *behind,
        *activation_components(run, one, block="backward"),
        *masks(run),
        *reducing,
        *offload_buffers(run),
        *unpacked,
    )
    root = joined_gradients(run, root=True)
    at_the_end = (
        *always, *gradient.component(run, max(begun, grads.complete)), *last,
        *(live_parameters(run, blocks=False, given_back=True) if root else behind),
        *_second_embedding_gradient(run, own.embedding), *(root or reducing), *offload_buffers(run), *kept_outputs(run),
    )  # fmt: skip
    joined = joined_gradients(run)
    if not joined:
        return Instants((in_loss, at_the_end), (in_last_block, in_first_block))
    stream = run.precision.residual * run.model.hidden * run.tokens * sequences(run)  # its gradient
    behind_last = found._replace(kept=_share(found.kept, own.layers, own.layers - 1), outside=stream)
    beside = (*always, *masks(run), *joined, *unpacked)
    last_joined = (
        *beside, *live, *gradient.component(run, begun), *waiting, *weights, *activation_components(run, behind_last),
    )  # fmt: skip
    first_joined = (*beside, *behind, *gradient.component(run, nearly), *nearly_all, *offload_buffers(run))
    return Instants((in_loss, at_the_end, last_joined, first_joined), (in_last_block, in_first_block))


def scoring_phases(run: Run) -> tuple[Phase, ...]:
    """Return load and forward of a role that only scores."""
    always = resident(run)
    found = activations(run)
    shared = (*always, *live_parameters(run), *masks(run))
    in_block = (*shared, *activation_components(run, found, block="forward"), *dequantised(run, backward=False))
    scores = (*shared, *activation_components(run, found), *logits(run, backward=False))
    return (
        _phase("load", run, Instants((always,)), None),
        _phase("forward", run, Instants((scores,), (in_block,)), None),
    )


def _share(size: Size, count: int, of: int = 1) -> Size:
    return Size(size.low * of // count, size.expected * of // count, size.high * of // count)


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


def _phase(name: str, run: Run, instants: Instants, held: Held | None, batches: tuple[Instants, ...] = ()) -> Phase:
    """Return the instant with the largest expected size; the range covers that of all instants.

    Args:
        name: of the phase.
        run: the run.
        instants: of a micro batch with sequences as long as they may be.
        held: what the allocator keeps.
        batches: those of the first micro batch, which is sure, and of a later one as it is expected, where the two differ.
    """
    first, later = batches or (instants, Instants(()))
    sure, others = _widened(run, first), _widened(run, later)
    usual = (*sure.elsewhere, *sure.in_block, *others.elsewhere, *others.in_block)
    parts = max(usual, key=_expected)
    most = _widened(run, instants) if batches else sure
    bounds = _bounds((*sure.elsewhere, *sure.in_block), usual, (*most.elsewhere, *most.in_block))
    inside = _inside(parts)
    gradients = total(part.size for part in parts if part.kind == "gradients").expected
    every = (*parts, not_itemised(run, inside, bounds), reserve(run, bounds, held, gradients))
    if not sure.in_block:
        return Phase(name, run.role, every)
    in_block = _bounds(sure.in_block, (*sure.in_block, *others.in_block), most.in_block)
    return Phase(name, run.role, every, bounds - in_block)


def _widened(run: Run, instants: Instants) -> Instants:
    """Return instants with what features without a formula may change."""
    return Instants(*(tuple((*parts, *widen_unpriced(run, parts)) for parts in group) for group in instants))


def _bounds(sure: tuple[Parts, ...], usual: tuple[Parts, ...], most: tuple[Parts, ...]) -> Size:
    """Return what the allocator has: at least that of the sure instants, as expected that of the usual ones, at most all."""
    inside = max((_inside(parts) for parts in usual), key=lambda size: size.expected)
    highest = max(_inside(parts).high for parts in (*sure, *most))
    return Size(max(_inside(parts).low for parts in sure), inside.expected, highest)


def _unmodelled(run: Run) -> list[Unmodelled]:
    found = []
    if run.model.vision:
        reason = "patches of images and frames are not known; their activations are left out"
        found.append(Unmodelled(TOWER, "more", reason))
    if run.compiled:
        reason = "torch.compile recomputes norms and activations instead of keeping them"
        found.append(Unmodelled("fusion by torch.compile", "less", reason))
    if run.trainer in POLICY_TRAINERS and run.role in {"train", "actor"} and not is_loss_read(run):
        reason = f"the loss of {run.framework or 'a program nobody names'} was not read; taken as cross entropy over all tokens"
        found.append(Unmodelled("log-probabilities", "either", reason))
    if not run.loop_read:
        label = find_program(run.framework).label
        reason = f"the code of {label} was not read: its loss, its blocks and how it accumulates are its own"
        found.append(Unmodelled("training loop", "either", reason))
    elif run.unread_release:
        found.append(Unmodelled("training loop", "either", f"{_unread(run)}; taken as in those that were"))
    if run.loop_read and not run.blocks_read:
        reason = f"what {find_program(run.framework).label} makes of a quantised base was not read"
        found.append(Unmodelled("quantised base", "more", reason))
    found += name_unpriced(run)
    if run.model.model_type not in RECIPES:
        reason = f"blocks of {run.model.model_type or 'an unknown model type'} were not read; taken as llama's"
        found.append(Unmodelled("architecture", "either", reason))
    if run.parallel.context > 1:
        reason = "keys and values of other ranks that ring attention holds"
        found.append(Unmodelled("context-parallel exchange", "more", reason))
    if run.offload_param and run.parallel.sharding == "fsdp" and run.model.quantization is not None:
        reason = "how long weights that are dequantised live beside units that come from the host was not read; two units at most"
        found.append(Unmodelled("offloaded 4-bit units", "more", reason))
    if run.parallel.devices > 1:
        reason = (
            f"blocks are taken as spread evenly over the {run.parallel.devices} devices of a process; one may hold more"
        )
        found.append(Unmodelled("device map", "more", reason))
    if run.parallel.expert > 1:
        reason = "tokens exchanged between expert-parallel ranks"
        found.append(Unmodelled("all-to-all buffers", "more", reason))
    if run.peft is not None and run.peft not in LOW_RANK and run.peft != "freeze":
        reason = f"what {run.peft} keeps for backward is taken as one tensor as wide as the input of each adapted layer"
        if run.peft == "prompt_tuning":
            reason = "its tokens are counted where model.trainable_parameters is stated, else left out"
        found.append(Unmodelled("adapter activations", "either", reason))
    return found
