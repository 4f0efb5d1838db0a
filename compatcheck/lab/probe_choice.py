"""Which probes a person means, and the tasks they make."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.lab.parameters import parse_parameters, share_parameters
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.sweep import vary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.lab.probes.probe import Probe
    from compatcheck.lab.probes.runner import Task

_WILDCARDS = "*?["


def choose_tasks(names: Sequence[str], backend: str | None, parameters: Sequence[str]) -> list[Task]:
    """Return the tasks of named probes, with every combination of the parameters.

    Raises:
        UsageError: no name, an unknown one, or one that cannot be run so.
    """
    if not names:
        msg = "no probe is named"
        raise UsageError(msg, hint="name one of `compatcheck probe list`, or run --all")
    probes = _find(names)
    if any(sign in name for name in names for sign in _WILDCARDS):
        probes = _on(backend, probes)
    shared = share_parameters(probes, parse_parameters(parameters))
    return [make_task(probe, one, backend) for probe, own in shared for one in vary(own)]


def choose_every_task(names: Sequence[str], backend: str | None, parameters: Sequence[str]) -> list[Task]:
    """Return the tasks of every probe that has a back end, at all its sizes.

    Raises:
        UsageError: no back end, parameters, or names that leave nothing.
    """
    if backend is None or parameters:
        msg = (
            "--all needs --backend"
            if backend is None
            else "--all takes no --param: every probe is run at its own sizes"
        )
        raise UsageError(msg, hint="as `compatcheck probe run --all --backend cuda --output cuda.jsonl`")
    probes = _on(backend, _find(names or ("*",)))
    return [make_task(probe, size, backend) for probe in probes for size in probe.module.SIZES or ({},)]


def _on(backend: str | None, probes: list[Probe]) -> list[Probe]:
    """Return the probes that have a back end; all where none is asked for.

    Raises:
        UsageError: there is none.
    """
    found = [probe for probe in probes if backend is None or backend in probe.module.BACKENDS]
    if not found:
        msg = f"none of these probes runs on {backend}"
        raise UsageError(msg, hint="`compatcheck probe list` says where each runs")
    return found


def _find(names: Sequence[str]) -> list[Probe]:
    """Return probes by name or pattern, each once.

    Raises:
        UsageError: there is none.
    """
    found: dict[str, Probe] = {}
    for name in names:
        matching = [known for known in probe_names() if fnmatchcase(known, name.replace("-", "_"))]
        if not matching and any(sign in name for sign in _WILDCARDS):
            msg = f"no probe matches {name!r}"
            raise UsageError(msg, hint="`compatcheck probe list` has them all")
        found.update((known, find_probe(known)) for known in matching or [name])
    return list(found.values())
