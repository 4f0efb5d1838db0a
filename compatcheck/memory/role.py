"""One role of a job: what it holds while it works, phase by phase, and what it leaves while another works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import NOTHING, Assumption, Component, Estimate, Phase, Size, Unmodelled
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.memory.batches import SCORING as SCORING_BATCH
from compatcheck.memory.batches import UPDATE, read_batch
from compatcheck.memory.closed_form import gradients as gradient
from compatcheck.memory.closed_form.communication import lasting_buffers
from compatcheck.memory.closed_form.estimate import CHECKPOINTING, estimate_run
from compatcheck.memory.closed_form.optimizer_states import optimizer_states
from compatcheck.memory.closed_form.parallel import in_flight
from compatcheck.memory.closed_form.parameters import parameters
from compatcheck.memory.closed_form.policy_logits import HEADLESS
from compatcheck.memory.closed_form.reference import reference_parameters
from compatcheck.memory.closed_form.verdict import judge
from compatcheck.memory.read_run import read_run
from compatcheck.memory.suggest import overlay
from compatcheck.memory.waiting_models import read_habits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Facts, Value
    from compatcheck.memory.batches import Batch
    from compatcheck.memory.run import Run
    from compatcheck.memory.waiting_models import Habits

Parts = tuple[Component, ...]

TRAINED = ("train", "actor", "critic")
"""Roles that are trained, the policy first."""
SCORING = ("reference", "reward")
"""Roles that only run forward."""
POLICY = frozenset({"train", "actor"})
SCORING_PHASE = "log_probabilities"
"""Phase in which a trained policy scores what was generated."""
NOT_ITEMISED = "not itemised"
"""Component that takes up what no formula itemises (closed_form/reserve.py)."""
_FOLLOWS_THE_DATA = frozenset({"activations", "logits", "masks"})
"""Kinds that grow with the tokens of a batch."""


class Role(NamedTuple):
    """One model of the job."""

    name: str
    run: Run
    phases: tuple[Phase, ...]
    batches: Mapping[str, Batch]
    """By phase."""
    shorter: Mapping[str, tuple[float, float]]
    """By phase, where sequences are not padded: the share of their limit from which on the phase needs all of it, and the bytes
    that it needs less for each share below."""
    parameters: Parts
    """What stays of its parameters between uses, when they are on the device."""
    states: Parts
    """The same for the rest of it."""
    keeps_parameters: bool
    """They stay while another role works."""
    keeps_states: bool
    assumptions: tuple[Assumption, ...]
    unmodelled: tuple[Unmodelled, ...]

    @property
    def idle(self) -> Parts:
        """What it leaves while another role works."""
        return (*(self.parameters if self.keeps_parameters else ()), *(self.states if self.keeps_states else ()))


def read_role(name: str, facts: Facts, environment: Environment | None, references: Size = NOTHING) -> Role | Estimate:
    """Read a role and price its phases.

    Args:
        name: of the role.
        facts: its facts.
        environment: where releases of packages are looked up.
        references: how many frozen copies it keeps beside itself, where that is not certain and they are no role.

    Returns:
        An estimate without phases that names what is missing, where something is.

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    trains = name in TRAINED
    values = {fact.name: fact.value for fact in facts.values()}
    habit = read_habits(facts)
    batch = read_batch(facts, UPDATE, "training.global_batch_size" if trains else "rollout.global_batch_size", name)
    changed = _at_work(values, habit, trains=trains)
    if name in HEADLESS:
        changed.update(_without_head(values))
    assumed = _assume_checkpointing(facts) if trains else []
    changed.update({entry.fact: entry.value for entry in assumed})
    for_update = {**changed, **(batch.as_facts() if batch is not None else {})}
    reading = read_run(overlay(facts, for_update), environment, role=name, trains=trains)
    if reading.run is None:
        return Estimate("closed_form", (), judge((), None), reading.assumptions, (), reading.needs)
    run = reading.run._replace(references=references)
    estimated = estimate_run(run)
    phases = [phase for phase in estimated.phases if phase.name != "load"]
    phases, shorter = _for_shorter(phases, run, batch)
    batches = {phase.name: batch for phase in phases} if batch is not None else {}
    notes = [*reading.assumptions, *assumed, *_note(name, run, batch, "training.micro_batch_size")]
    if name in POLICY and any(entry in facts for entry in (SCORING_BATCH[0], SCORING_BATCH[2])):
        scored = read_batch(facts, SCORING_BATCH, "rollout.global_batch_size")
        found = _score(name, facts, changed, scored, environment)
        if found is not None and scored is not None:
            phases = [found[0], *phases]
            shorter |= {SCORING_PHASE: found[1]}
            batches[SCORING_PHASE] = scored
            notes += _note(name, run, scored, SCORING_BATCH[0])
    persistent = gradient.component(run, gradient.gradients(run).persistent) if trains else ()
    asleep = values.get("training.sleeps_while_idle")
    if asleep is None:
        asleep = habit.moves and values.get("training.offload_optimizer")
    return Role(
        name,
        run,
        tuple(phases),
        batches,
        shorter,
        (*parameters(run), *reference_parameters(run)),
        (*optimizer_states(run), *persistent, *lasting_buffers(run)),
        keeps_parameters=not (habit.moves and values.get("training.offload_param")),
        keeps_states=not asleep,
        assumptions=tuple(notes),
        unmodelled=estimated.unmodelled,
    )


def _at_work(values: Mapping[str, Value], habit: Habits, *, trains: bool) -> dict[str, Value]:
    """Return how a role's state lies while it works.

    What moves is back on the device; an optimizer that is said to sleep while it waits is offloaded at work where it is said to
    be, too. Frozen models may stay on the host, or be in an engine of DeepSpeed at stage 0 too, which casts them.
    """
    if values.get("program.frozen_under_deepspeed") and not trains:
        return {"training.sharding": "zero"} if values.get("training.zero_stage") == 0 else {}
    if not habit.moves:
        return {}
    changed: dict[str, Value] = {"training.offload_param": None}
    if values.get("training.sleeps_while_idle") is None:
        changed["training.offload_optimizer"] = None
    if not trains and habit.frozen_on_host and values.get("training.sharding") == "fsdp":
        changed["training.fsdp_offload_params"] = True
    return changed


def _assume_checkpointing(facts: Facts) -> list[Assumption]:
    """Return what the program does where its release, which would decide, is not known."""
    usual = facts.get("program.gradient_checkpointing")
    if usual is None or CHECKPOINTING in facts:
        return []
    return [Assumption(CHECKPOINTING, usual.value, usual.note or "")]


def _without_head(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the parameters of a model that has one output for each token instead of the vocabulary's."""
    whole, vocab, hidden = (values.get(f"model.{name}") for name in ("parameters", "vocab_size", "hidden_size"))
    if values.get("model.tie_word_embeddings") or not (
        isinstance(whole, int) and isinstance(vocab, int) and isinstance(hidden, int)
    ):
        return {}
    left = whole - vocab * hidden
    changed: dict[str, Value] = {"model.parameters": left, "model.lm_head_parameters": 0}
    if values.get("model.trainable_parameters") == whole:
        changed["model.trainable_parameters"] = left
    return changed


def _note(role: str, run: Run, batch: Batch | None, fact: str) -> list[Assumption]:
    """Say what a batch came to, and what its sequences were taken for."""
    if batch is None:
        return []
    found = [Assumption(f"{fact} ({role})", batch.sequences, batch.words)] if batch.words and not batch.filled else []
    if batch.unbounded and fact == "training.micro_batch_size":
        reason = f"nobody says how long sequences get; none is taken to be longer than a batch of {batch.words}"
        found.append(Assumption("training.sequence_length", batch.length, reason))
    if run.unpadded and _may_be_shorter(batch, run):
        reason = (
            "sequences follow each other without padding, so that the need follows the data: expected and high are of batches "
            "whose sequences all reach the limit, low is of ones half as long"
        )
        found.append(Assumption("training.use_remove_padding", value=True, reason=reason))
    return found


def _score(
    name: str, facts: Facts, changed: Mapping[str, Value], batch: Batch | None, environment: Environment | None
) -> tuple[Phase, tuple[float, float]] | None:
    """Return the phase in which a trained policy scores what was generated, and what it needs less with shorter sequences."""
    if batch is None:
        return None
    reading = read_run(overlay(facts, {**changed, **batch.as_facts()}), environment, role=name, trains=False)
    if reading.run is None:
        return None
    phases, shorter = _for_shorter([estimate_run(reading.run).phases[-1]], reading.run, batch)
    return phases[0]._replace(name=SCORING_PHASE), shorter.get(phases[0].name, (0.0, 0.0))


def _for_shorter(
    phases: list[Phase], run: Run, batch: Batch | None
) -> tuple[list[Phase], dict[str, tuple[float, float]]]:
    """Lower the low bounds of what follows the data to sequences half as long, where they are not padded to the limit.

    Returns:
        The phases, and by phase what is expected with shorter ones (`Role.shorter`): a filled batch is full of them for a while.
    """
    if not run.unpadded or run.sequence < 2 or not _may_be_shorter(batch, run):
        return phases, {}
    half = max(1, run.sequence // 2) if batch is None or batch.half is None else batch.half
    shorter = {phase.name: phase for phase in estimate_run(run._replace(sequence=half)).phases}
    whole = run.sequence if batch is None or batch.half is None else 2 * half
    less = {phase.name: phase.needed.expected - shorter[phase.name].needed.expected for phase in phases}
    per_share = {name: saved * whole / (run.sequence - half) for name, saved in less.items()}
    slopes = {name: (run.sequence / whole, saved) for name, saved in per_share.items()}
    return [_lower(phase, shorter[phase.name]) for phase in phases], slopes


def _may_be_shorter(batch: Batch | None, run: Run) -> bool:
    """Tell whether fewer tokens are there at once where sequences do not reach their limit; one alone does some day."""
    if batch is None:
        return False
    return (
        batch.half is not None and batch.half < batch.length if batch.filled else batch.sequences * in_flight(run) > 1
    )


def _lower(phase: Phase, shorter: Phase) -> Phase:
    """Lower what follows the data to what it is for shorter sequences, and the phase to what all of it comes to there."""
    low = {part.name: part.size.low for part in shorter.components}
    parts = [
        part._replace(size=part.size._replace(low=min(part.size.low, low.get(part.name, part.size.low // 2))))
        if part.kind in _FOLLOWS_THE_DATA
        else part
        for part in phase.components
    ]
    spare = shorter.size.low - sum(part.size.low for part in parts if part.name != NOT_ITEMISED)
    return phase._replace(
        components=tuple(
            part._replace(size=part.size._replace(low=min(spare, 0))) if part.name == NOT_ITEMISED else part
            for part in parts
        )
    )
