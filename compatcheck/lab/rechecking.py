"""Whether what grew between two releases grew because of the release: in longer rows too, and by options that both know.

A tiny run is full of what no real one has: a chunk, a tile or a bucket that is larger than all of its tokens. What a release
takes in place of whole rows then looks like growth, though it saves memory wherever rows are longer. So a number that nothing
predicts is measured again with longer rows, and has to grow there by half as much at least: what stays with tokens grows
with them, what stays with weights stays. And a configuration with an option that the older release does not have, and reads over
without a word, is another run there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.lab.attribution import HeldPair
from compatcheck.lab.holding import measure_held
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.recheck import LONGER, Recheck

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.runner import Task
    from compatcheck.lab.release_series import SeriesChange

LENGTH = "length"
"""The parameter of probes that is the tokens of a row."""
_ITEM = re.compile(r"([A-Za-z_][\w.]*):")


def recheck(laboratory: Laboratory, changes: Sequence[SeriesChange], tasks: Sequence[Task]) -> list[Recheck]:
    """Look a second time at what grew between the same two releases.

    Args:
        laboratory: has measured both.
        changes: what grew, the package's own or doubtful.
        tasks: of each, by which it was measured.
    """
    if not changes:
        return []
    before, after = changes[0].before, changes[0].after
    sides = [laboratory.interpreter(version) for version in (before, after)]
    unknown = {id(task): find_unknown_options(task.parameters, *sides) for task in tasks}
    beside = [None if one.shown_held is None else one.shown_held.beside for one in changes]
    longer: dict[str | None, dict[int, Task]] = {}
    for task, side in zip(tasks, beside, strict=True):
        if LENGTH in task.parameters and not unknown[id(task)]:
            longer.setdefault(side, {})[id(task)] = lengthen(task)
    pairs: dict[tuple[str | None, int], HeldPair] = {}
    for side, runs in longer.items():
        several = list(runs.values())
        if side is None:
            measured = [laboratory.measure(version, several) for version in (before, after)]
        else:
            moved = next(one.attribution.moved for one in changes if one.attribution is not None)
            measured = measure_held(laboratory, before, after, several, side, moved)
        for key, one, other in zip(runs, *measured, strict=True):
            pairs[side, key] = HeldPair(beside=side or "", before=one, after=other)
    found = []
    for change, task, side in zip(changes, tasks, beside, strict=True):
        pair = pairs.get((side, id(task)))
        found.append(
            Recheck(unknown=unknown[id(task)], longer=pair, share=None if pair is None else _share(change, pair))
        )
    return found


def _share(change: SeriesChange, pair: HeldPair) -> float | None:
    """Return what grew in a pair over what grew in the change; None where the pair has no result."""
    before, after = (one.metric(change.series.metric) if one.succeeded else None for one in (pair.before, pair.after))
    one, other = change.sides
    return None if before is None or after is None else (after - before) / (other - one)


def lengthen(task: Task) -> Task:
    """Return the same run with longer rows."""
    longer = {**task.parameters, LENGTH: LONGER * task.parameters[LENGTH]}
    return make_task(task.probe, longer, task.backend)


def find_unknown_options(parameters: Mapping[str, Any], before: Interpreter, after: Interpreter) -> tuple[str, ...]:
    """Return the options of a run, ``name:value`` in its texts, that no source of the older side names.

    Args:
        parameters: of the run.
        before: where the older release is, with what was asked for beside it.
        after: where the newer one is; what nothing names there either is no option of these packages.
    """
    texts = [value for value in parameters.values() if isinstance(value, str)]
    names = {part for text in texts for path in _ITEM.findall(text) for part in path.split(".")}
    unknown = _find_unnamed(names, before)
    return tuple(sorted(unknown - _find_unnamed(unknown, after)))


def _find_unnamed(names: set[str], where: Interpreter) -> set[str]:
    """Return the words that stand in no source there; none where there is no source to read."""
    left, text = names, None
    for path in where.sources() if names else ():
        text = path.read_text(encoding="utf-8", errors="replace")
        left = {name for name in left if name not in text or not re.search(rf"\b{name}\b", text)}
        if not left:
            break
    return set() if text is None else left
