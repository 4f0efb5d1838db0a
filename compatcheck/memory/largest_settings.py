"""The exact wall of a setting: the largest value that fits, and the price of one step more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.core.suggestions import Wall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Facts, Value

AXES = {
    "micro_batch_size": ("training.micro_batch_size", 1),
    "sequence_length": ("training.sequence_length", 1),
    "num_hidden_layers": ("model.num_hidden_layers", 1),
    "lora_rank": ("training.lora_rank", 1),
    "nodes": ("hardware.nodes", 1),
    "max_response_length": ("training.max_response_length", 1),
    "log_prob_micro_batch_size": ("rollout.log_prob_micro_batch_size", 1),
}
"""Settings that can be walked: name → fact, and the step of its values."""
_OF_GENERATION = frozenset({"max_response_length", "log_prob_micro_batch_size"})
_LARGEST = 2**40
_POINTS = 24
_MOST_NODES = 4096


def _set(name: str, roles: Mapping[str, Facts], value: int) -> dict[str, Value]:
    """Return one setting, and what counts with it: ranks of nodes, parameters of layers."""
    facts = next((roles[role] for role in ("train", "actor") if role in roles), next(iter(roles.values())))
    more = _with_nodes(facts, value) if name == "nodes" else {}
    if name == "num_hidden_layers":
        more = _with_layers(facts, value)
    return {AXES[name][0]: value, **more}


def _with_nodes(facts: Facts, nodes: int) -> dict[str, Value]:
    gpus = _number(facts, "hardware.gpus_per_node")
    return {} if gpus is None else {"hardware.world_size": nodes * gpus}


def _with_layers(facts: Facts, layers: int) -> dict[str, Value]:
    """Return how many parameters there are with more or fewer blocks of the same size."""
    before, blocks = _number(facts, "model.num_hidden_layers"), _number(facts, "model.parameters_in_blocks")
    if before is None or blocks is None:
        return {}
    changed: dict[str, Value] = {"model.parameters_in_blocks": blocks * layers // before}
    more = blocks * layers // before - blocks
    whole, trained = _number(facts, "model.parameters"), _number(facts, "model.trainable_parameters")
    experts = _number(facts, "model.expert_parameters")
    if whole is not None:
        changed["model.parameters"] = whole + more
    if trained is not None:
        changed["model.trainable_parameters"] = trained + more if trained == whole else trained * layers // before
    if experts is not None:
        changed["model.expert_parameters"] = experts * layers // before
    return changed


def _number(facts: Facts, name: str) -> int | None:
    value = facts[name].value if name in facts else None
    return value if isinstance(value, int) else None


def _find_least_nodes(price: Callable[[int], Estimate], current: int | None) -> Wall:
    """Find the fewest nodes that the run fits on: more of them never need more."""

    def fits(value: int) -> bool:
        margin = price(value).verdict.margin_bytes
        return margin is not None and margin >= 0

    start = current or 1
    cost = price(start + 1).needed.expected - price(start).needed.expected
    high = 1
    while high < _MOST_NODES and not fits(high):
        high *= 2
    if not fits(high):
        return Wall("hardware.nodes", current, None, high, 1, cost, ())
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    points = tuple((value, price(value).needed.expected) for value in range(1, min(2 * high, _POINTS) + 1))
    return Wall("hardware.nodes", current, high, low or None, 1, cost, points)


def find_wall(
    name: str, roles: Mapping[str, Facts], price_with: Callable[[Mapping[str, Value]], Estimate], *, curve: bool = True
) -> Wall:
    """Find the largest value of one setting that fits: where a line through two values meets the limit, until two neighbours do.

    A value fits when the expected need is within the limit. Of nodes it is the smallest number that fits. The model
    grows with every other setting that is walked, which is tested as a property; so the wall is exact for the model.

    Args:
        name: one of `AXES`.
        roles: the facts of the run.
        price_with: estimates the run with some facts set to other values.
        curve: price values between for a picture; else the points are those that the search looked at.

    Raises:
        UsageError: no setting of this name, or the device's memory is not known.
    """
    if name not in AXES:
        from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

        near = get_close_matches(name, AXES, n=1)
        raise UsageError(
            f"{name!r} cannot be swept", hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(AXES)}"
        )
    fact, step = AXES[name]
    if fact == "training.lora_rank" and not any(_holds(facts, "training.peft") for facts in roles.values()):
        raise UsageError("the run has no adapters whose rank could be swept", hint="--set training.peft=lora")
    if name in _OF_GENERATION and not any(_holds(facts, fact) for facts in roles.values()):
        raise UsageError(f"the run has no {name} that could be swept", hint=f"--set {fact}=…")
    priced: dict[int, Estimate] = {}

    def price(value: int) -> Estimate:
        if value not in priced:
            priced[value] = price_with(_set(name, roles, value))
        return priced[value]

    def margin(value: int) -> int:
        found = price(value).verdict.margin_bytes
        return -1 if found is None else found

    stated = [facts[fact].value for facts in roles.values() if fact in facts]
    current = next((value for value in stated if isinstance(value, int)), None)
    start = current or step
    if needs := price(start).needs:
        raise UsageError(f"a sweep of {name} needs {', '.join(needs)}", hint=f"--set {needs[0]}=…, or sweep that first")
    if price(start).verdict.outcome == "unknown":
        raise UsageError("the wall needs to know the device", hint="name it: --gpu 8xH100-80GB")
    if name == "nodes":
        return _find_least_nodes(price, current)
    low, high = _bracket(start, step, margin)
    if low is not None and high is not None:
        low, high = _close(low, high, margin)
    at = low or current or start  # at the wall, where the phase that the setting grows is the peak
    cost = price(at + step).needed.expected - price(at).needed.expected
    top = high if high is not None else low or start
    for index in range(1, _POINTS + 1) if curve else ():
        price(max(step, top * index // _POINTS))
    points = tuple((value, priced[value].needed.expected) for value in sorted(priced) if value <= max(2 * top, start))
    return Wall(fact, current, low, high, step, cost, points)


def _holds(facts: Facts, name: str) -> bool:
    fact = facts.get(name)
    return fact is not None and fact.value is not None


def _bracket(start: int, step: int, margin: Callable[[int], int]) -> tuple[int | None, int | None]:
    """Return a value that fits and a larger one that does not; None where there is none."""
    if margin(start) < 0:
        return (step, start) if start > step and margin(step) >= 0 else (None, min(start, step))
    low, high = start, 2 * start
    while margin(high) >= 0:
        if high >= _LARGEST:
            return high, None
        fall = margin(low) - margin(high)
        beyond = high + (high - low) * margin(high) // fall + 1 if fall > 0 else 8 * high
        low, high = high, min(max(2 * high, beyond), _LARGEST)
    return low, high


def _close(low: int, high: int, margin: Callable[[int], int]) -> tuple[int, int]:
    """Return neighbours of which one fits and the next does not, between two values of which that is true.

    The value where the line through both meets the limit is tried with its neighbour, which ends the search where the need is a
    line, and then the middle, which halves what is left where it is none.
    """
    while high - low > 1:
        line = low + (high - low) * margin(low) // (margin(low) - margin(high))
        for value in (line, line + 1, (low + high) // 2):
            if low < value < high:
                low, high = (value, high) if margin(value) >= 0 else (low, value)
    return low, high
