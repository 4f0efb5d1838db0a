"""Which index a ``pyproject.toml`` takes torch from: uv's sources, poetry's and pdm's.

https://docs.astral.sh/uv/guides/integration/pytorch/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.collectors.python.pinned_build import SEVERAL_BUILDS, read_index
from compatcheck.core.expected_shapes import as_table
from compatcheck.core.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def torch_index(tool: Mapping[str, Any]) -> str | None:
    """Return the index of the torch of a project.

    Returns:
        Its address; `SEVERAL_BUILDS` where extras, groups or platforms choose between several; None for the public index.
    """
    uv, poetry, pdm = (as_table(tool.get(name)) for name in ("uv", "poetry", "pdm"))
    uv_indexes = {entry.get("name"): entry for entry in _tables(uv.get("index"))}
    others = {entry.get("name"): entry for entry in (*_tables(poetry.get("source")), *_tables(pdm.get("source")))}
    stated = _tables(as_table(uv.get("sources")).get("torch"))
    dependency = as_table(poetry.get("dependencies")).get("torch")
    stated += [{"index": entry["source"]} for entry in _tables(dependency) if isinstance(entry.get("source"), str)]
    if not stated:
        # An index without a name in front of a requirement is searched for all of them.
        open_to_all = [entry for entry in uv_indexes.values() if entry.get("explicit") is not True]
        open_to_all += [entry for entry in others.values() if entry.get("priority", "primary") != "explicit"]
        return _choose(list(_addresses(open_to_all)))
    known = {**others, **uv_indexes}
    named = [known.get(entry.get("index"), {}) for entry in stated]
    found = list(dict.fromkeys(_addresses(named)))
    unmet = len(stated) > 1 or any("extra" in entry or "group" in entry for entry in stated)
    if unmet and len(found) != 1:
        return SEVERAL_BUILDS
    return _choose(found) or SEVERAL_BUILDS


def _choose(addresses: list[str]) -> str | None:
    builds = list(dict.fromkeys(address for address in addresses if read_index(address) is not None))
    return SEVERAL_BUILDS if len(builds) > 1 else builds[0] if builds else None


def _addresses(entries: list[Mapping[str, Any]]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry.get("url"), str):
            yield redact(entry["url"])


def _tables(value: object) -> list[Mapping[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]
