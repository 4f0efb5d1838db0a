"""Find out whose a change between two releases is, by measuring both with every other package held.

Each release is measured with the dependencies of its day, so two neighbours of a sweep differ in more than the package. A change
is the package's own when it is there with all else held: both sides are measured once with what the older one has beside it, and
once with what the newer one has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from compatcheck.lab.attribution import Attribution, Cause, HeldPair
from compatcheck.lab.environments.installer import is_shared
from compatcheck.lab.measuring import unbuildable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.runner import Task


def find_moved(
    package: str, before: Interpreter, after: Interpreter, first: Sequence[str] = ()
) -> dict[str, tuple[str | None, str | None]]:
    """Return the other distributions that differ between two environments; those of ``first`` are named first.

    One of the same number on both sides has other files there: an index put something else under it.
    """
    names = sorted(
        {*before.versions, *after.versions} - {package, "python"}, key=lambda name: (name not in first, name)
    )
    pairs = {name: (before.versions.get(name), after.versions.get(name)) for name in names}
    one, other = before.contents(), after.contents()
    rewritten = {name for name in one.keys() & other.keys() if one[name] != other[name]}
    # What torch brings along is part of a release of torch.
    return {
        name: pair
        for name, pair in pairs.items()
        if (pair[0] != pair[1] or name in rewritten) and not (package == "torch" and is_shared(name))
    }


def attribute(
    laboratory: Laboratory,
    before: str,
    after: str,
    tasks: Sequence[Task],
    is_there: Sequence[Callable[[HeldPair], bool | None]],
) -> list[Attribution]:
    """Find out whose the changes of tasks between two measured releases are, by measuring both with all else held.

    Args:
        laboratory: has measured both.
        before: the older release.
        after: the newer one.
        tasks: what changed.
        is_there: for each task, tells whether a pair shows its change; None where the pair has no result.
    """
    sides = {version: laboratory.interpreter(version) for version in (before, after)}
    used = [name for task in tasks for name in task.probe.module.PACKAGES]
    moved = find_moved(laboratory.package, sides[before], sides[after], used)
    if not moved:
        return [Attribution(cause="package", moved={})] * len(tasks)
    if any(one == other for one, other in moved.values()):
        # No number installs again what one of the sides has.
        return [Attribution(cause="unknown", moved=moved)] * len(tasks)
    distinct = list({id(task): task for task in tasks}.values())
    position = {id(task): index for index, task in enumerate(distinct)}
    measured = {beside: measure_held(laboratory, before, after, distinct, beside, moved) for beside in (before, after)}
    found = []
    for task, shows in zip(tasks, is_there, strict=True):
        index = position[id(task)]
        pairs = tuple(
            HeldPair(beside=beside, before=one[index], after=other[index]) for beside, (one, other) in measured.items()
        )
        answers = {answer for pair in pairs if (answer := shows(pair)) is not None}
        causes: dict[frozenset[bool], Cause] = {
            frozenset({True}): "package",
            frozenset({False}): "neighbours",
            frozenset({True, False}): "both",
        }
        cause = causes.get(frozenset(answers), "unknown")
        found.append(Attribution(cause=cause, moved=moved, held=pairs))
    return found


def measure_beside(
    laboratory: Laboratory, before: str, after: str, tasks: Sequence[Task]
) -> Sequence[Measurement] | None:
    """Measure the older of two releases with the neighbours of the newer one: what a neighbour gives back hides nothing then.

    Returns:
        None where nothing else moved, or there is no such environment.
    """
    older, newer = laboratory.interpreter(before), laboratory.interpreter(after)
    moved = find_moved(laboratory.package, older, newer)
    environment = _hold(laboratory, before, newer, older, moved) if moved else None
    return None if environment is None else laboratory.measure(before, tasks, environment=environment)


def measure_held(
    laboratory: Laboratory,
    before: str,
    after: str,
    tasks: Sequence[Task],
    beside: str,
    moved: Mapping[str, object],
) -> list[list[Measurement]]:
    """Measure both releases with the neighbours that one of them has, those named in ``moved`` among them."""
    side = laboratory.interpreter(beside)
    other = laboratory.interpreter(after if beside == before else before)
    found = []
    for version in (before, after):
        environment = _hold(laboratory, version, side, other, moved)
        if environment is None:
            versions, options = {laboratory.package: version}, laboratory.choice.options
            reason = "could not be installed beside the packages of the other side"
            found.append([unbuildable(task, versions, reason, options) for task in tasks])
        else:
            found.append(laboratory.measure(version, tasks, environment=environment))
    return found


def _hold(
    laboratory: Laboratory, version: str, side: Interpreter, other: Interpreter, moved: Mapping[str, object]
) -> Interpreter | None:
    """Return an environment of a release with the neighbours of one side, and with those that only the other side has.

    Returns:
        None where it cannot be built.
    """
    pins = {**other.pins, **side.pins}
    for name in moved:
        if name not in pins:
            pins[name] = f"{name}=={side.versions.get(name) or other.versions[name]}"
    pins.pop(laboratory.package, None)
    held = laboratory.open_beside(version, pins)
    return held and replace(held, requested=tuple(dict.fromkeys((laboratory.package, *side.requested, *moved))))
