"""Trace a subject's run: find the model's configuration and an interpreter that has the subject's releases."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.checking.tracer import Traced, Untraced
from compatcheck.core.errors import CompatcheckError, UsageError
from compatcheck.frameworks.model.lookup import find_config
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.traced.request import OwnSource, Untraceable
from compatcheck.lab.traced.trace import trace
from compatcheck.memory.read_run import read_versions
from compatcheck.memory.role import TRAINED

if TYPE_CHECKING:
    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.traced.trace import Trace
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_PACKAGES = ("transformers", "peft")
"""What the traced step is made of, beside torch."""


def find_own(named: str) -> OwnSource:
    """Return the function that ``pkg.mod:build`` or ``FILE.py:build`` names; its module is not imported here.

    Raises:
        UsageError: it names none.
    """
    place, _, function = named.rpartition(":")
    if not place or not function.isidentifier():
        msg = f"--module {named!r} names no function"
        raise UsageError(msg, hint="as --module pkg.mod:build or --module train.py:build")
    if place.endswith(".py"):
        if not os.path.isfile(place):
            msg = f"--module {named!r}: there is no file {place}"
            raise UsageError(msg, hint="name it from here, or as pkg.mod:build")
        return OwnSource(os.path.abspath(place), None, function, os.getcwd())
    if not all(part.isidentifier() for part in place.split(".")):
        msg = f"--module {named!r}: {place!r} is neither a module nor a file of Python"
        raise UsageError(msg, hint="as --module pkg.mod:build or --module train.py:build")
    return OwnSource(None, place, function, os.getcwd())


def trace_subject(
    subject: Subject, rules: RuleSet, python: str | None, own: OwnSource | None = None
) -> Traced | Untraced:
    """Trace the training step of a subject.

    Args:
        subject: its facts, its model's configuration and its releases.
        rules: holds well-known models.
        python: interpreter with torch; releases of the subject that it does not have are laid over it.
        own: the person's function that builds what is trained; it runs in the interpreter as that is.

    Returns:
        The trace, or why there is none.

    Raises:
        UsageError: the person's function cannot be traced.
    """
    roles = [name for name in TRAINED if name in subject.roles]
    if own is not None:
        return _trace_own(subject, roles[0] if roles else next(iter(subject.roles)), python, own)
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
    found = trace(facts, config=config, python=interpreter, versions=read_versions(subject.environment))
    if isinstance(found, Untraceable):
        return Untraced(found.reason)
    return _describe_trace(found)


def _trace_own(subject: Subject, role: str, python: str | None, own: OwnSource) -> Traced:
    base = EnvironmentChoice(python=python, torch=None, beside=(), installer=None).base()
    versions = read_versions(subject.environment)
    found = trace(subject.roles[role], config={}, python=base.interpreter, own=own, versions=versions)
    if isinstance(found, Untraceable):
        msg = f"{own.describe()} is not traced: {found.reason}"
        needs = " ".join(f"--set {name}=…" for name in found.needs)
        raise UsageError(
            msg,
            hint=f"state them: {needs}"
            if needs
            else "docs/traced.md says what is traced, and what a function may return",
        )
    counts = f"{found.notes['parameters']:,} parameters, {found.notes['trainable_parameters']:,} trained"
    said = f"traced {found.notes['class']} of {own.describe()}: {counts}"
    return _describe_trace(found, said)


def _describe_trace(found: Trace, *said: str) -> Traced:
    releases = ", ".join(f"{name} {found.versions[name]}" for name in sorted(found.versions) if name != "python")
    details = (*said, *describe_peak(found), f"traced with {releases}")
    return Traced(found.estimate, found.timeline, details, frozenset(found.versions))


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
