"""How much memory a run needs on one device: components, the phases they live in, and whether that fits.

A phase is an instant of the run (``forward``, ``backward``, ``step``, ``rollout``, ``log_probabilities``, …) with all that is
resident then; phases take turns and never add up. The peak is that of the largest phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.core.facts import Value
    from compatcheck.core.source import Source


class Size(NamedTuple):
    """Bytes with the range they are believed to lie in."""

    low: int
    expected: int
    high: int

    def __add__(self, other: object) -> Size:
        """Return the sum, bound by bound."""
        if not isinstance(other, Size):
            return NotImplemented
        return Size(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def __sub__(self, other: Size) -> Size:
        """Return the difference, bound by bound."""
        return Size(self.low - other.low, self.expected - other.expected, self.high - other.high)


NOTHING = Size(0, 0, 0)


def exactly(count: float) -> Size:
    """Return a size that is known to the byte; a fraction of a byte counts as one."""
    whole = -int(-count // 1)
    return Size(whole, whole, whole)


def total(sizes: Iterable[Size]) -> Size:
    """Return the sum of sizes."""
    result = NOTHING
    for size in sizes:
        result = result + size
    return result


class Component(NamedTuple):
    """One thing that takes memory on a device."""

    name: str
    """What it is, in the field's words: ``fp32 logits``."""
    kind: str
    """One of `KINDS`."""
    size: Size
    formula: str
    """The arithmetic with this run's numbers: ``2 B × 7,615,616,512 / 8 ranks``."""
    source: str
    """Where the formula is from: a paper's equation, an upstream file at a release, or a measurement of ours."""
    role: str = "train"
    facts: tuple[str, ...] = ()
    """Names of the facts it was computed from."""


KINDS = (
    "parameters", "gradients", "optimizer_states", "activations", "logits", "masks", "communication", "live_parameters",
    "kv_cache", "workspace", "regression", "context", "reserve", "other",
)  # fmt: skip
"""Kinds of components, in the order a picture stacks them; ``regression`` is what a known regression takes."""


class Phase(NamedTuple):
    """All that is resident at one instant of the run."""

    name: str
    role: str
    components: tuple[Component, ...]
    above_block: Size = NOTHING
    """By how much instants in a block lie below this one: what passes inside of a block adds only what is beyond it."""

    @property
    def size(self) -> Size:
        """What the components add up to."""
        return total(component.size for component in self.components)

    @property
    def needed(self) -> Size:
        """The same without what the allocator caches."""
        return total(component.size for component in self.components if component.kind != "reserve")


class Unmodelled(NamedTuple):
    """Something the run has that the estimate leaves out."""

    name: str
    direction: str
    """``more`` when the run needs more than estimated because of it, ``less``, or ``either``."""
    reason: str


class Assumption(NamedTuple):
    """A fact nobody stated, and what was taken for it."""

    fact: str
    value: Value
    reason: str
    source: Source | None = None
    is_most: bool = False
    """Whether no other value takes more memory: what fits with it fits."""


class Least(NamedTuple):
    """What one device needs where what nobody stated is for the best."""

    needed_bytes: int
    unless: str
    """What is open, as `Verdict.unless`."""


class Verdict(NamedTuple):
    """Whether the run fits."""

    outcome: str
    """``fits``, ``marginal``, ``does_not_fit``, or ``unknown`` when the device's memory is not known."""
    limit_bytes: int | None
    """What one device has for the job."""
    margin_bytes: int | None
    """Limit minus the expected peak of device use; negative when it does not fit."""
    primary: str | None = None
    """The component that decides."""
    contributing: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    verify: str | None = None
    """The command that would settle it."""
    condition: str | None = None
    """What the verdict rests on that nobody stated, with what it would change."""
    unless: str | None = None
    """Where the expected need is too much and the run may fit all the same: what would have to be so, in a few words."""
    least: Least | None = None
    """None where nothing of the kind is open."""


WHOLE = "whole"
"""Phase of a rule whose bytes stay all the time."""
ASLEEP = "asleep"
"""Phase of a rule whose bytes an engine keeps while it sleeps: while it generates they are its own share, which is counted."""


class Regression(NamedTuple):
    """A known regression of this run and what it adds."""

    rule_id: str
    role: str
    phase: str
    """Phase of the run in which it takes the memory, ``whole``, or ``asleep``."""
    size: Size
    """Bytes on one device."""
    passing: Size
    """What of it is there only while one block is computed."""
    adds: bool
    """False where the estimate has no such phase (loading, saving): then it is named and not added up."""


OUTCOMES = {
    "fits": "fits",
    "marginal": "may not fit",
    "does_not_fit": "does not fit",
    "unknown": "no device to compare with",
}
"""Outcomes of a verdict in words."""


def say_outcome(outcome: str, unless: str | None) -> str:
    """Return an outcome in words; of one that needs too much as far as anybody said, what would have to be so."""
    return f"does not fit unless {unless}" if unless and outcome == "marginal" else OUTCOMES[outcome]


class Capacity(NamedTuple):
    """What the cache of a server holds."""

    tokens: Size
    """Tokens of all sequences together."""
    length: int | None
    """Tokens that one sequence may have; None where the engine chooses what fits."""


THE_LEAST = "nobody states it; the least"
"""Why a fact is assumed in an estimate that is a lower bound (`Estimate.at_least`)."""


class Estimate(NamedTuple):
    """What one device of a run needs."""

    method: str
    """``closed_form`` or ``traced``."""
    phases: tuple[Phase, ...]
    """Components that live outside the caching allocator (CUDA context, NCCL, other processes) have the kinds ``context`` and
    ``other``; what the allocator caches beyond need is ``reserve``."""
    verdict: Verdict
    assumptions: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()
    needs: tuple[str, ...] = ()
    """Facts without which nothing could be estimated."""
    regressions: tuple[Regression, ...] = ()
    """Known regressions of this run that no formula has; the phases hold those that add to them."""
    without: Estimate | None = None
    """The same run without `regressions`; None where there are none."""
    possible: tuple[Regression, ...] = ()
    """What would decide that it does not fit, on a condition that nobody states (`Verdict.condition`); the phases hold the high
    bound of each."""
    capacity: Capacity | None = None
    """Of a server; None for what trains."""

    @property
    def at_least(self) -> tuple[str, ...]:
        """Facts that nobody states and that were taken as the least there is: the run needs this much or more."""
        return tuple(entry.fact for entry in self.assumptions if entry.reason == THE_LEAST)

    @property
    def untold(self) -> str | None:
        """Why nobody can say what makes the run fit; None where it can be told."""
        return (
            f"what makes it fit cannot be told: nobody states {' and '.join(self.at_least)}" if self.at_least else None
        )

    @property
    def peak_phase(self) -> Phase | None:
        """The phase that needs most, the allocator's cache apart: what it holds does not shrink from phase to phase."""
        return max(self.phases, key=lambda phase: phase.needed.expected, default=None)

    @property
    def allocated(self) -> Size:
        """Peak that ``torch.cuda.max_memory_allocated`` would report."""
        return self._peak({"reserve", "context", "other"})

    @property
    def reserved(self) -> Size:
        """Peak that ``torch.cuda.max_memory_reserved`` would report."""
        return self._peak({"context", "other"})

    @property
    def device(self) -> Size:
        """Peak use of the device, as nvidia-smi shows it."""
        return self._peak(set())

    @property
    def needed(self) -> Size:
        """Peak of what the run cannot do without: device use less what the allocator caches."""
        return self._peak({"reserve"})

    def _peak(self, without: set[str]) -> Size:
        sizes = [total(part.size for part in phase.components if part.kind not in without) for phase in self.phases]
        if not sizes:
            return NOTHING
        return Size(*(max(values) for values in zip(*sizes, strict=True)))
