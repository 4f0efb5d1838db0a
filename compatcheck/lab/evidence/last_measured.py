"""When a probe was last measured on each back end, by the evidence of a checkout and the person's own store."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.lab.evidence.files import measurement_files
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.rules.locate import CHECKOUT, is_checkout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from compatcheck.lab.measurement import Measurement

COMPILED = Path(__file__).with_name("_measured.json")
"""Probe → back end → newest day of the evidence of the checkout that an installation was built from."""
UNDATED = "on a day not recorded"


def last_measured(probe: str, *, exported: str | None, store: str | None) -> dict[str, str]:
    """Return back end → the newest day it has a result from; a back end it was never run on is missing.

    Args:
        probe: its name.
        exported: folder of exported evidence, ``fixtures/measurements``; None is what an installation was built with.
        store: file of the person's own store; None, or no such file, leaves it out.

    Raises:
        InputError: a file of evidence cannot be read.
    """
    found = dict(_read_compiled().get(probe, {})) if exported is None else {}
    for measurement in _measurements(probe, exported, store):
        if measurement.succeeded:
            day = measurement.time[:10] if measurement.time else ""
            found[measurement.backend] = max(day, found.get(measurement.backend, ""))
    return {backend: day or UNDATED for backend, day in found.items()}


def compile_last(probes: Iterable[str], exported: str) -> dict[str, dict[str, str]]:
    """Return probe → back end → day of exported evidence, for an installation, which has none of its files."""
    found = {probe: last_measured(probe, exported=exported, store=None) for probe in probes}
    return {probe: days for probe, days in found.items() if days}


@lru_cache(maxsize=1)
def _read_compiled() -> dict[str, dict[str, str]]:
    data: dict[str, dict[str, str]] = json.loads(COMPILED.read_text(encoding="utf-8")) if COMPILED.exists() else {}
    return data


def _measurements(probe: str, exported: str | None, store: str | None) -> Iterator[Measurement]:
    folder = os.path.join(exported, probe) if exported else None
    if folder and os.path.isdir(folder):
        for path in measurement_files(folder):
            yield from (one for one in read_measurements(path) if one.probe == probe)
    if store and os.path.exists(store):
        from compatcheck.lab.evidence.store import EvidenceStore  # noqa: PLC0415 (SQLite)

        with EvidenceStore(store, read_only=True, follows=False) as opened:
            yield from (stored.measurement for stored in opened.list(probe=probe, status="ok"))


def describe_last(backends: tuple[str, ...], last: Mapping[str, str]) -> str:
    """Say it in one line: ``cuda: never run, cpu: 2026-11-20``."""
    return ", ".join(f"{backend}: {last.get(backend, 'never run')}" for backend in backends)


def exported_evidence() -> str | None:
    """Return the folder of exported measurements of this checkout, None for an installed package."""
    return os.path.join(os.path.dirname(CHECKOUT), "fixtures", "measurements") if is_checkout() else None
