"""Which measurements of a store a person means."""

from __future__ import annotations

import json
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import UsageError
from compatcheck.core.markers import canonical_name
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, contains

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.lab.evidence.store import EvidenceStore, Stored


def choose_measurements(
    store: EvidenceStore,
    probes: tuple[str, ...],
    packages: tuple[str, ...],
    parameters: tuple[str, ...],
    **exact: str | None,
) -> Iterator[Stored]:
    """Yield the measurements that options choose, the newest first.

    Args:
        store: where to look.
        probes: patterns.
        packages: ``--package``.
        parameters: ``--param``.
        exact: ``backend``, ``status`` and ``since`` of `EvidenceStore.list`.

    Raises:
        UsageError: an option that makes no sense.
    """
    ranges = [_parse_package(text) for text in packages]
    wanted = dict(_parse_parameter(text) for text in parameters)
    if exact["since"] is not None:
        _check_date(exact["since"])
    patterns = [pattern.replace("-", "_") for pattern in probes]
    found = store.list(parameters=wanted, backend=exact["backend"], status=exact["status"], since=exact["since"])
    for stored in found:
        measurement = stored.measurement
        if patterns and not any(fnmatchcase(measurement.probe, pattern) for pattern in patterns):
            continue
        if all(
            name in measurement.versions and contains(bounds, measurement.versions[name]) == "yes"
            for name, bounds in ranges
        ):
            yield stored


def _parse_package(text: str) -> tuple[str, Any]:
    length = next((index for index, sign in enumerate(text) if sign in "<>=!~ "), len(text))
    name, specifier = canonical_name(text[:length].strip()), text[length:].strip()
    try:
        return name, compile_specifier(specifier) if specifier else [[]]
    except InvalidSpecifierError as error:
        msg = f"--package {text!r}: {error}"
        raise UsageError(msg, hint="write 'deepspeed', 'deepspeed==0.16.7' or 'deepspeed>=0.16,<0.17'") from None


def _parse_parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        msg = f"--param {text!r} is not NAME=VALUE"
        raise UsageError(msg, hint="write --param layers=4")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _check_date(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        msg = f"--since {text!r} is not a date"
        raise UsageError(msg, hint="write it as 2026-11-21") from None


def choose_one(store: EvidenceStore, name: str) -> Stored:
    """Return the measurement whose id begins so.

    Raises:
        UsageError: there is none, or there are several.
    """
    found = store.get(name)
    if not found:
        msg = f"there is no measurement {name!r} in {store.path}"
        raise UsageError(msg, hint="see `compatcheck evidence list`")
    if len(found) > 1:
        msg = f"{len(found)} measurements start with {name!r}"
        raise UsageError(msg, hint=f"give more of it: {', '.join(stored.id for stored in found[:3])}")
    return found[0]
