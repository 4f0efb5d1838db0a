"""Tasks of one environment, as one piece of work: here, or on another machine in an environment that holds the same."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.lab.environments.installer import UnbuildableError, find_installer
from compatcheck.lab.environments.overlay import MANIFEST, Overlays
from compatcheck.lab.probes.allocator_counter import counter_library
from compatcheck.lab.probes.runner import run_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from compatcheck.lab.environments.choice import EnvironmentChoice
    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.probes.runner import Limits, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBatch:
    """Tasks and the environment they run in; each result is the position of a task and its measurement."""

    tasks: tuple[Task, ...]
    interpreter: Interpreter
    limits: Limits
    choice: EnvironmentChoice
    """How the interpreter below the environment was found or built; another machine finds or builds its own in the same way."""

    @property
    def devices(self) -> int:
        """GPUs that the largest of them needs."""
        return max((task.world_size for task in self.tasks if task.backend == "cuda"), default=0)

    def run(self, keep: Callable[[tuple[int, Measurement]], None], cancelled: Callable[[], bool]) -> None:
        """See `compatcheck.core.place.Work`."""
        position = {id(task): index for index, task in enumerate(self.tasks)}

        def number(task: Task, measurement: Measurement) -> None:
            keep((position[id(task)], measurement))

        run_tasks(self.tasks, self.interpreter, keep=number, limits=self.limits, cancelled=cancelled)

    def adopt(self) -> ProbeBatch:
        """Return the same tasks in an environment of this machine: the one that both see, else one of exactly the same releases.

        Raises:
            CompatcheckError: there is none, or it has another torch, Python or release that is part of what is measured.
        """
        if any(task.accounting == "allocator" for task in self.tasks) and counter_library()[0] is None:
            raise UsageError("the allocator cannot be counted there: no compiler")
        there = self.interpreter
        choice = self.choice
        if choice.torch is not None:
            choice = choice._replace(torch=there.versions["torch"])
        overlays = Overlays(choice.base(), installer=find_installer(choice.installer))
        own = overlays.base.interpreter
        if there.pins and not (own.python == there.python and _is_seen(there)):
            own = overlays.open(tuple(there.pins.values()), alone=True)
        elif there.pins:
            own = there
        own = replace(own, requested=there.requested, pins=there.pins, versions={**own.versions})
        names = dict.fromkeys(("python", "torch", *there.requested))
        names |= dict.fromkeys(name for task in self.tasks for name in task.probe.module.PACKAGES)
        for name in names:
            if own.versions.get(name) != there.versions.get(name):
                said = f"{name} is {own.versions.get(name)} there and {there.versions.get(name)} here"
                raise UnbuildableError(said)
        return replace(self, interpreter=own)


def _is_seen(interpreter: Interpreter) -> bool:
    """Tell whether the folders of an environment are seen here, with the very packages it was made of."""
    for folder in interpreter.paths:
        try:
            with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
                pins = json.load(file)["pins"]
        except (OSError, ValueError, KeyError):
            return False
        if pins != dict(interpreter.pins):
            return False
    return True
