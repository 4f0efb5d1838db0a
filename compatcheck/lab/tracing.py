"""Trace a subject's run: find the model's configuration and an interpreter that has the subject's releases."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.checking.tracer import Traced, Untraced
from compatcheck.core.errors import CompatcheckError, UsageError
from compatcheck.frameworks.model.lookup import find_config
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.traced.request import Untraceable
from compatcheck.lab.traced.trace import trace
from compatcheck.memory.role import TRAINED

if TYPE_CHECKING:
    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.traced.trace import Trace
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_PACKAGES = ("transformers", "peft")
"""What the traced step is made of, beside torch."""


def trace_subject(subject: Subject, rules: RuleSet, python: str | None) -> Traced | Untraced:
    """Trace the training step of a subject.

    Args:
        subject: its facts, its model's configuration and its releases.
        rules: holds well-known models.
        python: interpreter with torch; releases of the subject that it does not have are laid over it.

    Returns:
        The trace, or why there is none.
    """
    roles = [name for name in TRAINED if name in subject.roles]
    if not roles:
        return Untraced("nothing is trained")
    config = find_config(subject.documents, rules)
    if config is None:
        return Untraced("the model's configuration is not known: name its config.json with --model")
    facts = subject.roles[roles[0]]
    try:
        interpreter = open_interpreter(subject, python, adapters=facts.get("training.peft") is not None)
    except UsageError as error:
        return Untraced(error.message + (f" ({error.hint})" if error.hint else ""))
    found = trace(facts, config=config, python=interpreter)
    if isinstance(found, Untraceable):
        return Untraced(found.reason)
    releases = ", ".join(f"{name} {found.versions[name]}" for name in sorted(found.versions) if name != "python")
    return Traced(found.estimate, found.timeline, (*describe_peak(found), f"traced with {releases}"))


def open_interpreter(subject: Subject, python: str | None, *, adapters: bool) -> Interpreter:
    """Return an interpreter with the subject's transformers and, for adapters, its peft.

    Raises:
        UsageError: there is no interpreter with torch, or the releases cannot be laid over it.
    """
    choice = EnvironmentChoice(python=python, torch=None, beside=(), installer=None)
    base = choice.base()
    wanted = []
    for name in _PACKAGES if adapters else _PACKAGES[:1]:
        package = subject.environment.packages.get(name) if subject.environment is not None else None
        version = None if package is None else package.version
        if version is not None and base.versions.get(name) != version:
            wanted.append(f"{name}=={version}")
    if not wanted:
        return base.interpreter
    try:
        return choice._replace(python=base.python).overlays().open(wanted)
    except CompatcheckError as error:
        msg = f"{', '.join(wanted)} could not be laid over {os.path.basename(base.python)}: {error.message}"
        raise UsageError(msg, hint=error.hint) from error


def describe_peak(trace: Trace) -> tuple[str, ...]:
    """Say which tensor makes the peak, and what made it."""
    peak = trace.estimate.peak_phase
    found = next((entry for entry in trace.peaks if peak is not None and entry.phase == peak.name), None)
    if found is None:
        return ()
    shape = ", ".join(f"{size:,}" for size in found.shape)
    where = f" in {found.module}" if found.module else ""
    return (
        f"largest tensor then: {found.dtype} [{shape}], made by {found.made_by}{where}; reached in {found.operator}",
    )
