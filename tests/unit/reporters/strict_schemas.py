"""Published schemas are strict: every object of a report says all of its keys, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def require_strict(schema: Mapping[str, Any], *, objects: int) -> None:
    """Require that a schema is one, and that each of its objects (at least so many) requires the keys it knows."""
    jsonschema.Draft202012Validator.check_schema(schema)
    found = list(_objects(schema))
    assert len(found) >= objects
    for node in found:
        assert node["additionalProperties"] is False
        assert set(node["required"]) == set(node["properties"])


def _objects(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, dict):
        if "properties" in node and isinstance(node["properties"], dict) and node.get("type") == "object":
            yield node
        for value in node.values():
            yield from _objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from _objects(value)
