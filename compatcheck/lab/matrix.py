"""The runs of a probe that are worth a look at a release, as lines of a text beside it.

A line is a package and parameters with their values, ``PACKAGE NAME=VALUE[,VALUE] …``; within it every three values that go
together occur together in some run. Defaults hide what only several settings at once show, and most of what was found late wanted
three: weights in 16 bit, mixed precision and no adapter. ``options.NAME`` is one option of a trainer as an axis of its own, left
out where its value is empty.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatcheck.lab.pairwise import cover_together
from compatcheck.lab.parameters import parse_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.probes.probe import Probe

_OPTION = "options."


def choose_rows(probe: Probe, package: str, axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the runs that tell most of a package: those of the lines beside the probe, else its matrix.

    Args:
        probe: whose runs.
        package: that all of them use.
        axes: parameter → values instead of the probe's own choices.
    """
    lines = Path(probe.path).with_suffix(".txt")
    if not lines.exists():
        return probe.matrix(package, axes)
    given = {name: values for name, values in axes.items() if name in probe.module.DEFAULTS}
    return read_rows(lines.read_text(encoding="utf-8"), package, given)


def read_rows(
    text: str, package: str, given: Mapping[str, Sequence[Any]] | None = None, *, together: int = 3
) -> list[dict[str, Any]]:
    """Return the runs of a package, each once.

    Args:
        text: the lines; what follows a ``#`` is a remark.
        package: whose.
        given: parameter → values that alone are wanted; what a line does not name is set.
        together: so many values of a line occur together in every way.
    """
    rows: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        name, *words = line.partition("#")[0].split() or ("",)
        if name == package:
            axes = {key: [_told(key, one) for one in values] for key, values in parse_parameters(words).items()}
            for key, values in (given or {}).items():
                axes[key] = [one for one in axes.get(key, values) if one in values]
            for row in cover_together(axes, lambda _row: True, together=together):
                found = _join(row)
                rows.setdefault(json.dumps(found, sort_keys=True), found)
    return list(rows.values())


def _told(key: str, value: Any) -> Any:  # noqa: ANN401 (a parameter)
    """Leave a text of options as it is written."""
    return str(value) if key == "options" else value


def _join(row: Mapping[str, Any]) -> dict[str, Any]:
    """Put options that are axes of their own behind those that are told as one text."""
    own = {name: value for name, value in row.items() if not name.startswith(_OPTION)}
    items = [own["options"]] if own.get("options") else []
    for name, value in row.items():
        if name.startswith(_OPTION) and value != "":
            items.append(f"{name.removeprefix(_OPTION)}:{value if isinstance(value, str) else json.dumps(value)}")
    return own | ({"options": "+".join(items)} if items or "options" in own else {})
