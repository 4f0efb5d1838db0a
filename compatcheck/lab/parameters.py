"""Parameters of probes as a person writes them: ``NAME=VALUE[,VALUE]``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.probes.probe import Probe


def parse_parameters(given: Sequence[str]) -> dict[str, list[Any]]:
    """Parse ``NAME=VALUE[,VALUE]``: each value is JSON, or a plain word.

    Raises:
        UsageError: no ``=``, or a name twice.
    """
    parsed: dict[str, list[Any]] = {}
    for text in given:
        name, separator, values = text.partition("=")
        if not separator or not name.strip() or name.strip() in parsed:
            msg = f"--param {text!r} is not NAME=VALUE" if not separator else f"--param {name} is given twice"
            raise UsageError(msg, hint="as --param layers=4 or --param layers=4,8")
        parsed[name.strip()] = [_value(value) for value in values.split(",")]
    return parsed


def parse_one_set(given: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` where a single measurement is meant.

    Raises:
        UsageError: several values for a parameter, or what `parse_parameters` refuses.
    """
    parsed = parse_parameters(given)
    for name, values in parsed.items():
        if len(values) > 1:
            msg = f"--param {name} has {len(values)} values, and one is wanted here"
            raise UsageError(msg, hint="`compatcheck probe run` and `compatcheck sweep` take several")
    return {name: value for name, (value,) in parsed.items()}


def share_parameters(
    probes: Sequence[Probe], given: Mapping[str, list[Any]]
) -> list[tuple[Probe, dict[str, list[Any]]]]:
    """Give each probe its parameters: ``PROBE.NAME`` is for one of them, ``NAME`` for all that have it.

    Raises:
        UsageError: a parameter that none of them has.
    """
    known = {name for probe in probes for name in probe.module.DEFAULTS}
    known |= {f"{probe.name}.{name}" for probe in probes for name in probe.module.DEFAULTS}
    for name in given:
        if name not in known:
            from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

            near = get_close_matches(name, known, n=1)
            msg = f"no probe here has a parameter {name!r}"
            raise UsageError(
                msg, hint=f"did you mean {near[0]!r}?" if near else f"they have {', '.join(sorted(known))}"
            )
    shared = []
    for probe in probes:
        own = {name: values for name, values in given.items() if name in probe.module.DEFAULTS}
        start = f"{probe.name}."
        own |= {name.removeprefix(start): values for name, values in given.items() if name.startswith(start)}
        shared.append((probe, own))
    return shared


def _value(text: str) -> Any:  # noqa: ANN401 (a parameter)
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()
